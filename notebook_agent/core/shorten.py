"""Oversize messages made smaller in the view that is sent; the log keeps the originals.

Source: LLM turn, "The turn's paper trail" (L104); Turn FSM, "BuildingContext" (B35). Case P03.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from notebook_agent.core.compaction_cut import newest_ask
from notebook_agent.core.messages import (
    Message,
    MessagePart,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from notebook_agent.core.trim import is_summary

__all__ = ["PRUNED", "is_cut", "prune_outputs", "shorten", "shorten_to"]

Count = Callable[[Message], int]
PRUNED: Final = "[output left out: old tool output]"


def shorten_to(
    messages: Sequence[Message], room: int, count: Count, *, least: int = 100
) -> dict[int, Message]:
    """Oversize messages shortened so that the list fits (L104, P03).

    The tallest are cut to one level: the highest at which everything fits. The newest question,
    system messages and summaries are never cut.

    Args:
        room: Tokens the whole list may have.
        count: Tokens of one message.
        least: Tokens below which no message is cut: only what is oversize is touched.

    Returns:
        Place -> shortened message, only for those that became smaller.
    """
    newest = newest_ask(messages)
    costs = [count(message) for message in messages]
    if sum(costs) <= room:
        return {}
    loose = [
        at
        for at, message in enumerate(messages)
        if at != newest
        and message.role is not Role.SYSTEM
        and not is_summary(message)
        and costs[at] > least
    ]
    if not loose:
        return {}
    rest = room - (sum(costs) - sum(costs[at] for at in loose))
    level = _level([costs[at] for at in loose], rest, least)
    out: dict[int, Message] = {}
    for at in loose:
        if costs[at] > level:
            smaller = shorten(messages[at], level, count)
            if count(smaller) < costs[at]:
                out[at] = smaller
    return out


def _level(costs: Iterable[int], room: int, least: int) -> int:
    """The highest level L with ``sum(min(cost, L)) <= room``, never below the least."""
    tall, at = sorted(costs), 0
    while tall[at] <= (share := room // (len(tall) - at)):  # ends: together they are over room
        room -= tall[at]
        at += 1
    return max(share, least)


def shorten(message: Message, tokens: int, count: Count) -> Message:
    """The message with its long texts cut in their middle, a note where something is gone.

    Texts, tool outputs and the strings in a call's arguments are cut, images and structure
    stay, so that the message is still what it was to a provider.

    Args:
        tokens: What it may have; reached as near as the structure allows.
        count: Tokens of one message.
    """
    cost = count(message)
    if cost <= tokens:
        return message
    longest = max((len(text) for part in message.parts for text in _texts(part)), default=0)
    limit = longest
    smaller = message
    for _ in range(8):
        limit = min(limit * 9 // 10, int(limit * tokens / max(cost, 1)))
        if limit < 20:
            break
        parts = tuple(_cut_part(part, limit) for part in message.parts)
        smaller = replace(message, parts=parts, provider_state=None)
        cost = count(smaller)
        if cost <= tokens:
            break
    return smaller


def _texts(part: MessagePart) -> list[str]:
    match part:
        case TextPart(text=text):
            return [text]
        case ToolResultPart(output=output):
            return [output]
        case ToolCallPart(input=given):
            return _strings(given)
    return []


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [one for inner in value.values() for one in _strings(inner)]
    if isinstance(value, list):
        return [one for inner in value for one in _strings(inner)]
    return []


def _cut_part(part: MessagePart, limit: int) -> MessagePart:
    match part:
        case TextPart(text=text):
            return replace(part, text=_cut(text, limit))
        case ToolResultPart(output=output):
            return replace(part, output=_cut(output, limit))
        case ToolCallPart(input=given):
            return replace(part, input=_cut_strings(given, limit), raw="")
    return part


def _cut_strings(value: Any, limit: int) -> Any:
    if isinstance(value, str):
        return _cut(value, limit)
    if isinstance(value, dict):
        return {key: _cut_strings(one, limit) for key, one in value.items()}
    if isinstance(value, list):
        return [_cut_strings(one, limit) for one in value]
    return value


_CUT: Final = re.compile(r"\n\[\.\.\. [\d,]+ of [\d,]+ characters left out here \.\.\.\]\n")


def is_cut(text: str) -> bool:
    """Whether a text was shortened here: it has the note of what is gone."""
    return _CUT.search(text) is not None


def _cut(text: str, limit: int) -> str:
    """Head and tail of a text, three to one, with a note of what is gone between."""
    if len(text) <= limit:
        return text
    note = f"\n[... {len(text) - limit:,} of {len(text):,} characters left out here ...]\n"
    room = max(limit - len(note), 8)
    tail = room // 4
    cut = f"{text[: room - tail]}{note}{text[-tail:]}"
    # a short text would lose its words for a note that is as long
    return cut if len(cut) * 4 < len(text) * 3 else text


def prune_outputs(
    messages: Sequence[Message],
    *,
    protect: int,
    minimum: int,
    keep_tools: Collection[str],
    count: Count,
) -> dict[int, Message]:
    """Old tool outputs replaced by a placeholder (B35).

    Args:
        protect: Tokens of the newest tool outputs that are left alone.
        minimum: Tokens that must come free, else nothing is done.
        keep_tools: Names whose outputs are never blanked.

    Returns:
        Place -> blanked message; empty when it is not worth it.
    """
    out: dict[int, Message] = {}
    spared = freed = 0
    for at in range(len(messages) - 1, -1, -1):
        message = messages[at]
        if not message.results:
            continue
        cost = count(message)
        if spared < protect:
            spared += cost
            continue
        parts = tuple(
            replace(part, output=PRUNED, images=())
            if isinstance(part, ToolResultPart) and part.name not in keep_tools
            else part
            for part in message.parts
        )
        smaller = replace(message, parts=parts)
        if count(smaller) < cost:
            out[at] = smaller
            freed += cost - count(smaller)
    return out if freed >= minimum else {}
