"""Chore: a short coroutine on the engine's loop, waited for without blocking an awaited cell.

Source: notebook side, running a cell (D2, D3).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from notebook_agent.engine.interrupts import interruptible
from notebook_agent.errors import Cancelled
from notebook_agent.notebook.kernel_loop import EngineDriver
from notebook_agent.notebook.naps import NAP_S, LoopNaps

__all__ = ["Chore"]


class Chore:
    """Work that is no run: list models, compact."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, Any]], engine: EngineDriver) -> None:
        self._make = make
        self._engine = engine

    async def awaited(self) -> Any:
        """From an awaited cell; the tick lets an interrupt through.

        Raises:
            Cancelled: Interrupted.
        """
        work = self._engine.submit(self._make())
        try:
            naps = LoopNaps(work)
            while not work.done():  # waking now and then lets SIGINT through (D3)
                await naps.nap(NAP_S)
        except (asyncio.CancelledError, KeyboardInterrupt):
            work.cancel()
            raise Cancelled("stopped") from None
        return work.result()

    def blocking(self) -> Any:
        """From synchronous code.

        Raises:
            Cancelled: Interrupted.
        """
        work = self._engine.submit(self._make())
        try:
            with interruptible():
                return work.result()
        except KeyboardInterrupt:
            work.cancel()
            raise Cancelled("stopped") from None
