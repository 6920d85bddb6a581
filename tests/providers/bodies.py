"""Hand-written bodies, one per shape that services send, with what they mean.

``BODIES[api]`` holds ``(name, body, expected)``; expected has the fields of ``decode_body`` that
are not empty.
"""

from __future__ import annotations

import json
from typing import Any

DONE = "[DONE]"
SEPARATORS = "one\u2028two\u0085three\x0bfour\x1efive"
ALIVE = b":\n\n" * 4 + b": keepalive\n\nevent: ping\ndata: {}\n\n"


def events(*documents: Any, end: str = "\n\n", named: bool = False) -> bytes:
    """An event stream of documents; strings are sent as they are."""
    out = []
    for document in documents:
        data = document if isinstance(document, str) else json.dumps(document, ensure_ascii=False)
        name = f"event: {document['type']}\n" if named and isinstance(document, dict) else ""
        out.append(f"{name}data: {data}{end}")
    return "".join(out).encode()


def lines(*documents: Any) -> bytes:
    """Newline-delimited JSON."""
    return "".join(json.dumps(d, ensure_ascii=False) + "\n" for d in documents).encode()


def delta(finish: str | None = None, usage: Any = None, **fields: Any) -> dict[str, Any]:
    """One chat completion chunk."""
    choice = {"index": 0, "delta": fields, "finish_reason": finish}
    return {"id": "c1", "model": "m", "choices": [choice], "usage": usage}


def call(
    index: int | None = 0, id: str | None = None, name: str | None = None, **rest: Any
) -> dict:
    """One entry of ``tool_calls``; ``arguments`` in ``rest``."""
    function = {k: v for k, v in {"name": name, **rest}.items() if v is not None or k in rest}
    out: dict[str, Any] = {"function": function}
    if index is not None:
        out["index"] = index
    if id is not None:
        out["id"] = id
    return out


def made(id: str | None, name: str, raw: str | None, arguments: Any = ...) -> dict[str, Any]:
    """An expected tool call."""
    if arguments is ...:
        arguments = json.loads(raw) if raw else {}
    return {"id": id, "name": name, "arguments_raw": raw, "arguments": arguments}


OK = {"complete": True, "stop_reason": "stop", "stop": "end_turn"}
CALLED = {"complete": True, "stop_reason": "tool_calls", "stop": "tool_call"}
USAGE = {"prompt_tokens": 31, "completion_tokens": 4, "total_tokens": 35}
USED = {"input_tokens": 31, "output_tokens": 4, "total_tokens": 35}

CHAT = [
    ("plain", events(delta(content="Hel"), delta(content="lo"), delta("stop"), DONE), {**OK, "text": "Hello"}),
    ("S01 characters", events(delta(content="Žagarė 🦉"), delta("stop"), DONE), {**OK, "text": "Žagarė 🦉"}),
    ("S01 really invalid bytes", b'data: {"choices":[{"delta":{"content":"a\xc3"}}]}\n\n' + events(delta(content="b"), delta("stop"), DONE), {**OK, "text": "a\ufffdb"}),
    ("S02 separators", events(delta(content="one\u2028two\u0085three"), delta("stop"), DONE), {**OK, "text": "one\u2028two\u0085three"}),
    ("S02 raw controls", b'data: {"choices":[{"delta":{"content":"a\x0bb\x1ec"}}]}\n\n' + events(delta("stop"), DONE), {**OK, "text": "a\x0bb\x1ec"}),
    ("S03 keep-alives", b":\n\n" * 4 + b": keepalive\n\nevent: ping\ndata: {}\n\n" + events(delta(content="x"), delta("stop"), DONE), {**OK, "text": "x"}),
    ("S04 empty choices", events({"choices": []}, delta(content="a"), delta(content="b"), delta("stop"), {"choices": [], "usage": USAGE}, DONE), {**OK, "text": "ab", "usage": USED}),
    ("S05 one index twice in a chunk", events(delta(tool_calls=[call(0, "c1", "find"), call(0, arguments='{"q":')]), delta(tool_calls=[call(0, arguments='"ice"}')]), delta("tool_calls"), DONE), {**CALLED, "tool_calls": [made("c1", "find", '{"q":"ice"}')]}),
    ("S06 all index 0", events(delta(tool_calls=[call(0, "a", "find", arguments='{"q":"Riga"}')]), delta(tool_calls=[call(0, "b", "find", arguments='{"q":"Oslo"}')]), delta("tool_calls"), DONE), {**CALLED, "tool_calls": [made("a", "find", '{"q":"Riga"}'), made("b", "find", '{"q":"Oslo"}')]}),
    ("S06 all index 0, in pieces", events(delta(tool_calls=[call(0, "a", "f", arguments='{"q"')]), delta(tool_calls=[call(0, arguments=":1}")]), delta(tool_calls=[call(0, "b", "f", arguments="")]), delta(tool_calls=[call(0, "", arguments='{"q":2}')]), delta("tool_calls"), DONE), {**CALLED, "tool_calls": [made("a", "f", '{"q":1}'), made("b", "f", '{"q":2}')]}),
    ("S06 no ids, all index 0", events(delta(tool_calls=[call(0, None, "f", arguments='{"q":1}')]), delta(tool_calls=[call(0, None, "f", arguments='{"q":2}')]), delta("tool_calls"), DONE), {**CALLED, "tool_calls": [made(None, "f", '{"q":1}'), made(None, "f", '{"q":2}')]}),
    ("no index", events(delta(tool_calls=[call(None, "a", "f", arguments='{"q":1}'), call(None, "b", "g", arguments="{}")]), delta("tool_calls"), DONE), {**CALLED, "tool_calls": [made("a", "f", '{"q":1}'), made("b", "g", "{}")]}),
    ("no index, in pieces", events(delta(tool_calls=[call(None, "a", "f")]), delta(tool_calls=[call(None, arguments='{"q"')]), delta(tool_calls=[call(None, arguments=":1}")]), delta("tool_calls"), DONE), {**CALLED, "tool_calls": [made("a", "f", '{"q":1}')]}),
    ("interleaved", events(delta(tool_calls=[call(0, "a", "f")]), delta(tool_calls=[call(1, "b", "g")]), delta(tool_calls=[call(0, arguments='{"x"'), call(1, arguments='{"y"')]), delta(tool_calls=[call(1, arguments=":2}"), call(0, arguments=":1}")]), delta("tool_calls"), DONE), {**CALLED, "tool_calls": [made("a", "f", '{"x":1}'), made("b", "g", '{"y":2}')]}),
    ("the name comes late", events(delta(tool_calls=[call(0, "a", arguments='{"x"')]), delta(tool_calls=[call(0, None, "f", arguments=":1}")]), delta("tool_calls"), DONE), {**CALLED, "tool_calls": [made("a", "f", '{"x":1}')]}),
    ("the name comes with every piece", events(delta(tool_calls=[call(0, "a", "f", arguments='{"x"')]), delta(tool_calls=[call(0, "a", "f", arguments=":1}")]), delta("tool_calls"), DONE), {**CALLED, "tool_calls": [made("a", "f", '{"x":1}')]}),
    ("S07 calls that end with stop", events(delta(tool_calls=[call(0, "a", "f", arguments="{}")]), delta("stop"), DONE), {**OK, "tool_calls": [made("a", "f", "{}")]}),
    ("S08 arguments never sent", events(delta(tool_calls=[call(0, "a", "now")]), delta("tool_calls"), DONE), {**CALLED, "tool_calls": [made("a", "now", "")]}),
    ("S08 arguments null", events(delta(tool_calls=[call(0, "a", "now", arguments=None)]), delta("tool_calls"), DONE), {**CALLED, "tool_calls": [made("a", "now", "")]}),
    ("S08 arguments empty", events(delta(tool_calls=[call(0, "a", "now", arguments="")]), delta("tool_calls"), DONE), {**CALLED, "tool_calls": [made("a", "now", "")]}),
    ("arguments as an object", events(delta(tool_calls=[call(0, "a", "f", arguments={"x": 1})]), delta("tool_calls"), DONE), {**CALLED, "tool_calls": [made("a", "f", '{"x":1}')]}),
    ("the old function_call", events(delta(function_call={"name": "f", "arguments": '{"x"'}), delta(function_call={"arguments": ":1}"}), delta("function_call"), DONE), {"complete": True, "stop_reason": "function_call", "stop": "tool_call", "tool_calls": [made(None, "f", '{"x":1}')]}),
    ("S09 a truncated call", events(delta(tool_calls=[call(0, "a", "w", arguments='{"path":"notes.md","text":"lorem ip')]), delta("tool_calls"), DONE), {**CALLED, "tool_calls": [made("a", "w", '{"path":"notes.md","text":"lorem ip', None)]}),
    ("S09 with length", events(delta(tool_calls=[call(0, "a", "w", arguments='{"p')]), delta("length"), DONE), {"complete": True, "stop_reason": "length", "stop": "max_tokens", "tool_calls": [made("a", "w", '{"p', None)]}),
    ("S10 an error event", events(delta(content="a"), delta(content="b")) + b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"busy"}}\n\n', {"text": "ab", "error": {"type": "overloaded_error", "message": "busy"}}),
    ("S10 a plain error", events(delta(content="a"), {"error": {"code": "server_error", "message": "boom"}}), {"text": "a", "error": {"code": "server_error", "message": "boom"}}),
    ("S10 an error that is no JSON", events(delta(content="a")) + b"event: error\ndata: it broke\n\n", {"text": "a", "error": "it broke"}),
    ("S10 an error, then [DONE]", events(delta(content="a"), {"error": {"message": "boom"}}, DONE), {"text": "a", "error": {"message": "boom"}}),
    ("S11 the body ends", events(delta(content="a"), delta(tool_calls=[call(0, "a", "f", arguments='{"x')])), {"text": "a", "tool_calls": [made("a", "f", '{"x', None)]}),
    ("S11 a finish reason and no marker", events(delta(content="a"), delta("stop")), {**OK, "text": "a"}),
    ("S11 a marker and no finish reason", events(delta(content="a"), DONE), {"text": "a", "complete": True}),
    ("S12 two names of reasoning", events(delta(reasoning_content="hm "), delta(reasoning="ok "), delta(reasoning_content="so ", reasoning="so "), delta(content="42"), delta("stop"), DONE), {**OK, "thinking": "hm ok so ", "text": "42"}),
    ("reasoning details", events(delta(reasoning_details=[{"type": "reasoning.text", "text": "hm"}]), delta(content="x"), delta("stop"), DONE), {**OK, "thinking": "hm", "text": "x"}),
    ("content as a list", events(delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]), delta(content=[{"type": "text", "text": "a"}, "b"]), delta("stop"), DONE), {**OK, "thinking": "hm", "text": "ab"}),
    ("a refusal", events(delta(refusal="I can"), delta(refusal="not"), delta("stop"), DONE), {**OK, "refusal": "I cannot"}),
    ("a filter", events(delta(content="a"), delta("content_filter"), DONE), {"complete": True, "text": "a", "stop_reason": "content_filter", "stop": "content_filter"}),
    ("an unknown word", events(delta(content="a"), delta("because"), DONE), {"complete": True, "text": "a", "stop_reason": "because", "stop": "unknown"}),
    ("Mistral's word", events(delta(content="a"), delta("model_length"), DONE), {"complete": True, "text": "a", "stop_reason": "model_length", "stop": "max_tokens"}),
    ("usage on every chunk", events(delta(content="a", usage={"prompt_tokens": 31, "completion_tokens": 1, "total_tokens": 32}), delta("stop", USAGE), DONE), {**OK, "text": "a", "usage": USED}),
    ("usage under x_groq", events(delta(content="a"), {**delta("stop"), "x_groq": {"usage": USAGE}}, DONE), {**OK, "text": "a", "usage": USED}),
    ("T06 cached tokens", events(delta(content="a"), delta("stop"), {"choices": [], "usage": {"prompt_tokens": 184704, "prompt_tokens_details": {"cached_tokens": 183936}, "completion_tokens": 49}}, DONE), {**OK, "text": "a", "usage": {"input_tokens": 184704, "output_tokens": 49, "cache_read_tokens": 183936}}),
    ("another choice", events(delta(content="a"), {"choices": [{"index": 1, "delta": {"content": "NO"}}]}, {"choices": [{"index": 1, "delta": {}, "finish_reason": "length"}]}, delta("stop"), DONE), {**OK, "text": "a"}),
    ("Azure's preamble", events({"choices": [], "id": "", "prompt_filter_results": []}, {"choices": [{"index": 0, "finish_reason": None}]}, delta(content="a"), delta("stop"), DONE), {**OK, "text": "a"}),
    ("llama.cpp's first chunk", events(delta(role="assistant", content=None), delta(content="a"), delta("stop"), DONE), {**OK, "text": "a"}),
    ("CRLF", events(delta(content="a"), delta("stop"), DONE, end="\r\n\r\n"), {**OK, "text": "a"}),
    ("no space, no last blank line", b'data:{"choices":[{"delta":{"content":"a"}}]}\n\ndata:{"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata:[DONE]', {**OK, "text": "a"}),
    ("surrogates and NUL", b'data: {"choices":[{"delta":{"content":"a\\ud83d b\\u0000"}}]}\n\n' + events(delta("stop"), DONE), {**OK, "text": "a\ufffd b\ufffd"}),
    ("an escaped pair", b'data: {"choices":[{"delta":{"content":"\\ud83e\\udd89"}}]}\n\n' + events(delta("stop"), DONE), {**OK, "text": "🦉"}),
    ("a pair in two fragments", b'data: {"choices":[{"delta":{"content":"a\\ud83e"}}]}\n\ndata: {"choices":[{"delta":{"content":"\\udd89b"}}]}\n\n' + events(delta(content="c"), delta("stop"), DONE), {**OK, "text": "a🦉bc"}),
    ("halves that stay alone", b'data: {"choices":[{"delta":{"content":"\\ud83e"}}]}\n\ndata: {"choices":[{"delta":{"content":"x\\udd89"}}]}\n\ndata: {"choices":[{"delta":{"content":"y\\ud83e"},"finish_reason":"stop"}]}\n\n' + events(DONE), {**OK, "text": "\ufffdx\ufffdy\ufffd"}),
    ("a pair in two fragments of thinking and refusal", b'data: {"choices":[{"delta":{"reasoning":"\\ud83e","refusal":"\\ud83e"}}]}\n\ndata: {"choices":[{"delta":{"reasoning":"\\udd89","refusal":"\\udd89"}}]}\n\n' + events(delta("stop"), DONE), {**OK, "thinking": "🦉", "refusal": "🦉"}),
    ("what comes after the marker", events(delta(content="a"), delta("stop"), DONE, delta(content="NO")), {**OK, "text": "a"}),
    ("empty", b"", {}),
]  # fmt: skip


def block(kind: str, index: int = 0, **fields: Any) -> dict[str, Any]:
    return {"type": f"content_block_{kind}", "index": index, **fields}


def text_block(index: int, *texts: str) -> list[dict[str, Any]]:
    return [
        block("start", index, content_block={"type": "text", "text": ""}),
        *(block("delta", index, delta={"type": "text_delta", "text": t}) for t in texts),
        block("stop", index),
    ]


def use_block(
    index: int, id: str, name: str, *pieces: str, stop: bool = True
) -> list[dict[str, Any]]:
    out = [
        block(
            "start", index, content_block={"type": "tool_use", "id": id, "name": name, "input": {}}
        ),
        *(
            block("delta", index, delta={"type": "input_json_delta", "partial_json": p})
            for p in pieces
        ),
    ]
    return [*out, block("stop", index)] if stop else out


BEGIN = {
    "type": "message_start",
    "message": {
        "id": "msg_1",
        "role": "assistant",
        "model": "claude",
        "content": [],
        "usage": {"input_tokens": 25, "output_tokens": 1},
    },
}
STOPPED = {"type": "message_stop"}


def ended(reason: str, **usage: Any) -> dict[str, Any]:
    return {
        "type": "message_delta",
        "delta": {"stop_reason": reason},
        "usage": {"output_tokens": 9, **usage},
    }


A_USED = {"input_tokens": 25, "output_tokens": 9}
A_OK = {"complete": True, "stop_reason": "end_turn", "stop": "end_turn", "usage": A_USED}
A_CALLED = {**A_OK, "stop_reason": "tool_use", "stop": "tool_call"}
THOUGHT = [
    block("start", 0, content_block={"type": "thinking", "thinking": "", "signature": ""}),
    block("delta", 0, delta={"type": "thinking_delta", "thinking": "hm "}),
    block("delta", 0, delta={"type": "thinking_delta", "thinking": "ok"}),
    block("delta", 0, delta={"type": "signature_delta", "signature": "c2lnbmVk"}),
    block("stop", 0),
]

MESSAGES = [
    ("plain", events(BEGIN, *text_block(0, "Hel", "lo"), ended("end_turn"), STOPPED, named=True), {**A_OK, "text": "Hello"}),
    ("unnamed events", events(BEGIN, *text_block(0, "Hello"), ended("end_turn"), STOPPED), {**A_OK, "text": "Hello"}),
    ("pings", events(BEGIN, {"type": "ping"}, *text_block(0, "a"), {"type": "ping"}, ended("end_turn"), STOPPED, named=True), {**A_OK, "text": "a"}),
    ("S13 running totals", events({"type": "message_start", "message": {"usage": {"input_tokens": 25, "cache_read_input_tokens": 900, "output_tokens": 1}}}, *text_block(0, "a"), {"type": "message_delta", "delta": {}, "usage": {"input_tokens": 25, "cache_read_input_tokens": 900, "output_tokens": 9}}, {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 15}}, STOPPED, named=True), {**A_OK, "text": "a", "usage": {"input_tokens": 25, "output_tokens": 15, "cache_read_tokens": 900}}),
    ("thinking and a call", events(BEGIN, *THOUGHT, *use_block(1, "t1", "f", '{"x"', ":1}"), ended("tool_use"), STOPPED, named=True), {**A_CALLED, "thinking": "hm ok", "tool_calls": [made("t1", "f", '{"x":1}')]}),
    ("redacted thinking", events(BEGIN, block("start", 0, content_block={"type": "redacted_thinking", "data": "b64"}), block("stop", 0), *text_block(1, "a"), ended("end_turn"), STOPPED, named=True), {**A_OK, "text": "a"}),
    ("parallel calls, one without arguments", events(BEGIN, *use_block(0, "t1", "f", '{"x":1}'), *use_block(1, "t2", "now", ""), ended("tool_use"), STOPPED, named=True), {**A_CALLED, "tool_calls": [made("t1", "f", '{"x":1}'), made("t2", "now", "")]}),
    ("arguments in the opening block", events(BEGIN, block("start", 0, content_block={"type": "tool_use", "id": "t", "name": "f", "input": {"x": 1}}), block("stop", 0), ended("tool_use"), STOPPED, named=True), {**A_CALLED, "tool_calls": [made("t", "f", '{"x":1}')]}),
    ("S09 a truncated call", events(BEGIN, *use_block(0, "t", "f", '{"x', stop=False), ended("max_tokens"), STOPPED, named=True), {**A_OK, "stop_reason": "max_tokens", "stop": "max_tokens", "tool_calls": [made("t", "f", '{"x', None)]}),
    ("S11 the body ends in a call", events(BEGIN, *use_block(0, "t", "f", '{"x', stop=False), named=True), {"usage": {"input_tokens": 25, "output_tokens": 1}, "tool_calls": [made("t", "f", '{"x', None)]}),
    ("S11 no message_stop", events(BEGIN, *text_block(0, "a"), ended("end_turn"), named=True), {**A_OK, "text": "a"}),
    ("S10 an error event", events(BEGIN, *text_block(0, "a")[:2], {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}, named=True), {"text": "a", "usage": {"input_tokens": 25, "output_tokens": 1}, "error": {"type": "overloaded_error", "message": "busy"}}),
    ("a refusal", events(BEGIN, ended("refusal"), STOPPED, named=True), {**A_OK, "stop_reason": "refusal", "stop": "refusal"}),
    ("a pause", events(BEGIN, *text_block(0, "a"), ended("pause_turn"), STOPPED, named=True), {**A_OK, "text": "a", "stop_reason": "pause_turn", "stop": "pause"}),
    ("a stop sequence", events(BEGIN, *text_block(0, "a"), ended("stop_sequence"), STOPPED, named=True), {**A_OK, "text": "a", "stop_reason": "stop_sequence", "stop": "stop_sequence"}),
    ("S01 characters", events(BEGIN, *text_block(0, "Žagarė 🦉"), ended("end_turn"), STOPPED, named=True), {**A_OK, "text": "Žagarė 🦉"}),
    ("a pair in two fragments", events(BEGIN, *text_block(0, "HALF1", "HALF2"), ended("end_turn"), STOPPED, named=True).replace(b"HALF1", b"a\\ud83e").replace(b"HALF2", b"\\udd89"), {**A_OK, "text": "a🦉"}),
    ("unknown events and blocks", events(BEGIN, {"type": "new_thing"}, block("start", 0, content_block={"type": "server_thing"}), block("delta", 0, delta={"type": "thing_delta", "text": "NO"}), block("stop", 0), *text_block(1, "a"), ended("end_turn"), STOPPED, named=True), {**A_OK, "text": "a"}),
    ("S01 really invalid bytes", events(BEGIN, *text_block(0, "aBAD", "b"), ended("end_turn"), STOPPED, named=True).replace(b"BAD", b"\xc3"), {**A_OK, "text": "a\ufffdb"}),
    ("S02 separators", events(BEGIN, *text_block(0, SEPARATORS), ended("end_turn"), STOPPED, named=True).replace(b"\\u000b", b"\x0b").replace(b"\\u001e", b"\x1e"), {**A_OK, "text": SEPARATORS}),
    ("S03 keep-alives", ALIVE + events(BEGIN, {"type": "ping"}, *text_block(0, "x"), named=True) + ALIVE + events(ended("end_turn"), STOPPED, named=True), {**A_OK, "text": "x"}),
    ("S04 no content, usage after the reason", events(BEGIN, ended("end_turn"), {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 11}}, STOPPED, named=True), {**A_OK, "usage": {"input_tokens": 25, "output_tokens": 11}}),
    ("S05 one block in several fragments of one write", events(BEGIN, *use_block(0, "t", "f", "", '{"q":', '"ice"}'), ended("tool_use"), STOPPED, named=True), {**A_CALLED, "tool_calls": [made("t", "f", '{"q":"ice"}')]}),
    ("S06 two blocks that both claim index 0", events(BEGIN, *use_block(0, "a", "f", '{"q":1}'), *use_block(0, "b", "f", '{"q":2}'), ended("tool_use"), STOPPED, named=True), {**A_CALLED, "tool_calls": [made("a", "f", '{"q":1}'), made("b", "f", '{"q":2}')]}),
    ("S07 a call that ends with end_turn", events(BEGIN, *use_block(0, "t", "f", "{}"), ended("end_turn"), STOPPED, named=True), {**A_OK, "tool_calls": [made("t", "f", "{}")]}),
    ("S09 a truncated call that says tool_use", events(BEGIN, *use_block(0, "t", "f", '{"x'), ended("tool_use"), STOPPED, named=True), {**A_CALLED, "tool_calls": [made("t", "f", '{"x', None)]}),
]  # fmt: skip


def part(*parts: dict[str, Any], finish: str | None = None, usage: Any = None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": list(parts), "role": "model"}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    out: dict[str, Any] = {"candidates": [candidate], "responseId": "r1", "modelVersion": "gemini"}
    if usage:
        out["usageMetadata"] = usage
    return out


G_USAGE = {
    "promptTokenCount": 7,
    "candidatesTokenCount": 3,
    "totalTokenCount": 15,
    "thoughtsTokenCount": 5,
}
G_USED = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 15, "reasoning_tokens": 5}
G_OK = {"complete": True, "stop_reason": "STOP", "stop": "end_turn"}
G_CALLED = {**G_OK, "stop": "tool_call"}
G_CALL = {"functionCall": {"name": "f", "args": {"x": 1}}, "thoughtSignature": "c2ln"}

GEMINI = [
    ("plain", events(part({"text": "Hel"}), part({"text": "lo"}, finish="STOP", usage=G_USAGE), end="\r\n\r\n"), {**G_OK, "text": "Hello", "usage": G_USED}),
    ("a JSON array", json.dumps([part({"text": "Hel"}), part({"text": "lo ]}"}, finish="STOP", usage=G_USAGE)], indent=2).encode(), {**G_OK, "text": "Hello ]}", "usage": G_USED}),
    ("thoughts", events(part({"text": "hm", "thought": True}), part({"text": "a"}, finish="STOP")), {**G_OK, "thinking": "hm", "text": "a"}),
    ("a call", events(part(G_CALL, finish="STOP")), {**G_CALLED, "tool_calls": [made(None, "f", None, {"x": 1})]}),
    ("calls with ids, one without args", events(part({"functionCall": {"name": "f", "id": "i1", "args": {}}}, {"functionCall": {"name": "now", "id": "i2"}}), part({"text": ""}, finish="STOP")), {**G_CALLED, "tool_calls": [made("i1", "f", None, {}), made("i2", "now", None, {})]}),
    ("the limit with a call", events(part(G_CALL, finish="MAX_TOKENS")), {**G_OK, "stop_reason": "MAX_TOKENS", "stop": "max_tokens", "tool_calls": [made(None, "f", None, {"x": 1})]}),
    ("S11 the body ends", events(part({"text": "a"})), {"text": "a"}),
    ("S11 the array ends", b'[{"candidates": [{"content": {"parts": [{"text": "a"}]}}]},\n', {"text": "a"}),
    ("S10 an error", events(part({"text": "a"}), {"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}}), {"text": "a", "error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}}),
    ("a filter", events(part({"text": "a"}, finish="SAFETY")), {**G_OK, "text": "a", "stop_reason": "SAFETY", "stop": "content_filter"}),
    ("a blocked prompt", events({"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 7}}), {"complete": True, "stop_reason": "SAFETY", "stop": "content_filter", "usage": {"input_tokens": 7}}),
    ("another candidate", events({"candidates": [{"index": 1, "content": {"parts": [{"text": "NO"}]}, "finishReason": "SAFETY"}]}, part({"text": "a"}, finish="STOP")), {**G_OK, "text": "a"}),
    ("usage that repeats", events(part({"text": "a"}, usage={"promptTokenCount": 7, "totalTokenCount": 7}), part({"text": "b"}, finish="STOP", usage={"candidatesTokenCount": 3, "totalTokenCount": 10})), {**G_OK, "text": "ab", "usage": {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}}),
    ("S01 characters", events(part({"text": "Žagarė 🦉"}, finish="STOP")), {**G_OK, "text": "Žagarė 🦉"}),
    ("S01 really invalid bytes", events(part({"text": "aBAD"}), part({"text": "b"}, finish="STOP")).replace(b"BAD", b"\xc3"), {**G_OK, "text": "a\ufffdb"}),
    ("S02 separators", events(part({"text": SEPARATORS}, finish="STOP")).replace(b"\\u000b", b"\x0b").replace(b"\\u001e", b"\x1e"), {**G_OK, "text": SEPARATORS}),
    ("S03 keep-alives", ALIVE + events(part({"text": "x"})) + ALIVE + events(part(finish="STOP")), {**G_OK, "text": "x"}),
    ("S04 no candidates, late usage", events({"candidates": []}, part({"text": "a"}, finish="STOP"), {"candidates": [], "usageMetadata": G_USAGE}), {**G_OK, "text": "a", "usage": G_USED}),
    ("S06 two calls of one name in one part list", events(part({"functionCall": {"name": "f", "args": {"q": 1}}}, {"functionCall": {"name": "f", "args": {"q": 2}}}, finish="STOP")), {**G_CALLED, "tool_calls": [made(None, "f", None, {"q": 1}), made(None, "f", None, {"q": 2})]}),
    ("S07 a call, then STOP in an object of its own", events(part({"functionCall": {"name": "f", "args": {"x": 1}}}), part(finish="STOP")), {**G_CALLED, "tool_calls": [made(None, "f", None, {"x": 1})]}),
    ("S13 running totals", events(part({"text": "a"}, usage={"promptTokenCount": 25, "cachedContentTokenCount": 20, "candidatesTokenCount": 1}), part({"text": "b"}, usage={"promptTokenCount": 25, "candidatesTokenCount": 9}), part(finish="STOP", usage={"candidatesTokenCount": 15})), {**G_OK, "text": "ab", "usage": {"input_tokens": 25, "output_tokens": 15, "cache_read_tokens": 20}}),
]  # fmt: skip


def says(text: str = "", done: bool = False, **rest: Any) -> dict[str, Any]:
    message = {
        "role": "assistant",
        "content": text,
        **{k: rest.pop(k) for k in ("thinking", "tool_calls") if k in rest},
    }
    return {"model": "llama", "created_at": "t1", "message": message, "done": done, **rest}


O_OK = {"complete": True, "stop_reason": "stop", "stop": "end_turn"}
OLLAMA = [
    ("plain", lines(says("Hel"), says("lo"), says(done=True, done_reason="stop", prompt_eval_count=7, eval_count=3)), {**O_OK, "text": "Hello", "usage": {"input_tokens": 7, "output_tokens": 3}}),
    ("thinking", lines(says(thinking="hm"), says("a"), says(done=True, done_reason="stop")), {**O_OK, "thinking": "hm", "text": "a"}),
    ("calls", lines(says(tool_calls=[{"function": {"name": "f", "arguments": {"x": 1}}}, {"function": {"name": "now", "arguments": {}}}]), says(done=True, done_reason="stop")), {**O_OK, "stop": "tool_call", "tool_calls": [made(None, "f", None, {"x": 1}), made(None, "now", None, {})]}),
    ("the limit", lines(says("a"), says(done=True, done_reason="length")), {**O_OK, "text": "a", "stop_reason": "length", "stop": "max_tokens"}),
    ("no reason", lines(says("a"), says(done=True, eval_count=1)), {"complete": True, "text": "a", "usage": {"output_tokens": 1}}),
    ("generate", lines({"model": "l", "response": "a", "done": False}, {"model": "l", "response": "", "done": True, "done_reason": "stop"}), {**O_OK, "text": "a"}),
    ("S11 the body ends", lines(says("a")), {"text": "a"}),
    ("S11 the body ends in a line", lines(says("a")) + b'{"model":"l","mess', {"text": "a"}),
    ("S10 an error", lines(says("a"), {"error": "model runner has unexpectedly stopped"}), {"text": "a", "error": "model runner has unexpectedly stopped"}),
    ("no last line end", lines(says("a"), says(done=True, done_reason="stop"))[:-1], {**O_OK, "text": "a"}),
    ("S01 characters, CRLF", lines(says("Žagarė 🦉"), says(done=True, done_reason="stop")).replace(b"\n", b"\r\n"), {**O_OK, "text": "Žagarė 🦉"}),
    ("S01 really invalid bytes", lines(says("aBAD"), says("b"), says(done=True, done_reason="stop")).replace(b"BAD", b"\xc3"), {**O_OK, "text": "a\ufffdb"}),
    ("S02 separators", lines(says(SEPARATORS), says(done=True, done_reason="stop")).replace(b"\\u000b", b"\x0b").replace(b"\\u001e", b"\x1e"), {**O_OK, "text": SEPARATORS}),
    ("S03 empty lines between", b"\n\n" + lines(says("x")) + b"\r\n\n" + lines(says(done=True, done_reason="stop")), {**O_OK, "text": "x"}),
    ("S04 empty messages", lines(says(), says("a"), says(), says(done=True, done_reason="stop", prompt_eval_count=31, eval_count=4)), {**O_OK, "text": "a", "usage": {"input_tokens": 31, "output_tokens": 4}}),
    ("S06 two calls that claim index 0", lines(says(tool_calls=[{"function": {"index": 0, "name": "f", "arguments": {"q": 1}}}]), says(tool_calls=[{"function": {"index": 0, "name": "f", "arguments": {"q": 2}}}]), says(done=True, done_reason="stop")), {**O_OK, "stop": "tool_call", "tool_calls": [made(None, "f", None, {"q": 1}), made(None, "f", None, {"q": 2})]}),
    ("S07 calls that end with stop", lines(says(tool_calls=[{"function": {"name": "f", "arguments": {"x": 1}}}]), says(done=True, done_reason="stop")), {**O_OK, "stop": "tool_call", "tool_calls": [made(None, "f", None, {"x": 1})]}),
]  # fmt: skip


def of(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", **fields}


R_USAGE = {
    "input_tokens": 7,
    "input_tokens_details": {"cached_tokens": 2},
    "output_tokens": 3,
    "output_tokens_details": {"reasoning_tokens": 1},
    "total_tokens": 10,
}
R_USED = {
    "input_tokens": 7,
    "output_tokens": 3,
    "total_tokens": 10,
    "cache_read_tokens": 2,
    "reasoning_tokens": 1,
}
CREATED = of(
    "created", response={"id": "resp_1", "model": "gpt", "status": "in_progress", "output": []}
)
R_OK = {"complete": True, "stop_reason": "completed", "stop": "end_turn", "usage": R_USED}
R_CALLED = {**R_OK, "stop": "tool_call"}


def over(status: str = "completed", **fields: Any) -> dict[str, Any]:
    return of(
        status,
        response={"id": "resp_1", "status": status, "output": [], "usage": R_USAGE, **fields},
    )


def say(text: str, index: int = 0) -> dict[str, Any]:
    return of("output_text.delta", output_index=index, content_index=0, delta=text)


def asks(index: int, id: str, name: str, *pieces: str, done: bool = True) -> list[dict[str, Any]]:
    item = {"type": "function_call", "call_id": id, "id": f"fc_{id}", "name": name, "arguments": ""}
    out = [of("output_item.added", output_index=index, item=item)]
    out += [of("function_call_arguments.delta", output_index=index, delta=p) for p in pieces]
    if done:
        out.append(
            of("function_call_arguments.done", output_index=index, arguments="".join(pieces))
        )
        out.append(
            of("output_item.done", output_index=index, item={**item, "arguments": "".join(pieces)})
        )
    return out


REASONED = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "hm"}],
    "encrypted_content": "c2VjcmV0",
}

RESPONSES = [
    ("plain", events(CREATED, say("Hel"), say("lo"), over(), named=True), {**R_OK, "text": "Hello"}),
    ("unnamed, with [DONE]", events(CREATED, say("Hello"), over(), DONE), {**R_OK, "text": "Hello"}),
    ("a call", events(CREATED, *asks(0, "c1", "f", '{"x"', ":1}"), over(), named=True), {**R_CALLED, "tool_calls": [made("c1", "f", '{"x":1}')]}),
    ("parallel calls, one without arguments", events(CREATED, *asks(0, "c1", "f", "{}"), *asks(1, "c2", "now"), over(), named=True), {**R_CALLED, "tool_calls": [made("c1", "f", "{}"), made("c2", "now", "")]}),
    ("arguments only at the end", events(CREATED, asks(0, "c1", "f")[0], of("output_item.done", output_index=0, item={"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"x":1}'}), over(), named=True), {**R_CALLED, "tool_calls": [made("c1", "f", '{"x":1}')]}),
    ("reasoning", events(CREATED, of("reasoning_summary_text.delta", output_index=0, delta="hm"), of("output_item.done", output_index=0, item=REASONED), say("a", 1), over(), named=True), {**R_OK, "thinking": "hm", "text": "a"}),
    ("reasoning text", events(CREATED, of("reasoning_text.delta", output_index=0, delta="hm"), say("a", 1), over(), named=True), {**R_OK, "thinking": "hm", "text": "a"}),
    ("a refusal", events(CREATED, of("refusal.delta", output_index=0, delta="no"), over(), named=True), {**R_OK, "refusal": "no"}),
    ("the limit", events(CREATED, say("a"), over("incomplete", incomplete_details={"reason": "max_output_tokens"}), named=True), {**R_OK, "text": "a", "stop_reason": "max_output_tokens", "stop": "max_tokens"}),
    ("a filter", events(CREATED, say("a"), over("incomplete", incomplete_details={"reason": "content_filter"}), named=True), {**R_OK, "text": "a", "stop_reason": "content_filter", "stop": "content_filter"}),
    ("S10 failed", events(CREATED, say("a"), of("failed", response={"status": "failed", "error": {"code": "server_error", "message": "boom"}}), named=True), {"text": "a", "error": {"code": "server_error", "message": "boom"}}),
    ("S10 an error event", events(CREATED, say("a"), {"type": "error", "code": "rate_limit_exceeded", "message": "slow", "param": None}, named=True), {"text": "a", "error": {"type": "error", "code": "rate_limit_exceeded", "message": "slow", "param": None}}),
    ("S11 the body ends", events(CREATED, say("a"), *asks(1, "c1", "f", '{"x', done=False), named=True), {"text": "a", "tool_calls": [made("c1", "f", '{"x', None)]}),
    ("only the final object", events(CREATED, over(output=[{"type": "message", "content": [{"type": "output_text", "text": "a"}]}]), named=True), {**R_OK, "text": "a"}),
    ("S01 characters", events(CREATED, say("Žagarė 🦉"), over(), named=True), {**R_OK, "text": "Žagarė 🦉"}),
    ("S01 really invalid bytes", events(CREATED, say("aBAD"), say("b"), over(), named=True).replace(b"BAD", b"\xc3"), {**R_OK, "text": "a\ufffdb"}),
    ("S02 separators", events(CREATED, say(SEPARATORS), over(), named=True).replace(b"\\u000b", b"\x0b").replace(b"\\u001e", b"\x1e"), {**R_OK, "text": SEPARATORS}),
    ("S03 keep-alives", ALIVE + events(CREATED, of("in_progress", response={}), say("x"), named=True) + ALIVE + events(over(), named=True), {**R_OK, "text": "x"}),
    ("S04 nothing said", events(CREATED, over(), named=True), {**R_OK}),
    ("S05 one item in several fragments of one write", events(CREATED, *asks(0, "c", "f", "", '{"q":', '"ice"}'), over(), named=True), {**R_CALLED, "tool_calls": [made("c", "f", '{"q":"ice"}')]}),
    ("S06 two items that both claim index 0", events(CREATED, *asks(0, "a", "f", '{"q":1}'), *asks(0, "b", "f", '{"q":2}'), over(), named=True), {**R_CALLED, "tool_calls": [made("a", "f", '{"q":1}'), made("b", "f", '{"q":2}')]}),
    ("S09 a truncated call that is completed", events(CREATED, *asks(0, "c", "f", '{"x'), over(), named=True), {**R_CALLED, "tool_calls": [made("c", "f", '{"x', None)]}),
]  # fmt: skip

BODIES = {
    "openai-chat": CHAT,
    "anthropic-messages": MESSAGES,
    "gemini": GEMINI,
    "ollama": OLLAMA,
    "openai-responses": RESPONSES,
}

# Whole replies of unstreamed requests: (api, document, expected).
WHOLE = [
    ("openai-chat", {"id": "c", "choices": [{"message": {"role": "assistant", "content": "Hello", "reasoning_content": "hm", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}]}, "finish_reason": "tool_calls"}], "usage": USAGE}, {**CALLED, "text": "Hello", "thinking": "hm", "usage": USED, "tool_calls": [made("a", "f", '{"x":1}')]}),
    ("anthropic-messages", {"id": "m", "type": "message", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "Hello"}, {"type": "tool_use", "id": "t", "name": "f", "input": {"x": 1}}], "stop_reason": "tool_use", "usage": {"input_tokens": 25, "output_tokens": 9}}, {**A_CALLED, "text": "Hello", "thinking": "hm", "tool_calls": [made("t", "f", '{"x":1}')]}),
    ("gemini", part({"text": "Hello"}, G_CALL, finish="STOP", usage=G_USAGE), {**G_CALLED, "text": "Hello", "usage": G_USED, "tool_calls": [made(None, "f", None, {"x": 1})]}),
    ("ollama", says("Hello", done=True, done_reason="stop", prompt_eval_count=7, eval_count=3), {**O_OK, "text": "Hello", "usage": {"input_tokens": 7, "output_tokens": 3}}),
    ("openai-responses", {"id": "r", "object": "response", "status": "completed", "output": [REASONED, {"type": "message", "content": [{"type": "output_text", "text": "Hello"}]}, {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"x":1}'}], "usage": R_USAGE}, {**R_CALLED, "thinking": "hm", "text": "Hello", "tool_calls": [made("c1", "f", '{"x":1}')]}),
]  # fmt: skip
