"""BreakerConfig, and Route: where the next request goes.

Source: LLM turn, "Recording the outcome, exactly" (L76, L80); Turn FSM, "CallingModel" (B36).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from notebook_agent.core.chain import ChainEntry
from notebook_agent.errors import ConfigError, FallbackExhausted, RestingModel

__all__ = ["BreakerConfig", "Route", "resting"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerConfig:
    """When the breaker trips and when it closes again (L76).

    ==========================  =======  ====================================================
    field                       default  meaning
    ==========================  =======  ====================================================
    trip_threshold              3        failures in a row that trip; 0 trips on the first
    recovery_timeout            60.0     seconds of cooldown before the primary is probed
    recovery_successes_needed   2        probe successes that close it
    max_fail_count              2        strikes per backup
    ==========================  =======  ====================================================

    Raises:
        ConfigError: A value outside its legal range.
    """

    trip_threshold: int = 3
    recovery_timeout: float = 60.0
    recovery_successes_needed: int = 2
    max_fail_count: int = 2

    def __post_init__(self) -> None:
        for name, floor in _INT_FLOORS.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < floor:
                legal = f"a whole number of at least {floor}"
                raise ConfigError(field=name, value=value, legal=legal)
        cooldown = self.recovery_timeout
        if (
            not isinstance(cooldown, (int, float))
            or isinstance(cooldown, bool)
            or not 0 <= cooldown < float("inf")
        ):
            raise ConfigError(
                field="recovery_timeout",
                value=cooldown,
                legal="a finite number of seconds, at least 0",
            )

    def to_json(self) -> dict[str, Any]:
        """JSON form, seconds as float."""
        return {name: getattr(self, name) for name in self.__slots__}


_INT_FLOORS: Final[Mapping[str, int]] = {
    "trip_threshold": 0,
    "recovery_successes_needed": 1,
    "max_fail_count": 1,
}


@dataclass(frozen=True, slots=True)
class Route:
    """Where the next request goes (B36).

    Attributes:
        model: Full name, ``provider:name``.
        window: Its window in tokens, None when unknown.
        override: Whether the name must be written into the request's options (L14, L15).
        skipped: Backups passed over because their window cannot hold the request, with it.
        exhausted: Set when every model is resting: nothing may be sent (L80).
        fits: False when no model of the chain can hold the request; ``model`` is then the one
            with the largest window, to compact for.
    """

    model: str
    window: int | None = None
    override: bool = False
    skipped: tuple[tuple[str, int], ...] = ()
    exhausted: FallbackExhausted | None = None
    fits: bool = True


def resting(entry: ChainEntry, primary: str) -> RestingModel:
    """The line of a FallbackExhausted about one backup."""
    if not entry.available:
        return RestingModel(entry.name, "switched off")
    why = f" ({entry.last_cause})" if entry.last_cause else ""
    return RestingModel(
        entry.name,
        f"{entry.attempt_count} of {entry.max_fail_count} strikes{why}; "
        f"comes back when {primary} has recovered",
    )
