"""Journal: what a sweep has sent and what came back, in one SQLite file held by the driver.

A cell has one row: ``started`` is written before it is sent, its answer when it comes. A row with
an answer is never sent again; a row that is only started was in flight when something died, and
is sent once more, marked ``resent``. Every group of rows is one transaction, so a kill at any
point leaves either all of a group or none.

Source: tune by experiment, sweeps (the journal; bad input: full disk, two sweeps, old versions).
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from notebook_agent.core.text import clean_text
from notebook_agent.errors import ConfigError, StoreError

__all__ = ["SCHEMA", "Answer", "Begun", "Journal", "Known", "Row"]

SCHEMA: Final = 1
APPLICATION_ID: Final = 0x6E615377  # "naSw": tells our files from other SQLite files
_TABLES: Final = (
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    (
        "CREATE TABLE cells (key BLOB PRIMARY KEY, place INTEGER NOT NULL, spec TEXT NOT NULL,"
        " status TEXT NOT NULL, attempts INTEGER NOT NULL, resent INTEGER NOT NULL,"
        " answer TEXT, error TEXT, started REAL NOT NULL, duration REAL)"
    ),
)
# Schema -> statements that bring a journal of it to the next one. A version that is not here is
# refused in words: a sweep's money is in it, so nothing is guessed.
MIGRATIONS: Final[dict[int, tuple[str, ...]]] = {}

_BEGIN: Final = (
    "INSERT INTO cells VALUES (?, ?, ?, 'started', 1, 0, NULL, NULL, ?, NULL)"
    " ON CONFLICT (key) DO UPDATE SET status = 'started', attempts = attempts + 1,"
    " resent = resent + ?, started = excluded.started, answer = NULL, error = NULL"
)
_ANSWER: Final = (
    "UPDATE cells SET status = ?, answer = ?, error = ?, duration = ?, resent = resent + ?"
    " WHERE key = ?"
)
_COLUMNS: Final = "place, spec, status, attempts, resent, answer, error, duration, key"


@dataclass(frozen=True, slots=True)
class Known:
    """What the journal knows of a cell. ``status``: started, done or failed."""

    status: str
    resent: int


@dataclass(frozen=True, slots=True)
class Begun:
    """A cell that is about to be sent; ``again`` marks one that was in flight before."""

    key: bytes
    place: int
    spec: Mapping[str, Any]
    again: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back for a cell: ``value`` (JSON) or ``error`` (``{"error": ..., "message": ...}``).

    ``duration_s`` in seconds; ``resent`` counts sends that the executor made on its own.
    """

    key: bytes
    value: str | None = None
    error: Mapping[str, Any] | None = None
    duration_s: float | None = None
    resent: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """One cell as read back."""

    place: int
    spec: Mapping[str, Any]
    status: str
    attempts: int
    resent: int
    value: Any
    error: Mapping[str, Any] | None
    duration_s: float | None
    key: bytes


def _resolved(path: str | os.PathLike[str]) -> Path | None:
    told: object = path
    if not isinstance(told, (str, bytes, os.PathLike)):
        raise ConfigError(field="journal", value=told, legal="a path, or None for memory")
    try:
        name = os.fsdecode(path)
        if "\0" in name:
            raise ValueError("it holds a NUL")
        return None if name == ":memory:" else Path(name).expanduser()
    except (RuntimeError, ValueError) as problem:
        why = str(problem).rstrip(".")
        raise StoreError(f"{os.fspath(path)!r} is no place for a journal: {why}.") from None


class Journal:
    """The rows of one sweep. One sweep at a time may hold it.

    Args:
        path: The file; None keeps the rows in memory.
        name: Which sweep it belongs to: another name is refused.
        wall: Seconds since the epoch, UTC.

    Raises:
        ConfigError: Another sweep holds the file, or it belongs to a sweep of another name.
        StoreError: It is no journal, of another version, or cannot be read or written.

    Example:
        >>> with Journal(None, "demo") as journal:
        ...     journal.begin([Begun(b"k", 0, {})])
        ...     journal.finish([Answer(b"k", value='"hello"', duration_s=0.1)])
        ...     [row.value for row in journal.rows()]
        ['hello']
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        name: str = "sweep",
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.path = None if path is None else _resolved(path)
        self.name = clean_text(name)
        self._wall = wall
        self._lock = threading.RLock()
        self._guard: sqlite3.Connection | None = None
        with self._told("opened"):
            if self.path is not None:
                self._take()
            where = ":memory:" if self.path is None else str(self.path)
            self._db = sqlite3.connect(where, isolation_level=None, check_same_thread=False)
        try:
            with self._told("opened"):
                self._prepare()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        """A journal that nobody holds any more lets its file go."""
        if hasattr(self, "_lock"):
            self.close()

    def close(self) -> None:
        """Let the file go; reading it needs a new Journal."""
        with self._lock:
            if getattr(self, "_db", None) is not None:
                self._db.close()
            if self._guard is not None:
                self._guard.close()
                self._guard = None

    # ---- writing ---------------------------------------------------------------------------

    def begin(self, cells: Sequence[Begun]) -> None:
        """Write that these are about to be sent, in one transaction.

        Raises:
            StoreError: Nothing was written: the disk is full, or the file cannot be written.
        """
        at = self._wall()
        rows = [(c.key, c.place, _text(c.spec), at, int(c.again)) for c in cells]
        with self._told("written"), self._transaction() as db:
            db.executemany(_BEGIN, rows)

    def finish(self, answers: Sequence[Answer]) -> None:
        """Write what came back, in one transaction.

        Raises:
            StoreError: Nothing was written.
        """
        rows = [
            (
                "done" if a.error is None else "failed",
                a.value,
                None if a.error is None else _text(a.error),
                a.duration_s,
                a.resent,
                a.key,
            )
            for a in answers
        ]
        with self._told("written"), self._transaction() as db:
            db.executemany(_ANSWER, rows)

    def note_resent(self, counts: Mapping[bytes, int]) -> None:
        """Add sends that became known later; a full disk loses the note only."""
        with self._told("written"), self._transaction() as db:
            db.executemany(
                "UPDATE cells SET resent = resent + ? WHERE key = ?",
                [(n, key) for key, n in counts.items()],
            )

    # ---- reading ---------------------------------------------------------------------------

    def known(self) -> dict[bytes, Known]:
        """Every cell that was ever sent, by its key."""
        with self._lock, self._told("read"):
            found = self._db.execute("SELECT key, status, resent FROM cells").fetchall()
        return {key: Known(status, resent) for key, status, resent in found}

    def counts(self) -> dict[str, int]:
        """Cells by status, and ``resent``: how many sends were made again."""
        with self._lock, self._told("read"):
            rows = self._db.execute("SELECT status, count(*) FROM cells GROUP BY status").fetchall()
            again = self._db.execute("SELECT coalesce(sum(resent), 0) FROM cells").fetchone()[0]
        return {"done": 0, "failed": 0, "started": 0, **dict(rows), "resent": again}

    def rows(self) -> Iterator[Row]:
        """All cells in the order of the sweep, in pages: other threads may write meanwhile."""
        after, page = (-1, b""), 5_000
        while True:
            with self._lock, self._told("read"):
                found = self._db.execute(
                    f"SELECT {_COLUMNS} FROM cells WHERE (place, key) > (?, ?)"  # noqa: S608  # constants
                    " ORDER BY place, key LIMIT ?",
                    (*after, page),
                ).fetchall()
            for place, spec, status, attempts, resent, answer, error, took, key in found:
                yield Row(
                    place, self._read(spec, place), status, attempts, resent,
                    self._read(answer, place), self._read(error, place), took, key,
                )  # fmt: skip
            if len(found) < page:
                return
            after = (found[-1][0], found[-1][8])

    def _read(self, text: str | None, place: int) -> Any:
        if text is None:
            return None
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as problem:
            raise StoreError(
                f"The journal {self.path or 'in memory'} is damaged: cell {place} holds "
                f"{text[:40]!r} ({problem}).\nBegin a new journal; this one is left as it is."
            ) from problem

    # ---- the file --------------------------------------------------------------------------

    def _take(self) -> None:
        """Hold a lock file beside the journal: SQLite's own lock ends with the process."""
        assert self.path is not None
        real = self.path.resolve()  # one file has one lock, whatever link leads to it
        lock = real.with_name(real.name + ".lock")
        guard = sqlite3.connect(str(lock), isolation_level=None, timeout=0.2)
        try:
            guard.execute("CREATE TABLE IF NOT EXISTS owner (words TEXT)")
            guard.execute("DELETE FROM owner")
            words = f"process {os.getpid()} on {socket.gethostname()}"
            guard.execute("INSERT INTO owner VALUES (?)", (words,))
            guard.execute("BEGIN IMMEDIATE")  # held until close: readers may still ask who
        except sqlite3.OperationalError as error:
            guard.close()
            if "locked" not in str(error):
                raise
            raise ConfigError(
                f"The journal {self.path} is in use by another sweep ({_owner(lock)}).\n"
                "Wait for it, stop it, or give this one a journal of its own.",
                field="journal",
                value=str(self.path),
            ) from None
        self._guard = guard

    def _prepare(self) -> None:
        db = self._db
        schema = db.execute("PRAGMA user_version").fetchone()[0]
        mark = db.execute("PRAGMA application_id").fetchone()[0]
        empty = not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if not empty:
            self._check(schema, mark)
        if self.path is not None:
            db.execute("PRAGMA journal_mode=WAL")
            # An answer that was paid for survives a power cut; one sync per group is cheap.
            db.execute("PRAGMA synchronous=FULL")
        with self._transaction():
            if empty:
                for statement in _TABLES:
                    db.execute(statement)
                db.execute(f"PRAGMA application_id={APPLICATION_ID}")
                db.execute("INSERT INTO facts VALUES ('name', ?)", (self.name,))
            for number in range(schema if not empty else SCHEMA, SCHEMA):
                for statement in MIGRATIONS[number]:
                    db.execute(statement)
            db.execute(f"PRAGMA user_version={SCHEMA}")

    def _check(self, schema: int, mark: int) -> None:
        if mark != APPLICATION_ID:
            raise StoreError(
                f"{self.path} is no journal of a sweep.\nGive the path of a file that is not there yet."
            )
        if schema > SCHEMA:
            raise StoreError(
                f"{self.path} was written by a newer notebook_agent (journal schema {schema}, this "
                f"version reads {SCHEMA}).\nUpgrade with:  pip install -U notebook-agent"
            )
        if any(number not in MIGRATIONS for number in range(schema, SCHEMA)):
            raise StoreError(
                f"{self.path} was written by an older notebook_agent (journal schema {schema}) and "
                f"cannot be brought to schema {SCHEMA}; nothing was changed.\n"
                "Finish it with the version that wrote it, or begin a new journal."
            )
        name = self._db.execute("SELECT value FROM facts WHERE name = 'name'").fetchone()
        if name is None or name[0] != self.name:
            raise ConfigError(
                f"The journal {self.path} belongs to the sweep {name and name[0]!r}, this one is "
                f"{self.name!r}.\nGive this sweep a journal of its own, or the same name.",
                field="journal",
                value=str(self.path),
            )

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def _told(self, done: str) -> Iterator[None]:
        """SQLite's errors in words."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            full = "full" in str(error) or getattr(error, "errno", None) == 28
            hint = "Free some space and run the same sweep again: it goes on where it is."
            if not full:
                hint = "Check the path, or give another journal."
            raise StoreError(
                f"The journal {self.path or 'in memory'} cannot be {done}: {error}.\n{hint}"
            ) from error


def _owner(lock: Path) -> str:
    """Who holds a journal, as the holder wrote it."""
    try:
        with contextlib.closing(sqlite3.connect(str(lock), timeout=0.2)) as db:
            row = db.execute("SELECT words FROM owner").fetchone()
    except sqlite3.Error:
        row = None
    return row[0] if row else "of this or another process"


def _text(value: Any) -> str:
    return clean_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
