"""OpenAI-compatible chat completions: the reply, streamed or whole, to events.

One decoder for all dialects. What they do differently and what is done about it:

=========================================  ====================================================
usage in an own chunk, on the last one,    the last one that is not null counts
on every one, or under ``x_groq``
``reasoning_content``, ``reasoning``,      thinking, once when two fields repeat each other
``reasoning_details``, content as a list
tool call without index or id, all with    a new id, or a name after complete arguments, starts
index 0, whole or in pieces                a new call; a fragment goes to the open one
arguments absent, null, an object          no fragment; the object as JSON
``error`` object in the stream             failure of the attempt with its words
``choices`` empty or of other indexes      read for usage only
=========================================  ====================================================

Source: LLM turn, "Event routing, exactly" (L36-L41, L57, L5a); cases S03-S12, T06.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import msgspec

from notebook_agent.core import events as e
from notebook_agent.core.messages import TextPart, ToolCallPart
from notebook_agent.core.response import ENDING_OF_WORD, Ending, Usage
from notebook_agent.errors import ProviderError
from notebook_agent.providers.sse import StreamCaps
from notebook_agent.providers.wire import (
    MADE_ID,
    StreamDecoder,
    bare_error,
    usage_int,
)

__all__ = ["ChatDecoder", "chat_usage"]


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: Any = None


class _Call(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct):
    content: str | list[Any] | None = None
    reasoning_content: str | None = None
    reasoning: Any = None
    reasoning_details: list[Any] | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None
    function_call: _Function | None = None


class _Choice(msgspec.Struct):
    index: int | None = 0
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice | None] | None = None
    id: str | None = None
    model: str | None = None
    usage: dict[str, Any] | None = None
    x_groq: dict[str, Any] | None = None
    error: Any = None
    object: str | None = None


_CHUNK: Final = msgspec.json.Decoder(_Chunk)
_EMPTY: Final = _Delta()
_Fragment: Final = e.IndexedDelta
_Text: Final = e.Text


def chat_usage(sent: Mapping[str, Any]) -> Usage:
    """Usage in our words. Cached tokens are part of the input (T06).

    Reasoning tokens are part of the output, unless the provider's own total says that they are
    not (xAI).
    """
    prompt = sent.get("prompt_tokens_details") or {}
    output = sent.get("completion_tokens_details") or {}
    cached = usage_int(prompt.get("cached_tokens"))
    if cached is None:
        cached = usage_int(sent.get("prompt_cache_hit_tokens"))
    tokens_in, tokens_out = (usage_int(sent.get(k)) for k in ("prompt_tokens", "completion_tokens"))
    reasoning, total = (
        usage_int(output.get("reasoning_tokens")),
        usage_int(sent.get("total_tokens")),
    )
    apart = bool(reasoning) and total == (tokens_in or 0) + (tokens_out or 0) + (reasoning or 0)
    return Usage(
        tokens_in,
        tokens_out,
        cached,
        usage_int(prompt.get("cache_write_tokens")),
        reasoning,
        output_includes_reasoning=not apart,
    )


class _OpenCall:
    """A tool call whose arguments still come."""

    __slots__ = ("id", "lane", "name", "raw")

    def __init__(self, call_id: str) -> None:
        self.id = call_id
        self.name = ""
        self.lane: int | None = None  # none until the name is known
        self.raw = ""

    def complete(self) -> bool:
        """Whether the arguments so far are a whole JSON document."""
        try:
            json.loads(self.raw)
        except ValueError:
            return False
        return True


class ChatDecoder(StreamDecoder):
    """Chat completion chunks to events.

    Args:
        caps: Longest line and whole stream.
        full_name: ``provider:name``, kept in provider state (L2).
        reasoning_back: The field in which the provider wants its reasoning back during a tool
            exchange; None = it does not.
    """

    ENDINGS: ClassVar[Mapping[str, Ending]] = {
        **ENDING_OF_WORD,
        "eos": Ending.END_TURN,
        "eos_token": Ending.END_TURN,
        "complete": Ending.END_TURN,
        "model_length": Ending.MAX_TOKENS,
        "max_output_tokens": Ending.MAX_TOKENS,
        "safety": Ending.CONTENT_FILTER,
        "sensitive": Ending.CONTENT_FILTER,
        "content_filtered": Ending.CONTENT_FILTER,
        "insufficient_system_resource": Ending.ERROR,
        "network_error": Ending.ERROR,
        "abort": Ending.ERROR,
    }

    def __init__(
        self,
        caps: StreamCaps | None = None,
        *,
        full_name: str = "",
        reasoning_back: str | None = None,
    ) -> None:
        super().__init__(caps)
        self._full_name = full_name
        self._back = reasoning_back
        self._reasoning: list[str] = []
        self._details: list[Any] = []
        self._calls: dict[object, _OpenCall] = {}
        self._of_index: dict[int, object] = {}  # the call that an index means now (S06)
        self._last_call: object = None
        self._made = 0
        self._id = ""
        self._text_lane: int | None = None

    def feed(self, chunk: bytes) -> list[e.StreamEvent]:
        """Events that this chunk completes.

        A chunk that is one event with one fragment of text, which nearly all are, goes the
        short way; all else, and everything that is odd, goes the long way, with the same result.
        """
        lane = self._text_lane
        if lane is None or self.halves is not None or self.ended or self.failure is not None:
            return super().feed(chunk)
        payload = self.splitter.single(chunk)  # type: ignore[attr-defined]  # it is SseEvents
        if payload is None:
            return super().feed(chunk)
        out: list[e.StreamEvent] = []
        self.events += 1
        try:
            if b"\\u0000" not in payload:
                found = _CHUNK.decode(payload)
                choices = found.choices
                if choices and found.usage is None and found.x_groq is None and found.error is None:
                    choice = choices[0] or _Choice()
                    delta = choice.delta
                    if not choice.index and delta is not None and choice.finish_reason is None:
                        text = delta.content
                        if (
                            text.__class__ is str
                            and text
                            and delta.tool_calls is None
                            and delta.reasoning_content is None
                            and delta.reasoning is None
                            and delta.refusal is None
                            and delta.reasoning_details is None
                            and delta.function_call is None
                        ):
                            return [_Fragment(lane, _Text(text))]
        except msgspec.DecodeError:
            pass
        try:
            self.item(payload, out)
        except ProviderError as problem:
            self.failure = bare_error(problem)
        return out if self.halves is None else self.halves.cleaned(out)

    def item(self, payload: bytes, out: list[e.StreamEvent]) -> None:
        """One chunk, or ``[DONE]``."""
        try:
            if b"\\u0000" in payload:
                chunk = self.lenient(payload, _CHUNK)
            else:
                chunk = _CHUNK.decode(payload)
        except msgspec.DecodeError:
            if payload.strip() == b"[DONE]":
                self.stop(out)
                return
            chunk = self.lenient(payload, _CHUNK)
        choices = chunk.choices
        if chunk.error or (chunk.object == "error" and not choices):
            self.refuse(json.loads(payload.decode("utf-8", "replace"), strict=False))
            return
        if choices is None and chunk.id is None and chunk.usage is None:
            out.append(e.Ping())  # "{}" of a ping, or a document of some other kind
            return
        if not self.started:
            self._id = chunk.id or ""
            self.start(out, chunk.id or "", chunk.model or "")
        usage = chunk.usage or (chunk.x_groq and chunk.x_groq.get("usage"))
        if usage:
            self._usage(usage, out)
        for choice in choices or ():
            if choice is not None and not choice.index:
                self._choice(choice, out)
                break

    def _choice(self, choice: _Choice, out: list[e.StreamEvent]) -> None:
        delta = choice.delta
        if delta is None:
            delta = choice.message or _EMPTY
        content = delta.content
        if content.__class__ is str and content:
            lane = self._text_lane
            if lane is None:
                lane = self._text_lane = self.lanes.open("text", TextPart(""), out)
            out.append(e.IndexedDelta(lane, e.Text(content)))
        elif content:
            self._list(content, out)  # type: ignore[arg-type]  # str was excluded
        if (
            delta.reasoning_content is not None
            or delta.reasoning is not None
            or delta.tool_calls is not None
            or delta.refusal is not None
            or delta.reasoning_details is not None
            or delta.function_call is not None
        ):
            self._rest(delta, out)
        if choice.finish_reason:
            self.ending(choice.finish_reason, out)

    def stop(self, out: list[e.StreamEvent]) -> None:
        """The end: calls whose name never came are dropped, reasoning goes into the state."""
        if not self.ended:
            self._give_state(out)
        super().stop(out)

    def whole(self, document: Any, out: list[e.StreamEvent]) -> bool:
        """An unstreamed reply.

        Returns:
            Whether the document holds a choice.
        """
        if not isinstance(document, dict) or not document.get("choices"):
            return False
        self.item(msgspec.json.encode(document), out)
        if self.failure is not None:
            return False
        self.stop(out)
        return True

    def _rest(self, delta: _Delta, out: list[e.StreamEvent]) -> None:
        thinking = delta.reasoning_content or delta.reasoning
        if delta.reasoning_details:
            self._details += delta.reasoning_details
            thinking = thinking or _details_text(delta.reasoning_details)
        if isinstance(thinking, str) and thinking:
            if self._back == "reasoning_content":
                self._reasoning.append(thinking)
            self.lanes.thinking(thinking, out)
        if delta.refusal:
            self.lanes.text(delta.refusal, out, refusal=True)
        for call in delta.tool_calls or ():
            self._call(call, out)
        if delta.function_call is not None:
            self._call(_Call(0, None, delta.function_call), out)

    def _list(self, parts: list[Any], out: list[e.StreamEvent]) -> None:
        """Content as a list of typed parts (Mistral)."""
        for part in parts:
            if isinstance(part, str):
                self._one_text(part, out)
            elif isinstance(part, dict):
                inner = part.get("thinking")
                if inner is not None:
                    texts = [p.get("text", "") if isinstance(p, dict) else str(p)
                             for p in (inner if isinstance(inner, list) else [inner])]  # fmt: skip
                    self.lanes.thinking("".join(texts), out)
                elif isinstance(part.get("text"), str):
                    self._one_text(part["text"], out)

    def _one_text(self, text: str, out: list[e.StreamEvent]) -> None:
        if text:
            if self._text_lane is None:
                self._text_lane = self.lanes.open("text", TextPart(""), out)
            out.append(e.IndexedDelta(self._text_lane, e.Text(text)))

    def _call(self, sent: _Call, out: list[e.StreamEvent]) -> None:
        function = sent.function or _Function()
        raw = function.arguments
        if raw is None:
            raw = ""
        elif not isinstance(raw, str):
            raw = msgspec.json.encode(raw).decode()
        key = self._key(sent, function.name or "")
        call = self._calls.get(key)
        if call is None:
            call = self._calls[key] = _OpenCall(sent.id or "")
        self._last_call = key
        call.id = call.id or sent.id or ""
        if call.lane is None and function.name:
            call.name = function.name
            if not call.id:
                # Ruling: S05-S08 do not say what an absent id becomes; results must pair with it.
                call.id = f"{MADE_ID}{self._id}_{len(self._calls) - 1}"
            call.lane = self.lanes.open(call, ToolCallPart(call.id, call.name), out)
            raw = call.raw + raw
            call.raw = ""
        call.raw += raw
        if raw and call.lane is not None:
            out.append(e.IndexedDelta(call.lane, e.InputJson(raw)))

    def _key(self, sent: _Call, name: str) -> object:
        """Which open call a fragment belongs to; a fresh key starts a new one."""
        if sent.index is None:
            if sent.id:
                return ("id", sent.id)
            base = self._last_call
        else:
            base = self._of_index.get(sent.index)
        call = self._calls.get(base)
        if call is not None:
            other_id = bool(sent.id) and bool(call.id) and sent.id != call.id
            another = not sent.id and bool(name) and call.lane is not None and call.complete()
            if not other_id and not another:
                return base
            if other_id and (back := [k for k, c in self._calls.items() if c.id == sent.id]):
                return back[0]  # fragments of two calls in turn, all under one index
        self._made += 1
        fresh = ("index", sent.index, self._made)
        if sent.index is not None:
            self._of_index[sent.index] = fresh
        return fresh

    def _usage(self, sent: dict[str, Any], out: list[e.StreamEvent]) -> None:
        if sent != self.usage_sent:
            self.usage_sent = sent
            out.append(e.MessageDelta(usage=chat_usage(sent)))

    def _give_state(self, out: list[e.StreamEvent]) -> None:
        """What must travel back while this reply's tool exchange is open (L2)."""
        if not self._calls or self._back is None:
            return
        value: Any = "".join(self._reasoning)
        if self._back == "reasoning_details":
            value = self._details
        if value:
            self.start(out)
            state = {"model": self._full_name, self._back: value}
            out.append(e.IndexedDelta(0, e.ProviderState(state)))


def _details_text(details: list[Any]) -> str:
    found = [d.get("text") or d.get("summary") or "" for d in details if isinstance(d, dict)]
    return "".join(t for t in found if isinstance(t, str))
