"""B7-B13: the table, all 84 pairs, and what every run through it keeps."""

from __future__ import annotations

import copy
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_agent import errors
from notebook_agent.core import outcomes as o
from notebook_agent.core import policy as p
from notebook_agent.core.messages import Message
from notebook_agent.core.response import ChatResponse
from notebook_agent.core.turn_fsm import (
    TRANSITIONS,
    BreakLoop,
    CompactAndRetry,
    Continue,
    Fail,
    TurnState,
    action_from_json,
    action_to_json,
    mermaid,
    resolve,
)

S = TurnState
BOOM = errors.AgentError("boom")
SAMPLES = {
    o.Ok: o.Ok(),
    o.PolicyExhausted: o.PolicyExhausted(p.MaxIterations(2, 3)),
    o.ContextReady: o.ContextReady(),
    o.ContextOverBudget: o.ContextOverBudget(9, 8),
    o.CompactionTriggered: o.CompactionTriggered({"applied": True}),
    o.ModelResponse: o.ModelResponse(ChatResponse(Message.assistant("hi"))),
    o.ProviderError: o.ProviderError(BOOM),
    o.ToolCallsPresent: o.ToolCallsPresent(("c1",)),
    o.NoMoreTurns: o.NoMoreTurns(),
    o.ToolResultsRecorded: o.ToolResultsRecorded(("c1",)),
    o.Persisted: o.Persisted(),
    o.Cancelled: o.Cancelled(),
    o.ToolFailure: o.ToolFailure(BOOM),
    o.StorageError: o.StorageError(errors.StoreError("disk")),
}

# The table of B8 in words of its own: rows are outcomes, columns the six states in order.
# ">X" continue, "fail" the outcome's error, "compact", "break", "." illegal.
B8 = """
Ok                  >BUILDING_CONTEXT . . >PERSISTING . .
PolicyExhausted     fail fail . . . .
ContextReady        . >CALLING_MODEL . . . .
ContextOverBudget   . compact compact . . .
CompactionTriggered . >BUILDING_CONTEXT . . . .
ModelResponse       . . >PROCESSING_RESPONSE . . .
ProviderError       . . fail . . .
ToolCallsPresent    . . . >EXECUTING_TOOLS . .
NoMoreTurns         . . . >PERSISTING . break
ToolResultsRecorded . . . . >PERSISTING .
Persisted           . . . . . >CHECKING_POLICY
Cancelled           fail fail fail fail fail fail
ToolFailure         . . . . fail .
StorageError        fail fail fail fail fail fail
"""
EXPECTED = {
    (state, next(k for k in o.OUTCOMES if k.__name__ == name)): cell
    for name, *cells in (line.split() for line in B8.split("\n") if line)
    for state, cell in zip(S, cells, strict=True)
}
PAIRS = list(itertools.product(S, o.OUTCOMES))


def test_B7_there_are_six_times_fourteen_pairs():
    assert len(PAIRS) == 84 == len(EXPECTED)


@pytest.mark.parametrize(
    ("state", "kind"), PAIRS, ids=lambda x: getattr(x, "name", None) or x.__name__
)
def test_B8_every_pair(state, kind):
    outcome = SAMPLES[kind]
    before = copy.deepcopy(outcome)
    action = resolve(state, outcome)
    assert action == resolve(state, copy.deepcopy(outcome))  # deterministic
    assert outcome == before  # nothing is changed
    cell = EXPECTED[state, kind]
    if cell.startswith(">"):
        assert action == Continue(S[cell[1:]])
    elif cell == "compact":
        assert action == CompactAndRetry()
    elif cell == "break":
        assert action == BreakLoop()
    elif cell == "fail":
        assert action == Fail(outcome.error)
    else:
        assert isinstance(action, Fail)
        assert isinstance(action.error, errors.InvalidTransition)
        assert action.error.state == state.name
        assert action.error.outcome == kind.__name__
        assert kind.__name__ not in action.error.legal
    assert action_from_json(action_to_json(action)) == action


def test_B9_and_B12_the_table_holds_exactly_the_legal_cells():
    legal = {pair for pair, cell in EXPECTED.items() if cell != "." and pair[1] is not o.Cancelled}
    assert {(s, k) for s, row in TRANSITIONS.items() for k in row} == legal


def test_B13c_every_state_is_reached_and_every_outcome_used():
    seen, todo = {S.CHECKING_POLICY}, [S.CHECKING_POLICY]
    used = {o.Cancelled}
    while todo:
        for kind, action in TRANSITIONS[todo.pop()].items():
            used.add(kind)
            if isinstance(action, Continue) and action.state not in seen:
                seen.add(action.state)
                todo.append(action.state)
    assert seen == set(S)
    assert used == set(o.OUTCOMES)


def test_B13f_break_loop_comes_from_persisting_only():
    assert [
        s for s, row in TRANSITIONS.items() for a in row.values() if isinstance(a, BreakLoop)
    ] == [S.PERSISTING]


walks = st.lists(st.sampled_from(list(SAMPLES.values())), max_size=60)


def drive(outcomes):
    """The orchestrator's rule (B8a) over any outcomes: states, outcomes, actions until an end."""
    state, trail = S.CHECKING_POLICY, []
    for outcome in outcomes:
        action = resolve(state, outcome)
        trail.append((state, outcome, action))
        if isinstance(action, Continue):
            state = action.state
        elif isinstance(action, CompactAndRetry):
            state = S.BUILDING_CONTEXT
        else:
            break
    return trail


def legal_walk(draw):
    state, outcomes = S.CHECKING_POLICY, []
    for _ in range(draw(st.integers(0, 60))):
        kind = draw(st.sampled_from(sorted(TRANSITIONS[state], key=lambda k: k.__name__)))
        outcomes.append(SAMPLES[kind])
        action = resolve(state, outcomes[-1])
        if isinstance(action, Continue):
            state = action.state
        elif isinstance(action, CompactAndRetry):
            state = S.BUILDING_CONTEXT
        else:
            break
    return outcomes


legal_walks = st.composite(legal_walk)()


@given(walks | legal_walks)
def test_B13_properties_of_any_walk(outcomes):
    trail = drive(outcomes)
    assert trail == drive(outcomes)
    compacting = False
    for n, (state, outcome, action) in enumerate(trail):
        came_from = trail[n - 1] if n else None
        if state is S.BUILDING_CONTEXT and came_from and came_from[0] is not S.CHECKING_POLICY:
            # (d) back in only by CompactAndRetry or the CompactionTriggered that follows it
            assert isinstance(came_from[2], CompactAndRetry) or isinstance(
                came_from[1], o.CompactionTriggered
            )
        if compacting:  # (e) no CheckingPolicy before the context is ready
            assert state is not S.CHECKING_POLICY
        compacting = (compacting or isinstance(action, CompactAndRetry)) and not isinstance(
            outcome, o.ContextReady
        )
        if isinstance(action, BreakLoop):
            assert state is S.PERSISTING
        if isinstance(outcome, o.Cancelled):
            assert action == Fail(outcome.error)
            assert n == len(trail) - 1


CP, BC, CM, PR, ET, PS = S
HEAD = [(CP, o.Ok), (BC, o.ContextReady), (CM, o.ModelResponse)]
PLAIN = [*HEAD, (PR, o.NoMoreTurns), (PS, o.NoMoreTurns)]
TOOLS = [*HEAD, (PR, o.ToolCallsPresent), (ET, o.ToolResultsRecorded), (PS, o.Persisted)]
NO_GAIN = o.PolicyExhausted(p.CompactionExhausted(2, 9, 8))
SPENT = o.PolicyExhausted(p.TokenBudget(10, 11))
TRACES = {  # 2.17, numbered as there: (state the outcome is fed in, outcome)..., last action
    "1 plain answer": (PLAIN, BreakLoop),
    "2 one tool": ([*TOOLS, *PLAIN], BreakLoop),
    "3 over budget once": (
        [(CP, o.Ok), (BC, o.ContextOverBudget), (BC, o.CompactionTriggered), *PLAIN[1:]],
        BreakLoop,
    ),
    "4 cannot shrink": (
        [(CP, o.Ok), (BC, o.ContextOverBudget), (BC, NO_GAIN)],
        errors.ContextExceeded,
    ),
    "4 under the line": (
        [(CP, o.Ok), (BC, o.ContextOverBudget), (BC, o.CompactionTriggered), *PLAIN[1:]],
        BreakLoop,
    ),
    "5 limit": ([*TOOLS, (CP, o.PolicyExhausted)], errors.LimitReached),
    "6 budget": ([(CP, SPENT)], errors.TokenBudgetExhausted),
    "7 permanent error": ([*HEAD[:2], (CM, o.ProviderError)], errors.AgentError),
    "8 length follow-up": ([*HEAD, (PR, o.Ok), (PS, o.Persisted), *PLAIN], BreakLoop),
    "8 length, spent": (PLAIN, BreakLoop),
    "9 cancel in the call": ([*HEAD[:2], (CM, o.Cancelled)], errors.Cancelled),
    "10 cancel before": ([(CP, o.Cancelled)], errors.Cancelled),
    "11 illegal": ([(CP, o.Persisted)], errors.InvalidTransition),
    "M1 provider says too long": (
        [*HEAD[:2], (CM, o.ContextOverBudget), (BC, o.CompactionTriggered), *PLAIN[1:]],
        BreakLoop,
    ),
}


@pytest.mark.parametrize("name", TRACES)
def test_traces(name):
    steps, end = TRACES[name]
    fed = [(state, SAMPLES[what] if isinstance(what, type) else what) for state, what in steps]
    trail = drive([outcome for _, outcome in fed])
    assert [(state, outcome) for state, outcome, _ in trail] == fed
    last = trail[-1][2]
    if end is BreakLoop:
        assert last == BreakLoop()
    else:
        assert isinstance(last, Fail)
        assert type(last.error) is end


def test_policy_reasons_become_their_errors():
    ends = {
        p.MaxIterations(16, 17): errors.LimitReached,
        p.TokenBudget(10, 11): errors.TokenBudgetExhausted,
        p.CompactionExhausted(2, 9, 8): errors.ContextExceeded,
    }
    for reason, kind in ends.items():
        action = resolve(S.CHECKING_POLICY, o.PolicyExhausted(reason))
        assert isinstance(action, Fail)
        assert type(action.error) is kind


def test_unknown_actions_are_refused():
    with pytest.raises(ValueError, match="is no action"):
        action_from_json({"action": "Jump"})


def test_the_diagram_has_a_line_for_every_cell():
    lines = mermaid().splitlines()
    cells = sum(len(row) for row in TRANSITIONS.values())
    assert len(lines) == 2 + cells + len(S)  # head, entry, cells, one cancel each
    for state, row in TRANSITIONS.items():
        for kind in row:
            assert any(f"{state.name} -->" in line and kind.__name__ in line for line in lines)
    assert "    BUILDING_CONTEXT --> BUILDING_CONTEXT : ContextOverBudget / compact" in lines
    assert "    PERSISTING --> [*] : NoMoreTurns / completed" in lines
