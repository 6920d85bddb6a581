"""What a model's reply says of itself: stop reason, ending, usage.

Source: LLM turn, "Event routing, exactly" and gotcha 4 (L4, L5, L5a, L35); Turn FSM,
"ProcessingResponse" (B5, M2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, Final

from notebook_agent.core.messages import Message

__all__ = [
    "ENDING_OF_WORD",
    "ChatResponse",
    "Ending",
    "FinishReason",
    "StopReason",
    "Usage",
    "finish_reason",
]


class StopReason(Enum):
    """Why the model stopped; alone steers the loop (L5, L34)."""

    END_TURN = "end_turn"
    TOOL_CALL = "tool_call"
    MAX_TOKENS = "max_tokens"
    STOP_SEQUENCE = "stop_sequence"

    @classmethod
    def parse(cls, word: str | None) -> StopReason | None:
        """The reason a provider's word names, None for any other word (L5, L32)."""
        return STOP_REASON_OF_WORD.get(word or "")


class Ending(Enum):
    """How the provider says the reply ended; shown, steers nothing but L35's upgrade (L5a)."""

    END_TURN = "end_turn"
    TOOL_CALL = "tool_call"
    MAX_TOKENS = "max_tokens"
    STOP_SEQUENCE = "stop_sequence"
    CONTENT_FILTER = "content_filter"
    REFUSAL = "refusal"
    ERROR = "error"
    PAUSE = "pause"
    UNKNOWN = "unknown"


class FinishReason(Enum):
    """The Turn FSM's word for an ending (B5)."""

    TOOL_CALLS = "tool_calls"
    STOP = "stop"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"
    ERROR = "error"
    UNKNOWN = "unknown"


STOP_REASON_OF_WORD: Final[Mapping[str, StopReason]] = {
    "tool_use": StopReason.TOOL_CALL,
    "tool_calls": StopReason.TOOL_CALL,
    "tool_call": StopReason.TOOL_CALL,
    "function_call": StopReason.TOOL_CALL,
    "length": StopReason.MAX_TOKENS,
    "max_tokens": StopReason.MAX_TOKENS,
    "stop_sequence": StopReason.STOP_SEQUENCE,
    "stop": StopReason.END_TURN,
    "end_turn": StopReason.END_TURN,
}

# Words shared by several providers; an adapter adds its own before it looks here.
ENDING_OF_WORD: Final[Mapping[str, Ending]] = {
    **{word: Ending(reason.value) for word, reason in STOP_REASON_OF_WORD.items()},
    "content_filter": Ending.CONTENT_FILTER,
    "refusal": Ending.REFUSAL,
    "error": Ending.ERROR,
    "pause_turn": Ending.PAUSE,
}


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the provider reported them; None = not reported, never 0 (L4, A01).

    ``cached_input_tokens`` were read from the provider's cache; ``input_includes_cached``
    says whether ``input_tokens`` already counts them (T06). ``reasoning_tokens`` are part
    of ``output_tokens`` unless ``output_includes_reasoning`` is False.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    input_includes_cached: bool = True
    output_includes_reasoning: bool = True

    @property
    def context_tokens(self) -> int | None:
        """Tokens the model read: input with cached, each counted once."""
        if self.input_tokens is None or self.input_includes_cached:
            return self.input_tokens
        return self.input_tokens + (self.cached_input_tokens or 0) + (self.cache_write_tokens or 0)

    @property
    def total(self) -> int | None:
        """Input (with cached) + output (with reasoning), None unless both are known."""
        context = self.context_tokens
        if context is None or self.output_tokens is None:
            return None
        extra = 0 if self.output_includes_reasoning else (self.reasoning_tokens or 0)
        return context + self.output_tokens + extra

    def fault(self) -> str:
        """What is no count in it, "" when all are: counts are whole numbers or None."""
        for f in fields(self):
            value = getattr(self, f.name)
            if value is not None and not isinstance(value, int):
                return f"usage.{f.name} is {value!r}"
        return ""

    def merged(self, later: Usage) -> Usage:
        """Later values replace earlier ones field by field; absent keeps (S13)."""
        values = {}
        for f in fields(self):
            new = getattr(later, f.name)
            values[f.name] = getattr(self, f.name) if new is None else new
        return Usage(**values)

    def plus(self, other: Usage) -> Usage:
        """Field-wise sum of two calls; a counter stays None when both are None (B66)."""
        values: dict[str, Any] = {}
        for f in fields(self):
            a, b = getattr(self, f.name), getattr(other, f.name)
            if isinstance(a, bool):
                values[f.name] = a and b
            else:
                values[f.name] = None if a is None and b is None else (a or 0) + (b or 0)
        return Usage(**values)

    def to_json(self) -> dict[str, Any]:
        """JSON form, absent counters left out."""
        return {
            f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> Usage | None:
        """The usage that ``to_json`` wrote; None stays None."""
        if data is None:
            return None
        known = {f.name for f in fields(cls)}
        return cls(**{k: v for k, v in data.items() if k in known})


@dataclass(frozen=True, slots=True)
class ChatResponse:
    """One complete reply (M1).

    Attributes:
        message: The assistant message, closed parts only.
        stop_reason: Steers the loop.
        usage: As reported, None when the provider reported nothing.
        model: Full name of the model that served, "" from a bare client.
        ending, ending_raw: How the provider says it ended, and its own word (L5a).
        rescued: Adopted from the rescue call instead of the stream (L31).
        tools_not_run: Names of calls that must not run (unparsed, or cut by a limit).
    """

    message: Message
    stop_reason: StopReason = StopReason.END_TURN
    usage: Usage | None = None
    model: str = ""
    ending: Ending | None = None
    ending_raw: str | None = None
    rescued: bool = False
    tools_not_run: tuple[str, ...] = ()


_FINISH_OF_ENDING: Final[Mapping[Ending | None, FinishReason]] = {
    Ending.CONTENT_FILTER: FinishReason.CONTENT_FILTER,
    Ending.REFUSAL: FinishReason.CONTENT_FILTER,
    Ending.ERROR: FinishReason.ERROR,
    Ending.PAUSE: FinishReason.UNKNOWN,
    Ending.UNKNOWN: FinishReason.UNKNOWN,
}
_FINISH_OF_STOP: Final[Mapping[StopReason, FinishReason]] = {
    StopReason.TOOL_CALL: FinishReason.TOOL_CALLS,
    StopReason.END_TURN: FinishReason.STOP,
    StopReason.STOP_SEQUENCE: FinishReason.STOP,
    StopReason.MAX_TOKENS: FinishReason.LENGTH,
}


def finish_reason(response: ChatResponse) -> FinishReason:
    """B5's word: from ``ending`` where it is a special one, else from the stop reason (M2)."""
    special = _FINISH_OF_ENDING.get(response.ending)
    return special if special is not None else _FINISH_OF_STOP[response.stop_reason]
