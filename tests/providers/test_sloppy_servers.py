"""What gateways and compatible servers send beside the formats: nothing lost, nothing invented.

Each row: format, name (with the case that it varies), body, what ``decode_body`` finds. Fed whole,
byte by byte and in pieces of seven.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from notebook_agent.errors import ErrorKind
from notebook_agent.providers.decode import decode_body
from tests.providers.bodies import (
    BEGIN,
    CALLED,
    CREATED,
    DONE,
    OK,
    STOPPED,
    block,
    call,
    delta,
    ended,
    events,
    lines,
    made,
    part,
    say,
    says,
    text_block,
    use_block,
)
from tests.providers.test_formats import EMPTY, decoder_of
from tests.providers.test_requests import CLIENTS

CHAT, ANTHROPIC, GEMINI = "openai-chat", "anthropic-messages", "gemini"
RESPONSES, OLLAMA = "openai-responses", "ollama"
END = delta("stop")
BOOM = {"type": "invalid_request_error", "message": "no"}
USES = {"stop_reason": "tool_use", "stop": "tool_call", "complete": True}
COMPLETED = {"stop_reason": "completed", "complete": True}
STOP = {"stop_reason": "STOP", "complete": True}
DONE_LINE = says(done=True, done_reason="stop")


def asked(**item: Any) -> dict[str, Any]:
    return {"type": "function_call", "id": "fc1", "call_id": "c1", "name": "f", **item}


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", **fields}


def final(**response: Any) -> dict[str, Any]:
    return event("completed", response={"status": "completed", "output": [], **response})


def tool(**fields: Any) -> dict[str, Any]:
    return block("start", content_block={"type": "tool_use", "name": "f", **fields})


def pieces(raw: Any, index: int = 0) -> dict[str, Any]:
    return block("delta", index, delta={"type": "input_json_delta", "partial_json": raw})


CALLS = [
    (CHAT, "S06 no ids, no index, no arguments", events(delta(tool_calls=[call(None, None, "now"), call(None, None, "today")]), delta("tool_calls"), DONE), {**CALLED, "tool_calls": [made(None, "now", ""), made(None, "today", "")]}),
    (CHAT, "S06 the same name twice in one chunk", events(delta(tool_calls=[call(0, None, "now"), call(0, None, "now")]), delta("tool_calls"), DONE), {**CALLED, "tool_calls": [made(None, "now", ""), made(None, "now", "")]}),
    (CHAT, "S06 index 0 again, another name, no arguments", events(delta(tool_calls=[call(0, None, "now")]), delta(tool_calls=[call(0, None, "today")]), delta("tool_calls"), DONE), {**CALLED, "tool_calls": [made(None, "now", ""), made(None, "today", "")]}),
    (CHAT, "S05 the id comes last", events(delta(tool_calls=[call(0, None, "f", arguments='{"x"')]), delta(tool_calls=[call(0, "late", arguments=":1}")]), delta("tool_calls"), DONE), {**CALLED, "tool_calls": [made(None, "f", '{"x":1}')]}),
    (CHAT, "S05 another id with each piece", events(delta(tool_calls=[call(0, "a", "f", arguments='{"x"')]), delta(tool_calls=[call(0, "b", arguments=":1}")]), delta("tool_calls"), DONE), {**CALLED, "tool_calls": [made("a", "f", '{"x":1}')]}),
    (CHAT, "S06 first without an id, then with one", events(delta(tool_calls=[call(0, None, "f", arguments='{"x":1}')]), delta(tool_calls=[call(0, "b", "f", arguments="{}")]), delta("tool_calls"), DONE), {**CALLED, "tool_calls": [made(None, "f", '{"x":1}'), made("b", "f", "{}")]}),
    (CHAT, "S06 the whole call once more", events(delta(tool_calls=[call(0, "a", "f", arguments='{"x":1}')]), delta(tool_calls=[call(0, "a", "f", arguments='{"x":1}')]), delta("tool_calls"), DONE), {**CALLED, "tool_calls": [made("a", "f", '{"x":1}')]}),
    (CHAT, "a number as id, null among the calls", events(delta(tool_calls=[None, call(0, 7, "f", arguments="{}")]), delta("tool_calls"), DONE), {**CALLED, "tool_calls": [made("7", "f", "{}")]}),
    (ANTHROPIC, "S06 calls without ids", events(BEGIN, tool(), pieces('{"x":1}'), block("stop"), block("start", 1, content_block={"type": "tool_use", "name": "g"}), block("stop", 1), ended("tool_use"), STOPPED), {**USES, "tool_calls": [made(None, "f", '{"x":1}'), made(None, "g", "")]}),
    (ANTHROPIC, "S06 blocks that nobody ends, one index", events(BEGIN, tool(id="a"), pieces('{"x":1}'), tool(id="b"), pieces('{"x":2}'), ended("tool_use"), STOPPED), {**USES, "tool_calls": [made("a", "f", '{"x":1}'), made("b", "f", '{"x":2}')]}),
    (ANTHROPIC, "S08 whole input, no end of the block", events(BEGIN, tool(id="a", input={"x": 1}), ended("tool_use"), STOPPED), {**USES, "tool_calls": [made("a", "f", '{"x":1}')]}),
    (ANTHROPIC, "a piece of arguments as an object", events(BEGIN, tool(id="a"), pieces({"x": 1}), block("stop"), ended("tool_use"), STOPPED), {**USES, "tool_calls": [made("a", "f", '{"x":1}')]}),
    (RESPONSES, "S06 no output index", events(CREATED, event("output_item.added", item=asked()), event("output_item.added", item=asked(id="fc2", call_id="c2")), event("function_call_arguments.delta", item_id="fc1", delta='{"x":1}'), event("function_call_arguments.delta", item_id="fc2", delta='{"x":2}'), final()), {**COMPLETED, "stop": "tool_call", "tool_calls": [made("c1", "f", '{"x":1}'), made("c2", "f", '{"x":2}')]}),
    (RESPONSES, "S08 arguments only at their end", events(CREATED, event("output_item.added", output_index=0, item=asked()), event("function_call_arguments.done", output_index=0, arguments='{"x":1}'), final()), {**COMPLETED, "stop": "tool_call", "tool_calls": [made("c1", "f", '{"x":1}')]}),
    (RESPONSES, "S08 arguments as an object", events(CREATED, event("output_item.done", output_index=0, item=asked(arguments={"x": 1})), final()), {**COMPLETED, "stop": "tool_call", "tool_calls": [made("c1", "f", '{"x":1}')]}),
    (RESPONSES, "S08 arguments with the opening", events(CREATED, event("output_item.added", output_index=0, item=asked(arguments='{"x":1}')), final()), {**COMPLETED, "stop": "tool_call", "tool_calls": [made("c1", "f", '{"x":1}')]}),
    (RESPONSES, "S06 no ids", events(CREATED, *(event("output_item.done", output_index=at, item={"type": "function_call", "name": name, "arguments": "{}"}) for at, name in enumerate("fg")), final()), {**COMPLETED, "stop": "tool_call", "tool_calls": [made(None, "f", "{}"), made(None, "g", "{}")]}),
    (GEMINI, "S08 arguments as text", events(part({"functionCall": {"name": "f", "args": '{"x":1}'}}, finish="STOP")), {**STOP, "stop": "tool_call", "tool_calls": [made(None, "f", '{"x":1}')]}),
    (GEMINI, "L41 arguments that are no object", events(part({"functionCall": {"name": "f", "args": [1]}}, finish="STOP")), {**STOP, "stop": "tool_call", "tool_calls": [made(None, "f", "[1]")]}),
    (OLLAMA, "L41 arguments that are no object", lines(says(tool_calls=[None, {"function": {"name": "f", "arguments": [1]}}]), DONE_LINE), {**OK, "stop": "tool_call", "tool_calls": [made(None, "f", "[1]")]}),
]  # fmt: skip

TEXTS = [
    (CHAT, "an empty delta as a list", events(delta(content="a"), {"id": 5, "choices": [{"delta": [], "finish_reason": "stop"}]}, DONE), {**OK, "text": "a"}),
    (CHAT, "content as one part", events(delta(content={"type": "text", "text": "a"}), END, DONE), {**OK, "text": "a"}),
    (CHAT, "a message at the end repeats the deltas", events(delta(content="a"), {"id": "c1", "choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]}, DONE), {**OK, "text": "a"}),
    (CHAT, "reasoning of another type", events(delta(reasoning_content=["hm"]), delta(content="a"), END, DONE), {**OK, "text": "a"}),
    (CHAT, "a whole reply on several lines", json.dumps({"id": "1", "choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]}, indent=2).encode(), {**OK, "text": "a"}),
    (CHAT, "a document a line, no data:", lines(delta(content="a"), delta("stop", content="b")), {**OK, "text": "ab"}),
    (ANTHROPIC, "reasoning in a block of text", events(BEGIN, block("start", content_block={"type": "text"}), block("delta", delta={"type": "thinking_delta", "thinking": "hm"}), block("delta", delta={"type": "text_delta", "text": "a"}), block("stop"), ended("end_turn"), STOPPED), {"complete": True, "stop": "end_turn", "stop_reason": "end_turn", "thinking": "hm", "text": "a"}),
    (RESPONSES, "text only at its end", events(CREATED, event("output_text.done", output_index=0, text="a"), final()), {**COMPLETED, "stop": "end_turn", "text": "a"}),
    (RESPONSES, "text only in the item, and a call", events(CREATED, event("output_item.done", output_index=0, item={"type": "message", "content": [{"type": "output_text", "text": "a"}]}), event("output_item.done", output_index=1, item=asked(arguments="{}")), final()), {**COMPLETED, "stop": "tool_call", "text": "a", "tool_calls": [made("c1", "f", "{}")]}),
    (RESPONSES, "completed, but its status says incomplete", events(CREATED, say("a"), final(status="incomplete", incomplete_details={"reason": "max_output_tokens"})), {"complete": True, "stop": "max_tokens", "stop_reason": "max_output_tokens", "text": "a"}),
    (GEMINI, "null among parts and candidates", events({"candidates": [None]}, {"candidates": [{"content": {"parts": [None, {"text": "a"}]}}]}, {"candidates": [{"content": [], "finishReason": "STOP"}]}), {**STOP, "stop": "end_turn", "text": "a"}),
    (OLLAMA, "a byte order mark", b"\xef\xbb\xbf" + lines(says("a"), DONE_LINE), {**OK, "text": "a"}),
    (OLLAMA, "CR ends a line", lines(says("a"), DONE_LINE).replace(b"\n", b"\r"), {**OK, "text": "a"}),
]  # fmt: skip

NAN = b'data: {"choices":[],"usage":{"prompt_tokens":NaN,"completion_tokens":1e999,"total_tokens":3,"prompt_tokens_details":[1]}}\n\n'
USAGE = [
    (CHAT, "figures that are no numbers", NAN + events(END, DONE), {**OK, "usage": {"total_tokens": 3}}),
    (CHAT, "usage as a list", events({"choices": [], "usage": [1]}, END, DONE), OK),
    (CHAT, "usage in the choice", events({"id": "c1", "choices": [{"delta": {"content": "a"}, "finish_reason": "stop", "usage": {"prompt_tokens": 3}}]}, DONE), {**OK, "text": "a", "usage": {"input_tokens": 3}}),
    (ANTHROPIC, "usage at the very end", events(BEGIN, *text_block(0, "a"), ended("end_turn"), {**STOPPED, "usage": {"output_tokens": 7}}), {"complete": True, "stop": "end_turn", "stop_reason": "end_turn", "text": "a", "usage": {"input_tokens": 25, "output_tokens": 7}}),
    (RESPONSES, "details as a list", events(CREATED, final(usage={"input_tokens": 3, "input_tokens_details": [1]})), {**COMPLETED, "stop": "end_turn", "usage": {"input_tokens": 3}}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("api", "name", "body", "want"),
    [*CALLS, *TEXTS, *USAGE],
    ids=[f"{row[0]}: {row[1]}" for row in (*CALLS, *TEXTS, *USAGE)],
)
@pytest.mark.parametrize("chunk", [None, 1, 7])
def test_sloppy_body(api, name, body, want, chunk):
    got = decode_body(body, api, chunk)
    if "usage" not in want:
        got["usage"] = None
    assert got == {**EMPTY, **want}


def text_of(api: str) -> bytes:
    """A stream with some text and no end, for each format."""
    return {
        CHAT: events(delta(content="a")),
        ANTHROPIC: events(BEGIN, *text_block(0, "a")),
        RESPONSES: events(CREATED, say("a")),
        GEMINI: events(part({"text": "a"})),
        OLLAMA: lines(says("a")),
    }[api]


def end_of(api: str) -> bytes:
    """What would make that stream a finished reply."""
    return {
        CHAT: events(END, DONE),
        ANTHROPIC: events(ended("end_turn"), STOPPED),
        RESPONSES: events(final()),
        GEMINI: events(part(finish="STOP")),
        OLLAMA: lines(DONE_LINE),
    }[api]


# document -> whether trying again may help
ERRORS = [
    ({"error": 500}, True),
    ({"error": 401}, False),
    ({"error": True, "message": "boom"}, True),
    ({"error": {"message": None}}, True),
    ({"error": [{"code": 400, "message": "bad"}]}, False),
    ({"type": "error", "message": "boom"}, True),
    ({"type": "error"}, True),
    ({"type": "error", "error": None}, True),
    ({"detail": "Internal error"}, True),
    ({"code": 503, "message": "busy"}, True),
    ({"code": 400, "message": "bad"}, False),
    ({"message": "no", "type": "invalid_request_error"}, False),
    ([{"error": {"code": 400, "message": "bad", "status": "INVALID_ARGUMENT"}}], False),
]


@pytest.mark.parametrize("api", [CHAT, ANTHROPIC, RESPONSES, GEMINI, OLLAMA])
@pytest.mark.parametrize(("document", "again"), ERRORS, ids=[str(d) for d, _ in ERRORS])
def test_S10_an_error_in_any_form_is_never_a_finished_reply(api, document, again):
    sent = lines(document) if api == OLLAMA else events(document)
    decoder = decoder_of(api)
    decoder.feed(text_of(api) + sent + end_of(api))
    decoder.finish()
    assert not decoder.ended
    assert decoder.failure is not None
    assert decoder.failure.is_retryable is again, decoder.failure


@pytest.mark.parametrize("api", [CHAT, ANTHROPIC, RESPONSES, GEMINI])
@pytest.mark.parametrize("before", [b"", None], ids=["alone", "after text"])
def test_S10_a_pretty_printed_error_keeps_its_words(api, before):
    body = text_of(api) if before is None else before
    decoder = decoder_of(api)
    decoder.feed(body + json.dumps({"error": BOOM}, indent=2).encode() + b"\n")
    decoder.finish()
    assert decoder.failure is not None
    assert decoder.failure.message == "no"
    assert not decoder.failure.is_retryable


@pytest.mark.parametrize("kind", ["failed", "cancelled"])
def test_S10_a_completed_response_whose_status_says_otherwise(kind):
    body = events(
        CREATED, say("a"), final(status=kind, error={"code": "server_error", "message": "x"})
    )
    got = decode_body(body, RESPONSES)
    assert got["stop"] == ("error" if kind == "cancelled" else None)
    assert got["complete"] is (kind == "cancelled")


@pytest.mark.parametrize("api", [CHAT, ANTHROPIC, RESPONSES, GEMINI, OLLAMA])
def test_L56_values_of_unheard_of_types_are_a_malformed_event(api):
    odd = {
        CHAT: {"choices": [{"delta": {"reasoning_details": [{"text": {}}], "refusal": {}}}]},
        ANTHROPIC: block("delta", delta={"type": "text_delta", "text": {"a": 1}}),
        RESPONSES: event(
            "output_item.done", output_index=3, item={"type": "message", "content": 5}
        ),
        GEMINI: {"candidates": [{"content": {"parts": [{"functionCall": 5}]}}]},
        OLLAMA: {"message": {"tool_calls": 5}},
    }[api]
    decoder = decoder_of(api)
    decoder.feed(text_of(api) + (lines(odd) if api == OLLAMA else events(odd)))
    assert decoder.failure is not None
    assert decoder.failure.is_retryable
    assert "does not decode" in decoder.failure.message


@pytest.mark.parametrize("api", [CHAT, ANTHROPIC, RESPONSES, GEMINI, OLLAMA])
def test_B38_a_whole_reply_of_unheard_of_types_is_no_reply(api):
    odd = {
        CHAT: {"choices": ["x"]},
        ANTHROPIC: {
            "content": [{"type": "text", "text": "a"}],
            "usage": {"input_tokens": [1]},
            "stop_reason": "x",
            "id": {},
        },
        RESPONSES: {"output": [{"type": "message", "content": 5}]},
        GEMINI: {"candidates": [{"content": {"parts": 5}}]},
        OLLAMA: {"message": {"tool_calls": 5}, "done": True},
    }[api]
    client = CLIENTS[api]("m", base_url="http://127.0.0.1:1", provider="t")
    events, failure = client.decode_reply(json.dumps(odd).encode())
    if api == ANTHROPIC:  # read field by field: nothing of it is strange enough
        assert failure is None
        return
    assert events == []
    assert failure is not None
    assert failure.kind is ErrorKind.DECODE
    assert not failure.is_retryable
    assert not decode_body(json.dumps(odd).encode(), api)["complete"]


def test_S08_an_empty_call_after_a_block_with_the_same_index():
    body = events(BEGIN, *text_block(0, "a"), *use_block(0, "c", "f"), ended("tool_use"), STOPPED)
    got = decode_body(body, ANTHROPIC)
    assert got["text"] == "a"
    assert [c["arguments"] for c in got["tool_calls"]] == [{}]
