"""RuntimePolicy: the limits of a run, and the check at the top of every turn.

Source: Turn FSM, "CheckingPolicy" (B4, B15-B19, L97, L122).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from notebook_agent.errors import (
    AgentError,
    ConfigError,
    ContextExceeded,
    LimitReached,
    TokenBudgetExhausted,
)

__all__ = [
    "CompactionExhausted",
    "MaxIterations",
    "PolicyReason",
    "RuntimePolicy",
    "TokenBudget",
    "check_policy",
]


@dataclass(frozen=True, slots=True)
class MaxIterations:
    """Turn ``used`` was asked for and ``limit`` are allowed."""

    limit: int
    used: int
    type: Literal["max_iterations"] = "max_iterations"

    def error(self) -> AgentError:
        """The error that ends the run."""
        return LimitReached(self.limit, self.used)


@dataclass(frozen=True, slots=True)
class TokenBudget:
    """``used`` tokens are more than ``limit``."""

    limit: int
    used: int
    type: Literal["token_budget"] = "token_budget"

    def error(self) -> AgentError:
        """The error that ends the run."""
        return TokenBudgetExhausted(self.limit, self.used)


# Ruling: B4, a third reason beside the seed's two: the bound of B22 is in the record.
@dataclass(frozen=True, slots=True)
class CompactionExhausted:
    """``attempts`` passes left ``estimated`` tokens at or over the line (B22)."""

    attempts: int
    estimated: int
    limit: int
    detail: str = ""
    type: Literal["compaction_exhausted"] = "compaction_exhausted"

    def error(self) -> AgentError:
        """The error that ends the run."""
        return ContextExceeded(self.estimated, self.limit, self.detail or None)


PolicyReason = MaxIterations | TokenBudget | CompactionExhausted


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimePolicy:
    """Limits of a run; immutable while it runs (B19).

    =============================  ========  =======================================
    field                          default   meaning
    =============================  ========  =======================================
    max_iterations                 16        turns a run may take (``--max-turns``)
    max_total_tokens               256,000   input + output of all attempts of a run
    max_input_tokens               None      caps the serving model's window
    tool_timeout_s                 30.0      seconds per tool call
    max_tool_concurrency           4         calls at once in the concurrent group
    continue_on_tool_failure       True      tool errors go back to the model
    max_output_recovery_attempts   0         follow-ups after a reply cut at its length
    router_retries                 0         whole turns retried by the router
    memory_top_k                   3         memory entries per turn, 0 = off
    =============================  ========  =======================================
    """

    max_iterations: int = 16
    max_total_tokens: int = 256_000
    max_input_tokens: int | None = None
    tool_timeout_s: float = 30.0
    max_tool_concurrency: int = 4
    continue_on_tool_failure: bool = True
    max_output_recovery_attempts: int = 0
    router_retries: int = 0
    memory_top_k: int = 3

    def __post_init__(self) -> None:
        for name, floor in _FLOORS.items():
            value = getattr(self, name)
            if value is None and name == "max_input_tokens":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < floor:
                legal = f"a whole number of at least {floor}"
                raise ConfigError(field=name, value=value, legal=legal)
        limit: object = self.tool_timeout_s
        number = isinstance(limit, (int, float)) and not isinstance(limit, bool)
        if not number or not 0.001 <= self.tool_timeout_s < float("inf"):
            legal = "a finite number of seconds, at least 0.001"
            raise ConfigError(field="tool_timeout_s", value=limit, legal=legal)
        if not isinstance(self.continue_on_tool_failure, bool):
            raise ConfigError(
                field="continue_on_tool_failure",
                value=self.continue_on_tool_failure,
                legal="True or False",
            )


_FLOORS = {
    "max_iterations": 1,
    "max_total_tokens": 1,
    "max_input_tokens": 1,
    "max_tool_concurrency": 1,
    "max_output_recovery_attempts": 0,
    "router_retries": 0,
    "memory_top_k": 0,
}


def check_policy(policy: RuntimePolicy, *, iteration: int, tokens_used: int) -> PolicyReason | None:
    """The reason to refuse this turn, None when it may go on.

    Args:
        iteration: Counts from 1, already incremented for this turn (B15).
        tokens_used: Tokens of this run so far, all attempts.

    Exactly ``max_iterations`` turns are allowed (B16); the budget is strict ``>`` (B17);
    iterations are checked first.
    """
    if iteration > policy.max_iterations:
        return MaxIterations(policy.max_iterations, iteration)
    if tokens_used > policy.max_total_tokens:
        return TokenBudget(policy.max_total_tokens, tokens_used)
    return None
