"""What a run that is driven again must have in common with its recording.

Ids, times and token estimates are left out; words of errors too, their kinds are compared.

Source: Turn FSM, "Determinism" (B58, B59).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from notebook_agent.core import outcomes as o
from notebook_agent.core.messages import ToolResultPart
from notebook_agent.core.replay import Mismatch
from notebook_agent.core.session import RunEventRecord
from notebook_agent.core.turn_fsm import Continue, Fail
from notebook_agent.engine.store.base import MessageRecord
from notebook_agent.engine.store.memory import MemoryStore
from notebook_agent.engine.store.run_file import RunBundle
from notebook_agent.errors import AgentError

__all__ = ["compare"]


def compare(bundle: RunBundle, store: MemoryStore, session_id: str, run_id: str) -> Mismatch | None:
    """The first record or message that is not as recorded; ids, times, estimates aside."""
    driven = store.records(run_id)
    complete = bool(bundle.records) and bundle.records[-1].outcome is None
    for n, old in enumerate(bundle.records):
        new = driven[n] if n < len(driven) else None
        was, now = _essence(old), None if new is None else _essence(new)
        if was != now:
            return _differs(bundle, old.sequence, "record", was, now)
    if not complete:
        return None
    if len(driven) > len(bundle.records):
        extra = driven[len(bundle.records)]
        return _differs(bundle, extra.sequence, "record", "the end", _essence(extra))
    log = [e for e in store.list_messages(session_id) if e.run_id == run_id]
    old_said, new_said = _said(bundle.messages), _said(log)
    for n in range(max(len(old_said), len(new_said))):
        was_said = old_said[n] if n < len(old_said) else "no message"
        now_said = new_said[n] if n < len(new_said) else None
        if was_said != now_said:
            return _differs(bundle, len(driven) - 1, "message", was_said, now_said)
    return None


def _differs(bundle: RunBundle, sequence: int, what: str, was: Any, now: Any) -> Mismatch:
    return Mismatch(
        sequence=sequence,
        what=what,
        expected=str(was),
        actual="nothing" if now is None else str(now),
        run_id=bundle.run.id,
    )


def _essence(record: RunEventRecord) -> dict[str, Any]:
    """What of a record must come out again."""
    out: dict[str, Any] = {"turn": record.turn, "state": record.state.name}
    if record.status is not None:
        out["status"] = record.status.value
    match record.outcome:
        case None:
            return out
        case o.ModelResponse(response=r):
            out |= {"stop_reason": r.stop_reason.value, "model": r.model, "rescued": r.rescued}
            out["ending"] = None if r.ending is None else r.ending.value
            out["usage"] = None if r.usage is None else r.usage.to_json()
            out["tools_not_run"] = list(r.tools_not_run)
        case o.ToolCallsPresent(call_ids=ids) | o.ToolResultsRecorded(call_ids=ids):
            out["call_ids"] = list(ids)
        case o.CompactionTriggered(result=result):
            out["applied"] = result.get("applied")
        case o.PolicyExhausted(reason=reason):
            out["reason"] = reason.type
        case o.Failed(error=error):
            out["error"] = _error(error)
    out["outcome"] = type(record.outcome).__name__
    out["action"] = type(record.action).__name__
    if isinstance(record.action, Continue):
        out["to"] = record.action.state.name
    elif isinstance(record.action, Fail):
        out["fails"] = _error(record.action.error)
    return out


def _error(error: AgentError) -> list[Any]:
    data = error.to_json()
    return [data["error"], data.get("kind"), data.get("status")]


def _said(entries: Sequence[MessageRecord]) -> list[list[dict[str, Any]]]:
    """The parts of a run's messages; of an error result only that it is one."""
    out = []
    for entry in entries:
        if entry.kind != "message" or entry.message is None:
            continue
        parts = []
        for part, data in zip(entry.message.parts, entry.message.to_json()["parts"], strict=True):
            if isinstance(part, ToolResultPart) and part.is_error:
                data = {**data, "output": ""}
            parts.append({k: v for k, v in data.items() if k not in ("raw", "images")})
        out.append(parts)
    return out
