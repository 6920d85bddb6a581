"""The fold of records: B63-B67."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_agent.core import agent_events as ev
from notebook_agent.core import outcomes as o
from notebook_agent.core.response import Usage
from notebook_agent.core.run_state import RunState, apply, fold, status_of_action, status_of_error
from notebook_agent.core.session import RunEventRecord, RunStatus
from notebook_agent.core.turn_fsm import BreakLoop, CompactAndRetry, Continue, Fail, TurnState
from notebook_agent.errors import (
    AgentError,
    Cancelled,
    ContextExceeded,
    LimitReached,
    StoreError,
    TokenBudgetExhausted,
)


def record(n: int, *events: ev.AgentEvent, status: RunStatus | None = None) -> RunEventRecord:
    return RunEventRecord(
        run_id="r", sequence=n, turn=0, state=TurnState.CHECKING_POLICY, outcome=o.Ok(),
        action=Continue(TurnState.BUILDING_CONTEXT), events=events, status=status, timestamp=100.0 + n,
    )  # fmt: skip


def test_B64_empty_log_is_pending_and_nothing_used():
    state = fold(())
    assert state == RunState()
    assert (state.status, state.iteration, state.total_usage, state.event_count) == (
        RunStatus.PENDING,
        0,
        Usage(),
        0,
    )
    assert state.total_usage.total is None


def test_B65_each_event_does_its_part():
    started = ev.RunStarted(session_id="s", provider="p", model="p:m")
    state = fold([record(0, started)])
    assert (state.status, state.provider, state.model, state.session_id) == (
        RunStatus.RUNNING,
        "p",
        "p:m",
        "s",
    )
    assert (state.created_at, state.updated_at) == (100.0, 100.0)
    state = apply(state, record(1, ev.ModelStarted(provider="p", model="m", iteration=3)))
    assert state.iteration == 3
    state = apply(
        state,
        record(
            2,
            ev.UsageRecorded(usage={"input_tokens": 5}),
            ev.UsageRecorded(usage={"input_tokens": 2, "output_tokens": 1}),
        ),
    )
    assert state.total_usage == Usage(7, 1)
    state = apply(
        state, record(3, ev.TurnCompleted(turn=0, iteration=1, finish_reason="tool_calls"))
    )
    assert state.last_finish == "tool_calls"
    state = apply(state, record(4))
    assert (state.updated_at, state.last_sequence, state.event_count) == (104.0, 4, 5)


@pytest.mark.parametrize(("event", "status", "error"), [
    (ev.RunCompleted(finish_reason="stop", iterations=1), RunStatus.COMPLETED, None),
    (ev.RunCancelled(), RunStatus.CANCELLED, None),
    (ev.InputRejected(reason="empty"), RunStatus.REJECTED, "empty"),
    (ev.RunFailed(error=LimitReached(16, 17).to_json()), RunStatus.LIMIT_REACHED, str(LimitReached(16, 17))),
    (ev.RunFailed(error=TokenBudgetExhausted(1, 2).to_json()), RunStatus.TOKEN_BUDGET_EXHAUSTED, str(TokenBudgetExhausted(1, 2))),
    (ev.RunFailed(error=StoreError("disk").to_json()), RunStatus.FAILED, "disk"),
    (ev.RunFailed(error={}), RunStatus.FAILED, ""),
])  # fmt: skip
def test_B65_terminal_events_set_the_status(event, status, error):
    state = fold([record(0, event)])
    assert state.status is status
    assert state.last_error == error


def test_B66_usage_adds_field_by_field_and_none_stays_none():
    state = fold([
        record(0, ev.UsageRecorded(usage=Usage(1, 2).to_json())),
        record(1, ev.UsageRecorded(usage=Usage(3, 4, reasoning_tokens=5).to_json(), purpose="summary")),
    ])  # fmt: skip
    assert state.total_usage == Usage(4, 6, None, None, 5)


def test_B18_estimates_are_counted_apart():
    state = fold(
        [
            record(
                0,
                ev.UsageRecorded(usage={"input_tokens": 40}, estimated=True),
                ev.UsageRecorded(usage={"input_tokens": 3, "output_tokens": 1}, estimated=True),
            )
        ]
    )
    assert state.estimated_tokens == 44
    assert state.total_usage == Usage()


@pytest.mark.parametrize(("action", "status"), [
    (BreakLoop(), RunStatus.COMPLETED),
    (Continue(TurnState.PERSISTING), None),
    (CompactAndRetry(), None),
    (Fail(Cancelled()), RunStatus.CANCELLED),
    (Fail(LimitReached(1, 2)), RunStatus.LIMIT_REACHED),
    (Fail(TokenBudgetExhausted(1, 2)), RunStatus.TOKEN_BUDGET_EXHAUSTED),
    (Fail(ContextExceeded(1, 2)), RunStatus.FAILED),
    (Fail(AgentError("x")), RunStatus.FAILED),
])  # fmt: skip
def test_B82_status_of_an_action(action, status):
    assert status_of_action(action) is status


def test_an_unknown_error_is_a_failure():
    assert status_of_error("SomethingNew") is RunStatus.FAILED


some_events = st.lists(
    st.one_of(
        st.builds(ev.RunStarted, session_id=st.text(max_size=2), model=st.text(max_size=2)),
        st.builds(
            ev.ModelStarted, provider=st.just("p"), model=st.just("m"), iteration=st.integers(1, 9)
        ),
        st.builds(
            ev.UsageRecorded,
            usage=st.builds(
                Usage, st.none() | st.integers(0, 9), st.none() | st.integers(0, 9)
            ).map(Usage.to_json),
            estimated=st.booleans(),
        ),
        st.builds(ev.RunFailed, error=st.just({"error": "StoreError", "message": "m"})),
        st.just(ev.RunCancelled()),
        st.just(ev.SnapshotSaved(seq=1)),
        st.builds(ev.InputRejected, reason=st.text(max_size=2)),
    ),
    max_size=3,
)


@given(st.lists(some_events, max_size=12), st.randoms())
def test_B65_incremental_equals_from_scratch_and_duplicates_are_ignored(logs, shuffler):
    records = [record(n, *events) for n, events in enumerate(logs)]
    state = RunState()
    for one in records:
        state = apply(state, one)
        state = apply(state, one)  # told twice
    assert state == fold(records)
    mixed = records + records[: len(records) // 2]
    shuffler.shuffle(mixed)
    assert fold(mixed) == state
    half = len(records) // 2
    assert fold(records, start=fold(records[:half])) == state


@given(st.lists(some_events, max_size=6))
def test_the_projection_round_trips_as_json(logs):
    state = fold(record(n, *events) for n, events in enumerate(logs))
    assert RunState.from_json(json.loads(json.dumps(state.to_json()))) == state


def test_a_records_own_status_is_the_last_word():
    assert fold([record(0, status=RunStatus.COMPLETED)]).status is RunStatus.COMPLETED


def test_a_projection_of_a_later_version_is_read():
    data = {**RunState(run_id="r").to_json(), "mood": "fine"}
    assert RunState.from_json(data) == replace(RunState(), run_id="r")
