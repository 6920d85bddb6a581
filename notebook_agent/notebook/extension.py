"""``%load_ext`` and ``%unload_ext``: what loading adds, unloading takes away.

Loading prints nothing, opens no socket, writes no file, starts no thread. Loading twice adds
nothing a second time; the session survives load, reload and ``%reset`` (N04).

Source: notebook side, running a cell and commands (D1, N04).
"""

from __future__ import annotations

import sys
from typing import Any, Final

from notebook_agent.notebook import short_errors
from notebook_agent.notebook.completion import Completer
from notebook_agent.notebook.magics import AgentMagics
from notebook_agent.notebook.transform import Rewriter

__all__ = ["load_ipython_extension", "unload_ipython_extension"]

NAME: Final = "agent"
COMPLETED: Final = ("%agent", "%%agent")


def awaits(shell: Any) -> bool:
    """Whether a rewritten cell can be awaited, and an interrupt reaches it.

    Kernels do both, the terminal drops the coroutine. Inside a magic that runs a cell itself
    (``%%time``) nothing is awaited: a cell is running then already.
    """
    if getattr(getattr(shell, "displayhook", None), "exec_result", None) is not None:
        return False
    return getattr(shell, "kernel", None) is not None or sys.platform == "emscripten"


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
