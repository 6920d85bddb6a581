"""KernelRoad: work that the engine hands to the kernel's thread, done between two ticks.

``@tool(main=True)`` runs there, and a person is asked there whether a tool may run: by a button
of the panel where clicks arrive, else by the kernel's stdin in short waits, else the answer is no.

Source: notebook side, "Whose thread runs notebook code" (D20).
"""

from __future__ import annotations

import asyncio
import inspect
import queue
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from notebook_agent.engine.interrupts import interruptible

__all__ = ["Asker", "KernelRoad", "no_asker"]


class Asker(Protocol):
    """Asks a person one question without blocking."""

    def open(self, prompt: str) -> bool | None:
        """Show the question; False when nobody can be asked, None when that is not known yet
        (then it is called again on the next tick)."""
        ...

    def poll(self) -> str | None:
        """The answer, None while there is none."""
        ...

    def close(self) -> None:
        """The question is void."""
        ...


class _NoAsker:
    def open(self, prompt: str) -> bool:  # noqa: ARG002  # the protocol's signature
        return False

    def poll(self) -> str | None:
        return None

    def close(self) -> None: ...


def no_asker() -> Asker:
    """Nobody can be asked: headless."""
    return _NoAsker()


@dataclass(slots=True)
class _Job:
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    call: Callable[[], Any] | None = None
    question: str = ""
    asker: Callable[[], Asker] | None = None


@dataclass(slots=True)
class _Question:
    job: _Job
    asker: Asker
    opened: bool = False


@dataclass(slots=True)
class KernelRoad:
    """One per session; the engine's side is async, the kernel's side is called on each tick."""

    asker: Callable[[], Asker] = no_asker
    _jobs: queue.SimpleQueue[_Job] = field(default_factory=queue.SimpleQueue)
    _asking: _Question | None = None
    _next: deque[_Job] = field(default_factory=deque)  # a person is asked one thing at a time
    _served_by: int = 0
    # The newest drivers' bells; a driver that is gone is deaf.
    _rings: deque[Callable[..., None]] = field(default_factory=lambda: deque(maxlen=8))

    # ---- the engine's side ----------------------------------------------------------------

    async def run_on_main(self, call: Callable[[], Any]) -> Any:
        """Run ``call`` in the kernel's thread, between ticks; returns what it returns."""
        return await self._put(call=call)

    async def ask(self, question: str, *, asker: Callable[[], Asker] | None = None) -> bool | None:
        """Ask a person; None when nobody can be asked or nobody answers.

        Args:
            question: What a prompt shows.
            asker: How this question is asked, instead of the road's own way; called in the
                kernel's thread.
        """
        answer = await self._put(question=question, asker=asker)
        return answer if isinstance(answer, bool) else None

    async def _put(
        self,
        *,
        call: Callable[[], Any] | None = None,
        question: str = "",
        asker: Callable[[], Asker] | None = None,
    ) -> Any:
        loop = asyncio.get_running_loop()
        if not self._served_by:
            # No cell drives this run (a background run in a terminal, a script).
            if call is None:
                return None
            msg = "this tool must run in the notebook's own thread, and no cell is driving the run"
            raise RuntimeError(msg)
        future: asyncio.Future[Any] = loop.create_future()
        self._jobs.put(_Job(loop, future, call, question, asker))
        for ring in list(self._rings):
            ring(at_once=True)
        return await future

    # ---- the kernel's side ----------------------------------------------------------------

    @contextmanager
    def served(self) -> Iterator[None]:
        """While a driver ticks."""
        self._served_by += 1
        try:
            yield
        finally:
            self._served_by -= 1
            if not self._served_by:
                self._rings.clear()
                self._abandon()

    def rung_by(self, ring: Callable[..., None]) -> None:
        """Who serves is woken by this when there is work: ``ring(at_once=True)``."""
        self._rings.append(ring)

    @property
    def asking(self) -> bool:
        """Whether a person is being asked: the answer is looked for at each tick."""
        return self._asking is not None or bool(self._next)

    def serve(self) -> list[Awaitable[None]]:
        """Do what is waiting; called on each tick in the kernel's thread.

        Returns:
            Coroutines of main tools that are async; an awaiting driver awaits them.
        """
        self._poll_question()
        later: list[Awaitable[None]] = []
        while True:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return later
            if job.future.cancelled():
                continue
            if job.call is None:
                self._next.append(job)
                self._poll_question()
            else:
                awaitable = _run(job)
                if awaitable is not None:
                    later.append(awaitable)

    def _poll_question(self) -> None:
        while True:
            one = self._asking
            if one is None:
                if not self._next:
                    return
                job = self._next.popleft()
                one = self._asking = _Question(job, (job.asker or self.asker)())
            if one.job.future.cancelled():
                self._void(one)
                continue
            if not one.opened:
                with interruptible():  # a terminal's question holds the thread
                    opened = one.asker.open(one.job.question)
                if opened is None:
                    return
                if not opened:
                    self._asking = None
                    _settle(one.job, value=None)
                    continue
                one.opened = True
            answer = one.asker.poll()
            if answer is None:
                return
            self._asking = None
            _settle(one.job, value=answer.strip().lower() in ("y", "yes"))

    def _void(self, one: _Question) -> None:
        self._asking = None
        if one.opened:
            one.asker.close()

    def _abandon(self) -> None:
        if self._asking is not None:
            _settle(self._asking.job, value=None)
            self._void(self._asking)
        while self._next:
            _settle(self._next.popleft(), value=None)
        while True:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return
            _settle(job, value=None)


def _run(job: _Job) -> Awaitable[None] | None:
    assert job.call is not None
    try:
        with interruptible():  # a tool that holds the thread must see Stop (F11)
            value = job.call()
    except KeyboardInterrupt:
        _settle(job, error=RuntimeError("interrupted"))
        raise
    except BaseException as error:  # noqa: BLE001  # exit() in a tool must not end the cell unheard
        _settle(job, error=error)
        return None
    if inspect.isawaitable(value):
        return _finish(job, value)
    _settle(job, value=value)
    return None


async def _finish(job: _Job, value: Awaitable[Any]) -> None:
    try:
        _settle(job, value=await value)
    except asyncio.CancelledError:
        _settle(job, error=RuntimeError("interrupted"))
        raise
    except BaseException as error:  # noqa: BLE001  # as in _run: it would end the kernel's loop
        _settle(job, error=error)


def _settle(job: _Job, *, value: Any = None, error: BaseException | None = None) -> None:
    if isinstance(error, (StopIteration, GeneratorExit)):  # neither reaches who awaits a future
        error = RuntimeError(type(error).__name__)

    def there() -> None:
        if job.future.done():
            return
        if error is None:
            job.future.set_result(value)
        else:
            job.future.set_exception(error)

    try:
        job.loop.call_soon_threadsafe(there)
    except RuntimeError:  # the engine's loop is closed: nobody waits
        return
