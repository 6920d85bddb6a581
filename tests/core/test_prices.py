"""core/prices.py: cost only from prices of the user's own, cached tokens once (D10, T06)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from notebook_agent.core.prices import Cost, check_prices, run_cost, turn_cost
from notebook_agent.core.session import Run, Turn, UnservedTurn
from notebook_agent.errors import ConfigError

TURN = Turn(
    turn=0, input="", output="", model="openai:gpt-x", input_tokens=1_000_000,
    output_tokens=500_000, cached_input_tokens=400_000, input_includes_cached=True,
)  # fmt: skip
PRICES = check_prices({"openai:gpt-x": (2, 8, 0.5), "small": [1, 1]})


@pytest.mark.parametrize(
    ("turn", "amount"),
    [
        (TURN, 600_000 * 2 + 400_000 * 0.5 + 500_000 * 8),
        (replace(TURN, input_includes_cached=False), 1_000_000 * 2 + 400_000 * 0.5 + 500_000 * 8),
        (replace(TURN, failed_input_tokens=100_000, failed_output_tokens=10_000),
         700_000 * 2 + 400_000 * 0.5 + 510_000 * 8),
        (replace(TURN, model="any:small"), 1_500_000),
        (replace(TURN, model="other:gpt-x"), None),
    ],
)  # fmt: skip
def test_a_turns_cost(turn, amount):
    cost = turn_cost(turn, PRICES)
    if amount is None:
        assert cost is None
    else:
        assert cost == Cost(pytest.approx(amount / 1_000_000), True)


def test_what_is_not_reported_makes_a_lower_bound():
    cost = turn_cost(replace(TURN, output_tokens=None), PRICES)
    assert cost is not None
    assert not cost.complete
    assert str(cost) == "at least 1.40"


def test_a_run():
    other = replace(TURN, model="free:x")
    failed = UnservedTurn(
        turn=replace(TURN, output_tokens=None, input_tokens=None), outcome="failed"
    )
    assert run_cost(Run(id="r", input="", turns=[TURN]), PRICES) == Cost(5.4, True)
    assert run_cost(Run(id="r", input="", turns=[TURN, other]), PRICES) == Cost(5.4, False)
    assert run_cost(Run(id="r", input="", turns=[other]), PRICES) is None
    assert run_cost(Run(id="r", input="", turns=[TURN]), {}) is None
    assert not run_cost(Run(id="r", input="", turns=[TURN], unserved=[failed]), PRICES).complete


@pytest.mark.parametrize(
    "bad",
    [3, {"m": 1}, {"m": (1,)}, {"m": (1, 2, 3, 4)}, {"m": (-1, 2)}, {"m": (1, float("nan"))},
     {"m": ("1", 2)}, {3: (1, 2)}, {"m": (True, 1)}],
)  # fmt: skip
def test_prices_that_are_none(bad):
    with pytest.raises(ConfigError, match="prices"):
        check_prices(bad)


@pytest.mark.parametrize(
    ("amount", "text"), [(12.345, "12.35"), (0.12345, "0.1235"), (0.00012345, "0.000123")]
)
def test_text(amount, text):
    assert str(Cost(amount)) == text
