"""Counting the context: the number the compaction trigger compares with the window.

Source: LLM turn, "Counting the context" (L17-L21, L110); contributors (L107-L112);
Turn FSM, "BuildingContext" (B27: one counter for both).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from notebook_agent.core.messages import Message
from notebook_agent.core.request import ToolSchema

__all__ = ["ContextEstimate", "Contributor", "TokenCounter", "estimate_context", "sum_tokens"]


# Ruling: B27, one estimator serves both documents: trigger, compaction, trim and gauge.
class TokenCounter(Protocol):
    """Counts tokens. One counter serves trigger, compaction and gauge (L20).

    Attributes:
        name: What it is, "o200k_base" or "estimate"; also the key of the counts kept beside
            each message.
        exact: False = an estimate that over-reserves; labelled ``est.`` wherever it shows.

    Optional: ``async prepare() -> None``, awaited by the runtime before the first count of a
    session, so that a vocabulary loads off the event loop; ``reason: str | None``, why the
    counts are estimates, shown once per session.
    """

    name: str
    exact: bool

    def count_text(self, text: str) -> int:
        """Tokens of a text, control tokens read as ordinary text (T01)."""
        ...

    def count_message(self, message: Message) -> int:
        """Tokens of one message with its per-message overhead, images by size (T05)."""
        ...

    def count_overhead(self, system: str | None, tools: Sequence[ToolSchema] | None) -> int:
        """Tokens of system prompt and tool schemas as they are sent (T04)."""
        ...


class Contributor(Protocol):
    """Gives transients: asked each turn, never stored (L109, L110)."""

    def contribute(self, turn: int, conversation: Sequence[Message]) -> Message | None:
        """A message for this turn only, or None."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextEstimate:
    """Tokens the next request would have, in parts (L17).

    ``calibration`` is what the provider's own count of an earlier request changed in
    ``history``: below 0 = we had reserved too much.
    """

    system: int = 0
    tools: int = 0
    transients: int = 0
    history: int = 0
    exact: bool = False
    calibration: int = 0

    @property
    def overhead(self) -> int:
        """System prompt + tool schemas."""
        return self.system + self.tools

    @property
    def total(self) -> int:
        """The estimate."""
        return self.system + self.tools + self.transients + self.history

    @property
    def reserved(self) -> int:
        """Tokens beside the messages that a compaction cannot win back: transients, and what the
        provider counts above our estimate."""
        return self.transients + max(self.calibration, 0)

    def parts(self) -> dict[str, int]:
        """system, tools, transients, history: for gauge and record."""
        return {
            "system": self.system,
            "tools": self.tools,
            "transients": self.transients,
            "history": self.history,
        }


def sum_tokens(counter: TokenCounter, messages: Iterable[Message]) -> int:
    """Tokens of messages; each is counted once and its count kept beside it."""
    key = counter.name
    total = 0
    for message in messages:
        memo = message.memo
        count = memo.get(key)
        if count is None:
            count = memo[key] = counter.count_message(message)
        total += count
    return total


def estimate_context(
    counter: TokenCounter,
    full_history: Iterable[Message],
    transients: Iterable[Message] = (),
    *,
    system: int = 0,
    tools: int = 0,
) -> ContextEstimate:
    """``tokens(history + pending) + overhead + tokens(transients)`` (L17).

    Args:
        system, tools: The overhead's two parts, measured once per (system prompt, tools) by
            the caller (L21). Tools count also when a forced format suppresses them (L18).
    """
    return ContextEstimate(
        system=system,
        tools=tools,
        transients=sum_tokens(counter, transients),
        history=sum_tokens(counter, full_history),
        exact=counter.exact,
    )
