"""Paired comparison: the difference of two variants on the same inputs, with its uncertainty.

Cells of one input are not independent of each other (seeds and repeats ask the same question
again), so they are averaged first and the bootstrap draws inputs, not cells.

Source: tune by experiment, prompt lab (paired comparison, bootstrap confidence intervals).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["Paired", "paired"]

RESAMPLES: Final = 9_999


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """B minus A over the inputs that both answered.

    Attributes:
        inputs, pairs: Inputs, and cells, that both have a value for.
        dropped: Cells of A or B without a partner.
        mean_a, mean_b, difference: Means over inputs; None when there is no pair.
        low, high: Ends of the confidence interval; None with fewer than two inputs.
        note: What to know about it.
    """

    inputs: int
    pairs: int
    dropped: int
    mean_a: float | None = None
    mean_b: float | None = None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    note: str = ""


def paired(
    a: Mapping[tuple[Hashable, Hashable], float],
    b: Mapping[tuple[Hashable, Hashable], float],
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Paired:
    """Compare values by their keys.

    Args:
        a, b: ``(input, rest of the cell) -> value``.
        confidence: Of the interval, between 0 and 1.
        seed: Of the bootstrap: equal data give an equal interval.
    """
    both = sorted(set(a) & set(b), key=repr)
    dropped = len(set(a) ^ set(b))
    groups: dict[Hashable, list[tuple[float, float]]] = {}
    for key in both:
        groups.setdefault(key[0], []).append((a[key], b[key]))
    if not groups:
        return Paired(inputs=0, pairs=0, dropped=dropped, note="no cell has both")
    means = [
        (sum(x for x, _ in g) / len(g), sum(y for _, y in g) / len(g)) for g in groups.values()
    ]
    differences = [y - x for x, y in means]
    size = max(abs(value) for pair in means for value in pair)
    low, high, note = _interval(differences, size, confidence, resamples, seed)
    count = len(means)
    return Paired(
        inputs=count,
        pairs=len(both),
        dropped=dropped,
        mean_a=sum(x for x, _ in means) / count,
        mean_b=sum(y for _, y in means) / count,
        difference=sum(differences) / count,
        low=low,
        high=high,
        note=note,
    )


def _interval(
    values: Sequence[float], size: float, confidence: float, resamples: int, seed: int
) -> tuple[float | None, float | None, str]:
    if len(values) < 2:
        return None, None, "one input: no interval"
    if max(values) - min(values) <= 1e-12 * size:  # rounding, for numbers of this size
        same = sum(values) / len(values)
        return same, same, "every input differs by the same"
    try:
        import numpy as np  # noqa: PLC0415  # with scipy, extra: tuning
        from scipy.stats import bootstrap  # noqa: PLC0415  # extra: tuning, slow to import
    except ImportError:  # the difference stands without it, as a chart's table without its picture
        return None, None, "no interval without scipy: pip install notebook-agent[tuning]"
    # The percentile interval: BCa is not defined when a resample is constant, as with few inputs.
    found: Any = bootstrap(
        (np.asarray(values),), np.mean, confidence_level=confidence, n_resamples=resamples,
        method="percentile", rng=np.random.default_rng(seed), batch=max(1, 2_000_000 // len(values)),
    )  # fmt: skip
    low, high = found.confidence_interval
    note = "few inputs: a rough interval" if len(values) < 10 else ""
    return float(low), float(high), note
