"""StreamOutcome: how a streamed turn ended, in one value.

Source: LLM turn, "The streaming path"; the handler's ladder (L63).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

__all__ = ["StreamEnd", "StreamOutcome"]


class StreamEnd(Enum):
    """Kinds of end, in rising severity (L63)."""

    COMPLETED = "completed"
    TOTAL_TIMEOUT = "total_timeout"
    EVENT_TIMEOUT = "event_timeout"
    RATE_LIMITED = "rate_limited"
    INIT_FAILED = "init_failed"
    FALLBACK_TO_NON_STREAMING = "fallback_to_non_streaming"
    CANCELLED = "cancelled"

    @property
    def severity(self) -> int:
        """0 for completed, rising."""
        return list(StreamEnd).index(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOutcome:
    """One per streamed turn.

    Attributes:
        end: The kind. INIT_FAILED also covers errors in mid-stream and truncation.
        events_processed: Accepted events of the whole turn, all attempts.
        duration_s: Of the whole turn, seconds.
        has_partial_data: At least one part of the last attempt was closed (L56).
        consecutive_timeouts: Waits that timed out in a row, for EVENT_TIMEOUT.
        attempts: Both ladders' counters + 1; the rescue is not counted.
        detail: The last error in one line, "" when completed.
    """

    end: StreamEnd
    events_processed: int = 0
    duration_s: float = 0.0
    has_partial_data: bool = False
    consecutive_timeouts: int = 0
    attempts: int = 1
    detail: str = ""

    def to_json(self) -> dict[str, Any]:
        """JSON form."""
        return {
            name: self.end.value if name == "end" else getattr(self, name)
            for name in self.__slots__
        }
