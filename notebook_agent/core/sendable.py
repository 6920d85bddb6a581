"""What of a message a request may carry.

Source: LLM turn, "Building the request" (L1, L16, K06).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from notebook_agent.core.messages import Message, MessagePart, Role, TextPart, ToolCallPart
from notebook_agent.core.text import clean_json, clean_text

__all__ = ["cleaned", "sendable", "with_call_ids"]


def cleaned(message: Message) -> Message:
    """The message as it may enter: lone surrogates and NUL become U+FFFD once (D9, T02)."""
    parts: list[MessagePart] = []
    for part in message.parts:
        if isinstance(part, TextPart):
            text = clean_text(part.text)
            part = part if text is part.text else replace(part, text=text)
        elif isinstance(part, ToolCallPart):
            given, raw = clean_json(part.input), clean_text(part.raw)
            if given != part.input or raw is not part.raw:
                part = replace(part, input=given, raw=raw)
        parts.append(part)
    if all(new is old for new, old in zip(parts, message.parts, strict=True)):
        return message
    return replace(message, parts=tuple(parts))


def sendable(message: Message) -> Message | None:
    """The message as a request may carry it, None when nothing is left (K06).

    Providers refuse an assistant message without text and a text of white space only; a reply
    of thinking only has no part at all. Such replies stay in the trail and leave the requests.
    A refusal stays: it is what the assistant said.
    """
    if message.role is not Role.ASSISTANT:
        return message if message.parts else None
    kept = [p for p in message.parts if not (isinstance(p, TextPart) and _blank(p.text))]
    if len(kept) == len(message.parts):
        return message if kept else None
    return replace(message, parts=tuple(kept)) if kept else None


# Not white space to Python, nothing at all to a reader, and refused like an empty text (K06).
_UNSEEN: Final = dict.fromkeys(map(ord, "\u200b\u200c\u200d\u2060\ufeff"))


def _blank(text: str) -> bool:
    # no reply of any length is translated: the first visible character decides
    return not text[:64].translate(_UNSEEN).strip() and not text.translate(_UNSEEN).strip()


def with_call_ids(message: Message) -> Message:
    """The message with call ids that are not empty and differ from each other.

    Some servers send one id for every call of a reply, or none: their results would mix.
    """
    seen: set[str] = set()
    parts: list[MessagePart] = []
    for part in message.parts:
        if isinstance(part, ToolCallPart):
            name, n = part.id or "call", 2
            while name in seen:
                name, n = f"{part.id or 'call'}_{n}", n + 1
            seen.add(name)
            part = part if name == part.id else replace(part, id=name)
        parts.append(part)
    return message if tuple(parts) == message.parts else replace(message, parts=tuple(parts))
