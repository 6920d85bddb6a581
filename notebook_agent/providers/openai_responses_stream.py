"""OpenAI Responses: the reply, streamed or whole, to events.

There is no word for tool calls: a reply that completed and holds a call ended in one (L5a).
Reasoning items travel back with their place among the parts (L2).

Source: LLM turn, "Event routing, exactly" (L2, L5a, L36-L41, L57).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import msgspec

from notebook_agent.core import events as e
from notebook_agent.core.messages import TextPart, ToolCallPart
from notebook_agent.core.response import Ending, Usage
from notebook_agent.providers.errors import classify, error_object, from_error_object
from notebook_agent.providers.sse import StreamCaps
from notebook_agent.providers.wire import StreamDecoder, load_lenient, usage_int

__all__ = ["ResponsesDecoder", "responses_usage"]


class _Event(msgspec.Struct):
    type: str | None = None
    delta: Any = None
    output_index: int | None = None
    item: dict[str, Any] | None = None
    response: dict[str, Any] | None = None
    arguments: str | None = None
    error: Any = None


_EVENT: Final = msgspec.json.Decoder(_Event)
_FINAL: Final = frozenset(
    {"response.completed", "response.incomplete", "response.failed", "response.cancelled"}
)


def responses_usage(sent: Mapping[str, Any]) -> Usage:
    """Usage in our words; cached tokens are part of the input, reasoning of the output (T06)."""
    details_in = sent.get("input_tokens_details") or {}
    details_out = sent.get("output_tokens_details") or {}
    return Usage(
        usage_int(sent.get("input_tokens")),
        usage_int(sent.get("output_tokens")),
        usage_int(details_in.get("cached_tokens")),
        usage_int(details_in.get("cache_write_tokens")),
        usage_int(details_out.get("reasoning_tokens")),
    )


class ResponsesDecoder(StreamDecoder):
    """Response events to our events.

    Args:
        caps: Longest line and whole stream.
        full_name: ``provider:name``, kept in provider state (L2).
    """

    ENDINGS: ClassVar[Mapping[str, Ending]] = {
        "completed": Ending.END_TURN,
        "max_output_tokens": Ending.MAX_TOKENS,
        "max_tokens": Ending.MAX_TOKENS,
        "content_filter": Ending.CONTENT_FILTER,
        "incomplete": Ending.MAX_TOKENS,
        "cancelled": Ending.ERROR,
        "failed": Ending.ERROR,
    }

    def __init__(self, caps: StreamCaps | None = None, *, full_name: str = "") -> None:
        super().__init__(caps)
        self._full_name = full_name
        self._calls: dict[int, list[str]] = {}  # output index -> fragments of its arguments
        self._items: list[dict[str, Any]] = []
        self._parts = 0
        self._shown = False  # whether any text or call came as a delta

    def item(self, payload: bytes, out: list[e.StreamEvent]) -> None:
        """One event of the stream."""
        try:
            event = _EVENT.decode(payload) if b"\\u0000" not in payload else None
        except msgspec.DecodeError:
            if payload.strip() == b"[DONE]":
                return
            event = None
        if event is None:
            event = self.lenient(payload, _EVENT)
        kind = event.type or ""
        delta = event.delta
        if kind == "response.output_text.delta":
            if isinstance(delta, str) and delta:
                self._text(event.output_index or 0, delta, out)
        elif kind.startswith("response.reasoning") and kind.endswith("text.delta"):
            if isinstance(delta, str) and delta:
                self.lanes.thinking(delta, out)
        elif kind == "response.function_call_arguments.delta":
            lane = self.lanes.index(event.output_index)
            if lane is not None and isinstance(delta, str) and delta:
                self._calls[event.output_index or 0].append(delta)
                out.append(e.IndexedDelta(lane, e.InputJson(delta)))
        elif kind == "response.refusal.delta":
            if isinstance(delta, str) and delta:
                self.lanes.text(delta, out, refusal=True)
        else:
            self._other(kind, event, payload, out)

    def stop(self, out: list[e.StreamEvent]) -> None:
        """The end; reasoning items go into the state when a tool exchange follows."""
        if not self.ended and self._calls and self._items:
            self.start(out)
            state = {"model": self._full_name, "items": self._items}
            out.append(e.IndexedDelta(0, e.ProviderState(state)))
        super().stop(out)

    def whole(self, document: Any, out: list[e.StreamEvent]) -> bool:
        """An unstreamed reply.

        Returns:
            Whether the document is a response that did not fail.
        """
        if not isinstance(document, dict) or not isinstance(document.get("output"), list):
            return False
        self.start(out, str(document.get("id") or ""), str(document.get("model") or ""))
        for index, item in enumerate(document["output"]):
            if isinstance(item, dict):
                self._whole_item(index, item, out)
        status = str(document.get("status") or "completed")
        self._final(f"response.{status}", document, out)
        return self.ended

    def _text(self, index: int, text: str, out: list[e.StreamEvent]) -> None:
        key = ("text", index)
        lane = self.lanes.index(key)
        if lane is None:
            self._parts += 1
            self._shown = True
            lane = self.lanes.open(key, TextPart(""), out)
        out.append(e.IndexedDelta(lane, e.Text(text)))

    def _other(self, kind: str, event: _Event, payload: bytes, out: list[e.StreamEvent]) -> None:
        item = event.item or {}
        index = event.output_index or 0
        if kind == "response.created":
            response = event.response or {}
            self.start(out, str(response.get("id") or ""), str(response.get("model") or ""))
        elif kind == "response.output_item.added" and item.get("type") == "function_call":
            self._open_call(index, item, out)
        elif kind == "response.output_item.done":
            self._item_done(index, item, out)
        elif kind in _FINAL:
            self._final(kind, event.response or {}, out)
        elif kind == "error" or (event.error and not kind.startswith("response.")):
            document = load_lenient(payload)
            self.failure = from_error_object(document)
            inner = document.get("error")
            self.error = inner if isinstance(inner, dict) else document
        elif kind in ("keepalive", "ping"):
            out.append(e.Ping())

    def _open_call(self, index: int, item: Mapping[str, Any], out: list[e.StreamEvent]) -> None:
        self._parts += 1
        self._shown = True
        self._calls[index] = []
        call_id = str(item.get("call_id") or item.get("id") or "")
        self.lanes.open(index, ToolCallPart(call_id, str(item.get("name") or "")), out)

    def _item_done(self, index: int, item: Mapping[str, Any], out: list[e.StreamEvent]) -> None:
        kind = item.get("type")
        if kind == "function_call":
            if index not in self._calls:
                self._open_call(index, item, out)
            raw = item.get("arguments")
            lane = self.lanes.index(index)
            if not self._calls[index] and isinstance(raw, str) and raw and lane is not None:
                self._calls[index].append(raw)
                out.append(e.IndexedDelta(lane, e.InputJson(raw)))
            self.lanes.close(index, out)
        elif kind == "reasoning":
            keep = ("id", "summary", "content", "encrypted_content")
            kept = {k: item[k] for k in keep if item.get(k) is not None}
            self._items.append({"type": "reasoning", **kept, "at": self._parts})
        elif kind == "message":
            self.lanes.close(("text", index), out)

    def _whole_item(self, index: int, item: Mapping[str, Any], out: list[e.StreamEvent]) -> None:
        for part in item.get("content") or ():
            if not isinstance(part, dict):
                continue
            text = part.get("text") or part.get("refusal")
            if not isinstance(text, str) or not text:
                continue
            if part.get("type") == "output_text":
                self._text(index, text, out)
            elif part.get("type") == "refusal":
                self.lanes.text(text, out, refusal=True)
            elif part.get("type") == "reasoning_text":
                self.lanes.thinking(text, out)
        for part in item.get("summary") or ():
            if isinstance(part, dict) and part.get("text"):
                self.lanes.thinking(str(part["text"]), out)
        self._item_done(index, item, out)

    def _final(self, kind: str, response: Mapping[str, Any], out: list[e.StreamEvent]) -> None:
        usage = response.get("usage")
        if isinstance(usage, dict):
            self.usage_sent = usage
            out.append(e.MessageDelta(usage=responses_usage(usage)))
        if kind == "response.failed":
            refusal = error_object(response) or error_object({"error": "the response failed"})
            if refusal is not None:
                self.failure = classify(None, refusal)
            self.error = response.get("error") or dict(response)
            return
        if not self._shown:  # a server that sends no deltas: the final object holds all
            for index, item in enumerate(response.get("output") or ()):
                if isinstance(item, dict) and item.get("type") in ("message", "function_call"):
                    self._whole_item(index, item, out)
        details = response.get("incomplete_details")
        word = kind.removeprefix("response.")
        if word == "incomplete" and isinstance(details, dict) and details.get("reason"):
            word = str(details["reason"])
        self.ending(word, out)
        if self._calls and self.ENDINGS.get(word) is Ending.END_TURN:
            name = Ending.TOOL_CALL.value
            out.append(e.MessageDelta(name, None, Ending.TOOL_CALL, word))
        self.stop(out)
