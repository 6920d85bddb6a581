"""A tiny streaming server for the benchmarks: pre-encoded replies, raw asyncio.Protocol.

    python bench/server.py            prints its port, stops when its stdin closes

The model's name says what is streamed: ``bench-1000`` streams 1,000 deltas and one usage chunk.
The path says the wire format: ``/chat/completions``, ``/messages``, ``/responses``,
``:streamGenerateContent``, ``/api/chat``. Each event is one HTTP chunk.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys

MODEL = re.compile(rb"bench-(\d+)")
HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncache-control: no-cache\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)


def compact(value) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def chat(n: int):
    base = {
        "id": "chatcmpl-0123456789abcdefghijklmnop",
        "object": "chat.completion.chunk",
        "created": 1750000000,
        "model": f"bench-{n}",
        "service_tier": "default",
        "system_fingerprint": "fp_0123456789",
    }

    def event(delta, finish=None, usage=None, choices=True):
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return b"data: %s\n\n" % compact(
            {**base, "choices": [choice] if choices else [], "usage": usage}
        )

    yield event({"role": "assistant", "content": "", "refusal": None})
    for i in range(n):
        yield event({"content": f" word{i % 10}"})
    yield event({}, "stop")
    usage = {"prompt_tokens": 10, "completion_tokens": n, "total_tokens": n + 10}
    yield event({}, None, usage, choices=False)
    yield b"data: [DONE]\n\n"


def messages(n: int):
    def event(kind, **fields):
        return b"event: %s\ndata: %s\n\n" % (kind.encode(), compact({"type": kind, **fields}))

    message = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": f"bench-{n}",
        "content": [], "stop_reason": None, "usage": {"input_tokens": 10, "output_tokens": 1},
    }  # fmt: skip
    yield event("message_start", message=message)
    yield event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    for i in range(n):
        yield event(
            "content_block_delta", index=0, delta={"type": "text_delta", "text": f" word{i % 10}"}
        )
    yield event("content_block_stop", index=0)
    yield event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": n})
    yield event("message_stop")


def responses(n: int):
    number = iter(range(10**9))

    def event(kind, **fields):
        document = {"type": kind, "sequence_number": next(number), **fields}
        return b"event: %s\ndata: %s\n\n" % (kind.encode(), compact(document))

    response = {"id": "resp_1", "object": "response", "status": "in_progress", "output": []}
    yield event("response.created", response=response)
    item = {"id": "msg_1", "type": "message", "role": "assistant", "content": []}
    yield event("response.output_item.added", output_index=0, item=item)
    for i in range(n):
        yield event(
            "response.output_text.delta", item_id="msg_1", output_index=0, content_index=0,
            delta=f" word{i % 10}", logprobs=[],
        )  # fmt: skip
    usage = {"input_tokens": 10, "output_tokens": n, "total_tokens": n + 10}
    yield event("response.completed", response={**response, "status": "completed", "usage": usage})


def gemini(n: int):
    for i in range(n):
        document = {
            "candidates": [
                {"content": {"parts": [{"text": f" word{i % 10}"}], "role": "model"}, "index": 0}
            ],
            "usageMetadata": {"promptTokenCount": 10, "totalTokenCount": 10 + i},
            "modelVersion": f"bench-{n}",
            "responseId": "r1",
        }
        if i == n - 1:
            document["candidates"][0]["finishReason"] = "STOP"
        yield b"data: %s\r\n\r\n" % compact(document)


def ollama(n: int):
    base = {"model": f"bench-{n}", "created_at": "2026-01-01T00:00:00.000000Z"}
    for i in range(n):
        message = {"role": "assistant", "content": f" word{i % 10}"}
        yield compact({**base, "message": message, "done": False}) + b"\n"
    message = {"role": "assistant", "content": ""}
    yield compact({
        **base, "message": message, "done": True, "done_reason": "stop",
        "prompt_eval_count": 10, "eval_count": n,
    }) + b"\n"  # fmt: skip


ROUTES = (
    (b"/chat/completions", chat, b"text/event-stream"),
    (b"/messages", messages, b"text/event-stream"),
    (b"/responses", responses, b"text/event-stream"),
    (b"streamGenerateContent", gemini, b"text/event-stream"),
    (b"/api/chat", ollama, b"application/x-ndjson"),
)
CACHE: dict = {}


def answer(path: bytes, body: bytes) -> bytes:
    found = MODEL.search(body) or MODEL.search(path)
    n = int(found.group(1)) if found else 1
    for part, make, kind in ROUTES:
        if part in path:
            key = (part, n)
            if key not in CACHE:
                chunks = b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in make(n))
                CACHE[key] = HEAD % kind + chunks + b"0\r\n\r\n"
            return CACHE[key]
    return b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"


class Server(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
        self.buffer = bytearray()

    def data_received(self, data):
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = bytes(self.buffer[:end])
            length = re.search(rb"(?i)content-length:\s*(\d+)", head)
            size = end + 4 + (int(length.group(1)) if length else 0)
            if len(self.buffer) < size:
                return
            body = bytes(self.buffer[end + 4 : size])
            del self.buffer[:size]
            self.transport.write(answer(head.split(b" ", 2)[1], body))


async def main() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Server, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    stop = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), lambda: sys.stdin.buffer.read1(1) or stop.set())
    loop.call_later(600, stop.set)
    await stop.wait()


if __name__ == "__main__":
    asyncio.run(main())
