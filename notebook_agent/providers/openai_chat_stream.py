"""OpenAI-compatible chat completions: the reply, streamed or whole, to events.

One decoder for all dialects. What they do differently and what is done about it:

=========================================  ====================================================
usage in an own chunk, on the last one,    the last one that is not null counts
on every one, in the choice, ``x_groq``
``reasoning_content``, ``reasoning``,      thinking, once when two fields repeat each other
``reasoning_details``, content as a list
tool calls                                 see ``chat_calls``
``error`` object in the stream             failure of the attempt with its words
``choices`` empty or of other indexes      read for usage only
=========================================  ====================================================

Source: LLM turn, "Event routing, exactly" (L36-L41, L57, L5a); cases S03-S12, T06.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import msgspec

from notebook_agent.core import events as e
from notebook_agent.core.messages import TextPart
from notebook_agent.core.response import ENDING_OF_WORD, Ending, Usage
from notebook_agent.errors import ProviderError
from notebook_agent.providers.chat_calls import CallFragments, SentCall, SentFunction
from notebook_agent.providers.sse import StreamCaps
from notebook_agent.providers.wire import (
    StreamDecoder,
    bare_error,
    load_lenient,
    mapping,
    usage_int,
)

__all__ = ["ChatDecoder", "chat_usage"]


# Fields are as wide as the sloppiest server: an empty object as a list, ids as numbers, null
# among the entries.
class _Delta(msgspec.Struct):
    content: str | list[Any] | dict[str, Any] | None = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_details: list[Any] | None = None
    refusal: str | None = None
    tool_calls: list[SentCall | None] | None = None
    function_call: SentFunction | None = None


class _Choice(msgspec.Struct):
    index: int | None = 0
    delta: _Delta | list[Any] | None = None
    message: _Delta | list[Any] | None = None
    finish_reason: str | None = None
    usage: Any = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice | None] | None = None
    id: str | int | None = None
    model: str | None = None
    usage: Any = None
    x_groq: Any = None
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
    prompt = mapping(sent.get("prompt_tokens_details"))
    output = mapping(sent.get("completion_tokens_details"))
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
        self._calls = CallFragments(self.lanes)
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
                    if (
                        not choice.index
                        and type(delta) is _Delta
                        and choice.finish_reason is None
                        and choice.usage is None
                    ):
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
            self.guarded(payload, out)
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
            self.refuse(load_lenient(payload))
            return
        if choices is None and chunk.id is None and chunk.usage is None:
            self.stray(payload, out)
            return
        if not self.started:
            self._id = "" if chunk.id is None else str(chunk.id)
            self.start(out, self._id, chunk.model or "")
        usage = chunk.usage or mapping(chunk.x_groq).get("usage")
        for choice in choices or ():
            if choice is not None and not choice.index:
                usage = usage or choice.usage  # Moonshot
                self._choice(choice, out)
                break
        if isinstance(usage, dict) and usage:
            self._usage(usage, out)

    def _choice(self, choice: _Choice, out: list[e.StreamEvent]) -> None:
        delta = choice.delta
        if delta is None and self._text_lane is None and not self._calls:
            delta = choice.message  # once deltas came, a message at the end repeats them
        if not isinstance(delta, _Delta):
            delta = _EMPTY
        content = delta.content
        if content.__class__ is str and content:
            lane = self._text_lane
            if lane is None:
                lane = self._text_lane = self.lanes.open("text", TextPart(""), out)
            out.append(e.IndexedDelta(lane, e.Text(content)))
        elif content:
            self._list(content if isinstance(content, list) else [content], out)
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
        if delta.tool_calls:
            self._calls.take(delta.tool_calls, self._id, out)
        if delta.function_call is not None:
            self._calls.take((SentCall(0, None, delta.function_call),), self._id, out)

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
