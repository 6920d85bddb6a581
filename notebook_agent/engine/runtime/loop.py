"""The loop: look up the step, await it, resolve its outcome, record, move. Nothing else may
choose the next state.

Source: Turn FSM, "The transition function", "Edge cases" (B7-B12, B58, B62, B74, B81-B84,
L119, L127).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import Any

from notebook_agent.core import outcomes as o
from notebook_agent.core.agent_events import AgentEvent
from notebook_agent.core.breaker import BreakerState
from notebook_agent.core.session import RunEventRecord
from notebook_agent.core.turn_fsm import (
    BreakLoop,
    CompactAndRetry,
    Continue,
    Fail,
    TurnAction,
    TurnState,
    resolve,
)
from notebook_agent.engine.observers import StateChange
from notebook_agent.engine.runtime.run_context import RunContext, Staged
from notebook_agent.engine.runtime.steps import STEPS
from notebook_agent.engine.store.base import Commit, Snapshot
from notebook_agent.errors import AgentError, Cancelled, StoreError

__all__ = ["breaker_kept", "drive", "snapshot_of"]

log = logging.getLogger("notebook_agent.runtime")


async def drive(run: RunContext) -> None:
    """Work the run until ``resolve`` ends it; ``run.frame.ended`` then says how."""
    frame = run.frame
    while frame.ended is None:
        state = frame.state
        outcome = await perform(run, state)
        action = resolve(state, outcome)
        failure = await record(run, state, outcome, action)
        if failure is not None:
            outcome, action = failure, resolve(state, failure)
            await record(run, state, outcome, action)
        if state is TurnState.PERSISTING:
            run.recorder.flush()


async def perform(run: RunContext, state: TurnState) -> o.TurnOutcome:
    """Run one step. Cancel is looked at first, and every way out is an outcome (B81)."""
    run.staged = Staged()
    if run.cancel.is_cancelled():
        return o.Cancelled()
    try:
        return await STEPS[state](run)
    except Cancelled as error:
        return o.Cancelled(error)
    except asyncio.CancelledError:  # Ruling: L127, cancelled from outside is the user's stop
        absorb_cancellation(run)
        return o.Cancelled()
    except StoreError as error:
        return o.StorageError(error)
    except (Exception, SystemExit) as bug:  # exit() in a client must not leave the run open
        log.exception("the step %s raised", state.name)
        return _bug(state, bug)


def absorb_cancellation(run: RunContext) -> None:
    """Turn asyncio's cancellation into the run's own, so that the run can still end itself."""
    run.cancel.cancel()
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()


async def record(
    run: RunContext, state: TurnState, outcome: o.TurnOutcome, action: TurnAction
) -> o.TurnOutcome | None:
    """Move the frame and write the transition with all it staged, in one transaction (B58).

    Returns:
        None when it is written; else the outcome that takes its place, the frame put back: no
        transition happens without its record (B74).
    """
    frame, staged = run.frame, run.staged
    # Ruling: B58, one record a transition, with the snapshot of the next state
    before = (frame.state, frame.seq, frame.ended, frame.facts.over)
    _move(run, outcome, action)
    now = run.surroundings.wall()

    def commit(events: tuple[AgentEvent, ...]) -> Commit:
        return Commit(
            run_id=frame.run_id,
            session_id=frame.session_id,
            record=RunEventRecord(
                run_id=frame.run_id,
                sequence=before[1],
                turn=frame.turn,
                state=state,
                outcome=outcome,
                action=action,
                events=events,
                timestamp=now,
            ),
            snapshot=snapshot_of(run),
            messages=tuple(staged.messages),
            turn=staged.turn,
            unserved=staged.unserved,
        )

    # Ruling: B84, a write of Persisting is not interrupted; the last record of a cancelled or
    # failed run must be written too
    gives_way = state is not TurnState.PERSISTING and not isinstance(action, Fail)
    try:
        await _shielded(run, commit, give_way=gives_way)
    except (StoreError, Cancelled) as error:
        frame.state, frame.seq, frame.ended, frame.facts.over = before
        for undo in reversed(staged.undo):
            undo()
        run.staged = Staged(turn=staged.turn)  # a served turn keeps its row
        if isinstance(action, Fail):
            # not even the failure can be written: the run still ends, with the error it has
            log.error("the end of %s could not be recorded: %s", frame.run_id, error)
            frame.ended = _ending(action)
            return None
        return o.Cancelled(error) if isinstance(error, Cancelled) else o.StorageError(error)
    run.session.conversation.upto += len(staged.messages)
    for then in staged.then:
        told = then()
        if inspect.isawaitable(told):
            await told
    run.staged = Staged()
    _tell(run, state, outcome, action)
    return None


async def _shielded(
    run: RunContext, commit: Callable[[tuple[AgentEvent, ...]], Commit], *, give_way: bool
) -> None:
    """Commit; a cancellation from outside is noted and the write goes on."""
    while True:
        try:
            await run.recorder.commit(commit, run.cancel if give_way else None)
        except asyncio.CancelledError:  # only while waiting for a busy store: nothing is written
            absorb_cancellation(run)
        else:
            return


def _move(run: RunContext, outcome: o.TurnOutcome, action: TurnAction) -> None:
    """Do what the action says, and nothing that it does not say."""
    frame = run.frame
    frame.seq += 1
    match action:
        case Continue(state=state):
            frame.state = state
        case CompactAndRetry():
            # Ruling: B8a, to BUILDING_CONTEXT from wherever it came; the pass is its work
            if isinstance(outcome, o.ContextOverBudget):
                frame.over_budget(outcome)
            frame.state = TurnState.BUILDING_CONTEXT
        case BreakLoop() | Fail():
            frame.ended = _ending(action)
            run.error = action.error if isinstance(action, Fail) else None


def _ending(action: BreakLoop | Fail) -> dict[str, Any]:
    return {"error": action.error.to_json() if isinstance(action, Fail) else None}


def snapshot_of(run: RunContext) -> Snapshot:
    """The frame before the next state's work: without any message that the log has (B72)."""
    frame = run.frame
    data = frame.to_json()
    data["run"] = {"owner": run.owner, **breaker_kept(run)}
    return Snapshot(
        run_id=frame.run_id,
        session_id=frame.session_id,
        state=frame.state.value,
        seq=frame.seq,
        pending=frame.unlogged(),
        data=data,
        timestamp=run.surroundings.wall(),
    )


def breaker_kept(run: RunContext) -> dict[str, Any]:
    """The breaker, where it is not as a new one would be."""
    breaker = run.llm.breaker
    touched = breaker.state is not BreakerState.PRIMARY or breaker.data.consecutive_failures
    if touched or any(one.attempt_count or not one.available for one in breaker.chain):
        return {"breaker": breaker.to_json(run.surroundings.now())}
    return {}


def _tell(run: RunContext, state: TurnState, outcome: o.TurnOutcome, action: TurnAction) -> None:
    if run.hub.hears("on_state"):
        detail = o.to_json(outcome)
        name = detail.pop("outcome")
        run.hub.fire("on_state", StateChange(run.turn, state, name, action, detail))


def _bug(state: TurnState, bug: Exception | SystemExit) -> o.TurnOutcome:
    """A bug of ours or of a plug-in ends the run with a record like any other failure."""
    error = AgentError(f"Internal error in {state.name}: {type(bug).__name__}: {bug}")
    error.__cause__ = bug
    match state:
        case TurnState.CALLING_MODEL:
            return o.ProviderError(error)
        case TurnState.EXECUTING_TOOLS:
            return o.ToolFailure(error)
        case _:  # the only outcome with an error that every other state has (B8)
            return o.StorageError(error)
