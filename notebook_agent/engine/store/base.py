"""SessionStore and RunStore: what the runtime writes, and in which transactions.

Methods are synchronous and short; a store that meets another writer raises
:class:`StoreBusy` at once and the runtime waits (cancel-aware) and tries again. Every other
failure is a :class:`~notebook_agent.errors.StoreError`: fail-stop, nothing half-written (B74).

Source: Turn FSM, "Persisting" (B56-B62, B72-B77).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from notebook_agent.core.agent_events import AgentEvent
from notebook_agent.core.messages import Message
from notebook_agent.core.run_state import RunState
from notebook_agent.core.session import Run, RunEventRecord, RunStatus, Turn, UnservedTurn
from notebook_agent.errors import StoreError

__all__ = [
    "Commit",
    "MessageRecord",
    "RunStore",
    "SessionRow",
    "SessionStore",
    "Snapshot",
    "Store",
    "StoreBusy",
    "ToolExecution",
]


class StoreBusy(StoreError):
    """Another process is writing; try again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    """One session. ``name`` is data, never a path (X06); times in seconds since the epoch."""

    id: str
    name: str
    created_at: float
    updated_at: float
    config: Mapping[str, Any] = field(default_factory=dict)
    run_count: int = 0
    message_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRecord:
    """One entry of the append-only log (B60).

    ``seq`` is given by the store: the log's order within the session, from 1. A message of a
    run that did not complete is in the log too (3.3 #9); ``kind`` tells entries apart:

    * ``message``: part of the conversation once its run has a ``commit`` marker;
    * ``commit``: the run's messages up to here are the conversation's (written by the last
      Persisting of a completed run);
    * ``summary`` and ``compaction``: B25's pair; the marker's ``meta`` lists ``kept_ids``;
    * ``undo``, ``reset``: markers of the two verbs; ``meta`` says which runs.
    """

    session_id: str
    run_id: str
    kind: str
    message: Message | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    created_at: float = 0.0
    seq: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolExecution:
    """One call of one tool (B53): ``status`` started, ok, error, timeout, cancelled, invalid,
    not_found, denied, interrupted. ``duration_s`` is the real one."""

    id: str
    session_id: str
    run_id: str
    turn: int
    call_id: str
    tool_name: str
    arguments: str
    status: str
    result: str = ""
    is_error: bool = False
    duration_s: float | None = None
    created_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Where a run stands, saved before each state's work, one per run (B72).

    ``pending`` are the run's messages that are not in the log yet; ``data`` is the runtime's
    own JSON (counters, usage, breaker, context ref, watermark). Kept on failure and cancel,
    deleted on success (B75).
    """

    run_id: str
    session_id: str
    state: str
    seq: int
    pending: tuple[Message, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    timestamp: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """All that one transition writes, in one transaction (B58).

    ``snapshot`` None with ``drop_snapshot`` True deletes the run's snapshot (success).
    """

    run_id: str
    session_id: str
    record: RunEventRecord
    snapshot: Snapshot | None = None
    drop_snapshot: bool = False
    messages: Sequence[MessageRecord] = ()
    turn: Turn | None = None
    unserved: UnservedTurn | None = None
    run: Run | None = None  # finalize: end, status, stop_reason, output, error


class SessionStore(Protocol):
    """Sessions and their append-only message log (B60)."""

    def create_session(self, row: SessionRow) -> None: ...
    def get_session(self, session_id: str) -> SessionRow | None: ...
    def find_session(self, name: str) -> SessionRow | None:
        """The newest session of that name (NFC)."""
        ...

    def list_sessions(self) -> list[SessionRow]: ...
    def update_session(self, session_id: str, *, config: Mapping[str, Any], at: float) -> None: ...
    def rename_session(self, session_id: str, name: str) -> None: ...
    def delete_session(self, session_id: str) -> None:
        """The session with its messages, runs, records, executions, snapshots."""
        ...

    def append_messages(self, records: Sequence[MessageRecord]) -> int:
        """Append in one transaction; returns the log's last ``seq``."""
        ...

    def list_messages(self, session_id: str, *, after: int = 0) -> list[MessageRecord]: ...


class RunStore(Protocol):
    """Runs, their records, projection, tool executions and snapshots (B61)."""

    def create_run(self, session_id: str, run: Run) -> None: ...
    def commit(self, commit: Commit) -> None:
        """One transaction; the projection is updated in it (B61)."""
        ...

    def append_events(self, run_id: str, events: Sequence[AgentEvent]) -> None:
        """The turn's other events (B57); may come after the records."""
        ...

    def start_tool(self, execution: ToolExecution) -> None:
        """The ``started`` row, durable before the tool is dispatched (B75)."""
        ...

    def finish_tool(self, execution: ToolExecution) -> None: ...
    def tool_executions(self, run_id: str) -> list[ToolExecution]: ...
    def save_snapshot(self, snapshot: Snapshot) -> None: ...
    def get_snapshot(self, run_id: str) -> Snapshot | None: ...
    def list_snapshots(self, session_id: str | None = None) -> list[Snapshot]: ...
    def delete_snapshot(self, run_id: str) -> None: ...
    def get_run(self, run_id: str) -> Run | None:
        """The run with its turns and unserved turns."""
        ...

    def list_runs(self, session_id: str) -> list[Run]:
        """All runs of a session with their turns, oldest first."""
        ...

    def records(self, run_id: str) -> list[RunEventRecord]: ...
    def events(self, run_id: str) -> list[AgentEvent]: ...
    def state(self, run_id: str) -> RunState:
        """The stored projection."""
        ...

    def set_status(self, run_id: str, status: RunStatus) -> None: ...


class Store(SessionStore, RunStore, Protocol):
    """Both, on one medium."""

    @property
    def location(self) -> str:
        """Where things are kept: "memory" or a path."""
        ...

    def close(self) -> None: ...
