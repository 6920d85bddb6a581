"""Bad input of the panel: odd characters everywhere, one endless line, a view that never answers,
losses on the way (D9, D14, D18, F2, F13, X03)."""

from __future__ import annotations

import json
import random
import re

import pytest

from notebook_agent.core import agent_events as ev
from notebook_agent.core.session import RunStatus
from notebook_agent.notebook.output import bundle, standing_bundle
from notebook_agent.notebook.panel_state import Ask, Asked, Ended, PanelState, Printed, RowAdded
from notebook_agent.notebook.reducer import reduce, reduce_all
from notebook_agent.notebook.sinks import make_sink
from notebook_agent.notebook.wire import PanelWire
from tests.notebook.recorded import happened, opened, recorded, row, to_model, words
from tests.notebook.test_panel_sink import Ground
from tests.notebook.test_wire import View

# NUL, C0 and C1, lone surrogates, overrides and isolates, marks, a BOM, line separators.
ODD = (
    "\x00\x01\x07\x08\x1b[2J\x7f\x85\x9b31m\ud800\udfff\u200e\u200f\u202a\u202e\u2066\u2069\ufeff"
    "\u2028\u2029\U000e0041"
)
# What may reach no output: it moves a cursor, reorders text or cannot be encoded.
HARMFUL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")


def odd_run(text: str):
    """The text in every place that shows something from outside."""
    tool = dict(call_id="c1", tool_name=f"f{text}")
    return [
        opened(text, session=text),
        *to_model(0.0, model=text),
        *words(0.2, f"I think {text}", lane="thinking", step=3),
        *words(0.4, f"Reply {text} `code {text}`\n\n- item {text}\n\n```\n{text}\n```\n", step=3),
        happened(0.5, ev.ToolCallStarted(**tool)),
        happened(0.5, ev.ToolCallCompleted(**tool, arguments=json.dumps({"a": text}))),
        Asked(at=0.5, ask=Ask(1, f"f({text})")),
        Asked(at=0.6),
        happened(0.6, ev.ToolExecutionStarted(**tool)),
        Printed(at=0.6, call_id="c1", text=text),
        happened(0.7, ev.ToolExecutionFinished(**tool, result=text, duration_s=0.1)),
        happened(0.8, ev.AttemptFailed(turn=0, attempt=1, cause=text, next_step="fail")),
        RowAdded(at=0.9, row=row(0, text, input=text, output=text)),
        Ended(at=1.0, status=RunStatus.FAILED, error={"message": text}, notices=(text,)),
    ]


def texts(value) -> list[str]:
    """Every string in a JSON value."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [s for k, v in value.items() for s in (k, *texts(v))]
    return [s for v in value for s in texts(v)] if isinstance(value, (list, tuple)) else []


def test_odd_characters_reach_no_view() -> None:
    """Each message can be encoded, and holds nothing that acts."""
    wire, state = PanelWire(), PanelState()
    for i, event in enumerate(odd_run(ODD)):
        state = reduce(state, event)
        ops = wire.diff(state) if i else [{"full": wire.full(state)}]
        json.dumps(ops, ensure_ascii=False).encode("utf-8")
        for text in texts(ops):
            assert not HARMFUL.search(text), text


@pytest.mark.parametrize("make", [bundle, standing_bundle])
def test_odd_characters_reach_no_saved_output(make) -> None:
    for data in make(reduce_all(odd_run(ODD))).values():
        data.encode("utf-8")
        assert not HARMFUL.search(data)


@pytest.mark.parametrize("name", ["update", "static", "stream"])
def test_odd_characters_reach_no_sink(name: str) -> None:
    out: list[str] = []

    def display(data, **_) -> None:
        out.extend(texts(data))

    sink = make_sink(name, display=display, write=out.append)
    state = PanelState()
    for i, event in enumerate(odd_run(ODD)):
        state = reduce(state, event)
        (sink.open if i == 0 else sink.update)(state)
    sink.close(state, None)
    assert out
    for text in out:
        text.encode("utf-8")
        assert not HARMFUL.search(text), text


@pytest.mark.parametrize("name", ["panel", "update", "static", "stream"])
def test_five_megabytes_in_one_line(name: str) -> None:
    """No display and no message grows with it; the work is linear."""
    sizes: list[int] = []
    if name == "panel":
        ground = Ground()
        sink, shown = ground.sink, lambda: [len(json.dumps(m)) for m in ground.panel.sent]
    else:
        sink = make_sink(
            name,
            display=lambda data, **_: sizes.append(sum(map(len, data.values()))),
            write=lambda text: sizes.append(0),  # a terminal gets all of it, piece by piece
        )
        shown = lambda: sizes  # noqa: E731  # one line, one use
    state = PanelState()
    for i, event in enumerate([opened(), *to_model(0.0), *words(0.5, "y" * 5_000_000, step=100_000)]):  # fmt: skip
        state = reduce(state, event)
        (sink.open if i == 0 else sink.update)(state)
    state = reduce(state, Ended(at=3.0, status=RunStatus.COMPLETED))
    sink.close(state, None)
    assert shown()
    assert max(shown()) <= (250_000 if name == "panel" else 1_000_000)
    assert len(state.reply()) == 5_000_000  # nothing is lost but from the view


def test_a_front_end_that_never_answers() -> None:
    """Minutes of silence: the run goes on, keyframes stay few and bounded, the end is whole."""
    ground = Ground()
    ground.play("streaming", close=False)
    for i in range(600):
        ground.t = i * 0.5
        ground.sink.update(ground.state)
    frames = ground.panel.kinds().count("full")
    assert 30 <= frames <= 70  # one in five seconds over five minutes
    for event in recorded()["completed"][-3:]:
        ground.state = reduce(ground.state, event)
    ground.sink.close(ground.state, None)
    view = View()
    view.take(ground.panel.sent[-1]["ops"])
    assert view.state["status"] == ground.state.status
    assert ground.shown[-1]["data"] == bundle(ground.state)


@pytest.mark.parametrize("seed", range(20))
def test_dropped_doubled_and_reordered_messages_end_in_the_final_state(seed: int) -> None:
    """The twin of the JavaScript test, over the real wire: a resync or the end repairs all."""
    ground = Ground()
    ground.play("completed")
    chance = random.Random(seed)
    sent = [m for m in ground.panel.sent if chance.random() > 0.4]
    sent += chance.sample(sent, len(sent) // 3)
    chance.shuffle(sent)
    seq, view, last = 0, View(), ground.panel.sent[-1]
    for message in [*sent, last]:
        whole = any(op["t"] in ("full", "end") for op in message["ops"])
        if message["seq"] <= seq or not (whole or message["seq"] == seq + 1):
            continue  # late, doubled, or after a gap: the view waits for all of it
        seq = message["seq"]
        view.take(message["ops"])
    wanted = View()
    wanted.take(last["ops"])
    assert (view.items, view.tail, view.rows, view.state) == (wanted.items, wanted.tail, wanted.rows, wanted.state)  # fmt: skip
