"""The eleven reference traces of the Turn FSM (engine 2.17), by number."""

from __future__ import annotations

import pytest

from notebook_agent.core import outcomes as o
from notebook_agent.core.compaction import CompactionPolicy
from notebook_agent.core.messages import ToolCallPart
from notebook_agent.core.policy import RuntimePolicy
from notebook_agent.core.response import Usage
from notebook_agent.core.session import RunStatus
from notebook_agent.core.turn_fsm import Fail, TurnState, resolve
from notebook_agent.engine.runtime import STEPS
from notebook_agent.errors import (
    ContextExceeded,
    ErrorKind,
    InvalidTransition,
    ProviderError,
    TokenBudgetExhausted,
)
from notebook_agent.providers.scripted import Reply, ScriptedModel
from tests.conftest import fixed_surroundings
from tests.engine.runtime_kit import check_run, failing, make, run, trace

PLAIN = [
    "CHECKING_POLICY: Ok => ->BUILDING_CONTEXT",
    "BUILDING_CONTEXT: ContextReady => ->CALLING_MODEL",
    "CALLING_MODEL: ModelResponse => ->PROCESSING_RESPONSE",
    "PROCESSING_RESPONSE: NoMoreTurns => ->PERSISTING",
    "PERSISTING: NoMoreTurns => BreakLoop",
]
TOOL_TURN = [
    *PLAIN[:3],
    "PROCESSING_RESPONSE: ToolCallsPresent => ->EXECUTING_TOOLS",
    "EXECUTING_TOOLS: ToolResultsRecorded => ->PERSISTING",
    "PERSISTING: Persisted => ->CHECKING_POLICY",
]
CALL = Reply(text="Let me look.", tool_calls=[ToolCallPart("c1", "look", {"at": "sky"})])


def look(at: str) -> str:
    """Look at something."""
    return f"{at} is blue"


def test_trace_01_plain_answer() -> None:
    runtime = make(["Hello."])
    result = run(runtime)
    assert trace(runtime, result) == PLAIN
    assert (result.status, result.text) == (RunStatus.COMPLETED, "Hello.")
    assert runtime.store.state(result.run.id).iteration == 1
    check_run(runtime, result)


def test_trace_02_one_tool() -> None:
    runtime = make([CALL, "It is blue."], tools=[look])
    result = run(runtime)
    assert trace(runtime, result) == [*TOOL_TURN, *PLAIN]
    assert result.status is RunStatus.COMPLETED
    assert runtime.store.state(result.run.id).iteration == 2
    assert [t.turn for t in result.turns] == [0, 1]
    check_run(runtime, result)


def _filled(window, turns, **given):
    """A runtime whose history holds ``turns`` long exchanges."""
    runtime = make(["x" * 300], compaction=CompactionPolicy(window=200_000), **given)
    for n in range(turns):
        run(runtime, f"question {n} " + "y" * 300)
    runtime.set_compaction(window=window)
    return runtime


def test_trace_03_and_B8a_over_budget_once() -> None:
    runtime = _filled(6_000, 9)
    result = run(runtime, "last question")
    assert trace(runtime, result) == [
        PLAIN[0],
        "BUILDING_CONTEXT: ContextOverBudget => CompactAndRetry",
        "BUILDING_CONTEXT: CompactionTriggered => ->BUILDING_CONTEXT",
        *PLAIN[1:],
    ]
    assert runtime.store.state(result.run.id).iteration == 1
    assert result.turns[0].compacted
    check_run(runtime, result)


def test_trace_04_cannot_shrink() -> None:
    runtime = make(["Hello."], compaction=CompactionPolicy(window=1_000))
    before = len(runtime.client.requests)
    error = failing(runtime, "x" * 960)
    assert isinstance(error, ContextExceeded)
    assert (error.used, error.limit) == (960, 1_000)
    assert trace(runtime, error.result) == [
        PLAIN[0],
        "BUILDING_CONTEXT: ContextOverBudget => CompactAndRetry",
        "BUILDING_CONTEXT: PolicyExhausted => Fail(ContextExceeded)",
    ]
    assert len(runtime.client.requests) == before
    check_run(runtime, error.result)


def test_trace_04_under_the_emergency_line_it_is_sent() -> None:
    runtime = make(["Hello."], compaction=CompactionPolicy(window=1_000))
    result = run(runtime, "x" * 900)
    assert trace(runtime, result) == [
        PLAIN[0],
        "BUILDING_CONTEXT: ContextOverBudget => CompactAndRetry",
        "BUILDING_CONTEXT: CompactionTriggered => ->BUILDING_CONTEXT",
        *PLAIN[1:],
    ]
    assert result.status is RunStatus.COMPLETED
    assert any("900" in line and "950" in line for line in result.notices)
    check_run(runtime, result)


def test_trace_05_limit() -> None:
    runtime = make([CALL], tools=[look], policy=RuntimePolicy(max_iterations=1))
    result = run(runtime)
    assert trace(runtime, result) == [
        *TOOL_TURN,
        "CHECKING_POLICY: PolicyExhausted => Fail(LimitReached)",
    ]
    assert result.status is RunStatus.LIMIT_REACHED
    assert len(runtime.client.requests) == 1
    assert [e.status for e in runtime.store.tool_executions(result.run.id)] == ["ok"]
    assert runtime.session.history == []  # only a completed run is the conversation's
    check_run(runtime, result)


@pytest.mark.parametrize(
    ("limit", "status"),
    [(99, RunStatus.TOKEN_BUDGET_EXHAUSTED), (100, RunStatus.COMPLETED)],
)
def test_trace_06_budget(limit, status) -> None:
    first = Reply(tool_calls=CALL.tool_calls, usage=Usage(90, 10))
    runtime = make([first, "Done."], tools=[look], policy=RuntimePolicy(max_total_tokens=limit))
    result = run(runtime)
    assert result.status is status
    if status is RunStatus.TOKEN_BUDGET_EXHAUSTED:
        assert trace(runtime, result) == [
            *TOOL_TURN,
            "CHECKING_POLICY: PolicyExhausted => Fail(TokenBudgetExhausted)",
        ]
        assert result.run.error["error"] == TokenBudgetExhausted.__name__
        assert (result.run.error["used"], result.run.error["limit"]) == (100, 99)
    check_run(runtime, result)


def test_trace_07_permanent_error() -> None:
    runtime = make(["Hello."], script="401")
    error = failing(runtime)
    assert isinstance(error, ProviderError)
    assert error.kind is ErrorKind.AUTHENTICATION
    assert trace(runtime, error.result) == [
        *PLAIN[:2],
        "CALLING_MODEL: ProviderError => Fail(ProviderError)",
    ]
    assert len(runtime.client.requests) == 1
    assert error.result.unserved[0].turn.attempts == 1
    assert error.result.turns == ()
    check_run(runtime, error.result)


def test_trace_08_length_with_follow_up() -> None:
    cut = Reply(text="The first half", stop_reason="length")
    runtime = make([cut, " and the second."], policy=RuntimePolicy(max_output_recovery_attempts=1))
    result = run(runtime)
    assert trace(runtime, result) == [
        *PLAIN[:3],
        "PROCESSING_RESPONSE: Ok => ->PERSISTING",
        "PERSISTING: Persisted => ->CHECKING_POLICY",
        *PLAIN,
    ]
    asked = runtime.client.requests[1].messages
    assert [m.text_content() for m in asked][:2] == ["Hi", "The first half"]
    assert "Continue" in asked[2].text_content()
    check_run(runtime, result)


@pytest.mark.parametrize("attempts", [0, 1])
def test_trace_08_length_off_or_spent(attempts) -> None:
    cut = Reply(text="half", stop_reason="length")
    policy = RuntimePolicy(max_output_recovery_attempts=attempts)
    runtime = make([cut, cut], policy=policy)
    result = run(runtime)
    assert trace(runtime, result)[-2:] == PLAIN[3:]
    assert result.status is RunStatus.COMPLETED
    assert len(result.turns) == 1 + attempts
    state = runtime.store.state(result.run.id)
    assert state.last_finish == "length"
    check_run(runtime, result)


def test_B44_length_on_the_last_iteration_is_the_end() -> None:
    cut = Reply(text="half", stop_reason="length")
    policy = RuntimePolicy(max_output_recovery_attempts=3, max_iterations=2)
    runtime = make([cut], policy=policy)
    result = run(runtime)
    assert (result.status, len(result.turns)) == (RunStatus.COMPLETED, 2)


def test_trace_09_cancel_during_the_model_call() -> None:
    surroundings = fixed_surroundings()
    model = ScriptedModel([Reply(text="one two three", delay_s=1.0)])
    runtime = make(model=model, surroundings=surroundings)

    class Stop:
        def on_text_delta(self, ctx):
            runtime.cancel_signal.cancel()

    runtime.hub.add(Stop())
    before = runtime.breaker.to_json()
    error = failing(runtime)
    assert trace(runtime, error.result) == [
        *PLAIN[:2],
        "CALLING_MODEL: Cancelled => Fail(Cancelled)",
    ]
    assert error.result.status is RunStatus.CANCELLED
    assert runtime.breaker.to_json() == before
    assert model.open_streams == 0
    row = error.result.unserved[0]
    assert (row.outcome, row.turn.output) == ("cancelled", "one ")
    check_run(runtime, error.result)
    assert not runtime.cancel_signal.is_cancelled()  # one cancel = one cancelled run
    model2 = run(runtime, "again")
    assert model2.status is RunStatus.CANCELLED  # the observer fires again: this run's own cancel


def test_trace_10_cancel_before_the_run() -> None:
    runtime = make(["Hello."])
    runtime.cancel_signal.cancel()
    error = failing(runtime)
    assert trace(runtime, error.result) == ["CHECKING_POLICY: Cancelled => Fail(Cancelled)"]
    assert runtime.client.requests == []
    assert error.result.status is RunStatus.CANCELLED
    check_run(runtime, error.result)
    assert run(runtime, "again").status is RunStatus.COMPLETED


@pytest.mark.parametrize("state", list(TurnState))
def test_trace_11_and_B9_an_illegal_pair(state, monkeypatch) -> None:
    """A step that reports an illegal outcome ends the run Failed, and the pair is recorded."""
    illegal = next(
        outcome
        for outcome in (o.Ok(), o.ContextOverBudget(), o.Persisted())
        if isinstance(resolve(state, outcome), Fail)
    )

    async def wrong(run):
        return illegal

    monkeypatch.setitem(STEPS, state, wrong)
    runtime = make([CALL, "Done."], tools=[look])
    error = failing(runtime)
    assert isinstance(error, InvalidTransition)
    last = trace(runtime, error.result)[-1]
    assert last == f"{state.name}: {type(illegal).__name__} => Fail(InvalidTransition)"
    assert error.result.status is RunStatus.FAILED
    check_run(runtime, error.result)
