"""Clock, randomness and ids, injected: every timing rule is testable without sleeping (L128)."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

__all__ = ["SYSTEM", "Surroundings"]


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

    now: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    uniform: Callable[[float, float], float] = random.uniform
    new_id: Callable[[str], str] = lambda kind: f"{kind}_{uuid.uuid4().hex}"


SYSTEM = Surroundings()
