"""core/outcomes.py and the JSON of actions (B2, B3, B58)."""

from __future__ import annotations

import json

import pytest

from notebook_agent.core import outcomes as o
from notebook_agent.core import turn_fsm as fsm
from notebook_agent.core.messages import Message
from notebook_agent.core.policy import CompactionExhausted, MaxIterations, TokenBudget
from notebook_agent.core.request import StreamRequest
from notebook_agent.core.response import ChatResponse, Ending, StopReason, Usage
from notebook_agent.errors import ErrorKind, LimitReached, ProviderError, StoreError, ToolFailed

RESPONSE = ChatResponse(
    Message.assistant("secret text", id="m1"),
    StopReason.MAX_TOKENS,
    Usage(1, None),
    "a:b",
    Ending.MAX_TOKENS,
    "length",
    rescued=True,
    tools_not_run=("find",),
)
SAMPLES = [
    o.Ok(),
    o.PolicyExhausted(MaxIterations(1, 2)),
    o.PolicyExhausted(TokenBudget(1, 2)),
    o.PolicyExhausted(CompactionExhausted(2, 9, 8, "why")),
    o.ContextReady(StreamRequest(()), o.ContextRef(("m1",), "d", 5, "a:b", 100, {"system": 5}, 3)),
    o.ContextOverBudget(9, 8, "emergency"),
    o.CompactionTriggered({"applied": True, "before": 9}),
    o.ModelResponse(RESPONSE),
    o.ModelResponse(ChatResponse(Message.assistant("", id="m2"))),
    o.ProviderError(ProviderError(ErrorKind.TRANSPORT, "cut")),
    o.ToolCallsPresent(("c1", "c2")),
    o.NoMoreTurns(),
    o.ToolResultsRecorded(("c1",)),
    o.Persisted(),
    o.Cancelled(),
    o.ToolFailure(ToolFailed("find", "boom")),
    o.StorageError(StoreError("disk full")),
]


def test_every_outcome_is_tried() -> None:
    assert {type(s) for s in SAMPLES} == set(o.OUTCOMES)
    assert len(o.OUTCOMES) == 14


@pytest.mark.parametrize("outcome", SAMPLES, ids=lambda s: type(s).__name__)
def test_B58_record_form_comes_back_the_same(outcome: o.TurnOutcome) -> None:
    written = json.dumps(o.to_json(outcome))
    again = o.from_json(json.loads(written))
    assert o.to_json(again) == json.loads(written)
    if not isinstance(outcome, o.ModelResponse):
        assert again == outcome
    assert "secret text" not in written  # messages are named, never repeated


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="'Maybe' is no outcome"):
        o.from_json({"outcome": "Maybe"})
    with pytest.raises(ValueError, match="'Jump' is no action"):
        fsm.action_from_json({"action": "Jump"})


@pytest.mark.parametrize(
    "action",
    [
        *(fsm.Continue(s) for s in fsm.TurnState),
        fsm.CompactAndRetry(),
        fsm.BreakLoop(),
        fsm.Fail(LimitReached(1, 2)),
    ],
    ids=str,
)
def test_B3_actions_round_trip(action: fsm.TurnAction) -> None:
    assert fsm.action_from_json(json.loads(json.dumps(fsm.action_to_json(action)))) == action


def test_policy_exhausted_stands_for_its_error() -> None:
    assert o.PolicyExhausted(MaxIterations(1, 2)).error == LimitReached(1, 2)
