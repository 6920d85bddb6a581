"""The HTTP transport: a small interface, and httpx (or anything alike) behind it.

A transport sends one request and gives a stream of bytes that can be closed at any time. A
client of the HTTP library belongs to one event loop: it is made on that loop, never shared with
another, and closed with it (K02).

Source: LLM turn, "StreamHandler" (L70, L129); front ends (F7).
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import sys
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

from notebook_agent.errors import ErrorKind, ProviderError
from notebook_agent.providers.base import READ_GAP_S

if TYPE_CHECKING:
    import ssl

__all__ = ["ByteStream", "HttpSettings", "HttpxTransport", "Transport", "is_loopback", "is_proxied"]


class ByteStream(Protocol):
    """An answer whose body is still coming."""

    status: int
    headers: Sequence[tuple[str, str]]

    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives, content encoding undone."""
        ...

    async def aclose(self) -> None:
        """Close the connection's stream; the body need not have ended (L129)."""
        ...


class Transport(Protocol):
    """Sends requests; made by a factory on the engine's loop (F7)."""

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None = None,
        query: str = "",
    ) -> ByteStream:
        """Send one request, no retries, no redirects.

        Args:
            method: POST or GET.
            url: The address without anything secret.
            headers: Header fields, the key among them.
            body: The request body.
            query: A query to add to the address; it may hold a key.
        """
        ...

    async def aclose(self) -> None:
        """Close every connection."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """How requests are sent. Times in seconds, sizes in bytes (L70).

    Attributes:
        connect_timeout_s: Until a connection stands.
        read_gap_s: Longest silence inside an answer; None = as ``base.READ_GAP_S`` says, which
            sets no limit under the stream handler, whose own deadlines rule.
        body_cap: Longest unstreamed answer.
        error_cap: How much of an error's body is read.
        line_cap, stream_cap: Longest line and longest stream.
        keep_alive: Whether connections are reused.
        redirects: Redirects followed within one origin.
    """

    # Ruling: L70, every answer has a cap; silence is the stream handler's to judge
    connect_timeout_s: float = 10.0
    read_gap_s: float | None = None
    body_cap: int = 10 * 1024 * 1024
    error_cap: int = 8 * 1024
    line_cap: int = 32 * 1024 * 1024
    stream_cap: int = 512 * 1024 * 1024
    keep_alive: bool = True
    redirects: int = 5


def is_loopback(host: str) -> bool:
    """Whether a host name is this machine: never through a proxy."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class _HttpxStream:
    __slots__ = ("_body", "_direct", "_response", "headers", "status")

    def __init__(self, response: Any, *, direct: bool) -> None:
        self._response = response
        self._direct = direct
        self.status: int = response.status_code
        self.headers: Sequence[tuple[str, str]] = response.headers.multi_items()
        self._body: AsyncIterator[bytes] | None = None

    def chunks(self) -> AsyncIterator[bytes]:
        response = self._response
        if response.headers.get("content-encoding", "identity") not in ("", "identity"):
            self._body = response.aiter_bytes()
        elif self._direct:  # what aiter_raw() iterates over, without its re-chunking
            self._body = aiter(response.stream)
        else:
            self._body = response.aiter_raw()
        return self._body

    async def aclose(self) -> None:
        await self._response.aclose()
        if self._body is not None:
            # Closed here and now: left to the garbage collector it would end in a task of its
            # own, after the turn.
            close = getattr(self._body, "aclose", None)
            self._body = None
            if close is not None:
                await close()


# httpx and httpx2 log the URL of each request and keep it in their errors. Their transport sends
# this extension's path instead, so what is secret in it is in neither.
_IDLE_EXPIRY_S: Final = 30.0
# What may stand in a query as it is; everything else is encoded.
_QUERY: Final = "%!$&'()*+,;=:@/?-._~[]"
_KNOWS_EXTENSIONS: Final = ("httpx", "httpx2")


class HttpxTransport:
    """httpx, or a client that quacks like it.

    Args:
        settings: Timeouts and limits.
        client: A factory of an ``AsyncClient``-like object, called on the engine's loop once
            for each loop; None makes httpx's own.
        host: Host of the endpoint, asked without a proxy when it is loopback.
    """

    def __init__(
        self,
        settings: HttpSettings,
        client: Callable[[], Any] | None = None,
        *,
        host: str = "",
        https: bool = True,
    ) -> None:
        self._settings = settings
        self._factory = client
        self._host = host
        self._https = https
        self._clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = (
            weakref.WeakKeyDictionary()
        )
        self._keepers: weakref.WeakKeyDictionary[
            asyncio.AbstractEventLoop, AsyncGenerator[None, None]
        ] = weakref.WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"<HttpxTransport {self._host or 'any host'}>"

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None = None,
        query: str = "",
    ) -> ByteStream:
        """Send one request on this loop's client."""
        client = self._clients.get(asyncio.get_running_loop()) or await self._start()
        more: dict[str, Any] = {}
        known = type(client).__module__.split(".")[0] in _KNOWS_EXTENSIONS
        if known:
            extensions: dict[str, Any] = {"timeout": self._timeout()}
            more["extensions"] = extensions
            query = quote(query, safe=_QUERY)
            if query and sys.platform != "emscripten":
                extensions["target"] = f"{urlsplit(url).path}?{query}".encode("ascii")
                query = ""
        request = client.build_request(
            method, f"{url}?{query}" if query else url, content=body, headers=headers, **more
        )
        response = await client.send(request, stream=True, follow_redirects=False)
        return _HttpxStream(response, direct=known)

    async def aclose(self) -> None:
        """Close this loop's client."""
        loop = asyncio.get_running_loop()
        keeper = self._keepers.pop(loop, None)
        if keeper is not None:
            await keeper.aclose()

    def _timeout(self) -> dict[str, float | None]:
        gap = self._settings.read_gap_s
        if gap is None:
            gap = READ_GAP_S.get()
        connect = self._settings.connect_timeout_s
        return {"connect": connect, "read": gap, "write": gap, "pool": None}

    async def _start(self) -> Any:
        loop = asyncio.get_running_loop()
        client = self._clients[loop] = (self._factory or self._make)()
        # The loop closes its async generators when it ends (asyncio.run, shutdown_asyncgens),
        # and this one closes the client: no loop leaves open connections behind (K02).
        keeper = self._keepers[loop] = _keep(client, weakref.ref(loop), self._clients)
        await anext(keeper)
        return client

    def _make(self) -> Any:
        # Here and not above: httpx and ssl are slow to import, and where another client is
        # injected (Pyodide) they need not even be there (F7).
        import ssl  # noqa: PLC0415  # at the first request, not at import

        import httpx  # noqa: PLC0415  # at the first request, not at import

        from notebook_agent.providers.direct import DirectTransport  # noqa: PLC0415  # at the first request, not at import

        s = self._settings
        idle = 20 if s.keep_alive else 0
        loopback = is_loopback(self._host)
        plain = loopback and not self._https
        verify = (
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if plain else _ssl_context(*_certificates())
        )
        mounts: dict[str, httpx.AsyncBaseTransport | None] = {}
        # Loopback never goes through a proxy; other hosts do when the usual variables say so.
        direct = bool(self._host) and (loopback or not _proxies())
        if direct:
            host = f"[{self._host}]" if ":" in self._host else self._host
            mounts[f"all://{host}"] = DirectTransport(
                verify, keep_alive=idle, expiry_s=_IDLE_EXPIRY_S
            )
        try:
            return self._client(httpx, verify, mounts, idle, trust_env=not direct)
        except (ImportError, ValueError, httpx.InvalidURL) as error:
            if direct:
                raise
            words = " ".join(str(error).split())[:200]
        raise ProviderError(
            ErrorKind.BAD_REQUEST,
            f"The proxy settings of the environment cannot be used: {words}. Nothing was sent.",
            hint="Proxies come from HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY.",
        )

    def _client(self, httpx: Any, verify: Any, mounts: Any, idle: int, *, trust_env: bool) -> Any:
        """httpx's own; the environment's proxies are read only where one may be used."""
        s = self._settings
        return httpx.AsyncClient(
            follow_redirects=False,
            trust_env=trust_env,
            timeout=httpx.Timeout(None, connect=s.connect_timeout_s),
            limits=httpx.Limits(
                max_connections=None,
                max_keepalive_connections=idle,
                keepalive_expiry=_IDLE_EXPIRY_S,
            ),
            verify=verify,
            mounts=mounts or None,
        )


async def _keep(
    client: Any,
    loop: weakref.ref[asyncio.AbstractEventLoop],
    clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Any],
) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        alive = loop()
        if alive is not None:
            clients.pop(alive, None)
        await client.aclose()


def _proxies() -> bool:
    return any(name != "no" for name in getproxies())


def is_proxied(host: str) -> bool:
    """Whether requests to a host go through a proxy of the environment."""
    return not is_loopback(host) and _proxies() and not proxy_bypass(host)


def _certificates() -> tuple[str | None, str | None]:
    return os.environ.get("SSL_CERT_FILE") or None, os.environ.get("SSL_CERT_DIR") or None


@lru_cache(maxsize=4)
def _ssl_context(file: str | None, folder: str | None) -> ssl.SSLContext:
    """One context for all clients: to load the certificates takes longer than a request."""
    import ssl  # noqa: PLC0415  # see _make

    import httpx  # noqa: PLC0415  # see _make

    try:
        if file or folder:
            return ssl.create_default_context(cafile=file, capath=folder)
        return httpx.create_ssl_context()
    except OSError as error:  # ssl.SSLError is one
        words = error.strerror or str(error)
    raise ProviderError(
        ErrorKind.BAD_REQUEST,
        f"The certificates of {file or folder or 'this machine'} cannot be read: {words}. "
        "Nothing was sent.",
        hint="They are named by SSL_CERT_FILE and SSL_CERT_DIR.",
    )
