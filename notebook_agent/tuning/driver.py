"""The driver of a sweep: rounds of take in, write, send.

In one round it takes in what came back, writes it, writes what goes out next, and sends that: the
group is as large as what arrived meanwhile, so a slow provider gets each answer on disk at once
and a fast one pays for few transactions.

Source: tune by experiment, sweeps (journal, kills, interrupt, executors).
"""

from __future__ import annotations

import concurrent.futures as cf
import contextlib
import inspect
import json
import queue
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from notebook_agent.core.text import clean_text
from notebook_agent.errors import AgentError, ConfigError, StoreError
from notebook_agent.tuning.cells import Cell
from notebook_agent.tuning.dask_side import is_dask, strict
from notebook_agent.tuning.executors import (
    AsyncExecutor,
    Limit,
    Worked,
    acall,
    call,
    error_json,
    lost_kinds,
)
from notebook_agent.tuning.journal import Answer, Begun, Journal

__all__ = ["PATIENCE_S", "Driver", "Job", "Progress"]

PATIENCE_S: Final = 0.2  # seconds between two looks for Ctrl-C
_LEAST_WINDOW: Final = 64  # cells in flight on an executor that does not say its size
_LOST: Final = {
    "error": "WorkerLost",
    "message": "the worker died twice with this cell; send it again with run(retry_failed=True)",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a sweep stands; cells. ``resent`` counts sends made again after something died."""

    total: int
    done: int = 0
    failed: int = 0
    resent: int = 0
    in_flight: int = 0
    elapsed_s: float = 0.0
    finished: bool = False

    @property
    def answered(self) -> int:
        """Cells with an answer, good or bad."""
        return self.done + self.failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a driver works: the sweep's parts."""

    work: Callable[[Cell], Any]
    cells: Sequence[Cell]
    journal: Journal
    limit: Limit
    providers: Mapping[str, Limit]
    stop: threading.Event
    unsaved: dict[bytes, Answer]


class Driver:
    """One run of a sweep: what is to be sent, in flight, and arrived but not yet written."""

    def __init__(
        self, job: Job, stack: contextlib.ExitStack, executor: Any, *, retry_failed: bool
    ) -> None:
        self.job, self.journal = job, job.journal
        if job.unsaved:  # answers that came when the disk was full: they are paid for
            self.journal.finish(list(job.unsaved.values()))
            job.unsaved.clear()
        known = self.journal.known()
        again = {k for k, v in known.items() if v.status == "started"}
        over = {"done"} if retry_failed else {"done", "failed"}
        self.todo = deque(
            cell
            for cell in job.cells
            if cell.key not in known or known[cell.key].status not in over
        )
        self.again = again
        mine = [known[c.key] for c in job.cells if c.key in known]
        self.done = sum(v.status == "done" for v in mine)
        self.failed = 0 if retry_failed else sum(v.status == "failed" for v in mine)
        self.resent = sum(v.resent for v in mine)
        self.flying: dict[cf.Future[Any], Cell] = {}
        self.lost_once: set[bytes] = set()
        self.arrived: queue.SimpleQueue[cf.Future[Any]] = queue.SimpleQueue()
        self.unwritten: list[tuple[Cell, Answer]] = []
        self.broken: BaseException | None = None
        self._reruns: Callable[[], dict[str, int]] | None = None
        self._tasks: dict[str, bytes] = {}
        self._prepare(stack, executor)

    def _prepare(self, stack: contextlib.ExitStack, executor: Any) -> None:
        """The executor, how to submit to it, and how many cells it gets at a time."""
        work = self.job.work
        is_async = inspect.iscoroutinefunction(work) or inspect.iscoroutinefunction(
            getattr(work, "__call__", None)  # noqa: B004  # an object with async __call__
        )
        providers = {cell.provider for cell in self.job.cells}
        if executor is None:
            limit, named = self.job.limit, self.job.providers
            if is_async:
                executor = AsyncExecutor(limit, named)
            else:
                executor = cf.ThreadPoolExecutor(limit.concurrency, "sweep")
            stack.callback(executor.shutdown, wait=True, cancel_futures=True)
        if isinstance(executor, type) or not callable(getattr(executor, "submit", None)):
            raise ConfigError(
                field="executor",
                value=executor,
                legal="something with submit(function, *arguments), e.g. ThreadPoolExecutor(8)",
            )
        self.executor = executor
        self.function: Any = acall if isinstance(executor, AsyncExecutor) else call
        if isinstance(executor, AsyncExecutor) and not is_async:
            raise ConfigError(
                "An AsyncExecutor works coroutine functions, and this work is a plain one.\n"
                "Write it with async def, or give a ThreadPoolExecutor."
            )
        size = (
            executor.capacity(providers)
            if isinstance(executor, AsyncExecutor)
            else getattr(executor, "_max_workers", None)
        )
        if is_dask(executor):
            self._reruns = stack.enter_context(strict(executor))
            size = sum(executor._client.nthreads().values()) or 1
        # Twice the size: the executor always has a next cell while the driver writes.
        self.window = max(2 * int(size or 0), 4 if size else _LEAST_WINDOW)

    def rounds(self) -> Iterator[Progress]:
        """Send, wait, write, until nothing is left or a stop is asked for."""
        stop = self.job.stop
        while (self.todo or self.flying) and not stop.is_set():
            if self.broken is None:
                self._send()
            elif not self.flying:
                break
            self._take_in()
            yield self.state()
        self._count_reruns()
        if self.broken is not None:
            raise AgentError(
                f"The executor broke ({self.broken}); {self.done:,} answers are kept.\n"
                "Run the same sweep again with a new executor: it goes on where it is."
            ) from self.broken

    def state(self) -> Progress:
        """Where it stands."""
        return Progress(
            total=len(self.job.cells), done=self.done, failed=self.failed, resent=self.resent,
            in_flight=len(self.flying),
        )  # fmt: skip

    def _send(self) -> None:
        room = self.window - len(self.flying)
        batch = [self.todo.popleft() for _ in range(min(room, len(self.todo)))]
        if not batch:
            return
        resent = [cell for cell in batch if cell.key in self.again]
        try:
            self.journal.begin(
                [Begun(c.key, c.place, c.spec(), c.key in self.again) for c in batch]
            )
        except BaseException:
            self.todo.extendleft(reversed(batch))
            raise
        self.resent += len(resent)
        self.again.difference_update(cell.key for cell in resent)
        for cell in batch:
            try:
                future = self._submit(cell)
            except Exception as error:  # noqa: BLE001  # an executor of the user's
                self.broken = error
                return
            self.flying[future] = cell
            future.add_done_callback(self.arrived.put)

    def _submit(self, cell: Cell) -> cf.Future[Any]:
        given: dict[str, Any] = {}
        if self._reruns is not None:
            task = f"sweep-{uuid.uuid4().hex}"
            self._tasks[task] = cell.key
            given = {"key": task, "pure": False, "retries": 0}
        sent: Any = self.executor.submit(self.function, self.job.work, cell, **given)
        if not hasattr(sent, "add_done_callback"):
            raise TypeError(f"its submit gave {type(sent).__name__}, not a Future")
        future: cf.Future[Any] = sent
        return future

    def _take_in(self) -> None:
        """Wait for one answer at least, take all there are, write them in one transaction."""
        with contextlib.suppress(queue.Empty):
            self._landed(self.arrived.get(timeout=PATIENCE_S))
            while True:
                self._landed(self.arrived.get_nowait())
        self._write()

    def _landed(self, future: cf.Future[Any]) -> None:
        cell = self.flying.pop(future)
        error = cf.CancelledError() if future.cancelled() else future.exception()
        if error is not None and lost_kinds(error):
            self._lost(cell, error)
            return
        worked = Worked(error=error_json(error)) if error is not None else future.result()
        if not isinstance(worked, Worked):
            kind = type(worked).__name__
            words = (
                f"the executor gave back {kind}, not what the function that it was given returned"
            )
            worked = Worked(error={"error": "TypeError", "message": words})
        self.unwritten.append((cell, _answer(cell, worked)))

    def _lost(self, cell: Cell, error: BaseException) -> None:
        """The worker died: the cell goes out once more, marked; the second time it failed."""
        if isinstance(error, cf.BrokenExecutor):
            self.broken = error  # the pool is gone: its cells stay started and are resent later
            self.again.add(cell.key)
        elif cell.key in self.lost_once:
            self.unwritten.append((cell, Answer(cell.key, error=_LOST)))
        else:
            self.lost_once.add(cell.key)
            self.again.add(cell.key)
            self.todo.appendleft(cell)

    def _write(self) -> None:
        if not self.unwritten:
            return
        self.journal.finish([answer for _, answer in self.unwritten])
        for _, answer in self.unwritten:
            self.done += answer.error is None
            self.failed += answer.error is not None
        self.unwritten.clear()

    def settle(self, patience_s: float) -> None:
        """Send nothing more and wait for what is in flight: it is paid for."""
        for future in list(self.flying):
            future.cancel()
        cf.wait(list(self.flying), patience_s)

    def salvage(self) -> None:
        """At a stop: cancel what waits, keep what has arrived; what cannot be written is kept
        in memory for the frame."""
        for future in list(self.flying):
            future.cancel()
            if future.cancelled():
                del self.flying[future]
            elif future.done():
                error = future.exception()
                if error is not None and lost_kinds(error):
                    del self.flying[future]  # it stays started and is resent
                else:
                    self._landed(future)
        try:
            self._write()
        except StoreError:
            for _, answer in self.unwritten:
                self.job.unsaved[answer.key] = answer
            self.unwritten.clear()

    def _count_reruns(self) -> None:
        """Tasks that the scheduler ran again although their answer had been worked out."""
        if self._reruns is None:
            return
        counts: dict[bytes, int] = {}
        for task, number in self._reruns().items():
            key = self._tasks.get(task)
            if key is not None:
                counts[key] = counts.get(key, 0) + number
        if counts:
            self.journal.note_resent(counts)
            self.resent += sum(counts.values())


def _answer(cell: Cell, worked: Worked) -> Answer:
    if worked.error is not None:
        return Answer(cell.key, error=worked.error, duration_s=worked.duration_s)
    try:
        text = json.dumps(worked.value, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as problem:
        error = {"error": "TypeError", "message": f"the work returned no JSON value: {problem}"}
        return Answer(cell.key, error=error, duration_s=worked.duration_s)
    return Answer(cell.key, clean_text(text), duration_s=worked.duration_s)
