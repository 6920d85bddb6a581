"""How long a driver sleeps between two ticks, and what wakes it earlier.

Waking the kernel's loop costs as much as drawing does. So a driver with nothing to draw sleeps
``NAP_S``, and is rung awake from whatever thread has something for it: an event, text that has
waited long enough, work for the kernel's thread, the end of the run. Views are still drawn at most
30 times a second: who is woken earlier than ``TICK_S`` after the last drawing sleeps the rest,
unless work for the kernel's thread waits.

Source: notebook side, "Running a cell" (D2, D3), "The panel" (D13).
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any, Final

from notebook_agent.notebook.kernel_loop import Work

__all__ = ["NAP_S", "TICK_S", "LoopNaps", "ThreadNaps", "wake_when_done"]

TICK_S: Final = 1 / 30
NAP_S: Final = 0.1  # also what an interrupt waits for where no signal ends a wait

LITTLE_S: Final = 0.002  # not worth waking up once more for


class _Naps:
    """What both kinds of sleeper share.

    Args:
        work: The run; its end wakes the sleeper.
    """

    def __init__(self, work: Work[Any]) -> None:
        self._deep = False  # sleeps, and may be woken
        self._rung = False
        self._at_once = False
        self._over = False
        work.add_done_callback(self._ended)

    def ring(self, *, at_once: bool = False) -> None:
        """There is something to draw, or ``at_once`` something to do. From any thread."""
        self._rung = True
        self._at_once = self._at_once or at_once
        if self._deep:
            self._deep = False
            self._wake()

    def _ended(self, _work: Any) -> None:
        self._over = True
        self._wake()

    def _wake(self) -> None:
        raise NotImplementedError

    def _begin(self, seconds: float) -> float:
        """How long this nap is. A ring since the last tick, or from now on, cuts it short."""
        self._deep = seconds > TICK_S
        if not self._rung:
            return seconds
        self._deep = False
        return 0.0 if self._at_once else min(seconds, TICK_S)

    def _woken(self, slept: float, seconds: float) -> float:
        """What is left of the shortest nap for one who was woken."""
        left = min(seconds, TICK_S) - slept
        return 0.0 if self._over or self._at_once or left < LITTLE_S else left

    def _end(self) -> None:
        """Whatever rings from now on is for the next tick."""
        self._deep = self._rung = self._at_once = False


class LoopNaps(_Naps):
    """Naps of a driver on an event loop; made on that loop."""

    def __init__(self, work: Work[Any]) -> None:
        self._loop = asyncio.get_running_loop()
        self._bed: asyncio.Future[None] | None = None
        super().__init__(work)

    async def nap(self, seconds: float) -> None:
        """Sleep so long, or until there is something to do."""
        began = self._loop.time()
        try:
            await self._lie(self._begin(seconds))
            if left := self._woken(self._loop.time() - began, seconds):
                await self._lie(left)
        finally:
            self._end()

    async def _lie(self, seconds: float) -> None:
        self._bed = bed = self._loop.create_future()
        if self._over:
            return
        timer = self._loop.call_later(seconds, self._up)
        try:
            await bed
        finally:
            timer.cancel()

    def _up(self) -> None:
        if self._bed is not None and not self._bed.done():
            self._bed.set_result(None)

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._up)
        except RuntimeError:  # that loop is closed: nobody sleeps
            return


class ThreadNaps(_Naps):
    """Naps of a driver that blocks its thread."""

    def __init__(self, work: Work[Any]) -> None:
        self._bell = threading.Event()
        super().__init__(work)

    def nap(self, seconds: float) -> None:
        """Sleep so long, or until there is something to do."""
        began = time.monotonic()
        try:
            self._bell.wait(self._begin(seconds))
            if left := self._woken(time.monotonic() - began, seconds):
                self._bell.clear()
                if not self._over:
                    self._bell.wait(left)
        finally:
            self._bell.clear()
            self._end()

    def _wake(self) -> None:
        self._bell.set()


def wake_when_done(work: Work[Any]) -> asyncio.Future[None]:
    """A future of the running loop that is done when the work is."""
    loop = asyncio.get_running_loop()
    wake: asyncio.Future[None] = loop.create_future()

    def there() -> None:
        if not wake.done():
            wake.set_result(None)

    def done(_work: Any) -> None:
        try:
            loop.call_soon_threadsafe(there)
        except RuntimeError:  # that loop is closed: nobody waits
            return

    work.add_done_callback(done)
    return wake
