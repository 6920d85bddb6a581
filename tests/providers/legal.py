"""What each provider demands of a conversation, checked on the request body as it is sent.

Independent of the encoders: it reads the wire format alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

from notebook_agent.core.messages import Message
from notebook_agent.core.request import RequestOptions, StreamRequest

Body = Mapping[str, Any]
# One item of the conversation: who speaks, calls made, results given, all by id (or name).
Step = tuple[str, list[str], list[str]]


def _chat(body: Body, *, by_name: bool = False) -> Iterable[Step]:
    for message in body["messages"]:
        calls = [
            call["function"]["name"] if by_name else call["id"]
            for call in message.get("tool_calls") or ()
        ]
        spoken = calls or message["role"] != "assistant" or message.get("content")
        assert spoken, message  # an empty text is legal, an assistant that says nothing is not
        if message["role"] == "tool":
            name = message.get("tool_name") if by_name else message["tool_call_id"]
            yield "tool", [], [name]
        else:
            yield message["role"], calls, []


def _responses(body: Body) -> Iterable[Step]:
    for item in body["input"]:
        kind = item.get("type", "message")
        if kind == "function_call":
            yield "assistant", [item["call_id"]], []
        elif kind == "function_call_output":
            yield "tool", [], [item["call_id"]]
        elif kind == "message":
            assert item["content"] or item["role"] != "assistant", item
            yield item["role"], [], []


def _anthropic(body: Body) -> Iterable[Step]:
    for message in body["messages"]:
        content = message["content"]
        assert content, message
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        assert all(b["text"].strip() for b in blocks if b["type"] == "text"), message
        results = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
        # results come first in their message
        assert all(b["type"] == "tool_result" for b in blocks[: len(results)]), message
        yield message["role"], [b["id"] for b in blocks if b["type"] == "tool_use"], results


def _gemini(body: Body) -> Iterable[Step]:
    for content in body["contents"]:
        parts = content["parts"]
        assert parts, content
        calls = [p["functionCall"]["name"] for p in parts if "functionCall" in p]
        results = [p["functionResponse"]["name"] for p in parts if "functionResponse" in p]
        yield {"model": "assistant"}.get(content["role"], content["role"]), calls, results


READERS: dict[str, Callable[[Body], Iterable[Step]]] = {
    "openai-chat": _chat,
    "openai-responses": _responses,
    "anthropic-messages": _anthropic,
    "gemini": _gemini,
    "ollama": lambda body: _chat(body, by_name=True),
}
# Whose results are one message; who wants roles to alternate and the user first.
JOINED = ("anthropic-messages", "gemini")


def check_wire(api: str, body: Body) -> None:
    """Raise AssertionError unless the body is one that the provider takes.

    Every call has its result at once and no result stands alone; user and assistant alternate
    (several items of one reply count as one); the first to speak is the user where the provider
    demands it; no assistant says nothing.
    """
    waiting: list[str] = []
    spoken: list[str] = []
    for role, calls, results in READERS[api](body):
        if results:
            assert waiting, f"{api}: results {results} without their call"
            for one in results:
                assert one in waiting, f"{api}: {one} is not the call before it"
                waiting.remove(one)
            if api in JOINED:
                assert not waiting, f"{api}: calls {waiting} are not answered at once"
        elif not (api == "openai-responses" and role == "assistant" and waiting):
            assert not waiting, f"{api}: {role} speaks before {waiting} are answered"
        waiting += calls
        if role != "system":
            spoken.append(role)
    assert not waiting, f"{api}: calls {waiting} are never answered"
    if api in JOINED:
        assert all(a != b for a, b in pairwise(spoken)), spoken
        assert spoken[:1] in (["user"], []), spoken
    elif api != "openai-responses":
        pairs = pairwise(spoken)
        assert all(a != b or a == "tool" for a, b in pairs), spoken


def check_with_every_client(clients: Mapping[str, Any], messages: tuple[Message, ...]) -> None:
    """Encode a conversation with each client and check what it would send."""
    for api, client in clients.items():
        request = StreamRequest(messages)
        _, body = client.encode(request, RequestOptions(), stream=True)
        check_wire(api, json.loads(body))
