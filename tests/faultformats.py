"""One reply (text, a tool call, usage) in every wire format, and what a fault looks like in each."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

TEXT = "Žagarė 🦉 hi"
ARGUMENTS = '{"q":"ice"}'


def dump(body: Any) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


@dataclass(frozen=True)
class Format:
    """A wire format as the fault server speaks it.

    Attributes:
        name: Folder of its base URL.
        stream, whole: The reply, streamed and not.
        finish: Text that ends the document which names the finish reason (or is the end mark):
            a body that ends cleanly behind it is a whole reply (L57).
        error: Body of a refused request.
        error_event: An error in the middle of a stream.
        garbage: Bytes that are no document of the format.
        media: Content type of the stream.
        client: Module and class.
    """

    name: str
    stream: bytes
    whole: bytes
    finish: bytes
    client: tuple[str, str]
    error: bytes = b'{"error":{"message":"boom","type":"server_error"}}'
    error_event: bytes = b'\n\ndata: {"error":{"message":"boom","type":"server_error"}}\n\n'
    garbage: bytes = b'\n\ndata: {"gar\xff\xfe\n\n'
    media: bytes = b"text/event-stream"

    @property
    def head(self) -> bytes:
        """Head of the streamed answer."""
        return (
            b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ntransfer-encoding: chunked\r\n\r\n"
            % self.media
        )

    @property
    def finished_at(self) -> int:
        """Bytes after which a clean end of the body is the end of the reply."""
        return self.stream.index(self.finish) + len(self.finish)

    def borders(self) -> list[int]:
        """Positions just before, at and behind each end of an event."""
        mark = b"\n\n" if self.media == b"text/event-stream" else b"\n"
        size = len(self.stream)
        ends = [n for n in range(1, size + 1) if self.stream[:n].endswith(mark)]
        near = {n + off for n in (0, *ends, self.finished_at) for off in (-1, 0, 1)}
        return sorted(n for n in near if 0 <= n <= size)

    def make(self, url: str) -> Any:
        """A client of this format at the server's root ``url``."""
        module, name = self.client
        maker: Callable[..., Any] = getattr(
            import_module(f"notebook_agent.providers.{module}"), name
        )
        return maker("model", base_url=f"{url}/{self.name}", key="no-key", provider="fault")


def _sse(*bodies: dict[str, Any], named: bool = False) -> bytes:
    name = "event: {}\n" if named else ""
    return b"".join(
        name.format(body.get("type")).encode() + b"data: " + dump(body) + b"\n\n" for body in bodies
    )


def _chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"delta": delta, **({"finish_reason": finish} if finish else {})}]}


def _openai_chat() -> Format:
    usage = {"prompt_tokens": 9, "completion_tokens": 7}
    first = {"index": 0, "id": "c1", "function": {"name": "find", "arguments": ARGUMENTS[:4]}}
    called = {
        "id": "c1",
        "type": "function",
        "function": {"name": "find", "arguments": ARGUMENTS},
    }
    message = {"role": "assistant", "content": TEXT, "tool_calls": [called]}
    return Format(
        "v1",
        _sse(
            _chunk(content=TEXT[:8]),
            _chunk(content=TEXT[8:]),
            _chunk(tool_calls=[first]),
            _chunk(tool_calls=[{"index": 0, "function": {"arguments": ARGUMENTS[4:]}}]),
            _chunk("tool_calls"),
            {"choices": [], "usage": usage},
        )
        + b"data: [DONE]\n\n",
        dump(
            {
                "choices": [{"index": 0, "finish_reason": "tool_calls", "message": message}],
                "usage": usage,
            }
        ),
        b'"finish_reason":"tool_calls"}]}',
        ("openai_chat", "OpenAIChat"),
    )


def _anthropic() -> Format:
    def delta(index: int, **given: Any) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": index, "delta": given}

    def block(index: int, **given: Any) -> dict[str, Any]:
        return {"type": "content_block_start", "index": index, "content_block": given}

    def stop(index: int) -> dict[str, Any]:
        return {"type": "content_block_stop", "index": index}

    tool = {"type": "tool_use", "id": "c1", "name": "find"}
    return Format(
        "anthropic_messages",
        _sse(
            {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 9}}},
            block(0, type="text", text=""),
            {"type": "ping"},
            delta(0, type="text_delta", text=TEXT[:8]),
            delta(0, type="text_delta", text=TEXT[8:]),
            stop(0),
            block(1, **tool, input={}),
            delta(1, type="input_json_delta", partial_json=ARGUMENTS[:4]),
            delta(1, type="input_json_delta", partial_json=ARGUMENTS[4:]),
            stop(1),
            {
                "type": "message_delta",
                "delta": {"stop_reason": "tool_use"},
                "usage": {"output_tokens": 7},
            },
            {"type": "message_stop"},
            named=True,
        ),
        dump(
            {
                "content": [
                    {"type": "text", "text": TEXT},
                    {**tool, "input": json.loads(ARGUMENTS)},
                ],
                "stop_reason": "tool_use",
                "usage": {"input_tokens": 9, "output_tokens": 7},
            }
        ),
        b'"usage":{"output_tokens":7}}',
        ("anthropic_messages", "AnthropicMessages"),
        error=b'{"type":"error","error":{"type":"api_error","message":"boom"}}',
        error_event=b"\n\nevent: error\ndata: "
        b'{"type":"error","error":{"type":"overloaded_error","message":"boom"}}\n\n',
    )


def _gemini_documents() -> list[dict[str, Any]]:
    def parts(*given: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {"candidates": [{"content": {"parts": list(given)}, **more}]}

    call = {"functionCall": {"id": "c1", "name": "find", "args": json.loads(ARGUMENTS)}}
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 7}
    return [
        parts({"text": TEXT[:8]}),
        parts({"text": TEXT[8:]}),
        parts(call),
        {**parts({"text": ""}, finishReason="STOP"), "usageMetadata": usage},
    ]


_GEMINI_END = b'"candidatesTokenCount":7}}'
_GEMINI_ERROR = b'{"error":{"code":503,"message":"boom","status":"UNAVAILABLE"}}'


def _gemini() -> Format:
    documents = _gemini_documents()
    whole = {**documents[-1], "candidates": [dict(documents[-1]["candidates"][0])]}
    call = documents[2]["candidates"][0]["content"]["parts"][0]
    whole["candidates"][0]["content"] = {"parts": [{"text": TEXT}, call]}
    return Format(
        "gemini",
        _sse(*documents),
        dump(whole),
        _GEMINI_END,
        ("gemini", "Gemini"),
        error=_GEMINI_ERROR,
        error_event=b"\n\ndata: " + _GEMINI_ERROR + b"\n\n",
    )


def _gemini_array() -> Format:
    """The same service without server-sent events: one JSON array, piece by piece."""
    return Format(
        "gemini_array",
        b"[" + b",\n".join(map(dump, _gemini_documents())) + b"]\n",
        _gemini().whole,
        _GEMINI_END,
        ("gemini", "Gemini"),
        error=_GEMINI_ERROR,
        error_event=b",\n" + _GEMINI_ERROR + b"]\n",
        garbage=b',\n{"gar\xff\xfe\n',
        media=b"application/json",
    )


def _responses() -> Format:
    usage = {"input_tokens": 9, "output_tokens": 7}
    call = {"type": "function_call", "call_id": "c1", "name": "find", "arguments": ARGUMENTS}
    message = {"type": "message", "content": [{"type": "output_text", "text": TEXT}]}

    def event(kind: str, **given: Any) -> dict[str, Any]:
        return {"type": f"response.{kind}", **given}

    def arguments(piece: str) -> dict[str, Any]:
        return event("function_call_arguments.delta", output_index=1, delta=piece)

    return Format(
        "openai_responses",
        _sse(
            event("created", response={"id": "r"}),
            event("output_text.delta", output_index=0, delta=TEXT[:8]),
            event("output_text.delta", output_index=0, delta=TEXT[8:]),
            event("output_item.done", output_index=0, item={"type": "message"}),
            event("output_item.added", output_index=1, item={**call, "arguments": ""}),
            arguments(ARGUMENTS[:4]),
            arguments(ARGUMENTS[4:]),
            event("output_item.done", output_index=1, item=call),
            event("completed", response={"id": "r", "usage": usage}),
        ),
        dump({"id": "r", "status": "completed", "output": [message, call], "usage": usage}),
        b'"output_tokens":7}}}',
        ("openai_responses", "OpenAIResponses"),
        error_event=b'\n\ndata: {"type":"error","code":"server_error","message":"boom"}\n\n',
    )


def _ollama() -> Format:
    call = {"id": "c1", "function": {"name": "find", "arguments": json.loads(ARGUMENTS)}}
    end = {"done": True, "done_reason": "stop", "prompt_eval_count": 9, "eval_count": 7}
    lines = [
        {"message": {"content": TEXT[:8]}, "done": False},
        {"message": {"content": TEXT[8:]}, "done": False},
        {"message": {"content": "", "tool_calls": [call]}, "done": False},
        {"message": {"content": ""}, **end},
    ]
    return Format(
        "ollama",
        b"".join(dump(line) + b"\n" for line in lines),
        dump({"message": {"content": TEXT, "tool_calls": [call]}, **end}),
        b'"eval_count":7}',
        ("ollama", "Ollama"),
        error=b'{"error":"boom: the server is broken"}',
        error_event=b'\n{"error":"boom: the server is broken"}\n',
        garbage=b'\n{"gar\xff\xfe\n',
        media=b"application/x-ndjson",
    )


OPENAI_CHAT = _openai_chat()
FORMATS = (
    OPENAI_CHAT,
    _anthropic(),
    _gemini(),
    _gemini_array(),
    _responses(),
    _ollama(),
)
BY_NAME = {one.name: one for one in FORMATS}
