"""A scripted reply and the stream events that carry it.

Source: LLM turn, "Event routing, exactly" (L36-L42).
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from types import EllipsisType
from typing import Any, Final

from notebook_agent.core import events as e
from notebook_agent.core.messages import Message, Role, TextPart, ToolCallPart, ToolResultPart
from notebook_agent.core.response import StopReason, Usage
from notebook_agent.errors import ConfigError

__all__ = ["Reply", "arguments", "call", "characters", "lanes", "text_deltas", "word_of"]


@dataclass(frozen=True, slots=True)
class Reply:
    """One scripted reply, streamed in the order thinking, text, tool calls.

    Attributes:
        text: The text, cut into deltas at words unless ``deltas`` or ``sizes`` say otherwise.
        thinking: Reasoning; "" is redacted reasoning, None is none.
        tool_calls: Calls. Arguments are streamed as fragments of ``raw`` if it is not empty
            (it may be no JSON), else of ``input`` as JSON; the opening part never carries
            them. A call without id gets one.
        usage: Reported usage, None = not reported, ``...`` = the model's own setting.
        stop_reason: The provider's word. None = ``tool_calls``, ``refusal`` or ``stop`` as
            fits, "" = the reply ends without naming a reason.
        refusal: The text is a refusal.
        deltas: The text's deltas, in place of ``text``.
        sizes: Characters per text delta, used in turn and over again.
        delay_s: Seconds before each delta; None = the model's own setting.
        interleave: Fragments of several calls alternate.
        pings: Signs of life before the first delta, each after ``delay_s``.
    """

    text: str = ""
    _: KW_ONLY
    thinking: str | None = None
    tool_calls: Sequence[ToolCallPart] = ()
    usage: Usage | EllipsisType | None = ...
    stop_reason: str | StopReason | None = None
    refusal: bool = False
    deltas: Sequence[str] | None = None
    sizes: Sequence[int] | None = None
    delay_s: float | None = None
    interleave: bool = False
    pings: int = 0

    def __post_init__(self) -> None:
        if self.sizes is not None and (not self.sizes or min(self.sizes) < 1):
            raise ConfigError(field="sizes", value=self.sizes, legal="sizes of 1 or more")
        if self.delay_s is not None and not 0 <= self.delay_s < float("inf"):
            raise ConfigError(field="delay_s", value=self.delay_s, legal="seconds, 0 or more")


def call(name: str, /, **arguments: Any) -> ToolCallPart:
    """A call for ``Reply(tool_calls=[...])``; it gets an id when it is streamed.

    Example:
        >>> call("highest_tide", port="riga").input
        {'port': 'riga'}
    """
    return ToolCallPart("", name, arguments)


def word_of(reply: Reply) -> str | None:
    """The provider's word for the end, None when the reply names none."""
    given = reply.stop_reason
    if given is None:
        return "refusal" if reply.refusal else "tool_calls" if reply.tool_calls else "stop"
    return (given.value if isinstance(given, StopReason) else given) or None


_WORDS: Final = re.compile(r"\S{1,16}\s*|\s+")
_FRAGMENT: Final = 7  # characters per fragment of arguments: cuts keys, numbers and escapes


def text_deltas(reply: Reply) -> list[str]:
    """The text's deltas."""
    if reply.deltas is not None:
        return list(reply.deltas)
    if reply.sizes is None:
        return _WORDS.findall(reply.text)
    pieces, at, sizes = [], 0, itertools.cycle(reply.sizes)
    while at < len(reply.text):
        size = next(sizes)
        pieces.append(reply.text[at : at + size])
        at += size
    return pieces


def arguments(call: ToolCallPart) -> str:
    """A call's arguments as they are sent."""
    if call.raw:
        return call.raw
    return "" if call.input is None else json.dumps(call.input, ensure_ascii=False)


def lanes(reply: Reply, number: int) -> Iterator[e.StreamEvent]:
    """Parts and deltas of a reply, in the order of L38."""
    index = 0
    if reply.thinking is not None:
        yield e.PartStart(index)
        for piece in _WORDS.findall(reply.thinking) or [""]:
            yield e.IndexedDelta(index, e.Thinking(piece))
        yield e.PartStop(index)
        index += 1
    deltas = text_deltas(reply)
    if deltas:
        yield e.PartStart(index, TextPart("", reply.refusal))
        for piece in deltas:
            yield e.IndexedDelta(index, e.Text(piece, reply.refusal))
        yield e.PartStop(index)
        index += 1
    yield from _call_lanes(reply, number, index)


def _call_lanes(reply: Reply, number: int, index: int) -> Iterator[e.StreamEvent]:
    """Arguments travel as fragments only; the opening part's input stays empty (L42)."""
    opened = []
    for i, call in enumerate(reply.tool_calls):
        raw = arguments(call)
        pieces = [raw[at : at + _FRAGMENT] for at in range(0, len(raw), _FRAGMENT)]
        opening = e.PartStart(index + i, ToolCallPart(call.id or f"call_{number}_{i}", call.name))
        opened.append((opening, [e.IndexedDelta(index + i, e.InputJson(p)) for p in pieces]))
    if not reply.interleave:
        for opening, fragments in opened:
            yield opening
            yield from fragments
            yield e.PartStop(opening.index)
        return
    yield from (opening for opening, _ in opened)
    for row in itertools.zip_longest(*(fragments for _, fragments in opened)):
        yield from (event for event in row if event is not None)
    yield from (e.PartStop(opening.index) for opening, _ in opened)


def characters(message: Message) -> int:
    """Characters of a message's text, calls and results."""
    total = 0
    for part in message.parts:
        match part:
            case TextPart(text=text):
                total += len(text)
            case ToolCallPart():
                total += len(part.name) + len(arguments(part))
            case ToolResultPart(output=output):
                total += len(output)
    return total if message.role is not Role.SYSTEM else total + 4
