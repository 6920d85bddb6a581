"""The SQLite connection: how the file is opened, how a transaction runs, what its errors mean.

Source: Turn FSM, "Persisting" (B58, B62, B74).
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from notebook_agent import __version__
from notebook_agent.engine.store import schema
from notebook_agent.engine.store.base import StoreBusy
from notebook_agent.errors import StoreError

__all__ = ["BUSY_S", "Medium", "ReadOnly", "file_system_of", "is_network_path"]

# Seconds a statement waits for another writer before StoreBusy. A transition's transaction
# takes well under a millisecond, so two kernels on one file nearly always fit in it; the event
# loop is never held longer.
BUSY_S: Final = 0.025
OPEN_S: Final = 2.0  # seconds for opening, when another kernel is creating or migrating the file

# File systems on which a memory-mapped WAL index is not shared between hosts (D21).
NETWORK: Final = frozenset(
    {
        "9p", "acfs", "afp", "afpfs", "afs", "beegfs", "ceph", "cifs", "davfs", "glusterfs", "gfs2",
        "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb3",
        "smbfs", "virtiofs", "webdav",
    }
)  # fmt: skip


def file_system_of(path: Path, mounts: str) -> str:
    """The type of the file system that holds ``path``, by the text of Linux' mountinfo."""
    best, kind = "", ""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        columns, after = left.split(), right.split()
        if len(columns) < 5 or not after:
            continue
        point = columns[4].replace("\\040", " ")
        inside = point == "/" or str(path) == point or str(path).startswith(point + "/")
        if inside and len(point) >= len(best):  # a later mount on the same point covers it
            best, kind = point, after[0]
    return kind


def is_network_path(path: Path) -> bool:
    """Whether the path is on a network or user-space file system; False when unknown."""
    if sys.platform == "win32":
        return str(path).startswith("\\\\")
    if sys.platform == "darwin":
        return str(path).startswith(("/Volumes/", "/Network/"))
    try:
        mounts = Path("/proc/self/mountinfo").read_text(errors="replace")
    except OSError:
        return False
    kind = file_system_of(path, mounts)
    return kind in NETWORK or kind.startswith("fuse.")


class ReadOnly(StoreError):
    """The place cannot be written: a read-only folder or home, no permission, no such drive."""

    def to_json(self) -> dict[str, Any]:
        """A StoreError in records."""
        return {**super().to_json(), "error": StoreError.__name__}


class Medium:
    """One SQLite file, one connection, one lock.

    Args:
        path: The file; made with mode 0600, its folder with 0700, when they are not there.
        busy_s: Seconds to wait for another writer.

    Raises:
        StoreBusy: Another kernel held the file for too long.
        StoreError: The file is newer, foreign, damaged, or cannot be written.
    """

    def __init__(self, path: str | Path, *, busy_s: float = BUSY_S) -> None:
        self.path = Path(path).expanduser().absolute()
        self._lock = threading.RLock()
        self._db: sqlite3.Connection | None = None
        try:
            self._make_file()
            schema.check_header(self.path)
        except OSError as problem:
            raise self._os_error(problem) from problem
        status = self.path.stat()
        self._inode = (status.st_dev, status.st_ino)
        try:
            self._db = sqlite3.connect(
                self.path, timeout=OPEN_S, isolation_level=None, check_same_thread=False
            )
            self._prepare()
            self._db.execute(f"PRAGMA busy_timeout = {int(busy_s * 1000)}")
        except sqlite3.Error as problem:
            self.close()
            raise self.error(problem) from problem
        except BaseException:
            self.close()
            raise

    @property
    def location(self) -> str:
        """The file's path."""
        return str(self.path)

    @property
    def journal_mode(self) -> str:
        """``wal`` or the rollback journal's mode."""
        with self.reading() as db:
            return str(db.execute("PRAGMA journal_mode").fetchone()[0])

    def close(self) -> None:
        """Let go of the file; every later call is a StoreError. Closing twice is fine."""
        with self._lock:
            db, self._db = self._db, None
            if db is not None:
                with contextlib.suppress(sqlite3.Error):
                    db.close()

    def __del__(self) -> None:
        if getattr(self, "_db", None) is not None:
            self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.location!r})"

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction that holds the write lock from its start: all of it or nothing."""
        yield from self._transaction("BEGIN IMMEDIATE")

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One view of the file, however many statements."""
        yield from self._transaction("BEGIN")

    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        with self._lock:
            db = self._open_db()
            self._same_file()
            try:
                db.execute(begin)
                yield db
                db.execute("COMMIT")
            except BaseException as problem:  # an interrupt must not leave a half transaction
                self._roll_back(db)
                if isinstance(problem, (sqlite3.Error, OverflowError)):
                    raise self.error(problem) from problem
                raise

    def _open_db(self) -> sqlite3.Connection:
        if self._db is None:
            raise StoreError(f"The session store {self.path} is closed; open it again.")
        return self._db

    def _same_file(self) -> None:
        """What is written to a file that was moved or deleted under an open connection is lost,
        and SQLite says nothing.

        Raises:
            StoreError: The path leads to another file, or to none.
        """
        try:
            found = self.path.stat()
        except OSError:
            found = None
        if found is None or (found.st_dev, found.st_ino) != self._inode:
            raise StoreError(
                f"{self.path} was moved, deleted or replaced while it was open; nothing of this "
                "step was saved.\nPut it back, or keep sessions in another file:  "
                '%config AgentMagics.store = "PATH"'
            )

    @staticmethod
    def _roll_back(db: sqlite3.Connection) -> None:
        if db.in_transaction:  # a full disk may have rolled back by itself
            with contextlib.suppress(sqlite3.Error):
                db.execute("ROLLBACK")

    def _make_file(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))

    def _prepare(self) -> None:
        db = self._open_db()
        db.execute("PRAGMA foreign_keys = ON")
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # takes effect in a new file only
        with self.writing():
            found = schema.migrate(db, self.path, now=time.time(), app_version=__version__)
        wanted = "DELETE" if is_network_path(self.path.resolve()) else "WAL"
        # Another kernel in mid-transaction may keep the old mode: then the old mode it is.
        with contextlib.suppress(sqlite3.OperationalError):
            db.execute(f"PRAGMA journal_mode = {wanted}")
        mode = str(db.execute("PRAGMA journal_mode").fetchone()[0])
        # A WAL commit survives a killed process without waiting for the disk; the rollback
        # journal is safe only when it waits.
        db.execute(f"PRAGMA synchronous = {'NORMAL' if mode == 'wal' else 'FULL'}")
        if found != schema.SCHEMA_VERSION and mode == "wal":
            # the header that check_header reads must hold the new number
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def error(self, problem: Exception) -> StoreError:
        """What a failure of SQLite means to a person, and what to do."""
        name = str(getattr(problem, "sqlite_errorname", None) or type(problem).__name__)
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return StoreBusy(
                f"{self.path} is being written by another kernel; nothing was saved.\n"
                "Try again in a moment."
            )
        if name.startswith(("SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_SHMSIZE")):
            return StoreError(
                f"The disk is full: {self.path} could not be written, nothing of this step was "
                "saved.\nFree some space and run the cell again, or keep sessions in memory:  "
                '%config AgentMagics.store = "memory"'
            )
        if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH")):
            return self._read_only(str(problem))
        if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            return StoreError(
                f"{self.path} is damaged ({problem}); nothing was saved.\n"
                "Move it away (its -wal file too); a new one is made at the next run."
            )
        return StoreError(
            f"{self.path} could not be read or written: {problem} ({name}); nothing of this step "
            'was saved.\nKeep sessions elsewhere:  %config AgentMagics.store = "PATH"'
        )

    def _read_only(self, detail: str) -> StoreError:
        return ReadOnly(
            f"{self.path} cannot be written ({detail}); nothing was saved.\n"
            "Make the file and its folder writable, or keep sessions elsewhere:  "
            '%config AgentMagics.store = "PATH"  or  "memory"'
        )

    def _os_error(self, problem: OSError) -> StoreError:
        if problem.errno in _FULL:
            return self.error(_Full())
        return self._read_only(problem.strerror or str(problem))


class _Full(Exception):
    sqlite_errorname = "SQLITE_FULL"


_FULL: Final = frozenset({28, 122})  # ENOSPC, EDQUOT
