"""Recorder: one transaction per transition, and the events of a run in two lanes.

Events that the projection folds travel in the record of the next transition, durable with it;
the others are written by a tracked task that is awaited before the run returns (Ruling: B57).

Source: Turn FSM, "Persisting", "Determinism" (B56-B59, B62, B68-B74).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, TypeVar

from notebook_agent.core import agent_events as ev
from notebook_agent.engine.cancel import CancelSignal
from notebook_agent.engine.clock import Surroundings
from notebook_agent.engine.observers import ObserverHub
from notebook_agent.engine.store.base import Commit, Store, StoreBusy
from notebook_agent.errors import Cancelled, StoreError

__all__ = ["Recorder", "broken_store", "patiently"]

log = logging.getLogger("notebook_agent.runtime")

T = TypeVar("T")

# What B65 folds: durable in the same transaction as the transition (Ruling: B57).
FOLDED: Final = (
    ev.RunStarted,
    ev.ModelStarted,
    ev.UsageRecorded,
    ev.TurnCompleted,
    ev.RunCompleted,
    ev.RunFailed,
    ev.RunCancelled,
    ev.InputRejected,
)
# For subscribers only, never logged (B68).
PASSING: Final = (ev.TextDelta, ev.ToolCallDelta)

BUSY_LIMIT_S: Final = 5.0
BUSY_STEP_S: Final = 0.005
BUSY_MAX_STEP_S: Final = 0.1


async def patiently(
    write: Callable[[], T], surroundings: Surroundings, cancel: CancelSignal | None = None
) -> T:
    """Run a store call, waiting in short steps while another process writes.

    Args:
        write: The call; it writes all or nothing.
        surroundings: Whose sleep to use.
        cancel: Ends the wait with Cancelled; None where a write must not be interrupted (B84).

    Raises:
        StoreError: Still busy after 5 s.
        Cancelled: The signal fired while waiting.
    """
    waited, step = 0.0, BUSY_STEP_S
    while True:
        try:
            return write()
        except StoreBusy as busy:
            if waited >= BUSY_LIMIT_S:
                raise StoreError(
                    f"The store was busy for {waited:.0f} s: another process is writing to it.\n"
                    "Close the other kernel, or use a store of its own:  "
                    '%config AgentMagics.store = "memory"'
                ) from busy
        if cancel is not None:
            cancel.raise_if_cancelled()
        await surroundings.sleep(step)
        waited += step
        step = min(step * 2, BUSY_MAX_STEP_S)


def broken_store(bug: Exception) -> StoreError:
    """A store's own bug as the error it amounts to."""
    error = StoreError(f"The store failed: {type(bug).__name__}: {bug}")
    error.__cause__ = bug
    return error


class Recorder:
    """Stamps, shows and keeps the events of one run, and commits its transitions.

    Args:
        store: Where to.
        hub: Who is told.
        surroundings: Clock.
        run_id: Stamped on every event.

    Attributes:
        watch: Called with each event before it is kept: the budget listens here.
    """

    def __init__(
        self,
        store: Store,
        hub: ObserverHub,
        surroundings: Surroundings,
        run_id: str,
        *,
        order: int = 0,
    ) -> None:
        self._store = store
        self._hub = hub
        self._surroundings = surroundings
        self._run_id = run_id
        self._order = order
        self.watch: Callable[[ev.AgentEvent], None] | None = None
        self._folded: list[ev.AgentEvent] = []
        self._others: list[ev.AgentEvent] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def emit(self, event: ev.AgentEvent) -> None:
        """Stamp an event, tell the observers, keep it for the log."""
        if type(event) is ev.TextDelta:
            return  # observers have on_text_delta
        # An event is made for this call alone: stamped in place, a third of the price of a copy.
        object.__setattr__(event, "run_id", self._run_id)
        object.__setattr__(event, "timestamp", self._surroundings.wall())
        object.__setattr__(event, "order", self._order)
        self._order += 1
        if self.watch is not None:
            self.watch(event)
        self._hub.fire("on_event", event)
        if isinstance(event, PASSING):
            return
        (self._folded if isinstance(event, FOLDED) else self._others).append(event)

    async def commit(
        self,
        make: Callable[[tuple[ev.AgentEvent, ...]], Commit],
        cancel: CancelSignal | None = None,
    ) -> Commit:
        """Write one transition with the folded events so far, all or nothing.

        Args:
            make: The commit whose record carries these events.
            cancel: As for :func:`patiently`.

        Raises:
            StoreError: It could not be written; the events are kept for the next try.
            Cancelled: The signal fired while the store was busy.
        """
        events = tuple(self._folded)
        commit = make(events)
        try:
            await patiently(lambda: self._store.commit(commit), self._surroundings, cancel)
        except (StoreError, Cancelled):
            raise
        except Exception as bug:
            raise broken_store(bug) from bug
        del self._folded[: len(events)]
        return commit

    def flush(self) -> None:
        """Start writing the other events; does not wait (B56)."""
        if not self._others:
            return
        events, self._others = tuple(self._others), []
        task = asyncio.get_running_loop().create_task(self._write(events))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(self) -> None:
        """Wait until every event that was handed over is written (Ruling: B57)."""
        self.flush()
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _write(self, events: tuple[ev.AgentEvent, ...]) -> None:
        try:
            await patiently(
                lambda: self._store.append_events(self._run_id, events), self._surroundings
            )
        except Exception:  # a lost event loses no state: the records carry what is folded
            log.exception("%d events of %s were not written", len(events), self._run_id)
