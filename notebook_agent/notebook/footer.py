"""The footer line: who answered, how many turns and tokens, how long, and how it ended.

Source: notebook side, "Commands" (D10); LLM turn, gotcha 4 (usage may be absent).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from notebook_agent.core.text import visible
from notebook_agent.notebook.panel_state import BreakerView, Gauge, PanelState
from notebook_agent.notebook.tables import number, tokens
from notebook_agent.notebook.words import plain

__all__ = ["AUDIT_COLUMNS", "audit_cells", "breaker_line", "footer", "footer_facts", "stop_word"]

# The audit table of a run as shown: (head, column, right-aligned, rank). Rank 1 goes first where
# there is no room, then 2; 0 always stays.
AUDIT_COLUMNS: Final[tuple[tuple[str, str, bool, int], ...]] = (
    ("turn", "turn", True, 0),
    ("model", "model", False, 0),
    ("outcome", "outcome", False, 0),
    ("stop reason", "stop_reason", False, 1),
    ("in", "input_tokens", True, 0),
    ("out", "output_tokens", True, 0),
    ("context est.", "context_estimate", True, 1),
    ("attempts", "attempts", True, 2),
    ("tool calls", "tool_calls", True, 2),
    ("first text s", "ttft_s", True, 2),
    ("s", "duration_s", True, 0),
)


def footer(state: PanelState) -> str:
    """The whole line; ``·`` between facts.

    Example: ``openai:gpt-mini · 2 turns · 3,862 in / 272 out · 6.4 s · END_TURN``
    """
    parts = [visible(state.model) or "no model", *footer_facts(state)]
    return " · ".join(parts)


def footer_facts(state: PanelState) -> list[str]:
    """The facts after the model's name."""
    rows = state.rows
    served = [row for row in rows if row["outcome"] == "served"]
    other = [row for row in rows if row["outcome"] != "served"]
    facts = [_turns(len(served), len(other), other)]
    if rows:
        facts.append(f"{_sum(rows, 'input_tokens')} in / {_sum(rows, 'output_tokens')} out")
    if state.done:
        facts.append(f"{state.seconds:,.1f} s")
        facts.append(stop_word(state))
    if state.breaker.state != "primary":
        facts.append(f"breaker {state.breaker.state}")
    return facts


def stop_word(state: PanelState) -> str:
    """Stop reason of the last served turn; how the run ended where that says more."""
    if state.run_status.value != "completed":
        return state.status
    last = next((row for row in reversed(state.rows) if row["outcome"] == "served"), None)
    if last is None:
        return state.status
    word = str(last["stop_reason"] or "").upper()
    ending = str(last.get("ending") or "")
    extra = f" ({ending.replace('_', ' ')})" if ending and ending.upper() != word else ""
    return f"{word}{extra}{' · rescued' if last.get('rescued') else ''}"


def breaker_line(breaker: BreakerView, gauge: Gauge, *, at: float = 0.0) -> str:
    """Breaker and context in one line of words."""
    parts = [f"breaker: {breaker.state}"]
    if breaker.state == "recovering":
        parts.append(f"probes {breaker.probes} of {breaker.probes_needed}")
    else:
        parts.append(f"failures {breaker.failures} of {breaker.trip_at}")
    if breaker.state == "fallback":
        parts.append(f"{breaker.serves} serves")
    parts += [f"{c.name}: strikes {c.strikes} of {c.of}" for c in breaker.chain if c.strikes]
    if breaker.cooldown_until is not None:
        parts.append(f"next probe in {max(0.0, breaker.cooldown_until - at):.0f} s")
    line = ", ".join(parts)
    if gauge.total:
        of = f" of {gauge.window:,}" if gauge.window else ""
        share = f" ({gauge.percent} %)" if gauge.window else ""
        line += f" · context {'' if gauge.exact else 'est. '}{gauge.total:,}{of} tokens{share}"
    return visible(line)


def audit_cells(row: Mapping[str, Any]) -> list[str]:
    """The shown cells of an audit row, ``?`` where nothing was reported."""
    out = []
    for _, name, _, _ in AUDIT_COLUMNS:
        value = row.get(name)
        if name == "outcome":
            out.append("rescued" if row.get("rescued") else str(value))
        elif name == "stop_reason":
            out.append("—" if value is None else str(value).upper())
        elif name in ("input_tokens", "output_tokens"):
            out.append(tokens(value))
        elif name in ("ttft_s", "duration_s"):
            out.append("—" if value is None else f"{value:,.1f}")
        else:
            out.append("—" if value is None else number(value))
    return out


def _turns(served: int, other: int, rows: Sequence[Mapping[str, Any]]) -> str:
    def count(n: int) -> str:
        return f"{n} turn" if n == 1 else f"{n} turns"

    if not other:
        return count(served)
    word = str(rows[-1]["outcome"])
    return f"{count(served)} + {other} {word}" if served else f"{count(other)} {word}"


def _sum(rows: Sequence[Mapping[str, Any]], column: str) -> str:
    """Reported tokens added up; a sum with a gap says so, unknown is ``?`` (never 0)."""
    known = [row[column] for row in rows if row.get(column) is not None]
    if not known:
        return "?"
    gap = "" if len(known) == len(rows) else " + ?"
    return f"{sum(known):,}{gap}"


def closing(state: PanelState) -> str:
    """The sentence that says how it ended, "" for a whole answer."""
    return plain(state.line) if state.done else ""
