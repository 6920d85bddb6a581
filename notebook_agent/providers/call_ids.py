"""Ids and names of calls that a service takes, whoever made them.

A conversation goes on with another model after a fallback or a switch, and with it the ids of its
calls: ``functions.find:0``, ids that we made from an answer's id, one id in every turn. Where the
service that is asked now refuses such an id, call and result get another one, always the same.
So do names: what a model called a tool (``functions.find``, ``find it``) stays in the conversation
with the error that answered it, and a service that checks names would refuse every later request.

Source: LLM turn, "Building the request" (L8); Turn FSM, "CallingModel" (B36); cases F01, F03.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Final, NamedTuple

from notebook_agent.core.messages import Message, MessagePart, ToolCallPart, ToolResultPart

__all__ = [
    "ANTHROPIC_IDS",
    "CHAT_IDS",
    "GEMINI_IDS",
    "MISTRAL_IDS",
    "RESPONSES_IDS",
    "IdRule",
    "fitting_ids",
]

_NAMES: Final = re.compile("[a-zA-Z0-9_-]{1,64}")


class IdRule(NamedTuple):
    """What ids a service takes.

    Attributes:
        legal: Pattern of a whole id.
        begin: How one that is made begins.
        digits: Hexadecimal digits behind it.
        unique: Whether an id may stand for one call only in all of the conversation.
        names: Pattern of a whole name of a tool.
    """

    legal: re.Pattern[str]
    begin: str = "call_"
    digits: int = 24
    unique: bool = False
    names: re.Pattern[str] = _NAMES

    def made(self, call_id: str, number: int) -> str:
        """The id in place of another; ``number`` tells several of one id apart."""
        text = f"{call_id} {number}" if number else call_id
        return self.begin + sha256(text.encode("utf-8", "replace")).hexdigest()[: self.digits]


ANTHROPIC_IDS: Final = IdRule(re.compile("[a-zA-Z0-9_-]{1,64}"), unique=True)
# Its calls are told apart by their order, ids are optional.
GEMINI_IDS: Final = IdRule(
    re.compile(".*", re.DOTALL), names=re.compile("[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
)
CHAT_IDS: Final = IdRule(re.compile(".{1,40}", re.DOTALL))
MISTRAL_IDS: Final = IdRule(re.compile("[a-zA-Z0-9]{9}"), "", 9)
RESPONSES_IDS: Final = IdRule(re.compile(".{1,64}", re.DOTALL))


def fitting_ids(messages: Sequence[Message], rule: IdRule) -> Sequence[Message]:
    """The conversation with ids and names that the service takes; itself when all of them are.

    Args:
        messages: The conversation, each result behind its call.
        rule: The service's.
    """
    # All of a long history is looked at for each request: no call into each message.
    calls = [part for m in messages for part in m.parts if type(part) is ToolCallPart]
    ids = [call.id for call in calls]
    legal = all(map(rule.legal.fullmatch, ids)) and all(rule.names.fullmatch(c.name) for c in calls)
    if legal and not (rule.unique and len(set(ids)) < len(ids)):
        return messages
    used = {call_id for call_id in ids if rule.legal.fullmatch(call_id)}
    open_calls: dict[str, tuple[str, str]] = {}  # id -> its latest call's id and name on the wire
    told: set[str] = set()
    out: list[Message] = []
    for message in messages:
        parts: list[MessagePart] = []
        for part in message.parts:
            if isinstance(part, ToolCallPart):
                wire = _fitting(part.id, rule, used, told), _fitting_name(part.name, rule)
                open_calls[part.id] = wire
                if wire != (part.id, part.name):
                    part = replace(part, id=wire[0], name=wire[1])
            elif isinstance(part, ToolResultPart):
                own = part.call_id, _fitting_name(part.name, rule)
                wire = open_calls.get(part.call_id, own)
                if wire != (part.call_id, part.name):
                    part = replace(part, call_id=wire[0], name=wire[1])
            parts.append(part)
        same = all(new is old for new, old in zip(parts, message.parts, strict=True))
        out.append(message if same else replace(message, parts=tuple(parts)))
    return out


def _fitting_name(name: str, rule: IdRule) -> str:
    """A name that the service takes: what it cannot read becomes ``_``."""
    if rule.names.fullmatch(name):
        return name
    name = re.sub("[^a-zA-Z0-9_-]+", "_", name)[:64] or "unnamed"
    return name if rule.names.fullmatch(name) else f"_{name}"[:64]


def _fitting(call_id: str, rule: IdRule, used: set[str], told: set[str]) -> str:
    if rule.legal.fullmatch(call_id) and not (rule.unique and call_id in told):
        told.add(call_id)
        return call_id
    number = 0
    while (name := rule.made(call_id, number)) in used:
        number += 1
    if rule.unique:
        used.add(name)
    return name
