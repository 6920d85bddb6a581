"""One counter for runs that several models may serve: never below any of theirs.

The counter is chosen once per run, because trigger and compaction must use the same one (L20);
which model serves is only known turn by turn. So where a chain may route to a model of another
vocabulary, every text counts as what the dearest of them makes of it.

Source: LLM turn, "Counting the context" (L18, L20); Turn FSM, "CallingModel" (B36).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from notebook_agent.core.context import TokenCounter
from notebook_agent.core.messages import Message
from notebook_agent.core.request import ToolSchema
from notebook_agent.engine.tokenizer.counters import (
    PRESETS,
    DefaultCounter,
    EstimatingCounter,
    RatioCounter,
    counting_rule,
    default_counter,
)
from notebook_agent.engine.tokenizer.vocabulary import VOCABULARIES

__all__ = ["LargestCounter", "counter_for_models", "counter_named"]

_OPEN = "largest("


class LargestCounter:
    """Counts each text, message and overhead as the counter that makes most of it.

    Args:
        counters: Two or more.
    """

    name: str
    exact: bool
    reason: str | None

    def __init__(self, counters: Sequence[TokenCounter]) -> None:
        self.counters = tuple(counters)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self.counters)}>"

    async def prepare(self) -> None:
        """Load what counting needs, off the event loop."""
        for counter in self.counters:
            prepare = getattr(counter, "prepare", None)
            if prepare is not None:
                await prepare()

    def __getattr__(self, attribute: str) -> Any:
        """``name``, ``exact`` and ``reason`` are known once the counters know theirs."""
        if attribute not in ("name", "exact", "reason"):
            raise AttributeError(attribute)
        names = list(dict.fromkeys(counter.name for counter in self.counters))
        alike = len(names) == 1
        self.name = names[0] if alike else f"{_OPEN}{','.join(names)})"
        # Exact only when all count alike: else it may be more than what serves.
        self.exact = alike and all(counter.exact for counter in self.counters)
        estimating = next((c for c in self.counters if not c.exact), None)
        if estimating is not None:
            self.reason = getattr(estimating, "reason", None)
        elif not alike:
            self.reason = f"Our own token counts are upper estimates (est.): the backups count otherwise, {self.name}."
        else:
            self.reason = None
        return getattr(self, attribute)

    def count_text(self, text: str) -> int:
        """Tokens of a text."""
        return max(counter.count_text(text) for counter in self.counters)

    def count_message(self, message: Message) -> int:
        """Tokens of one message."""
        return max(counter.count_message(message) for counter in self.counters)

    def count_overhead(self, system: str | None, tools: Sequence[ToolSchema] | None) -> int:
        """Tokens of system prompt and tool schemas."""
        return max(counter.count_overhead(system, tools) for counter in self.counters)


def counter_for_models(models: Iterable[str]) -> TokenCounter:
    """The counter for a run that any of these models may serve.

    Args:
        models: Full names, the primary first.

    Returns:
        The one model's counter when all count alike, else one that is never below any.
    """
    firsts: dict[object, str] = {}
    for model in models:
        firsts.setdefault(counting_rule(model), model)
    counters = [default_counter(model) for model in firsts.values()]
    if not counters:
        return default_counter()
    return counters[0] if len(counters) == 1 else LargestCounter(counters)


def counter_named(name: str) -> TokenCounter | None:
    """The counter of a recorded name, None when the name says nothing.

    Example:
        >>> counter_named("estimate").name
        'estimate'
    """
    if name.startswith(_OPEN):
        parts = [counter_named(one) for one in name[len(_OPEN) : -1].split(",")]
        known = [part for part in parts if part is not None]
        return LargestCounter(known) if known and len(known) == len(parts) else None
    if name in VOCABULARIES:
        return DefaultCounter(name)
    if name == "estimate":
        return EstimatingCounter()
    for preset in PRESETS.values():
        counter = RatioCounter(*preset)
        if counter.name == name:
            return counter
    return None
