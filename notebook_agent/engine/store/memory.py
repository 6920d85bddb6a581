"""MemoryStore: the stores' rules without a medium; gone with the process.

Source: Turn FSM, "Persisting" (B56-B62).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from notebook_agent.core.agent_events import AgentEvent, event_from_json, event_to_json
from notebook_agent.core.response import Usage
from notebook_agent.core.run_state import RunState
from notebook_agent.core.session import Run, RunEventRecord, RunStatus, Turn, UnservedTurn
from notebook_agent.core.text import clean_text
from notebook_agent.engine.store import codec
from notebook_agent.engine.store.base import (
    Commit,
    MessageRecord,
    SessionRow,
    Snapshot,
    ToolExecution,
)
from notebook_agent.engine.store.names import session_name
from notebook_agent.engine.store.search import ascii_lower, holds

__all__ = ["MemoryStore"]


@dataclass(slots=True)
class _SessionBox:
    row: SessionRow
    log: list[MessageRecord] = field(default_factory=list)
    runs: dict[str, None] = field(default_factory=dict)  # ordered set of ids


@dataclass(slots=True)
class _RunBox:
    session_id: str
    run: Run  # without its turns
    turns: list[Turn] = field(default_factory=list)
    served: set[int] = field(default_factory=set)
    unserved: list[UnservedTurn] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)  # JSON: nothing else is kept alive
    state: RunState = RunState()  # noqa: RUF009  # frozen: one for all is right
    events: list[dict[str, Any]] = field(default_factory=list)
    executions: dict[str, ToolExecution] = field(default_factory=dict)
    snapshot: Snapshot | None = None


class MemoryStore:
    """Keeps everything in this process. See :class:`~notebook_agent.engine.store.base.Store`."""

    location = "memory"

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._sessions: dict[str, _SessionBox] = {}
        self._runs: dict[str, _RunBox] = {}
        self._search: list[tuple[str, int]] = []  # (session, seq) of messages, oldest first

    def close(self) -> None:
        """Nothing to let go of."""

    # -- sessions ---------------------------------------------------------------------------

    def create_session(self, row: SessionRow) -> None:
        with self._lock:
            key = clean_text(row.id)
            name = session_name(row.name)
            if key in self._sessions:
                raise codec.taken("session", key)
            self._sessions[key] = _SessionBox(
                replace(
                    row, id=key, name=name, config=codec.plain(row.config),
                    run_count=0, message_count=0, usage=None,
                )
            )  # fmt: skip

    def claim_session(self, row: SessionRow) -> SessionRow:
        with self._lock:
            if self.find_session(row.name) is None:
                self.create_session(row)
            found = self.find_session(row.name)
        assert found is not None
        return found

    def get_session(self, session_id: str) -> SessionRow | None:
        with self._lock:
            box = self._sessions.get(clean_text(session_id))
            return None if box is None else _copy_row(box)

    def find_session(self, name: str) -> SessionRow | None:
        wanted = session_name(name)
        found = [row for row in self.list_sessions() if row.name == wanted]
        return found[-1] if found else None

    def list_sessions(self) -> list[SessionRow]:
        with self._lock:
            rows = [_copy_row(box) for box in self._sessions.values()]
        return sorted(rows, key=lambda row: row.created_at)  # stable: ties as created

    def update_session(self, session_id: str, *, config: Mapping[str, Any], at: float) -> None:
        with self._lock:
            box = self._session(session_id)
            box.row = replace(box.row, config=codec.plain(config), updated_at=at)

    def rename_session(self, session_id: str, name: str) -> None:
        kept = session_name(name)
        with self._lock:
            box = self._session(session_id)
            box.row = replace(box.row, name=kept)

    def update_usage(self, session_id: str, usage: Usage) -> None:
        with self._lock:
            _add_usage(self._session(session_id), usage)

    def delete_session(self, session_id: str) -> None:
        with self._lock:
            box = self._session(session_id)
            for run_id in box.runs:
                del self._runs[run_id]
            del self._sessions[box.row.id]
            self._search = [entry for entry in self._search if entry[0] != box.row.id]

    def append_messages(self, records: Sequence[MessageRecord]) -> int:
        with self._lock:
            return self._append([(self._session(r.session_id), r) for r in records])

    def list_messages(self, session_id: str, *, after: int = 0) -> list[MessageRecord]:
        with self._lock:
            return [_copy_entry(r) for r in self._session(session_id).log[max(after, 0) :]]

    def latest_compaction(
        self, session_id: str
    ) -> tuple[MessageRecord, MessageRecord | None] | None:
        with self._lock:
            log = self._session(session_id).log
            for position in range(len(log) - 1, -1, -1):
                if log[position].kind == "compaction":
                    rest = log[position + 1 : position + 2]
                    summary = rest[0] if rest and rest[0].kind == "summary" else None
                    marker = _copy_entry(log[position])
                    return marker, None if summary is None else _copy_entry(summary)
            return None

    def search(
        self, text: str, *, session_id: str | None = None, limit: int = 100
    ) -> list[MessageRecord]:
        wanted = ascii_lower(clean_text(text))
        if not wanted:
            return []
        only = None if session_id is None else clean_text(session_id)
        found: list[MessageRecord] = []
        with self._lock:
            for key, seq in reversed(self._search):
                if len(found) >= limit:
                    break
                if only is not None and key != only:
                    continue
                record = self._sessions[key].log[seq - 1]
                if record.message is not None and holds(record.message, wanted):
                    found.append(_copy_entry(record))
        return found

    # -- runs -------------------------------------------------------------------------------

    def create_run(self, session_id: str, run: Run) -> None:
        with self._lock:
            self._add_run(self._session(session_id), run)

    def commit(self, commit: Commit) -> None:
        with self._lock:
            box = self._run(commit.run_id)
            session = self._session(commit.session_id)
            record = commit.record
            expected = len(box.records)
            if record.sequence != expected or record.run_id != commit.run_id:
                raise codec.out_of_sequence(commit.run_id, expected, record.sequence)
            # All that can fail comes first: nothing is half-written.
            body = codec.plain(record.to_json())
            messages = [
                (self._session(r.session_id), codec.clean_record(r)) for r in commit.messages
            ]
            snapshot = None if commit.snapshot is None else codec.clean_snapshot(commit.snapshot)
            turn = None if commit.turn is None else codec.clean_turn(commit.turn)
            unserved = None if commit.unserved is None else codec.clean_unserved(commit.unserved)
            run = None if commit.run is None else codec.clean_run(commit.run)
            if turn is not None and turn.turn in box.served:
                raise codec.taken("turn", f"{commit.run_id}/{turn.turn}")
            state = codec.advance(box.state, record)
            usage = codec.reported_usage((record,))

            box.records.append(body)
            box.state = state
            self._append(messages)
            if snapshot is not None:
                box.snapshot = snapshot
            elif commit.drop_snapshot:
                box.snapshot = None
            if turn is not None:
                box.turns.append(turn)
                box.served.add(turn.turn)
            if unserved is not None:
                box.unserved.append(unserved)
            if run is not None:
                box.run = run
            if usage is not None:
                _add_usage(session, usage)
            _touch(session, record.timestamp)

    def append_events(self, run_id: str, events: Sequence[AgentEvent]) -> None:
        with self._lock:
            self._run(run_id).events += [codec.plain(event_to_json(e)) for e in events]

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
        with self._lock:
            session = self._session(session_id)
            if clean_text(run.id) in self._runs:
                raise codec.taken("run", run.id)
            box = _RunBox(session.row.id, codec.clean_run(run))
            box.turns = [codec.clean_turn(t) for t in run.turns]
            box.served = {t.turn for t in run.turns}
            box.unserved = [codec.clean_unserved(u) for u in run.unserved]
            for expected, record in enumerate(records):
                if record.sequence != expected:
                    raise codec.out_of_sequence(run.id, expected, record.sequence)
                box.records.append(codec.plain(record.to_json()))
                box.state = codec.advance(box.state, record)
            box.executions = {x.id: codec.clean_execution(x) for x in executions}
            box.events = [codec.plain(event_to_json(e)) for e in events]
            entries = [
                (session, codec.clean_record(replace(m, session_id=session_id))) for m in messages
            ]
            self._runs[box.run.id] = box
            session.runs[box.run.id] = None
            self._append(entries)
            usage = codec.reported_usage(tuple(records))
            if usage is not None:
                _add_usage(session, usage)

    def delete_run(self, run_id: str) -> None:
        with self._lock:
            box = self._run(run_id)
            del self._sessions[box.session_id].runs[box.run.id]
            del self._runs[box.run.id]

    def start_tool(self, execution: ToolExecution) -> None:
        self.finish_tool(execution)

    def finish_tool(self, execution: ToolExecution) -> None:
        with self._lock:
            row = codec.clean_execution(execution)
            self._run(row.run_id).executions[row.id] = row

    def tool_executions(self, run_id: str) -> list[ToolExecution]:
        with self._lock:
            return list(self._run(run_id).executions.values())

    def save_snapshot(self, snapshot: Snapshot) -> None:
        with self._lock:
            self._run(snapshot.run_id).snapshot = codec.clean_snapshot(snapshot)

    def get_snapshot(self, run_id: str) -> Snapshot | None:
        with self._lock:
            box = self._runs.get(clean_text(run_id))
            kept = None if box is None else box.snapshot
            return None if kept is None else replace(kept, data=codec.plain(kept.data))

    def list_snapshots(self, session_id: str | None = None) -> list[Snapshot]:
        with self._lock:
            only = None if session_id is None else clean_text(session_id)
            kept = [
                replace(b.snapshot, data=codec.plain(b.snapshot.data))
                for b in self._runs.values()
                if b.snapshot is not None and only in (None, b.session_id)
            ]
        return sorted(kept, key=lambda s: s.timestamp)

    def delete_snapshot(self, run_id: str) -> None:
        with self._lock:
            box = self._runs.get(clean_text(run_id))
            if box is not None:
                box.snapshot = None

    def get_run(self, run_id: str) -> Run | None:
        with self._lock:
            box = self._runs.get(clean_text(run_id))
            return None if box is None else _whole_run(box)

    def list_runs(self, session_id: str) -> list[Run]:
        with self._lock:
            return [_whole_run(self._runs[key]) for key in self._session(session_id).runs]

    def unfinished_runs(self, session_id: str | None = None) -> list[tuple[str, str, float]]:
        with self._lock:
            only = None if session_id is None else clean_text(session_id)
            return [
                (key, box.session_id, box.run.start)
                for key, box in self._runs.items()
                if only in (None, box.session_id) and not box.run.status.terminal
            ]

    def records(self, run_id: str) -> list[RunEventRecord]:
        with self._lock:
            return [RunEventRecord.from_json(codec.plain(r)) for r in self._run(run_id).records]

    def events(self, run_id: str) -> list[AgentEvent]:
        with self._lock:
            box = self._run(run_id)
            of_records = [e for r in box.records for e in r["events"]]
            return codec.in_order(
                event_from_json(codec.plain(e)) for e in [*of_records, *box.events]
            )

    def state(self, run_id: str) -> RunState:
        with self._lock:
            return self._run(run_id).state

    def set_status(self, run_id: str, status: RunStatus) -> None:
        with self._lock:
            box = self._run(run_id)
            box.run = replace(box.run, status=status)

    # -- inside -----------------------------------------------------------------------------

    def _session(self, session_id: str) -> _SessionBox:
        box = self._sessions.get(clean_text(session_id))
        if box is None:
            raise codec.no_session(session_id)
        return box

    def _run(self, run_id: str) -> _RunBox:
        box = self._runs.get(clean_text(run_id))
        if box is None:
            raise codec.no_run(run_id)
        return box

    def _add_run(self, session: _SessionBox, run: Run) -> None:
        kept = codec.clean_run(run)
        if kept.id in self._runs:
            raise codec.taken("run", kept.id)
        self._runs[kept.id] = _RunBox(session.row.id, kept)
        session.runs[kept.id] = None
        _touch(session, kept.start)

    def _append(self, entries: Iterable[tuple[_SessionBox, MessageRecord]]) -> int:
        cleaned = [(box, codec.clean_record(r)) for box, r in entries]
        seq = 0
        for box, record in cleaned:
            seq = len(box.log) + 1
            box.log.append(replace(record, session_id=box.row.id, seq=seq))
            self._search.append((box.row.id, seq))
            _touch(box, record.created_at)
        return seq


def _copy_row(box: _SessionBox) -> SessionRow:
    messages = sum(1 for r in box.log if r.kind == "message")
    return replace(
        box.row,
        config=codec.plain(box.row.config),
        run_count=len(box.runs),
        message_count=messages,
    )


def _copy_entry(record: MessageRecord) -> MessageRecord:
    return replace(record, meta=codec.plain(record.meta))


def _whole_run(box: _RunBox) -> Run:
    return replace(
        box.run,
        config=codec.plain(box.run.config),
        error=codec.plain(box.run.error),
        turns=list(box.turns),
        unserved=list(box.unserved),
    )


def _add_usage(box: _SessionBox, usage: Usage) -> None:
    before = box.row.usage
    box.row = replace(box.row, usage=usage if before is None else before.plus(usage))


def _touch(box: _SessionBox, at: float) -> None:
    if at > box.row.updated_at:
        box.row = replace(box.row, updated_at=at)
