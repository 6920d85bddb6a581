"""Subscription: a runtime's events at a reader's own pace, in a buffer that never grows.

Observers are called in the run's own step; a subscriber reads when it likes, from any thread or
event loop. When it is too slow the oldest events are lost, counted, and the run never waits: the
log is the truth.

Source: Turn FSM, "Relationship to other components" (B68, B71).
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Final

from notebook_agent.core import agent_events as ev
from notebook_agent.engine.observers import Observer, ObserverHub, TextDelta
from notebook_agent.errors import ConfigError

__all__ = ["EVENT_BUFFER", "Subscription"]

EVENT_BUFFER: Final = 1_024  # Ruling: B19


class Subscription:
    """Events from its creation to :meth:`close`; iterate, iterate asynchronously, or ``take``.

    Args:
        hub: Where the events come from.
        buffer: Events that are kept for the reader.
        deltas: Text too, as TextDelta events.

    Attributes:
        dropped: Events that were lost because the buffer was full.

    Raises:
        ConfigError: A buffer of less than one event.
    """

    def __init__(
        self, hub: ObserverHub, *, buffer: int = EVENT_BUFFER, deltas: bool = False
    ) -> None:
        if not isinstance(buffer, int) or isinstance(buffer, bool) or buffer < 1:
            raise ConfigError(field="buffer", value=buffer, legal="a whole number of at least 1")
        self.dropped = 0
        self._hub = hub
        self._kept: deque[ev.AgentEvent] = deque(maxlen=buffer)
        self._changed = threading.Condition()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._open = True
        self._ear: Observer = _EarWithText(self) if deltas else _Ear(self)
        hub.add(self._ear)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hear no more; what was heard can still be read, then iteration ends."""
        with self._changed:
            if not self._open:
                return
            self._open = False
            self._hub.remove(self._ear)
            self._wake()

    def take(self) -> list[ev.AgentEvent]:
        """What has come since the last look, oldest first; never waits."""
        with self._changed:
            events = list(self._kept)
            self._kept.clear()
        return events

    def __iter__(self) -> Iterator[ev.AgentEvent]:
        """Waits for each event; for a thread of its own, not for the run's."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._kept or not self._open)
                if not self._kept:
                    return
                event = self._kept.popleft()
            yield event

    async def __aiter__(self) -> AsyncIterator[ev.AgentEvent]:
        """As iterating, on whatever loop runs."""
        loop = asyncio.get_running_loop()
        while True:
            came = asyncio.Event()
            with self._changed:
                event = self._kept.popleft() if self._kept else None
                if event is None:
                    if not self._open:
                        return
                    self._waiting.append((loop, came))
            if event is not None:
                yield event
                continue
            try:
                await came.wait()
            finally:
                with self._changed:
                    self._waiting = [one for one in self._waiting if one[1] is not came]

    def _hear(self, event: ev.AgentEvent) -> None:
        with self._changed:
            if len(self._kept) == self._kept.maxlen:
                self.dropped += 1  # the deque lets go of its oldest
            self._kept.append(event)
            self._wake()

    def _wake(self) -> None:
        self._changed.notify_all()
        waiting, self._waiting = self._waiting, []
        for loop, came in waiting:
            if not loop.is_closed():
                loop.call_soon_threadsafe(came.set)


class _Ear(Observer):
    """The part of a subscription that the run calls."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    def on_event(self, event: ev.AgentEvent) -> None:
        """Keep it."""
        self._subscription._hear(event)


class _EarWithText(_Ear):
    """With text, which travels outside the events so that nobody pays for it unheard."""

    def on_text_delta(self, ctx: TextDelta) -> None:
        """Keep it as an event."""
        self._subscription._hear(ev.TextDelta(delta=ctx.delta))
