"""Sessions and their message log in SQLite.

Source: Turn FSM, "Persisting" (B60). Cases X06, X07.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from notebook_agent.core.response import Usage
from notebook_agent.core.text import clean_text
from notebook_agent.engine.store import codec
from notebook_agent.engine.store import sqlite_rows as rows
from notebook_agent.engine.store.base import MessageRecord, SessionRow
from notebook_agent.engine.store.names import session_name
from notebook_agent.engine.store.sqlite_medium import Medium

__all__ = ["SessionTables"]

_SELECT_SESSION = f"SELECT {rows.SESSION_COLUMNS} FROM sessions "  # noqa: S608  # our own columns
_NEWEST_NAMED = _SELECT_SESSION + "WHERE name = ? ORDER BY created_at DESC, position DESC LIMIT 1"
_SELECT_MESSAGE = f"SELECT {rows.MESSAGE_COLUMNS} FROM messages "  # noqa: S608  # our own columns

# instr, not LIKE: it has no wildcards, so '%' and '_' are found as they are (X07)
_SEARCH = (
    f"{_SELECT_MESSAGE} WHERE body IS NOT NULL AND (?1 IS NULL OR session_id = ?1)"  # noqa: S608  # our own columns
    " AND EXISTS (SELECT 1 FROM json_each(body, '$.parts') part WHERE"
    " instr(lower(coalesce(json_extract(part.value, '$.text'), '')), lower(?2)) > 0 OR"
    " instr(lower(coalesce(json_extract(part.value, '$.output'), '')), lower(?2)) > 0)"
    " ORDER BY position DESC LIMIT ?3"
)


class SessionTables(Medium):
    """The half of the store that a :class:`~notebook_agent.engine.store.base.SessionStore` is."""

    def create_session(self, row: SessionRow) -> None:
        with self.writing() as db:
            _insert(db, row)

    def claim_session(self, row: SessionRow) -> SessionRow:
        name = session_name(row.name)
        with self.writing() as db:
            found = db.execute(_NEWEST_NAMED, (name,)).fetchone()
            if found is None:
                _insert(db, row)
                found = db.execute(_NEWEST_NAMED, (name,)).fetchone()
        return rows.session_from_row(found)

    def get_session(self, session_id: str) -> SessionRow | None:
        with self.reading() as db:
            row = db.execute(_SELECT_SESSION + "WHERE id = ?", (clean_text(session_id),)).fetchone()
        return None if row is None else rows.session_from_row(row)

    def find_session(self, name: str) -> SessionRow | None:
        with self.reading() as db:
            row = db.execute(_NEWEST_NAMED, (session_name(name),)).fetchone()
        return None if row is None else rows.session_from_row(row)

    def list_sessions(self) -> list[SessionRow]:
        with self.reading() as db:
            found = db.execute(_SELECT_SESSION + "ORDER BY created_at, position").fetchall()
        return [rows.session_from_row(row) for row in found]

    def update_session(self, session_id: str, *, config: Mapping[str, Any], at: float) -> None:
        text = rows.dumps(codec.plain(config))
        with self.writing() as db:
            key = session_key(db, session_id)
            db.execute(
                "UPDATE sessions SET config = ?, updated_at = ? WHERE id = ?", (text, at, key)
            )

    def rename_session(self, session_id: str, name: str) -> None:
        kept = session_name(name)
        with self.writing() as db:
            key = session_key(db, session_id)
            db.execute("UPDATE sessions SET name = ? WHERE id = ?", (kept, key))

    def update_usage(self, session_id: str, usage: Usage) -> None:
        with self.writing() as db:
            add_usage(db, session_key(db, session_id), usage)

    def delete_session(self, session_id: str) -> None:
        with self.writing() as db:
            db.execute("DELETE FROM sessions WHERE id = ?", (session_key(db, session_id),))
        # Give the space back; another kernel's reading may stand in the way, then next time.
        with contextlib.suppress(sqlite3.Error), self._lock:
            self._open_db().execute("PRAGMA incremental_vacuum").fetchall()

    def append_messages(self, records: Sequence[MessageRecord]) -> int:
        cleaned = [codec.clean_record(r) for r in records]
        with self.writing() as db:
            return append(db, cleaned)

    def list_messages(self, session_id: str, *, after: int = 0) -> list[MessageRecord]:
        with self.reading() as db:
            key = session_key(db, session_id)
            found = db.execute(
                _SELECT_MESSAGE + "WHERE session_id = ? AND seq > ? ORDER BY seq", (key, after)
            ).fetchall()
        return [rows.message_from_row(row) for row in found]

    def latest_compaction(
        self, session_id: str
    ) -> tuple[MessageRecord, MessageRecord | None] | None:
        with self.reading() as db:
            key = session_key(db, session_id)
            row = db.execute(
                _SELECT_MESSAGE + "WHERE session_id = ? AND kind = 'compaction'"
                " ORDER BY seq DESC LIMIT 1",
                (key,),
            ).fetchone()
            if row is None:
                return None
            marker = rows.message_from_row(row)
            row = db.execute(
                _SELECT_MESSAGE + "WHERE session_id = ? AND seq = ? AND kind = 'summary'",
                (key, marker.seq + 1),
            ).fetchone()
        return marker, None if row is None else rows.message_from_row(row)

    def search(
        self, text: str, *, session_id: str | None = None, limit: int = 100
    ) -> list[MessageRecord]:
        wanted = clean_text(text)
        if not wanted:
            return []
        only = None if session_id is None else clean_text(session_id)
        with self.reading() as db:
            found = db.execute(_SEARCH, (only, wanted, limit)).fetchall()
        return [rows.message_from_row(row) for row in found]


def _insert(db: sqlite3.Connection, row: SessionRow) -> None:
    key, name = clean_text(row.id), session_name(row.name)
    config = rows.dumps(codec.plain(row.config))
    if db.execute("SELECT 1 FROM sessions WHERE id = ?", (key,)).fetchone():
        raise codec.taken("session", key)
    db.execute(
        "INSERT INTO sessions (id, name, created_at, updated_at, config) VALUES (?, ?, ?, ?, ?)",
        (key, name, row.created_at, row.updated_at, config),
    )


def session_key(db: sqlite3.Connection, session_id: str) -> str:
    """The session's id as stored.

    Raises:
        StoreError: There is no such session.
    """
    key = clean_text(session_id)
    if db.execute("SELECT 1 FROM sessions WHERE id = ?", (key,)).fetchone() is None:
        raise codec.no_session(session_id)
    return key


def append(db: sqlite3.Connection, records: Iterable[MessageRecord]) -> int:
    """Append clean entries inside the caller's transaction; the last ``seq``, 0 for none."""
    last: dict[str, int] = {}
    seq = 0
    for record in records:
        key = clean_text(record.session_id)
        if key not in last:
            row = db.execute("SELECT last_seq FROM sessions WHERE id = ?", (key,)).fetchone()
            if row is None:
                raise codec.no_session(record.session_id)
            last[key] = row[0]
        seq = last[key] = last[key] + 1
        db.execute(
            f"INSERT INTO messages ({rows.MESSAGE_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",  # noqa: S608  # our own columns
            rows.message_to_row(key, seq, record),
        )
        db.execute(
            "UPDATE sessions SET last_seq = ?, message_count = message_count + ?,"
            " updated_at = max(updated_at, ?) WHERE id = ?",
            (seq, record.kind == "message", record.created_at, key),
        )
    return seq


def add_usage(db: sqlite3.Connection, key: str, usage: Usage) -> None:
    """Add to a session's reported tokens inside the caller's transaction."""
    row = db.execute("SELECT usage FROM sessions WHERE id = ?", (key,)).fetchone()
    before = None if row[0] is None else Usage.from_json(rows.loads(row[0]))
    total = usage if before is None else before.plus(usage)
    db.execute("UPDATE sessions SET usage = ? WHERE id = ?", (rows.dumps(total.to_json()), key))
