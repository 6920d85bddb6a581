"""LiveObserver: the engine's thread puts, the kernel's thread drains; deltas are merged between.

The engine calls the observer on its own thread. What it sees becomes UiEvents in a thread-safe
queue; the cell's coroutine drains the queue at its own pace, folds the events with ``reduce`` and
gives the state to a sink. No delta is lost, and a thousand of them between two drains are one.

Source: notebook side, "Running a cell", "The panel" (D2, D13, D18, D19, N06); LLM turn, "Event
routing, exactly" (L47, L113).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from notebook_agent.core import agent_events as ev
from notebook_agent.core.agent_events import AgentEvent
from notebook_agent.core.session import RunStatus, Session
from notebook_agent.core.turn_fsm import Continue, TurnAction
from notebook_agent.engine import observers as ob
from notebook_agent.notebook.audit import turn_row
from notebook_agent.notebook.panel_state import (
    Appended,
    Ask,
    Asked,
    BreakerView,
    Chained,
    Ended,
    Gauge,
    Happened,
    Moved,
    Opened,
    PanelState,
    Printed,
    Replied,
    RowAdded,
    Ticked,
    UiEvent,
    Voided,
)
from notebook_agent.notebook.reducer import reduce, reduce_all

__all__ = ["LiveObserver", "PanelState", "UiEvent", "breaker_view", "reduce", "reduce_all"]


class LiveObserver(ob.Observer):
    """An engine observer that feeds a view of one run.

    Args:
        session: Where the audit rows are read from, on the engine's thread, as turns end.
        now: The engine's monotonic clock (``Surroundings.now``), seconds.
        model: The primary's full name; ``prompt`` as typed.
        breaker, gauge: How both stand when the run begins.

    Source: notebook side (D2, D13).
    """

    def __init__(
        self,
        session: Session | None = None,
        *,
        now: Callable[[], float] = time.monotonic,
        model: str = "",
        prompt: str = "",
        breaker: BreakerView | None = None,
        gauge: Gauge | None = None,
    ) -> None:
        self.now = now
        self._session = session
        self._lock = threading.Lock()
        self._queue: list[UiEvent] = []
        self._lane = ""
        self._lane_turn = 0
        self._parts: deque[str] = deque()
        self._ring: Callable[[], None] = _nobody
        self._eager_at: float | None = None
        self._rows_seen = (0, 0)
        self._first_run = len(session.runs) if session else 0
        self._refused = False
        self._put(
            Opened(
                at=now(),
                session=session.name if session else "default",
                model=model,
                prompt=prompt,
                breaker=breaker,
                gauge=gauge,
            )
        )

    # ---- the two ends of the queue ----

    def rung_by(self, ring: Callable[[], None]) -> None:
        """Call this from the engine's thread when there is something to drain."""
        self._ring = ring

    def ring_for_text(self, at: float | None) -> None:
        """Text rings too, the first that comes at this time or later; None: only the rest does."""
        self._eager_at = at

    def drain(self) -> list[UiEvent]:
        """Everything since the last drain, deltas of one lane merged; a tick when nothing came."""
        with self._lock:
            self._merge()
            out, self._queue = self._queue, []
        return out or [Ticked(at=self.now())]

    @property
    def deltas(self) -> int:
        """Deltas that wait, 0 when anything else waits too."""
        return 0 if self._queue else len(self._parts)

    def end(
        self,
        status: RunStatus,
        error: Mapping[str, Any] | None = None,
        notices: tuple[str, ...] = (),
    ) -> None:
        """The run is over, told by who drove it: the last event. Rows come before it."""
        self._rows()
        self._put(Ended(at=self.now(), status=status, error=error, notices=notices))

    def tool_printed(self, call_id: str, text: str) -> None:
        """What a tool printed, from any thread."""
        self._put(Printed(at=self.now(), call_id=call_id, text=text))

    def asked(self, ask: Ask | None) -> None:
        """A question waits for a click, or does not any more."""
        self._put(Asked(at=self.now(), ask=ask))

    def _put(self, event: UiEvent) -> None:
        with self._lock:
            self._merge()
            self._queue.append(event)
        self._ring()

    def _merge(self) -> None:
        parts = self._parts
        if parts:
            text = "".join([parts.popleft() for _ in range(len(parts))])
            self._queue.append(
                Appended(at=self.now(), lane=self._lane, text=text, turn=self._lane_turn)
            )

    def _enter(self, lane: str, turn: int) -> None:
        if lane != self._lane or turn != self._lane_turn:
            with self._lock:
                self._merge()
                self._lane, self._lane_turn = lane, turn

    def _wake(self) -> None:
        """Text may wake the driver, once it has waited long enough."""
        eager = self._eager_at  # once: the kernel's thread sets it at its own time
        if eager is not None and self.now() >= eager:
            self._eager_at = None
            self._ring()

    # ---- callbacks, on the engine's thread ----

    # No lock for a delta: a deque's append is one step, and only this thread changes lanes. No call
    # either that it can do without: these are the only lines that run for each of them.

    def on_text_delta(self, ctx: ob.TextDelta) -> None:
        if ctx.refusal:
            self._refused = True
        if self._lane != "text" or ctx.turn != self._lane_turn:
            self._enter("text", ctx.turn)
        self._parts.append(ctx.delta)
        if self._eager_at is not None:
            self._wake()

    def on_thinking_delta(self, ctx: ob.ThinkingDelta) -> None:
        if self._lane != "thinking" or ctx.turn != self._lane_turn:
            self._enter("thinking", ctx.turn)
        self._parts.append(ctx.delta)
        if self._eager_at is not None:
            self._wake()

    def on_attempt_reset(self, ctx: ob.AttemptResetInfo) -> None:
        self._put(Voided(at=self.now(), turn=ctx.turn, attempt=ctx.attempt, cause=ctx.cause))

    def on_turn_start(self, ctx: ob.TurnStart) -> None:  # noqa: ARG002  # the callback's shape
        self._refused = False

    def on_response(self, ctx: ob.Response) -> None:
        if not self._refused:  # a refusal's text was shown and is not part of the reply (L5a)
            self._put(Replied(at=self.now(), text=ctx.text, turn=ctx.turn))

    def on_tool_post(self, ctx: ob.ToolPost) -> None:
        if ctx.stdout:
            self.tool_printed(ctx.tool_call_id, ctx.stdout)

    def on_turn_end(self, ctx: ob.TurnEnd) -> None:  # noqa: ARG002  # the callback's shape
        self._rows()

    def on_state(self, ctx: ob.StateChange) -> None:
        ref = ctx.detail.get("ref")  # the window of the model that will serve (F02)
        window = ref.get("window") if isinstance(ref, Mapping) else None
        self._put(
            Moved(
                at=self.now(),
                turn=ctx.turn,
                state=ctx.state,
                outcome=ctx.outcome,
                action=type(ctx.action).__name__,
                to=_next_state(ctx.action),
                window=window if isinstance(window, int) else None,
            )
        )
        self._rows()

    def on_event(self, event: AgentEvent) -> None:
        view = None
        if isinstance(event, ev.BreakerChanged):
            view = breaker_view(event.breaker, self.now())
        if isinstance(event, ev.TurnCompleted):
            self._rows()
        self._put(Happened(at=self.now(), event=event, breaker=view))

    def on_run_end(self, ctx: ob.RunEnd) -> None:  # noqa: ARG002  # the callback's shape
        self._rows()

    def _rows(self) -> None:
        """Audit rows that are new in the run that began with this view."""
        runs = self._session.runs if self._session else []
        if len(runs) <= self._first_run:
            return
        run, number = runs[-1], len(runs) - 1
        served, unserved = self._rows_seen
        self._rows_seen = (len(run.turns), len(run.unserved))
        at = self.now()
        for turn in run.turns[served:]:
            self._put(RowAdded(at=at, row=turn_row(turn, run, number)))
        for one in run.unserved[unserved:]:
            self._put(RowAdded(at=at, row=turn_row(one.turn, run, number, one.outcome)))


def _nobody() -> None:
    """Nobody sleeps."""


def _next_state(action: TurnAction) -> Any:
    return action.state if isinstance(action, Continue) else None


def breaker_view(data: Mapping[str, Any], now: float) -> BreakerView:
    """The breaker as people see it, from ``Breaker.to_json``.

    Args:
        data: Names as L77 has them; configuration under ``config``.
        now: The clock the breaker's times are on, seconds.
    """
    config = data.get("config") or {}
    state = str(data.get("state", "primary")).lower()
    primary = str(data.get("original_model") or "")
    chain = tuple(
        Chained(
            str(entry.get("name", "")),
            int(entry.get("attempt_count", 0)),
            int(entry.get("max_fail_count", config.get("max_fail_count", 2))),
            bool(entry.get("available", True)),
        )
        for entry in data.get("chain") or ()
    )
    active = data.get("active_fallback")
    if active is None:
        active = next((c.name for c in chain if c.available and c.strikes < c.of), "")
    cooldown = float(config.get("recovery_timeout", 60.0))
    left = data.get("cooldown_left_s")
    until = None
    if state == "fallback":  # an event says that the state changed now: the whole cooldown is ahead
        until = now + (cooldown if left is None else float(left))
    failures = int(data.get("consecutive_failures", 0))
    trip_at = int(config.get("trip_threshold", 3))
    by_hand = data.get("last_cause") == "tripped by hand"
    if state == "fallback" and not failures and not by_hand:
        failures = trip_at  # tripping sets the counter back; what tripped it is the full count
    return BreakerView(
        state=state,
        primary=primary,
        serves=str(active) if state == "fallback" and active else primary,
        failures=failures,
        trip_at=trip_at,
        chain=chain,
        probes=int(data.get("primary_success_count", 0)),
        probes_needed=int(config.get("recovery_successes_needed", 2)),
        cooldown_s=cooldown,
        cooldown_until=until,
        by_hand=by_hand,
    )
