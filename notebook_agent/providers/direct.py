"""httpx's direct connections, with small HTTP chunks put together before they are parsed.

Services send every delta as an HTTP chunk of its own, and a parser spends far more time on a
chunk's frame than on the delta in it. When several chunks arrive in one read, ``Reframer`` joins
them into one, so the cost goes by reads and no longer by deltas; a chunk that arrives alone is
passed on alone, at once. Everything else (pool, protocol, TLS) is httpcore's own, through its
public interfaces: a network backend on asyncio streams, and a connection pool in an httpx
transport. Proxied connections do not come here.

Source: LLM turn, "StreamHandler" (L70, L129).
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import re
import socket
import ssl
from collections.abc import AsyncIterator, Iterable
from contextvars import ContextVar
from typing import Any, Final

import httpcore
import httpx

__all__ = ["DirectTransport", "Reframer"]

_CHUNKED: Final = re.compile(rb"(?im)^transfer-encoding:[^\r\n]*\bchunked\b")
_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[^\r\n]*)?\r\n")
_INFORMATIONAL: Final = re.compile(rb"HTTP/1\.[01] 1[0-9][0-9]")
_LONGEST_HEAD: Final = 256 * 1024
_LONGEST_SIZE_LINE: Final = 16 * 1024
_READ: Final = 256 * 1024
_CLOSING_S: Final = 1.0


class Reframer:
    """Joins the HTTP/1.1 chunks of a response that arrive together. No I/O.

    What is malformed is passed on untouched: the real parser judges it. The last chunk is never
    made up, so a cut body stays a cut body.

    Example:
        >>> r = Reframer()
        >>> r.feed(b"HTTP/1.1 200 OK\\r\\ntransfer-encoding: chunked\\r\\n\\r\\n")[-4:]
        b'\\r\\n\\r\\n'
        >>> r.feed(b"2\\r\\nab\\r\\n3\\r\\ncde\\r\\n")
        b'5\\r\\nabcde\\r\\n'
    """

    __slots__ = ("_closing", "_held", "_left", "_state")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """A request is being sent: the next bytes are a head."""
        self._state = "head"
        self._held = b""  # head so far; or the start of a chunk's frame
        self._left = 0  # bytes that the open chunk still holds
        self._closing = False  # the CRLF after a chunk is due

    def feed(self, data: bytes) -> bytes:
        """Bytes for the parser; may be empty when a chunk's frame is not whole yet."""
        if self._state == "chunks":
            return self._chunks(data)
        if self._state == "pass":
            return data
        return self._head(data)

    def _head(self, data: bytes) -> bytes:
        buffer = self._held + data
        shown = len(self._held)  # given to the parser already
        while True:
            end = buffer.find(b"\r\n\r\n")
            if end < 0:
                if len(buffer) > _LONGEST_HEAD:
                    self._state = "pass"
                self._held = buffer
                return buffer[shown:]
            head, rest = buffer[:end], buffer[end + 4 :]
            if _INFORMATIONAL.match(head):
                out, self._held = buffer[shown : end + 4], b""
                return out + (self._head(rest) if rest else b"")
            self._held = b""
            out = buffer[shown : end + 4]
            if _CHUNKED.search(head) is None:
                self._state = "pass"
                return out + rest
            self._state = "chunks"
            return out + self._chunks(rest)

    def _chunks(self, data: bytes) -> bytes:
        buffer = self._held + data if self._held else data
        parts: list[bytes] = []
        size = 0  # bytes in parts
        at, end = 0, len(buffer)
        left, closing = self._left, self._closing
        tail = b""
        while True:
            if left:
                part = buffer[at : at + left]
                parts.append(part)
                size += len(part)
                at += len(part)
                left -= len(part)
                if left:
                    break
                closing = True
            if closing:
                if end - at < 2:
                    break
                if buffer[at : at + 2] != b"\r\n":
                    tail, self._state = buffer[at:], "pass"
                    break
                at += 2
                closing = False
            found = _SIZE.match(buffer, at)
            if found is None:
                if buffer.find(b"\n", at) >= 0 or end - at > _LONGEST_SIZE_LINE:
                    tail, self._state = buffer[at:], "pass"
                break
            left = int(found.group(1), 16)
            if left == 0:  # the last chunk, trailers and all
                tail, self._state = buffer[at:], "pass"
                break
            at = found.end()
        self._left, self._closing = left, closing
        self._held = b"" if self._state == "pass" else buffer[at:]
        if not size:
            return tail
        return b"%x\r\n%s\r\n%s" % (size, b"".join(parts), tail)


class _Stream(httpcore.AsyncNetworkStream):
    """asyncio streams as httpcore wants them, responses reframed."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = Reframer()

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109  # httpcore's signature
        try:
            async with _within(timeout):
                while True:
                    data = await self._reader.read(max(max_bytes, _READ))
                    if not data:
                        return b""
                    out = self._frames.feed(data)
                    if out:
                        return out
        except TimeoutError:
            raise httpcore.ReadTimeout from None
        except (OSError, ssl.SSLError) as problem:
            raise httpcore.ReadError(str(problem)) from None

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109  # httpcore's signature
        self._frames.reset()
        if not buffer:
            return
        try:
            async with _within(timeout):
                self._writer.write(buffer)
                await self._writer.drain()
        except TimeoutError:
            raise httpcore.WriteTimeout from None
        except (OSError, ssl.SSLError, RuntimeError) as problem:
            raise httpcore.WriteError(str(problem)) from None

    async def aclose(self) -> None:
        # abort, not close: nothing more is sent, and a server that does not read or does not say
        # goodbye must not hold up a cancelled turn.
        self._writer.transport.abort()
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_CLOSING_S):
                await self._writer.wait_closed()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  # httpcore's signature
    ) -> httpcore.AsyncNetworkStream:
        try:
            async with _within(timeout):
                await self._writer.start_tls(ssl_context, server_hostname=server_hostname)
        except BaseException as problem:  # a cancelled handshake too: nobody else knows the socket
            self._writer.transport.abort()
            if isinstance(problem, TimeoutError):
                raise httpcore.ConnectTimeout from None
            if isinstance(problem, (OSError, ssl.SSLError)):
                raise httpcore.ConnectError(str(problem)) from None
            raise
        return self

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":  # an idle connection with something to read is a closed one
            dead = self._reader.at_eof() or self._reader.exception() is not None
            return dead or self._writer.transport.is_closing()
        names = {"client_addr": "sockname", "server_addr": "peername"}
        return self._writer.get_extra_info(names.get(info, info))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


class _Backend(httpcore.AsyncNetworkBackend):
    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  # httpcore's signature
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        local = None if local_address is None else (local_address, 0)
        try:
            async with _within(timeout):
                # A race between addresses only where there can be several: in CPython 3.11 a race
                # that is cancelled just as it is won forgets to close the winner's socket.
                reader, writer = await asyncio.open_connection(
                    host,
                    port,
                    limit=_READ,
                    local_addr=local,
                    happy_eyeballs_delay=None if _is_address(host) else 0.25,
                )
        except TimeoutError:
            raise httpcore.ConnectTimeout from None
        except OSError as problem:
            raise httpcore.ConnectError(_words(problem)) from None
        sock = writer.get_extra_info("socket")
        for option in socket_options or ():
            sock.setsockopt(*option)
        return _Stream(reader, writer)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class _Connection(httpcore.AsyncHTTPConnection):
    """A connection that can be given up.

    httpcore loses a connection whose request is cancelled at one of two moments: after it was
    made and before the request's first byte, and while a response that has ended is put away. It
    is then neither idle nor closed, and its socket stays open in the pool.
    """

    given_up = False
    served = 0  # requests so far; with it a body knows whether the connection is still its own

    async def handle_async_request(self, request: httpcore.Request) -> httpcore.Response:
        response = await super().handle_async_request(request)
        self.served += 1
        response.extensions[_OWNER] = (self, self.served)
        return response

    def is_closed(self) -> bool:
        return self.given_up or super().is_closed()

    async def give_up(self) -> None:
        self.given_up = True
        await self.aclose()


_OWNER: Final = "notebook_agent_connection"
# The connections made for the request that this task is sending.
_MADE: ContextVar[list[_Connection]] = ContextVar("notebook_agent_connections")


class _Pool(httpcore.AsyncConnectionPool):
    def __init__(self, verify: ssl.SSLContext, *, keep_alive: int, expiry_s: float) -> None:
        self._settings: dict[str, Any] = {
            "ssl_context": verify,
            "keepalive_expiry": expiry_s,
            "network_backend": _Backend(),
        }
        super().__init__(
            max_connections=None, max_keepalive_connections=keep_alive, **self._settings
        )

    def create_connection(self, origin: httpcore.Origin) -> httpcore.AsyncConnectionInterface:
        # no limit of connections: each is made in the call of the request that needs it
        made = _Connection(origin=origin, **self._settings)
        _MADE.get().append(made)
        return made


class _Body(httpx.AsyncByteStream):
    """httpcore's body as it is: its iterator, no generator around it."""

    def __init__(self, stream: Any, owner: tuple[_Connection, int]) -> None:
        self._stream = stream
        self._connection, self._number = owner

    def __aiter__(self) -> AsyncIterator[bytes]:
        found: AsyncIterator[bytes] = aiter(self._stream)
        return found

    async def aclose(self) -> None:
        try:
            await self._stream.aclose()
        finally:
            one = self._connection
            if one.served == self._number and not (one.is_idle() or one.is_closed()):
                await one.give_up()


class DirectTransport(httpx.AsyncBaseTransport):
    """An httpx transport for connections without a proxy.

    Args:
        verify: TLS settings.
        keep_alive: Idle connections kept; 0 closes each after its response.
        expiry_s: Seconds after which an idle connection is not used again.
    """

    def __init__(self, verify: ssl.SSLContext, *, keep_alive: int, expiry_s: float) -> None:
        self._pool = _Pool(verify, keep_alive=keep_alive, expiry_s=expiry_s)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request; what httpcore raises comes out as it is."""
        url = httpcore.URL(
            scheme=request.url.raw_scheme,
            host=request.url.raw_host,
            port=request.url.port,
            target=request.url.raw_path,
        )
        plain = httpcore.Request(
            method=request.method,
            url=url,
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        made: list[_Connection] = []
        before = _MADE.set(made)
        try:
            response = await self._pool.handle_async_request(plain)
        except BaseException:
            for connection in made:
                await connection.give_up()
            raise
        finally:
            _MADE.reset(before)
        return httpx.Response(
            response.status,
            headers=response.headers,
            stream=_Body(response.stream, response.extensions.pop(_OWNER)),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        """Close every connection."""
        await self._pool.aclose()


def _within(timeout: float | None) -> Any:
    """A time-out, and no timer at all where none is set."""
    return _NOTHING if timeout is None else asyncio.timeout(timeout)


_NOTHING: Final = contextlib.nullcontext()


def _words(problem: OSError) -> str:
    """The system's words, without asyncio's list of addresses."""
    if isinstance(problem, socket.gaierror):
        return problem.strerror or str(problem)
    found = re.search(r"\[Errno ([0-9]+)\]", str(problem))
    number = problem.errno or (int(found.group(1)) if found else 0)
    return os.strerror(number).lower() if number > 0 else str(problem)
