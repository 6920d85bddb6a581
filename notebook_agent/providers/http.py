"""One endpoint over HTTP: addresses, keys, redirects, caps, and errors in plain words.

``Endpoint`` is where requests go, ``Wire`` sends them over a transport. No retries here: the
turn's ladder owns them. A redirect is followed only inside the same origin (X04). No error,
chain of errors, repr or log of ours holds a key (X05): whatever the HTTP library raises is
turned into a ProviderError outside of its ``except`` block, so that no frame of the library, and
no local variable with a header in it, is reachable from what the user sees.

Source: LLM turn, "StreamHandler" (L58, L69, L70, L129).
"""

from __future__ import annotations

import contextlib
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn
from urllib.parse import unquote, urljoin, urlsplit

from notebook_agent.errors import ConfigError, ErrorKind, ProviderError
from notebook_agent.providers.base import READ_GAP_S
from notebook_agent.providers.errors import from_response
from notebook_agent.providers.failures import transport_failure
from notebook_agent.providers.secret import Secret, guard_logs, scrub
from notebook_agent.providers.transport import (
    ByteStream,
    HttpSettings,
    HttpxTransport,
    Transport,
    is_proxied,
)

__all__ = ["Answer", "Endpoint", "Wire", "bare"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A base URL taken apart.

    Attributes:
        url: Scheme, host, port and path: all that may be shown.
        host: ``host:port`` for messages.
        hostname: The bare host.
        query: The base URL's query, sent with every request; it may hold a key.
        userinfo: ``user:password`` of the base URL, sent as Basic authorization.
    """

    url: str
    host: str
    hostname: str
    query: Secret
    userinfo: Secret

    @classmethod
    def parse(cls, base_url: str | Secret) -> Endpoint:
        """The endpoint of a base URL.

        Raises:
            ConfigError: It is no http(s) address. The text does not repeat it: it may hold a key.
        """
        found = _taken_apart(base_url.reveal() if isinstance(base_url, Secret) else base_url)
        base_url = ""
        if found is None:
            raise ConfigError(
                "The base URL is not an address that can be asked.\n"
                "Give one like:  https://api.example.com/v1",
                field="base_url",
                legal="http://host[:port][/path] or https://...",
            )
        return found

    def without(self, endings: Sequence[str]) -> Endpoint:
        """The endpoint without the first of these ends of a path: what requests add themselves."""
        found = next((one for one in endings if self.url.endswith(one)), "")
        return replace(self, url=self.url.removesuffix(found)) if found else self

    @property
    def basic(self) -> Secret:
        """The user part as a Basic authorization has it, empty where there is none."""
        return Secret(b64encode(self.userinfo.reveal().encode()).decode("ascii"))

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """What must not show in a message."""
        user, _, password = self.userinfo.reveal().partition(":")
        basic = self.basic.reveal()  # some servers repeat the header that they were sent
        values = [v.partition("=")[2] for v in self.query.reveal().split("&")]
        return tuple(
            Secret(v) for v in (self.query.reveal(), *values, user, password, basic) if len(v) >= 8
        )


def _taken_apart(base_url: object) -> Endpoint | None:
    if not isinstance(base_url, str):
        return None
    try:
        parts = urlsplit(base_url.strip())
        port = parts.port
        hostname = parts.hostname or ""
    except ValueError:
        return None
    blank = any(c.isspace() for c in parts.netloc)
    if parts.scheme not in ("http", "https") or not hostname or blank:
        return None
    shown = f"[{hostname}]" if ":" in hostname else hostname
    host = shown if port is None else f"{shown}:{port}"
    user = parts.netloc.rpartition("@")[0]
    return Endpoint(
        f"{parts.scheme}://{host}{parts.path.rstrip('/')}",
        host,
        hostname,
        Secret(parts.query),
        Secret(unquote(user)),
    )


# Statuses of a redirect that keeps method and body. 303 asks for a GET: nothing to read there.
_REDIRECTS: Final = frozenset({301, 302, 307, 308})
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class Answer:
    """A 2xx answer: its head, and its body as it comes.

    Attributes:
        content_type: Media type without parameters, lower case.
    """

    __slots__ = ("_stream", "_wire", "content_type")

    def __init__(self, stream: ByteStream, wire: Wire) -> None:
        self._stream = stream
        self._wire = wire
        head = next((v for k, v in stream.headers if k.lower() == "content-type"), "")
        self.content_type = head.partition(";")[0].strip().lower()

    def chunks(self) -> AsyncIterator[bytes]:
        """The body; the library's own errors come out of it, see :meth:`Wire.failure`."""
        return self._stream.chunks()

    async def read(self) -> bytes:
        """The whole body.

        Raises:
            ProviderError: It is longer than the cap, or broke off.
        """
        cap = self._wire.settings.body_cap
        lengths = [v for k, v in self._stream.headers if k.lower() == "content-length"]
        if lengths and lengths[0].isdigit() and int(lengths[0]) > cap:
            raise self._too_long(cap)
        parts: list[bytes] = []
        size = 0
        failure: ProviderError | None = None
        try:
            async for chunk in self._stream.chunks():
                size += len(chunk)
                if size > cap:
                    break
                parts.append(chunk)
        except Exception as caught:  # noqa: BLE001  # any library's error, turned into ours
            failure = self._wire.failure(caught, reading=True)
        except BaseException as caught:  # noqa: BLE001  # raised again, bare
            bare(caught)
        if failure is not None:
            raise failure
        if size > cap:
            raise self._too_long(cap)
        return b"".join(parts)

    def _too_long(self, cap: int) -> ProviderError:
        return ProviderError(
            ErrorKind.DECODE,
            f"The reply of {self._wire.endpoint.host} is longer than the cap of {cap:,} bytes.",
        )

    async def aclose(self) -> None:
        """Close the stream; never raises."""
        with contextlib.suppress(Exception):  # closing a broken connection: it is closed
            await self._stream.aclose()


class Wire:
    """Sends requests to one endpoint.

    Args:
        endpoint: Where to.
        settings: Timeouts and caps.
        secrets: The keys in use, for scrubbing messages; asked at each failure.
        client: Factory of an httpx-like client, called on the loop that uses it.
        transport: Factory of a whole transport instead.
        wall: Seconds since the epoch, for dates in ``Retry-After``.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        settings: HttpSettings | None = None,
        *,
        secrets: Callable[[], tuple[Secret, ...]] = tuple,
        client: Callable[[], Any] | None = None,
        transport: Callable[[], Transport] | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.endpoint = endpoint
        self.settings = settings or HttpSettings()
        self._secrets = secrets
        self._wall = wall
        self._transport: Transport = (
            transport()
            if transport is not None
            else HttpxTransport(
                self.settings,
                client,
                host=endpoint.hostname,
                https=endpoint.url.startswith("https"),
            )
        )
        guard_logs(self)

    def __repr__(self) -> str:
        return f"<Wire {self.endpoint.url}>"

    async def open(
        self,
        path: str,
        headers: Mapping[str, str | Secret],
        body: bytes | None = None,
        *,
        method: str = "POST",
    ) -> Answer:
        """Send a request and wait for the head of the answer.

        Args:
            path: Added to the endpoint's path; ``?a=b`` in it joins the endpoint's query.
            headers: Header fields; keys as Secret.
            body: The request body.
            method: POST or GET.

        Returns:
            The answer. The caller closes it.

        Raises:
            ProviderError: No connection, a status that is not 2xx, or a redirect elsewhere.
        """
        path, _, query = path.partition("?")
        url = self.endpoint.url + path
        for _ in range(self.settings.redirects + 1):
            stream = await self._send(method, url, query, headers, body)
            if 200 <= stream.status < 300:
                return Answer(stream, self)
            answer = Answer(stream, self)
            try:
                location = next((v for k, v in stream.headers if k.lower() == "location"), None)
                if not 300 <= stream.status < 400 or location is None:
                    raise await self._refused(stream, answer)
                url, query = self._redirect(stream.status, url, location)
            finally:
                await answer.aclose()
        raise ProviderError(
            ErrorKind.PROVIDER,
            f"{self.endpoint.host} redirected more than {self.settings.redirects} times.",
            status=stream.status,
        )

    async def aclose(self) -> None:
        """Close this loop's connections."""
        await self._transport.aclose()

    async def _send(
        self,
        method: str,
        url: str,
        query: str,
        headers: Mapping[str, str | Secret],
        body: bytes | None,
    ) -> ByteStream:
        failure: ProviderError | None = None
        try:
            # Keys are revealed inside this expression only: no variable of ours holds one.
            return await self._transport.send(
                method,
                url,
                headers=self._revealed(headers),
                body=body,
                query="&".join(q for q in (self.endpoint.query.reveal(), query) if q),
            )
        except Exception as caught:  # noqa: BLE001  # any library's error, turned into ours
            failure = self.failure(caught)
        except BaseException as caught:  # noqa: BLE001  # raised again, bare
            bare(caught)
        raise failure

    def _revealed(self, headers: Mapping[str, str | Secret]) -> dict[str, str]:
        out = {k: v.reveal() if isinstance(v, Secret) else v for k, v in headers.items()}
        basic = self.endpoint.basic.reveal()
        if basic and "authorization" not in {k.lower() for k in out}:
            out["authorization"] = f"Basic {basic}"
        return out

    async def _refused(self, stream: ByteStream, answer: Answer) -> ProviderError:
        """The error of a status that is not 2xx, read from the first kilobytes of its body."""
        cap = self.settings.error_cap
        parts: list[bytes] = []
        size = 0
        try:
            async for chunk in answer.chunks():
                parts.append(chunk)
                size += len(chunk)
                if size >= cap:
                    break
        except Exception:  # noqa: BLE001, S110  # the status says enough without its body
            pass
        except BaseException as caught:  # noqa: BLE001  # raised again, bare
            bare(caught)
        error = from_response(
            stream.status,
            stream.headers,
            b"".join(parts)[:cap],
            host=self.endpoint.host,
            wall=self._wall,
        )
        error.message = self.clean(error.message)
        error.args = (error.message,)
        return error

    def _redirect(self, status: int, url: str, location: str) -> tuple[str, str]:
        there = urljoin(url, location)
        old, new = urlsplit(url), urlsplit(there)
        if status in _REDIRECTS and _origin(old) == _origin(new):
            return f"{old.scheme}://{old.netloc}{new.path}", new.query
        same = _origin(old) == _origin(new)
        raise ProviderError(
            ErrorKind.PROVIDER,
            f"{old.netloc} answered with a redirect ({status}) to "
            f"{self.clean(new.hostname or 'nowhere')}"
            + (", which asks for another method." if same else ", another host.")
            + " It was not followed: the key and the prompt stay here.",
            status=status,
            hint="If that host is meant, set it as the base URL.",
        )

    def secrets(self) -> tuple[Secret, ...]:
        """The keys in use and those in the base URL."""
        return (*self._secrets(), *self.endpoint.secrets)

    def clean(self, text: str) -> str:
        """A message without keys."""
        return scrub(text, self.secrets())

    def failure(self, caught: BaseException, *, reading: bool = False) -> ProviderError:
        """Our error for the HTTP library's, with no link to it.

        Args:
            caught: What the library raised.
            reading: Whether the body was being read.
        """
        if isinstance(caught, ProviderError):
            return caught
        return transport_failure(
            type(caught).__name__,
            self.clean(" ".join(str(caught).split()))[:300],
            host=self.endpoint.host,
            url=self.endpoint.url,
            connect_s=self.settings.connect_timeout_s,
            gap_s=self.settings.read_gap_s or READ_GAP_S.get() or 0.0,
            reading=reading,
            proxied=is_proxied(self.endpoint.hostname),
        )


def _origin(parts: Any) -> tuple[str, str, int | None]:
    return parts.scheme, parts.hostname or "", parts.port or _DEFAULT_PORTS.get(parts.scheme)


def bare(caught: BaseException) -> NoReturn:
    """Raise a cancel or interrupt again without the library's frames, which hold headers."""
    caught.__context__ = None
    caught.__cause__ = None
    raise caught.with_traceback(None)
