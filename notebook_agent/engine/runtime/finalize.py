"""The single exit: every end of a run sets the status and tells exactly one terminal event.

Source: LLM turn, "Recording the outcome" (L95, L96, L113, L116); Turn FSM, "Persisting"
(B6, B57, B70, B75, B82).
"""

from __future__ import annotations

import logging

from notebook_agent.core import agent_events as ev
from notebook_agent.core.result import RunResult
from notebook_agent.core.run_state import status_of_error
from notebook_agent.core.session import RunEventRecord, RunStatus, UnservedTurn
from notebook_agent.core.turn_fsm import TurnState
from notebook_agent.engine.observers import RunEnd
from notebook_agent.engine.runtime.rows import unserved_row
from notebook_agent.engine.runtime.run_context import RunContext
from notebook_agent.engine.runtime.turn_end import end_turn
from notebook_agent.engine.store.base import Commit, MessageRecord
from notebook_agent.errors import AgentError, StoreError, error_from_json

__all__ = ["finalize"]

log = logging.getLogger("notebook_agent.runtime")

LIMITS = frozenset({RunStatus.LIMIT_REACHED, RunStatus.TOKEN_BUDGET_EXHAUSTED})


async def finalize(run: RunContext) -> tuple[RunResult, AgentError | None]:
    """End the run: row, status, terminal event, last record, observers; the signal last.

    Returns:
        The result, and the error that ended the run, None when it completed.
    """
    frame, row = run.frame, run.run
    error = _error_of(run)
    status = RunStatus.COMPLETED if error is None else status_of_error(type(error).__name__)
    if error is not None:
        end_turn(run, success=False, error=error)
    unserved = _unserved(run, error, status)
    if unserved is not None:
        row.unserved.append(unserved)
    row.end = run.surroundings.wall()
    row.status = status
    row.error = None if error is None else error.to_json()
    last = row.turns[-1] if row.turns else None
    row.output = _output(run)
    row.stop_reason = None if last is None else last.stop_reason
    row.ending = None if last is None else last.ending
    event = _terminal(run, status, error)
    leftover = [
        run.session.entry("message", message, run_id=frame.run_id) for message in frame.unlogged()
    ]
    run.emit(event)
    failure = await _write(run, status, leftover, unserved)
    if failure is not None and error is None:
        error = failure  # the conversation has the run; only its last record is missing
    if run.rewrote:  # a compaction moved messages of the open exchange into the history
        run.session.conversation.close_exchange()
    if status is RunStatus.COMPLETED:
        await run.consolidate()
    elapsed = max(run.surroundings.now() - run.started_s, 0.0)
    run.hub.fire(
        "on_run_end",
        RunEnd(
            error is None, error, len(row.turns), elapsed, run_id=frame.run_id, status=status.value
        ),
    )
    run.cancel.reset()  # one cancel = one cancelled run
    result = RunResult(text=row.output, run=row, notices=tuple(run.notices))
    return result, error


def _error_of(run: RunContext) -> AgentError | None:
    ended = run.frame.ended or {"error": None}
    if ended["error"] is None:
        return None
    if run.error is not None and run.error.to_json() == ended["error"]:
        return run.error  # the very error that was raised, with its cause and traceback
    return error_from_json(ended["error"])


def _output(run: RunContext) -> str:
    """The last reply's text without refusals; what had arrived when it was cut off."""
    row = run.run
    if row.unserved:
        partial = row.unserved[-1].turn.output
        if partial:
            return partial
    response = run.frame.response
    if response is not None:
        return response.message.text_content()
    return row.turns[-1].output if row.turns else ""


def _unserved(run: RunContext, error: AgentError | None, status: RunStatus) -> UnservedTurn | None:
    """A row for a turn that was begun and not served; a refused turn number has none."""
    frame = run.frame
    if error is None or status in LIMITS or frame.facts.served:
        return None
    if frame.state is TurnState.CHECKING_POLICY and frame.iteration > 0:
        return None  # stopped between two turns: the turn before has its row
    return unserved_row(run, error, run.call)


def _terminal(run: RunContext, status: RunStatus, error: AgentError | None) -> ev.AgentEvent:
    if error is None:
        return ev.RunCompleted(
            finish_reason=run.frame.last_finish or "", iterations=run.frame.iteration
        )
    if status is RunStatus.CANCELLED:
        return ev.RunCancelled()
    return ev.RunFailed(error=error.to_json())


async def _write(
    run: RunContext,
    status: RunStatus,
    leftover: list[MessageRecord],
    unserved: UnservedTurn | None,
) -> StoreError | None:
    """The last record with status and terminal event; the other events before it (B57, B58)."""
    frame = run.frame
    completed = status is RunStatus.COMPLETED
    await run.recorder.settle()
    messages = () if completed else tuple(leftover)

    def commit(events: tuple[ev.AgentEvent, ...]) -> Commit:
        return Commit(
            run_id=frame.run_id,
            session_id=frame.session_id,
            record=RunEventRecord(
                run_id=frame.run_id,
                sequence=frame.seq,
                turn=frame.turn,
                state=frame.state,
                outcome=None,
                action=None,
                events=events,
                status=status,
                timestamp=run.surroundings.wall(),
            ),
            snapshot=None,
            drop_snapshot=completed,  # kept on failure and cancel (Ruling: B75)
            messages=messages,
            unserved=unserved,
            run=run.run,
        )

    try:
        await run.recorder.commit(commit)
    except StoreError as failure:
        log.error("the end of %s could not be written: %s", frame.run_id, failure)
        return failure
    run.session.conversation.upto += len(messages)
    return None
