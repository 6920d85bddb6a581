"""Kernel to browser: bytes linear, bounded, and any loss is repaired (D13, D18, F2, F13)."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from notebook_agent.notebook.panel_state import PanelState, TextBlock, Thinking
from notebook_agent.notebook.reducer import reduce, reduce_all
from notebook_agent.notebook.wire import OPS, PanelWire, redacted, units
from tests.notebook.recorded import FULL, THOUGHT, opened, recorded, to_model, words


class View:
    """What the front end does with ops, in Python: the twin of panel.js `fold`."""

    def __init__(self) -> None:
        self.items, self.tail, self.rows, self.state = [], "", [], {}

    def take(self, ops) -> None:
        for op in ops:
            kind = op["t"]
            assert kind in OPS
            if kind in ("full", "end"):
                full = json.loads(json.dumps(op["full"]))
                self.items, self.tail = full["items"], full["tail"]
                self.rows, self.state = full["rows"], full["state"]
            elif kind == "d" and op["lane"] == "text":
                assert units(self.tail) == op["offset"]
                self.tail += op["text"]
            elif kind == "d":
                one = self.items[op["index"]]
                assert units(one["text"]) == op["offset"]
                one["text"] += op["text"]
                one["line"] = op["line"]
            elif kind == "tail":
                self.tail = op["text"]
            elif kind == "block":
                assert op["index"] <= len(self.items)
                self.items[op["index"] :][:1] and self.items.__setitem__(
                    op["index"], dict(op["item"])
                )
                if op["index"] == len(self.items):
                    self.items.append(dict(op["item"]))
            elif kind == "reset":
                del self.items[op["keep"] :]
                self.tail = ""
            elif kind == "row":
                self.rows.append(op["row"])
            elif kind == "state":
                self.state = op["state"]


def played(events) -> tuple[View, PanelState, list]:
    wire, view, state, sent = PanelWire(), View(), PanelState(), []
    for i, event in enumerate(events):
        state = reduce(state, event)
        ops = [{"t": "full", "full": wire.full(state)}] if i == 0 else wire.diff(state)
        sent.append(ops)
        view.take(ops)
    return view, state, sent


@pytest.mark.parametrize("name", recorded())
def test_pieces_add_up_to_the_whole(name: str) -> None:
    view, state, _ = played(recorded()[name])
    full = PanelWire().full(state)
    assert view.items == full["items"]
    assert view.tail == full["tail"]
    assert view.rows == full["rows"]
    clocks = {"clock", "wait", "cooldown", "speed"}
    assert {k: v for k, v in view.state.items() if k not in clocks} == {
        k: v for k, v in full["state"].items() if k not in clocks
    }


def test_nothing_new_is_nothing_sent() -> None:
    wire = PanelWire()
    state = reduce_all(recorded()["streaming"])
    wire.full(state)
    assert wire.diff(state) == []
    assert wire.diff(replace(state, at=state.at + 0.03)) == []


def test_text_appends_travel_alone() -> None:
    _, _, sent = played([opened(), *to_model(0.0), *words(0.5, "one two three four five")])
    assert [op["t"] for ops in sent[-1:] for op in ops] == ["d"]


def test_N06_bytes_are_linear() -> None:
    """D13: 2,000 deltas in about 0.1 MB; a message is small."""
    text = "The level stays at 1.42 m for five hours. " * 4 + "\n\n"
    events = [opened(), *to_model(0.0), *words(0.5, text * 72, step=6, rate=0.015)]
    deltas = len(events) - 8
    assert deltas >= 2000
    wire, state, size, count = PanelWire(), PanelState(), 0, 0
    for i, event in enumerate(events):
        state = reduce(state, event)
        if i % 13 == 0 or i == len(events) - 1:  # 400 deltas a second, 30 flushes a second
            ops = wire.diff(state)
            count += bool(ops)
            size += len(json.dumps({"seq": i, "run": 1, "ops": ops})) if ops else 0
    size += len(json.dumps(wire.full(state)))
    assert count <= 160
    assert size <= 100_000, size


def test_astral_characters_count_as_the_browser_counts() -> None:
    view, state, _ = played([opened(), *to_model(0.0), *words(0.5, "🦉 owl " * 30, step=3)])
    assert view.tail == state.tail


def test_crlf_cut_in_two() -> None:
    view, _, _ = played([opened(), *to_model(0.0), *words(0.5, "a\r\nb\rc\r\n\r\nend\r\n", step=1)])
    html = "".join(one.get("html", "") for one in view.items)
    assert "␍" not in html.replace("b␍c", "")


def test_hostile_text_is_visible_in_the_tail() -> None:
    view, _, _ = played([opened(), *to_model(0.0), *words(0.5, "x\x1b[2J\u202ey", step=2)])
    assert view.tail == "x␛[2J<U+202E>y"


@pytest.mark.parametrize("unit", ["word ", "a\n\n", "- item\n", "x" * 999 + "\n\n", "🦉"])
def test_D18_at_most_200_kb(unit: str) -> None:
    """Live and as a keyframe; the note is set, later text is not sent."""
    text = unit * (600_000 // len(unit))
    view, state, sent = played([opened(), *to_model(0.0), *words(0.5, text, step=20_000)])
    whole = json.dumps(PanelWire().full(state), ensure_ascii=False).encode()
    assert len(whole) <= 400_000 if unit in ("a\n\n", "- item\n") else len(whole) <= 200_000
    shown = sum(len(one["html"].encode()) for one in view.items) + len(view.tail)
    assert shown <= 200_000
    assert view.state["clipped"] is True
    assert max(len(json.dumps(ops, ensure_ascii=False).encode()) for ops in sent) <= 450_000


def test_F13_one_message_is_bounded() -> None:
    """A reply that arrives in one piece, 5 MB in one line."""
    events = [opened(), *to_model(0.0), *words(0.5, "y" * 5_000_000, step=5_000_000)]
    view, _, sent = played(events)
    assert max(len(json.dumps(ops)) for ops in sent) <= 250_000
    assert view.state["clipped"] is True


def test_thinking_is_bounded_and_sent_once() -> None:
    events = [opened(), *to_model(0.0), *words(0.5, THOUGHT * 200, lane="thinking", step=100)]
    view, state, sent = played(events)
    assert isinstance(state.items[-1], Thinking)
    assert len(view.items[-1]["text"]) <= 16_000
    assert sum(len(json.dumps(ops)) for ops in sent) < 100_000


def test_redacted_snapshot_has_no_thinking_and_no_tool_text() -> None:
    full = PanelWire().full(reduce_all(recorded()["completed"]))
    kept = json.dumps(redacted(full))
    assert "Flat runs first" in json.dumps(full)
    assert "Flat runs first" not in kept
    assert "744 rows" not in kept
    assert "Two stretches" in kept


def test_tool_row_is_replaced_in_place() -> None:
    _, _, sent = played(recorded()["completed"])
    blocks = [op for ops in sent for op in ops if op["t"] == "block"]
    tools = [op for op in blocks if op["item"]["k"] == "tool"]
    assert {op["index"] for op in tools} == {1, 2}
    assert [op["item"]["status"] for op in tools if op["index"] == 2][-1] == "finished"
    assert FULL
    assert isinstance(TextBlock("x"), TextBlock)
