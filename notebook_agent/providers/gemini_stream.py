"""Gemini generateContent: the reply, as server-sent events, as a JSON array, or whole, to events.

There is no end marker: a finish reason and a clean end of the body are the end (L57). There is no
word for tool calls: a reply that ends cleanly and holds a call ended in a tool call (L5a).
Thought signatures are kept with the place of their part and travel back (L2).

Source: LLM turn, "Event routing, exactly" (L2, L5a, L36-L41, L57).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import msgspec

from notebook_agent.core import events as e
from notebook_agent.core.messages import ToolCallPart
from notebook_agent.core.response import Ending, Usage
from notebook_agent.errors import ProviderError
from notebook_agent.providers.sse import Item, JsonArray, Splitter, SseEvents, StreamCaps
from notebook_agent.providers.wire import (
    MADE_ID,
    StreamDecoder,
    call_arguments,
    load_lenient,
    usage_int,
)

__all__ = ["GeminiDecoder", "gemini_usage"]


class _Part(msgspec.Struct):
    text: str | None = None
    thought: bool | None = None
    thoughtSignature: str | None = None  # noqa: N815  # the wire's name
    functionCall: dict[str, Any] | None = None  # noqa: N815  # the wire's name


class _Content(msgspec.Struct):
    parts: list[_Part | None] | None = None


class _Candidate(msgspec.Struct):
    content: _Content | list[Any] | None = None
    finishReason: str | None = None  # noqa: N815  # the wire's name
    index: int | None = 0


class _Chunk(msgspec.Struct):
    candidates: list[_Candidate | None] | None = None
    usageMetadata: dict[str, Any] | None = None  # noqa: N815  # the wire's name
    promptFeedback: dict[str, Any] | None = None  # noqa: N815  # the wire's name
    modelVersion: str | None = None  # noqa: N815  # the wire's name
    responseId: str | None = None  # noqa: N815  # the wire's name
    error: Any = None


_CHUNK: Final = msgspec.json.Decoder(_Chunk)


def gemini_usage(sent: Mapping[str, Any]) -> Usage:
    """Usage in our words; thoughts are not part of the output count."""
    return Usage(
        usage_int(sent.get("promptTokenCount")),
        usage_int(sent.get("candidatesTokenCount")),
        usage_int(sent.get("cachedContentTokenCount")),
        None,
        usage_int(sent.get("thoughtsTokenCount")),
        output_includes_reasoning=False,
    )


class _Either:
    """Server-sent events or a JSON array: the first byte that is no white space tells."""

    def __init__(self, caps: StreamCaps | None) -> None:
        self._caps = caps
        self._inner: Splitter | None = None

    def feed(self, chunk: bytes) -> list[Item]:
        if self._inner is None:
            first = chunk.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
            if not first:
                return []
            self._inner = JsonArray(self._caps) if first in b"[{" else SseEvents(self._caps)
        return self._inner.feed(chunk)

    def finish(self) -> list[Item]:
        return [] if self._inner is None else self._inner.finish()


class GeminiDecoder(StreamDecoder):
    """Response chunks to events.

    Args:
        caps: Longest line and whole stream.
        full_name: ``provider:name``, kept in provider state (L2).
    """

    ENDINGS: ClassVar[Mapping[str, Ending]] = {
        "stop": Ending.END_TURN,
        "function_call": Ending.TOOL_CALL,  # not Google's own: servers that speak its format
        "max_tokens": Ending.MAX_TOKENS,
        "safety": Ending.CONTENT_FILTER,
        "recitation": Ending.CONTENT_FILTER,
        "language": Ending.CONTENT_FILTER,
        "blocklist": Ending.CONTENT_FILTER,
        "prohibited_content": Ending.CONTENT_FILTER,
        "spii": Ending.CONTENT_FILTER,
        "image_safety": Ending.CONTENT_FILTER,
        "malformed_function_call": Ending.ERROR,
        "unexpected_tool_call": Ending.ERROR,
        "too_many_tool_calls": Ending.ERROR,
        "other": Ending.UNKNOWN,
        "finish_reason_unspecified": Ending.UNKNOWN,
    }

    def __init__(self, caps: StreamCaps | None = None, *, full_name: str = "") -> None:
        super().__init__(caps)
        self._full_name = full_name
        self._id = ""
        self._calls = 0
        self._texts = False  # whether the open text lane is the last thing that came
        self._parts = 0
        self._signatures: list[dict[str, Any]] = []

    def make_splitter(self, caps: StreamCaps | None) -> Splitter:
        """Both framings."""
        return _Either(caps)

    def item(self, payload: bytes, out: list[e.StreamEvent]) -> None:
        """One response chunk."""
        try:
            chunk = _CHUNK.decode(payload) if b"\\u0000" not in payload else None
        except msgspec.DecodeError:
            if payload.strip() == b"[DONE]":
                return
            chunk = None
        if chunk is None:
            chunk = self.lenient(payload, _CHUNK)
        self._chunk(chunk, payload, out)

    def at_end(self, out: list[e.StreamEvent]) -> None:
        """The end of the body: an end of the reply when it named a finish reason."""
        if self.ending_raw is None:
            return
        if self._signatures and self._calls:
            state = {"model": self._full_name, "signatures": self._signatures}
            out.append(e.IndexedDelta(0, e.ProviderState(state)))
        if self._calls and self.ENDINGS.get(self.ending_raw.lower()) is Ending.END_TURN:
            word = Ending.TOOL_CALL.value
            out.append(e.MessageDelta(word, None, Ending.TOOL_CALL, self.ending_raw))
        self.stop(out)

    def whole(self, document: Any, out: list[e.StreamEvent]) -> bool:
        """An unstreamed reply (or the list of chunks of one).

        Returns:
            Whether the document is a response.
        """
        documents = document if isinstance(document, list) else [document]
        for one in documents:
            if not isinstance(one, dict) or not ("candidates" in one or "promptFeedback" in one):
                return False
            try:
                self.item(msgspec.json.encode(one), out)
            except ProviderError:
                return False
        if self.failure is None:
            self.at_end(out)
        return self.ended

    def _chunk(self, chunk: _Chunk, payload: bytes, out: list[e.StreamEvent]) -> None:
        if chunk.error:
            self.refuse(load_lenient(payload))
            return
        fields = (chunk.candidates, chunk.usageMetadata, chunk.promptFeedback, chunk.responseId)
        if all(field is None for field in fields):
            self.stray(payload, out)
            return
        if not self.started:
            self._id = chunk.responseId or ""
            self.start(out, self._id, chunk.modelVersion or "")
        sent = chunk.usageMetadata
        for candidate in chunk.candidates or ():
            if candidate is None or candidate.index:
                continue
            content = candidate.content
            for part in (content.parts or ()) if isinstance(content, _Content) else ():
                if part is not None:
                    self._part(part, out)
            if candidate.finishReason and candidate.finishReason != self.ending_raw:
                self.ending(candidate.finishReason, out)
        if sent and sent != self.usage_sent:
            self.usage_sent = {
                **self.usage_sent,
                **{k: v for k, v in sent.items() if v is not None},
            }
            out.append(e.MessageDelta(usage=gemini_usage(self.usage_sent)))
        blocked = (chunk.promptFeedback or {}).get("blockReason")
        if blocked and not chunk.candidates:
            self.ending_raw = str(blocked)
            out.append(e.MessageDelta(None, None, Ending.CONTENT_FILTER, self.ending_raw))

    def _part(self, part: _Part, out: list[e.StreamEvent]) -> None:
        call = part.functionCall
        if call is not None:
            self._call(call, out)
        elif part.text:
            if part.thought:
                self.lanes.thinking(part.text, out)
            else:
                if not self._texts:
                    self._parts += 1
                    self._texts = True
                self.lanes.text(part.text, out)
        if part.thoughtSignature:
            kind = "call" if call is not None else "text"
            self._signatures.append(
                {"at": max(self._parts - 1, 0), "kind": kind, "signature": part.thoughtSignature}
            )

    def _call(self, call: Mapping[str, Any], out: list[e.StreamEvent]) -> None:
        arguments, raw = call_arguments(call.get("args"))
        call_id = call.get("id") or f"{MADE_ID}{self._id}_{self._calls}"
        self.lanes.close("text", out)
        self._texts = False
        self._calls += 1
        self._parts += 1
        part = ToolCallPart(str(call_id), str(call.get("name") or ""), arguments)
        key = ("call", self._calls)
        lane = self.lanes.open(key, part, out)
        if raw:
            out.append(e.IndexedDelta(lane, e.InputJson(raw)))
        self.lanes.close(key, out)
