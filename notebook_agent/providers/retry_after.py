"""When a provider says to return: the one parser of ``Retry-After`` and its relatives.

Source: LLM turn, "StreamHandler" (L58, L59, L69); case R01.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

__all__ = ["parse_retry_after"]

_SECONDS: Final = re.compile(r"\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)")


def parse_retry_after(
    headers: Sequence[tuple[str, str]], wall: Callable[[], float]
) -> float | None:
    """Seconds to wait as the answer says, None when it does not or says nonsense (R01).

    ``retry-after-ms`` beats ``retry-after``. Seconds may have a fraction and spaces; a date in
    the past is 0; a zone of ``-0000`` is UTC; a negative number, an empty value or other words
    are None. Repeated values: the longest wait. A very large one is kept as it is: the ladder
    decides what to do with it (L59). Without these headers, the reset of a rate limit whose
    remaining count is 0 (OpenAI's durations, OpenRouter's time in milliseconds).

    Args:
        headers: (lower-case name, value) pairs.
        wall: Seconds since the epoch.
    """
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        found = [_one_wait(v, scale, wall) for key, v in headers if key == name]
        waits = [w for w in found if w is not None]
        if waits:
            return max(waits)
    return _until_reset(headers, wall)


def _one_wait(value: str, scale: float, wall: Callable[[], float]) -> float | None:
    value = value.strip()
    if _SECONDS.fullmatch(value):
        seconds = float(value) * scale
        return seconds if seconds != float("inf") else None
    if scale == 1.0:
        try:
            when = parsedate_to_datetime(value)
            if when.tzinfo is None:  # "-0000" comes back naive
                when = when.replace(tzinfo=UTC)
            return max(0.0, when.timestamp() - wall())
        except (ValueError, TypeError, IndexError, OverflowError):
            pass
    if "," in value:  # repeated headers that a library joined
        waits = [_one_wait(part, scale, wall) for part in value.split(",")]
        return max((w for w in waits if w is not None), default=None)
    return None


_UNIT_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION: Final = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h|d))+")
_STEP: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_LIMITS: Final = (
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
    ("x-ratelimit-remaining", "x-ratelimit-reset"),
)
_MILLISECONDS: Final = re.compile("[0-9]{13}")


def _until_reset(headers: Sequence[tuple[str, str]], wall: Callable[[], float]) -> float | None:
    """The longest wait of the limits that have nothing left."""
    fields = dict(headers)
    waits: list[float] = []
    for remaining, reset in _LIMITS:
        value = fields.get(reset, "").strip()
        if fields.get(remaining, "").strip() != "0":
            continue
        if _DURATION.fullmatch(value):
            waits.append(sum(float(n) * _UNIT_S[unit] for n, unit in _STEP.findall(value)))
        elif _MILLISECONDS.fullmatch(value):
            waits.append(max(0.0, int(value) / 1000 - wall()))
    return max(waits, default=None)
