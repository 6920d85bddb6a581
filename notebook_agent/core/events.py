"""Stream events: what an adapter yields while a reply arrives.

A reply is ``MessageStart``, lanes (``PartStart``, ``IndexedDelta``..., ``PartStop``, possibly
interleaved), ``MessageDelta``, ``MessageStop``; ``Ping`` anywhere. An adapter yields
``MessageStop`` only after a terminal marker of its wire format: its absence is the truncation
signal (L9, L57).

The classes are not frozen: several are made for every delta, and a frozen dataclass costs
twice as much to make. Nobody may change one.

Source: LLM turn, "Event routing, exactly" (L29, L36-L38).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from notebook_agent.core.messages import MessagePart
from notebook_agent.core.response import ChatResponse, Ending, Usage

__all__ = [
    "AttemptReset",
    "Delta",
    "HandlerEvent",
    "IndexedDelta",
    "InputJson",
    "MessageDelta",
    "MessageStart",
    "MessageStop",
    "PartStart",
    "PartStop",
    "Ping",
    "ProviderState",
    "StreamEvent",
    "StreamFallback",
    "Text",
    "Thinking",
    "ToolCall",
]


@dataclass(slots=True)
class Text:
    """A fragment of text; ``refusal`` when its lane was opened as a refusal (L5a)."""

    text: str
    refusal: bool = False


@dataclass(slots=True)
class InputJson:
    """A fragment of a tool call's arguments, raw text (L41)."""

    partial_json: str


@dataclass(slots=True)
class ToolCall:
    """Legacy twin of InputJson (L37)."""

    partial_json: str


@dataclass(slots=True)
class Thinking:
    """A fragment of reasoning. Empty text means redacted reasoning (L37)."""

    text: str


@dataclass(slots=True)
class ProviderState:
    """Opaque state of the adapter that must travel back; to the accumulator only (L2, L37).

    Later states are merged over earlier ones key by key; a list value is appended to.
    """

    data: Mapping[str, Any]  # Ruling: L37, no observer and no text ever has it


Delta = Text | InputJson | ToolCall | Thinking | ProviderState


@dataclass(slots=True)
class MessageStart:
    """The reply begins."""

    id: str = ""
    role: str = "assistant"
    model: str = ""


@dataclass(slots=True)
class PartStart:
    """A lane opens. Its kind is its part's: tool_call, text, or no part = thinking (L39)."""

    index: int
    part: MessagePart | None = None


@dataclass(slots=True)
class IndexedDelta:
    """A fragment for the open lane of this index and the delta's kind (L40)."""

    index: int
    delta: Delta


@dataclass(slots=True)
class PartStop:
    """A lane closes; None closes the oldest open one (L43)."""

    index: int | None = None


@dataclass(slots=True)
class MessageDelta:
    """Stop reason (the provider's word or L5's), usage and ending, as they come.

    An unrecognised ``stop_reason`` keeps the previous value (L32).
    """

    stop_reason: str | None = None
    usage: Usage | None = None
    ending: Ending | None = None
    ending_raw: str | None = None


@dataclass(slots=True)
class MessageStop:
    """The provider marked the end of the reply."""


@dataclass(slots=True)
class Ping:
    """A sign of life: resets the idle timer, nothing else (L38, L55)."""


StreamEvent = MessageStart | PartStart | IndexedDelta | PartStop | MessageDelta | MessageStop | Ping


@dataclass(slots=True)
class AttemptReset:
    """What came so far is void; ``attempt`` (from 1) is the one that starts now (L30, L52)."""

    attempt: int = 2
    cause: str = ""


@dataclass(slots=True)
class StreamFallback:
    """The rescued complete reply, the last event of the turn (L31)."""

    response: ChatResponse
    meta: Mapping[str, Any] = field(default_factory=dict)


# Ruling: L29 names Stream(event), AttemptReset, Fallback; Stream is not a wrapper here but the
# bare event, which saves one object per delta and says the same.
HandlerEvent = StreamEvent | AttemptReset | StreamFallback
