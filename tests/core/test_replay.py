"""Replay: B59; the reference traces replay, and every edit of a record is found."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from notebook_agent.core import agent_events as ev
from notebook_agent.core import outcomes as o
from notebook_agent.core import turn_fsm as fsm
from notebook_agent.core.policy import CompactionExhausted, MaxIterations, TokenBudget
from notebook_agent.core.replay import replay
from notebook_agent.core.run_state import fold
from notebook_agent.core.session import RunEventRecord, RunStatus
from notebook_agent.errors import AgentError, ContextExceeded, ErrorKind, ProviderError, StoreError
from tests.engine.store_ground import plain_turn, steps_to_records, tool_turn

REFUSED = ProviderError(ErrorKind.AUTHENTICATION, "bad key", status=401)

# The reference traces by number: the outcomes fed, and how the run must end.
TRACES = {
    1: (plain_turn(), RunStatus.COMPLETED),
    2: ([*tool_turn(), *plain_turn()], RunStatus.COMPLETED),
    3: ([o.Ok(), o.ContextOverBudget(6401, 8000), o.CompactionTriggered({"applied": True}), *plain_turn()[1:]], RunStatus.COMPLETED),
    4: ([o.Ok(), o.ContextOverBudget(7600, 8000, "emergency"), o.PolicyExhausted(CompactionExhausted(1, 7600, 8000))], RunStatus.FAILED),
    5: ([*tool_turn(), o.PolicyExhausted(MaxIterations(1, 2))], RunStatus.LIMIT_REACHED),
    6: ([o.PolicyExhausted(TokenBudget(100, 101))], RunStatus.TOKEN_BUDGET_EXHAUSTED),
    7: ([*plain_turn()[:2], o.ProviderError(REFUSED)], RunStatus.FAILED),
    8: ([*plain_turn()[:3], o.Ok(), o.Persisted(), *plain_turn()], RunStatus.COMPLETED),
    9: ([*plain_turn()[:2], o.Cancelled()], RunStatus.CANCELLED),
    10: ([o.Cancelled()], RunStatus.CANCELLED),
    11: ([o.ToolCallsPresent()], RunStatus.FAILED),
}  # fmt: skip


def stored(records):
    """As they come back from a store."""
    return [RunEventRecord.from_json(json.loads(json.dumps(r.to_json()))) for r in records]


@pytest.mark.parametrize("number", TRACES)
def test_B59_reference_trace_replays(number):
    outcomes, status = TRACES[number]
    records = stored(steps_to_records("r", outcomes))
    report = replay(records, projection=fold(records))
    assert report.ok, str(report)
    assert report.complete
    assert report.status is status
    assert report.records == len(outcomes) + 1
    assert status.value in str(report)
    assert report.to_json()["ok"] is True


@pytest.mark.parametrize("number", TRACES)
def test_B59_a_log_that_stops_early_is_right_so_far_and_not_complete(number):
    records = stored(steps_to_records("r", TRACES[number][0]))
    for length in range(len(records)):
        report = replay(records[:length])
        assert report.ok
        assert not report.complete
        assert ("stops" in str(report)) is (length > 0)


def test_an_empty_log():
    report = replay(())
    assert (report.ok, report.complete, report.records, report.state) == (True, False, 0, None)


def test_a_refused_input_has_no_transition():
    final = RunEventRecord(
        run_id="r", sequence=0, turn=0, state=fsm.TurnState.CHECKING_POLICY, outcome=None, action=None,
        events=(ev.InputRejected(reason="empty"),), status=RunStatus.REJECTED,
    )  # fmt: skip
    assert replay([final]).complete
    assert replay([final]).status is RunStatus.REJECTED


def tampered(records, at, **changes):
    return [replace(r, **changes) if r.sequence == at else r for r in records]


RECORDS = stored(steps_to_records("r", TRACES[2][0]))
LAST = RECORDS[-1].sequence

EDITS = {
    "action": (tampered(RECORDS, 3, action=fsm.Continue(fsm.TurnState.PERSISTING)), 3, "action", "Continue(EXECUTING_TOOLS)", "Continue(PERSISTING)"),
    "no action": (tampered(RECORDS, 3, action=None), 3, "action", "Continue(EXECUTING_TOOLS)", "no action"),
    "outcome": (tampered(RECORDS, 3, outcome=o.NoMoreTurns()), 3, "action", "Continue(PERSISTING)", "Continue(EXECUTING_TOOLS)"),
    "error": (tampered(RECORDS, 3, action=fsm.Fail(AgentError("made up"))), 3, "action", "Continue(EXECUTING_TOOLS)", "Fail(AgentError: made up)"),
    "state": (tampered(RECORDS, 4, state=fsm.TurnState.PERSISTING), 4, "state", "EXECUTING_TOOLS", "PERSISTING"),
    "turn": (tampered(RECORDS, 2, turn=1), 2, "turn", "0", "1"),
    "turn back": (tampered(RECORDS, 8, turn=0), 8, "turn", "1", "0"),
    "run": (tampered(RECORDS, 2, run_id="other"), 2, "run", "r", "other"),
    "gap": ([r for r in RECORDS if r.sequence != 4], 5, "sequence", "4", "5"),
    "no start": (RECORDS[1:], 1, "sequence", "0", "1"),
    "double": (RECORDS[:3] + RECORDS[2:], 2, "sequence", "3", "2"),
    "order": ([RECORDS[0], RECORDS[2], RECORDS[1], *RECORDS[3:]], 2, "sequence", "1", "2"),
    "status": (tampered(RECORDS, LAST, status=RunStatus.FAILED), LAST, "status", "completed", "failed"),
    "no status": (tampered(RECORDS, LAST, status=None), LAST, "status", "completed", "none"),
    "event": (tampered(RECORDS, LAST, events=(ev.RunCancelled(),)), LAST, "event", "one that says completed", "RunCancelled"),
    "no event": (tampered(RECORDS, LAST, events=()), LAST, "event", "one terminal event, the last", "none"),
    "two events": (tampered(RECORDS, LAST, events=RECORDS[-1].events * 2), LAST, "event", "one terminal event, the last", "RunCompleted, RunCompleted"),
    "early event": (tampered(RECORDS, 2, events=(ev.RunCancelled(),)), 2, "event", "no terminal event yet", "RunCancelled"),
    "early end": ([*RECORDS[:4], replace(RECORDS[-1], sequence=4)], 4, "status", "the run to go on in EXECUTING_TOOLS", "completed"),
    "after the end": ([*RECORDS, replace(RECORDS[0], sequence=LAST + 1, turn=1)], LAST + 1, "end", "nothing after the final record", "Ok in CHECKING_POLICY"),
    "final with action": (tampered(RECORDS, LAST, action=fsm.BreakLoop()), LAST, "action", "none in the final record", "BreakLoop"),
    "on after BreakLoop": ([*RECORDS[:-1], replace(RECORDS[0], sequence=LAST, turn=1), replace(RECORDS[-1], sequence=LAST + 1)], LAST, "end", "the final record, completed", "Ok in CHECKING_POLICY"),
}  # fmt: skip


@pytest.mark.parametrize("name", EDITS)
def test_B59_tampering_is_reported_with_sequence_expected_actual(name):
    records, sequence, what, expected, actual = EDITS[name]
    report = replay(records)
    (found,) = report.mismatches
    assert (found.sequence, found.what, found.expected, found.actual) == (
        sequence,
        what,
        expected,
        actual,
    )
    assert not report.ok
    assert f"expected {expected}, found {actual}" in str(report)
    assert report.to_json()["mismatches"][0]["sequence"] == sequence


def test_B59_an_edited_limit_is_found():
    """The outcome says 17 of 16; the recorded error must be the one it stands for."""
    records = stored(steps_to_records("r", TRACES[5][0]))
    at = len(records) - 2
    edited = tampered(records, at, outcome=o.PolicyExhausted(MaxIterations(99, 100)))
    (found,) = replay(edited).mismatches
    assert (found.sequence, found.what) == (at, "action")
    assert "99" in found.expected


def test_B59_the_projection_is_compared():
    wrong = replace(fold(RECORDS), iteration=9)
    (found,) = replay(RECORDS, projection=wrong).mismatches
    assert (found.what, found.expected, found.actual) == (
        "projection",
        "iteration = 2",
        "iteration = 9",
    )


OUTCOMES = st.sampled_from([
    o.Ok(), o.ContextReady(), o.ContextOverBudget(), o.CompactionTriggered(), plain_turn()[2],
    o.ToolCallsPresent(("c",)), o.NoMoreTurns(), o.ToolResultsRecorded(("c",)), o.Persisted(),
    o.Cancelled(), o.ProviderError(REFUSED), o.ToolFailure(AgentError("t")),
    o.StorageError(StoreError("disk")), o.PolicyExhausted(MaxIterations(1, 2)),
    o.PolicyExhausted(CompactionExhausted(1, 2, 3)),
])  # fmt: skip


def run_of(outcomes):
    """Outcomes up to the first action that ends a run."""
    state, used = fsm.TurnState.CHECKING_POLICY, []
    for outcome in outcomes:
        used.append(outcome)
        action = fsm.resolve(state, outcome)
        if isinstance(action, (fsm.Fail, fsm.BreakLoop)):
            return used, True
        state = action.state if isinstance(action, fsm.Continue) else fsm.TurnState.BUILDING_CONTEXT
    return used, False


@given(st.lists(OUTCOMES, max_size=30))
def test_B59_whatever_happened_replays(outcomes):
    """Any outcomes at all, legal or not: what the machine recorded, the machine repeats."""
    used, ended = run_of(outcomes)
    records = stored(steps_to_records("r", used))
    if not ended:
        records = records[:-1]
    report = replay(records, projection=fold(records))
    assert report.ok, str(report)
    assert report.complete is ended


LEGAL = st.lists(
    st.sampled_from([tool_turn(), TRACES[3][0][:3] + tool_turn()[1:], TRACES[8][0][:5]]), max_size=4
)


@settings(max_examples=200)
@given(LEGAL, st.data())
def test_B59_any_other_action_anywhere_is_found(turns, data):
    records = stored(steps_to_records("r", [x for turn in turns for x in turn] + plain_turn()))
    at = data.draw(st.integers(0, len(records) - 2))
    other = data.draw(st.sampled_from([
        fsm.BreakLoop(), fsm.CompactAndRetry(), fsm.Fail(ContextExceeded(1, 2)),
        *map(fsm.Continue, fsm.TurnState),
    ]))  # fmt: skip
    edited = tampered(records, at, action=other)
    report = replay(edited)
    if other == records[at].action:
        assert report.ok
    else:
        (found,) = report.mismatches
        assert (found.sequence, found.what) == (at, "action")
