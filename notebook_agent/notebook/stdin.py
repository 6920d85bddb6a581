"""Asking through the kernel's stdin without blocking the cell's ticks.

``input()`` would stop the tick, and with it the drawing and the Stop button, until somebody
answers. Here the request is sent once and the reply is looked for on each tick.

Source: notebook side, "Whose thread runs notebook code" (D20, approval).
"""

from __future__ import annotations

import logging
from typing import Any

from notebook_agent.core.text import visible
from notebook_agent.notebook.road import Asker, no_asker

__all__ = ["KernelStdin", "TerminalStdin", "asker_for"]

log = logging.getLogger("notebook_agent.notebook")


class KernelStdin:
    """The question as an ``input_request`` of an ipykernel."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self._void = False

    def open(self, prompt: str) -> bool:
        """Send the question; False where the front end takes none."""
        kernel = self._kernel
        if not getattr(kernel, "_allow_stdin", False):
            return False
        try:
            while self._receive() is not None:
                continue  # stale replies of earlier questions
            kernel.session.send(
                kernel.stdin_socket,
                "input_request",
                {"prompt": visible(prompt), "password": False},
                kernel.get_parent("shell"),
                ident=kernel._parent_ident["shell"],
            )
        except Exception:  # an unknown kernel: nobody can be asked there
            log.debug("stdin request failed", exc_info=True)
            return False
        return True

    def poll(self) -> str | None:
        """The reply if it is there."""
        try:
            return self._receive()
        except Exception:  # as in open; an answer that cannot be read is no yes
            log.debug("stdin reply failed", exc_info=True)
            return ""

    def close(self) -> None:
        """A front end cannot take its box back; a late reply is dropped by the next ``open``."""
        self._void = True

    def _receive(self) -> str | None:
        import zmq  # noqa: PLC0415  # comes with ipykernel; a terminal has none

        try:
            _ident, reply = self._kernel.session.recv(self._kernel.stdin_socket, mode=zmq.NOBLOCK)
        except zmq.ZMQError:
            return None
        return None if reply is None else str(reply["content"].get("value", ""))


class TerminalStdin:
    """``input`` in a terminal: the prompt is the only thing that happens meanwhile."""

    def __init__(self) -> None:
        self._answer: str | None = None

    def open(self, prompt: str) -> bool:
        """Ask and wait."""
        try:
            self._answer = input(visible(prompt))
        except EOFError:
            return False
        return True

    def poll(self) -> str | None:
        """The answer."""
        return self._answer

    def close(self) -> None:
        """Nothing to take back."""


def asker_for(shell: Any) -> Asker:
    """The way to ask in this shell."""
    kernel = getattr(shell, "kernel", None)
    if kernel is not None and hasattr(kernel, "stdin_socket"):
        return KernelStdin(kernel)
    if shell is not None and type(shell).__name__ == "TerminalInteractiveShell":
        return TerminalStdin()
    return no_asker()
