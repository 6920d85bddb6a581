"""Conversations that come from elsewhere: given by hand, trimmed, begun with another model."""

from __future__ import annotations

import json
import re

import pytest

from notebook_agent import AgentRuntime, ScriptedModel, model, tool
from notebook_agent.core.messages import (
    ImagePart,
    Message,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from notebook_agent.core.request import (
    RequestOptions,
    StreamRequest,
    ToolSchema,
    build_turn_request,
)
from notebook_agent.core.session import Session
from notebook_agent.core.trim import trim
from notebook_agent.providers.anthropic_messages import AnthropicMessages
from notebook_agent.providers.gemini import Gemini
from notebook_agent.providers.openai_chat import OpenAIChat
from tests.providers.legal import JOINED, check_wire
from tests.providers.server import json_reply, serve
from tests.providers.test_requests import CLIENTS, client_of, each_api, listed

PNG = "data:image/png;base64,iVBORw0KGgo="
PATTERNS = {  # what the services demand of a tool's name in the conversation
    "gemini": r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}",
}


def body_of(api: str, *messages: Message, **given):
    client = client_of(api, **given.pop("client", {}))
    _, body = client.encode(StreamRequest(messages, **given), RequestOptions(), stream=True)
    return json.loads(body)


def exchange(name: str, call_id: str = "c1", **result) -> tuple[Message, ...]:
    output = result.pop("output", "ok")
    return (
        Message.user("q"),
        Message(Role.ASSISTANT, (ToolCallPart(call_id, name, {}),)),
        Message.tool_results((ToolResultPart(call_id, name, output, **result),)),
    )


@each_api
@pytest.mark.parametrize(
    "messages",
    [
        (Message.assistant("Hello, how can I help?"), Message.user("hi")),
        (Message.user(" "), Message.assistant("Well?"), Message.user("hi")),
        (*exchange("find")[1:], Message.assistant("there"), Message.user("hi")),
    ],
)
def test_L8_a_history_that_begins_with_the_assistant(api, messages):
    """Anthropic and Gemini refuse it: there a user speaks first, with the fixed prefix."""
    body = body_of(api, *messages, tools=(ToolSchema("find"),))
    wire = listed(api, body)
    silent = messages[0].role is Role.ASSISTANT or api == "anthropic-messages"
    told = api in JOINED and silent
    assert ("[system note]" in json.dumps(wire[0])) is told
    assert json.dumps(wire).count("[system note]") == told
    check_wire(api, body)


@each_api
def test_B24_a_trimmed_conversation_is_legal(api):
    talk = [Message.user("a"), Message.assistant("b"), Message.user("c"), Message.assistant("d")]
    kept = trim([*talk, Message.user("e")], 4, lambda _: 1)
    assert kept[0].role is Role.ASSISTANT
    check_wire(api, body_of(api, *kept))


@each_api
@pytest.mark.parametrize("name", ["functions.find", "find it now!", "", "f" * 99, "найти", "2 a"])
def test_B50_a_name_that_no_service_knows_is_sent_as_one_it_reads(api, name):
    """A model's invented name stays in the history; a service that checks names refuses it."""
    body = json.dumps(body_of(api, *exchange(name)), ensure_ascii=False)
    names = [p["name"] for p in _dicts(json.loads(body)) if "name" in p]
    if api == "ollama":  # it checks none
        return
    pattern = PATTERNS.get(api, "[a-zA-Z0-9_-]{1,64}")
    assert names
    for one in names:
        assert re.fullmatch(pattern, one), one
    assert len(set(names)) == 1  # call and result are of one name


def test_a_result_has_its_calls_name():
    """Where names are made to fit; services that pair by name compare them."""
    call = Message(Role.ASSISTANT, (ToolCallPart("c1", "a b", {}),))
    result = Message.tool_results((ToolResultPart("c1", "other!", "ok"),))
    for api in ("gemini", "anthropic-messages"):
        text = json.dumps(body_of(api, Message.user("q"), call, result))
        assert '"a_b"' in text
        assert "other" not in text


def test_B50_a_name_that_the_service_reads_stays():
    for api in CLIENTS:
        assert '"find-it_2"' in json.dumps(body_of(api, *exchange("find-it_2")))
    assert '"functions.find"' in json.dumps(body_of("gemini", *exchange("functions.find")))


def _dicts(value):
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    for one in value if isinstance(value, list) else ():
        yield from _dicts(one)


@pytest.mark.parametrize("output", ["", " \n"])
def test_anthropic_takes_no_blank_result(output):
    body = body_of("anthropic-messages", *exchange("find", output=output))
    block = body["messages"][-1]["content"][0]
    assert block == {"type": "tool_result", "tool_use_id": "c1"}


@each_api
def test_no_empty_text_beside_an_image(api):
    shown = Message(Role.USER, (TextPart(""), ImagePart(PNG)))
    answered = exchange("find", output="", images=(ImagePart(PNG),))
    for messages in ((shown,), answered):
        wire = listed(api, body_of(api, *messages))
        parts = [p for m in wire for p in _dicts(m) if "text" in p]
        assert all(p["text"] for p in parts), parts


@each_api
@pytest.mark.parametrize("source", ["DATA:image/PNG;base64,iVBORw0KGgo=", PNG])
def test_a_data_address_in_capitals_is_data(api, source):
    text = json.dumps(body_of(api, Message(Role.USER, (ImagePart(source), TextPart("x")))))
    assert "iVBORw0KGgo=" in text
    assert "fileUri" not in text


def test_anthropic_and_gemini_get_the_registered_name_of_jpeg():
    message = Message(Role.USER, (ImagePart("data:image/jpg;base64,/9j/"),))
    for api in JOINED:
        assert '"image/jpeg"' in json.dumps(body_of(api, message))


def test_L11_a_blank_system_prompt_is_none():
    for blank in ("", "  \n", None):
        assert build_turn_request((), (Message.user("x"),), system=blank).system is None
    assert build_turn_request((), (Message.user("x"),), system=" x ").system == " x "


def test_L104_a_given_history_loses_what_has_no_partner():
    """Calls without a result and results without a call: no provider takes them."""
    history = [
        Message.user("one"),
        Message(Role.ASSISTANT, (TextPart("look"), ToolCallPart("c1", "find", {}))),
        Message.user("two"),
        Message.assistant("fine"),
        Message.tool_results((ToolResultPart("c9", "find", "lost"),)),
    ]
    model = ScriptedModel(["three"])
    runtime = AgentRuntime(model, session=Session(history=list(history)))
    runtime.run("go on")
    sent = model.requests[0].messages
    assert [m.text_content() for m in sent] == ["one", "look", "two", "fine", "go on"]
    assert not any(m.tool_calls or m.results for m in sent)
    for api in CLIENTS:
        check_wire(api, body_of(api, *sent))


def test_L2_gemini_3_takes_the_calls_of_another_model():
    """It refuses an unsigned call in the open exchange; the provider's own word stands in."""
    mine = {"model": "gemini:gemini-3-pro", "signatures": [{"at": 0, "signature": "S"}]}
    call = ToolCallPart("c1", "find", {})
    own = Message(Role.ASSISTANT, (call,), provider_state=mine)
    two = Message(Role.ASSISTANT, (TextPart("look"), call, ToolCallPart("c2", "find", {})))
    result = exchange("find")[2]
    both = Message.tool_results((*result.results, ToolResultPart("c2", "find", "x")))

    def signatures(model: str, *messages: Message) -> list[str]:
        client = Gemini(model, base_url="http://h.example", provider="gemini")
        _, body = client.encode(StreamRequest(messages), RequestOptions(), stream=True)
        parts = [p for c in json.loads(body)["contents"] for p in c["parts"]]
        return [p.get("thoughtSignature", "") for p in parts if "functionCall" in p]

    word = "skip_thought_signature_validator"
    open_one = (Message.user("q"), two, both)
    assert signatures("gemini-3-pro", *open_one) == [word, ""]
    assert signatures("gemini-2.5-flash", *open_one) == ["", ""]
    assert signatures("gemini-3-pro", Message.user("q"), own, result, two, both) == ["S", word, ""]
    closed = (*open_one, Message.assistant("so"), Message.user("and?"))
    assert signatures("gemini-3-pro", *closed) == ["", ""]


def test_L8_mistral_hears_the_assistant_between_results_and_a_user():
    """Images of a result, and what a person says after results, are messages of a user."""
    call = Message(Role.ASSISTANT, (ToolCallPart("c1", "find", {}),))
    plain = Message.tool_results((ToolResultPart("c1", "find", "ok"),))
    shown = Message.tool_results((ToolResultPart("c1", "find", "ok", images=(ImagePart(PNG),)),))
    mixed = Message(Role.USER, (*plain.parts, TextPart("and?")))

    def roles(*messages: Message) -> str:
        body = body_of("openai-chat", *messages, client={"provider": "mistral"})
        check_wire("openai-chat", body)
        return " ".join(m["role"] for m in body["messages"])

    asked = (Message.user("q"), call)
    assert roles(*asked, plain) == "user assistant tool"
    assert roles(*asked, plain, Message.assistant("so")) == "user assistant tool assistant"
    for last in ((shown,), (mixed,), (plain, Message.user("and?"))):
        assert roles(*asked, *last) == "user assistant tool assistant user"
    assert roles(*asked, shown, Message.user("and?")) == "user assistant tool assistant user"


def test_L2_deepseek_takes_the_calls_of_another_model():
    """While it thinks, it refuses a call of the open exchange without its field."""
    asked, called, result = exchange("find")

    def fields(name: str, *messages: Message, **extra: object) -> list[object]:
        client = OpenAIChat(name, base_url="http://h.example", provider="deepseek")
        options = RequestOptions(extra=extra)
        _, body = client.encode(StreamRequest(messages), options, stream=True)
        sent = json.loads(body)["messages"]
        return [m.get("reasoning_content") for m in sent if m["role"] == "assistant"]

    assert fields("deepseek-reasoner", asked, called, result) == [""]
    assert fields("deepseek-chat", asked, called, result) == [None]
    assert fields("deepseek-chat", asked, called, result, thinking={"type": "enabled"}) == [""]
    over = (asked, called, result, Message.assistant("so"), Message.user("and?"))
    assert fields("deepseek-reasoner", *over) == [None, None]
    own = {"model": "deepseek:deepseek-reasoner", "reasoning_content": "hm"}
    mine = Message(Role.ASSISTANT, called.parts, provider_state=own)
    assert fields("deepseek-reasoner", asked, mine, result) == ["hm"]


def _responses_server(request):
    """As the service does it: an encrypted item where it was asked for, nothing kept."""
    body = request.json
    asked = "reasoning.encrypted_content" in body.get("include", ())
    done = [i for i in body["input"] if i.get("type") == "function_call_output"]
    for item in body["input"]:
        if item.get("type") == "reasoning" and not item.get("encrypted_content"):
            return json_reply({"error": {"message": "Item with id 'rs_1' not found."}}, 404)
    thought = {"type": "reasoning", "id": "rs_1", "summary": []}
    if asked:
        thought["encrypted_content"] = "c2VjcmV0"
    call = {"type": "function_call", "call_id": "c1", "name": "find", "arguments": "{}"}
    said = {"type": "message", "content": [{"type": "output_text", "text": "done"}]}
    output = [said] if done else [thought, call]
    return json_reply({"object": "response", "status": "completed", "output": output})


@pytest.mark.parametrize("given", [{}, {"capabilities": {"thinking": None}}])
@pytest.mark.allow_requests
async def test_L2_reasoning_goes_back_only_as_it_can(given):
    """By the provider's own name, without a word of the user's: the table must know its models.
    A model that nobody knows may reason all the same: then its items stay at home."""

    @tool
    def find() -> str:
        "Find."
        return "here"

    async with serve(_responses_server) as server:
        client = model("openai-responses:gpt-5-mini", base_url=server.url, key="sk-1", **given)
        result = await AgentRuntime(client, tools=[find]).arun("where?")
        await client.aclose()
    assert result.text == "done"
    sent = server.requests[-1].json["input"]
    back = [i.get("encrypted_content") for i in sent if i.get("type") == "reasoning"]
    assert back == ([] if given else ["c2VjcmV0"])


@pytest.mark.allow_requests
async def test_L20_anthropic_counts_without_what_its_count_refuses():
    async with serve(json_reply({"input_tokens": 7})) as server:
        client = AnthropicMessages("m", base_url=server.url, provider="anthropic")
        options = RequestOptions(
            extra={"temperature": 0.5, "stop_sequences": ["x"], "thinking": {"type": "disabled"}}
        )
        request = StreamRequest((Message.user("q"),), system="s", tools=(ToolSchema("find"),))
        assert await client.count_tokens(request, options) == 7
        await client.aclose()
    sent = json.loads(server.requests[0].body)
    assert set(sent) == {"model", "messages", "system", "tools", "thinking"}
