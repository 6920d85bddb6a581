"""LiveView: one run's observer, reducer and sink, driven by ticks.

Source: notebook side, "Running a cell" (D2), "The panel" (D19).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from notebook_agent.core.result import RunResult
from notebook_agent.core.session import RunStatus
from notebook_agent.errors import (
    AgentError,
    Cancelled,
    InputRejected,
    LimitReached,
    TokenBudgetExhausted,
)
from notebook_agent.notebook.live import LiveObserver
from notebook_agent.notebook.naps import NAP_S, TICK_S
from notebook_agent.notebook.panel_state import PanelState
from notebook_agent.notebook.reducer import reduce_all
from notebook_agent.notebook.sinks import Sink

__all__ = ["FAST", "LiveView", "ending_of"]

FAST: Final = 240  # deltas a second


class LiveView:
    """What a driver opens, ticks and closes.

    Args:
        observer: Registered with the runtime for this run.
        sink: Shows the states.
    """

    def __init__(self, observer: LiveObserver, sink: Sink) -> None:
        self.observer = observer
        self.sink = sink
        self.state = PanelState()
        self._ticked = float("-inf")

    def open(self) -> None:
        """First paint, before the first event."""
        self._drain()
        self.sink.open(self.state)

    def rung_by(self, ring: Callable[[], None]) -> None:
        """Called when something comes while the driver sleeps."""
        self.observer.rung_by(ring)

    def tick(self) -> float:
        """Show what happened since the last tick.

        A flush costs the kernel the same whatever it carries. Slow text rings as soon as it may be
        drawn again; where text comes faster than anybody reads, ten flushes a second carry it.

        Returns:
            ``NAP_S``: whatever cannot wait so long rings. Less when it was drawn just now.
        """
        observer, now = self.observer, self.observer.now()
        since = now - self._ticked
        if since < 0.9 * TICK_S and self.placed():  # the driver was woken for other work
            return TICK_S - since
        observer.ring_for_text(now + TICK_S)  # before the drain: no delta comes unheard between
        if observer.deltas >= FAST * max(TICK_S, since):
            observer.ring_for_text(None)
        self._ticked = now
        self._drain()
        self.sink.update(self.state)
        return NAP_S

    def placed(self) -> bool:
        """Whether the first paint stands: it waits for the run's id (D15)."""
        return bool(self.state.run_id)

    def close(self, outcome: RunResult | AgentError) -> None:
        """Drain the rest and show the end."""
        status, error = ending_of(outcome)
        notices = outcome.notices if isinstance(outcome, RunResult) else ()
        self.observer.end(status, error, notices)
        self._drain()
        self.sink.close(self.state, outcome)

    def _drain(self) -> None:
        self.state = reduce_all(self.observer.drain(), self.state)


def ending_of(outcome: RunResult | AgentError) -> tuple[RunStatus, Mapping[str, Any] | None]:
    """Status and error of a run, from what came back or was raised."""
    if isinstance(outcome, RunResult):
        return outcome.status, outcome.run.error
    result = getattr(outcome, "result", None)
    status = result.status if isinstance(result, RunResult) else None
    if status is None or not status.terminal:
        status = next(
            (word for kind, word in _STATUS.items() if isinstance(outcome, kind)),
            RunStatus.FAILED,
        )
    return status, outcome.to_json()


_STATUS: Mapping[type[AgentError], RunStatus] = {
    Cancelled: RunStatus.CANCELLED,
    InputRejected: RunStatus.REJECTED,
    LimitReached: RunStatus.LIMIT_REACHED,
    TokenBudgetExhausted: RunStatus.TOKEN_BUDGET_EXHAUSTED,
}
