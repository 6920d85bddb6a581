"""Sweep: many cells over an executor, journalled, so that nothing that was paid for runs twice.

Source: tune by experiment, sweeps (journal, kills, interrupt, progress, bad input).
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from notebook_agent.engine.interrupts import interruptible
from notebook_agent.errors import Cancelled, ConfigError, StoreError
from notebook_agent.tuning.cells import Cell, code_version, keyed
from notebook_agent.tuning.driver import PATIENCE_S, Driver, Job, Progress
from notebook_agent.tuning.executors import Limit
from notebook_agent.tuning.journal import Answer, Journal, Row

__all__ = ["Progress", "Sweep"]

_SETTLE_S: Final = 60.0  # seconds that calls in flight get when the journal cannot be written


class Sweep:
    """Works cells and keeps their answers.

    Args:
        work: ``work(cell) -> JSON value``; a coroutine function runs on an event loop. What it
            raises is the cell's answer too, with status ``failed``.
        cells: See :func:`~notebook_agent.tuning.cells.grid`.
        journal: A path, an open Journal, or None for this process's memory.
        name: The sweep's name; a journal of another name is refused.
        code: Version of the work's code, part of every cell's key; default from its source, see
            :func:`~notebook_agent.tuning.versions.code_version`.
        limit, providers: For the executor that is made when none is given.

    Raises:
        ConfigError: The journal is in use or belongs to another sweep; cells that are equal.
        StoreError: The journal cannot be opened or is of another version.

    Example:
        >>> from notebook_agent.tuning.cells import grid
        >>> async def shout(cell):
        ...     return cell.inputs["word"].upper()
        >>> sweep = Sweep(shout, grid(inputs=[{"word": "hi"}, {"word": "ho"}]))
        >>> [row.value for row in sweep.run().rows()]
        ['HI', 'HO']
    """

    def __init__(
        self,
        work: Callable[[Cell], Any],
        cells: Iterable[Cell],
        *,
        journal: str | os.PathLike[str] | Journal | None = None,
        name: str = "sweep",
        code: str | None = None,
        limit: Limit | None = None,
        providers: Mapping[str, Limit] | None = None,
    ) -> None:
        given: object = work
        if not callable(given):
            raise ConfigError(field="work", value=given, legal="a function of one cell")
        if code is not None and not isinstance(code, str):
            raise ConfigError(field="code", value=code, legal='a text, e.g. "2"')
        self.work = work
        self.code = code_version(work) if code is None else code
        self.cells = list(keyed(cells, self.code))
        self._owns = not isinstance(journal, Journal)
        self.journal = journal if isinstance(journal, Journal) else Journal(journal, name)
        self._limit, self._providers = limit or Limit(), dict(providers or {})
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._over = threading.Event()
        self._ended: BaseException | None = None
        self._unsaved: dict[bytes, Answer] = {}
        self.progress = Progress(total=len(self.cells))

    def __repr__(self) -> str:
        p = self.progress
        return f"<Sweep: {p.answered:,} of {p.total:,} cells answered, {p.failed:,} failed>"

    def __enter__(self) -> Sweep:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop what runs and let the journal go."""
        self.stop()
        if self._owns:
            self.journal.close()

    # ---- running ---------------------------------------------------------------------------

    def run(
        self,
        executor: Any = None,
        *,
        progress: Callable[[Progress], None] | None = None,
        retry_failed: bool = False,
    ) -> Sweep:
        """Work every cell that has no answer yet. Ctrl-C keeps what is done.

        Args:
            executor: Anything with ``submit(function, *arguments) -> Future``; None = this
                process, an event loop (coroutines) or threads. It is not shut down.
            progress: Called in this thread after each round, and once at the end.
            retry_failed: Cells that failed are sent again.

        Returns:
            This sweep.

        Raises:
            Cancelled: Stopped or interrupted; the answers so far are kept.
            StoreError: The journal cannot be written; answers that came are in :meth:`frame`.
            AgentError: The executor broke.
        """
        if self._running() and self._thread is not threading.current_thread():
            raise ConfigError("This sweep is running already: sweep.wait() or sweep.stop()")
        self._stop.clear()
        began = time.monotonic()
        driver: Driver | None = None
        try:
            with contextlib.ExitStack() as stack:
                stack.enter_context(interruptible())  # in an awaited cell too
                driver = Driver(self._job(), stack, executor, retry_failed=retry_failed)
                try:
                    for state in driver.rounds():
                        self._tell(replace(state, elapsed_s=time.monotonic() - began), progress)
                except StoreError:
                    driver.settle(_SETTLE_S)
                    raise
                finally:
                    driver.salvage()
        except KeyboardInterrupt:
            self._stop.set()
        finally:
            if driver is not None:
                driver.salvage()  # threads that were waited for at the shutdown have answers too
                took = time.monotonic() - began
                end = replace(driver.state(), elapsed_s=took, in_flight=0, finished=True)
                self._tell(end, progress)
        if self._stop.is_set() and self.progress.answered < self.progress.total:
            raise Cancelled(_stopped_words(self)) from None
        return self

    def _job(self) -> Job:
        return Job(
            work=self.work, cells=self.cells, journal=self.journal, limit=self._limit,
            providers=self._providers, stop=self._stop, unsaved=self._unsaved,
        )  # fmt: skip

    def start(self, executor: Any = None, **given: Any) -> Sweep:
        """As :meth:`run`, in a thread: :meth:`frame` shows what there is meanwhile."""
        if self._running():
            raise ConfigError("This sweep is running already: sweep.wait() or sweep.stop()")

        def drive() -> None:
            try:
                self.run(executor, **given)
            except BaseException as error:  # noqa: BLE001  # wait() raises it
                self._ended = error
            finally:
                over.set()

        # An interrupted join may take a running thread for an ended one: an event is waited for.
        over = self._over = threading.Event()
        self._ended = None
        self._thread = threading.Thread(target=drive, name="sweep driver", daemon=True)
        self._thread.start()
        return self

    def wait(self, timeout_s: float | None = None) -> Sweep:
        """Wait for :meth:`start`; Ctrl-C here stops the sweep.

        Raises:
            AgentError: What ended the sweep, as :meth:`run` raises it.
            TimeoutError: Still running after ``timeout_s`` seconds.
        """
        thread, until = self._thread, None if timeout_s is None else time.monotonic() + timeout_s
        try:
            with interruptible():
                while thread is not None and not self._over.wait(PATIENCE_S):
                    if until is None or time.monotonic() <= until:
                        continue
                    raise TimeoutError(f"{self!r} is still running")
        except KeyboardInterrupt:
            self.stop()
            raise Cancelled(_stopped_words(self)) from None
        self._thread = None
        if self._ended is not None:
            raise self._ended
        return self

    def _running(self) -> bool:
        """Whether :meth:`start`'s thread is at work; what ended it is for :meth:`wait` to say."""
        return self._thread is not None and not self._over.is_set()

    def stop(self) -> None:
        """Send nothing more and give up what is in flight; answers that came are kept."""
        self._stop.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            self._over.wait()
            thread.join()
            self._thread = None

    def _tell(self, state: Progress, progress: Callable[[Progress], None] | None) -> None:
        self.progress = state
        if progress is not None:
            progress(state)

    # ---- answers ---------------------------------------------------------------------------

    def rows(self) -> Iterator[Row]:
        """The cells of this sweep that were sent, in its order; also while it runs."""
        mine = {cell.key: cell.place for cell in self.cells}
        for row in self.journal.rows():
            place = mine.get(row.key)
            if place is not None:
                late = self._unsaved.get(row.key)
                yield _with(row, place, late)

    def frame(self) -> Any:
        """One row per cell that was sent: what it is, how it stands, what came back.

        Returns:
            A pandas.DataFrame, indexed by the cell's place: ``prompt``, the config's and inputs'
            fields, ``seed``, ``repeat``, ``status`` (started, done, failed), ``attempts``,
            ``resent``, ``duration_s`` (seconds), ``error``, then the fields of the answer, or
            ``value`` where it is no mapping.
        """
        from notebook_agent.tuning.frames import sweep_frame  # noqa: PLC0415  # pandas is slow to import

        return sweep_frame(sorted(self.rows(), key=lambda row: row.place))


def _with(row: Row, place: int, late: Answer | None) -> Row:
    """A journal's row at this sweep's place, with an answer that could not be written."""
    if late is None:
        return replace(row, place=place)
    value = None if late.value is None else json.loads(late.value)
    status = "done" if late.error is None else "failed"
    return replace(
        row, place=place, status=status, value=value, error=late.error, duration_s=late.duration_s
    )


def _stopped_words(sweep: Sweep) -> str:
    p = sweep.progress
    return (
        f"stopped after {p.answered:,} of {p.total:,} cells; their answers are kept.\n"
        "Run the same sweep again to go on, or look at it with:  sweep.frame()"
    )
