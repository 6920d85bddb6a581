"""core/policy.py (B4, B15-B19)."""

from __future__ import annotations

import pytest

from notebook_agent.core.policy import (
    CompactionExhausted,
    MaxIterations,
    RuntimePolicy,
    TokenBudget,
    check_policy,
)
from notebook_agent.errors import ConfigError, ContextExceeded, LimitReached, TokenBudgetExhausted


def test_B16_exactly_max_iterations_turns_are_allowed() -> None:
    policy = RuntimePolicy(max_iterations=3)
    assert [check_policy(policy, iteration=i, tokens_used=0) for i in (1, 2, 3)] == [None] * 3
    assert check_policy(policy, iteration=4, tokens_used=0) == MaxIterations(3, 4)


def test_B17_budget_is_strict_and_second() -> None:
    policy = RuntimePolicy(max_iterations=1, max_total_tokens=100)
    assert check_policy(policy, iteration=1, tokens_used=100) is None
    assert check_policy(policy, iteration=1, tokens_used=101) == TokenBudget(100, 101)
    assert check_policy(policy, iteration=2, tokens_used=101) == MaxIterations(1, 2)


def test_B19_defaults() -> None:
    policy = RuntimePolicy()
    assert (policy.max_iterations, policy.max_total_tokens) == (16, 256_000)
    assert (policy.tool_timeout_s, policy.max_tool_concurrency) == (30.0, 4)
    assert policy.continue_on_tool_failure
    assert policy.max_output_recovery_attempts == 0
    assert policy.router_retries == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_iterations", 0),
        ("max_iterations", True),
        ("max_total_tokens", 0),
        ("max_input_tokens", 0),
        ("tool_timeout_s", 0),
        ("tool_timeout_s", float("nan")),
        ("tool_timeout_s", float("inf")),
        ("max_tool_concurrency", 0),
        ("max_output_recovery_attempts", -1),
        ("router_retries", "2"),
        ("memory_top_k", -1),
    ],
)
def test_L49_invalid_settings_name_field_value_and_range(field: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        RuntimePolicy(**{field: value})
    assert field in str(caught.value)
    assert repr(value) in str(caught.value)
    assert "number" in str(caught.value)


def test_B4_reasons_stand_for_their_errors() -> None:
    assert MaxIterations(1, 2).error() == LimitReached(1, 2)
    assert TokenBudget(1, 2).error() == TokenBudgetExhausted(1, 2)
    assert CompactionExhausted(2, 90, 80).error() == ContextExceeded(90, 80)
    assert str(CompactionExhausted(2, 90, 80, "no model fits").error()) == "no model fits"
