"""What every wire format shares: lenient JSON, lanes, and the decoder's interface.

A decoder is fed bytes and gives stream events. It never waits, so the same one serves a live
stream, a recorded body and a test that cuts a body at every byte.

Source: LLM turn, "Event routing, exactly" (L9, L36-L41, L56, L57).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any, ClassVar, Final, Protocol, TypeVar

import msgspec

from notebook_agent.core import events as e
from notebook_agent.core.messages import MessagePart, TextPart, ToolCallPart
from notebook_agent.core.response import Ending, StopReason, Usage
from notebook_agent.core.text import clean_json
from notebook_agent.errors import ProviderError
from notebook_agent.providers.errors import (
    classify,
    error_object,
    malformed,
    refusal_of,
    stray_refusal,
    truncated,
)
from notebook_agent.providers.halves import Halves
from notebook_agent.providers.sse import Named, Splitter, SseEvents, StreamCaps

__all__ = [
    "MADE_ID",
    "UNHEARD_OF",
    "Decoder",
    "Lanes",
    "StreamDecoder",
    "bare_error",
    "call_arguments",
    "decode_lenient",
    "load_lenient",
    "looks_streamed",
    "mapping",
    "usage_int",
]

# Ids that we made because the wire carried none start like this; they are never sent back to a
# service that has no ids.
MADE_ID = "made_"

# What reading a document raises whose values have types that nobody expects there.
UNHEARD_OF: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)

T = TypeVar("T")


def load_lenient(payload: bytes, *, clean: bool = True) -> Any:
    """A JSON document as sloppy servers write it: bad UTF-8 becomes U+FFFD, raw control
    characters inside strings stay, lone surrogates and NUL become U+FFFD (S01, S02, D9).

    Args:
        payload: The document.
        clean: False leaves surrogates and NUL for :class:`Halves`.

    Raises:
        ValueError: It is no JSON even so.
    """
    try:  # utf-8-sig: a byte order mark in front is no part of the document
        document = json.loads(payload.decode("utf-8-sig", "replace"), strict=False)
        return clean_json(document) if clean else document
    except RecursionError:
        raise ValueError("nested too deeply") from None


def decode_lenient(payload: bytes, decode: msgspec.json.Decoder[T]) -> T:
    """Typed decoding of a document that strict decoding refused; strings are not cleaned yet.

    Raises:
        ProviderError: It is no JSON, its fields have types nobody expects (L56), or it is an
            error in some other form.
    """
    document = None
    try:
        document = load_lenient(payload, clean=False)
        found: T = msgspec.convert(document, decode.type, strict=False)
        return found
    except (ValueError, msgspec.ValidationError) as problem:
        why = "" if type(problem) is ValueError else str(problem)
    refusal = stray_refusal(document)
    raise malformed(payload, why[:120]) if refusal is None else classify(None, refusal)


def bare_error(error: ProviderError) -> ProviderError:
    """The error without its frames and what led to it: they hold bytes of the provider (X05)."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def usage_int(value: object) -> int | None:
    """A token count as sent; None for what is no number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
        return None
    return int(value)


def call_arguments(given: object) -> tuple[dict[str, Any] | None, str]:
    """Arguments that came in one piece: (the object, its text).

    Text stays text, and a value that is neither is refused where arguments are judged (L41).
    """
    if isinstance(given, str):
        return None, given
    whole = {} if given is None else given
    return whole if isinstance(whole, dict) else None, msgspec.json.encode(whole).decode()


def mapping(value: object) -> dict[str, Any]:
    """A JSON object, empty for anything else."""
    return value if isinstance(value, dict) else {}


class Decoder(Protocol):
    """Bytes of one reply to events.

    Attributes:
        failure: Set when the reply failed: an error object, a document that does not decode, a
            cut. Events that came before it were given already.
        error: The error object inside the stream, as sent.
        ended: Whether the reply's end was seen (L57); ``MessageStop`` was given.
        usage_sent: The provider's last usage figures, under its own names.
    """

    failure: ProviderError | None
    error: Any
    ended: bool
    usage_sent: dict[str, Any]

    def feed(self, chunk: bytes) -> list[e.StreamEvent]:
        """Events that this chunk completes."""
        ...

    def finish(self) -> list[e.StreamEvent]:
        """Events at a clean end of the body."""
        ...

    def whole(self, document: Any, out: list[e.StreamEvent]) -> bool:
        """Events of an unstreamed reply.

        Returns:
            Whether the document is a reply at all.
        """
        ...


class Lanes:
    """The open parts of a reply, numbered in the order in which they appear."""

    __slots__ = ("_open", "count")

    def __init__(self) -> None:
        self._open: dict[object, int] = {}
        self.count = 0

    def index(self, key: object) -> int | None:
        """The number of an open lane."""
        return self._open.get(key)

    def open(self, key: object, part: MessagePart | None, out: list[e.StreamEvent]) -> int:
        """Open a lane and return its number."""
        index = self._open[key] = self.count
        self.count += 1
        out.append(e.PartStart(index, part))
        return index

    def text(self, text: str, out: list[e.StreamEvent], *, refusal: bool = False) -> None:
        """A fragment of text or refusal."""
        key = "refusal" if refusal else "text"
        index = self._open.get(key)
        if index is None:
            index = self.open(key, TextPart("", refusal), out)
        out.append(e.IndexedDelta(index, e.Text(text, refusal)))

    def thinking(self, text: str, out: list[e.StreamEvent]) -> None:
        """A fragment of reasoning; empty means redacted (L37)."""
        index = self._open.get("thinking")
        if index is None:
            index = self.open("thinking", None, out)
        out.append(e.IndexedDelta(index, e.Thinking(text)))

    def call(self, call_id: str, name: str, raw: str, out: list[e.StreamEvent]) -> None:
        """A whole tool call in one piece."""
        key = ("call", self.count)
        index = self.open(key, ToolCallPart(call_id, name), out)
        if raw:
            out.append(e.IndexedDelta(index, e.InputJson(raw)))

    def close(self, key: object, out: list[e.StreamEvent]) -> None:
        """Close one lane, if it is open."""
        index = self._open.pop(key, None)
        if index is not None:
            out.append(e.PartStop(index))

    def close_all(self, out: list[e.StreamEvent]) -> None:
        """Close what is open, oldest first."""
        out.extend(e.PartStop(index) for index in self._open.values())
        self._open.clear()


class StreamDecoder:
    """A decoder over a splitter. A format fills in :meth:`item` and :meth:`at_end`.

    Args:
        caps: Longest line and whole stream.
    """

    # The provider's ending words -> ending; each format has its own table.
    ENDINGS: ClassVar[Mapping[str, Ending]] = {}

    def __init__(self, caps: StreamCaps | None = None) -> None:
        self.splitter: Splitter = self.make_splitter(caps)
        self.failure: ProviderError | None = None
        self.error: Any = None
        self.ended = False
        self.usage_sent: dict[str, Any] = {}
        self.started = False
        self.ending_raw: str | None = None
        self.events = 0
        self.lanes = Lanes()
        self.halves: Halves | None = None  # once a document needed lenient decoding

    def make_splitter(self, caps: StreamCaps | None) -> Splitter:
        """How the body is cut into documents."""
        return SseEvents(caps)

    def feed(self, chunk: bytes) -> list[e.StreamEvent]:
        """Events that this chunk completes; empty once the reply ended or failed."""
        out: list[e.StreamEvent] = []
        if self.ended or self.failure is not None:
            return out
        try:
            for item in self.splitter.feed(chunk):
                if item is None:
                    out.append(e.Ping())
                elif isinstance(item, bytes):
                    self.guarded(item, out)
                else:
                    self._named(item)
                if self.ended or self.failure is not None:
                    break
        except ProviderError as problem:
            self.failure = bare_error(problem)
        if self.halves is not None:
            out = self.halves.cleaned(out)
        self.events += len(out)
        return out

    def finish(self) -> list[e.StreamEvent]:
        """Events at a clean end of the body; without an end of the reply it is a cut (L57)."""
        out: list[e.StreamEvent] = []
        if self.ended or self.failure is not None:
            return out
        try:
            for item in self.splitter.finish():
                if isinstance(item, Named):
                    self._named(item)
                elif item is not None:
                    self.guarded(item, out)
        except ProviderError:
            pass  # the body ended inside this document: judged below
        if not self.ended and self.failure is None:
            self.at_end(out)
        if self.halves is not None:
            out = self.halves.cleaned(out)
        self.events += len(out)
        if not self.ended and self.failure is None:
            self.failure = truncated(self.events)
        return out

    def lenient(self, payload: bytes, decode: msgspec.json.Decoder[T]) -> T:
        """Decode a document that strict decoding refused; from now on text is cleaned.

        Raises:
            ProviderError: It is no JSON even so (L56).
        """
        if self.halves is None:
            self.halves = Halves()
        return decode_lenient(payload, decode)

    def item(self, payload: bytes, out: list[e.StreamEvent]) -> None:
        """One document of the stream."""
        raise NotImplementedError

    def guarded(self, payload: bytes, out: list[e.StreamEvent]) -> None:
        """One document; one with values of unheard-of types inside is malformed like any other.

        Raises:
            ProviderError: It does not decode (L56).
        """
        try:
            self.item(payload, out)
        except UNHEARD_OF:
            raise malformed(payload, "a value of a type that the format does not have") from None

    def at_end(self, out: list[e.StreamEvent]) -> None:
        """A clean end of the body without an end marker: a finish reason counts as the end."""
        if self.ending_raw is not None:
            self.stop(out)

    def start(self, out: list[e.StreamEvent], id: str = "", model: str = "") -> None:
        """Open the message, once."""
        if not self.started:
            self.started = True
            out.append(e.MessageStart(id or "", "assistant", model or ""))

    def stop(self, out: list[e.StreamEvent]) -> None:
        """The reply's end: close the lanes and give ``MessageStop``."""
        self.start(out)
        self.lanes.close_all(out)
        self.ended = True
        out.append(e.MessageStop())

    def ending(self, word: str, out: list[e.StreamEvent], usage: Usage | None = None) -> None:
        """The provider named how the reply ended."""
        self.ending_raw = word
        ending = self.ENDINGS.get(word.lower(), Ending.UNKNOWN)
        known = ending.value in _STEERS
        out.append(e.MessageDelta(ending.value if known else word, usage, ending, word))

    def refuse(self, document: Any) -> None:
        """A document that reports an error, whatever its form: the attempt has failed (S10)."""
        self.failure = classify(None, refusal_of(document))
        inner = document.get("error") if isinstance(document, dict) else None
        self.error = inner or document

    def stray(self, payload: bytes, out: list[e.StreamEvent]) -> None:
        """A document that is no part of a reply: an error in some other form, or a sign of life."""
        document = load_lenient(payload)
        if stray_refusal(document) is None:
            out.append(e.Ping())
        else:
            self.refuse(document)

    def _named(self, item: Named) -> None:
        """``event: error``, whatever its data is."""
        try:
            document = load_lenient(item.data)
        except ValueError:
            document = item.data.decode("utf-8", "replace").strip()
        if error_object(document) is None and not isinstance(document, dict):
            document = {"error": document if isinstance(document, str) else str(document)}
        self.refuse(document)


_STEERS = frozenset(reason.value for reason in StopReason)


def looks_streamed(body: bytes) -> bool:
    """Whether the body of a reply that should be whole is a stream."""
    start = body[:64].lstrip(b"\xef\xbb\xbf \t\r\n")
    events = start.startswith((b"data:", b"event:", b": ", b":\n", b":\r"))
    return events or (start[:1] == b"{" and b"\n{" in body)  # or a document a line
