"""The SQLite file: its tables, its schema number, and how an older file becomes a newer one.

A file says what it is in its own header: ``application_id`` and ``user_version`` (the schema
number). A newer file is refused before SQLite opens it, so that not a byte of it changes.

Source: Turn FSM, "Persisting" (B58, B60, B61).
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Final

from notebook_agent.core.session import Turn
from notebook_agent.errors import StoreError

__all__ = [
    "APPLICATION_ID",
    "MIGRATIONS",
    "SCHEMA_VERSION",
    "TURN_COLUMNS",
    "check_header",
    "migrate",
]

APPLICATION_ID: Final = 0x4E624167  # "NbAg"
SCHEMA_VERSION: Final = 1

_MAGIC: Final = b"SQLite format 3\x00"

# The columns of a turn are Turn's own fields, in their order, under their own names.
TURN_COLUMNS: Final = tuple(f.name for f in fields(Turn))

_INTEGER: Final = frozenset(
    {
        "turn", "input_tokens", "output_tokens", "attempts", "rescued", "compacted",
        "cached_input_tokens", "reasoning_tokens", "input_includes_cached", "failed_input_tokens",
        "failed_output_tokens", "budget_tokens", "budget_estimated", "context_estimate",
    }
)  # fmt: skip
_REAL: Final = frozenset({"ttft_s", "duration_s", "started_at"})


# Schema 1 is released: its columns are written out, so that a new field of Turn does not
# change it but needs a migration.
_TURN_COLUMNS_1: Final = (
    "turn", "input", "output", "tool_calls", "input_tokens", "output_tokens", "model",
    "stop_reason", "ending", "ending_raw", "attempts", "rescued", "breaker", "compacted",
    "tools_not_run", "cached_input_tokens", "reasoning_tokens", "input_includes_cached",
    "failed_input_tokens", "failed_output_tokens", "budget_tokens", "budget_estimated",
    "context_estimate", "context_ref", "ttft_s", "duration_s", "started_at",
)  # fmt: skip


def _turn_columns() -> str:
    return ", ".join(
        f"{name} {'INTEGER' if name in _INTEGER else 'REAL' if name in _REAL else 'TEXT'}"
        for name in _TURN_COLUMNS_1
    )


_SCHEMA_1: Final = f"""
CREATE TABLE schema_migrations (
    version INTEGER PRIMARY KEY, applied_at REAL NOT NULL, app_version TEXT NOT NULL);

CREATE TABLE sessions (
    position INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, name TEXT NOT NULL,
    created_at REAL NOT NULL, updated_at REAL NOT NULL, config TEXT NOT NULL, usage TEXT,
    run_count INTEGER NOT NULL DEFAULT 0, message_count INTEGER NOT NULL DEFAULT 0,
    last_seq INTEGER NOT NULL DEFAULT 0);

CREATE INDEX sessions_name ON sessions(name);

CREATE TABLE messages (
    position INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
    seq INTEGER NOT NULL, run_id TEXT NOT NULL, kind TEXT NOT NULL, body TEXT, meta TEXT,
    created_at REAL NOT NULL, UNIQUE (session_id, seq));

CREATE INDEX messages_compaction ON messages(session_id, seq) WHERE kind = 'compaction';

CREATE TABLE runs (
    position INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,
    session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
    status TEXT NOT NULL, started_at REAL NOT NULL, ended_at REAL, input TEXT NOT NULL,
    output TEXT NOT NULL, stop_reason TEXT, ending TEXT, config TEXT NOT NULL, error TEXT,
    state TEXT NOT NULL, next_sequence INTEGER NOT NULL DEFAULT 0);

CREATE INDEX runs_session ON runs(session_id);

CREATE TABLE turns (
    position INTEGER PRIMARY KEY, run_id TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
    served INTEGER NOT NULL, outcome TEXT, error TEXT, {_turn_columns()});

CREATE INDEX turns_run ON turns(run_id);

CREATE UNIQUE INDEX turns_served ON turns(run_id, turn) WHERE served = 1;

CREATE TABLE records (
    run_id TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE, sequence INTEGER NOT NULL,
    body TEXT NOT NULL, PRIMARY KEY (run_id, sequence)) WITHOUT ROWID;

CREATE TABLE events (
    position INTEGER PRIMARY KEY, run_id TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
    body TEXT NOT NULL);

CREATE INDEX events_run ON events(run_id);

CREATE TABLE executions (
    position INTEGER PRIMARY KEY, id TEXT NOT NULL,
    run_id TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE, session_id TEXT NOT NULL,
    turn INTEGER NOT NULL, call_id TEXT NOT NULL, tool_name TEXT NOT NULL,
    arguments TEXT NOT NULL, status TEXT NOT NULL, result TEXT NOT NULL,
    is_error INTEGER NOT NULL, duration_s REAL, created_at REAL NOT NULL, images TEXT,
    UNIQUE (run_id, id));

CREATE TABLE snapshots (
    run_id TEXT PRIMARY KEY REFERENCES runs(id) ON DELETE CASCADE, session_id TEXT NOT NULL,
    state TEXT NOT NULL, seq INTEGER NOT NULL, pending TEXT NOT NULL, data TEXT NOT NULL,
    timestamp REAL NOT NULL) WITHOUT ROWID;

CREATE INDEX snapshots_session ON snapshots(session_id);
"""


def _statements(script: str) -> tuple[str, ...]:
    return tuple(one.strip().removesuffix(";") for one in script.split("\n\n") if one.strip())


# schema number -> the statements that make it out of the one before, in one transaction
MIGRATIONS: Final[Mapping[int, tuple[str, ...]]] = {1: _statements(_SCHEMA_1)}


def check_header(path: Path, *, newest: int = SCHEMA_VERSION) -> None:
    """Refuse a file that is not ours or too new, by its first 100 bytes, without opening it.

    Args:
        path: An existing file. An empty one passes: it becomes a new store.
        newest: The newest schema number that can be read.

    Raises:
        StoreError: It is not a session file, or its schema is newer; the file is untouched.
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        head = file.read(100)
    if not head:
        return
    if len(head) < 100 or not head.startswith(_MAGIC):
        raise _foreign(path)
    version, application = struct.unpack(">I4xI", head[60:72])
    if application not in (0, APPLICATION_ID) or (application == 0 and version):
        raise _foreign(path)
    if version > newest:
        raise too_new(path, version, newest=newest)


def too_new(path: Path, version: int, *, newest: int = SCHEMA_VERSION) -> StoreError:
    """The refusal of a newer file: names both schema numbers and who wrote it."""
    writer = _writer(path, version)
    return StoreError(
        f"{path} was written by a newer notebook_agent{writer}: it has schema {version}, this "
        f"version reads up to {newest}. The file was not touched.\n"
        "Upgrade with:  pip install -U notebook-agent\n"
        'or keep this kernel\'s sessions elsewhere:  %config AgentMagics.store = "memory"'
    )


def _writer(path: Path, version: int) -> str:
    # immutable: SQLite makes no journal, no lock, no -shm file beside it
    try:
        file = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    except sqlite3.Error:
        return ""
    try:
        row = file.execute(
            "SELECT app_version FROM schema_migrations WHERE version = ?", (version,)
        ).fetchone()
    except sqlite3.Error:
        return ""
    finally:
        file.close()
    return f" ({row[0]})" if row else ""


def _foreign(path: Path) -> StoreError:
    return StoreError(
        f"{path} is not a session file of notebook_agent. The file was not touched.\n"
        'Name another one:  %config AgentMagics.store = "PATH"'
    )


def migrate(
    connection: sqlite3.Connection,
    path: Path,
    *,
    now: float,
    app_version: str,
    steps: Mapping[int, tuple[str, ...]] = MIGRATIONS,
) -> int:
    """Bring an open file to the newest schema. To be called inside a transaction.

    Args:
        connection: In a transaction that already holds the write lock.
        path: For the error text.
        now: Seconds since the epoch, noted beside each step.
        app_version: This package's version, noted beside each step.
        steps: Schema number -> statements.

    Returns:
        The schema number that was found, 0 for a new file.

    Raises:
        StoreError: The file is newer than the newest step, or holds something else.
    """
    newest = max(steps)
    found = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if found > newest:
        raise too_new(path, found, newest=newest)
    tables = int(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])
    if found == 0 and tables:
        raise _foreign(path)
    for version in range(found + 1, newest + 1):
        for statement in steps[version]:
            connection.execute(statement)
        connection.execute(
            "INSERT INTO schema_migrations VALUES (?, ?, ?)", (version, now, app_version)
        )
    # Written even when nothing changed: a folder or disk that cannot be written shows it now,
    # not in the middle of the first run.
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {newest}")
    return found
