"""Rows <-> values of the SQLite store.

Source: Turn FSM, "Persisting" (B60); LLM turn, "The turn's paper trail" (L120).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from notebook_agent.core import outcomes as o
from notebook_agent.core.messages import ImagePart, Message
from notebook_agent.core.response import Ending, StopReason, Usage
from notebook_agent.core.session import (
    Run,
    Turn,
    UnservedTurn,
    call_from_json,
    call_to_json,
)
from notebook_agent.engine.store import codec
from notebook_agent.engine.store.base import (
    MessageRecord,
    SessionRow,
    Snapshot,
    ToolExecution,
)
from notebook_agent.engine.store.schema import TURN_COLUMNS
from notebook_agent.errors import StoreError

__all__ = ["dumps", "loads"]

_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def loads(text: str) -> Any:
    """JSON of the file.

    Raises:
        StoreError: It is none: the file was damaged or written by something else.
    """
    try:
        return json.loads(text)
    except (ValueError, TypeError) as problem:
        raise StoreError(
            f"The session store holds a damaged value, {str(text)[:40]!r}: {problem}.\n"
            "Move the file away; a new one is made at the next run."
        ) from problem


def dumps(value: Any) -> str:
    """JSON text of a value that ``codec.plain`` or a cleaning function has seen."""
    return _encode(value)


def _maybe(value: Any) -> str | None:
    return None if value is None else _encode(value)


SESSION_COLUMNS: Final = "id, name, created_at, updated_at, config, run_count, message_count, usage"


def session_from_row(row: Sequence[Any]) -> SessionRow:
    return SessionRow(
        id=row[0],
        name=row[1],
        created_at=row[2],
        updated_at=row[3],
        config=loads(row[4]),
        run_count=row[5],
        message_count=row[6],
        usage=None if row[7] is None else Usage.from_json(loads(row[7])),
    )


MESSAGE_COLUMNS: Final = "session_id, seq, run_id, kind, body, meta, created_at"


def message_to_row(session_id: str, seq: int, record: MessageRecord) -> tuple[Any, ...]:
    message = record.message
    return (
        session_id,
        seq,
        record.run_id,
        record.kind,
        None if message is None else _encode(message.to_json()),
        _encode(dict(record.meta)) if record.meta else None,
        record.created_at,
    )


def message_from_row(row: Sequence[Any]) -> MessageRecord:
    return MessageRecord(
        session_id=row[0],
        seq=row[1],
        run_id=row[2],
        kind=row[3],
        message=None if row[4] is None else Message.from_json(loads(row[4])),
        meta={} if row[5] is None else loads(row[5]),
        created_at=row[6],
    )


RUN_COLUMNS: Final = (
    "id, input, started_at, ended_at, output, config, status, stop_reason, ending, error"
)
_RUN_FIELDS: Final = (
    "id", "input", "start", "end", "output", "config", "status", "stop_reason", "ending", "error",
)  # fmt: skip


def run_to_row(run: Run) -> tuple[Any, ...]:
    """In the order of RUN_COLUMNS; the run must be clean."""
    data = run.to_json()
    data["config"] = _encode(data["config"])
    data["error"] = _maybe(data["error"])
    return tuple(data[name] for name in _RUN_FIELDS)


def run_from_row(row: Sequence[Any]) -> Run:
    data = dict(zip(_RUN_FIELDS, row, strict=True))
    data["config"] = loads(data["config"])
    data["error"] = None if data["error"] is None else loads(data["error"])
    return Run.from_json(data)


TURN_ROW_COLUMNS: Final = "run_id, served, outcome, error, " + ", ".join(TURN_COLUMNS)
_FIRST: Final = 4  # columns before Turn's own
_BOOLS: Final = ("rescued", "compacted", "budget_estimated")


def turn_to_row(run_id: str, turn: Turn) -> tuple[Any, ...]:
    return (run_id, 1, None, None, *_turn_values(turn))


def unserved_to_row(run_id: str, row: UnservedTurn) -> tuple[Any, ...]:
    return (run_id, 0, row.outcome, _encode(dict(row.error)), *_turn_values(row.turn))


def _turn_values(turn: Turn) -> tuple[Any, ...]:
    given = {name: getattr(turn, name) for name in TURN_COLUMNS}
    ref = turn.context_ref
    given["tool_calls"] = (
        _encode(codec.plain([call_to_json(c) for c in turn.tool_calls]))
        if turn.tool_calls
        else None
    )
    given["tools_not_run"] = _encode(list(turn.tools_not_run)) if turn.tools_not_run else None
    given["stop_reason"] = turn.stop_reason.value
    given["ending"] = None if turn.ending is None else turn.ending.value
    given["context_ref"] = None if ref is None else _encode(codec.plain(ref.to_json()))
    return tuple(given.values())


def turn_from_row(row: Sequence[Any]) -> Turn | UnservedTurn:
    """The served or unserved turn of a row in the order of TURN_ROW_COLUMNS."""
    given: dict[str, Any] = dict(zip(TURN_COLUMNS, row[_FIRST:], strict=True))
    calls, unrun, ref = given["tool_calls"], given["tools_not_run"], given["context_ref"]
    given["tool_calls"] = () if calls is None else tuple(map(call_from_json, loads(calls)))
    given["tools_not_run"] = () if unrun is None else tuple(loads(unrun))
    given["context_ref"] = None if ref is None else o.ContextRef.from_json(loads(ref))
    given["stop_reason"] = _STOPS[given["stop_reason"]]
    given["ending"] = _ENDINGS[given["ending"]]
    for name in _BOOLS:
        given[name] = bool(given[name])
    if given["input_includes_cached"] is not None:
        given["input_includes_cached"] = bool(given["input_includes_cached"])
    turn = Turn(**given)
    if row[1]:
        return turn
    return UnservedTurn(turn=turn, outcome=row[2], error=loads(row[3]))


_STOPS: Final[Mapping[str, StopReason]] = {s.value: s for s in StopReason}
_ENDINGS: Final[Mapping[str | None, Ending | None]] = {None: None, **{e.value: e for e in Ending}}

EXECUTION_COLUMNS: Final = (
    "id, session_id, run_id, turn, call_id, tool_name, arguments, status, result, is_error,"
    " duration_s, created_at, images"
)
_EXECUTION_NAMES: Final = tuple(name.strip() for name in EXECUTION_COLUMNS.split(","))


def execution_to_row(row: ToolExecution) -> tuple[Any, ...]:
    images = _encode([asdict(image) for image in row.images]) if row.images else None
    return (*(getattr(row, name) for name in _EXECUTION_NAMES[:-1]), images)


def execution_from_row(row: Sequence[Any]) -> ToolExecution:
    data: dict[str, Any] = dict(zip(_EXECUTION_NAMES, row, strict=True))
    data["is_error"] = bool(data["is_error"])
    data["images"] = tuple(ImagePart(**one) for one in loads(data["images"] or "[]"))
    return ToolExecution(**data)


SNAPSHOT_COLUMNS: Final = "run_id, session_id, state, seq, pending, data, timestamp"


def snapshot_to_row(snapshot: Snapshot) -> tuple[Any, ...]:
    return (
        snapshot.run_id,
        snapshot.session_id,
        snapshot.state,
        snapshot.seq,
        _encode([m.to_json() for m in snapshot.pending]),
        _encode(dict(snapshot.data)),
        snapshot.timestamp,
    )


def snapshot_from_row(row: Sequence[Any]) -> Snapshot:
    return Snapshot(
        run_id=row[0],
        session_id=row[1],
        state=row[2],
        seq=row[3],
        pending=tuple(Message.from_json(m) for m in loads(row[4])),
        data=loads(row[5]),
        timestamp=row[6],
    )
