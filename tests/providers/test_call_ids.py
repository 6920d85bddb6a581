"""A conversation that goes on elsewhere keeps its tool exchanges (F01, F03)."""

from __future__ import annotations

import json
import re

import pytest

from notebook_agent.core.messages import Message, Role, TextPart, ToolCallPart, ToolResultPart
from notebook_agent.core.request import RequestOptions, StreamRequest
from notebook_agent.providers.call_ids import ANTHROPIC_IDS, CHAT_IDS, fitting_ids
from notebook_agent.providers.registry import model

FOREIGN = (
    "functions.find:0",
    "made_2024-06-01T10:00:00.123456Z_0",
    "made_chatcmpl-0123456789012345678901234567890_0",
    "x" * 90,
    "Ünïcode",
)
LEGAL = {
    "anthropic": "[a-zA-Z0-9_-]{1,64}",
    "mistral": "[a-zA-Z0-9]{9}",
    "openai-chat": ".{1,40}",
    "openai-responses": ".{1,64}",
}
# what the table calls openai-chat is served by any compatible endpoint
NAMES = {
    "anthropic": "anthropic:m",
    "mistral": "mistral:m",
    "openai-chat": "groq:m",
    "openai-responses": "openai:m",
}


def exchange(*ids: str) -> tuple[Message, ...]:
    """A question, one turn for each id, an answer."""
    out: list[Message] = [Message.user("q")]
    for n, call_id in enumerate(ids):
        out.append(Message(Role.ASSISTANT, (TextPart("t"), ToolCallPart(call_id, "f", {"n": n}))))
        out.append(Message.tool_results((ToolResultPart(call_id, "f", f"r{n}"),)))
    return (*out, Message.assistant("a"), Message.user("next"))


def pairs(client, messages) -> list[tuple[str, str]]:
    """(id of a call, id of the result that follows it), as they are sent."""
    _, body = client.encode(StreamRequest(messages), RequestOptions(), stream=True)
    text = json.dumps(json.loads(body), ensure_ascii=False)
    calls = re.findall(r'"id": "([^"]+)", "(?:type": "function|name)', text)
    if '"function_call_output"' in text:
        calls = re.findall(r'"type": "function_call", "call_id": "([^"]+)"', text)
        results = re.findall(r'"type": "function_call_output", "call_id": "([^"]+)"', text)
    else:
        results = re.findall(r'"(?:tool_use_id|tool_call_id)": "([^"]+)"', text)
    assert len(calls) == len(results)
    return list(zip(calls, results, strict=True))


@pytest.mark.parametrize("service", list(LEGAL))
def test_F03_foreign_ids_are_sent_in_a_form_that_the_service_takes(service):
    client = model(NAMES[service], key="k" * 12)
    sent = pairs(client, exchange(*FOREIGN))
    assert [a == b for a, b in sent] == [True] * len(FOREIGN)
    assert all(re.fullmatch(LEGAL[service], a) for a, _ in sent)
    assert len({a for a, _ in sent}) == len(FOREIGN)
    assert sent == pairs(client, exchange(*FOREIGN))  # the same in every request


@pytest.mark.parametrize("service", ["openai-chat", "openai-responses", "anthropic"])
def test_ids_that_the_service_takes_stay(service):
    messages = exchange("call_abc", "toolu_01")
    client = model(NAMES[service], key="k" * 12)
    assert pairs(client, messages) == [("call_abc",) * 2, ("toolu_01",) * 2]
    assert fitting_ids(messages, CHAT_IDS) is messages


def test_F01_one_id_in_every_turn_is_told_apart_where_that_is_demanded():
    sent = pairs(model("anthropic:m", key="k" * 12), exchange("call_0", "call_0", "call_0"))
    assert [a == b for a, b in sent] == [True] * 3
    assert len({a for a, _ in sent}) == 3
    assert sent[0][0] == "call_0"
    plain = pairs(model("groq:m", key="k" * 12), exchange("call_0", "call_0"))
    assert plain == [("call_0", "call_0")] * 2


def test_an_id_that_is_made_is_no_other_call_s():
    taken = ANTHROPIC_IDS.made("a.b", 0)
    ids = [a for a, _ in pairs(model("anthropic:m", key="k" * 12), exchange("a.b", taken, "a.b"))]
    assert len(set(ids)) == 3
    assert ids[1] == taken


def test_messages_without_odd_ids_keep_their_bytes():
    messages = exchange("a.b", "fine")
    fitted = fitting_ids(messages, ANTHROPIC_IDS)
    assert [new is old for new, old in zip(fitted, messages, strict=True)] == [
        True, False, False, True, True, True, True,
    ]  # fmt: skip
