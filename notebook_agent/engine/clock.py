"""Clock, randomness and ids, injected: every timing rule is testable without sleeping (L128)."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

__all__ = ["SYSTEM", "PinnedClock", "Surroundings", "pinned"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the engine takes from outside.

    Attributes:
        now: Monotonic seconds, for deadlines, breaker and durations.
        wall: Seconds since the epoch, UTC, for records.
        sleep: ``await sleep(seconds)``.
        uniform: ``uniform(low, high)`` for jitter.
        new_id: ``new_id(kind)`` -> a fresh id; kind is run, message, call, session.

    ``now`` must run at the rate of the event loop's own timers, which carry the deadlines.
    """

    # Ruling: L128, clocks, sleeps, jitter and ids come from here, so that no test must wait
    now: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    uniform: Callable[[float, float], float] = random.uniform
    new_id: Callable[[str], str] = lambda kind: f"{kind}_{uuid.uuid4().hex}"


SYSTEM = Surroundings()


class PinnedClock:
    """Time that passes only when somebody sleeps: notebooks whose stored outputs must not change.

    Starts at 2026-01-01 00:00:00 UTC. ``sleep`` yields to the loop once and moves the clock;
    ``advance`` moves it from outside.
    """

    epoch_s = 1_767_225_600.0

    def __init__(self) -> None:
        self.elapsed_s = 0.0

    def now(self) -> float:
        """Seconds since the clock was made."""
        return self.elapsed_s

    def wall(self) -> float:
        """Seconds since the epoch, UTC."""
        return self.epoch_s + self.elapsed_s

    def advance(self, seconds: float) -> None:
        """Move the clock forward; a negative number is ignored."""
        self.elapsed_s += max(seconds, 0.0)

    async def sleep(self, seconds: float) -> None:
        """Pass ``seconds`` without waiting for them."""
        self.advance(seconds)
        await asyncio.sleep(0)


def pinned(clock: PinnedClock | None = None) -> Surroundings:
    """Surroundings in which nothing differs from run to run (L128).

    Args:
        clock: Share one clock between several users.

    Returns:
        Pinned time, ids ``run_1, message_1, ...`` counted per kind, jitter 0.
    """
    time_of = clock or PinnedClock()
    counts: dict[str, itertools.count[int]] = {}

    def new_id(kind: str) -> str:
        return f"{kind}_{next(counts.setdefault(kind, itertools.count(1)))}"

    return Surroundings(
        now=time_of.now,
        wall=time_of.wall,
        sleep=time_of.sleep,
        uniform=lambda low, high: (low + high) / 2,
        new_id=new_id,
    )
