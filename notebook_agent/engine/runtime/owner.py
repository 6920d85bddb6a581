"""Who works on a run: a process, named so that a later one of the same number is not taken for it.

Source: Turn FSM, "Persisting" (B75), "Relationship to other components" (B78).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from notebook_agent.engine.store.base import Snapshot
from notebook_agent.errors import SessionBusy

__all__ = ["busy_elsewhere", "living_elsewhere", "owner_mark", "owner_of"]

PROC: Final = Path("/proc")
_ENDED: Final = frozenset("ZXx")  # zombie and dead: such a process works on nothing
_STATE, _START = 0, 19  # fields 3 and 22 of /proc/PID/stat, counted behind the name


def owner_mark() -> dict[str, Any]:
    """This process: its host, its number, and when it was started where the system tells."""
    pid = os.getpid()
    return {"host": socket.gethostname(), "pid": pid, "started": _started(_stat(pid))}


def owner_of(snapshot: Snapshot) -> Mapping[str, Any]:
    """Who wrote a snapshot; empty when it does not say."""
    return (snapshot.data.get("run") or {}).get("owner") or {}


def living_elsewhere(owner: Mapping[str, Any]) -> bool:
    """Whether it is another process of this host, and lives.

    Ruling: B75, a number alone is no process: in a container they begin anew with each start,
    under the same host name. An owner without a start is known by its number.
    """
    pid, started = owner.get("pid"), owner.get("started")
    if owner.get("host") != socket.gethostname() or not isinstance(pid, int) or pid <= 0:
        return False
    if pid == os.getpid():
        return False
    stat = _stat(pid)
    if stat is not None:
        if stat[_STATE] in _ENDED:
            return False
        if started is not None:
            return bool(started == _started(stat))
    return _answers(pid)


def busy_elsewhere(session: str, run_id: str, owner: Mapping[str, Any]) -> SessionBusy:
    """The refusal of what would meet the run of another process."""
    pid = owner["pid"]
    return SessionBusy(
        session,
        f"Session {session!r} is busy: another kernel, process {pid}, works on its run {run_id}.\n"
        "Stop it there, or use another:  %%agent -s other\n"
        f"If process {pid} is no kernel of yours:  %agent resume {run_id} --force",
    )


def _answers(pid: int) -> bool:
    if os.name != "posix":  # os.kill(pid, 0) ends the process elsewhere; the user decides
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def _stat(pid: int) -> list[str] | None:
    """What Linux says of a process, from its state on; None where nothing is said."""
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # its name may hold blanks and parentheses
    return fields if len(fields) > _START else None


def _started(stat: list[str] | None) -> str | None:
    """Ticks since the system came up, with the id of that; None when nobody tells."""
    if stat is None:
        return None
    try:
        boot = (PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        boot = ""
    return f"{boot}/{stat[_START]}"
