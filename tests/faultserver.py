"""A model server that fails on purpose: any fault, at any byte. Raw asyncio on 127.0.0.1.

The model's name carries the orders: ``kind@position#id`` means "the first request under this
name gets that fault at that byte, later ones are healthy"; ``kind@position#id!`` means every
request, the unstreamed ones too. A name without ``@`` is always healthy. ``~`` does for ``#``,
which cannot stand in an address. The first folder of the path names the wire format.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from dataclasses import dataclass, field
from urllib.parse import unquote

from tests.faultformats import BY_NAME, OPENAI_CHAT, TEXT, Format

__all__ = ["BODY_FAULTS", "ERROR", "FAULTS", "HEAD", "STREAM", "TEXT", "WHOLE", "FaultServer"]

STREAM, WHOLE, ERROR, HEAD = (
    OPENAI_CHAT.stream,
    OPENAI_CHAT.whole,
    OPENAI_CHAT.error,
    OPENAI_CHAT.head,
)

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


def _wanted(head: bytes, body: dict) -> tuple[Format, str, bool]:
    """Wire format, model name and whether a stream is wanted."""
    target = unquote(head.split(b" ", 2)[1].decode())
    wire = BY_NAME[target.split("/")[1]]
    if wire.client[0] != "gemini":
        return wire, body["model"].replace("~", "#"), bool(body.get("stream"))
    name, _, verb = target.rpartition("/models/")[2].rpartition(":")
    return wire, name.replace("~", "#"), verb.startswith("stream")


def chunk(data: bytes) -> bytes:
    """One chunk of the chunked encoding; nothing for nothing, which would end the body."""
    return b"%x\r\n%s\r\n" % (len(data), data) if data else b""


@dataclass
class FaultServer:
    """Start with ``async with``; ``url`` is the base URL of an OpenAI-compatible API, ``root``
    that of the folders of the other formats.

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
    root: str = ""

    async def __aenter__(self) -> FaultServer:
        self._tasks: set[asyncio.Task] = set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()[:2]
        self.root = f"http://{host}:{port}"
        self.url = f"{self.root}/v1"
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
            writer.close()
            with contextlib.suppress(Exception, asyncio.CancelledError):
                await writer.wait_closed()
            self._tasks.discard(task)

    async def _answer(self, reader, writer) -> bool:
        """One request. True keeps the connection."""
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1])
            for line in head.lower().split(b"\r\n")
            if line.startswith(b"content-length")
        )
        body = json.loads(await reader.readexactly(length))
        wire, name, streamed = _wanted(head, body)
        self.requests[name] += 1
        orders, _, _ = name.partition("#")
        kind, at_sign, position = orders.partition("@")
        always = name.endswith("!")
        if at_sign and (always or self.requests[name] == 1):
            self.faults[kind] += 1
            if not streamed:
                return await self._unstreamed_fault(wire, writer, kind, int(position))
            return await self._fault(wire, reader, writer, kind, int(position))
        if streamed:
            writer.write(wire.head + chunk(wire.stream) + b"0\r\n\r\n")
        else:
            writer.write(_plain(200, wire.whole))
        return True

    async def _fault(self, wire: Format, reader, writer, kind: str, at: int) -> bool:  # noqa: C901  # one case a fault
        before, after = wire.stream[:at], wire.stream[at:]
        if kind in BODY_FAULTS:
            writer.write(wire.head + chunk(before))
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
                writer.write(chunk(wire.garbage) + chunk(after) + b"0\r\n\r\n")
                return True
            case "error_event":
                writer.write(chunk(wire.error_event) + b"0\r\n\r\n")
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
                writer.write((wire.head + chunk(wire.stream))[:at])
            case "slow_first":
                await asyncio.sleep(self.stall_s)
            case "keep_alive_closed":
                writer.write(wire.head + chunk(wire.stream) + b"0\r\n\r\n")
                await writer.drain()
                with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                    await reader.readexactly(at)  # so much of the next request, then it is gone
                writer.transport.abort()
            case _:
                return self._status(wire, writer, int(kind.removeprefix("status")), at)
        return False

    def _status(self, wire: Format, writer, status: int, at: int) -> bool:
        extra = b"retry-after-ms: 1\r\n" if status == 429 else b""
        if at >= len(wire.error):
            writer.write(_plain(status, wire.error, extra))
            return True
        writer.write(
            _plain(status, wire.error, extra)[: at - len(wire.error)]
        )  # the error's own body is cut
        return False

    async def _unstreamed_fault(self, wire: Format, writer, kind: str, at: int) -> bool:
        whole = wire.whole
        full = _plain(200, whole)
        body_at = len(full) - len(whole) + at
        match kind:
            case "reset" | "close":
                writer.write(full[:body_at])
                await writer.drain()
                if kind == "reset":
                    writer.transport.abort()
            case "truncate":
                writer.write(_plain(200, whole[:at]))
                return True
            case "stall" | "slow_first":
                writer.write(full[:body_at] if kind == "stall" else b"")
                await asyncio.sleep(self.stall_s)
            case "garbage" | "error_event" | "bad_chunk":
                writer.write(_plain(200, whole[:at] + wire.garbage + whole[at:]))
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
                return self._status(wire, writer, int(kind.removeprefix("status")), at)
        return False


def _plain(status: int, body: bytes, extra: bytes = b"") -> bytes:
    return (
        b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\n%scontent-length: %d\r\n\r\n"
        % (status, extra, len(body))
    ) + body
