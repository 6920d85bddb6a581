"""A tiny HTTP/1.1 server on loopback that answers with what a test scripted.

    async with serve(Reply(body=[b"data: ...", b"..."])) as server:
        client = OpenAIChat("m", base_url=server.url + "/v1")
        ...
        server.requests[0].json

Each request takes the next reply; the last one repeats. Everything is bounded: a reply that hangs
ends with the server.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Request:
    """One request as it arrived."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    connection: int

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Reply:
    """What the server does with one request.

    Attributes:
        status, headers: Of the answer.
        body: Pieces, each an HTTP chunk of its own (or the whole, with ``length``).
        length: Send a content-length and no chunks.
        pause_s: Seconds before each piece.
        hang: After the pieces, keep the connection open and silent.
        cut: Close the connection after this many bytes of the body's wire form.
        no_end: Do not send the last chunk, close cleanly.
        close: Close the connection after the reply.
    """

    body: list[bytes] = field(default_factory=list)
    status: int = 200
    headers: dict[str, str] | list[tuple[str, str]] = field(
        default_factory=lambda: {"content-type": "text/event-stream"}
    )
    length: bool = False
    pause_s: float = 0.0
    hang: bool = False
    cut: int | None = None
    no_end: bool = False
    close: bool = False


def json_reply(document: Any, status: int = 200, **headers: str) -> Reply:
    """A whole JSON document."""
    return Reply(
        [json.dumps(document).encode()],
        status,
        {
            "content-type": "application/json",
            **{k.replace("_", "-"): v for k, v in headers.items()},
        },
        length=True,
    )


def sse(*events: Any) -> list[bytes]:
    """Event-stream pieces of documents (or of raw strings)."""
    return [
        b"data: "
        + (e.encode() if isinstance(e, str) else json.dumps(e, ensure_ascii=False).encode())
        + b"\n\n"
        for e in events
    ]


class Server:
    """Counts connections, keeps requests, says when a connection was closed by the client."""

    def __init__(self, replies: list[Reply | Callable[[Request], Reply]]) -> None:
        self.replies = replies
        self.requests: list[Request] = []
        self.connections = 0
        self.open = 0
        self.gone = asyncio.Event()  # a client closed its connection while being answered
        self.url = ""
        self.port = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task] = set()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.current_task())
        self.connections += 1
        self.open += 1
        number = self.connections
        self._writers.add(writer)
        try:
            while True:
                try:
                    head = await reader.readuntil(b"\r\n\r\n")
                except (asyncio.IncompleteReadError, ConnectionError):
                    return
                lines = head.decode("latin-1").split("\r\n")
                method, target, _ = lines[0].split(" ", 2)
                headers = {
                    name.lower(): value.strip()
                    for name, _, value in (line.partition(":") for line in lines[1:] if line)
                }
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                request = Request(method, target, headers, body, number)
                self.requests.append(request)
                at = min(len(self.requests), len(self.replies)) - 1
                reply = self.replies[at]
                if callable(reply):
                    reply = reply(request)
                if not await self.answer(reply, reader, writer):
                    return
        finally:
            self.open -= 1
            self._writers.discard(writer)
            writer.transport.abort()

    async def answer(self, reply: Reply, reader, writer) -> bool:
        """Whether the connection may be used again."""
        pairs = reply.headers.items() if isinstance(reply.headers, dict) else reply.headers
        head = f"HTTP/1.1 {reply.status} X\r\n" + "".join(f"{k}: {v}\r\n" for k, v in pairs)
        whole = b"".join(reply.body)
        if reply.length:
            head += f"content-length: {len(whole)}\r\n"
            pieces = [whole]
        else:
            head += "transfer-encoding: chunked\r\n"
            pieces = [b"%x\r\n%s\r\n" % (len(p), p) for p in reply.body if p]
            if not reply.no_end and not reply.hang:
                pieces.append(b"0\r\n\r\n")
        writer.write(head.encode() + b"\r\n")
        left = reply.cut
        try:
            for piece in pieces:
                if reply.pause_s:
                    await asyncio.sleep(reply.pause_s)
                if left is not None:
                    piece = piece[:left]
                    left -= len(piece)
                writer.write(piece)
                await writer.drain()
                if left == 0:
                    return False
            if reply.hang:
                await reader.read(1)
                self.gone.set()
                return False
        except ConnectionError:
            self.gone.set()
            return False
        if reply.no_end or reply.close or reply.cut is not None:
            writer.close()
            return False
        return True


# A certificate for localhost that nobody trusts, with its key: for these tests only.
CERTIFICATE = Path(__file__).with_name("tls.pem")


@asynccontextmanager
async def serve(*replies: Reply | Callable[[Request], Reply], tls: bool = False):
    """A server for the time of the block."""
    server = Server(list(replies))
    context = None
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATE)
    listening = await asyncio.start_server(server.handle, "127.0.0.1", 0, ssl=context)
    server.port = listening.sockets[0].getsockname()[1]
    server.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.port}"
    try:
        yield server
    finally:
        listening.close()
        for writer in list(server._writers):
            writer.transport.abort()
        if server._tasks:
            await asyncio.wait(server._tasks, timeout=5)
        await listening.wait_closed()


async def collect(events) -> list:
    """All events of a stream."""
    return [event async for event in events]
