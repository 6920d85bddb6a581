"""The request for one model call, and the options that ride beside it.

Source: LLM turn, "Building the request" (L7, L10-L16).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Any

from notebook_agent.core.messages import Message

__all__ = [
    "RequestOptions",
    "StreamRequest",
    "ToolConstraint",
    "ToolSchema",
    "TurnMode",
    "build_turn_request",
]


class TurnMode(Enum):
    """How a turn asks: with the ladder, or one attempt (L6)."""

    STREAMING = "streaming"
    NON_STREAMING = "non_streaming"


class ToolConstraint(Enum):
    """How strictly the provider must keep to the tool schemas (L7)."""

    STRICT = "strict"
    GRAMMAR = "grammar"


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """A tool as the model sees it; ``parameters`` is a JSON Schema object."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(
        default_factory=lambda: {"type": "object", "properties": {}}
    )


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """What rides beside a request (L7, L13).

    Attributes:
        model: Per-request model; blank is ignored; a backup's routing beats it (L14).
        response_format: Forced JSON: ``{"type": "json_object"}`` or
            ``{"type": "json_schema", "name": str, "schema": {...}}``.
        tool_constraint: None, STRICT or GRAMMAR.
        extra: Provider parameters, sent as given, never dropped.
        prompt_cache: Mark what the provider may keep between turns. A hint that changes no
            reply: formats without such marks have nothing to do.
    """

    model: str | None = None
    response_format: Mapping[str, Any] | None = None
    tool_constraint: ToolConstraint | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)  # Ruling: L7, sent as given
    prompt_cache: bool | None = None

    def __post_init__(self) -> None:
        if self.model is not None and not self.model.strip():
            object.__setattr__(self, "model", None)

    def merged(self, over: RequestOptions) -> RequestOptions:
        """``over``'s set fields beat these; ``extra`` is merged key by key (L13)."""
        values = {
            f.name: getattr(over, f.name)
            for f in fields(self)
            if f.name != "extra" and getattr(over, f.name) is not None
        }
        return replace(self, **values, extra={**self.extra, **over.extra})


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """One model request: transients first, then the conversation (L10).

    ``system`` is a field, not a message (L11); ``tools`` is None when there are none, never
    an empty tuple (L12).
    """

    messages: tuple[Message, ...]
    system: str | None = None
    tools: tuple[ToolSchema, ...] | None = None


def build_turn_request(
    transients: Sequence[Message],
    full_history: Sequence[Message],
    *,
    system: str | None = None,
    tools: Sequence[ToolSchema] = (),
) -> StreamRequest:
    """The one function that builds a request, for both paths (L10).

    Args:
        transients: Messages for this turn only: they frame the conversation.
        full_history: Committed history + pending.
        system: System prompt; blank or None leaves the field out.
        tools: Schemas of all registered tools.
    """
    return StreamRequest(
        (*transients, *full_history),
        system=system if system and system.strip() else None,
        tools=tuple(tools) or None,
    )
