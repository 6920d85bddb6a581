"""SqliteStore: the default store, one file, standard library only.

Every transition is one transaction (B58): a killed process leaves whole transitions behind and
nothing else. Files beside this one: ``sqlite_medium`` opens and guards the file, ``schema`` has
its tables, ``sqlite_rows`` turns rows into values, ``sqlite_sessions`` is the other half.

Source: Turn FSM, "Persisting" (B56-B62, B72-B75).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace

from notebook_agent.core.agent_events import AgentEvent, event_from_json, event_to_json
from notebook_agent.core.run_state import RunState
from notebook_agent.core.session import Run, RunEventRecord, RunStatus, Turn, UnservedTurn
from notebook_agent.core.text import clean_text
from notebook_agent.engine.store import codec
from notebook_agent.engine.store import sqlite_rows as rows
from notebook_agent.engine.store.base import Commit, MessageRecord, Snapshot, ToolExecution
from notebook_agent.engine.store.sqlite_sessions import (
    SessionTables,
    add_usage,
    append,
    session_key,
)

__all__ = ["SqliteStore"]


def _insert(table: str, columns: str) -> str:
    marks = ", ".join("?" * len(columns.split(",")))
    return f"INSERT INTO {table} ({columns}) VALUES ({marks})"  # noqa: S608  # our own names


_INSERT_TURN = _insert("turns", rows.TURN_ROW_COLUMNS)
_INSERT_RUN = _insert("runs", f"{rows.RUN_COLUMNS}, session_id, state")
_INSERT_RECORD = _insert("records", "run_id, sequence, body")
_INSERT_EVENT = _insert("events", "run_id, body")
_PUT_SNAPSHOT = _insert("snapshots", rows.SNAPSHOT_COLUMNS).replace("INSERT", "REPLACE", 1)
_PUT_EXECUTION = (
    _insert("executions", rows.EXECUTION_COLUMNS)
    + " ON CONFLICT (run_id, id) DO UPDATE SET "
    + ", ".join(
        f"{name} = excluded.{name}"
        for name in rows.EXECUTION_COLUMNS.replace(" ", "").split(",")
        if name not in ("id", "run_id")
    )
)
_RUN_SETS = ", ".join(f"{name} = ?" for name in rows.RUN_COLUMNS.split(", "))
_UPDATE_RUN = f"UPDATE runs SET {_RUN_SETS} WHERE id = ?"  # noqa: S608  # our own columns
_SELECT_RUNS = f"SELECT {rows.RUN_COLUMNS} FROM runs "  # noqa: S608  # our own columns
_SELECT_TURNS = f"SELECT {rows.TURN_ROW_COLUMNS} FROM turns "  # noqa: S608  # our own columns
_SELECT_SNAPSHOTS = f"SELECT {rows.SNAPSHOT_COLUMNS} FROM snapshots "  # noqa: S608  # our own columns
_LIST_SNAPSHOTS = (
    f"{_SELECT_SNAPSHOTS} WHERE ?1 IS NULL OR session_id = ?1 ORDER BY timestamp,"  # noqa: S608  # our own columns
    " (SELECT position FROM runs WHERE runs.id = run_id)"
)
_RUNNING = ", ".join(f"'{s.value}'" for s in RunStatus if not s.terminal)
_UNFINISHED = (
    f"SELECT id, session_id, started_at FROM runs WHERE status IN ({_RUNNING})"  # noqa: S608  # our own words
    " AND (?1 IS NULL OR session_id = ?1) ORDER BY position"
)
_SESSION_TURNS = (
    f"{_SELECT_TURNS} WHERE run_id IN (SELECT id FROM runs WHERE session_id = ?)"  # noqa: S608  # our own columns
    " ORDER BY position"
)
_SELECT_EXECUTIONS = f"SELECT {rows.EXECUTION_COLUMNS} FROM executions "  # noqa: S608  # our own


class SqliteStore(SessionTables):
    """A store in one SQLite file. See :class:`~notebook_agent.engine.store.base.Store`.

    Args:
        path: The file; made at once, mode 0600, when it is not there.
        busy_s: Seconds a call waits for another kernel before StoreBusy.

    Raises:
        StoreBusy: Another kernel held the file for too long.
        StoreError: The file is newer, foreign, damaged, or cannot be written.

    Example:
        >>> import tempfile, pathlib
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = SqliteStore(pathlib.Path(folder) / "sessions.db")
        ...     sessions = store.list_sessions()
        ...     store.close()
        >>> sessions
        []

    Source: Turn FSM, "Persisting" (B56-B62).
    """

    def create_run(self, session_id: str, run: Run) -> None:
        kept = codec.clean_run(run)
        with self.writing() as db:
            _add_run(db, session_key(db, session_id), kept, RunState(), 0)

    def commit(self, commit: Commit) -> None:
        record = commit.record
        body = rows.dumps(codec.plain(record.to_json()))
        messages = [codec.clean_record(r) for r in commit.messages]
        usage = codec.reported_usage((record,))
        with self.writing() as db:
            run_id, expected, state = _run_row(db, commit.run_id)
            session = session_key(db, commit.session_id)
            if record.sequence != expected or record.run_id != commit.run_id:
                raise codec.out_of_sequence(commit.run_id, expected, record.sequence)
            db.execute(_INSERT_RECORD, (run_id, record.sequence, body))
            state = codec.advance(state, record)
            db.execute(
                "UPDATE runs SET state = ?, next_sequence = ? WHERE id = ?",
                (rows.dumps(state.to_json()), expected + 1, run_id),
            )
            append(db, messages)
            if commit.snapshot is not None:
                snapshot = codec.clean_snapshot(commit.snapshot)
                db.execute(_PUT_SNAPSHOT, rows.snapshot_to_row(snapshot))
            elif commit.drop_snapshot:
                db.execute("DELETE FROM snapshots WHERE run_id = ?", (run_id,))
            if commit.turn is not None:
                _add_turn(db, run_id, commit.turn)
            if commit.unserved is not None:
                unserved = codec.clean_unserved(commit.unserved)
                db.execute(_INSERT_TURN, rows.unserved_to_row(run_id, unserved))
            if commit.run is not None:
                db.execute(_UPDATE_RUN, (*rows.run_to_row(codec.clean_run(commit.run)), run_id))
            if usage is not None:
                add_usage(db, session, usage)
            db.execute(
                "UPDATE sessions SET updated_at = ?1 WHERE id = ?2 AND updated_at < ?1",
                (record.timestamp, session),
            )

    def append_events(self, run_id: str, events: Sequence[AgentEvent]) -> None:
        bodies = [rows.dumps(codec.plain(event_to_json(e))) for e in events]
        with self.writing() as db:
            key = _run_row(db, run_id)[0]
            db.executemany(_INSERT_EVENT, [(key, body) for body in bodies])

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
        kept = codec.clean_run(run)
        state = RunState()
        for expected, record in enumerate(records):
            if record.sequence != expected:
                raise codec.out_of_sequence(run.id, expected, record.sequence)
            state = codec.advance(state, record)
        usage = codec.reported_usage(tuple(records))
        with self.writing() as db:
            session = session_key(db, session_id)
            _add_run(db, session, kept, state, len(records))
            for turn in run.turns:
                _add_turn(db, kept.id, turn)
            for unserved in run.unserved:
                row = rows.unserved_to_row(kept.id, codec.clean_unserved(unserved))
                db.execute(_INSERT_TURN, row)
            for record in records:
                body = rows.dumps(codec.plain(record.to_json()))
                db.execute(_INSERT_RECORD, (kept.id, record.sequence, body))
            for execution in executions:
                row = rows.execution_to_row(codec.clean_execution(execution))
                db.execute(_PUT_EXECUTION, row)
            for event in events:
                body = rows.dumps(codec.plain(event_to_json(event)))
                db.execute(_INSERT_EVENT, (kept.id, body))
            append(db, [codec.clean_record(replace(m, session_id=session)) for m in messages])
            if usage is not None:
                add_usage(db, session, usage)

    def delete_run(self, run_id: str) -> None:
        with self.writing() as db:
            key = _run_row(db, run_id)[0]
            db.execute(
                "UPDATE sessions SET run_count = run_count - 1"
                " WHERE id = (SELECT session_id FROM runs WHERE id = ?)",
                (key,),
            )
            db.execute("DELETE FROM runs WHERE id = ?", (key,))

    def start_tool(self, execution: ToolExecution) -> None:
        self.finish_tool(execution)

    def finish_tool(self, execution: ToolExecution) -> None:
        row = codec.clean_execution(execution)
        with self.writing() as db:
            _run_row(db, row.run_id)
            db.execute(_PUT_EXECUTION, rows.execution_to_row(row))

    def tool_executions(self, run_id: str) -> list[ToolExecution]:
        with self.reading() as db:
            key = _run_row(db, run_id)[0]
            found = db.execute(
                _SELECT_EXECUTIONS + "WHERE run_id = ? ORDER BY position", (key,)
            ).fetchall()
        return [rows.execution_from_row(row) for row in found]

    def save_snapshot(self, snapshot: Snapshot) -> None:
        kept = codec.clean_snapshot(snapshot)
        with self.writing() as db:
            _run_row(db, snapshot.run_id)
            db.execute(_PUT_SNAPSHOT, rows.snapshot_to_row(kept))

    def get_snapshot(self, run_id: str) -> Snapshot | None:
        with self.reading() as db:
            row = db.execute(
                _SELECT_SNAPSHOTS + "WHERE run_id = ?", (clean_text(run_id),)
            ).fetchone()
        return None if row is None else rows.snapshot_from_row(row)

    def list_snapshots(self, session_id: str | None = None) -> list[Snapshot]:
        only = None if session_id is None else clean_text(session_id)
        with self.reading() as db:
            found = db.execute(_LIST_SNAPSHOTS, (only,)).fetchall()
        return [rows.snapshot_from_row(row) for row in found]

    def unfinished_runs(self, session_id: str | None = None) -> list[tuple[str, str, float]]:
        only = None if session_id is None else clean_text(session_id)
        with self.reading() as db:
            return db.execute(_UNFINISHED, (only,)).fetchall()

    def delete_snapshot(self, run_id: str) -> None:
        with self.writing() as db:
            db.execute("DELETE FROM snapshots WHERE run_id = ?", (clean_text(run_id),))

    def get_run(self, run_id: str) -> Run | None:
        key = clean_text(run_id)
        with self.reading() as db:
            row = db.execute(_SELECT_RUNS + "WHERE id = ?", (key,)).fetchone()
            turns = db.execute(
                _SELECT_TURNS + "WHERE run_id = ? ORDER BY position", (key,)
            ).fetchall()
        return None if row is None else _with_turns([rows.run_from_row(row)], turns)[0]

    def list_runs(self, session_id: str) -> list[Run]:
        with self.reading() as db:
            key = session_key(db, session_id)
            found = db.execute(
                _SELECT_RUNS + "WHERE session_id = ? ORDER BY position", (key,)
            ).fetchall()
            turns = db.execute(_SESSION_TURNS, (key,)).fetchall()
        return _with_turns([rows.run_from_row(row) for row in found], turns)

    def records(self, run_id: str) -> list[RunEventRecord]:
        with self.reading() as db:
            key = _run_row(db, run_id)[0]
            found = db.execute(
                "SELECT body FROM records WHERE run_id = ? ORDER BY sequence", (key,)
            ).fetchall()
        return [RunEventRecord.from_json(rows.loads(row[0])) for row in found]

    def events(self, run_id: str) -> list[AgentEvent]:
        with self.reading() as db:
            key = _run_row(db, run_id)[0]
            of_records = db.execute(
                "SELECT body FROM records WHERE run_id = ? ORDER BY sequence", (key,)
            ).fetchall()
            others = db.execute(
                "SELECT body FROM events WHERE run_id = ? ORDER BY position", (key,)
            ).fetchall()
        found = [e for row in of_records for e in rows.loads(row[0])["events"]]
        found += [rows.loads(row[0]) for row in others]
        return codec.in_order(map(event_from_json, found))

    def state(self, run_id: str) -> RunState:
        with self.reading() as db:
            return _run_row(db, run_id)[2]

    def set_status(self, run_id: str, status: RunStatus) -> None:
        with self.writing() as db:
            key = _run_row(db, run_id)[0]
            db.execute("UPDATE runs SET status = ? WHERE id = ?", (status.value, key))


def _run_row(db: sqlite3.Connection, run_id: str) -> tuple[str, int, RunState]:
    """The run's id as stored, its next sequence number, its projection.

    Raises:
        StoreError: There is no such run.
    """
    key = clean_text(run_id)
    row = db.execute("SELECT next_sequence, state FROM runs WHERE id = ?", (key,)).fetchone()
    if row is None:
        raise codec.no_run(run_id)
    return key, row[0], RunState.from_json(rows.loads(row[1]))


def _add_run(
    db: sqlite3.Connection, session: str, run: Run, state: RunState, next_sequence: int
) -> None:
    if db.execute("SELECT 1 FROM runs WHERE id = ?", (run.id,)).fetchone():
        raise codec.taken("run", run.id)
    db.execute(_INSERT_RUN, (*rows.run_to_row(run), session, rows.dumps(state.to_json())))
    db.execute("UPDATE runs SET next_sequence = ? WHERE id = ?", (next_sequence, run.id))
    db.execute(
        "UPDATE sessions SET run_count = run_count + 1, updated_at = max(updated_at, ?)"
        " WHERE id = ?",
        (run.start, session),
    )


def _add_turn(db: sqlite3.Connection, run_id: str, turn: Turn) -> None:
    try:
        db.execute(_INSERT_TURN, rows.turn_to_row(run_id, codec.clean_turn(turn)))
    except sqlite3.IntegrityError as problem:
        raise codec.taken("turn", f"{run_id}/{turn.turn}") from problem


def _with_turns(runs: list[Run], turns: list[tuple[object, ...]]) -> list[Run]:
    by_id = {run.id: run for run in runs}
    for row in turns:
        run = by_id[str(row[0])]
        one = rows.turn_from_row(row)
        if isinstance(one, UnservedTurn):
            run.unserved.append(one)
        else:
            run.turns.append(one)
    return runs
