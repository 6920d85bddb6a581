"""CancelSignal, and the biased race: cancel, then deadline, then the call.

Source: LLM turn, "The non-streaming path" (L24-L28, L116-L119, L126, L127).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from notebook_agent.errors import Cancelled

__all__ = ["CancelSignal", "DeadlineReached", "race"]

T = TypeVar("T")


class DeadlineReached(Exception):
    """The race's deadline came first."""


class CancelSignal:
    """Fired from any thread; seen at once by whoever waits on an event loop (L116).

    One cancel = one cancelled run: the runtime re-arms the signal at the end of a run, so a
    cancel fired before ``run`` is seen by that run.

    Example:
        >>> signal = CancelSignal()
        >>> signal.cancel(); signal.cancel(); signal.is_cancelled()
        True
        >>> signal.reset(); signal.is_cancelled()
        False
    """

    def __init__(self) -> None:
        self._fired = threading.Event()
        self._lock = threading.Lock()
        self._listeners: dict[int, tuple[asyncio.AbstractEventLoop, Callable[[], None]]] = {}
        self._next = 0

    def cancel(self) -> None:
        """Fire. Idempotent, thread-safe, wakes every waiter."""
        with self._lock:
            if self._fired.is_set():
                return
            self._fired.set()
            listeners = list(self._listeners.values())
        for loop, callback in listeners:
            try:
                loop.call_soon_threadsafe(callback)
            except RuntimeError:  # that loop is closed: nobody waits there any more
                continue

    def is_cancelled(self) -> bool:
        """Whether it has fired."""
        return self._fired.is_set()

    def reset(self) -> None:
        """Re-arm."""
        self._fired.clear()

    def raise_if_cancelled(self) -> None:
        """Raise Cancelled when it has fired."""
        if self._fired.is_set():
            raise Cancelled

    def listen(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback`` on the running loop when the signal fires; at once if it has.

        Returns:
            A function that stops listening.
        """
        loop = asyncio.get_running_loop()
        with self._lock:
            key = self._next
            self._next += 1
            self._listeners[key] = (loop, callback)
            fired = self._fired.is_set()
        if fired:
            loop.call_soon(callback)

        def stop() -> None:
            with self._lock:
                self._listeners.pop(key, None)

        return stop

    async def wait(self) -> None:
        """Return when the signal has fired."""
        if self._fired.is_set():
            return
        fired: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        stop = self.listen(lambda: None if fired.done() else fired.set_result(None))
        try:
            await fired
        finally:
            stop()


async def race(
    signal: CancelSignal,
    timeout_s: float | None,
    work: Callable[[], Coroutine[Any, Any, T]],
    *,
    reply_first: bool = False,
) -> T:
    """Run ``work`` against the cancel signal and a deadline, with fixed priority.

    Args:
        signal: Looked at before ``work`` is even called: fired means nothing starts.
        timeout_s: Seconds; None disables the arm (L25), zero or less is already over.
        work: Makes the coroutine.
        reply_first: False: cancel, deadline, reply (L24). True: cancel, reply, deadline, and a
            reply that is ready counts even at or past the deadline (L61).

    Returns:
        What ``work`` returned.

    Raises:
        Cancelled: The signal fired; the work was cancelled and awaited (L126).
        DeadlineReached: The deadline came first; likewise.
    """
    # Ruling: L126, looked at before the work exists; one wake for all arms, which are then judged
    # in the stated order; the losers are cancelled and awaited
    signal.raise_if_cancelled()
    loop = asyncio.get_running_loop()
    task: asyncio.Task[T] = loop.create_task(work())
    wake: asyncio.Future[None] = loop.create_future()
    late = False

    def rouse() -> None:
        if not wake.done():
            wake.set_result(None)

    def expire() -> None:
        nonlocal late
        late = True
        rouse()

    stop = signal.listen(rouse)
    timer = None if timeout_s is None else loop.call_later(max(timeout_s, 0.0), expire)
    task.add_done_callback(lambda _t: rouse())
    try:
        await wake
        if reply_first and late:  # a reply that is ready in the deadline's own tick counts (L61)
            await asyncio.sleep(0)
        if signal.is_cancelled():
            raise Cancelled
        if task.done() and (reply_first or not late):
            return task.result()
        raise DeadlineReached
    finally:
        stop()
        if timer is not None:
            timer.cancel()
        await _end(task)


async def _end(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait for it, so that nothing outlives the turn."""
    if not task.done():
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    elif not task.cancelled():
        task.exception()  # mark it as looked at
