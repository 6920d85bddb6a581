"""OwnCell: what a background run draws and prints lands in the cell that started it.

Output belongs to the message that the kernel takes for its parent. ipykernel 7 keeps that in
context variables, so a run's own context is enough; before, it is one place for the whole kernel,
which every cell that starts overwrites: there it is set for the length of one drawing.

Source: notebook side, running a cell (D2, D5); case N05.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, TypeVar

__all__ = ["OwnCell"]

T = TypeVar("T")


class OwnCell:
    """The cell that runs now, for later.

    Args:
        shell: IPython's shell; None outside IPython, where output needs no parent.
    """

    def __init__(self, shell: Any = None) -> None:
        self._shell = (
            shell if hasattr(shell, "get_parent") and hasattr(shell, "set_parent") else None
        )
        self._parent = self._shell.get_parent() if self._shell is not None else None
        self._context = copy_context()

    @classmethod
    def now(cls) -> OwnCell:
        """The cell that runs now in this process's IPython, if there is one."""
        ipython = sys.modules.get("IPython")
        return cls(ipython.get_ipython() if ipython is not None else None)

    def run(self, draw: Callable[[], T]) -> T:
        """Call ``draw``; its output is the cell's."""
        # A copy: another thread may be drawing in the same cell, and a context is entered once.
        return self._context.copy().run(self._as_parent, draw)

    def _as_parent(self, draw: Callable[[], T]) -> T:
        shell = self._shell
        now = shell.get_parent() if shell is not None else None
        if shell is None or not self._parent or now is self._parent:
            return draw()
        _flush()  # what another cell has printed so far goes out as its own
        shell.set_parent(self._parent)
        try:
            return draw()
        finally:
            _flush()
            shell.set_parent(now)


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
