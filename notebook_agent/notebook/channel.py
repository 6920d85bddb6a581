"""The third road from the panel's view to the kernel: a BroadcastChannel, for JupyterLite.

There the kernel is a web worker of the page's own origin, and comm messages wait until the cell is
over. A BroadcastChannel is read between two awaits of the cell, so ``hello`` and ``stop`` arrive
while it runs. The rule stays the same: the view offers Stop only after its ``hello`` was answered
in time, whichever road it took. Where there is no such channel, nothing is opened and the comm is
the only road.

Source: notebook side, "Front ends" (F6, F7), "Running a cell" (D5).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from uuid import uuid4

__all__ = ["Channel", "channel_name", "open_channel"]

log = logging.getLogger("notebook_agent.notebook")

Heard = Callable[[Mapping[str, Any]], None]


class Channel(Protocol):
    """An open road; what it hears goes where it was opened with."""

    def close(self) -> None:
        """Nothing is heard any more."""
        ...


class _Broadcast:
    """A BroadcastChannel of the worker's JavaScript side."""

    def __init__(self, name: str, heard: Heard) -> None:
        import js  # noqa: PLC0415  # only in Pyodide
        from pyodide.ffi import create_proxy  # noqa: PLC0415  # as above

        def message(event: Any) -> None:
            said = event.data.to_py()
            if isinstance(said, Mapping):
                heard(said)

        self._proxy = create_proxy(message)
        self._channel = js.BroadcastChannel.new(name)
        self._channel.onmessage = self._proxy

    def close(self) -> None:
        """Nothing is heard any more."""
        self._channel.onmessage = None
        self._channel.close()
        self._proxy.destroy()


def channel_name(platform: str = sys.platform) -> str:
    """A fresh channel's name where channels are needed, "" elsewhere.

    The name cannot be guessed: every page of the same origin could listen to a known one.
    """
    return f"notebook_agent-{uuid4().hex}" if platform == "emscripten" else ""


def open_channel(name: str, heard: Heard) -> Channel | None:
    """Listen on a channel.

    Args:
        name: From ``channel_name``; "" opens nothing.
        heard: Called with each message of the view, in the kernel's thread.
    """
    if not name:
        return None
    try:
        return _Broadcast(name, heard)
    except Exception:  # an unknown host of Pyodide: the comm stays
        log.debug("no BroadcastChannel here", exc_info=True)
        return None
