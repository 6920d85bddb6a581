"""A tiny streaming server for the benchmarks: pre-encoded replies, raw asyncio.Protocol.

    python bench/server.py            prints its port, stops when its stdin closes

The model's name says what is streamed: ``bench-1000`` streams 1,000 deltas and one usage chunk.
The path says the wire format: ``/chat/completions``, ``/messages``, ``/responses``,
``:streamGenerateContent``, ``/api/chat``. Each event is one HTTP chunk.

Chat completions also know faults, which never heal, and a pace:

=============  =================================================================
name           a streamed request gets
=============  =================================================================
cut-100        the connection drops half-way
trunc-100      a clean end half-way: no finish reason, no end mark
errev-100      HTTP 200, half the reply, then an error event
nousage-100    the whole reply, no usage
fail503-100    status 503 (any status), the unstreamed request too
pace50-100     50 deltas a second, then the end
=============  =================================================================

``GET /stats`` gives requests by model name and the number of open connections.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections import Counter

MODEL = re.compile(rb"(bench|cut|trunc|errev|nousage|fail\d+|pace\d+)-(\d+)")
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
SEEN: Counter = Counter()
OPEN = Counter()
ERROR = b'{"error":{"message":"overloaded","type":"server_error","code":"overloaded"}}'


def chunked(events) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in events)


def whole(n: int) -> bytes:
    """The unstreamed reply of chat completions."""
    message = {"role": "assistant", "content": "".join(f" word{i % 10}" for i in range(n))}
    return compact({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1750000000,
        "model": f"bench-{n}",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": n, "total_tokens": n + 10},
    })  # fmt: skip


def plain(status: int, body: bytes) -> bytes:
    return (
        b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        % (status, len(body))
    ) + body


def faulty(kind: bytes, n: int) -> tuple[bytes, bool]:
    """The answer to a streamed chat request, and whether the connection drops after it."""
    events = list(chat(n))
    head = HEAD % b"text/event-stream"
    if kind == b"cut":
        body = head + chunked(events) + b"0\r\n\r\n"
        return body[: len(body) // 2], True
    if kind == b"nousage":
        return head + chunked(events[:-2] + events[-1:]) + b"0\r\n\r\n", False
    half = events[: len(events) // 2]
    if kind == b"errev":
        half.append(b"data: %s\n\n" % ERROR)
    return head + chunked(half) + b"0\r\n\r\n", False


def answer(path: bytes, body: bytes) -> tuple[bytes, bool]:
    """What is written, and whether the connection drops after it."""
    if path == b"/stats":
        return plain(200, compact({"requests": dict(SEEN), "open": OPEN["now"]})), False
    found = MODEL.search(body) or MODEL.search(path)
    kind, n = (found.group(1), int(found.group(2))) if found else (b"bench", 1)
    SEEN[f"{kind.decode()}-{n}"] += 1
    if kind.startswith(b"fail"):
        return plain(int(kind[4:]), ERROR), False
    for part, make, form in ROUTES:
        if part in path:
            if make is chat and not re.search(rb'"stream":\s*true', body):
                return plain(200, whole(n)), False
            if kind != b"bench":
                return faulty(kind, n)
            key = (part, n)
            if key not in CACHE:
                CACHE[key] = HEAD % form + chunked(make(n)) + b"0\r\n\r\n"
            return CACHE[key], False
    return b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", False


class Server(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
        self.buffer = bytearray()
        OPEN["now"] += 1

    def connection_lost(self, _error):
        OPEN["now"] -= 1

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
            paced = re.search(rb'"model":\s*"pace(\d+)-(\d+)"', body)
            if paced:
                SEEN[f"pace{int(paced[1])}-{int(paced[2])}"] += 1
                self.pace(int(paced[1]), list(chat(int(paced[2]))))
                continue
            out, drop = answer(head.split(b" ", 2)[1], body)
            self.transport.write(out)
            if drop:
                self.transport.close()

    def pace(self, rate: int, events: list) -> None:
        """One delta at its time; times do not add up their lateness."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        self.transport.write(HEAD % b"text/event-stream" + chunked(events[:1]))

        def send(at: int) -> None:
            if self.transport.is_closing():
                return
            if at >= len(events) - 3:
                self.transport.write(chunked(events[at:]) + b"0\r\n\r\n")
                return
            self.transport.write(chunked(events[at : at + 1]))
            loop.call_at(start + at / rate, send, at + 1)

        loop.call_at(start + 1 / rate, send, 1)


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
