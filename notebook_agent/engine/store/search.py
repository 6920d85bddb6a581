"""Searching the messages of stores that have no index.

Source: Turn FSM, "Persisting" (B60).
"""

from __future__ import annotations

from typing import Final

from notebook_agent.core.messages import Message, TextPart, ToolResultPart

__all__ = ["ascii_lower", "holds"]

_LOWER: Final = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def ascii_lower(text: str) -> str:
    """Lower case of A to Z alone, as SQLite's LIKE compares."""
    return text.translate(_LOWER)


def holds(message: Message, wanted: str) -> bool:
    """Whether a text or tool result of the message holds ``wanted``, given in lower case."""
    for part in message.parts:
        if isinstance(part, TextPart) and wanted in ascii_lower(part.text):
            return True
        if isinstance(part, ToolResultPart) and wanted in ascii_lower(part.output):
            return True
    return False
