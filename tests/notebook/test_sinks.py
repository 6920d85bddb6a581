"""Five sinks over the same recorded events (D19)."""

from __future__ import annotations

import json
import re

import pytest

from notebook_agent.core.text import visible
from notebook_agent.errors import ConfigError
from notebook_agent.notebook.output import bundle, metadata
from notebook_agent.notebook.panel_state import PanelState
from notebook_agent.notebook.reducer import reduce, reduce_all
from notebook_agent.notebook.sinks import (
    SINKS,
    NullSink,
    StaticSink,
    StreamSink,
    UpdateSink,
    make_sink,
)
from notebook_agent.notebook.sinks.update import running_bundle
from tests.notebook.recorded import FULL, opened, recorded, to_model, words

RUNS = recorded()


class Shown:
    """Stands for IPython's display."""

    def __init__(self) -> None:
        self.calls: list[dict] = []

    def __call__(self, data, *, metadata, display_id=None, update=False):
        self.calls.append(dict(data=dict(data), meta=dict(metadata), id=display_id, update=update))


class Clock:
    def __init__(self) -> None:
        self.t = 0.0

    def __call__(self) -> float:
        return self.t


def play(sink, events, clock=None, *, close=True) -> PanelState:
    """Drive a sink as the cell does: open, an update per event, close."""
    state = PanelState()
    for i, event in enumerate(events):
        state = reduce(state, event)
        if clock is not None:
            clock.t = max(clock.t, event.at)
        if i == 0:
            sink.open(state)
        else:
            sink.update(state)
    if close:
        sink.close(state, None)
    return state


@pytest.mark.parametrize("name", RUNS)
def test_static_shows_once(name: str) -> None:
    shown = Shown()
    state = play(StaticSink(display=shown), RUNS[name])
    (call,) = shown.calls
    assert call == {"data": bundle(state), "meta": metadata(state), "id": None, "update": False}


@pytest.mark.parametrize("name", RUNS)
def test_N09_update_keeps_one_display_and_its_metadata(name: str) -> None:
    shown, clock = Shown(), Clock()
    state = play(UpdateSink(display=shown, now=clock), RUNS[name], clock)
    assert [c["update"] for c in shown.calls] == [False, *[True] * (len(shown.calls) - 1)]
    assert len({c["id"] for c in shown.calls}) == 1
    assert all(c["meta"] == metadata(state) for c in shown.calls)
    assert shown.calls[-1]["data"] == bundle(state)
    assert len(shown.calls) <= 3 + state.seconds * 4


def test_N06_update_sends_small_pieces_of_a_long_reply() -> None:
    """N06: linear bytes; at most 8 kB while running, at most four a second."""
    shown, clock = Shown(), Clock()
    text = "A line of the reply that is long enough to count.\n\n" * 4000
    events = [opened(), *to_model(0.0), *words(0.1, text, step=500, rate=0.5)]
    play(UpdateSink(display=shown, now=clock), events, clock)
    running = shown.calls[:-1]
    assert len(running) <= 4 * clock.t + 2
    for call in running:
        assert len(call["data"]["text/html"].encode()) < 16_000
        assert len(call["data"]["text/plain"].encode()) <= 8_192
    assert "A line of the reply" in shown.calls[-1]["data"]["text/plain"]


@pytest.mark.parametrize("char", ["$", "&", "\u202e", "\\\\", "<b>", "$x$ \\n\n\n"])
def test_N06_update_stays_small_where_a_character_becomes_many(char: str) -> None:
    for end in ("", "\n\nafter"):
        text = char * 9000 + end
        events = [opened(), *to_model(0.0), *words(0.1, text, step=3000)]
        for n in range(2, len(events) + 1):
            made = running_bundle(reduce_all(events[:n]))
            assert len(made["text/html"].encode()) < 16_000
            assert len(made["text/plain"].encode()) <= 8_192
        assert visible(text.strip()[-5:]).split()[-1] in made["text/plain"]


def test_update_without_a_run_id_does_not_wait_for_ever() -> None:
    shown, clock = Shown(), Clock()
    sink = UpdateSink(display=shown, now=clock)
    sink.open(PanelState())
    assert shown.calls == []
    clock.t = 2.1
    sink.update(PanelState())
    assert len(shown.calls) == 1


def test_null_shows_nothing() -> None:
    play(NullSink(), RUNS["completed"])


def streamed(events) -> str:
    out: list[str] = []
    play(StreamSink(write=out.append), events)
    return "".join(out)


def test_stream_prints_the_reply_once_as_it_comes() -> None:
    text = streamed(RUNS["completed"])
    assert text.count("Two stretches look like a stuck sensor") == 1
    assert "".join(FULL.split()) in "".join(text.split())
    assert '[describe(frame="tides") · running]' in text
    assert '[describe(frame="tides") · finished 0.1 s]' in text
    assert text.endswith(
        "✓ completed · openai:gpt-mini · 2 turns · 3,862 in / 272 out · 6.4 s · END_TURN\n"
    )


def test_stream_does_not_depend_on_the_cut() -> None:
    for step in (1, 5, 400):
        events = [opened(), *to_model(0.0), *words(0.5, FULL + FULL, step=step)]
        assert "".join((FULL + FULL).split()) in "".join(streamed(events).split())


def test_stream_says_that_the_answer_starts_over() -> None:
    text = streamed(RUNS["attempt reset"])
    assert "[attempt reset: the answer starts over, the text above is void]\n" in text
    assert text.index("starts over") < text.index("Two stretches look like\n")


def test_stream_tells_waits_and_errors() -> None:
    assert "[waiting: attempt 3 of 4 in 0.2 s: 503]\n" in streamed(RUNS["retry waiting"])
    assert "[401: the key was refused.]\n" in streamed(RUNS["failed"])


def test_X03_stream_makes_control_codes_visible() -> None:
    text = "a\x1b]52;c;eA==\x07\x1b]8;;https://evil.example\x07ok\x1b[2J\x08\x9b31m\r\nb\rc\tend"
    for step in (1, 3, 100):
        out = streamed([opened(), *to_model(0.0), *words(0.5, text, step=step)])
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", out), step
        assert "␛]52;c;eA==␇" in out
        assert "\nb␍c\tend" in out


def test_make_sink_knows_every_name() -> None:
    for name in SINKS:
        if name != "panel":
            assert make_sink(name).name == name
    with pytest.raises(ConfigError, match="panel, update, static, stream, null"):
        make_sink("html")


def test_bundles_are_json() -> None:
    for events in RUNS.values():
        shown = Shown()
        play(StaticSink(display=shown), events)
        json.dumps(shown.calls)
