"""RunDriver: one run on the engine, driven from the kernel's thread.

The driver ticks, at most 30 times a second and when there is something to do (``naps``): it serves
the kernel road, drains the engine's events into the view and does all widget, display and print
calls, so that output lands in its own cell. The tick is also what lets an interrupt through: a
cell that only waits on a future is not woken.

Source: notebook side, running a cell (D2-D6, F11); cases K03, K04, N05, N08.
"""

from __future__ import annotations

import asyncio
import io
import logging
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, Protocol

from notebook_agent.core.result import RunResult
from notebook_agent.core.session import RunStatus
from notebook_agent.core.text import visible
from notebook_agent.engine.cancel import CancelSignal
from notebook_agent.engine.interrupts import ignored, noted
from notebook_agent.errors import AgentError, Cancelled
from notebook_agent.notebook.background import BackgroundRun
from notebook_agent.notebook.internal import internal_error
from notebook_agent.notebook.kernel_loop import EngineDriver, Work
from notebook_agent.notebook.naps import TICK_S, LoopNaps, ThreadNaps
from notebook_agent.notebook.own_cell import OwnCell
from notebook_agent.notebook.road import KernelRoad

__all__ = ["DRAIN_S", "TICK_S", "Outcome", "RunDriver", "View"]

DRAIN_S: Final = 0.8
# An interrupt between a cell's end and the kernel's reply makes ipykernel lose the reply, and the
# cell then runs for ever: a second press this soon after the first is taken by the cell itself.
PATIENCE_S: Final = 0.1

log = logging.getLogger("notebook_agent.notebook")

Outcome = RunResult | AgentError


class View(Protocol):
    """What shows a run. Every call comes from the driver's thread."""

    def open(self) -> None:
        """First paint, before the first event."""
        ...

    def tick(self) -> float | None:
        """Drain the engine's events, reduce them, show the newest state.

        Returns:
            For how long the next tick may be put off, seconds, by who rings when something comes;
            None for the usual ``TICK_S``.
        """
        ...

    def rung_by(self, ring: Callable[[], None]) -> None:
        """What to call, from any thread, when something comes that should be shown."""
        ...

    def placed(self) -> bool:
        """Whether the first paint stands in the cell."""
        ...

    def close(self, outcome: Outcome) -> None:
        """Drain the rest and show the end."""
        ...


class _NoView:
    def open(self) -> None: ...
    def tick(self) -> None: ...
    def rung_by(self, ring: Callable[[], None]) -> None: ...
    def placed(self) -> bool:
        return True

    def close(self, outcome: Outcome) -> None: ...


class RunDriver:
    """Drives one run.

    Args:
        start: Makes the run's coroutine; called on the kernel's thread.
        engine: Where it runs.
        cancel: The signal that the runtime of this run listens to.
        view: What shows it.
        road: Work for the kernel's thread.
        now: Monotonic seconds of the real clock.
    """

    def __init__(
        self,
        start: Callable[[], Coroutine[Any, Any, RunResult]],
        *,
        engine: EngineDriver,
        cancel: CancelSignal,
        view: View,
        road: KernelRoad,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._start = start
        self._engine = engine
        self.cancel = cancel
        self._view = view
        self._road = road
        self._now = now
        self._interrupted = False
        self._pressed_at = 0.0
        self._closed = False
        self._left = False  # the engine did not confirm a stop in time
        self._printed: io.StringIO | None = None
        self._printed_seen = 0

    # ---- three ways to drive ----------------------------------------------------------------

    async def awaited(self) -> RunResult:
        """Drive from a cell that IPython awaits.

        Returns:
            The result; status ``cancelled`` after the Stop button.

        Raises:
            Cancelled: The cell was interrupted; Run All stops (D4).
            AgentError: The run failed.
        """
        with self._road.served():
            self._drawn(self._view.open)
            work = self._begin()
            naps = LoopNaps(work)
            self._rung_by(naps.ring)
            deadline: float | None = None
            mains: set[asyncio.Future[None]] = set()  # main tools that are async
            while not work.done():
                try:
                    mains |= {asyncio.ensure_future(one) for one in self._road.serve()}
                    await naps.nap(self._show())
                except (asyncio.CancelledError, KeyboardInterrupt):
                    deadline = self._interrupt(deadline)
                except BaseException:  # nobody drives the run on: its session must not stay busy
                    self.cancel.cancel()
                    raise
                if self.cancel.is_cancelled():
                    for task in mains:
                        task.cancel()
                if deadline is not None and self._now() >= deadline:
                    break
            return self._finish(work)

    def blocking(self) -> RunResult:
        """Drive from synchronous code: ``run_cell_magic``, the terminal, a function.

        Raises:
            Cancelled: Interrupted.
            AgentError: The run failed, or this platform cannot block.
        """
        if not self._engine.own_thread:
            raise AgentError(
                "This Python has no threads, so a run cannot be waited for here.\n"
                "Type it at the top of a cell:  %%agent     or:  await agent.aask(...)"
            )
        with self._road.served(), noted() as pressed:
            self._drawn(self._view.open)
            work = self._begin()
            naps = ThreadNaps(work)
            self._rung_by(naps.ring)
            deadline: float | None = None
            while not work.done():
                try:
                    for awaitable in self._road.serve():
                        _refuse_async(awaitable)
                    naps.nap(self._show())
                    if pressed:
                        pressed.clear()
                        deadline = self._interrupt(deadline)
                except KeyboardInterrupt:  # of a tool or a question
                    deadline = self._interrupt(deadline)
                except BaseException:  # as above
                    self.cancel.cancel()
                    raise
                if deadline is not None and self._now() >= deadline:
                    break
            return self._finish(work)

    def background(self) -> BackgroundRun:
        """Start the run and return its handle; the view goes on on the kernel's loop."""
        self._drawn(self._view.open)
        return BackgroundRun(self, self._begin(), OwnCell.now())

    def placed(self) -> bool:
        """Whether the first paint stands in the cell."""
        return self._view.placed()

    @property
    def can_block(self) -> bool:
        """Whether the run goes on while this thread waits."""
        return self._engine.own_thread

    def _begin(self) -> Work[RunResult]:
        """Start the run; what observers and contributors print is caught for its cell (D20)."""
        from notebook_agent.engine.tools import capture  # noqa: PLC0415  # the engine loads at the first run

        async def caught() -> RunResult:
            with capture() as printed:
                self._printed = printed
                try:
                    return await self._start()
                except AgentError as error:
                    if not self._left:
                        raise
                    # Nobody asks for this end any more; asyncio would print it into a later cell.
                    log.debug("a run that was left has ended: %s", type(error).__name__)
                    raise asyncio.CancelledError from None

        return self._engine.submit(caught())

    def _rung_by(self, ring: Callable[..., None]) -> None:
        """Who sleeps between two ticks is woken by the view's news and by work on the road."""
        self._drawn(lambda: self._view.rung_by(ring))
        self._road.rung_by(ring)

    def _show(self) -> float:
        """Draw; how long the next tick may be put off."""
        self._print_caught()
        nap = self._drawn(self._view.tick)
        return TICK_S if nap is None or self._road.asking else nap

    def _drawn(self, draw: Callable[[], float | None]) -> float | None:
        """A view that breaks must not take the run with it, or leave it running unseen."""
        try:
            return draw()
        except Exception as error:
            log.exception("the view failed; the run goes on without it")
            self._view = _NoView()
            sys.stdout.write(f"the view failed ({type(error).__name__}); the run goes on\n")
            return None

    def _print_caught(self) -> None:
        printed = self._printed
        if printed is None or printed.tell() == self._printed_seen:
            return
        text = printed.getvalue()
        sys.stdout.write(visible(text[self._printed_seen :]))
        self._printed_seen = len(text)

    # ---- the end ----------------------------------------------------------------------------

    def _interrupt(self, deadline: float | None) -> float:
        """First interrupt: fire, and drain for a while. Later ones change nothing (K04)."""
        if not self._interrupted:
            self._pressed_at = self._now()
        self._interrupted = True
        self.cancel.cancel()
        return self._now() + DRAIN_S if deadline is None else deadline

    def _finish(self, work: Work[RunResult]) -> RunResult:
        with ignored():  # a second press must not cut the last drawing in two (K04)
            outcome = self._outcome(work)
            self._close(outcome)
            if self._interrupted:
                time.sleep(min(PATIENCE_S, max(0.0, self._pressed_at + PATIENCE_S - self._now())))
        if self._interrupted:
            raise _one_line_cancelled(outcome) from None
        if isinstance(outcome, AgentError):
            result = getattr(outcome, "result", None)
            if isinstance(outcome, Cancelled) and isinstance(result, RunResult):
                return result  # the Stop button: the cell ends normally (D4)
            raise outcome.with_traceback(None) from None
        return outcome

    def _outcome(self, work: Work[RunResult]) -> Outcome:
        if not work.done():
            self._left = True
            work.cancel()
            log.warning("the engine did not confirm a cancel within %s s", DRAIN_S)
            return Cancelled(f"stopped; the engine did not answer within {DRAIN_S} s")
        try:
            return work.result()
        except AgentError as error:
            return error
        except (asyncio.CancelledError, KeyboardInterrupt):
            return Cancelled("stopped")
        except BaseException as error:  # a defect, or exit(): said in one place, no locals
            log.debug("internal error", exc_info=True)
            return internal_error(error)

    def _close(self, outcome: Outcome) -> None:
        if not self._closed:
            self._closed = True
            self._print_caught()
            self._drawn(lambda: self._view.close(outcome))

    def tick(self) -> float:
        """One tick of a background run; how long the next may be put off."""
        if self._closed:
            return TICK_S
        for awaitable in self._road.serve():
            _refuse_async(awaitable)
        return self._show()


def _one_line_cancelled(outcome: Outcome) -> Cancelled:
    result = outcome if isinstance(outcome, RunResult) else getattr(outcome, "result", None)
    message = "stopped"
    if isinstance(outcome, RunResult) and outcome.status is RunStatus.COMPLETED:
        message = "stopped (the reply was already complete)"
    elif isinstance(outcome, Cancelled) and "did not answer" in outcome.message:
        message = outcome.message
    elif isinstance(outcome, AgentError) and not isinstance(outcome, Cancelled):
        message = f"stopped; {outcome.message.splitlines()[0]}"
    error = Cancelled(message)
    if isinstance(result, RunResult):
        error.result = result
        error.partial_text = result.text
    return error


def _refuse_async(awaitable: Any) -> None:
    """An async main tool cannot run where nothing awaits; its caller hears why."""
    try:
        awaitable.send(None)  # a coroutine that never waits ends here
    except StopIteration:
        return
    with suppress(StopIteration, RuntimeError):  # it ends, or goes on waiting and is closed
        awaitable.throw(RuntimeError("an async main tool needs an awaited cell: use %%agent"))
        awaitable.close()
