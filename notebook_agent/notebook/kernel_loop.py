"""Where the engine runs: its own daemon thread with its own event loop, or the kernel's loop.

The kernel's loop is never patched and never blocked by a request. The thread starts with the
first run, not when the extension is loaded. Browsers' Python has no threads: there the engine's
coroutines run on the kernel's own loop, behind the same interface.

Source: notebook side, running a cell and front ends (D2, F7).
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, TypeVar

__all__ = ["EngineDriver", "SameLoop", "ThreadLoop", "Work", "default_driver"]

log = logging.getLogger("notebook_agent.notebook")

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

START_TIMEOUT_S: Final = 10.0


class Work(Protocol[T_co]):
    """A coroutine at work on the engine's loop; a concurrent future or a task."""

    def done(self) -> bool:
        """Whether it is over."""
        ...

    def result(self) -> T_co:
        """What it returned or raised, once ``done``."""
        ...

    def cancel(self) -> bool:
        """Cancel it from outside."""
        ...

    def add_done_callback(self, fn: Callable[[Any], object], /) -> None:
        """Call ``fn`` when it is over, on any thread."""
        ...


class EngineDriver(Protocol):
    """Runs the engine's coroutines (F7).

    Attributes:
        own_thread: The engine has a thread of its own: a blocking caller may wait for it.
    """

    own_thread: bool

    def submit(self, coro: Coroutine[Any, Any, T]) -> Work[T]:
        """Start a coroutine on the engine's loop."""
        ...

    def close(self) -> None:
        """End the loop and its thread; what still runs is cancelled."""
        ...


class ThreadLoop:
    """One daemon thread with one asyncio loop, made at the first ``submit``."""

    own_thread = True

    def __init__(self, name: str = "notebook-agent-engine") -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = 0

    @property
    def started(self) -> bool:
        """Whether the thread is there."""
        return self._thread is not None and self._thread.is_alive() and self._pid == os.getpid()

    def submit(self, coro: Coroutine[Any, Any, T]) -> Work[T]:
        """Start a coroutine on the engine's loop; its context is a copy of the caller's."""
        return asyncio.run_coroutine_threadsafe(coro, self._ensure())

    def _ensure(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            # A forked child inherits the object but not the thread.
            if self._loop is None or not self.started:
                self._loop = self._start()
            return self._loop

    def _start(self) -> asyncio.AbstractEventLoop:
        ready = threading.Event()
        loop = asyncio.new_event_loop()

        def work() -> None:
            asyncio.set_event_loop(loop)
            loop.call_soon(ready.set)
            try:
                _run(loop)
            finally:
                _finish(loop)

        self._thread = threading.Thread(target=work, name=self._name, daemon=True)
        self._pid = os.getpid()
        self._thread.start()
        ready.wait(START_TIMEOUT_S)
        return loop

    def close(self) -> None:
        """End the loop and its thread; what still runs is cancelled. Harmless when not started."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None or not thread.is_alive():
            return
        loop.call_soon_threadsafe(loop.stop)
        if thread is not threading.current_thread():
            thread.join(START_TIMEOUT_S)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """Until it is stopped. A task that meets ``exit()`` ends itself, not the loop of all others."""
    while True:
        try:
            loop.run_forever()
        except (SystemExit, KeyboardInterrupt) as error:
            log.warning("a task of the engine met %s", type(error).__name__)
        else:
            return


def _finish(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what is left, close generators, close the loop."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


class SameLoop:
    """The engine's coroutines on the loop that is running: Python in a browser."""

    own_thread = False

    def submit(self, coro: Coroutine[Any, Any, T]) -> Work[T]:
        """Start a coroutine as a task of the running loop."""
        return asyncio.get_running_loop().create_task(coro)

    def close(self) -> None:
        """Nothing to end."""


def default_driver() -> EngineDriver:
    """``ThreadLoop`` wherever there are threads."""
    return SameLoop() if sys.platform == "emscripten" else ThreadLoop()
