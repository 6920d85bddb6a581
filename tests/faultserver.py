"""A model server that fails on purpose: any fault, at any byte. Raw asyncio on 127.0.0.1.

The model's name carries the orders: ``kind@position#id`` means "the first request under this
name gets that fault at that byte, later ones are healthy"; ``kind@position#id!`` means every
request, the unstreamed ones too. A name without ``@`` is always healthy.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from dataclasses import dataclass, field

TEXT = "Žagarė 🦉 hi"
ARGUMENTS = '{"q":"ice"}'


def _event(**body) -> bytes:
    return (
        b"data: " + json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"
    )


def _delta(finish=None, **delta) -> bytes:
    return _event(choices=[{"delta": delta, **({"finish_reason": finish} if finish else {})}])


STREAM = b"".join(
    [
        _delta(content=TEXT[:8]),
        _delta(content=TEXT[8:]),
        _delta(
            tool_calls=[
                {"index": 0, "id": "c1", "function": {"name": "find", "arguments": ARGUMENTS[:4]}}
            ]
        ),
        _delta(tool_calls=[{"index": 0, "function": {"arguments": ARGUMENTS[4:]}}]),
        _delta("tool_calls"),
        _event(choices=[], usage={"prompt_tokens": 9, "completion_tokens": 7}),
        b"data: [DONE]\n\n",
    ]
)
WHOLE = json.dumps(
    {
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "message": {
                    "role": "assistant",
                    "content": TEXT,
                    "tool_calls": [
                        {
                            "id": "c1",
                            "type": "function",
                            "function": {"name": "find", "arguments": ARGUMENTS},
                        }
                    ],
                },
            }
        ],
        "usage": {"prompt_tokens": 9, "completion_tokens": 7},
    }
).encode()
ERROR = b'{"error":{"message":"boom","type":"server_error"}}'
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
GARBAGE = b'\n\ndata: {"gar\xff\xfe\n\n'
ERROR_EVENT = b"\n\ndata: " + ERROR + b"\n\n"

# Faults of the reply's body, at every byte of it.
BODY_FAULTS = (
    "reset",
    "close",
    "truncate",
    "stall",
    "garbage",
    "error_event",
    "bad_chunk",
    "pause",
    "split",
)
# Faults elsewhere: at a byte of the head, of the error's body, of the request on a kept connection.
OTHER_FAULTS = ("head_cut", "slow_first", "status500", "status503", "status529", "status408", "status429", "keep_alive_closed")  # fmt: skip
FAULTS = BODY_FAULTS + OTHER_FAULTS


def chunk(data: bytes) -> bytes:
    """One chunk of the chunked encoding; nothing for nothing, which would end the body."""
    return b"%x\r\n%s\r\n" % (len(data), data) if data else b""


@dataclass
class FaultServer:
    """Start with ``async with``; ``url`` is the base URL of an OpenAI-compatible API.

    Attributes:
        requests: Requests by model name.
        faults: Faults done, by kind.
        stall_s: How long a silent connection is held.
        connections: Open right now.
    """

    stall_s: float = 5.0
    pause_s: float = 0.002
    requests: Counter = field(default_factory=Counter)
    faults: Counter = field(default_factory=Counter)
    connections: int = 0
    url: str = ""

    async def __aenter__(self) -> FaultServer:
        self._tasks: set[asyncio.Task] = set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()[:2]
        self.url = f"http://{host}:{port}/v1"
        return self

    async def __aexit__(self, *_exc) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._tasks.add(task)
        self.connections += 1
        try:
            while await self._answer(reader, writer):
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except asyncio.CancelledError:
            return
        finally:
            self.connections -= 1
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(Exception):
                await writer.wait_closed()

    async def _answer(self, reader, writer) -> bool:
        """One request. True keeps the connection."""
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1])
            for line in head.lower().split(b"\r\n")
            if line.startswith(b"content-length")
        )
        body = json.loads(await reader.readexactly(length))
        name = body["model"]
        self.requests[name] += 1
        streamed = bool(body.get("stream"))
        orders, _, _ = name.partition("#")
        kind, at_sign, position = orders.partition("@")
        always = name.endswith("!")
        if at_sign and (always or self.requests[name] == 1):
            self.faults[kind] += 1
            if not streamed:
                return await self._unstreamed_fault(writer, kind, int(position))
            return await self._fault(reader, writer, kind, int(position))
        if streamed:
            writer.write(HEAD + chunk(STREAM) + b"0\r\n\r\n")
        else:
            writer.write(_plain(200, WHOLE))
        return True

    async def _fault(self, reader, writer, kind: str, at: int) -> bool:  # noqa: C901  # one case a fault
        before, after = STREAM[:at], STREAM[at:]
        if kind in BODY_FAULTS:
            writer.write(HEAD + chunk(before))
            await writer.drain()
        match kind:
            case "reset":
                await asyncio.sleep(0)
                writer.transport.abort()
            case "close":
                pass
            case "truncate":
                writer.write(b"0\r\n\r\n")
                return True
            case "stall":
                await asyncio.sleep(self.stall_s)
            case "garbage":
                writer.write(chunk(GARBAGE) + chunk(after) + b"0\r\n\r\n")
                return True
            case "error_event":
                writer.write(chunk(ERROR_EVENT) + b"0\r\n\r\n")
                return True
            case "bad_chunk":
                writer.write(b"zz\r\n" + after)
            case "pause":
                await asyncio.sleep(self.pause_s)
                writer.write(chunk(after) + b"0\r\n\r\n")
                return True
            case "split":
                await asyncio.sleep(0)
                for n in range(len(after)):
                    writer.write(chunk(after[n : n + 1]))
                writer.write(b"0\r\n\r\n")
                return True
            case "head_cut":
                writer.write((HEAD + chunk(STREAM))[:at])
            case "slow_first":
                await asyncio.sleep(self.stall_s)
            case "keep_alive_closed":
                writer.write(HEAD + chunk(STREAM) + b"0\r\n\r\n")
                await writer.drain()
                with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                    await reader.readexactly(at)  # so much of the next request, then it is gone
                writer.transport.abort()
            case _:
                return self._status(writer, int(kind.removeprefix("status")), at)
        return False

    def _status(self, writer, status: int, at: int) -> bool:
        extra = b"retry-after-ms: 1\r\n" if status == 429 else b""
        if at >= len(ERROR):
            writer.write(_plain(status, ERROR, extra))
            return True
        writer.write(_plain(status, ERROR, extra)[: at - len(ERROR)])  # the error's own body is cut
        return False

    async def _unstreamed_fault(self, writer, kind: str, at: int) -> bool:
        full = _plain(200, WHOLE)
        body_at = len(full) - len(WHOLE) + at
        match kind:
            case "reset" | "close":
                writer.write(full[:body_at])
                await writer.drain()
                if kind == "reset":
                    writer.transport.abort()
            case "truncate":
                writer.write(_plain(200, WHOLE[:at]))
                return True
            case "stall" | "slow_first":
                writer.write(full[:body_at] if kind == "stall" else b"")
                await asyncio.sleep(self.stall_s)
            case "garbage" | "error_event" | "bad_chunk":
                writer.write(_plain(200, WHOLE[:at] + GARBAGE + WHOLE[at:]))
                return True
            case "pause" | "split":
                writer.write(full[:body_at])
                await asyncio.sleep(self.pause_s)
                writer.write(full[body_at:])
                return True
            case "head_cut":
                writer.write(full[:at])
            case "keep_alive_closed":
                writer.transport.abort()
            case _:
                return self._status(writer, int(kind.removeprefix("status")), at)
        return False


def _plain(status: int, body: bytes, extra: bytes = b"") -> bytes:
    return (
        b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\n%scontent-length: %d\r\n\r\n"
        % (status, extra, len(body))
    ) + body
