"""Settings of the stream handler: timeouts, transport retries, rate limits.

Source: LLM turn, "The streaming path" (L48-L50).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from notebook_agent.errors import ConfigError

__all__ = ["RateLimitPolicy", "RetryPolicy", "StreamTimeouts"]


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _check(owner: Any, name: str, ok: Callable[[Any], bool], legal: str) -> None:
    value = getattr(owner, name)
    if not _number(value) or not ok(value):
        raise ConfigError(field=name, value=value, legal=legal)


def _check_count(owner: Any, name: str, floor: int) -> None:
    value = getattr(owner, name)
    if not isinstance(value, int) or isinstance(value, bool) or value < floor:
        raise ConfigError(field=name, value=value, legal=f"a whole number of at least {floor}")


def _check_flag(owner: Any, name: str) -> None:
    value = getattr(owner, name)
    if not isinstance(value, bool):
        raise ConfigError(field=name, value=value, legal="True or False")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTimeouts:
    """Deadlines of a turn, in seconds.

    ==========================  =======  =====================================================
    field                       default  meaning
    ==========================  =======  =====================================================
    initial_event_timeout       120.0    until the first event of an attempt
    per_event_timeout           180.0    between two events
    total_stream_timeout        300.0    for all attempts of a turn, both modes
    max_consecutive_timeouts    1        waits that may time out in a row before it is a failure
    fallback_to_non_streaming   True     rescue a failing stream by one unstreamed call
    passthrough                 False    no deadlines, no retries, no rescue (explicit opt-out)
    ==========================  =======  =====================================================

    Raises:
        ConfigError: A value outside its legal range.
    """

    initial_event_timeout: float = 120.0
    per_event_timeout: float = 180.0
    total_stream_timeout: float = 300.0
    max_consecutive_timeouts: int = 1  # Ruling: L48, with 10 the rule could not fire inside 300 s
    fallback_to_non_streaming: bool = True
    passthrough: bool = False  # Ruling: L50, the configured handler is the default

    def __post_init__(self) -> None:
        for name in ("initial_event_timeout", "per_event_timeout", "total_stream_timeout"):
            _check(self, name, lambda v: v > 0, "a finite number of seconds above 0")
        first = self.initial_event_timeout
        _check(
            self,
            "total_stream_timeout",
            lambda v: v >= first,
            f"at least initial_event_timeout ({first:g} s); "
            "StreamTimeouts().capped(S) sets all three",
        )
        _check_count(self, "max_consecutive_timeouts", 1)
        _check_flag(self, "fallback_to_non_streaming")
        _check_flag(self, "passthrough")

    def capped(self, total: float) -> StreamTimeouts:
        """The user's ``--timeout S``: total is S, the other two at most S (Ruling: L49).

        Raises:
            ConfigError: S is no finite number above 0.
        """
        if not _number(total) or total <= 0:
            legal = "a finite number of seconds above 0"
            raise ConfigError(field="total_stream_timeout", value=total, legal=legal)
        return replace(
            self,
            total_stream_timeout=float(total),
            initial_event_timeout=min(self.initial_event_timeout, float(total)),
            per_event_timeout=min(self.per_event_timeout, float(total)),
        )

    @property
    def total_s(self) -> float | None:
        """Deadline of a whole turn, None in passthrough: a disabled arm (L25, L27)."""
        return None if self.passthrough else self.total_stream_timeout

    def allowed_timeouts(self, events_seen: int) -> int:
        """Timed-out waits in a row that fail the attempt (L55: empty-stream fast fail)."""
        most = self.max_consecutive_timeouts
        return most if events_seen else min(2, most)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The transport ladder (L60).

    ==============  =======  ==========================================================
    field           default  meaning
    ==============  =======  ==========================================================
    max_retries     3        retries after the first attempt: 3 = 4 attempts
    base_delay      0.1      seconds before the first retry, doubled for each next one
    max_delay       10.0     cap of the delay, seconds
    jitter_factor   0.1      the delay varies by this share, applied after the cap
    ==============  =======  ==========================================================

    Raises:
        ConfigError: A value outside its legal range.
    """

    max_retries: int = 3
    base_delay: float = 0.1
    max_delay: float = 10.0
    jitter_factor: float = 0.1

    def __post_init__(self) -> None:
        _check_count(self, "max_retries", 0)
        _check(self, "base_delay", lambda v: v > 0, "a finite number of seconds above 0")
        base = self.base_delay
        _check(self, "max_delay", lambda v: v >= base, f"at least base_delay ({base:g} s), finite")
        _check(self, "jitter_factor", lambda v: 0 <= v <= 1, "a number from 0 to 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitPolicy:
    """The rate-limit ladder (L59) and the token bucket (L53, L65).

    ======================  =======  ========================================================
    field                   default  meaning
    ======================  =======  ========================================================
    respect_retry_after     True     wait as long as the provider says
    default_delay           5.0      seconds when it does not say
    max_delay               60.0     a longer hint is not waited for: the turn escalates
    fallback_after_retries  3        waits before the turn escalates
    max_retries             5        waits before a hard stop (reached only when both are equal)
    requests_per_minute     0        token bucket per base URL; 0 = off
    max_wait                30.0     seconds a request may wait for the bucket
    ======================  =======  ========================================================

    Raises:
        ConfigError: A value outside its legal range.
    """

    respect_retry_after: bool = True
    default_delay: float = 5.0
    max_delay: float = 60.0
    fallback_after_retries: int = 3
    max_retries: int = 5
    requests_per_minute: int = 0
    max_wait: float = 30.0

    def __post_init__(self) -> None:
        _check_flag(self, "respect_retry_after")
        _check(self, "default_delay", lambda v: v > 0, "a finite number of seconds above 0")
        least = self.default_delay
        _check(
            self, "max_delay", lambda v: v >= least, f"at least default_delay ({least:g} s), finite"
        )
        _check_count(self, "max_retries", 1)
        _check_count(self, "fallback_after_retries", 0)
        if self.fallback_after_retries > self.max_retries:
            raise ConfigError(
                field="fallback_after_retries",
                value=self.fallback_after_retries,
                legal=f"at most max_retries ({self.max_retries})",
            )
        _check_count(self, "requests_per_minute", 0)
        _check(self, "max_wait", lambda v: v >= 0, "a finite number of seconds, at least 0")
