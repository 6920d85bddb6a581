"""A tiny counter and histories for compaction tests."""

from __future__ import annotations

import json

from notebook_agent.core.messages import (
    ImagePart,
    Message,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from notebook_agent.core.response import ChatResponse, Usage


class Words:
    """One token per word, three per message, 100 per image."""

    name = "words"
    exact = True

    def count_text(self, text):
        return len(text.split())

    def count_message(self, message):
        total = 3
        for part in message.parts:
            match part:
                case TextPart(text=text):
                    total += self.count_text(text)
                case ImagePart():
                    total += 100
                case ToolCallPart():
                    total += self.count_text(json.dumps(part.input))
                case ToolResultPart():
                    total += self.count_text(part.output) + 100 * len(part.images)
        return total

    def count_overhead(self, system, tools):
        total = 0 if system is None else self.count_text(system)
        for tool in tools or ():
            total += self.count_text(json.dumps(tool.parameters)) + 5
        return total


def give_ids(messages):
    return [m if m.id else m.with_id(f"m{n}") for n, m in enumerate(messages)]


def turns(count, words=40, start=0):
    """``count`` turns of a question and an answer, ``words`` words each."""
    out = []
    for n in range(start, start + count):
        out.append(Message.user(f"Question {n} about box {n * 7}. " + "pad " * words))
        out.append(Message.assistant(f"Answer {n}: item {n * 3} it is. " + "fill " * words))
    return give_ids(out)


def exchange(*ids, output="ok"):
    return [
        Message(Role.ASSISTANT, tuple(ToolCallPart(i, f"f_{i}", {"q": i}) for i in ids)),
        *(Message.tool_results((ToolResultPart(i, f"f_{i}", output),)) for i in ids),
    ]


NOTES = "## Goal\nKeep boxes.\n## Decisions\n- box 7 stays"


class Summariser:
    """``complete_once`` that gives replies from a list and keeps the requests."""

    def __init__(self, *replies):
        self.replies = list(replies)
        self.requests = []
        self.asked = []

    async def __call__(self, request, options, model, purpose):
        self.requests.append(request)
        self.asked.append((model, purpose))
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if callable(reply):
            reply = await reply()
        if isinstance(reply, BaseException):
            raise reply
        if isinstance(reply, str):
            reply = ChatResponse(Message.assistant(reply), usage=Usage(50, 20))
        return reply
