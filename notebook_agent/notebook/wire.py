"""What the kernel tells the panel's view: only what changed, as plain JSON.

One message a flush: ``{"seq", "run", "ops": [...]}``. An op is one of ``OPS``:

=======  ==========================================================================
op       fields
=======  ==========================================================================
d        lane (text, thinking), index, offset (UTF-16 units), text: appended text
tail     text: the unfinished text, whole (after blocks were cut off its front)
block    index and one item: put it there, or replace the one that is there
reset    keep: items from here on are void
row      cells of one audit row
state    everything small: status, states, sentence, breaker, gauge, footer
full     full: all of the above at once (a keyframe, an answer to resync)
end      full: the final state
hi       nonce, stop: the answer to hello, and whether a Stop click can arrive in time
=======  ==========================================================================

The browser says ``hello``, ``stop``, ``resync`` and ``answer`` (``FROM_VIEW``). Names are compared with
static/panel.js by a test.

Source: notebook side, "The panel" (D13, D14, D18), "Front ends" (F2, F13).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile
from typing import Any, Final

from notebook_agent.core.text import visible
from notebook_agent.notebook.footer import AUDIT_COLUMNS, audit_cells, footer_facts
from notebook_agent.notebook.output import SCHEMA, call_text, error_lines, tool_word, void_line
from notebook_agent.notebook.panel_state import (
    BreakerView,
    Item,
    Note,
    PanelState,
    Rich,
    TextBlock,
    Thinking,
    ToolRow,
    Void,
)
from notebook_agent.notebook.render import render_block
from notebook_agent.notebook.tables import shorten

__all__ = ["FROM_VIEW", "LIMIT", "OPS", "PanelWire", "redacted"]

OPS: Final = ("d", "tail", "block", "reset", "row", "state", "full", "end", "hi")
FROM_VIEW: Final = ("hello", "stop", "resync", "answer")
LIMIT: Final = 180_000  # bytes of text and markup a view holds; a keyframe stays below 200 kB
PART: Final = 16_000  # characters of one thinking, tool result or void text in the view
ROWS: Final = 200  # newest audit rows in the view

Op = dict[str, Any]


class PanelWire:
    """Turns states into ops; remembers what the view has."""

    def __init__(self, run: int = 0) -> None:
        self.run = run  # counts the runs of a panel; the run's id is not known at the first paint
        self._items: list[Item] = []  # as sent
        self._seen: tuple[Item, ...] | None = None  # the flow that they are of
        self._json: list[dict[str, Any]] = []
        self._cost = 0
        self._costs: list[int] = []
        self._tail = ""
        self._units = 0
        self._rows = 0
        self._state: dict[str, Any] = {}
        self._key: tuple[Any, ...] = ()
        self._clipped = False
        self._speed = ""
        self._speed_at = 0.0

    # ---- both directions of the same thing ----

    def diff(self, state: PanelState) -> list[Op]:
        """Ops that take the view from the last state to this one; empty when nothing changed."""
        ops = self._diff_items(state)
        ops += self._diff_rows(state)
        speed = self._speed_of(state)
        # compared by identity first: while only text arrives, all of these are the same objects
        key = (
            state.status, state.model, state.done, state.at_state, state.seen, state.bad,
            state.marks, state.line, state.breaker, state.gauge, state.rows, state.error,
            state.notices, state.wait_until, state.ask, self._clipped, speed,
        )  # fmt: skip
        if key != self._key:
            self._key = key
            self._state = self._small(state, speed)
            ops.append({"t": "state", "state": self._with_clocks(state, self._state)})
        return ops

    def full(self, state: PanelState) -> dict[str, Any]:
        """Everything, for a view that has nothing (at most ``LIMIT`` of text)."""
        self.diff(state)
        return {
            "schema": SCHEMA,
            "run": self.run,
            "items": list(self._json),
            "tail": self._tail,
            "rows": [row_json(row) for row in state.rows[-ROWS:]],
            "state": self._with_clocks(state, self._state),
        }

    # ---- the flow ----

    def _diff_items(self, state: PanelState) -> list[Op]:
        ops: list[Op] = []
        items, sent = state.items, self._items
        if items is self._seen:
            return self._diff_tail(state, cut_text=False)
        self._seen = items
        same = len(sent)
        if sent != list(items[:same]):  # at once: most often all of it stands
            pairs = zip(sent, items, strict=False)
            same = sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], pairs))
        if same < len(sent) and (same >= len(items) or not _follows(sent[same], items[same])):
            self._drop(same)
            ops.append({"t": "reset", "keep": same})
            self._tail, self._units = "", 0
        cut_text = False
        for index in range(same, len(items)):
            one = items[index]
            before = self._items[index] if index < len(self._items) else None
            if before is one:
                continue
            if before is None and self._clipped:
                break
            grown = _grown(before, one)
            if grown and isinstance(one, Thinking):
                ops.append(self._think(index, one, grown))
                continue
            made = item_json(one)
            if not self._put(index, one, made):
                break
            cut_text = cut_text or isinstance(one, TextBlock) or before is None
            ops.append({"t": "block", "index": index, "item": made})
        return ops + self._diff_tail(state, cut_text=cut_text)

    def _diff_tail(self, state: PanelState, *, cut_text: bool) -> list[Op]:
        room = max(0, LIMIT - self._cost)
        if self._clipped:
            room = 0
        tail = visible(state.tail[: room + 1]) if state.tail else ""
        if len(tail) > room:
            tail, self._clipped = tail[:room], True
        before = self._tail
        if tail == before and not cut_text:
            return []
        self._tail = tail
        if not cut_text and tail.startswith(before):
            text, offset = tail[len(before) :], self._units
            self._units += units(text)
            return [{"t": "d", "lane": "text", "offset": offset, "text": text}]
        self._units = units(tail)
        return [] if not tail and not before else [{"t": "tail", "text": tail}]

    def _think(self, index: int, one: Thinking, grown: str) -> Op:
        """Thinking grew at its end: only the new text travels."""
        shown = self._json[index]
        text = visible(grown)[: max(0, PART - len(shown["text"]))]
        op = {
            "t": "d",
            "lane": "thinking",
            "index": index,
            "offset": units(shown["text"]),
            "text": text,
            "line": thinking_words(one),
        }
        self._items[index] = one
        self._json[index] = {**shown, "text": shown["text"] + text, "line": op["line"]}
        return op

    def _put(self, index: int, one: Item, made: dict[str, Any]) -> bool:
        cost = _cost(made)
        if index < len(self._items):
            self._cost += cost - self._costs[index]
            self._items[index], self._json[index], self._costs[index] = one, made, cost
            return True
        if self._cost + cost > LIMIT:
            self._clipped = True
            return False
        self._items.append(one)
        self._json.append(made)
        self._costs.append(cost)
        self._cost += cost
        return True

    def _drop(self, keep: int) -> None:
        del self._items[keep:], self._json[keep:], self._costs[keep:]
        self._cost = sum(self._costs)
        self._clipped = False

    def _diff_rows(self, state: PanelState) -> list[Op]:
        fresh = state.rows[self._rows :]
        self._rows = len(state.rows)
        return [{"t": "row", "row": row_json(row)} for row in fresh[-ROWS:]]

    # ---- everything small ----

    def _small(self, state: PanelState, speed: str) -> dict[str, Any]:
        g, ask = state.gauge, state.ask
        return {
            "status": state.status,
            "model": visible(shorten(state.model, 200)),
            "scripted": state.scripted,
            "done": state.done,
            "at": state.at_state,
            "seen": sorted(state.seen),
            "bad": state.bad,
            "marks": {str(k): v for k, v in state.marks.items()},
            "line": rich_json(state.line),
            "mark": state.line_mark,
            "breaker": breaker_json(state.breaker),
            "gauge": {
                "system": g.system,
                "tools": g.tools,
                "transients": g.transients,
                "history": g.history,
                "window": g.window,
                "trigger": g.trigger,
                "emergency": g.emergency,
                "exact": g.exact,
            },
            "foot": footer_facts(state),
            "ask": ask and {"n": ask.number, "call": visible(ask.call)},
            "error": error_lines(state),
            "notices": [visible(one) for one in state.notices],
            "clipped": self._clipped,
            "speed": speed,
        }

    def _with_clocks(self, state: PanelState, small: Mapping[str, Any]) -> dict[str, Any]:
        """Times as seconds from now: the view counts on its own clock."""
        wait, cool = state.wait_until, state.breaker.cooldown_until
        return {
            **small,
            "clock": round(state.seconds, 1),
            "wait": None if wait is None else round(max(0.0, wait - state.at), 1),
            "cooldown": None if cool is None else round(max(0.0, cool - state.at), 1),
        }

    def _speed_of(self, state: PanelState) -> str:
        """Time to first text and tokens a second, renewed once a second."""
        if state.first_text_at is None or state.attempt_at is None:
            self._speed = "" if not state.done else self._speed
            return self._speed
        if self._speed and not state.done and state.at - self._speed_at < 1.0:
            return self._speed
        self._speed_at = state.at
        first = max(0.0, state.first_text_at - state.attempt_at)
        span = state.at - state.first_text_at
        # four characters a token: the provider tells no count before the end
        rate = f" · est. {state.text_chars / 4 / span:,.0f} tokens/s" if span >= 1.0 else ""
        if not (state.done and self._speed):
            self._speed = f"first text after {first:.1f} s{rate}"
        return self._speed


# ---- values -----------------------------------------------------------------------------------


def item_json(one: Item) -> dict[str, Any]:
    """One item of the flow for the view; text in it is visible text, never markup, but ``html``
    of a text block, which the one renderer cleaned (D14)."""
    match one:
        case TextBlock(text=text, item=item):
            return {"k": "text", "html": render_block(text), **({"li": True} if item else {})}
        case Thinking(text=text):
            return {"k": "thinking", "line": thinking_words(one), "text": visible(text)[:PART]}
        case ToolRow():
            result = "\n".join(p for p in (one.printed.rstrip("\n"), one.result) if p)
            return {
                "k": "tool",
                "call": call_text(one),
                "status": one.status,
                "word": tool_word(one),
                "args": _part(one.arguments),
                "result": _part(result),
            }
        case Void(text=text):
            return {"k": "void", "line": void_line(one), "text": _part(text)}
        case Note(mark=mark, tone=tone, text=words):
            return {"k": "note", "mark": mark, "tone": tone, "words": rich_json(words)}


def thinking_words(one: Thinking) -> str:
    """How long and how much it thought."""
    words = "1 word" if one.words == 1 else f"{one.words:,} words"
    return f"{one.seconds:.1f} s · {words}"


def rich_json(words: Rich) -> list[list[str]]:
    """A sentence in pieces, control characters visible."""
    return [[kind, visible(text)] for kind, text in words]


def breaker_json(b: BreakerView) -> dict[str, Any]:
    """The breaker without its clock."""
    return {
        "state": b.state,
        "primary": visible(shorten(b.primary, 200)),
        "serves": visible(shorten(b.serves, 200)),
        "failures": b.failures,
        "trip_at": b.trip_at,
        "chain": [[visible(shorten(c.name, 200)), c.strikes, c.of, c.available] for c in b.chain],
        "probes": b.probes,
        "needed": b.probes_needed,
        "pause": b.cooldown_s,
    }


def row_json(row: Mapping[str, Any]) -> list[str]:
    """The shown cells of an audit row, shortened for display only (A04)."""
    return [visible(shorten(cell, 60)) for cell in audit_cells(row)]


def redacted(full: Mapping[str, Any]) -> dict[str, Any]:
    """A snapshot that may be kept with the page: no thinking, no tool arguments and results."""
    gone = {"thinking": {"text": ""}, "tool": {"args": "", "result": ""}, "void": {"text": ""}}
    items = [{**one, **gone.get(one["k"], {})} for one in full["items"]]
    return {**full, "items": items}


def columns() -> list[list[Any]]:
    """Heads of the audit table: name, right-aligned, rank."""
    return [[head, right, rank] for head, _, right, rank in AUDIT_COLUMNS]


def units(text: str) -> int:
    """Length in UTF-16 units, as the browser counts."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _follows(before: Item, one: Item) -> bool:
    """Whether ``one`` is the same thing, later: a tool's row with its result, more thinking."""
    if isinstance(before, ToolRow) and isinstance(one, ToolRow):
        return (before.turn, before.call_id) == (one.turn, one.call_id)
    if isinstance(before, Thinking) and isinstance(one, Thinking):
        return before.began == one.began
    return False


def _grown(before: Item | None, one: Item) -> str:
    """Text that thinking grew by, "" when it is not the same stretch."""
    if not (isinstance(before, Thinking) and isinstance(one, Thinking)):
        return ""
    if before.began != one.began or not one.text.startswith(before.text):
        return ""
    return one.text[len(before.text) :]


def _part(text: str) -> str:
    if len(text) <= PART:
        return visible(text)
    return visible(text[:PART]) + f"\n[... {len(text) - PART:,} more characters]"


def _cost(made: Mapping[str, Any]) -> int:
    return 60 + sum(len(v.encode("utf-8", "replace")) for v in made.values() if isinstance(v, str))
