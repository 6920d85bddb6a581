"""Where a file is read or written: a path that can be one, or two lines.

Source: notebook side, commands (``--record``, ``record``, ``replay``, ``export``; N11, X06).
"""

from __future__ import annotations

import os
from pathlib import Path

from notebook_agent.core.text import visible
from notebook_agent.notebook.option import UsageError

__all__ = ["place", "writable_place"]

SHOWN = 80  # characters of a path in an error


def place(path: str, to_type: str) -> Path:
    """A path with its ``~`` resolved; whether a file is there is another question.

    Args:
        to_type: The last line of the error.

    Raises:
        UsageError: No file system takes it: a NUL in it, too long, no such home folder.
    """
    try:
        if "\0" in path:
            raise ValueError("it holds a NUL")
        found = Path(path).expanduser()
        found.is_dir()  # asks the system, which refuses what is too long
    except (OSError, RuntimeError, ValueError) as problem:
        why = (getattr(problem, "strerror", None) or str(problem)).rstrip(".")
        raise _refused(path, why, to_type) from None
    return found


def writable_place(path: str, to_type: str) -> Path:
    """As :func:`place`; the nearest folder that is there must take a new file.

    Raises:
        UsageError: Nothing can be written there.
    """
    found = place(path, to_type)
    folder = found if found.is_dir() else found.absolute().parent
    while not folder.exists() and folder.parent != folder:
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise _refused(path, f"nothing can be written in {folder}", to_type)
    return found


def _refused(path: str, why: str, to_type: str) -> UsageError:
    shown = path if len(path) <= SHOWN else f"{path[:SHOWN]}..."
    return UsageError(f"{visible(repr(shown))} is no place for a file: {why}.\nType:  {to_type}")
