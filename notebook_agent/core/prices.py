"""What turns cost, by prices that the user gives. No price is built in: they change (D10).

Source: notebook, section 3 (D10); provider formats, cached tokens (T06).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from notebook_agent.core.session import Run, Turn
from notebook_agent.errors import ConfigError

__all__ = ["Cost", "Prices", "check_prices", "run_cost", "turn_cost"]

MILLION: Final = 1_000_000
Prices = Mapping[str, tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class Cost:
    """An amount in the user's own currency; not ``complete`` = at least this much.

    Incomplete: a turn's model has no price, or tokens were not reported.
    """

    amount: float = 0.0
    complete: bool = True

    def __str__(self) -> str:
        digits = 2 if self.amount >= 1 else 6 if self.amount < 0.01 else 4
        return f"{'' if self.complete else 'at least '}{self.amount:.{digits}f}"


def check_prices(given: Any) -> dict[str, tuple[float, float, float]]:
    """Prices as they are kept: model -> (input, output, cached input) per million tokens.

    Args:
        given: ``{"openai:gpt-x": (1.0, 4.0, 0.1)}``; without the third, cached tokens cost as
            much as others.

    Raises:
        ConfigError: Not that form, or a price that is no amount.
    """
    legal = '{"provider:model": (input, output, cached input)} per million tokens'
    if not isinstance(given, Mapping):
        raise ConfigError(field="prices", value=given, legal=legal)
    out: dict[str, tuple[float, float, float]] = {}
    for model, row in given.items():
        prices = tuple(row) if isinstance(row, (tuple, list)) else ()
        fits = 2 <= len(prices) <= 3 and all(
            isinstance(p, (int, float)) and not isinstance(p, bool) and 0 <= p < float("inf")
            for p in prices
        )
        if not isinstance(model, str) or not fits:
            raise ConfigError(field="prices", value=f"{model!r}: {row!r}", legal=legal)
        cached = prices[2] if len(prices) == 3 else prices[0]
        out[model] = (float(prices[0]), float(prices[1]), float(cached))
    return out


def turn_cost(turn: Turn, prices: Prices) -> Cost | None:
    """Cost of one turn, its failed attempts too; None when its model has no price.

    Args:
        turn: Of the trail; the model is the one that served.
        prices: From :func:`check_prices`; a full name, or the bare one.
    """
    row = prices.get(turn.model) or prices.get(turn.model.partition(":")[2])
    if row is None:
        return None
    per_in, per_out, per_cached = row
    known = turn.input_tokens is not None and turn.output_tokens is not None
    cached = turn.cached_input_tokens or 0
    fresh = turn.input_tokens or 0
    if turn.input_includes_cached is not False:
        fresh = max(fresh - cached, 0)
    fresh += turn.failed_input_tokens or 0
    said = (turn.output_tokens or 0) + (turn.failed_output_tokens or 0)
    amount = (fresh * per_in + cached * per_cached + said * per_out) / MILLION
    return Cost(amount, known)


def run_cost(run: Run, prices: Prices) -> Cost | None:
    """Cost of a run; None when none of its models has a price."""
    return _sum(turn_cost(turn, prices) for turn in (*run.turns, *(u.turn for u in run.unserved)))


def _sum(costs: Iterable[Cost | None]) -> Cost | None:
    found = list(costs)
    known = [cost for cost in found if cost is not None]
    if not known:
        return None
    complete = len(known) == len(found) and all(cost.complete for cost in known)
    return Cost(sum(cost.amount for cost in known), complete)
