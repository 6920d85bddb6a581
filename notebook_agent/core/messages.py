"""Messages and their parts.

Source: LLM turn, "Building the request" (L1-L3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Literal

__all__ = [
    "ImagePart",
    "Message",
    "MessagePart",
    "Role",
    "TextPart",
    "ToolCallPart",
    "ToolResultPart",
]


class Role(Enum):
    """Who speaks. Tool results travel in a USER message (L1)."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class TextPart:
    """Text. ``refusal`` marks text in which the model declined (L5a)."""

    text: str
    refusal: bool = False
    type: Literal["text"] = "text"


@dataclass(frozen=True, slots=True)
class ImagePart:
    """An image: ``source`` is a ``data:`` URI or an http(s) address; pixels when known."""

    source: str
    width: int | None = None
    height: int | None = None
    type: Literal["image"] = "image"


@dataclass(frozen=True, slots=True)
class ToolCallPart:
    """A call the model asks for.

    ``input`` is the parsed arguments. None marks a call whose arguments did not parse
    (L41): ``raw`` keeps the text, it is never run and never committed. An ``input`` that
    is valid JSON but no object is kept as it is and answered by an error result.
    """

    id: str
    name: str
    input: Any = None
    raw: str = ""
    type: Literal["tool_call"] = "tool_call"

    @property
    def parsed(self) -> bool:
        """Whether the arguments were valid JSON."""
        return self.input is not None


@dataclass(frozen=True, slots=True)
class ToolResultPart:
    """The answer to a call. ``output`` is text; images ride along in ``images``."""

    call_id: str
    name: str
    output: str
    is_error: bool = False
    images: tuple[ImagePart, ...] = ()
    type: Literal["tool_result"] = "tool_result"


MessagePart = TextPart | ImagePart | ToolCallPart | ToolResultPart


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the conversation: a role and its ordered parts (L1).

    Attributes:
        id: Stable id given by the runtime when the message enters the conversation,
            "" for a message that was never stored (transients).
        provider_state: Opaque JSON of the adapter that produced the message, with the
            full model name under ``"model"``; sent back only to that model while the
            exchange is open, never shown, counted in the estimate (L2).
        memo: Derived values kept beside the message (encoded bytes per wire format,
            token counts per counter). Not part of its value.
    """

    role: Role
    parts: tuple[MessagePart, ...]
    id: str = ""
    # Ruling: L2, no part: never in a text, a summary or another model's request
    provider_state: Mapping[str, Any] | None = None
    memo: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def user(cls, text: str, *, id: str = "") -> Message:
        """A user message of one text part."""
        return cls(Role.USER, (TextPart(text),), id=id)

    @classmethod
    def assistant(cls, text: str, *, id: str = "") -> Message:
        """An assistant message of one text part."""
        return cls(Role.ASSISTANT, (TextPart(text),), id=id)

    @classmethod
    def tool_results(cls, results: tuple[ToolResultPart, ...], *, id: str = "") -> Message:
        """The user message that answers a turn's calls, in the model's order (L123)."""
        return cls(Role.USER, results, id=id)

    def text_content(self) -> str:
        """Text parts joined with no separator; refusals and all else left out (L3, L5a)."""
        return "".join(p.text for p in self.parts if isinstance(p, TextPart) and not p.refusal)

    def display_text(self) -> str:
        """A form for logs: parts joined by newlines, what is not text in brackets (L3)."""
        return "\n".join(_display(p) for p in self.parts)

    @property
    def tool_calls(self) -> tuple[ToolCallPart, ...]:
        """The calls in this message, in order."""
        return tuple(p for p in self.parts if isinstance(p, ToolCallPart))

    @property
    def results(self) -> tuple[ToolResultPart, ...]:
        """The tool results in this message, in order."""
        return tuple(p for p in self.parts if isinstance(p, ToolResultPart))

    def with_id(self, id: str) -> Message:
        """The same message under an id."""
        return replace(self, id=id)

    def to_json(self) -> dict[str, Any]:
        """JSON form; parts are tagged by ``type``."""
        out: dict[str, Any] = {
            "role": self.role.value,
            "parts": [_part_json(p) for p in self.parts],
            "id": self.id,
        }
        if self.provider_state is not None:
            out["provider_state"] = dict(self.provider_state)
        return out

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Message:
        """The message that ``to_json`` wrote.

        Raises:
            ValueError: An unknown role or part type.
        """
        return cls(
            Role(data["role"]),
            tuple(_part_from_json(p) for p in data["parts"]),
            id=str(data.get("id", "")),
            provider_state=data.get("provider_state"),
        )


def _display(part: MessagePart) -> str:
    match part:
        case TextPart(text=text, refusal=refusal):
            return f"[refusal: {text}]" if refusal else text
        case ImagePart(source=source):
            return f"[image {source[:40]}]"
        case ToolCallPart(name=name, raw=raw, input=given):
            return f"[call {name} {raw if given is None else given}]"
        case _:
            return f"[{'error' if part.is_error else 'result'} of {part.name}: {part.output}]"


def _part_json(part: MessagePart) -> dict[str, Any]:
    match part:
        case TextPart(text=text, refusal=refusal):
            out: dict[str, Any] = {"type": "text", "text": text}
            if refusal:
                out["refusal"] = True
        case ImagePart():
            out = {"type": "image", "source": part.source}
            if part.width is not None:
                out |= {"width": part.width, "height": part.height}
        case ToolCallPart():
            out = {"type": "tool_call", "id": part.id, "name": part.name, "input": part.input}
            if part.raw:
                out["raw"] = part.raw
        case _:
            out = {
                "type": "tool_result",
                "call_id": part.call_id,
                "name": part.name,
                "output": part.output,
            }
            if part.is_error:
                out["is_error"] = True
            if part.images:
                out["images"] = [_part_json(i) for i in part.images]
    return out


def _part_from_json(data: Mapping[str, Any]) -> MessagePart:
    match data["type"]:
        case "text":
            return TextPart(data["text"], bool(data.get("refusal", False)))
        case "image":
            return ImagePart(data["source"], data.get("width"), data.get("height"))
        case "tool_call":
            return ToolCallPart(data["id"], data["name"], data.get("input"), data.get("raw", ""))
        case "tool_result":
            images = tuple(
                ImagePart(i["source"], i.get("width"), i.get("height"))
                for i in data.get("images", ())
            )
            return ToolResultPart(
                data["call_id"], data["name"], data["output"], bool(data.get("is_error")), images
            )
        case other:
            raise ValueError(f"unknown part type {other!r}")
