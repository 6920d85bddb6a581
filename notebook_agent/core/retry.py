"""What to do after a failed attempt: the two ladders as pure functions.

Times are seconds, randomness is a function that comes in. The handler only performs what
``next_step`` decides.

Source: LLM turn, "The streaming path"; Turn FSM, "CallingModel" (L48-L51, L58-L61, L64, B37,
B40).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from typing import Final

from notebook_agent.core.settings import (
    RateLimitPolicy,
    RetryPolicy,
    StreamTimeouts,
)
from notebook_agent.errors import (
    AgentError,
    ErrorKind,
    ProviderError,
    RateLimitEscalation,
)

__all__ = [
    "LADDER_OF_FAILURE",
    "Decision",
    "FailureClass",
    "Ladder",
    "RateLimitPolicy",
    "RetryPolicy",
    "Situation",
    "Step",
    "StreamTimeouts",
    "cause_of",
    "classify_failure",
    "next_step",
    "rescue_deadline",
    "return_time",
    "transport_delay",
]


class FailureClass(Enum):
    """How a failed attempt is treated (L58)."""

    RATE_LIMITED = "rate_limited"  # 429, or the provider's words for it
    OVERLOADED = "overloaded"  # 503, 529: transport ladder, with the provider's hint
    PERMANENT = "permanent"  # 401, 403, 404, bad request, quota, config
    TOTAL_TIMEOUT = "total_timeout"  # the turn's own deadline
    TRANSIENT = "transient"  # 5xx, 408, connection, cut, stalled, malformed


class Step(Enum):
    """What comes next."""

    RETRY = "retry"
    RESCUE = "rescue"
    ESCALATE = "escalate"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Ladder:
    """The two independent counters of a turn (L51, L64)."""

    transport_attempts: int = 0
    rate_limit_retries: int = 0

    @property
    def attempts(self) -> int:
        """Attempts of the turn so far: both counters + 1 (L63)."""
        return self.transport_attempts + self.rate_limit_retries + 1


@dataclass(frozen=True, slots=True)
class Decision:
    """A step, the seconds to wait before it, the counters after it, and the error to raise.

    ``error`` is set for ESCALATE and FAIL; ``max_attempts`` is how many attempts this turn can
    have by the ladder that was used, for "attempt 3 of 4".
    """

    step: Step
    ladder: Ladder
    delay: float = 0.0
    error: AgentError | None = None
    max_attempts: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What a decision rests on.

    Attributes:
        error: Of the failed attempt.
        ladder: Counters before this failure.
        remaining: Seconds of the total budget left, infinite without one.
        timeouts, retry, rate_limit: The settings.
        uniform: ``uniform(low, high)``, for the jitter.
        wall: Seconds since the epoch, to name the time at which the provider says to return.
    """

    error: AgentError
    ladder: Ladder
    remaining: float
    timeouts: StreamTimeouts
    retry: RetryPolicy
    rate_limit: RateLimitPolicy
    uniform: Callable[[float, float], float]
    wall: float = 0.0

    @property
    def rescue_enabled(self) -> bool:
        """Whether the unstreamed rescue call is allowed."""
        return self.timeouts.fallback_to_non_streaming and not self.timeouts.passthrough

    @property
    def hint(self) -> float | None:
        """Seconds of ``Retry-After`` when given, honoured and a time at all (R01)."""
        hint: float | None = getattr(self.error, "retry_after", None)
        if hint is None or not self.rate_limit.respect_retry_after:
            return None
        return hint if hint >= 0 else None  # NaN is not: a client of one's own may give anything

    @property
    def hint_too_long(self) -> bool:
        """Above the cap or the budget: coming back earlier would be a lie (Ruling: L59)."""
        hint = self.hint
        return hint is not None and (hint > self.rate_limit.max_delay or hint > self.remaining)


def classify_failure(error: AgentError) -> FailureClass:
    """The class of an error (L58). The handler names TOTAL_TIMEOUT itself."""
    if not isinstance(error, ProviderError) or not error.is_retryable:
        return FailureClass.PERMANENT
    if error.is_rate_limited:
        return FailureClass.RATE_LIMITED
    if error.kind is ErrorKind.OVERLOADED:
        return FailureClass.OVERLOADED
    return FailureClass.TRANSIENT


def next_step(failure: FailureClass, situation: Situation) -> Decision:
    """The decision after a failed attempt.

    Args:
        failure: Its class.
        situation: Counters, budget and settings.

    Returns:
        Retry after a delay, rescue, escalate or fail.

    Source: LLM turn, "The streaming path" (L58-L60).
    """
    if situation.timeouts.passthrough:  # L50: no retries, no rescue, no rate-limit budget
        return Decision(Step.FAIL, situation.ladder, error=situation.error)
    return LADDER_OF_FAILURE[failure](situation)


def transport_delay(
    retry: RetryPolicy, attempt: int, uniform: Callable[[float, float], float]
) -> float:
    """Seconds before retry number ``attempt`` (from 0): doubled, capped, then jittered (L60)."""
    # min() on the exponent: 2.0 ** 2000 overflows, and every cap is reached long before
    base = min(retry.base_delay * 2.0 ** min(attempt, 60), retry.max_delay)
    return base * (1.0 + uniform(-retry.jitter_factor, retry.jitter_factor))


def rescue_deadline(timeouts: StreamTimeouts, remaining: float) -> float:
    """Seconds the rescue may take: what is left, or one fresh initial timeout (L61)."""
    return remaining if remaining > 0 else timeouts.initial_event_timeout


def _rate_limited(now: Situation) -> Decision:
    n = now.ladder.rate_limit_retries + 1
    policy = now.rate_limit
    counted = replace(now.ladder, rate_limit_retries=n)
    limit = (
        now.ladder.transport_attempts + min(policy.fallback_after_retries, policy.max_retries) + 1
    )
    if n > policy.max_retries:  # HardStop
        return _rescue_or_fail(now, limit)
    if n > policy.fallback_after_retries or now.hint_too_long:
        return Decision(Step.ESCALATE, now.ladder, error=_escalation(now, n), max_attempts=limit)
    hint = now.hint
    wait = min(policy.default_delay, policy.max_delay) if hint is None else hint
    return Decision(Step.RETRY, counted, min(wait, max(now.remaining, 0.0)), max_attempts=limit)


def _overloaded(now: Situation) -> Decision:
    if now.hint_too_long:
        return Decision(Step.FAIL, now.ladder, error=_come_back_later(now), max_attempts=_most(now))
    decision = _transport(now)
    hint = now.hint
    if decision.step is Step.RETRY and hint is not None:
        return replace(decision, delay=min(hint, max(now.remaining, 0.0)))
    return decision


def _transport(now: Situation) -> Decision:
    done = now.ladder.transport_attempts
    if done >= now.retry.max_retries:
        return _rescue_or_fail(now, _most(now))
    delay = min(transport_delay(now.retry, done, now.uniform), max(now.remaining, 0.0))
    counted = replace(now.ladder, transport_attempts=done + 1)
    return Decision(Step.RETRY, counted, max(delay, 0.0), max_attempts=_most(now))


def _fail(now: Situation) -> Decision:
    return Decision(Step.FAIL, now.ladder, error=now.error, max_attempts=now.ladder.attempts)


def _rescue_or_fail(now: Situation, most: int | None = None) -> Decision:
    most = now.ladder.attempts if most is None else most
    if now.rescue_enabled:
        return Decision(Step.RESCUE, now.ladder, max_attempts=most)
    return Decision(Step.FAIL, now.ladder, error=now.error, max_attempts=most)


def _most(now: Situation) -> int:
    return now.ladder.rate_limit_retries + now.retry.max_retries + 1


# failure -> ladder (L58). Every class has one; the two ladders never spend each other's retries.
LADDER_OF_FAILURE: Final[Mapping[FailureClass, Callable[[Situation], Decision]]] = {
    FailureClass.RATE_LIMITED: _rate_limited,  # L59
    FailureClass.OVERLOADED: _overloaded,  # L60, with the provider's hint in place of the delay
    FailureClass.PERMANENT: _fail,  # one attempt, no backoff, no rescue
    FailureClass.TOTAL_TIMEOUT: _rescue_or_fail,  # no further streaming attempt
    FailureClass.TRANSIENT: _transport,  # L60
}


def cause_of(error: BaseException) -> str:
    """An error in a few words: ``503 busy``, ``the stream was silent for 180 s``."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    if isinstance(error, ProviderError):
        head = "" if error.status is None else str(error.status)
        said = re.search(rf"\b{head}\b", text)  # "HTTP 503: busy" says it already
        text = text if said else f"{head} {text}".strip()
        text = text or error.kind.value
    text = text or type(error).__name__
    return text if len(text) <= 200 else text[:199] + "…"


def return_time(retry_after: float, wall: float) -> str:
    """``in 3 h (at 17:00 UTC)``, with the date when it is not today."""
    try:
        now = datetime.fromtimestamp(wall, UTC)
        then = datetime.fromtimestamp(wall + retry_after, UTC)
    except (OverflowError, ValueError, OSError):  # absurdly large
        return f"in {retry_after:.0f} s"
    day = "" if then.date() == now.date() else f"{then:%Y-%m-%d} "
    return f"in {_span(retry_after)} (at {day}{then:%H:%M} UTC)"


def _span(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size or seconds == size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"


def _escalation(now: Situation, attempts: int) -> RateLimitEscalation:
    hint = getattr(now.error, "retry_after", None)
    times = "once" if attempts == 1 else f"{attempts} times in a row"
    when = ""
    if hint is not None:
        when = f"\nThe provider says to return {return_time(hint, now.wall)}."
    return RateLimitEscalation(attempts, hint, f"Rate limited {times}: {cause_of(now.error)}{when}")


def _come_back_later(now: Situation) -> AgentError:
    old = now.error
    assert isinstance(old, ProviderError)  # only a provider can be overloaded
    hint = old.retry_after or 0.0
    return ProviderError(
        old.kind,
        f"{old.message}\nThe provider says to return {return_time(hint, now.wall)}.",
        status=old.status,
        retry_after=old.retry_after,
        error_type=old.error_type,
        should_retry=old.should_retry,
        hint=old.hint,
    )
