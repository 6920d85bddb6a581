"""WaitGuard: one timer and one cancel listener for all waits of a turn.

A provider's events are awaited in the turn's own task. Nothing is made per event: each wait
only notes when it began, and the one idle timer, when it fires, looks at that note and pushes
itself back. When a limit is really reached, or the cancel signal fires, the guard interrupts
the wait by cancelling the task, and the handler turns that back into the reason with
``take()``, so that a cancellation from outside is never mistaken for one of ours.

Source: LLM turn, "The streaming path" (L54, L55, L62, L126, L127).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum

from notebook_agent.core.settings import StreamTimeouts
from notebook_agent.engine.cancel import CancelSignal

__all__ = ["Interrupt", "WaitGuard"]

# A timer that fires this many seconds late was held up by other work on the loop; the wait gets
# one grace of that length, in which what lies ready in the socket is read first.
LATE_S = 0.02
GRACE_S = 0.05


class Interrupt(Enum):
    """Why the guard ended a wait."""

    CANCEL = "cancel"
    TOTAL = "total"
    IDLE = "idle"


class WaitGuard:
    """Watches the waits of one turn; to be driven from one task.

    Args:
        signal: The cancel signal.
        timeouts: The limits, in seconds; passthrough sets none.
        now: The turn's clock, for the total budget. Single waits are timed by the event loop's
            own clock, which carries the timers, so a clock that stands still cannot hang a turn.

    Attributes:
        waiting: Set by the handler around each wait; nothing is interrupted outside one.
        since: When the wait began (the handler's reading of ``loop_time``).
        due: When the total budget ends by the event loop's clock.
        events: Accepted events of this attempt, pings not counted.
        consecutive_timeouts: Waits that timed out in a row.
        deadline: When the turn's total budget ends, infinite without one.
    """

    __slots__ = (
        "_earlier", "_graced", "_loop", "_now", "_reason", "_signal", "_stop", "_task", "_timeouts", "_timer",
        "_waited_since", "consecutive_timeouts", "deadline", "due", "events", "loop_time", "since", "waiting",
    )  # fmt: skip

    def __init__(
        self, signal: CancelSignal, timeouts: StreamTimeouts, now: Callable[[], float]
    ) -> None:
        self._signal = signal
        self._timeouts = timeouts
        self._now = now
        total = timeouts.total_s
        self._loop = asyncio.get_running_loop()
        self.loop_time = self._loop.time
        self.deadline = float("inf") if total is None else now() + total
        self.since = self.loop_time()
        self.due = self.since + self.remaining()
        self.waiting = False
        self.events = 0
        self._earlier = 0
        self.consecutive_timeouts = 0
        self._waited_since = self.since  # start of the part of the wait that is being timed
        self._graced = False
        self._reason: Interrupt | None = None
        self._timer: asyncio.TimerHandle | None = None
        task = asyncio.current_task()
        assert task is not None, "a turn runs in a task"
        self._task = task
        self._stop = signal.listen(self._on_cancel)

    def remaining(self) -> float:
        """Seconds of the total budget left, infinite without one."""
        return self.deadline - self._now()

    @property
    def total_events(self) -> int:
        """Accepted events of the whole turn."""
        return self._earlier + self.events

    def begin_attempt(self) -> None:
        """Nothing seen yet, the idle timer set."""
        self._earlier += self.events
        self.events = 0
        self.consecutive_timeouts = 0
        self.since = self._waited_since = self.loop_time()
        self.due = self.since + self.remaining()
        self._arm()

    def end_attempt(self) -> None:
        """No wait any more. A cancellation of ours that a client swallowed is taken back."""
        self.waiting = False
        if self._reason is not None:
            self._reason = None
            self._task.uncancel()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """Nothing of the guard outlives the turn."""
        self.end_attempt()
        self._stop()

    def take(self) -> Interrupt | None:
        """The reason of the cancellation that just arrived; None = it came from outside.

        Ours is taken back from the task's count; when somebody else cancelled as well, theirs
        stands.
        """
        self.waiting = False
        reason, self._reason = self._reason, None
        if reason is not None and self._task.uncancel() > 0:
            return None
        return reason

    @property
    def limit(self) -> float:
        """Seconds this wait may last (L55)."""
        t = self._timeouts
        return t.per_event_timeout if self.events else t.initial_event_timeout

    def _arm(self) -> None:
        if self._timeouts.passthrough:
            return
        due = min(self._waited_since + self.limit, self.due)
        delay = max(due - self.loop_time(), 0.0)
        # The first event changes the limit, and nothing touches the timer when it comes.
        self._schedule(delay if self.events else min(delay, self._timeouts.per_event_timeout))

    def _schedule(self, delay: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(delay, self._fire)

    def _fire(self) -> None:
        timer, self._timer = self._timer, None
        now = self.loop_time()
        if not self.waiting:  # the reader of the events is busy: look again later
            self._schedule(max(self.limit, 0.001))
            return
        if self.since > self._waited_since:  # events came since: push the timer back
            self._waited_since = self.since
            self._graced = False
        if now < self.due and now < self._waited_since + self.limit:
            self._arm()
            return
        late = timer is not None and now - timer.when() > LATE_S
        if late and not self._graced:
            self._graced = True
            self._schedule(min(GRACE_S, self.limit))
            return
        if now >= self.due:
            self._interrupt(Interrupt.TOTAL)
            return
        self.consecutive_timeouts += 1
        if self.consecutive_timeouts >= self._timeouts.allowed_timeouts(self.events):
            self._interrupt(Interrupt.IDLE)
            return
        # The wait itself goes on: the event it waits for is not lost (L55).
        self._waited_since = now
        self._graced = False
        self._arm()

    def _on_cancel(self) -> None:
        if self.waiting and self._signal.is_cancelled():
            self._interrupt(Interrupt.CANCEL)

    def _interrupt(self, reason: Interrupt) -> None:
        if self._reason is None:
            self._reason = reason
            self._task.cancel()
