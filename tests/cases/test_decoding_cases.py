"""The reported decoding failures, S01-S13, each with its own input, through a client's events."""

from __future__ import annotations

import json

import pytest

from notebook_agent.core import events as e
from notebook_agent.core.accumulator import StreamAccumulator
from notebook_agent.core.messages import Message
from notebook_agent.core.request import RequestOptions, StreamRequest
from notebook_agent.core.response import Ending, StopReason
from notebook_agent.errors import ErrorKind, ProviderError
from notebook_agent.providers.recorded import RecordedModel

ASK = StreamRequest((Message.user("x"),))
NONE = RequestOptions()


def sse(*documents) -> bytes:
    out = b""
    for one in documents:
        text = one if isinstance(one, str) else json.dumps(one, ensure_ascii=False)
        out += b"data: " + text.encode() + b"\n\n"
    return out


def says(text: str) -> dict:
    return {"choices": [{"delta": {"content": text}}]}


def calls(*entries: dict) -> dict:
    return {"choices": [{"delta": {"tool_calls": list(entries)}}]}


def ends(word: str) -> dict:
    return {"choices": [{"delta": {}, "finish_reason": word}]}


async def play(body: bytes, api: str = "openai-chat", chunk: int | None = None):
    """(accumulator, events, error) of a body."""
    accumulator, events = StreamAccumulator(), []
    model = RecordedModel(body, api, chunk=chunk)
    try:
        async for event in model.stream_messages_with_options(ASK, NONE):
            events.append(event)
            accumulator.apply(event)
    except ProviderError as error:
        return accumulator, events, error
    return accumulator, events, None


def thoughts(events) -> list[str]:
    found = [v.delta for v in events if isinstance(v, e.IndexedDelta)]
    return [d.text for d in found if isinstance(d, e.Thinking)]


async def test_S01_chunk_border_inside_a_character():
    body = sse(says("Žagarė 🦉"), ends("stop"))
    for chunk in (1, 2, 3, 5, 7, len(body)):
        reply, _, error = await play(body, chunk=chunk)
        assert error is None
        assert reply.build().text_content() == "Žagarė 🦉"
    lone = b'data: {"choices":[{"delta":{"content":"a\xc3"}}]}\n\n' + sse(says("b"), ends("stop"))
    reply, _, error = await play(lone)
    assert error is None
    assert reply.build().text_content() == "a\ufffdb"


async def test_S02_unicode_line_separators_inside_json():
    text = "one\u2028two\u0085three\u000bfour\u001efive"
    raw = '{"choices":[{"delta":{"content":"' + text + '"}}]}'
    for chunk in (None, 1):
        reply, _, error = await play(sse(raw, ends("stop"), "[DONE]"), chunk=chunk)
        assert error is None
        assert reply.build().text_content() == text


async def test_S03_keep_alive_comments():
    body = b":\n\n" * 4 + b": keepalive\n\n" + b"event: ping\ndata: {}\n\n"
    reply, events, error = await play(body + sse(says("hi"), ends("stop"), "[DONE]"))
    assert error is None
    assert [type(v) for v in events].count(e.Ping) == 6
    assert reply.build().text_content() == "hi"


async def test_S04_a_chunk_whose_choice_list_is_empty():
    usage = {"prompt_tokens": 31, "completion_tokens": 4, "total_tokens": 35}
    reply, _, error = await play(
        sse(
            {"choices": []},
            says("a"),
            says("b"),
            ends("stop"),
            {"choices": [], "usage": usage},
            "[DONE]",
        )
    )
    assert error is None
    assert reply.build().text_content() == "ab"
    assert reply.stop_reason is StopReason.END_TURN
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (31, 4)


async def test_S05_two_entries_with_one_index_in_one_chunk():
    first = calls(
        {"index": 0, "id": "c1", "function": {"name": "find"}},
        {"index": 0, "function": {"arguments": '{"q":'}},
    )
    second = calls({"index": 0, "function": {"arguments": '"ice"}'}})
    reply, _, _ = await play(sse(first, second, ends("tool_calls"), "[DONE]"))
    assert [(c.id, c.name, c.input) for c in reply.build().tool_calls] == [
        ("c1", "find", {"q": "ice"})
    ]


async def test_S06_parallel_calls_that_all_claim_index_0():
    a = calls({"index": 0, "id": "a", "function": {"name": "find", "arguments": '{"q":"Riga"}'}})
    b = calls({"index": 0, "id": "b", "function": {"name": "find", "arguments": '{"q":"Oslo"}'}})
    reply, _, _ = await play(sse(a, b, ends("tool_calls"), "[DONE]"))
    assert [(c.id, c.input) for c in reply.build().tool_calls] == [
        ("a", {"q": "Riga"}),
        ("b", {"q": "Oslo"}),
    ]


@pytest.mark.parametrize(
    ("word", "ending"),
    [
        ("stop", Ending.END_TURN),
        ("length", Ending.MAX_TOKENS),
        ("content_filter", Ending.CONTENT_FILTER),
    ],
)
async def test_S07_the_adapter_reports_the_word_as_it_came(word, ending):
    one = calls({"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}})
    reply, _, error = await play(sse(one, ends(word), "[DONE]"))
    assert error is None
    assert len(reply.build().tool_calls) == 1
    assert (reply.ending, reply.ending_raw) == (ending, word)
    assert reply.stop_reason is not StopReason.TOOL_CALL


@pytest.mark.parametrize(
    "function",
    [{"name": "now"}, {"name": "now", "arguments": None}, {"name": "now", "arguments": ""}],
)
async def test_S08_a_tool_without_parameters(function):
    reply, _, error = await play(
        sse(calls({"index": 0, "id": "a", "function": function}), ends("tool_calls"), "[DONE]")
    )
    assert error is None
    (call,) = reply.build().tool_calls
    assert (call.name, call.input) == ("now", {})


@pytest.mark.parametrize("word", ["tool_calls", "length"])
async def test_S09_a_truncated_call_dressed_up_as_finished(word):
    cut = calls(
        {
            "index": 0,
            "id": "a",
            "function": {"name": "write", "arguments": '{"path":"notes.md","text":"lorem ip'},
        }
    )
    reply, _, error = await play(sse(cut, ends(word), "[DONE]"))
    assert error is None
    (call,) = reply.build().tool_calls
    assert not call.parsed
    assert call.raw.endswith("lorem ip")


@pytest.mark.parametrize(
    ("event", "kind", "words"),
    [
        (b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"busy"}}\n\n', ErrorKind.OVERLOADED, ("overloaded_error", "busy")),
        (b'data: {"error":{"code":"server_error","message":"boom"}}\n\n', ErrorKind.PROVIDER, ("server_error", "boom")),
        (b'data: {"error":{"type":"invalid_request_error","message":"bad"}}\n\n', ErrorKind.BAD_REQUEST, ("invalid_request_error", "bad")),
    ],
)  # fmt: skip
async def test_S10_an_error_object_after_http_200(event, kind, words):
    for chunk in (None, 1):
        reply, events, error = await play(sse(says("a"), says("b")) + event, chunk=chunk)
        assert error is not None
        assert (error.kind, error.error_type, error.message) == (kind, *words)
        assert error.is_retryable == (kind is not ErrorKind.BAD_REQUEST)
        assert reply.text() == "ab"
        assert not any(isinstance(v, e.MessageStop) for v in events)


async def test_S11_the_body_ends_in_the_middle_of_tool_arguments():
    block = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    body = sse(
        {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 3}}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": '{"a"'}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": ":"}},
    )  # fmt: skip
    for api, cut in (("anthropic-messages", body), ("openai-chat", sse(says("The plan is")))):
        reply, _, error = await play(cut, api)
        assert error is not None
        assert error.kind is ErrorKind.TRANSPORT
        assert error.is_retryable
        assert not reply.ended
    for complete in (sse(says("a"), "[DONE]"), sse(says("a"), ends("stop"))):
        reply, _, error = await play(complete)
        assert error is None
        assert reply.stop_reason is StopReason.END_TURN


async def test_S12_two_names_for_the_same_reasoning():
    thinking = [
        {"choices": [{"delta": {"reasoning_content": "hm "}}]},
        {"choices": [{"delta": {"reasoning": "ok "}}]},
        {"choices": [{"delta": {"reasoning_content": "so ", "reasoning": "so "}}]},
    ]
    reply, events, _ = await play(sse(*thinking, says("42"), ends("stop"), "[DONE]"))
    assert thoughts(events) == ["hm ", "ok ", "so "]
    assert reply.build().text_content() == "42"
    assert len(reply.build().parts) == 1


async def test_S13_running_totals_are_not_added_up():
    start = {"input_tokens": 25, "cache_read_input_tokens": 900, "output_tokens": 1}
    body = sse(
        {"type": "message_start", "message": {"id": "m", "usage": start}},
        {"type": "message_delta", "delta": {}, "usage": {**start, "output_tokens": 9}},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 15},
        },
        {"type": "message_stop"},
    )
    reply, _, error = await play(body, "anthropic-messages")
    assert error is None
    usage = reply.usage
    assert (usage.output_tokens, usage.input_tokens, usage.cached_input_tokens) == (15, 25, 900)


async def test_T06_cached_tokens_are_part_of_the_input():
    usage = {
        "prompt_tokens": 184704,
        "prompt_tokens_details": {"cached_tokens": 183936},
        "completion_tokens": 49,
    }
    reply, _, _ = await play(
        sse(says("a"), ends("stop"), {"choices": [], "usage": usage}, "[DONE]")
    )
    assert reply.usage.context_tokens == 184_704
    assert reply.usage.cached_input_tokens == 183_936


async def test_T02_half_a_character_in_arguments_is_replaced_once():
    raw = '{"q":"a\\ud83d b\\u0000","ok":"\\ud83e\\udd89"}'
    one = calls({"index": 0, "id": "a", "function": {"name": "f", "arguments": raw}})
    reply, _, error = await play(sse(one, ends("tool_calls"), "[DONE]"))
    assert error is None
    (call,) = reply.build().tool_calls
    assert call.input == {"q": "a\ufffd b\ufffd", "ok": "🦉"}


@pytest.mark.parametrize(
    "odd",
    [
        {"choices": None},
        {"choices": [None]},
        {"choices": [{}]},
        {"choices": [{"delta": None}]},
        {"choices": [None, {"index": 0, "delta": {}}]},
        {"id": "x", "object": "chat.completion.chunk", "usage": None},
        {"choices": [{"index": 1, "delta": {"content": "of another choice"}}]},
    ],
    ids=str,
)
async def test_S04_a_chunk_without_a_choice_of_ours_changes_nothing(odd):
    late = {"choices": [], "usage": {"prompt_tokens": 31, "completion_tokens": 4}}
    body = sse(odd, says("a"), odd, says("b"), odd, ends("stop"), odd, late, "[DONE]")
    for chunk in (None, 1, 40):
        reply, _, error = await play(body, chunk=chunk)
        assert error is None
        assert reply.ended
        assert reply.build().text_content() == "ab"
        assert (reply.usage.input_tokens, reply.usage.output_tokens) == (31, 4)


async def test_S06_fragments_of_two_calls_in_turn_under_one_index():
    one = {"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"q":'}}
    two = {"index": 0, "id": "b", "function": {"name": "g", "arguments": '{"r":'}}
    body = sse(
        calls(one),
        calls(two),
        calls({"index": 0, "id": "a", "function": {"arguments": "1}"}}),
        calls({"index": 0, "id": "b", "function": {"arguments": "2}"}}),
        ends("tool_calls"),
        "[DONE]",
    )
    reply, _, error = await play(body)
    assert error is None
    assert [(c.id, c.name, c.input) for c in reply.build().tool_calls] == [
        ("a", "f", {"q": 1}),
        ("b", "g", {"r": 2}),
    ]


ENDLESS = {
    "openai-chat": sse(says("a"), calls({"index": 0, "id": "c", "function": {"name": "f"}})),
    "anthropic-messages": sse(
        {"type": "message_start", "message": {"id": "m"}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "a"},
        },
        {"type": "content_block_stop", "index": 0},
    ),
    "gemini": sse({"candidates": [{"content": {"parts": [{"text": "a"}]}}]}),
    "ollama": b'{"message":{"content":"a"},"done":false}\n',
    "openai-responses": sse(
        {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "a"}
    ),
}
BROKEN = {
    "openai-chat": sse({"error": {"code": "server_error", "message": "boom"}}),
    "anthropic-messages": sse(
        {"type": "error", "error": {"type": "overloaded_error", "message": "boom"}}
    ),
    "gemini": sse({"error": {"code": 503, "status": "UNAVAILABLE", "message": "boom"}}),
    "ollama": b'{"error":"boom"}\n',
    "openai-responses": sse(
        {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "boom"}}}
    ),
}  # fmt: skip


@pytest.mark.parametrize("api", list(ENDLESS))
@pytest.mark.parametrize("tail", ["nothing", "half a document", "an error", "garbage"])
async def test_L9_S10_S11_no_format_invents_an_end_after_a_failure(api, tail):
    """The text before stays text; the end mark is absent; the failure can be tried again."""
    more = {
        "nothing": b"",
        "half a document": BROKEN[api][: len(BROKEN[api]) // 2],
        "an error": BROKEN[api],
        "garbage": b'data: {"\xff\n\n' if api != "ollama" else b'{"\xff\n',
    }[tail]
    for chunk in (None, 1, 7):
        reply, events, error = await play(ENDLESS[api] + more, api, chunk=chunk)
        assert reply.text() == "a"
        assert not reply.ended
        assert not any(isinstance(one, e.MessageStop) for one in events)
        assert error is not None
        assert error.is_retryable
        if tail == "an error":
            assert "boom" in str(error)
