"""How values enter a store: cleaned (D9) and reduced to JSON, the same for every store.

Source: Turn FSM, "Persisting" (B58). Case A02.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from enum import Enum
from typing import Any, TypeVar

from notebook_agent.core.agent_events import AgentEvent, UsageRecorded
from notebook_agent.core.messages import (
    ImagePart,
    Message,
    MessagePart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from notebook_agent.core.response import Usage
from notebook_agent.core.run_state import RunState, apply
from notebook_agent.core.session import Run, RunEventRecord, Turn, UnservedTurn
from notebook_agent.core.text import clean_text
from notebook_agent.engine.store.base import MessageRecord, Snapshot, ToolExecution
from notebook_agent.errors import StoreError

__all__ = [
    "advance",
    "clean_execution",
    "clean_message",
    "clean_record",
    "clean_run",
    "clean_snapshot",
    "clean_turn",
    "clean_unserved",
    "in_order",
    "no_run",
    "no_session",
    "out_of_sequence",
    "plain",
    "reported_usage",
    "taken",
]

T = TypeVar("T")


def plain(value: Any) -> Any:
    """A JSON value that shares nothing with ``value``: tuples as lists, keys as strings, text
    cleaned, an enum as its value.

    Raises:
        StoreError: Something in it is no JSON.
    """
    kind = type(value)
    if kind is str:
        return clean_text(value)
    if value is None or kind is bool or kind is int or kind is float:
        return value
    if isinstance(value, Mapping):
        return {
            clean_text(k) if type(k) is str else str(plain(k)): plain(v) for k, v in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, str):
        return clean_text(str(value))
    if isinstance(value, (int, float)):
        return int(value) if isinstance(value, int) else float(value)
    raise StoreError(
        f"A {kind.__name__} cannot be stored: {value!r:.80}\n"
        "Give text, numbers, true/false, None, lists or mappings of these."
    )


def _clean_fields(value: T) -> T:
    """The dataclass with its strings cleaned and its mappings plain; itself when all is clean."""
    changes = {}
    for f in fields(value):  # type: ignore[arg-type]  # T is one of the store's dataclasses
        old = getattr(value, f.name)
        if type(old) is str:
            new = clean_text(old)
            if new is not old:
                changes[f.name] = new
        elif isinstance(old, Mapping):
            changes[f.name] = plain(old)
    return replace(value, **changes) if changes else value  # type: ignore[type-var]  # as above


def _clean_part(part: MessagePart) -> MessagePart:
    match part:
        case TextPart(text=text):
            new = clean_text(text)
            return part if new is text else replace(part, text=new)
        case ToolCallPart():
            part = _clean_fields(part)
            return part if part.input is None else replace(part, input=plain(part.input))
        case ToolResultPart(images=images):
            part = _clean_fields(part)
            return replace(part, images=tuple(map(_clean_fields, images))) if images else part
        case ImagePart():
            return _clean_fields(part)


def clean_message(message: Message) -> Message:
    """The message as stores keep it; itself when it is clean already."""
    parts = tuple(map(_clean_part, message.parts))
    state = message.provider_state
    same_parts = all(new is old for new, old in zip(parts, message.parts, strict=True))
    if same_parts and state is None and clean_text(message.id) is message.id:
        return message
    return replace(
        message,
        parts=parts,
        id=clean_text(message.id),
        provider_state=None if state is None else plain(state),
    )


def clean_record(record: MessageRecord) -> MessageRecord:
    """The log entry as stores keep it."""
    message = None if record.message is None else clean_message(record.message)
    return replace(
        record,
        message=message,
        run_id=clean_text(record.run_id),
        meta=plain(record.meta),
    )


def clean_turn(turn: Turn) -> Turn:
    """The audit row as stores keep it."""
    turn = _clean_fields(turn)
    changes: dict[str, Any] = {}
    if turn.tool_calls:
        changes["tool_calls"] = tuple(map(_clean_part, turn.tool_calls))
    if turn.tools_not_run:
        changes["tools_not_run"] = tuple(map(clean_text, turn.tools_not_run))
    if turn.context_ref is not None:
        ref = _clean_fields(turn.context_ref)
        changes["context_ref"] = replace(ref, ids=tuple(map(clean_text, ref.ids)))
    return replace(turn, **changes) if changes else turn


def clean_unserved(unserved: UnservedTurn) -> UnservedTurn:
    """The row of a failed or cancelled turn as stores keep it."""
    return replace(
        unserved,
        turn=clean_turn(unserved.turn),
        outcome=clean_text(unserved.outcome),
        error=plain(unserved.error),
    )


def clean_run(run: Run) -> Run:
    """The run as stores keep it, without its turns."""
    return Run.from_json(plain(run.to_json()))


def clean_execution(execution: ToolExecution) -> ToolExecution:
    """The tool row as stores keep it."""
    execution = _clean_fields(execution)
    if not execution.images:
        return execution
    return replace(execution, images=tuple(map(_clean_fields, execution.images)))


def clean_snapshot(snapshot: Snapshot) -> Snapshot:
    """The snapshot as stores keep it."""
    return replace(_clean_fields(snapshot), pending=tuple(map(clean_message, snapshot.pending)))


def advance(state: RunState, record: RunEventRecord) -> RunState:
    """The projection after one more record, as stores keep it."""
    return _clean_fields(apply(state, record))


def reported_usage(records: list[RunEventRecord] | tuple[RunEventRecord, ...]) -> Usage | None:
    """Tokens that the records say were reported, None when none was."""
    total: Usage | None = None
    for record in records:
        for event in record.events:
            if isinstance(event, UsageRecorded) and not event.estimated:
                usage = Usage.from_json(event.usage) or Usage()
                total = usage if total is None else total.plus(usage)
    return total


def in_order(events: Iterable[AgentEvent]) -> list[AgentEvent]:
    """Events as they happened: by their numbers, which no clock set back can turn round; by time
    where not each has its own. The terminal one last."""
    found = list(events)
    if len({event.order for event in found}) == len(found):
        return sorted(found, key=lambda e: (e.terminal, e.order))
    return sorted(found, key=lambda e: (e.terminal, e.timestamp, e.order))


def no_session(session_id: str) -> StoreError:
    """There is no such session."""
    return StoreError(
        f"There is no session with the id {session_id!r}.\nSee them with:  %agent session list"
    )


def no_run(run_id: str) -> StoreError:
    """There is no such run."""
    return StoreError(
        f"There is no run with the id {run_id!r} in the store; its session may have been deleted.\n"
        "See what there is:  %agent session list"
    )


def taken(what: str, key: str) -> StoreError:
    """Something of that id is there already; nothing was written."""
    return StoreError(f"A {what} with the id {key!r} is in the store already; nothing was written.")


def out_of_sequence(run_id: str, expected: int, actual: int) -> StoreError:
    """A record that is not the run's next one (B58)."""
    return StoreError(
        f"Record {actual} of run {run_id!r} was refused: the next one is {expected}.\n"
        "Another kernel may be working on this run; nothing was written."
    )
