"""Recording a turn's outcome, in the strict order; the only place that fires these observers.

Source: LLM turn, "Recording the outcome, exactly", "After the reply" (L71-L75, L81);
a failed turn fails the run, and the breaker remembers it for the next ones (M3).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from notebook_agent.core.agent_events import AgentEvent, BreakerChanged, ModelSwitched
from notebook_agent.core.breaker import Breaker, BreakerState, FailureKind
from notebook_agent.core.response import Usage
from notebook_agent.core.retry import cause_of
from notebook_agent.engine.clock import Surroundings
from notebook_agent.engine.observers import ModelChange, ObserverHub, StreamFailure, StreamSuccess
from notebook_agent.errors import AgentError, Cancelled, RateLimitEscalation

__all__ = ["Recorder", "failure_kind"]

T = TypeVar("T")


def failure_kind(error: AgentError) -> FailureKind:
    """How a failed turn counts for the breaker (L72.2)."""
    if isinstance(error, RateLimitEscalation):
        return FailureKind.RATE_LIMIT
    return FailureKind.TRANSIENT


class Recorder:
    """Tells breaker, observers and log how a turn went.

    Args:
        breaker: Of the session and primary; may be exchanged between runs.
        hub: The observers.
        emit: Takes an AgentEvent; stamps run and time.
        surroundings: The clock.
    """

    def __init__(
        self,
        breaker: Breaker,
        *,
        hub: ObserverHub,
        emit: Callable[[AgentEvent], None],
        surroundings: Surroundings,
    ) -> None:
        self.breaker = breaker
        self._hub = hub
        self._emit = emit
        self._surroundings = surroundings
        self._last_routed: str | None = None

    def record_turn_success(self, turn: int, usage: Usage | None, *, served: str) -> None:
        """L71: the breaker first, then ``on_stream_success`` with the model that served."""
        self._change(lambda b, now: b.record_success(now))
        self._hub.fire("on_stream_success", StreamSuccess(turn, served, usage))

    def record_turn_failure(self, turn: int, error: AgentError, *, served: str) -> AgentError:
        """L72, in its order.

        Returns:
            The original error, for the caller to raise. A breaker that is itself broken
            supersedes it (L74).
        """
        if isinstance(error, Cancelled):  # 1. a user stop is not a model failure
            return error
        kind = failure_kind(error)  # 2.
        cause = cause_of(error)
        try:
            before = self.breaker.state  # 3. the state before the recording decides step 4
            tripped = self._change(lambda b, now: b.record_failure(kind, now, cause=cause))
            backup = self.breaker.active_fallback
            if tripped and backup is not None:
                self._hub.fire("on_fallback", ModelChange(served, backup))
            # 4. a strike against the backup that served: F02's skipping may have chosen another
            # than the first. A second failure of the primary in the turn whose first one tripped
            # (M1) is nobody's strike (L73): unknown names change nothing.
            if before is BreakerState.FALLBACK:
                self._change(lambda b, _: b.mark_fallback_failed(served, cause=cause))
        except AgentError as broken:
            error = broken
        self._hub.fire("on_stream_failure", StreamFailure(turn, served, error))  # 5.
        return error  # 6.

    def note_routed_model(self, served: str) -> None:
        """``on_model_switched`` when the serving model differs from the last turn's (L81)."""
        last, self._last_routed = self._last_routed, served
        if last is not None and last != served:
            self._switched(last, served)

    def check_recovery(self, now: float) -> None:
        """The top of a turn: a cooldown that is over starts the probe (L78)."""
        if self._guarded(lambda: self.breaker.check_recovery(now)):
            self._tell()

    def trip(self) -> None:
        """Trip by hand; ``on_fallback`` when a backup is there (L78)."""
        was = self.breaker.routed_model()
        if self._change(lambda b, now: b.trip(now)):
            backup = self.breaker.active_fallback
            if backup is not None:
                self._hub.fire("on_fallback", ModelChange(was, backup))

    def reset(self) -> None:
        """Back to the primary, strikes too."""
        self._change(lambda b, _: b.reset())

    def switch_primary(self, breaker: Breaker) -> None:
        """Go on with the breaker of another primary, reset (L83)."""
        old, new = self.breaker.original_model, breaker.original_model
        self.breaker = breaker
        self._change(lambda b, _: b.reset())
        self._last_routed = new
        if old != new:
            self._switched(old, new)

    def _switched(self, old: str, new: str) -> None:
        self._emit(ModelSwitched(from_model=old, to_model=new))
        self._hub.fire("on_model_switched", ModelChange(old, new))

    def _change(self, step: Callable[[Breaker, float], T]) -> T:
        before = self.breaker.data
        answer = self._guarded(lambda: step(self.breaker, self._surroundings.now()))
        if self.breaker.data != before:
            self._tell()
        return answer

    def _guarded(self, step: Callable[[], T]) -> T:
        try:
            return step()
        except Exception as bug:
            raise AgentError(
                f"LockPoisoned: the breaker's own state is unusable ({bug!r}).\n"
                "Clear it with:  %agent breaker reset"
            ) from bug

    def _tell(self) -> None:
        data: dict[str, Any] = self.breaker.to_json(self._surroundings.now())
        self._emit(BreakerChanged(breaker=data))
