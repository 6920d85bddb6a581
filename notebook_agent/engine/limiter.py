"""Token bucket per base URL: keeps requests under a rate before the provider has to say so.

Source: LLM turn, "The streaming path" (L53, L65).
"""

from __future__ import annotations

import threading
from typing import Final

__all__ = ["BUCKETS", "Buckets", "TokenBucket"]


class TokenBucket:
    """Capacity = requests per minute, refilled continuously, lazily on access.

    Args:
        requests_per_minute: 0 = off: a token is always free.
    """

    def __init__(self, requests_per_minute: float) -> None:
        self.capacity = float(requests_per_minute)
        self._tokens = self.capacity
        self._last: float | None = None

    def take(self, now: float) -> float:
        """Take a token if one is free.

        Args:
            now: Seconds, monotonic.

        Returns:
            0.0 when a token was taken, else the seconds until the next one is there.
        """
        if self.capacity <= 0:
            return 0.0
        # A clock that once read far ahead must not freeze the refill: going back re-bases.
        elapsed = 0.0 if self._last is None else max(now - self._last, 0.0)
        self._last = now
        self._tokens = min(self.capacity, self._tokens + elapsed * self.capacity / 60.0)
        # the tolerance absorbs rounding, or a waiter could come back 1e-12 too early for ever
        if self._tokens >= 1.0 - 1e-9:
            self._tokens -= 1.0
            return 0.0
        return (1.0 - self._tokens) * 60.0 / self.capacity


class Buckets:
    """One bucket per base URL, shared by all sessions of the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._buckets: dict[str, TokenBucket] = {}

    def take(self, key: str, requests_per_minute: float, now: float) -> float:
        """As ``TokenBucket.take``; a changed rate makes a new bucket."""
        if requests_per_minute <= 0:
            return 0.0
        with self._lock:
            bucket = self._buckets.get(key)
            if bucket is None or bucket.capacity != requests_per_minute:
                bucket = self._buckets[key] = TokenBucket(requests_per_minute)
            return bucket.take(now)


BUCKETS: Final = Buckets()
