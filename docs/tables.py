"""Tables and diagrams of the docs, printed from the code's own tables.

    python docs/tables.py            check: exit 1 when a page differs from the code
    python docs/tables.py --write    bring the pages up to date

A page holds ``<!-- table: NAME -->`` and ``<!-- end -->``; what stands between is generated.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable
from pathlib import Path

from notebook_agent.core import outcomes, turn_fsm
from notebook_agent.core.event_routes import EVENT_ROUTES

ROOT = Path(__file__).parent.parent
PAGES = ("ARCHITECTURE.md", "README.md", "docs/*.md")
BLOCK = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def fsm_diagram() -> str:
    return f"```mermaid\n{turn_fsm.mermaid()}\n```"


def fsm_table() -> str:
    states = list(turn_fsm.TurnState)
    rows = ["| outcome | " + " | ".join(s.name for s in states) + " |", "|---" * 7 + "|"]
    for kind in outcomes.OUTCOMES:
        cells = []
        for state in states:
            action = turn_fsm.TRANSITIONS[state].get(kind)
            if kind is outcomes.Cancelled:
                cells.append("Fail(Cancelled)")
            elif action is None:
                cells.append("·")
            elif isinstance(action, turn_fsm.Continue):
                cells.append(f"→ {action.state.name}")
            else:
                cells.append(type(action).__name__)
        rows.append(f"| {kind.__name__} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def event_routes() -> str:
    rows = ["| event | text streamer | observers | accumulator | engine |", "|---|---|---|---|---|"]
    for kind, route in EVENT_ROUTES.items():
        observer = f"`{route.observer}`" if route.observer else "—"
        rows.append(
            f"| {kind.__name__} | {'yes' if route.streamer else '—'} | {observer} "
            f"| {'yes' if route.accumulator else '—'} | {route.engine or '—'} |"
        )
    return "\n".join(rows)


def breaker_table() -> str:
    from notebook_agent.core.breaker import BREAKER_TRANSITIONS  # noqa: PLC0415  # keeps start light

    rows = ["| from | event | to | effects |", "|---|---|---|---|"]
    for state, row in BREAKER_TRANSITIONS.items():
        for event, rule in row.items():
            effects = ", ".join(effect.value for effect in rule.effects)
            rows.append(
                f"| {_word(state)} | {_word(event)} | {_word(rule.to)} | {effects or 'none'} |"
            )
    return "\n".join(rows)


def settings() -> str:
    from notebook_agent.core.breaker import BreakerConfig  # noqa: PLC0415  # keeps start light
    from notebook_agent.core.compaction import CompactionPolicy  # noqa: PLC0415  # likewise
    from notebook_agent.core.policy import RuntimePolicy  # noqa: PLC0415  # likewise
    from notebook_agent.core.retry import (  # noqa: PLC0415  # likewise
        RateLimitPolicy,
        RetryPolicy,
        StreamTimeouts,
    )

    rows = ["| object | field | default |", "|---|---|---|"]
    for kind in (
        RuntimePolicy, StreamTimeouts, RetryPolicy, RateLimitPolicy, BreakerConfig, CompactionPolicy,
    ):  # fmt: skip
        value = kind()
        rows += [
            f"| `{kind.__name__}` | `{f.name}` | {_value(getattr(value, f.name))} |"
            for f in dataclasses.fields(kind)
        ]
    return "\n".join(rows)


def ladder() -> str:
    """What the ladder decides with the default settings, failure after failure, by asking it."""
    from notebook_agent.core import retry  # noqa: PLC0415  # keeps start light
    from notebook_agent.errors import ErrorKind, ProviderError  # noqa: PLC0415  # likewise

    rows = ["| failure | attempt 1 | attempt 2 | attempt 3 | attempt 4 |", "|---|---|---|---|---|"]
    for failure in retry.LADDER_OF_FAILURE:
        cells, counters, ended = [], retry.Ladder(), False
        for _ in range(4):
            if ended:
                cells.append("·")
                continue
            decision = retry.next_step(
                failure,
                retry.Situation(
                    error=ProviderError(ErrorKind.PROVIDER, "x"), ladder=counters, remaining=300.0,
                    timeouts=retry.StreamTimeouts(), retry=retry.RetryPolicy(),
                    rate_limit=retry.RateLimitPolicy(), uniform=lambda low, high: (low + high) / 2,
                ),
            )  # fmt: skip
            again = decision.step is retry.Step.RETRY
            cells.append(f"{decision.delay:g} s, retry" if again else decision.step.value)
            counters, ended = decision.ladder, not again
        rows.append(f"| {_word(failure)} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def verbs() -> str:
    from notebook_agent.notebook.verbs.table import VERBS  # noqa: PLC0415  # keeps start light

    rows = ["| `%agent` | what it does |", "|---|---|"]
    for verb in VERBS.values():
        head = f"{verb.name} {verb.usage}".strip()
        rows.append(f"| `{_cell(head)}` | {_cell(verb.summary)} |")
    return "\n".join(rows)


def options() -> str:
    from notebook_agent.notebook.arguments import CELL_OPTIONS  # noqa: PLC0415  # keeps start light

    rows = ["| `%%agent` | meaning |", "|---|---|"]
    for option in CELL_OPTIONS:
        value = option.metavar if option.kind != "flag" else ""
        head = f"{', '.join(option.flags)} {value}".strip()
        rows.append(f"| `{_cell(head)}` | {_cell(option.help)} |")
    return "\n".join(rows)


def magics_settings() -> str:
    from notebook_agent.notebook.magics import AgentMagics  # noqa: PLC0415  # loads IPython

    rows = ["| `AgentMagics.` | default | meaning |", "|---|---|---|"]
    for name, trait in sorted(AgentMagics.class_own_traits(config=True).items()):
        rows.append(f"| `{name}` | `{trait.default()!r}` | {_cell(trait.help)} |")
    return "\n".join(rows)


def sinks() -> str:
    from notebook_agent.notebook.frontend import SINK_OF  # noqa: PLC0415  # keeps start light

    rows = ["| front end | sink |", "|---|---|"]
    return "\n".join([*rows, *(f"| {name} | {sink} |" for name, sink in SINK_OF.items())])


def services() -> str:
    from notebook_agent.providers.services import SERVICES  # noqa: PLC0415  # keeps start light

    rows = ["| provider | wire format | address | key in | address from |", "|---|---|---|---|---|"]
    for name, one in SERVICES.items():
        keys = ", ".join(f"`{k}`" for k in one.key_env) + ("" if one.needs_key else " (optional)")
        bases = ", ".join(f"`{b}`" for b in one.base_env)
        rows.append(f"| `{name}` | {one.api} | {one.base_url or 'yours'} | {keys} | {bases} |")
    return "\n".join(rows)


def commands() -> str:
    from notebook_agent.cli import COMMANDS  # noqa: PLC0415  # keeps start light

    rows = ["| `notebook-agent` | what it does |", "|---|---|"]
    return "\n".join([*rows, *(f"| `{name}` | {words} |" for name, (_, words) in COMMANDS.items())])


def fault_words() -> str:
    """The words of a fault script, from the docstring that a class reads too."""
    from notebook_agent.providers import fault_script  # noqa: PLC0415  # keeps start light

    rows = ["| word | the request meets |", "|---|---|"]
    lines = (fault_script.__doc__ or "").splitlines()
    bars = [i for i, line in enumerate(lines) if line.startswith("====")]
    for line in lines[bars[1] + 1 : bars[2]]:
        word, meaning = line[:15].strip(), line[15:].strip()
        rows.append(f"| {word.replace('``', '`')} | {meaning.replace('``', '`')} |")
    return "\n".join(rows)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _word(value: object) -> str:
    return str(getattr(value, "value", value)).replace("_", " ")


def _value(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else f"{value}"


TABLES: dict[str, Callable[[], str]] = {
    "fsm_diagram": fsm_diagram,
    "fsm_table": fsm_table,
    "event_routes": event_routes,
    "breaker_table": breaker_table,
    "settings": settings,
    "verbs": verbs,
    "options": options,
    "ladder": ladder,
    "magics_settings": magics_settings,
    "sinks": sinks,
    "services": services,
    "commands": commands,
    "fault_words": fault_words,
}


def pages() -> list[Path]:
    return [p for pattern in PAGES for p in sorted(ROOT.glob(pattern))]


def refreshed(text: str) -> str:
    """The page with every generated block as the code has it now."""
    return BLOCK.sub(lambda m: f"{m[1]}{TABLES[m[2]]()}\n{m[3]}", text)


def main(argv: list[str]) -> int:
    stale = []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        new = refreshed(text)
        if new != text:
            stale.append(page.name)
            if "--write" in argv:
                page.write_text(new, encoding="utf-8")
    if stale and "--write" not in argv:
        sys.stderr.write(
            "out of date, run python docs/tables.py --write: " + ", ".join(stale) + "\n"
        )
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
