"""The reducer with the recorded events of every state of the design."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_agent.core import agent_events as ev
from notebook_agent.core.session import RunStatus
from notebook_agent.core.text import clean_text
from notebook_agent.notebook.output import frozen_text
from notebook_agent.notebook.panel_state import (
    Appended,
    Ended,
    Note,
    Opened,
    PanelState,
    Replied,
    RowAdded,
    TextBlock,
    Thinking,
    Ticked,
    ToolRow,
    Void,
    Voided,
)
from notebook_agent.notebook.reducer import REDUCERS, reduce, reduce_all
from notebook_agent.notebook.words import plain
from tests.notebook.recorded import (
    FULL,
    THOUGHT,
    A,
    B,
    breaker,
    end,
    happened,
    opened,
    recorded,
    row,
    to_model,
    words,
)

# design state -> (status word, live state, states seen, failed state, sentence, kinds of items)
EXPECTED = {
    "connecting": ("connecting", 2, {0, 1}, -1, "request sent, nothing back yet", ""),
    "streaming": ("streaming", 2, {0, 1}, -1, "", "T W W K T T"),
    "tool running": ("running tools", 4, {0, 1, 2, 3}, -1, "running 1 of 2 tools", "T W W"),
    "tool finished": ("connecting", 2, {0, 1}, -1, "turn 1: request sent, nothing back yet", "T W W"),
    "approval": ("waiting", 4, {0, 1, 2, 3}, -1, "a tool waits for your answer", "T W"),
    "retry waiting": ("waiting", 2, {0, 1}, -1, "attempt 3 of 4 in 0.2 s: 503", ""),
    "attempt reset": ("attempt reset", 2, {0, 1}, -1, "text so far is void; attempt 2 of 4 starts over", "V"),
    "fallback": ("streaming", 2, {0, 1}, -1, "", "N T T"),
    "recovering": ("streaming", 2, {0, 1}, -1, "", "N T"),
    "compacting": ("compacting", 1, {0, 1}, -1, "turn 1 deferred: context est. 6,476 is past the trigger at 6,400; compacting history", "T W W"),
    "cancelled": ("cancelled", -1, {0, 1, 2}, -1, "stopped by you; the text above is partial", "T W W T T"),
    "failed": ("failed", -1, {0, 1, 2}, 2, "", ""),
    "rescued": ("rescued", -1, {0, 1, 2, 3, 5}, -1, "complete reply adopted from the rescue call, in place of the stream", "V T T T T T T"),
    "completed": ("completed", -1, {0, 1, 2, 3, 5}, -1, "", "T W W K T T T T T T"),
    "scripted": ("completed", -1, {0, 1, 2, 3, 5}, -1, "scripted reply: no model was called. Pick one with %agent model NAME", "T"),
    "max tokens": ("max tokens", -1, {0, 1, 2, 3, 5}, -1, "cut at the output limit: the reply is not whole", "T"),
    "limit reached": ("limit reached", -1, {0, 1, 2, 3, 4, 5}, -1, "turn limit reached; allow more with %%agent --max-turns N", "T W W"),
}  # fmt: skip
LETTER = {TextBlock: "T", ToolRow: "W", Thinking: "K", Void: "V", Note: "N"}


@pytest.mark.parametrize("name", EXPECTED)
def test_design_state(name: str) -> None:
    state = reduce_all(recorded()[name])
    status, at, seen, bad, line, kinds = EXPECTED[name]
    assert (state.status, state.at_state, set(state.seen), state.bad) == (status, at, seen, bad)
    assert plain(state.line) == line
    assert " ".join(LETTER[type(one)] for one in state.items) == kinds


def test_every_recorded_state_is_expected() -> None:
    assert set(recorded()) == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_reduce_is_pure(name: str) -> None:
    state = PanelState()
    for event in recorded()[name]:
        before = copy.deepcopy(state)
        after = reduce(state, event)
        assert state == before
        assert reduce(state, event) == after
        state = after


@pytest.mark.parametrize("name", EXPECTED)
def test_merging_deltas_changes_nothing_but_time(name: str) -> None:
    """A thousand deltas between two drains are one: the flow must not depend on the cut."""
    merged: list = []
    for event in recorded()[name]:
        last = merged[-1] if merged else None
        if (
            isinstance(event, Appended)
            and isinstance(last, Appended)
            and (event.lane, event.turn) == (last.lane, last.turn)
        ):
            merged[-1] = Appended(
                at=event.at, lane=event.lane, text=last.text + event.text, turn=event.turn
            )
        else:
            merged.append(event)
    one, many = reduce_all(merged), reduce_all(recorded()[name])
    assert (one.status, one.line, one.rows, one.tail) == (
        many.status,
        many.line,
        many.rows,
        many.tail,
    )
    assert [getattr(i, "text", i) for i in one.items] == [getattr(i, "text", i) for i in many.items]


def test_reset_takes_back_the_attempt_only() -> None:
    """Text of earlier turns stays, tools stay, thinking of the attempt goes with its text."""
    state = reduce_all(
        [*recorded()["tool finished"], *words(4.0, THOUGHT, lane="thinking", turn=1),
         *words(4.5, "half an answ", turn=1)]
    )  # fmt: skip
    kept = state.items[:3]
    state = reduce(state, Voided(at=5.0, turn=1, attempt=2, cause="cut"))
    assert state.items[:3] == kept
    assert state.items[3:] == (Void(1, 1, "cut", "half an answ", 1),)
    assert state.tail == ""
    assert "half" not in state.reply()


def test_several_resets_make_one_row() -> None:
    state = reduce_all([opened(), *to_model(0.0)])
    for attempt in (2, 3, 4):
        state = reduce_all(
            [*words(1.0, f"try {attempt}"), Voided(at=2.0, attempt=attempt, cause="cut")], state
        )
    (only,) = state.items
    assert (only.first, only.last, only.cause) == (1, 3, "cut")
    assert only.text == "try 2\n\ntry 3\n\ntry 4"


def test_reset_without_text_leaves_no_row() -> None:
    state = reduce_all([opened(), *to_model(0.0), Voided(at=0.1, attempt=2, cause="503")])
    assert state.items == ()
    assert state.status != "attempt reset"


def test_the_word_attempt_reset_stands_two_seconds() -> None:
    state = reduce_all(recorded()["attempt reset"])
    assert reduce(state, Ticked(at=4.8)).status == "attempt reset"
    assert reduce(state, Ticked(at=4.9)).status == "streaming"


def test_reply_that_was_streamed_is_not_shown_twice() -> None:
    state = reduce_all([opened(), *to_model(0.0), *words(1.0, FULL)])
    again = reduce(state, Replied(at=2.0, text=FULL))
    assert again.reply() == state.reply()


def test_reply_without_deltas_is_shown() -> None:
    """The one-attempt path streams nothing."""
    state = reduce_all([opened(), *to_model(0.0), Replied(at=2.0, text=FULL)])
    assert "".join(state.reply().split()) == "".join(FULL.split())


def test_thinking_counts_a_word_cut_in_two_once() -> None:
    for step in (1, 3, 7, 50):
        events = words(0.0, THOUGHT, lane="thinking", step=step)
        state = reduce_all([opened(), *to_model(0.0), *events])
        assert state.items[-1].words == len(THOUGHT.split())
        assert state.items[-1].text == THOUGHT


def test_nothing_changes_after_the_end_but_late_rows() -> None:
    state = reduce_all(recorded()["completed"])
    for event in (Ticked(at=99.0), *words(99.0, "more"), Voided(at=99.0), opened(at=99.0)):
        assert reduce(state, event) == state
    assert len(reduce(state, RowAdded(at=99.0, row=row(2))).rows) == 3


def test_running_and_queued_tools_do_not_look_finished_after_a_stop() -> None:
    state = reduce_all([*recorded()["tool running"], Ended(at=4.0, status=RunStatus.CANCELLED)])
    assert [one.status for one in state.items if isinstance(one, ToolRow)] == [
        "finished",
        "stopped",
    ]


def test_breaker_note_survives_a_reset() -> None:
    events = recorded()["fallback"][:-2]
    state = reduce(reduce_all(events), Voided(at=3.0, attempt=2, cause="cut"))
    assert isinstance(state.items[0], Note)
    assert B in plain(state.items[0].text)
    assert A in plain(state.items[0].text)


def test_model_names_are_pieces_never_markup() -> None:
    hostile = "**x**`y`~z~{0}"
    state = reduce_all([Opened(at=0.0, model=hostile)])
    assert ("code", hostile) in state.line


@given(st.lists(st.sampled_from(sorted(recorded())), min_size=1, max_size=3), st.randoms())
def test_any_order_of_events_gives_a_state(names: list[str], random) -> None:
    """Dropped, doubled and reordered events never raise."""
    events = [event for name in names for event in recorded()[name]]
    random.shuffle(events)
    state = reduce_all(events)
    assert state.status


def test_every_ui_event_has_a_row_or_is_time() -> None:
    from notebook_agent.notebook import panel_state

    values = [getattr(panel_state, name) for name in panel_state.__all__]
    kinds = {v for v in values if isinstance(v, type) and issubclass(v, panel_state.UiEvent)}
    assert kinds - set(REDUCERS) == {Ticked, panel_state.UiEvent}


def test_ending_words() -> None:
    for stop, word in (("content_filter", "content filter"), ("refusal", "refusal"),
                       ("pause", "pause"), ("unknown", "unknown ending"), ("end_turn", "completed")):  # fmt: skip
        state = reduce_all(
            [opened(), *to_model(0.0), *words(0.1, "x"), RowAdded(at=1.0, row=row(stop=stop)),
             Ended(at=1.0, status=RunStatus.COMPLETED)]
        )  # fmt: skip
        assert state.status == word


def test_compaction_lines() -> None:
    state = reduce_all(
        [*recorded()["compacting"],
         happened(4.0, ev.CompactionCompleted(applied=True, tokens_before=6476, tokens_after=3100,
                                              strategy="extractive"))]
    )  # fmt: skip
    assert (
        plain(state.items[-1].text) == "history compacted (extractive): 6,476 to 3,100 tokens est."
    )
    assert state.status == "connecting"


def changed(at, view):
    return happened(at, ev.BreakerChanged(breaker=view))


def flow(*events) -> list[str]:
    """The lines of the flow after a run's first request."""
    state = reduce_all([opened(), *to_model(0.0), *events])
    return [plain(one.text) for one in state.items if isinstance(one, Note)]


def test_the_flow_tells_how_the_breaker_came_to_its_state() -> None:
    last = {**breaker("fallback", failures=3), "last_cause": "tripped by hand"}
    assert flow(changed(1.0, last)) == [f"breaker tripped by hand; {B} serves"]
    recovering = changed(1.0, breaker("recovering", probes=1))
    failed = changed(2.0, breaker("fallback", failures=1))
    closed = changed(3.0, breaker("primary"))
    told = flow(recovering, failed, recovering, closed)
    assert told[1] == f"the probe of {A} failed; {B} serves"
    assert len(told) == 4
    assert flow(changed(1.0, breaker("primary", failures=2))) == []  # no change of state


def test_a_pass_that_dropped_nothing_and_a_pause_are_told() -> None:
    begun = happened(1.0, ev.CompactionTriggered(reason="threshold"))
    state = reduce_all([opened(), *to_model(0.0), begun])
    assert state.status == "compacting"
    assert state.gauge.history == 290  # no estimate came with it: the gauge stands
    assert flow(begun, happened(1.1, ev.CompactionCompleted(applied=False))) == [
        "history not compacted: nothing to drop"
    ]
    assert flow(happened(1.0, ev.CompactionCircuitOpened(consecutive_failures=3))) == [
        "automatic compaction paused after 3 failures in a row"
    ]
    assert flow(happened(1.0, ev.LoopWarning(pattern="look(box=1)", repetitions=3))) == [
        "look(box=1) gave the same result 3 times"
    ]


def test_a_run_names_its_provider_where_the_model_does_not() -> None:
    started = happened(0.1, ev.RunStarted(session_id="s", provider="groq", model="llama"))
    assert reduce_all([opened(), started]).model == "groq:llama"


@pytest.mark.parametrize(
    "raw", ["a\0b", "a\ud800b", "a\ud83d", "\udc00", "a\ud83d\ude00b", "\0\n\n\0"]
)
@pytest.mark.parametrize("step", [1, 2, 9])
def test_D9_a_reply_with_characters_that_are_replaced_is_no_void_attempt(raw, step) -> None:
    """The adopted reply is clean, what came as fragments may not be."""
    clean = clean_text(raw)
    state = reduce_all([
        opened(), *to_model(0.0), *words(0.1, raw, step=step), Replied(at=0.5, text=clean),
        *end(0.6),
    ])  # fmt: skip
    assert not any(isinstance(one, Void) for one in state.items)
    assert state.reply() == clean
    assert frozen_text(state).startswith(clean.rstrip("\n"))


def test_D9_a_reply_of_other_text_still_takes_the_place() -> None:
    events = [opened(), *to_model(0.0), *words(0.1, "a\0b"), Replied(at=0.5, text="other")]
    state = reduce_all(events)
    assert [type(one) for one in state.items] == [Void, TextBlock]
