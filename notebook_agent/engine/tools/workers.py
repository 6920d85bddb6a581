"""Where tools run: worker threads, the call's own cancel signal, captured output.

A sync tool cannot be stopped from outside. It gets :func:`current_cancel` to poll; when its
call is cancelled or timed out it is abandoned: its thread goes on, its late result is thrown
away and logged, and :func:`abandoned_tools` counts it (D20). An async tool is cancelled; one
that will not end within a grace period is abandoned the same way.

Source: Turn FSM, "ExecutingTools" (B51, D20); L118.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import io
import itertools
import logging
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TextIO

from notebook_agent.engine.cancel import CancelSignal
from notebook_agent.errors import AgentError, Cancelled

__all__ = [
    "MAX_ABANDONED",
    "Done",
    "TooManyAbandoned",
    "ToolCancel",
    "abandoned_tools",
    "as_call",
    "capture",
    "current_cancel",
    "current_sink",
    "run_async_tool",
    "run_sync_tool",
]

log = logging.getLogger("notebook_agent.tools")

# Threads are named so that a test loop and a person can tell them from others.
THREAD_NAME: Final = "notebook-agent-tool"
MAX_ABANDONED: Final = 32  # threads; past this a sync tool is refused, not piled on top
GRACE_S: Final = 0.25  # seconds an async tool has to clean up after its cancel


class TooManyAbandoned(AgentError):
    """So many abandoned tools still run that no more are started."""


class ToolCancel(CancelSignal):
    """The signal of one call: fires on cancel, time-out, and when the call is abandoned."""

    def sleep(self, seconds: float) -> None:
        """Sleep, for sync tools; ends at once when the signal fires.

        Raises:
            Cancelled: The signal fired.
        """
        if self._fired.wait(seconds):
            raise Cancelled


_current: contextvars.ContextVar[ToolCancel | None] = contextvars.ContextVar(
    "notebook_agent_tool_cancel", default=None
)

_sink: contextvars.ContextVar[io.StringIO | None] = contextvars.ContextVar(
    "notebook_agent_tool_sink", default=None
)


def current_cancel() -> ToolCancel:
    """The cancel signal of the tool call that runs here.

    A sync tool polls it in its loop: ``current_cancel().raise_if_cancelled()``, or waits with
    ``current_cancel().sleep(1)``. Outside of a call it is a signal that never fires, so that a
    tool may be tried by hand.
    """
    return _current.get() or ToolCancel()


@dataclass(frozen=True, slots=True)
class Done:
    """What a tool's body came to: a value, or what it raised (nothing is raised through)."""

    value: Any = None
    error: BaseException | None = None


_lock = threading.Lock()
_abandoned: dict[int, str] = {}
_keys = itertools.count()


def abandoned_tools() -> int:
    """How many abandoned tools still run."""
    with _lock:
        return len(_abandoned)


def _abandon(name: str) -> int:
    key = next(_keys)
    with _lock:
        _abandoned[key] = name
    return key


def _settle(key: int) -> None:
    with _lock:
        name = _abandoned.pop(key, "?")
    log.warning("tool %s ended after its call was given up; its result is thrown away", name)


class _Job:
    """One sync call in a thread of its own; decides once between delivered and abandoned."""

    def __init__(self, name: str, body: Callable[[], Done]) -> None:
        self._name = name
        self._body = body
        self._loop = asyncio.get_running_loop()
        self._key: int | None = None
        self._over = False
        self.future: asyncio.Future[Done] = self._loop.create_future()
        # A daemon: an abandoned tool must not keep the kernel from ending.
        self.thread = threading.Thread(target=self._run, name=f"{THREAD_NAME} {name}", daemon=True)

    def _run(self) -> None:
        done = self._body()
        with _lock:
            self._over = True
            key = self._key
        if key is not None:
            _settle(key)
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._deliver, done)

    def _deliver(self, done: Done) -> None:
        if not self.future.done():
            self.future.set_result(done)

    def abandon(self) -> None:
        with _lock:
            if self._over or self._key is not None:
                return
            self._key = key = next(_keys)
            _abandoned[key] = self._name
        log.warning("tool %s does not end; its call was given up", self._name)


async def run_sync_tool(name: str, body: Callable[[], Any], token: ToolCancel) -> Done:
    """Run a sync body in a thread, with the caller's context variables copied.

    Args:
        name: For thread name and log.
        body: Called with ``current_cancel()`` set to ``token``; may raise anything.
        token: Fired here when the awaiting task is cancelled.

    Returns:
        What it came to.

    Raises:
        TooManyAbandoned: :data:`MAX_ABANDONED` threads already hang.
    """
    if abandoned_tools() >= MAX_ABANDONED:
        raise TooManyAbandoned(
            f"{MAX_ABANDONED} tools that were given up still run in this process. "
            "Restart the kernel to be rid of them."
        )
    context = contextvars.copy_context()
    job = _Job(name, lambda: context.run(_call, body, token))
    job.thread.start()
    try:
        return await job.future
    except asyncio.CancelledError:
        token.cancel()
        job.abandon()
        raise
    finally:
        if job.future.done() and not job.future.cancelled():
            job.thread.join(0.1)  # it has delivered and is ending: nothing outlives the call


def _call(body: Callable[[], Any], token: ToolCancel) -> Done:
    _current.set(token)
    try:
        return Done(body())
    except BaseException as error:  # noqa: BLE001  # exit() in a tool must not end the thread unheard
        return Done(error=error)


async def run_async_tool(name: str, body: Callable[[], Awaitable[Any]], token: ToolCancel) -> Done:
    """Run an async body as a task of its own on this loop.

    When the awaiting task is cancelled the body is cancelled and has :data:`GRACE_S` seconds to
    clean up; one that swallows its cancel is abandoned.

    Args:
        name: For the log.
        body: Makes the awaitable; may raise anything.
        token: What ``current_cancel()`` gives inside; fired on cancel.
    """

    async def run() -> Done:
        _current.set(token)
        task = asyncio.current_task()
        try:
            return Done(await body())
        except asyncio.CancelledError as error:
            if task is not None and task.cancelling():
                raise
            return Done(error=error)  # the tool's own, say of a scope inside it
        except BaseException as error:  # noqa: BLE001  # SystemExit would end the engine's loop
            return Done(error=error)

    task = asyncio.get_running_loop().create_task(run(), name=f"{THREAD_NAME} {name}")
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        token.cancel()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):  # cancelled twice: no more grace
            await asyncio.wait({task}, timeout=GRACE_S)
        if not task.done():
            log.warning("tool %s swallows its cancel; its call was given up", name)
            key = _abandon(name)
            task.add_done_callback(lambda _task: _settle(key))
        raise


@contextlib.contextmanager
def as_call(token: ToolCancel, sink: io.StringIO | None) -> Iterator[None]:
    """Inside, ``current_cancel()`` is the call's and what is printed goes to ``sink``.

    For code that runs in somebody else's context, which must stay theirs: the notebook's own
    routes its displays by context variables.
    """
    ours = _current.set(token)
    printed = _sink.set(sink)
    try:
        yield
    finally:
        _sink.reset(printed)
        _current.reset(ours)


def current_sink() -> io.StringIO | None:
    """Where this context's prints go, None = nowhere special."""
    return _sink.get()


# --- captured output --------------------------------------------------------------------


class _Router:
    """Stands at ``sys.stdout``: what a tool prints goes to its own buffer, all else through.

    By context variable, not by thread: it holds for worker threads, async tools on the shared
    loop, and tools in the notebook's thread alike.
    """

    def __init__(self, behind: TextIO) -> None:
        self.behind = behind

    def write(self, text: str) -> int:
        sink = _sink.get()
        return self.behind.write(text) if sink is None else sink.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        if _sink.get() is None:
            self.behind.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.behind, name)


_capturing = 0


@contextlib.contextmanager
def capture() -> Iterator[io.StringIO]:
    """Collect what is printed in this context (and in those copied from it).

    The streams are replaced while any capture is open and put back by the last one, unless
    somebody else has replaced them meanwhile.
    """
    buffer = io.StringIO()
    _install(+1)
    token = _sink.set(buffer)
    try:
        yield buffer
    finally:
        with contextlib.suppress(ValueError):  # closed in another context
            _sink.reset(token)
        _install(-1)


def _install(step: int) -> None:
    global _capturing
    with _lock:
        _capturing += step
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if _capturing and stream is not None and type(stream) is not _Router:
                setattr(sys, name, _Router(stream))
            elif not _capturing and type(stream) is _Router:
                setattr(sys, name, stream.behind)
