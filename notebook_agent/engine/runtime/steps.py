"""The six steps: what is done in each state, and the outcome it reports.

A step never chooses the next state: it reports, ``resolve`` decides, the loop moves. What a
step wants written it stages; the loop writes it in the transition's transaction (B58).

Source: Turn FSM, "The 6 states" (B15-B25, B36, B43-B49, B56, M1, M4); LLM turn (L93-L112).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from notebook_agent.core import agent_events as ev
from notebook_agent.core import outcomes as o
from notebook_agent.core.messages import Message, Role
from notebook_agent.core.policy import check_policy
from notebook_agent.core.response import StopReason, finish_reason
from notebook_agent.core.turn_fsm import TurnState
from notebook_agent.engine.observers import Response
from notebook_agent.engine.runtime.call_step import calling_model
from notebook_agent.engine.runtime.compact_step import compacting
from notebook_agent.engine.runtime.rows import turn_input
from notebook_agent.engine.runtime.run_context import RunContext
from notebook_agent.engine.runtime.schema_step import follow_up
from notebook_agent.engine.runtime.turn_end import end_turn
from notebook_agent.errors import LoopDetected, StoreError, ToolFailed

__all__ = ["CONTINUE_TEXT", "STEPS", "Step"]

# A resumed run whose snapshot is gone or stale (B76): its reply was only there.
LOST_REPLY: Final = (
    "The reply of this turn is not in the store: its snapshot is missing or older than the run.\n"
    "Ask again in a new cell; what was written before is kept."
)

Step = Callable[[RunContext], Awaitable[o.TurnOutcome]]

# What the follow-up of a reply that was cut at its length asks for (B46).
CONTINUE_TEXT: Final = (
    "Your reply was cut off at its maximum length. Continue exactly where it stopped; "
    "do not repeat anything."
)


async def checking_policy(run: RunContext) -> o.TurnOutcome:
    """Count the iteration on entry, then check the limits (B15)."""
    frame = run.frame
    frame.begin_turn()
    run.route = None
    run.built = None
    run.call = None
    run.turn_started_s = run.surroundings.now()
    reason = check_policy(run.policy, iteration=frame.iteration, tokens_used=frame.budget)
    if reason is not None:
        return o.PolicyExhausted(reason)
    # Ruling: L112, turn 0 = the user's text; a later turn = what it answers
    frame.facts.input = frame.input if frame.iteration == 1 else turn_input(frame.pending)
    run.emit(ev.TurnStarted(turn=frame.turn, iteration=frame.iteration))
    return o.Ok()


async def building_context(run: RunContext) -> o.TurnOutcome:
    """The pass that a crossed line asks for (B8a), else the context itself."""
    if run.frame.facts.over is not None:
        return await compacting(run)
    built = await run.pipeline.build(run.wanted())
    run.built = built
    run.route = built.route
    facts = run.frame.facts
    facts.estimate = built.estimate.total
    if isinstance(built.outcome, o.ContextOverBudget):
        facts.reserved = built.estimate.reserved  # Ruling: L108, reserved once by the next pass
    elif isinstance(built.outcome, o.ContextReady):
        run.emit(
            ev.ContextBuilt(
                message_count=len(built.transients) + len(built.conversation),
                estimate=built.estimate.total,
                parts=built.estimate.parts(),
            )
        )
        if built.trimmed:
            _show_trim(run, built.trimmed, built.estimate.total)
    return built.outcome


async def processing_response(run: RunContext) -> o.TurnOutcome:
    """What the settled reply asks for (B43-B47)."""
    frame = run.frame
    response = frame.response
    if response is None:
        raise StoreError(LOST_REPLY)
    finish = finish_reason(response)
    frame.last_finish = finish.value
    if not response.message.tool_calls:
        run.answered(response.message.text_content())
    run.hub.fire(
        "on_response",
        Response(run.turn, response.message.text_content(), response.usage, response.ending),
    )
    calls = response.message.tool_calls
    if response.stop_reason is StopReason.TOOL_CALL and calls:
        # Ruling: B44, also on the last allowed iteration: no call is left dangling
        frame.more = True
        return o.ToolCallsPresent(tuple(call.id for call in calls))
    end_turn(run, success=True)
    policy = run.policy
    if (
        response.stop_reason is StopReason.MAX_TOKENS
        and not response.tools_not_run
        and frame.recoveries < policy.max_output_recovery_attempts
        and frame.iteration < policy.max_iterations
    ):
        frame.recoveries += 1
        frame.more = True
        more = Message.user(CONTINUE_TEXT, id=run.surroundings.new_id("message"))
        frame.inject(more)
        return o.Ok()
    repair = follow_up(run, response)
    if repair is not None:
        frame.more = True
        frame.inject(repair.with_id(run.surroundings.new_id("message")))
        return o.Ok()
    frame.more = False
    return o.NoMoreTurns()


async def executing_tools(run: RunContext) -> o.TurnOutcome:
    """Run the calls; their results go back as one message in the model's order (L123)."""
    frame = run.frame
    response = frame.response
    if response is None:
        raise StoreError(LOST_REPLY)
    calls = response.message.tool_calls
    try:
        results = await run.tool_runner.execute(
            calls,
            turn=frame.turn,
            run_id=frame.run_id,
            session_id=frame.session_id,
            done=run.executed,
        )
    except (LoopDetected, ToolFailed) as error:
        return o.ToolFailure(error)
    frame.tool_results(Message.tool_results(results, id=run.surroundings.new_id("message")))
    await run.remember(calls, results)
    end_turn(run, success=True)
    return o.ToolResultsRecorded(tuple(call.id for call in calls))


async def persisting(run: RunContext) -> o.TurnOutcome:
    """Write the turn's messages; the last turn's write makes the run the conversation's (B56).

    The messages are staged: the loop writes them with this transition, and only a written
    turn moves on (B11, B62).
    """
    frame, staged = run.frame, run.staged
    for message in frame.unlogged():
        staged.messages.append(run.session.entry("message", message, run_id=frame.run_id))
        staged.then.append(partial(_tell_committed, run, message))
    before, frame.logged = frame.logged, len(frame.pending)
    staged.undo.append(partial(setattr, frame, "logged", before))
    staged.then.append(partial(_tell_completed, run))
    # Ruling: B11, the outcome says whether another turn follows; only written, it moves the run on
    if frame.more:
        return o.Persisted()
    staged.messages.append(run.session.entry("commit", run_id=frame.run_id))
    staged.then.append(partial(run.session.conversation.append, frame.pending))
    return o.NoMoreTurns()


def _tell_committed(run: RunContext, message: Message) -> None:
    if message.results:
        run.emit(ev.ToolMessageCommitted(message_id=message.id))
    elif message.role is Role.ASSISTANT:
        run.emit(ev.AssistantMessageCommitted(message_id=message.id))


def _tell_completed(run: RunContext) -> None:
    frame = run.frame
    response = frame.response
    usage = None if response is None or response.usage is None else response.usage.to_json()
    run.emit(
        ev.TurnCompleted(
            turn=frame.turn,
            iteration=frame.iteration,
            finish_reason=frame.last_finish or "",
            usage=usage,
        )
    )


def _show_trim(run: RunContext, count: int, before: int) -> None:
    """A trim is shown like a compaction (3.3 #11)."""
    detail = f"{count} older messages were left out of this request"
    run.notice(f"{detail}: it was still over the window after compaction.")
    run.emit(
        ev.CompactionCompleted(
            applied=True,
            tokens_before=before,
            tokens_after=run.built.window if run.built is not None else 0,
            strategy="trim",
            detail=detail,
        )
    )


STEPS: Final[Mapping[TurnState, Step]] = {
    TurnState.CHECKING_POLICY: checking_policy,
    TurnState.BUILDING_CONTEXT: building_context,
    TurnState.CALLING_MODEL: calling_model,
    TurnState.PROCESSING_RESPONSE: processing_response,
    TurnState.EXECUTING_TOOLS: executing_tools,
    TurnState.PERSISTING: persisting,
}
