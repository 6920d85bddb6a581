"""Requests beside a turn (counts, lists, probes), and replies of odd shape in whole documents."""

from __future__ import annotations

import json

import pytest

from notebook_agent.core.messages import Message
from notebook_agent.core.request import RequestOptions, StreamRequest
from notebook_agent.errors import ProviderError
from notebook_agent.providers.decode import decode_body
from tests.providers.server import json_reply, serve
from tests.providers.test_requests import NONE, TOOL, client_of, encoded

ASK = StreamRequest((Message.user("how long?"),), system="s", tools=(TOOL,))
COUNTS = {
    "gemini": ("totalTokens", ":countTokens"),
    "anthropic-messages": ("input_tokens", "/v1/messages/count_tokens"),
    "openai-responses": ("input_tokens", "/responses/input_tokens"),
}


@pytest.mark.allow_requests
@pytest.mark.parametrize("api", list(COUNTS))
@pytest.mark.parametrize(("sent", "found"), [(17, 17), (None, None), ("17", None), (True, None)])
async def test_L20_the_providers_own_count(api, sent, found):
    field, path = COUNTS[api]
    async with serve(lambda _request: json_reply({field: sent})) as server:
        client = client_of(api, base_url=server.url)
        assert await client.count_tokens(ASK, NONE) == found
        request = server.requests[-1]
        assert request.target.endswith(path)
        body = json.loads(request.body)
        assert "how long?" in json.dumps(body)
        assert "stream" not in body
        assert not {"max_tokens", "max_output_tokens", "store", "include"} & set(body)
        await client.aclose()


@pytest.mark.allow_requests
async def test_models_of_gemini_are_listed_by_their_bare_names():
    listing = {"models": [{"name": "models/a"}, {"name": "models/b"}]}
    async with serve(lambda _request: json_reply(listing)) as server:
        client = client_of("gemini", base_url=server.url)
        assert await client.list_models() == ["a", "b"]
        await client.aclose()


@pytest.mark.allow_requests
async def test_a_list_with_odd_rows_gives_the_names_in_it():
    rows = [
        None,
        5,
        {"id": None},
        {"id": 5},
        {"id": ["x"]},
        {"id": "a"},
        {"id": "a"},
        {"name": "b"},
    ]
    async with serve(json_reply({"data": rows})) as server:
        client = client_of("openai-chat", base_url=server.url)
        assert await client.list_models() == ["a", "b"]
        await client.aclose()


@pytest.mark.allow_requests
async def test_an_error_in_a_200_answer_is_no_empty_list():
    async with serve(json_reply({"error": {"message": "not today"}})) as server:
        client = client_of("openai-chat", base_url=server.url)
        with pytest.raises(ProviderError, match="not today"):
            await client.list_models()
        await client.aclose()


@pytest.mark.allow_requests
@pytest.mark.parametrize(
    ("info", "window"),
    [
        ({"a.context_length": "8k"}, None),
        ({"a.context_length": -5}, None),
        ({"a.context_length": 4096.5}, None),
        ({"clip.context_length": None, "llama.context_length": 4096}, 4096),
        (5, None),
    ],
)
async def test_L20_a_window_is_a_whole_number_or_not_known(info, window):
    async with serve(json_reply({"model_info": info})) as server:
        client = client_of("ollama", base_url=server.url)
        assert (await client.learn()).context_window == window
        await client.aclose()


@pytest.mark.allow_requests
async def test_a_side_call_that_is_refused_says_so():
    async with serve(lambda _request: json_reply({"error": {"message": "no"}}, 403)) as server:
        client = client_of("anthropic-messages", base_url=server.url)
        with pytest.raises(ProviderError, match="no"):
            await client.count_tokens(ASK, RequestOptions())
        await client.aclose()


@pytest.mark.parametrize("api", ["openai-chat", "openai-responses", "gemini"])
def test_L7_formats_by_their_name(api):
    _, body = encoded(
        client_of(api), Message.user("x"), options=RequestOptions(response_format={"type": "json_object"})
    )  # fmt: skip
    assert "json" in json.dumps(body)
    for wanted in ({"type": "yaml"}, {"type": "json_schema"}, {}):
        with pytest.raises(ProviderError, match="format"):
            encoded(client_of(api), Message.user("x"), options=RequestOptions(response_format={"type": "?", **wanted}))  # fmt: skip


def test_S04_a_whole_responses_document_with_every_kind_of_item():
    document = {
        "id": "r", "status": "completed", "model": "m",
        "output": [
            "odd",
            {"type": "reasoning", "id": "i", "summary": [{"text": "hm "}, "odd"],
             "content": [{"type": "reasoning_text", "text": "so"}]},
            {"type": "message", "content": [
                "odd", {"type": "output_text", "text": ""}, {"type": "output_text", "text": "a"},
                {"type": "refusal", "refusal": "no"}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"q":1}'},
            {"type": "web_search_call"},
        ],
        "usage": {"input_tokens": 3, "output_tokens": 2},
    }  # fmt: skip
    got = decode_body(json.dumps(document).encode(), "openai-responses")
    assert (got["text"], got["refusal"]) == ("a", "no")
    assert {"hm", "so"} <= set(got["thinking"].replace("so", " so ").split())
    assert [c["arguments"] for c in got["tool_calls"]] == [{"q": 1}]
    assert got["complete"]
    assert not decode_body(b'{"output": "odd"}', "openai-responses")["complete"]


def test_S12_ollama_whole_and_odd_calls():
    whole = {
        "message": {"content": "a", "thinking": "hm", "tool_calls": [
            {"function": {"name": "f", "arguments": '{"q":1}'}},
            {"function": None}, {"function": {"name": "g", "arguments": [1]}}]},
        "done": True, "done_reason": "stop", "prompt_eval_count": 5, "eval_count": 2,
    }  # fmt: skip
    got = decode_body(json.dumps(whole).encode() + b"\n", "ollama")
    assert (got["text"], got["thinking"], got["stop"]) == ("a", "hm", "tool_call")
    named = [(c["name"], c["arguments"]) for c in got["tool_calls"] if c["name"]]
    assert named == [("f", {"q": 1}), ("g", [1])]
    bare = decode_body(b'{"message":{"content":"a"},"done":true,"eval_count":1}\n', "ollama")
    assert (bare["complete"], bare["usage"]) == (True, {"output_tokens": 1})
