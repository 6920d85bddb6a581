"""Where the cells of a sweep are worked: this process's event loop, or an executor of the user's.

The sweep only needs ``submit(function, *arguments) -> concurrent.futures.Future``. On one machine
:class:`AsyncExecutor` works coroutines with a limit and a rate for each provider; a thread or
process pool and ``dask.distributed``'s ``Client.get_executor()`` do as they are.

Source: tune by experiment, sweeps (executors, rates, retries 0).
"""

from __future__ import annotations

import asyncio
import concurrent.futures as cf
import inspect
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final

from notebook_agent.errors import AgentError, ConfigError

__all__ = ["AsyncExecutor", "Limit", "Worked", "acall", "call", "lost_kinds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What a provider is asked at most.

    Attributes:
        concurrency: Calls in flight, 1 or more.
        per_minute: Calls begun in a minute, evenly spread; None = no limit.
    """

    concurrency: int = 8
    per_minute: float | None = None

    def __post_init__(self) -> None:
        many: object = self.concurrency
        if not isinstance(many, int) or isinstance(many, bool) or many < 1:
            raise ConfigError(field="concurrency", value=many, legal="a whole number, 1 or more")
        rate: object = self.per_minute
        number = isinstance(rate, (int, float)) and not isinstance(rate, bool)
        if rate is not None and not (number and 0 < float(rate) < float("inf")):  # type: ignore[arg-type]  # a number
            raise ConfigError(
                field="per_minute", value=self.per_minute, legal="a number above 0, or None"
            )


@dataclass(frozen=True, slots=True)
class Worked:
    """What working a cell came to; it travels back from other processes.

    ``value`` is what the work returned, ``error`` its error's JSON; seconds.
    """

    value: Any = None
    error: Mapping[str, Any] | None = None
    duration_s: float = 0.0


def error_json(error: BaseException) -> dict[str, Any]:
    """An error for the journal: every AgentError's own fields, of others class and words."""
    if isinstance(error, AgentError):
        return error.to_json()
    return {"error": type(error).__name__, "message": str(error)[:2_000]}


def call(work: Callable[[Any], Any], cell: Any) -> Worked:
    """Work one cell in a thread or process; an error of the work is an answer too."""
    began = time.perf_counter()
    try:
        value = work(cell)
        if inspect.isawaitable(value):
            value = asyncio.run(_awaited(value))
    except Exception as error:  # noqa: BLE001  # the row tells it
        return Worked(error=error_json(error), duration_s=time.perf_counter() - began)
    return Worked(value, duration_s=time.perf_counter() - began)


async def acall(work: Callable[[Any], Any], cell: Any) -> Worked:
    """Work one cell on the running loop; an error of the work is an answer too."""
    began = time.perf_counter()
    try:
        value = await work(cell)
    except Exception as error:  # noqa: BLE001  # the row tells it
        return Worked(error=error_json(error), duration_s=time.perf_counter() - began)
    return Worked(value, duration_s=time.perf_counter() - began)


async def _awaited(value: Any) -> Any:
    return await value


class _Lane:
    """One provider's calls: a limit on those in flight, and a rate of beginnings."""

    def __init__(self, limit: Limit) -> None:
        self.free = limit.concurrency
        self.gap_s = 0.0 if limit.per_minute is None else 60.0 / limit.per_minute
        self.next_at = 0.0
        self.waiting: deque[_Job] = deque()
        self.timer: asyncio.TimerHandle | None = None


_Job = tuple["cf.Future[Any]", Callable[..., Coroutine[Any, Any, Any]], tuple[Any, ...]]


class AsyncExecutor(cf.Executor):
    """Works coroutine functions on an event loop in a thread of its own.

    Args:
        limit: For providers that ``providers`` does not name; calls of no provider share it.
        providers: Provider name -> its limit.

    A call's provider is the ``provider`` of its last argument, a cell.

    Example:
        >>> async def double(n):
        ...     return 2 * n
        >>> with AsyncExecutor() as executor:
        ...     executor.submit(double, 21).result()
        42
    """

    def __init__(
        self, limit: Limit | None = None, providers: Mapping[str, Limit] | None = None
    ) -> None:
        self._limit = limit or Limit()
        self._limits = dict(providers or {})
        self._lanes: dict[str, _Lane] = {}
        self._new: deque[tuple[str, _Job]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._woken = False
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="sweep", daemon=True)
        self._thread.start()

    def capacity(self, providers: frozenset[str] | set[str]) -> int:
        """Calls that can be in flight at once over these providers."""
        return sum(self._limits.get(name, self._limit).concurrency for name in providers or {""})

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> cf.Future[Any]:
        """Work ``fn(*args)`` on the loop once its provider has room.

        Raises:
            RuntimeError: The executor was shut down.
        """
        if self._closed:
            raise RuntimeError("the executor was shut down")
        if kwargs:
            raise TypeError("give arguments by position")
        future: cf.Future[Any] = cf.Future()
        lane = str(getattr(args[-1], "provider", "")) if args else ""
        self._new.append((lane, (future, fn, args)))
        if not self._woken:  # one wake for a whole batch
            self._woken = True
            self._loop.call_soon_threadsafe(self._take_new)
        return future

    def shutdown(
        self, wait: bool = True, *, cancel_futures: bool = False
    ) -> None:  # as cf.Executor
        """Take no more calls; ``cancel_futures`` cancels those that wait and those in flight."""
        if self._closed and not self._thread.is_alive():
            return
        self._closed = True
        self._loop.call_soon_threadsafe(self._finish, cancel_futures)
        if wait:
            self._thread.join()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    def _take_new(self) -> None:
        self._woken = False
        lanes = set()
        while self._new:
            name, job = self._new.popleft()
            lane = self._lanes.get(name)
            if lane is None:
                lane = self._lanes[name] = _Lane(self._limits.get(name, self._limit))
            lane.waiting.append(job)
            lanes.add(name)
        for name in lanes:
            self._feed(self._lanes[name])

    def _feed(self, lane: _Lane) -> None:
        """Begin what has room; a rate that says later sets a timer."""
        while lane.waiting and lane.free > 0:
            now = self._loop.time()
            if lane.gap_s and now < lane.next_at:
                if lane.timer is None:
                    lane.timer = self._loop.call_at(lane.next_at, self._rung, lane)
                return
            future, fn, args = lane.waiting.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            lane.next_at = max(now, lane.next_at) + lane.gap_s
            lane.free -= 1
            task = self._loop.create_task(self._work(lane, future, fn, args))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if self._closed:
            self._end_when_idle()

    def _rung(self, lane: _Lane) -> None:
        lane.timer = None
        self._feed(lane)

    async def _work(
        self,
        lane: _Lane,
        future: cf.Future[Any],
        fn: Callable[..., Any],
        args: tuple[Any, ...],
    ) -> None:
        try:
            result = await fn(*args)
        except asyncio.CancelledError as stopped:
            future.set_exception(cf.CancelledError(str(stopped)))
        except BaseException as error:  # noqa: BLE001  # it is the future's
            future.set_exception(error)
        else:
            future.set_result(result)
        lane.free += 1
        self._feed(lane)

    def _finish(self, cancel: bool) -> None:  # from shutdown only
        if cancel:
            for lane in self._lanes.values():
                while lane.waiting:
                    lane.waiting.popleft()[0].cancel()
            for task in list(self._tasks):
                task.cancel()
        self._end_when_idle()

    def _end_when_idle(self) -> None:
        busy = any(lane.waiting or lane.free < self._full(n) for n, lane in self._lanes.items())
        if not busy and not self._new:
            self._loop.call_soon(self._loop.stop)

    def _full(self, name: str) -> int:
        return self._limits.get(name, self._limit).concurrency


# Errors of a future that say: the worker is gone, not: the work failed.
_LOST_NAMES: Final = frozenset(
    {"KilledWorker", "CommClosedError", "FutureCancelledError", "BrokenProcessPool"}
)


def lost_kinds(error: BaseException) -> bool:
    """Whether a future's error means that its worker died."""
    return isinstance(error, (cf.CancelledError, cf.BrokenExecutor)) or (
        type(error).__name__ in _LOST_NAMES
    )
