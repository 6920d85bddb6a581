"""What is sent: every format's request, provider state that travels back, options refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from notebook_agent.core.accumulator import StreamAccumulator
from notebook_agent.core.messages import (
    ImagePart,
    Message,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from notebook_agent.core.request import RequestOptions, StreamRequest, ToolConstraint, ToolSchema
from notebook_agent.errors import ErrorKind, ProviderError
from notebook_agent.providers.anthropic_messages import AnthropicMessages
from notebook_agent.providers.base import Capabilities
from notebook_agent.providers.gemini import Gemini
from notebook_agent.providers.ollama import Ollama
from notebook_agent.providers.openai_chat import OpenAIChat
from notebook_agent.providers.openai_responses import OpenAIResponses
from tests.providers.bodies import (
    BEGIN,
    CREATED,
    G_CALL,
    REASONED,
    STOPPED,
    THOUGHT,
    asks,
    call,
    delta,
    ended,
    events,
    of,
    over,
    part,
    text_block,
    use_block,
)
from tests.providers.legal import check_wire
from tests.providers.server import Reply, json_reply, serve

CLIENTS = {
    "openai-chat": OpenAIChat,
    "openai-responses": OpenAIResponses,
    "anthropic-messages": AnthropicMessages,
    "gemini": Gemini,
    "ollama": Ollama,
}
each_api = pytest.mark.parametrize("api", list(CLIENTS))
PNG = "data:image/png;base64,iVBORw0KGgo="
TOOL = ToolSchema(
    "find", "Finds.", {"type": "object", "properties": {"q": {"type": "string", "default": "x"}}}
)
NONE = RequestOptions()
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def client_of(api: str, **given):
    return CLIENTS[api]("m", **{"base_url": "http://h.example/v1", "provider": "test", **given})


def encoded(client, *messages: Message, stream: bool = True, options=NONE, **request):
    path, body = client.encode(StreamRequest(messages, **request), options, stream=stream)
    return path, json.loads(body)


def listed(api: str, document) -> list:
    key = {"openai-responses": "input", "gemini": "contents"}.get(api, "messages")
    return document[key]


def called(*calls: ToolCallPart, text: str = "") -> Message:
    parts = ((TextPart(text),) if text else ()) + calls
    return Message(Role.ASSISTANT, parts)


def results(*pairs: tuple[str, str], **rest) -> Message:
    return Message.tool_results(tuple(ToolResultPart(i, "find", out, **rest) for i, out in pairs))


EXCHANGE = (
    Message.user("where?"),
    called(ToolCallPart("c1", "find", {"q": "Riga"}), text="Looking."),
    results(("c1", "here")),
)


def test_chat_request():
    path, body = encoded(client_of("openai-chat"), *EXCHANGE, system="Be brief.", tools=(TOOL,))
    assert path == "/chat/completions"
    assert body == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "where?"},
            {
                "role": "assistant",
                "content": "Looking.",
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "find", "arguments": '{"q":"Riga"}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "here"},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "find",
                    "description": "Finds.",
                    "parameters": TOOL.parameters,
                },
            }
        ],
    }


def test_anthropic_request():
    path, body = encoded(
        client_of("anthropic-messages"), *EXCHANGE, system="Be brief.", tools=(TOOL,)
    )
    assert path == "/v1/messages"
    assert body == {
        "model": "m",
        "max_tokens": 8192,
        "system": "Be brief.",
        "stream": True,
        "messages": [
            {"role": "user", "content": "where?"},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "Looking."},
                    {"type": "tool_use", "id": "c1", "name": "find", "input": {"q": "Riga"}},
                ],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "here"}],
            },
        ],
        "tools": [{"name": "find", "description": "Finds.", "input_schema": TOOL.parameters}],
    }


def test_gemini_request():
    path, body = encoded(client_of("gemini"), *EXCHANGE, system="Be brief.", tools=(TOOL,))
    assert path == "/models/m:streamGenerateContent?alt=sse"
    assert body == {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [
            {"role": "user", "parts": [{"text": "where?"}]},
            {
                "role": "model",
                "parts": [
                    {"text": "Looking."},
                    {"functionCall": {"name": "find", "args": {"q": "Riga"}, "id": "c1"}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {
                        "functionResponse": {
                            "name": "find",
                            "response": {"output": "here"},
                            "id": "c1",
                        }
                    }
                ],
            },
        ],
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "find",
                        "description": "Finds.",
                        "parametersJsonSchema": TOOL.parameters,
                    }
                ]
            }
        ],
    }
    path, _ = encoded(client_of("gemini"), *EXCHANGE, stream=False)
    assert path == "/models/m:generateContent"


def test_responses_request():
    path, body = encoded(
        client_of("openai-responses"), *EXCHANGE, system="Be brief.", tools=(TOOL,)
    )
    assert path == "/responses"
    assert body == {
        "model": "m",
        "instructions": "Be brief.",
        "store": False,
        "stream": True,
        "input": [
            {"role": "user", "content": "where?"},
            {"role": "assistant", "content": "Looking."},
            {
                "type": "function_call",
                "call_id": "c1",
                "name": "find",
                "arguments": '{"q":"Riga"}',
            },
            {"type": "function_call_output", "call_id": "c1", "output": "here"},
        ],
        "tools": [
            {
                "type": "function",
                "name": "find",
                "description": "Finds.",
                "parameters": TOOL.parameters,
                "strict": False,
            }
        ],
    }


def test_ollama_request():
    path, body = encoded(client_of("ollama"), *EXCHANGE, system="Be brief.", tools=(TOOL,))
    assert path == "/api/chat"
    assert body == {
        "model": "m",
        "stream": True,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "where?"},
            {
                "role": "assistant",
                "content": "Looking.",
                "tool_calls": [{"function": {"name": "find", "arguments": {"q": "Riga"}}}],
            },
            {"role": "tool", "tool_name": "find", "content": "here"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "find",
                    "description": "Finds.",
                    "parameters": TOOL.parameters,
                },
            }
        ],
    }


@each_api
def test_absent_is_absent(api):
    """L11, L12: no system prompt, no tools: no such field."""
    _, body = encoded(client_of(api), Message.user("hi"))
    for field in (
        "system",
        "tools",
        "systemInstruction",
        "instructions",
        "response_format",
        "text",
    ):
        assert field not in body


@each_api
def test_neighbours_of_one_role_are_merged_and_system_text_moves(api):
    messages = (
        Message.user("reference"),
        Message.user("question"),
        Message.assistant("a"),
        Message.assistant("b"),
        Message(Role.SYSTEM, (TextPart("be nice"),)),
        Message.user("again"),
    )
    _, body = encoded(client_of(api), *messages)
    wire = listed(api, body)
    roles = [m["role"] for m in wire]
    second = "model" if api == "gemini" else "assistant"
    if api == "openai-responses":  # items, not turns: neighbours of the assistant may stay
        assert roles == ["user", second, second, "user"]
    else:
        assert roles == ["user", second, "user"]
    first, last = json.dumps(wire[0]), json.dumps(wire[-1])
    assert "reference" in first
    assert "question" in first
    assert "[system note] be nice" in last
    assert "again" in last
    # The messages themselves, and what is kept beside them, are as they were.
    _, alone = encoded(client_of(api), messages[0])
    assert "question" not in json.dumps(alone)


@each_api
def test_K06_an_empty_assistant_message_is_left_out(api):
    for empty in (
        Message(Role.ASSISTANT, ()),
        Message.assistant(""),
        Message.assistant("\n "),
    ):
        _, body = encoded(client_of(api), Message.user("one"), empty, Message.user("two"))
        wire = listed(api, body)
        assert [m["role"] for m in wire] == ["user"]
        assert "one" in json.dumps(wire)
        assert "two" in json.dumps(wire)


@each_api
def test_S08_arguments_are_sent_again_as_an_object(api):
    for sent in ({}, None, [1], "x", 3):
        message = called(ToolCallPart("c1", "find", sent, "raw"))
        _, body = encoded(client_of(api), Message.user("q"), message, results(("c1", "r")))
        text = json.dumps(body).replace('\\"', '"')
        assert '"{}"' in text or '": {}' in text
        assert "raw" not in text


@each_api
def test_T02_half_a_surrogate_pair_is_sent_as_a_replacement(api):
    bad = "a\ud83d b"
    messages = (
        Message.user(bad),
        called(ToolCallPart("c1", "find", {"q": bad})),
        results(("c1", bad)),
    )
    client = client_of(api)
    _, body = client.encode(StreamRequest(messages, system=bad), RequestOptions(), stream=True)
    assert body.decode("utf-8").count("\ufffd") >= 4
    assert json.loads(body)


@each_api
def test_images_go_with_the_message_and_with_a_result(api):
    user = Message(Role.USER, (ImagePart(PNG), TextPart("What is this?")))
    answer = results(("c1", "a picture"), images=(ImagePart(PNG),))
    _, body = encoded(client_of(api), user, called(ToolCallPart("c1", "find", {})), answer)
    text = json.dumps(body)
    assert text.count("iVBORw0KGgo=") == 2
    assert "What is this?" in text
    assert "a picture" in text


def test_an_image_by_address():
    user = Message(Role.USER, (ImagePart("https://h.example/x.png"),))
    for api in ("openai-chat", "openai-responses", "anthropic-messages", "gemini"):
        assert "https://h.example/x.png" in json.dumps(encoded(client_of(api), user)[1])
    with pytest.raises(ProviderError) as caught:
        encoded(client_of("ollama"), user)
    assert (caught.value.kind, caught.value.feature) == (ErrorKind.UNSUPPORTED, "vision")


@each_api
def test_results_and_text_in_one_message(api):
    """Results follow their calls at once, whatever else the message says."""
    mixed = Message(
        Role.USER,
        (TextPart("and now?"), ToolResultPart("c1", "find", "here"), ToolResultPart("c2", "find", "no", is_error=True)),
    )  # fmt: skip
    calls = called(ToolCallPart("c1", "find", {}), ToolCallPart("c2", "find", {}))
    _, body = encoded(client_of(api), Message.user("q"), calls, mixed)
    text = json.dumps(listed(api, body))
    assert text.index("here") < text.index("and now?")
    if api == "anthropic-messages":
        assert '"is_error": true' in text
    if api == "gemini":
        assert '{"error": "no"}' in text


@each_api
def test_options_ride_beside_the_request(api):
    """L13, L14: the model override, parameters as given, never dropped."""
    options = RequestOptions(model="other", extra={"temperature": 0.5, "seed": 7})
    path, body = encoded(client_of(api), Message.user("hi"), options=options)
    assert "other" in path + json.dumps(body)
    places = [body, body.get("generationConfig", {}), body.get("options", {})]
    assert any(p.get("temperature") == 0.5 and p.get("seed") == 7 for p in places)


def test_gemini_and_ollama_keep_top_level_parameters_at_the_top():
    options = RequestOptions(
        extra={"generationConfig": {"topK": 3}, "safetySettings": [1], "seed": 7}
    )
    _, body = encoded(client_of("gemini"), Message.user("hi"), options=options)
    assert body["generationConfig"] == {"topK": 3, "seed": 7}
    assert body["safetySettings"] == [1]
    options = RequestOptions(extra={"keep_alive": "5m", "options": {"top_k": 3}, "seed": 7})
    _, body = encoded(client_of("ollama"), Message.user("hi"), options=options)
    assert body["options"] == {"top_k": 3, "seed": 7}
    assert body["keep_alive"] == "5m"


FORMATS = {
    "openai-chat": lambda b: b["response_format"]["json_schema"]["schema"],
    "openai-responses": lambda b: b["text"]["format"]["schema"],
    "anthropic-messages": lambda b: b["output_config"]["format"]["schema"],
    "gemini": lambda b: b["generationConfig"]["responseJsonSchema"],
    "ollama": lambda b: b["format"],
}


@each_api
def test_a_forced_schema_goes_out_and_tools_stay_home(api):
    options = RequestOptions(response_format={"type": "json_schema", "name": "n", "schema": SCHEMA})
    _, body = encoded(client_of(api), Message.user("hi"), options=options, tools=(TOOL,))
    assert FORMATS[api](body) == SCHEMA
    assert "tools" not in body


@each_api
def test_L7_what_cannot_be_honoured_is_refused(api):
    odd = [RequestOptions(response_format={"type": "poem"})]
    odd.append(RequestOptions(response_format={"type": "json_schema"}))
    odd.append(RequestOptions(tool_constraint=ToolConstraint.GRAMMAR))
    if api in ("gemini", "ollama"):
        odd.append(RequestOptions(tool_constraint=ToolConstraint.STRICT))
    if api == "anthropic-messages":
        odd.append(RequestOptions(response_format={"type": "json_object"}))
    for options in odd:
        with pytest.raises(ProviderError, match="nothing was sent") as caught:
            encoded(client_of(api), Message.user("hi"), options=options, tools=(TOOL,))
        assert caught.value.kind is ErrorKind.UNSUPPORTED
        assert not caught.value.is_retryable


def test_L7_by_dialect():
    strict = RequestOptions(tool_constraint=ToolConstraint.STRICT)
    grammar = RequestOptions(tool_constraint=ToolConstraint.GRAMMAR)
    _, body = encoded(
        client_of("openai-chat", provider="openai"),
        Message.user("x"),
        options=strict,
        tools=(TOOL,),
    )
    assert body["tools"][0]["function"]["strict"] is True
    encoded(
        client_of("openai-chat", provider="llamacpp"),
        Message.user("x"),
        options=grammar,
        tools=(TOOL,),
    )
    for provider, options in (("groq", strict), ("openai", grammar)):
        with pytest.raises(ProviderError):
            encoded(client_of("openai-chat", provider=provider), Message.user("x"), options=options)
    schema = RequestOptions(response_format={"type": "json_schema", "schema": SCHEMA})
    with pytest.raises(ProviderError) as caught:
        encoded(client_of("openai-chat", provider="deepseek"), Message.user("x"), options=schema)
    assert caught.value.feature == "json_schema"
    _, body = encoded(client_of("openai-chat", provider="mistral"), Message.user("x"))
    assert "stream_options" not in body
    with pytest.raises(ProviderError, match="stream twice"):
        encoded(
            client_of("openai-chat"),
            Message.user("x"),
            options=RequestOptions(extra={"stream": False}),
        )


def test_reasoning_is_asked_back_only_from_models_that_reason():
    _, body = encoded(client_of("openai-responses"), Message.user("x"))
    assert "include" not in body
    thinker = client_of("openai-responses", capabilities=Capabilities(thinking=True))
    assert encoded(thinker, Message.user("x"))[1]["include"] == ["reasoning.encrypted_content"]


def test_a_cache_marker_on_request():
    _, body = encoded(
        client_of("anthropic-messages", prompt_cache=True), Message.user("x"), system="S"
    )
    assert body["system"] == [{"type": "text", "text": "S", "cache_control": {"type": "ephemeral"}}]


def test_cache_markers_stand_on_tools_system_and_the_last_message():
    client = client_of("anthropic-messages")
    marker = {"type": "ephemeral"}
    options = RequestOptions(prompt_cache=True)
    messages = (Message.user("x"), Message.assistant("y"), Message.user("z"))
    _, body = encoded(client, *messages, tools=(ToolSchema("a"), TOOL), system="S", options=options)
    assert ["cache_control" in t for t in body["tools"]] == [False, True]
    assert body["system"][0]["cache_control"] == marker
    marked = [m["content"] for m in body["messages"]]
    assert marked == ["x", "y", [{"type": "text", "text": "z", "cache_control": marker}]]
    _, plain = encoded(client, *messages, tools=(ToolSchema("a"), TOOL), system="S")
    assert "cache_control" not in str(plain)  # nothing of it is kept beside the messages


def test_cache_key_of_openai_passes_through():
    options = RequestOptions(extra={"prompt_cache_key": "k"}, prompt_cache=True)
    for api in ("openai-chat", "openai-responses"):
        assert (
            encoded(client_of(api), Message.user("x"), options=options)[1]["prompt_cache_key"]
            == "k"
        )


FORCED = RequestOptions(response_format={"type": "tool", "name": "Out", "schema": SCHEMA})
CHOICES = {
    "openai-chat": {"tool_choice": {"type": "function", "function": {"name": "Out"}}},
    "openai-responses": {"tool_choice": {"type": "function", "name": "Out"}},
    "anthropic-messages": {
        "tool_choice": {"type": "tool", "name": "Out", "disable_parallel_tool_use": True}
    },
    "gemini": {
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["Out"]}}
    },
}


@pytest.mark.parametrize("api", sorted(CHOICES))
def test_a_forced_tool_goes_alone(api):
    _, body = encoded(client_of(api), Message.user("hi"), options=FORCED, tools=(TOOL,))
    for name, value in CHOICES[api].items():
        assert body[name] == value
    assert str(body["tools"]).count("'Out'") == 1
    assert TOOL.name not in str(body["tools"])
    assert "response_format" not in body
    assert "output_config" not in body


def test_ollama_has_no_forced_tool():
    with pytest.raises(ProviderError, match="force the format 'tool'"):
        encoded(client_of("ollama"), Message.user("hi"), options=FORCED)


def test_anthropic_names_the_tools_that_a_conversation_speaks_of():
    """The service refuses calls and results in a conversation when no tool is defined."""
    client = client_of("anthropic-messages")
    talk = (
        Message.user("x"),
        Message(Role.ASSISTANT, (ToolCallPart("1", "look", {}),)),
        Message.tool_results((ToolResultPart("1", "look", "seen"),)),
    )
    options = RequestOptions(response_format={"type": "json_schema", "name": "n", "schema": SCHEMA})
    for one in (options, RequestOptions()):
        _, body = encoded(client, *talk, options=one)
        assert body["tools"] == [{"name": "look", "input_schema": {"type": "object"}}]
        assert body["tool_choice"] == {"type": "none"}
    _, body = encoded(client, *talk, tools=(TOOL,))
    assert "tool_choice" not in body


NESTED = {
    "type": "object",
    "properties": {
        "n": {"type": "integer", "minimum": 0, "default": 3},
        "rows": {"type": "array", "items": {"$ref": "#/$defs/Row"}, "minItems": 1},
    },
    "required": ["rows"],
    "$defs": {"Row": {"type": "object", "title": "Row", "properties": {"a": {"type": "string"}}}},
}


def test_native_formats_are_closed_and_strict():
    found = client_of("openai-chat").native_format("n", NESTED)
    assert found["strict"]
    assert found["schema"]["required"] == ["n", "rows"]
    assert found["schema"]["properties"]["n"] == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    row = found["schema"]["$defs"]["Row"]
    assert (row["required"], row["additionalProperties"]) == (["a"], False)
    found = client_of("anthropic-messages").native_format("n", NESTED)["schema"]
    assert found["required"] == ["rows"]
    assert found["additionalProperties"] is False
    assert "minimum" not in str(found)
    assert client_of("openai-responses").native_format("n", NESTED)["strict"]


@pytest.mark.parametrize(
    "beyond",
    [
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"type": "object", "properties": {"a": {"type": "object"}}},
        {"type": "object", "properties": {"a": {}}},
        {"type": "object", "properties": {"a": True}},
        {"type": "object", "properties": {"a": {"not": {"type": "string"}}}},
    ],
)
def test_a_schema_without_a_closed_form(beyond):
    """OpenAI gets it as it is, without strict; Anthropic is asked in another way."""
    assert client_of("anthropic-messages").native_format("n", beyond) is None
    for api in ("openai-chat", "openai-responses"):
        assert client_of(api).native_format("n", beyond) == {
            "type": "json_schema", "name": "n", "schema": beyond,
        }  # fmt: skip


def test_recursion_is_strict_at_openai_and_beyond_anthropic():
    schema = {
        "type": "object",
        "properties": {"next": {"$ref": "#/$defs/N"}},
        "$defs": {"N": {"type": "object", "properties": {"next": {"$ref": "#/$defs/N"}}}},
    }
    assert client_of("openai-chat").native_format("n", schema)["strict"]
    assert client_of("anthropic-messages").native_format("n", schema) is None


def test_tools_are_encoded_again_when_they_change():
    client = client_of("openai-chat")
    other = ToolSchema("other")
    for tools in ((TOOL,), (TOOL,), (TOOL, other), (other,)):
        _, body = encoded(client, Message.user("x"), tools=tools)
        assert [t["function"]["name"] for t in body["tools"]] == [t.name for t in tools]


@each_api
def test_history_is_encoded_once(api):
    client = client_of(api)
    messages = tuple(
        (Message.user, Message.assistant)[i % 2](f"{i}: " + "words " * 30) for i in range(1001)
    )
    first = client.encode(StreamRequest(messages), RequestOptions(), stream=True)
    again = client.encode(StreamRequest(messages), RequestOptions(), stream=True)
    assert first == again
    assert all(len(m.memo) == 1 for m in messages)


@each_api
@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["user", "assistant", "system", "call", "empty"]), st.text(max_size=6)
        ),
        max_size=8,
    )
)
def test_any_history_is_legal(api, turns):
    """Roles alternate where they must, nothing is empty, every call has its result at once."""
    messages = [Message.user("first")]  # a conversation is begun by the user
    for n, (kind, text) in enumerate(turns):
        if kind == "call":
            ids = [f"c{n}_{k}" for k in range(1 + len(text) % 3)]  # up to three at once
            messages.append(called(*(ToolCallPart(i, "find", {"q": text}) for i in ids)))
            messages.append(results(*((i, text) for i in ids)))
        elif kind == "empty":
            messages.append(Message(Role.ASSISTANT, (TextPart(" "),)))
        else:
            messages.append(Message(Role(kind), (TextPart(text),)))
    client = client_of(api)
    _, body = encoded(client, *messages)
    assert encoded(client, *messages)[1] == body
    texts = "".join(t for kind, t in turns if kind in ("user", "system"))
    assert all(c in json.dumps(body, ensure_ascii=False) or not c.isalnum() for c in texts)
    check_wire(api, body)


@pytest.mark.parametrize("blank", ["\n\n", " ", "\u3000"])
def test_L8_anthropic_is_sent_no_block_of_white_space(blank):
    """It refuses one; two merged messages of the user must not make it."""
    talk = (Message.user("one"), Message.user(blank), Message.user("two"))
    _, body = encoded(client_of("anthropic-messages"), *talk)
    (message,) = body["messages"]
    assert message["content"] == [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]


# Provider state that travels back (L2): servers that check it.


def signed_anthropic(request):
    """Accepts a tool result only behind the signed thinking it gave."""
    body = request.json
    if len(body["messages"]) == 1:
        said = events(
            BEGIN,
            *THOUGHT,
            *use_block(1, "t1", "find", '{"q":1}'),
            ended("tool_use"),
            STOPPED,
            named=True,
        )
        return Reply([said])
    content = body["messages"][1]["content"]
    want = [
        {"type": "thinking", "thinking": "hm ok", "signature": "c2lnbmVk"},
        {"type": "tool_use", "id": "t1", "name": "find", "input": {"q": 1}},
    ]
    if content != want:
        return json_reply(
            {
                "type": "error",
                "error": {
                    "type": "invalid_request_error",
                    "message": f"Expected thinking, found {content}",
                },
            },
            400,
        )
    return Reply([events(BEGIN, *text_block(0, "done"), ended("end_turn"), STOPPED, named=True)])


def signed_gemini(request):
    body = request.json
    if len(body["contents"]) == 1:
        return Reply(
            [
                events(
                    part({"text": "hm", "thought": True}),
                    part({"text": "so"}),
                    part(G_CALL, finish="STOP"),
                )
            ]
        )
    parts = body["contents"][1]["parts"]
    want = [
        {"text": "so"},
        {"functionCall": {"name": "f", "args": {"x": 1}}, "thoughtSignature": "c2ln"},
    ]
    if parts != want:
        return json_reply(
            {"error": {"code": 400, "message": f"missing a thought_signature: {parts}"}}, 400
        )
    return Reply([events(part({"text": "done"}, finish="STOP"))])


def signed_responses(request):
    body = request.json
    if len(body["input"]) == 1:
        item = of("output_item.done", output_index=0, item=REASONED)
        return Reply([events(CREATED, item, *asks(1, "c1", "find", '{"q":1}'), over(), named=True)])
    if body["input"][1] != REASONED or body["input"][2]["call_id"] != "c1":
        return json_reply(
            {
                "error": {
                    "message": f"reasoning is missing: {body['input']}",
                    "type": "invalid_request_error",
                }
            },
            400,
        )
    return Reply(
        [events(CREATED, of("output_text.delta", output_index=0, delta="done"), over(), named=True)]
    )


def signed_deepseek(request):
    body = request.json
    if len(body["messages"]) == 1:
        return Reply(
            [
                events(
                    delta(reasoning_content="hm "),
                    delta(reasoning_content="ok"),
                    delta(tool_calls=[call(0, "c1", "find", arguments="{}")]),
                    delta("tool_calls"),
                    "[DONE]",
                )
            ]
        )
    if body["messages"][1].get("reasoning_content") != "hm ok":
        return json_reply(
            {"error": {"message": "Missing reasoning_content", "type": "invalid_request_error"}},
            400,
        )
    return Reply([events(delta(content="done"), delta("stop"), "[DONE]")])


def signed_openrouter(request):
    body = request.json
    details = [{"type": "reasoning.encrypted", "data": "c2ln", "id": "r1"}]
    if len(body["messages"]) == 1:
        return Reply(
            [
                events(
                    delta(reasoning_details=details),
                    delta(tool_calls=[call(0, "c1", "find", arguments="{}")]),
                    delta("tool_calls"),
                    "[DONE]",
                )
            ]
        )
    if body["messages"][1].get("reasoning_details") != details:
        return json_reply({"error": {"message": "Missing reasoning_details", "code": 400}}, 400)
    return Reply([events(delta(content="done"), delta("stop"), "[DONE]")])


EXCHANGES = {
    "anthropic": ("anthropic-messages", signed_anthropic),
    "gemini": ("gemini", signed_gemini),
    "openai": ("openai-responses", signed_responses),
    "deepseek": ("openai-chat", signed_deepseek),
    "openrouter": ("openai-chat", signed_openrouter),
}


async def turn(client, *messages, options=NONE):
    accumulator = StreamAccumulator()
    request = StreamRequest(messages, tools=(TOOL,))
    async for event in client.stream_messages_with_options(request, options):
        accumulator.apply(event)
    return accumulator.build()


@pytest.mark.allow_requests
@pytest.mark.parametrize("provider", list(EXCHANGES))
async def test_L2_a_tool_exchange_with_thinking_is_accepted(provider):
    api, check = EXCHANGES[provider]
    async with serve(check) as server:
        client = client_of(api, base_url=server.url, provider=provider)
        question = Message.user("where?")
        reply = await turn(client, question)
        (asked,) = reply.tool_calls
        assert reply.provider_state is not None
        assert reply.provider_state["model"] == f"{provider}:m"
        # The state survives a record, is no part, and is in no text.
        reply = Message.from_json(json.loads(json.dumps(reply.to_json())))
        assert "c2ln" not in reply.text_content() + reply.display_text()
        answer = Message.tool_results((ToolResultPart(asked.id, asked.name, "here"),))
        done = await turn(client, question, reply, answer)
        assert done.text_content() == "done"
        # Another model never sees it; nor does a later exchange.
        other = client_of(api, base_url=server.url, provider="other")
        for sender, messages in (
            (other, (question, reply, answer)),
            (client, (question, reply, answer, done, Message.user("next"))),
        ):
            _, body = encoded(sender, *messages)
            assert all(word not in json.dumps(body) for word in ("c2ln", "c2VjcmV0", "hm"))
        _, body = encoded(client, question, reply, answer, options=RequestOptions(model="backup"))
        assert "c2ln" not in json.dumps(body)
        await client.aclose()


def test_L2_ids_that_we_made_are_not_sent_to_gemini():
    made = called(ToolCallPart("made_r1_0", "find", {}))
    _, body = encoded(client_of("gemini"), Message.user("q"), made, results(("made_r1_0", "r")))
    assert "made_" not in json.dumps(body)
