"""``%load_ext`` and ``%unload_ext``: what loading adds, unloading takes away.

Loading prints nothing, opens no socket, writes no file, starts no thread. Loading twice adds
nothing a second time; the session survives load, reload and ``%reset`` (N04).

Source: notebook side, running a cell and commands (D1, N04).
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, Final

from IPython.core.interactiveshell import InteractiveShell

from notebook_agent.notebook import short_errors
from notebook_agent.notebook.completion import Completer
from notebook_agent.notebook.magics import AgentMagics
from notebook_agent.notebook.transform import Rewriter

__all__ = ["load_ipython_extension", "unload_ipython_extension"]

NAME: Final = "agent"
COMPLETED: Final = ("%agent", "%%agent")
# Neither stands above a cell that the kernel itself awaits.
_RUNNING: Final = (InteractiveShell.run_code.__code__, InteractiveShell._run_cell.__code__)


def awaits(shell: Any) -> bool:
    """Whether a rewritten cell can be awaited, and an interrupt reaches it.

    Kernels do both, the terminal drops the coroutine. Where a cell is running already nothing
    is awaited: inside a magic that runs a cell itself (``%%time``), in ``run_cell``, in a
    notebook that ``%run`` executes.
    """
    if _called_by_a_cell():
        return False
    return getattr(shell, "kernel", None) is not None or sys.platform == "emscripten"


def _called_by_a_cell() -> bool:
    """Whether IPython is running code further up: a second cell of the same call is nested too,
    so nothing that the shell keeps for its newest cell can tell."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code in _RUNNING:
            return True
        frame = frame.f_back
    return False


def load_ipython_extension(shell: Any) -> None:
    """Add the magics, the rewrite, completion and short errors."""
    unload_ipython_extension(shell)
    magics = AgentMagics(shell)
    shell.register_magics(magics)
    shell.input_transformers_cleanup.insert(0, Rewriter(shell, awaits))
    completer = Completer(magics.agent)
    for command in COMPLETED:
        shell.set_hook("complete_command", completer, str_key=command)
    short_errors.install()


def unload_ipython_extension(shell: Any) -> None:
    """Take away all that loading added; what is not there is passed over."""
    manager = shell.magics_manager
    manager.registry.pop(AgentMagics.__name__, None)
    for kind in ("line", "cell"):
        manager.magics[kind].pop(NAME, None)
    shell.configurables[:] = [
        c for c in shell.configurables if type(c).__name__ != AgentMagics.__name__
    ]
    transforms = shell.input_transformers_cleanup
    transforms[:] = [one for one in transforms if type(one).__name__ != Rewriter.__name__]
    strings = getattr(shell.strdispatchers.get("complete_command"), "strs", {})
    for command in COMPLETED:
        strings.pop(command, None)
    short_errors.uninstall()
