"""Trim: the newest messages that fit a budget, the last resort after compaction (B24).

Source: Turn FSM, "BuildingContext" (B24, 3.3 #11).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from notebook_agent.core.messages import Message, Role, TextPart

__all__ = ["SUMMARY_ID", "SUMMARY_PREFIX", "is_summary", "trim"]

# How a summary is known: the id that the compactor gives it, or the whole first line.
SUMMARY_ID: Final = "summary"
SUMMARY_PREFIX: Final = (
    "[Summary of the earlier conversation. It stands for messages that are no longer sent.]\n\n"
)


def is_summary(message: Message) -> bool:
    """Whether the message is a compaction's summary: by its id, or by the whole first line.

    A question that merely begins with the same word is a question, and stays verbatim.
    """
    if message.id.startswith(SUMMARY_ID):
        return True
    first = message.parts[0] if message.parts else None
    return (
        message.role is Role.USER
        and isinstance(first, TextPart)
        and first.text.startswith(SUMMARY_PREFIX)
    )


def trim(
    messages: Sequence[Message], budget: int, count: Callable[[Message], int]
) -> tuple[Message, ...]:
    """Newest to oldest, kept while within ``budget`` tokens.

    Ruling: B24. Never left out: system messages, the summary, the newest user message and all
    after it. A call and its results stay or go together.

    Args:
        messages: The conversation, oldest first.
        budget: Tokens.
        count: Tokens of one message.
    """
    groups = _groups(messages)
    newest = max((at for at, m in enumerate(messages) if _asks(m)), default=len(messages) - 1)
    kept: set[int] = set()
    spent = 0
    for group in groups:
        if any(at >= newest or _fixed(messages[at]) for at in group):
            kept.update(group)
            spent += sum(count(messages[at]) for at in group)
    for group in reversed(groups):
        if group[0] in kept:
            continue
        cost = sum(count(messages[at]) for at in group)
        if spent + cost > budget:
            break
        kept.update(group)
        spent += cost
    return tuple(m for at, m in enumerate(messages) if at in kept)


def _asks(message: Message) -> bool:
    return message.role is Role.USER and not message.results


def _fixed(message: Message) -> bool:
    return message.role is Role.SYSTEM or is_summary(message)


def _groups(messages: Sequence[Message]) -> list[list[int]]:
    """Indices that stay or go together: an assistant's calls and what answers them."""
    groups: list[list[int]] = []
    open_calls: set[str] = set()
    for at, message in enumerate(messages):
        answers = bool(open_calls) and any(r.call_id in open_calls for r in message.results)
        if answers and groups:
            groups[-1].append(at)
            open_calls -= {r.call_id for r in message.results}
        else:
            groups.append([at])
            open_calls = {call.id for call in message.tool_calls}
    return groups
