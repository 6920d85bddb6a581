"""BackgroundRun: the handle of a run that goes on after its cell.

Source: notebook side, running a cell (D3, D5); case N05.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from notebook_agent.core.result import RunResult
from notebook_agent.engine.interrupts import interruptible
from notebook_agent.notebook.kernel_loop import Work
from notebook_agent.notebook.naps import TICK_S, LoopNaps, wake_when_done
from notebook_agent.notebook.own_cell import OwnCell

if TYPE_CHECKING:
    from notebook_agent.notebook.drive import RunDriver

__all__ = ["BackgroundRun"]

PLACED_S: Final = 2.0
LOOK_S: Final = 0.002


class BackgroundRun:
    """The handle of ``%%agent --background``.

    Await it, or call ``wait()``; ``cancel()`` stops the run; ``result`` is None while it runs.
    """

    def __init__(self, driver: RunDriver, work: Work[RunResult], cell: OwnCell) -> None:
        self._driver = driver
        self._work = work
        self._cell = cell
        self._painted = asyncio.Event()
        self._ticker: asyncio.Task[None] | None = None
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # a terminal: nothing ticks between prompts, wait() does
            return
        self._ticker = loop.create_task(self._tick())

    async def _tick(self) -> None:
        naps = LoopNaps(self._work)
        self._driver._rung_by(naps.ring)
        with self._driver._road.served():
            while not self._work.done():
                nap = self._cell.run(self._driver.tick)
                if self._driver.placed():
                    self._painted.set()
                await naps.nap(nap)
        self._close()
        self._painted.set()

    def _close(self) -> None:
        self._cell.run(lambda: self._driver._close(self._driver._outcome(self._work)))

    def _finish(self) -> RunResult:
        self._close()
        return self._driver._finish(self._work)

    # The first paint waits for the run's id, some milliseconds. Not every front end has a place
    # for what a cell shows after its end (classic ones drop it), so the cell ends after that.

    async def placed(self) -> BackgroundRun:
        """Wait for the first paint, in an awaited cell; the handle itself."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._painted.wait(), PLACED_S)
        return self

    def placed_blocking(self) -> BackgroundRun:
        """The same for code that holds its thread, which draws meanwhile."""
        until = time.monotonic() + PLACED_S
        while self._driver.can_block and not self.done and time.monotonic() < until:
            self._cell.run(self._driver.tick)
            if self._driver.placed():
                break
            time.sleep(LOOK_S)
        return self

    @property
    def done(self) -> bool:
        """Whether the run is over."""
        return self._work.done()

    @property
    def result(self) -> RunResult | None:
        """The result once the run is over, None before; raises what the run raised."""
        return self._finish() if self._work.done() else None

    def cancel(self) -> None:
        """Stop the run, as the Stop button does."""
        if not self._work.done():
            self._driver.cancel.cancel()

    def wait(self, timeout: float | None = None) -> RunResult | None:
        """Block until the run is over.

        Args:
            timeout: Seconds to wait at most, None for as long as it takes.

        Returns:
            The result, None when the time is up. An interrupt ends the waiting, not the run.
        """
        end = None if timeout is None else time.monotonic() + timeout
        with interruptible():
            while not self._work.done():
                left = TICK_S if end is None else min(TICK_S, end - time.monotonic())
                if left <= 0:
                    return None
                self._cell.run(self._driver.tick)
                time.sleep(left)
        return self.result

    def __await__(self) -> Generator[Any, None, RunResult]:
        return self._wait().__await__()

    async def _wait(self) -> RunResult:
        wake = wake_when_done(self._work)
        while not self._work.done():
            await asyncio.wait({wake}, timeout=TICK_S)
        return self._finish()

    def __repr__(self) -> str:
        how = "running"
        if self._work.done():
            outcome = self._driver._outcome(self._work)
            how = outcome.status.value if isinstance(outcome, RunResult) else type(outcome).__name__
        return f"<agent run in the background: {how}; .wait() .cancel() .result>"
