"""open_store: from a setting to a store; and a stored session as one value.

Source: notebook side, D21.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from notebook_agent.core.log_view import conversation
from notebook_agent.core.session import Session
from notebook_agent.engine.store.base import Store, StoreBusy
from notebook_agent.engine.store.memory import MemoryStore
from notebook_agent.engine.store.sqlite import SqliteStore
from notebook_agent.engine.store.sqlite_medium import ReadOnly
from notebook_agent.errors import StoreError

__all__ = ["default_path", "load_session", "open_store", "patiently"]

T = TypeVar("T")

_BUSY_STEP_S = 0.01  # seconds between two tries of ``patiently``


def default_path() -> Path:
    """Where sessions are kept when nothing else is said (D21)."""
    import platformdirs  # noqa: PLC0415  # slow to import, and for this one path

    return Path(platformdirs.user_data_dir("notebook_agent", appauthor=False)) / "sessions.db"


def open_store(
    spec: str | Path | None = None, *, notify: Callable[[str], None] | None = None
) -> Store:
    """The store that a setting names. The file is made now: call this at the first use.

    Args:
        spec: ``"memory"``; a path, ``~`` allowed; None, ``""`` or ``"default"`` for
            :func:`default_path`.
        notify: Called with one line when the default place cannot be written and sessions are
            kept in memory instead.

    Returns:
        A store. With the default place a read-only home gives a MemoryStore; a newer or damaged
        file there is never passed over in silence.

    Raises:
        StoreError: The named file is newer, foreign, damaged, or cannot be written.
        StoreBusy: Another kernel held the file for too long.

    Example:
        >>> open_store("memory").location
        'memory'

    Source: D21.
    """
    if spec is not None and str(spec).strip() in ("memory", ":memory:"):
        return MemoryStore()
    if spec is not None and str(spec).strip() not in ("", "default"):
        return SqliteStore(_resolved(spec))
    path = default_path()
    try:
        return SqliteStore(path)
    except ReadOnly:
        if notify is not None:
            notify(
                f"{path} cannot be written: sessions are kept in memory and end with the kernel."
            )
        return MemoryStore()


def _resolved(spec: str | Path) -> Path:
    try:
        if "\0" in str(spec):
            raise ValueError("it holds a NUL")
        return Path(spec).expanduser()
    except (RuntimeError, ValueError) as problem:
        why = str(problem).rstrip(".")
        raise StoreError(f"{str(spec)!r} is no place for sessions: {why}.") from None


def load_session(store: Store, session_id: str) -> Session:
    """A stored session with its working history and its whole audit trail.

    Raises:
        StoreError: There is no such session, or it cannot be read.
    """
    row = store.get_session(session_id)
    log = store.list_messages(session_id)  # raises for an unknown session
    assert row is not None
    return Session(
        id=row.id,
        name=row.name,
        config=dict(row.config),
        history=list(conversation(log)),
        runs=store.list_runs(session_id),
    )


def patiently(
    call: Callable[[], T], *, limit_s: float = 2.0, sleep: Callable[[float], None] = time.sleep
) -> T:
    """Make a store call outside the event loop, trying again while another kernel writes.

    Args:
        call: Writes all or nothing.
        limit_s: Seconds to go on trying.
        sleep: Waits some seconds.

    Raises:
        StoreBusy: Still busy after ``limit_s``.
        StoreError: The call failed.
    """
    tries = max(int(limit_s / _BUSY_STEP_S), 1)
    for _ in range(tries - 1):
        try:
            return call()
        except StoreBusy:
            sleep(_BUSY_STEP_S)
    return call()
