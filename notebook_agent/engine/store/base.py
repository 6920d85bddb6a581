"""SessionStore and RunStore: what the runtime writes, and in which transactions.

Methods are synchronous and short; a store that meets another writer raises
:class:`StoreBusy` at once and the runtime waits (cancel-aware) and tries again. Every other
failure is a :class:`~notebook_agent.errors.StoreError`: fail-stop, nothing half-written (B74).

Rules of every store, tested over all of them with one suite:

* Text is cleaned once more on the way in (D9): a lone surrogate or NUL is U+FFFD everywhere.
* Mappings (config, meta, data) must be JSON; they come back as JSON: tuples as lists.
* What comes back is a copy; a record's ``context`` and message parts stay behind (B58).
* A name or id is data, bound, never a path or SQL (X06, X07).
* Methods may be called from any thread.

Source: Turn FSM, "Persisting" (B56-B62, B72-B77).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from notebook_agent.core.agent_events import AgentEvent
from notebook_agent.core.messages import ImagePart, Message
from notebook_agent.core.response import Usage
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
    """Another process is writing; nothing was written, try again."""

    def to_json(self) -> dict[str, Any]:
        """A StoreError in records."""
        return {**super().to_json(), "error": StoreError.__name__}


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    """One session. ``name`` is data, never a path (X06); times in seconds since the epoch.

    The counts and ``usage`` (reported tokens of all runs, None when none was reported) are the
    store's own: what is given on creation is ignored.
    """

    id: str
    name: str
    created_at: float
    updated_at: float
    config: Mapping[str, Any] = field(default_factory=dict)
    run_count: int = 0
    message_count: int = 0
    usage: Usage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRecord:
    """One entry of the append-only log (B60).

    ``seq`` is given by the store: the log's order within the session, from 1. A message of a
    run that did not complete is in the log too (3.3 #9); ``kind`` tells entries apart:

    * ``message``: part of the conversation once its run has a ``commit`` marker;
    * ``commit``: the run's messages up to here are the conversation's (written by the last
      Persisting of a completed run);
    * ``compaction`` and ``summary``: B25's pair, written together, marker first.
      ``meta["kept_ids"]`` of the marker lists the ids of the messages that stay, in order, and
      ``meta["summary_id"]`` the id of the summary's message, None when there is none
      (``truncate``). The marker is a commit point (L96): messages of the run in progress that
      it keeps must be in the log before it, and need no ``commit``;
    * ``undo``: ``meta["run_ids"]`` are the runs that leave the conversation, with the
      compactions they made;
    * ``reset``: the conversation starts anew; ``meta["hard"]`` says which kind it was.

    ``core.log_view.conversation`` reads the log by these rules.
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
    not_found, denied, interrupted. ``duration_s`` is the real one; ``images`` are the result's,
    so that a result that is used again on resume has its pictures."""

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
    images: tuple[ImagePart, ...] = ()


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

    ``record.sequence`` must be the run's next one, else StoreError and nothing is written.
    ``snapshot`` None with ``drop_snapshot`` True deletes the run's snapshot (success); None
    without it leaves the snapshot as it is (failure, cancel). ``run`` sets all of the run's
    fields but its turns.
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

    def create_session(self, row: SessionRow) -> None:
        """A new session; its name must pass ``names.session_name``.

        Raises:
            ConfigError: The name is empty or too long.
            StoreError: The id is taken.
        """
        ...

    def claim_session(self, row: SessionRow) -> SessionRow:
        """The newest session of the row's name; the row itself, created, when there is none. One
        transaction: of two kernels that ask for a new name at once, one creates it.

        Raises:
            ConfigError: The name is empty or too long.
            StoreError: The id is taken.
        """
        ...

    def get_session(self, session_id: str) -> SessionRow | None: ...
    def find_session(self, name: str) -> SessionRow | None:
        """The session of that name (NFC) that was created last."""
        ...

    def list_sessions(self) -> list[SessionRow]:
        """All sessions, oldest first."""
        ...

    def update_session(self, session_id: str, *, config: Mapping[str, Any], at: float) -> None: ...
    def rename_session(self, session_id: str, name: str) -> None: ...
    def update_usage(self, session_id: str, usage: Usage) -> None:
        """Add tokens spent outside a run; ``commit`` adds those of UsageRecorded itself."""
        ...

    def delete_session(self, session_id: str) -> None:
        """The session with its messages, runs, records, executions, snapshots."""
        ...

    def append_messages(self, records: Sequence[MessageRecord]) -> int:
        """Append in one transaction; returns the log's last ``seq`` (0 for no records)."""
        ...

    def list_messages(self, session_id: str, *, after: int = 0) -> list[MessageRecord]: ...
    def latest_compaction(
        self, session_id: str
    ) -> tuple[MessageRecord, MessageRecord | None] | None:
        """The last compaction marker and its summary, None when there was none (B60)."""
        ...

    def search(
        self, text: str, *, session_id: str | None = None, limit: int = 100
    ) -> list[MessageRecord]:
        """Messages whose text or tool output holds ``text`` literally (``%`` and ``_`` too),
        ASCII letters in either case; newest first, at most ``limit`` (X07)."""
        ...


class RunStore(Protocol):
    """Runs, their records, projection, tool executions and snapshots (B61)."""

    def create_run(self, session_id: str, run: Run) -> None: ...
    def commit(self, commit: Commit) -> None:
        """One transaction; the projection is updated in it (B61)."""
        ...

    def append_events(self, run_id: str, events: Sequence[AgentEvent]) -> None:
        """The turn's other events (B57), those that no record carries; may come after the
        records."""
        ...

    def import_run(
        self,
        session_id: str,
        run: Run,
        *,
        records: Sequence[RunEventRecord] = (),
        messages: Sequence[MessageRecord] = (),
        executions: Sequence[ToolExecution] = (),
        events: Sequence[AgentEvent] = (),
    ) -> None:
        """A whole run from elsewhere, with its turns, in one transaction; the projection is
        folded from the records."""
        ...

    def delete_run(self, run_id: str) -> None:
        """The run with all that hangs on it; its messages stay in the log."""
        ...

    def start_tool(self, execution: ToolExecution) -> None:
        """The ``started`` row, durable before the tool is dispatched (B75)."""
        ...

    def finish_tool(self, execution: ToolExecution) -> None:
        """Replaces the ``started`` row of the same id; inserts when the call never started."""
        ...

    def tool_executions(self, run_id: str) -> list[ToolExecution]:
        """In the order in which they were first written."""
        ...

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

    def unfinished_runs(self, session_id: str | None = None) -> list[tuple[str, str, float]]:
        """``(run id, session id, start in seconds)`` of runs that did not end, as begun."""
        ...

    def records(self, run_id: str) -> list[RunEventRecord]: ...
    def events(self, run_id: str) -> list[AgentEvent]:
        """Those of the records and the others, by ``order`` where each has its own, else by
        ``timestamp``; ties keep the order of writing, and the terminal event is last."""
        ...

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
