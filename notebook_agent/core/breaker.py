"""Breaker: which model serves, remembered across turns. Every rule is a row of one table.

Time comes in as ``now`` (seconds, monotonic); the table and its effects are pure, and each
change is computed whole before it is put in place (L74).

Source: LLM turn, "Recording the outcome, exactly" (L14, L73, L76-L84, F01-F05).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from notebook_agent.core.chain import (
    ChainEntry,
    ChainOps,
    chain_of,
    entry_from_json,
    entry_to_json,
    first_usable,
    struck,
)
from notebook_agent.core.route import BreakerConfig, Route, resting
from notebook_agent.errors import FallbackExhausted, RestingModel

__all__ = [
    "BREAKER_TRANSITIONS",
    "Breaker",
    "BreakerConfig",
    "BreakerData",
    "BreakerEvent",
    "BreakerRule",
    "BreakerState",
    "ChainEntry",
    "Effect",
    "FailureKind",
    "Route",
]


class BreakerState(Enum):
    """Who is trusted."""

    PRIMARY = "primary"
    FALLBACK = "fallback"
    RECOVERING = "recovering"


class FailureKind(Enum):
    """How a failed turn counts (L72.2)."""

    TRANSIENT = "transient"
    RATE_LIMIT = "rate_limit"


class BreakerEvent(Enum):
    """What happened. ``LAST_*`` is the one that reaches the configured number."""

    SUCCESS = "success"
    LAST_SUCCESS = "last_success"
    TRANSIENT = "transient"
    RATE_LIMIT = "rate_limit"
    LAST_FAILURE = "last_failure"
    COOLDOWN_OVER = "cooldown_over"
    TRIP = "trip"
    RESET = "reset"


class Effect(Enum):
    """What a rule changes beside the state."""

    COUNT_FAILURE = "failures + 1"
    CLEAR_FAILURES = "failures = 0"
    COUNT_PROBE = "probe successes + 1"
    CLEAR_PROBES = "probe successes = 0"
    START_CLOCK = "cooldown starts"
    CLEAR_CLOCK = "cooldown cleared"
    CLEAR_STRIKES = "all strikes cleared"
    ACTIVATE = "activated = true"
    DEACTIVATE = "activated = false"


@dataclass(frozen=True, slots=True)
class BreakerRule:
    """One row: the next state, the effects in order, and whether this is "the trip"."""

    to: BreakerState
    effects: tuple[Effect, ...] = ()
    tripped: bool = False


S, E, F = BreakerState, BreakerEvent, Effect
_TRIP: Final = BreakerRule(
    S.FALLBACK, (F.ACTIVATE, F.START_CLOCK, F.CLEAR_FAILURES, F.CLEAR_PROBES), tripped=True
)
_RESET: Final = BreakerRule(
    S.PRIMARY,
    (F.CLEAR_FAILURES, F.CLEAR_PROBES, F.CLEAR_CLOCK, F.CLEAR_STRIKES, F.DEACTIVATE),
)

# state -> event -> rule (L78). A pair that is not here cannot arise: Breaker asks for
# LAST_FAILURE in PRIMARY only, LAST_SUCCESS in RECOVERING only, COOLDOWN_OVER in FALLBACK only.
BREAKER_TRANSITIONS: Final[Mapping[BreakerState, Mapping[BreakerEvent, BreakerRule]]] = {
    S.PRIMARY: {
        E.SUCCESS: BreakerRule(S.PRIMARY, (F.CLEAR_FAILURES,)),
        E.TRANSIENT: BreakerRule(S.PRIMARY, (F.COUNT_FAILURE,)),
        E.RATE_LIMIT: BreakerRule(S.PRIMARY, (F.COUNT_FAILURE,)),
        E.LAST_FAILURE: _TRIP,
        E.TRIP: _TRIP,
        E.RESET: _RESET,
    },
    S.FALLBACK: {
        E.SUCCESS: BreakerRule(S.FALLBACK),  # a backup's success proves nothing of the primary
        E.TRANSIENT: BreakerRule(S.FALLBACK),  # the strike is the engine's (L72.4)
        E.RATE_LIMIT: BreakerRule(S.FALLBACK),
        E.COOLDOWN_OVER: BreakerRule(S.RECOVERING, (F.CLEAR_PROBES,)),
        E.TRIP: _TRIP,
        E.RESET: _RESET,
    },
    S.RECOVERING: {
        E.SUCCESS: BreakerRule(S.RECOVERING, (F.COUNT_PROBE,)),
        E.LAST_SUCCESS: BreakerRule(
            S.PRIMARY, (F.CLEAR_FAILURES, F.CLEAR_PROBES, F.CLEAR_CLOCK, F.CLEAR_STRIKES)
        ),
        E.TRANSIENT: BreakerRule(S.RECOVERING, (F.CLEAR_PROBES,)),
        # no trip, so no on_fallback; the probes so far prove nothing of the next try
        E.RATE_LIMIT: BreakerRule(S.FALLBACK, (F.START_CLOCK, F.CLEAR_PROBES)),
        E.TRIP: _TRIP,
        E.RESET: _RESET,
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerData:
    """All that the breaker remembers, as one value (L77).

    ``fallback_switched_at`` is a reading of the caller's monotonic clock; ``last_cause`` says
    in a line why the primary is out.
    """

    original_model: str
    state: BreakerState = BreakerState.PRIMARY
    consecutive_failures: int = 0
    primary_success_count: int = 0
    fallback_activated: bool = False
    chain: tuple[ChainEntry, ...] = ()
    fallback_switched_at: float | None = None
    last_cause: str = ""

    @property
    def active_fallback(self) -> str | None:
        """The first backup that is not failed, recomputed whenever it is asked for."""
        return first_usable(self.chain)


_EFFECTS: Final[Mapping[Effect, Callable[[BreakerData, float], dict[str, Any]]]] = {
    F.COUNT_FAILURE: lambda d, _: {"consecutive_failures": d.consecutive_failures + 1},
    F.CLEAR_FAILURES: lambda _d, _: {"consecutive_failures": 0},
    F.COUNT_PROBE: lambda d, _: {"primary_success_count": d.primary_success_count + 1},
    F.CLEAR_PROBES: lambda _d, _: {"primary_success_count": 0},
    F.START_CLOCK: lambda _d, now: {"fallback_switched_at": now},
    F.CLEAR_CLOCK: lambda _d, _: {"fallback_switched_at": None, "last_cause": ""},
    F.CLEAR_STRIKES: lambda d, _: {"chain": tuple(e.cleared() for e in d.chain)},
    F.ACTIVATE: lambda _d, _: {"fallback_activated": True},
    F.DEACTIVATE: lambda _d, _: {"fallback_activated": False},
}


class Breaker(ChainOps):
    """Primary, chain and what they did lately.

    Args:
        config: Numbers of L76.
        original_model: Full name of the primary.
        chain: Full names of the backups, in order.

    Attributes:
        times_cleared: How often all strikes were cleared, by a recovery or a reset.

    Example:
        >>> b = Breaker(BreakerConfig(), "a:one", ["a:two"])
        >>> [b.record_failure(FailureKind.TRANSIENT, now) for now in (1.0, 2.0, 3.0)]
        [False, False, True]
        >>> b.state, b.routed_model()
        (<BreakerState.FALLBACK: 'fallback'>, 'a:two')
    """

    def __init__(
        self, config: BreakerConfig, original_model: str, chain: Sequence[str] = ()
    ) -> None:
        super().__init__(config.max_fail_count)
        self.config = config
        self.times_cleared = 0
        self._data = BreakerData(
            original_model=original_model, chain=chain_of(chain, config.max_fail_count)
        )

    # --- reading

    @property
    def data(self) -> BreakerData:
        """All of it, as one frozen value."""
        return self._data

    @property
    def state(self) -> BreakerState:
        """Where it is."""
        return self._data.state

    @property
    def original_model(self) -> str:
        """Full name of the primary."""
        return self._data.original_model

    @property
    def chain(self) -> tuple[ChainEntry, ...]:
        """The backups, in order."""
        return self._data.chain

    @property
    def active_fallback(self) -> str | None:
        """The backup that serves while tripped, None without a usable one."""
        return self._data.active_fallback

    def routed_model(self, *, skip: Collection[str] = ()) -> str:
        """Full name of the model that the next request goes to (L79).

        Args:
            skip: Backups that cannot take this request; no strike is burned (F02).
        """
        data = self._data
        if data.state is not BreakerState.FALLBACK:
            return data.original_model
        return first_usable(data.chain, skip) or data.original_model

    def cooldown_left(self, now: float) -> float | None:
        """Seconds until the primary is probed, None while no cooldown runs."""
        data = self._data
        if data.state is not BreakerState.FALLBACK or data.fallback_switched_at is None:
            return None
        return max(0.0, data.fallback_switched_at + self.config.recovery_timeout - now)

    def exhausted(self, now: float) -> FallbackExhausted | None:
        """The error of L80, None when something may serve. Ask ``check_recovery`` first."""
        data = self._data
        left = self.cooldown_left(now)
        if left is None or not data.chain or data.active_fallback is not None:
            return None
        primary = RestingModel(data.original_model, data.last_cause or "tripped", left)
        return FallbackExhausted([primary, *(resting(e, data.original_model) for e in data.chain)])

    # --- events

    def record_success(self, now: float = 0.0) -> None:
        """A turn was served."""
        with self._lock:
            data = self._data
            enough = data.primary_success_count + 1 >= self.config.recovery_successes_needed
            last = data.state is BreakerState.RECOVERING and enough
            self._apply(BreakerEvent.LAST_SUCCESS if last else BreakerEvent.SUCCESS, now)

    def record_failure(self, kind: FailureKind, now: float, *, cause: str = "") -> bool:
        """A turn failed. Returns whether this failure tripped the breaker."""
        with self._lock:
            data = self._data
            enough = data.consecutive_failures + 1 >= self.config.trip_threshold
            event = BreakerEvent(kind.value)
            if data.state is BreakerState.PRIMARY and enough:
                event = BreakerEvent.LAST_FAILURE
            of_primary = data.state is not BreakerState.FALLBACK
            return self._apply(event, now, cause=cause if of_primary else "")

    def mark_fallback_failed(self, name: str, *, cause: str = "") -> None:
        """A strike against a backup (L72.4)."""
        with self._lock:
            self._put(chain=struck(self._data.chain, name, cause))

    def check_recovery(self, now: float) -> bool:
        """At the top of a turn: start probing when the cooldown is over.

        Returns:
            Whether the breaker went to RECOVERING.
        """
        with self._lock:
            left = self.cooldown_left(now)
            if left is None or left > 0:
                return False
            self._apply(BreakerEvent.COOLDOWN_OVER, now)
            return True

    def reset(self) -> None:
        """Back to the primary; counters, clock and strikes cleared."""
        with self._lock:
            self._apply(BreakerEvent.RESET, 0.0)

    def trip(self, now: float, *, cause: str = "tripped by hand") -> bool:
        """Trip by hand. Returns whether a backup is there to serve."""
        with self._lock:
            self._apply(BreakerEvent.TRIP, now, cause=cause)
            return self.active_fallback is not None

    def switch_primary(self, original_model: str) -> None:
        """Another primary; everything cleared (L83)."""
        with self._lock:
            self._apply(BreakerEvent.RESET, 0.0)
            self._put(original_model=original_model)

    # --- JSON

    def to_json(self, now: float | None = None) -> dict[str, Any]:
        """JSON form, for records, panel and snapshot.

        Args:
            now: The monotonic clock, to say how many seconds of the cooldown are left; a
                reading of that clock itself is never written (L121).
        """
        data = self._data
        return {
            "state": data.state.value,
            "original_model": data.original_model,
            "routed_model": self.routed_model(),
            "active_fallback": data.active_fallback,
            "consecutive_failures": data.consecutive_failures,
            "primary_success_count": data.primary_success_count,
            "fallback_activated": data.fallback_activated,
            "cooldown_left_s": None if now is None else self.cooldown_left(now),
            "last_cause": data.last_cause,
            "chain": [entry_to_json(e) for e in data.chain],
            "config": self.config.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], *, now: float = 0.0) -> Breaker:
        """The breaker that ``to_json`` wrote; a cooldown goes on from ``now``.

        Raises:
            ValueError, KeyError: The data is no breaker.
        """
        config = BreakerConfig(**data["config"])
        breaker = cls(config, data["original_model"])
        state = BreakerState(data["state"])
        since: float | None = None
        if state is not BreakerState.PRIMARY:
            left = data.get("cooldown_left_s")
            since = (
                now - config.recovery_timeout + (config.recovery_timeout if left is None else left)
            )
        breaker._data = BreakerData(
            original_model=data["original_model"],
            state=state,
            consecutive_failures=data["consecutive_failures"],
            primary_success_count=data["primary_success_count"],
            fallback_activated=data["fallback_activated"],
            chain=tuple(entry_from_json(e) for e in data["chain"]),
            fallback_switched_at=since,
            last_cause=data.get("last_cause", ""),
        )
        return breaker

    # --- inside

    def _apply(self, event: BreakerEvent, now: float, *, cause: str = "") -> bool:
        data = self._data
        rule = BREAKER_TRANSITIONS[data.state][event]
        changed = replace(data, state=rule.to, last_cause=cause or data.last_cause)
        for effect in rule.effects:
            changed = replace(changed, **_EFFECTS[effect](changed, now))
        self._data = changed  # one assignment: never half-updated (L74)
        self.times_cleared += Effect.CLEAR_STRIKES in rule.effects
        return rule.tripped

    def _put(self, **changes: Any) -> None:
        self._data = replace(self._data, **changes)

    def _get_chain(self) -> tuple[ChainEntry, ...]:
        return self._data.chain

    def _set_chain(self, chain: tuple[ChainEntry, ...]) -> None:
        self._put(chain=chain)
