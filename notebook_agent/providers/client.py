"""The HTTP model client: one request, one reply, whatever the wire format.

A format is a subclass that encodes a request and names its decoder. This class owns the order
of things: tests are not allowed to ask, the request is encoded, sent, decoded, and the response
is closed before the generator ends (L129, K05).

Source: LLM turn, "Two paths, one entry point" (L8, L9, L57), "StreamHandler" (L70).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, ClassVar, Final

from notebook_agent.core import events as e
from notebook_agent.core.accumulator import StreamAccumulator
from notebook_agent.core.request import RequestOptions, StreamRequest
from notebook_agent.core.response import ChatResponse
from notebook_agent.errors import ErrorKind, ProviderError
from notebook_agent.providers import hints
from notebook_agent.providers.base import Capabilities, check_allowed
from notebook_agent.providers.errors import from_error_object
from notebook_agent.providers.forced_tool import turner
from notebook_agent.providers.hints import unsupported
from notebook_agent.providers.http import Answer, Endpoint, Wire, bare
from notebook_agent.providers.secret import Secret
from notebook_agent.providers.sse import StreamCaps
from notebook_agent.providers.transport import HttpSettings, Transport
from notebook_agent.providers.wire import (
    UNHEARD_OF,
    Decoder,
    bare_error,
    load_lenient,
    looks_streamed,
)

__all__ = ["HttpModelClient", "hide", "unsupported"]

# After the reply's end marker the rest of the body is a few bytes that are usually here already.
# Reading them lets the connection be used again; a server that keeps it open is not waited for.
_DRAIN_S: Final = 0.05


def hide(given: dict[str, Any]) -> dict[str, Any]:
    """Constructor arguments with base URL and key wrapped, in place: a frame that fails shows its
    arguments."""
    for name in ("base_url", "key"):
        if isinstance(given.get(name), str):
            given[name] = Secret(given[name])
    return given


class HttpModelClient:
    """A model behind HTTP. Subclasses give one wire format each.

    Args:
        model: The bare model name.
        base_url: Where the service is; a key in its query or user part is kept out of sight.
        key: The key, or a function that finds it at use; None sends none.
        provider: The part before the colon in the full name.
        headers: More header fields; values may be Secret.
        capabilities: What the model can do, as far as it is known.
        settings: Timeouts and caps.
        http_client: Factory of an httpx-like client, called on the loop that uses it.
        transport: Factory of a whole transport instead.
        wall: Seconds since the epoch.
    """

    api: ClassVar[str] = ""
    # Media types of a whole reply; every other answer is streamed.
    whole_types: ClassVar[frozenset[str]] = frozenset({"application/json"})
    models_path: ClassVar[str] = "/models"
    # Ends of a base URL that requests bring themselves; people paste the whole address.
    own_paths: ClassVar[tuple[str, ...]] = ()
    requires_network = True

    def __init__(
        self,
        model: str,
        *,
        base_url: str | Secret,
        key: Secret | Callable[[], Secret | None] | str | None = None,
        provider: str = "",
        headers: Mapping[str, str | Secret] | None = None,
        capabilities: Capabilities | None = None,
        settings: HttpSettings | None = None,
        http_client: Callable[[], Any] | None = None,
        transport: Callable[[], Transport] | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        # From here on no variable of this frame holds a key: a failure below shows them all.
        address = base_url if isinstance(base_url, Secret) else Secret(base_url)
        base_url = ""
        key = Secret(key) if isinstance(key, str) else key
        problem = hints.wrong_argument(key, headers, capabilities)
        if problem is not None:
            key = headers = None
            raise problem
        self.provider = provider or self.api
        self._model = model
        self._key = key
        self._headers = dict(headers or {})
        self._capabilities = capabilities or Capabilities()
        self._wire = Wire(
            Endpoint.parse(address).without(self.own_paths),
            settings,
            secrets=self._secrets,
            client=http_client,
            transport=transport,
            wall=wall,
        )
        caps = self._wire.settings
        self._caps = StreamCaps(caps.line_cap, caps.stream_cap)

    def __repr__(self) -> str:
        wire = getattr(self, "_wire", None)  # not there yet while it is being made
        where = "nowhere" if wire is None else wire.endpoint.url
        return f"<{type(self).__name__} {self.provider}:{self._model} at {where}>"

    def model(self) -> str:
        """The bare model name."""
        return self._model

    def base_url(self) -> str:
        """The endpoint without anything secret; key of the rate limiter."""
        return self._wire.endpoint.url

    @property
    def full_name(self) -> str:
        """``provider:name``."""
        return f"{self.provider}:{self._model}"

    def capabilities(self) -> Capabilities:
        """What the model can do, as far as it is known."""
        return self._capabilities

    async def aclose(self) -> None:
        """Close this loop's connections."""
        await self._wire.aclose()

    async def stream_messages_with_options(
        self, request: StreamRequest, options: RequestOptions
    ) -> AsyncGenerator[e.StreamEvent, None]:
        """The reply as events.

        Raises:
            ProviderError: The request was refused, or the stream broke, failed or was cut.
        """
        answer = await self._ask(request, options, stream=True)
        turn = turner(options)
        try:
            decoder = self._decoder_for(answer)
            if decoder is None:  # a server that ignores "stream": the reply is whole
                events, failure = self.decode_reply(await answer.read())
                for event in events if turn is None else turn.turned(events):
                    yield event
                if failure is not None:
                    raise failure
                return
            failure = None
            chunk = b""
            chunks = answer.chunks()
            feed = decoder.feed if turn is None else turn.wrap(decoder.feed)
            try:
                async for chunk in chunks:
                    for event in feed(chunk):
                        if type(event) is e.MessageStop:
                            await _drain(chunks)
                        yield event
                    if decoder.ended or decoder.failure is not None:
                        break
            except Exception as caught:  # noqa: BLE001  # any library's error, turned into ours
                failure = self._wire.failure(caught, reading=True)
            except asyncio.CancelledError as caught:
                bare(caught)
            if failure is None:
                rest = decoder.finish()
                for event in rest if turn is None else turn.turned(rest):
                    yield event
            # Ruling: L57, the end was seen: an error of the transport after it changes nothing.
            failure = None if decoder.ended else decoder.failure or failure
            # The provider may have repeated the key: no frame of an error holds its words.
            del chunk, chunks, decoder, feed
            if failure is not None:
                event = e.Ping()
                raise self._explained(failure)
        finally:
            await answer.aclose()

    async def create_message_with_options(
        self, request: StreamRequest, options: RequestOptions
    ) -> ChatResponse:
        """The whole reply of one unstreamed request.

        Raises:
            ProviderError: The request failed, or the reply is no reply.
        """
        answer = await self._ask(request, options, stream=False)
        try:
            events, failure = self.decode_reply(await answer.read())
        finally:
            await answer.aclose()
        if failure is not None:
            raise failure
        accumulator = StreamAccumulator()
        turn = turner(options)
        for event in events if turn is None else turn.turned(events):
            accumulator.apply(event)
        return ChatResponse(
            accumulator.build(),
            accumulator.stop_reason,
            accumulator.usage,
            "",
            accumulator.ending,
            accumulator.ending_raw,
        )

    # What a format fills in.

    def encode(
        self, request: StreamRequest, options: RequestOptions, *, stream: bool
    ) -> tuple[str, bytes]:
        """The request as (path, body).

        Raises:
            ProviderError: An option that this client cannot honour (L7).
        """
        raise NotImplementedError

    def key_headers(self, key: Secret) -> dict[str, str | Secret]:
        """How the key travels."""
        return {"authorization": Secret(f"Bearer {key.reveal()}")}

    def more_headers(self) -> dict[str, str | Secret]:
        """Header fields that the format demands."""
        return {}

    def decoder(self, caps: StreamCaps) -> Decoder:
        """A fresh decoder, of a streamed answer or of a whole reply."""
        raise NotImplementedError

    # What they share.

    def decode_reply(self, body: bytes) -> tuple[list[e.StreamEvent], ProviderError | None]:
        """Events of an unstreamed reply, or the error of an error object in a 2xx answer or of
        something that is no reply (kind DECODE).

        Returned, not raised: this frame holds the provider's bytes.
        """
        out: list[e.StreamEvent] = []
        try:
            document = load_lenient(body)
        except ValueError:
            document = None
        with contextlib.suppress(ProviderError, *UNHEARD_OF):  # then it is no reply
            if document is not None and self.decoder(self._caps).whole(document, out):
                return out, None
        if document is None and looks_streamed(body):
            # A server that streams whatever it is asked, or mislabels its stream.
            decoder = self.decoder(self._caps)
            out = decoder.feed(body) + decoder.finish()
            failed = decoder.failure
            return out, None if failed is None else self._explained(failed)
        error = from_error_object(document) or self._no_reply(body)
        return [], self._explained(error)

    async def list_models(self) -> list[str]:
        """Names that the endpoint offers.

        Raises:
            ProviderError: The endpoint does not answer.
        """
        return self.names_in(await self.get_json(self.models_path))

    async def get_json(self, path: str, body: bytes | None = None) -> Any:
        """A document of the endpoint (models, properties, counts); a POST when it has a body.

        Raises:
            ProviderError: It was refused or is no JSON.
        """
        check_allowed(self.full_name)
        method = "GET" if body is None else "POST"
        try:
            answer = await self._wire.open(path, self._all_headers(), body, method=method)
        except ProviderError as problem:
            error = self._explained(problem)
        else:
            try:
                document, failure = self._document(await answer.read())
            finally:
                await answer.aclose()
            if failure is None:
                return document
            error = failure
        raise error

    def _document(self, sent: bytes) -> tuple[Any, ProviderError | None]:
        try:
            document = load_lenient(sent)
        except ValueError:
            return None, self._no_reply(sent)
        refused = from_error_object(document)
        return document, None if refused is None else self._explained(refused)

    @staticmethod
    def names_in(document: Any) -> list[str]:
        """Model names of a listing: under ``data`` or ``models``, by ``id``, ``name`` or ``model``."""
        entries = document
        if isinstance(document, dict):
            entries = document.get("data") or document.get("models")
        rows = [e for e in entries if isinstance(e, dict)] if isinstance(entries, list) else []
        names = [row.get("id") or row.get("name") or row.get("model") for row in rows]
        return sorted({name for name in names if isinstance(name, str)})

    async def _ask(
        self, request: StreamRequest, options: RequestOptions, *, stream: bool
    ) -> Answer:
        check_allowed(self.full_name)
        try:
            path, body = self.encode(request, options, stream=stream)
        except (TypeError, ValueError, OverflowError, RecursionError) as problem:
            raise hints.unwritable(problem, self.full_name) from problem
        try:
            return await self._wire.open(path, self._all_headers(), body)
        except ProviderError as problem:
            error = self._explained(problem, options.model)
        raise error

    def _all_headers(self) -> dict[str, str | Secret]:
        headers: dict[str, str | Secret] = {"content-type": "application/json"}
        if not self._wire.settings.keep_alive:
            headers["connection"] = "close"
        key = self._the_key()
        if key:
            problem = hints.unsendable(key, self.provider)
            if problem is not None:
                raise self._explained(problem)
            headers.update(self.key_headers(key))
        headers.update(self.more_headers())
        given = {name.lower() for name in self._headers}
        headers = {name: value for name, value in headers.items() if name.lower() not in given}
        headers.update(self._headers)
        return headers

    def _the_key(self) -> Secret | None:
        """The key as it is now; white space around it is no part of it."""
        key = self._key() if callable(self._key) else self._key
        return Secret(key.reveal().strip()) if key else None

    def _secrets(self) -> tuple[Secret, ...]:
        given = [v for v in self._headers.values() if isinstance(v, Secret)]
        with contextlib.suppress(Exception):  # a key that cannot be found hides nothing
            given += [key for key in (self._the_key(),) if key]
        return tuple(given)

    def _decoder_for(self, answer: Answer) -> Decoder | None:
        kind = answer.content_type
        if kind in ("text/html", "application/xhtml+xml"):
            raise self._no_reply(b"<html>")
        return None if kind in self.whole_types else self.decoder(self._caps)

    def _no_reply(self, body: bytes) -> ProviderError:
        text = " ".join(body[:400].decode("utf-8", "replace").split())
        if text.lower().startswith(("<!doctype", "<html", "<head")):
            what = "an HTML page, not with a reply"
        else:
            what = f"something that is no reply: {self._wire.clean(text)[:200] or 'nothing'}"
        return ProviderError(
            ErrorKind.DECODE,
            f"{self._wire.endpoint.host} answered with {what}.",
            hint=f"Check the base URL: {self.base_url()}",
        )

    def _explained(self, error: ProviderError, model: str | None = None) -> ProviderError:
        """The error with the line to type (N11), and without keys."""
        error.message = self._wire.clean(error.message)
        error.args = (error.message,)
        if not error.hint:
            error.hint = hints.hint_for(
                error,
                provider=self.provider,
                model=model or self._model,
                base_url=self.base_url(),
                key_given=self._key is not None and not callable(self._key),
            )
        return bare_error(error)


async def _drain(chunks: Any) -> None:
    """Read the few bytes behind the end marker."""
    try:
        async with asyncio.timeout(_DRAIN_S):
            async for _ in chunks:
                pass
    except Exception:  # noqa: BLE001, S110  # the reply is complete, whatever its connection does
        pass
