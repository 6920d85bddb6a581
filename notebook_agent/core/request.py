"""The request for one model call, and the options that ride beside it.

Source: LLM turn, "Building the request" (L7, L10-L16).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from math import isfinite
from typing import Any, Final

from notebook_agent.core.messages import Message
from notebook_agent.errors import ConfigError

__all__ = [
    "RequestOptions",
    "StreamRequest",
    "ToolConstraint",
    "ToolSchema",
    "TurnMode",
    "build_turn_request",
]


_FORMAT_NAME: Final = re.compile("[a-zA-Z0-9_-]{1,64}")


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
        if self.model is not None and not isinstance(self.model, str):
            raise ConfigError(field="model", value=self.model, legal="a model's bare name, or None")
        object.__setattr__(self, "model", (self.model or "").strip() or None)
        object.__setattr__(self, "tool_constraint", _constraint(self.tool_constraint))
        _check_format(self.response_format)
        object.__setattr__(self, "extra", _parameters(self.extra))

    def merged(self, over: RequestOptions) -> RequestOptions:
        """``over``'s set fields beat these; ``extra`` is merged key by key (L13).

        Raises:
            ConfigError: ``over`` is no RequestOptions.
        """
        if not isinstance(over, RequestOptions):
            raise ConfigError(
                field="options",
                value=over,
                legal='RequestOptions(...); parameters:  RequestOptions(extra={"temperature": 0})',
            )
        values = {
            f.name: getattr(over, f.name)
            for f in fields(self)
            if f.name != "extra" and getattr(over, f.name) is not None
        }
        return replace(self, **values, extra={**self.extra, **over.extra})


def _constraint(given: object) -> ToolConstraint | None:
    words = [one.value for one in ToolConstraint]
    if given is None or isinstance(given, ToolConstraint):
        return given
    if isinstance(given, str) and given in words:
        return ToolConstraint(given)
    raise ConfigError(
        field="tool_constraint", value=given, legal=f"None, {', '.join(words)}, or a ToolConstraint"
    )


def _check_format(given: object) -> None:
    if given is None:
        return
    legal = (
        '{"type": "json_object"}, or {"type": "json_schema", "name": letters, digits, _ and -, '
        '"schema": {...}}'
    )
    kind = given.get("type") if isinstance(given, Mapping) else None
    if not isinstance(given, Mapping) or not isinstance(kind, str):
        raise ConfigError(field="response_format", value=given, legal=legal)
    if kind not in ("json_schema", "tool"):
        return  # the client knows whether it is one
    name = given.get("name", "" if kind == "tool" else "reply")
    named = isinstance(name, str) and _FORMAT_NAME.fullmatch(name) is not None
    # without a schema it may be a form that a client of one's own knows
    if not named or (kind == "tool" and not isinstance(given.get("schema"), Mapping)):
        raise ConfigError(field="response_format", value=given, legal=legal)


def _parameters(given: object) -> dict[str, Any]:
    """Provider parameters as JSON has them: numbers of numpy become Python's."""
    if not isinstance(given, Mapping) or not all(isinstance(k, str) and k for k in given):
        raise ConfigError(
            field="extra", value=given, legal='a mapping of names to values:  {"temperature": 0}'
        )
    try:
        return {name: _plain(value, name) for name, value in given.items()}
    except RecursionError:
        pass
    raise ConfigError(field="extra", legal="values that are not nested without end")


def _plain(value: Any, name: str) -> Any:
    if isinstance(value, float) and not isfinite(value):
        raise ConfigError(field=name, value=value, legal="a finite number: JSON has no other")
    if isinstance(value, Mapping):
        return {str(k): _plain(v, f"{name}.{k}") for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v, name) for v in value]
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return _plain(value.tolist(), name)
    return value


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
