"""RunState: the fold of a run's records, and how a run ends by its last action.

Source: Turn FSM, "Determinism", "Relationship to other components" (B6, B63-B67).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from notebook_agent.core import agent_events as ev
from notebook_agent.core import turn_fsm as fsm
from notebook_agent.core.response import Usage
from notebook_agent.core.session import RunEventRecord, RunStatus

__all__ = [
    "RunState",
    "apply",
    "fold",
    "status_of_action",
    "status_of_error",
]

NOTHING: Final = Usage()

# Ruling: B6, limits are statuses of their own; every other error is Failed.
_STATUS_OF_ERROR: Final[Mapping[str, RunStatus]] = {
    "LimitReached": RunStatus.LIMIT_REACHED,
    "TokenBudgetExhausted": RunStatus.TOKEN_BUDGET_EXHAUSTED,
    "Cancelled": RunStatus.CANCELLED,  # Ruling: B82, Fail(Cancelled) is no failure
    "InputRejected": RunStatus.REJECTED,
}


def status_of_error(name: str) -> RunStatus:
    """How a run ends that an error of this class ends (B6, B82).

    Example:
        >>> status_of_error("LimitReached").value
        'limit_reached'
    """
    return _STATUS_OF_ERROR.get(name, RunStatus.FAILED)


def status_of_action(action: fsm.TurnAction) -> RunStatus | None:
    """How a run stands that this action ends; None when it goes on."""
    match action:
        case fsm.BreakLoop():
            return RunStatus.COMPLETED
        case fsm.Fail(error=error):
            return status_of_error(type(error).__name__)
        case _:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """What a run's log says of it (B64). An empty log is Pending with nothing used.

    ``total_usage`` sums what providers reported, in tokens, a counter that none reported stays
    None; ``estimated_tokens`` are those that an estimate stood in for (B18). ``event_count``
    counts the events of the records; ``last_sequence`` is -1 before the first record.
    """

    run_id: str = ""
    session_id: str = ""
    status: RunStatus = RunStatus.PENDING
    provider: str = ""
    model: str = ""
    iteration: int = 0
    total_usage: Usage = NOTHING
    estimated_tokens: int = 0
    last_finish: str | None = None
    last_error: str | None = None
    event_count: int = 0
    last_sequence: int = -1
    created_at: float | None = None
    updated_at: float | None = None

    def to_json(self) -> dict[str, Any]:
        """JSON form: the stored projection."""
        out = {f.name: getattr(self, f.name) for f in fields(self)}
        out["status"] = self.status.value
        out["total_usage"] = self.total_usage.to_json()
        return out

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RunState:
        """The state that ``to_json`` wrote; fields it does not know are left out."""
        known = {f.name: data[f.name] for f in fields(cls) if f.name in data}
        known["status"] = RunStatus(data["status"])
        known["total_usage"] = Usage.from_json(data["total_usage"]) or NOTHING
        return cls(**known)


def apply(state: RunState, record: RunEventRecord) -> RunState:
    """The state after one more record; a sequence number it has seen changes nothing (B65).

    Args:
        state: The fold of the records before.
        record: The next one, in the order of ``sequence``.
    """
    if record.sequence <= state.last_sequence:
        return state
    if not record.events and record.status is None and state.created_at is not None:
        # the common record: nothing but the timestamp moves
        return replace(state, last_sequence=record.sequence, updated_at=record.timestamp)
    changes: dict[str, Any] = {
        "run_id": state.run_id or record.run_id,
        "last_sequence": record.sequence,
        "created_at": record.timestamp if state.created_at is None else state.created_at,
        "updated_at": record.timestamp,
        "event_count": state.event_count + len(record.events),
    }
    for event in record.events:
        _fold_event(state, changes, event)
    if record.status is not None:
        changes["status"] = record.status
    return replace(state, **changes)


def fold(records: Iterable[RunEventRecord], *, start: RunState | None = None) -> RunState:
    """The state of a whole log: ordered by sequence, duplicates ignored (B63, B65).

    Args:
        records: Records of one run, in any order.
        start: The fold of earlier records; None = from nothing.

    Example:
        >>> fold(()).status.value
        'pending'
    """
    state = RunState() if start is None else start
    for record in sorted(records, key=lambda r: r.sequence):
        state = apply(state, record)
    return state


def _fold_event(state: RunState, changes: dict[str, Any], event: ev.AgentEvent) -> None:
    """What one event changes (B65); every other event only moves the timestamp."""
    match event:
        case ev.RunStarted():
            changes["status"] = RunStatus.RUNNING
            changes["session_id"] = event.session_id
            changes["provider"] = event.provider
            changes["model"] = event.model
        case ev.ModelStarted():
            changes["iteration"] = event.iteration
        case ev.UsageRecorded():
            _add_usage(state, changes, event)
        case ev.TurnCompleted():
            changes["last_finish"] = event.finish_reason
        case ev.RunCompleted():
            changes["status"] = RunStatus.COMPLETED
            changes["last_finish"] = event.finish_reason
        case ev.RunFailed():
            changes["status"] = status_of_error(str(event.error.get("error")))
            changes["last_error"] = str(event.error.get("message", ""))
        case ev.RunCancelled():
            changes["status"] = RunStatus.CANCELLED
        case ev.InputRejected():
            changes["status"] = RunStatus.REJECTED
            changes["last_error"] = event.reason


def _add_usage(state: RunState, changes: dict[str, Any], event: ev.UsageRecorded) -> None:
    usage = Usage.from_json(event.usage) or NOTHING
    if event.estimated:
        before = changes.get("estimated_tokens", state.estimated_tokens)
        changes["estimated_tokens"] = before + (usage.total or usage.context_tokens or 0)
        return
    total: Usage = changes.get("total_usage", state.total_usage)
    changes["total_usage"] = usage if total == NOTHING else total.plus(usage)
