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
from notebook_agent.providers.errors import classify, refusal_of
from notebook_agent.providers.sse import StreamCaps
from notebook_agent.providers.wire import (
    MADE_ID,
    StreamDecoder,
    call_arguments,
    load_lenient,
    mapping,
    usage_int,
)

__all__ = ["ResponsesDecoder", "responses_usage"]


class _Event(msgspec.Struct):
    type: str | None = None
    delta: Any = None
    output_index: int | None = None
    item_id: str | None = None
    item: dict[str, Any] | None = None
    response: dict[str, Any] | None = None
    arguments: Any = None
    text: str | None = None
    error: Any = None


_EVENT: Final = msgspec.json.Decoder(_Event)
_FINAL: Final = frozenset(
    {"response.completed", "response.incomplete", "response.failed", "response.cancelled"}
)


def responses_usage(sent: Mapping[str, Any]) -> Usage:
    """Usage in our words; cached tokens are part of the input, reasoning of the output (T06)."""
    details_in = mapping(sent.get("input_tokens_details"))
    details_out = mapping(sent.get("output_tokens_details"))
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
        self._calls: dict[object, list[str]] = {}  # place -> fragments of its arguments
        self._texts: set[object] = set()  # places whose text came
        self._opening: dict[object, object] = {}  # place -> arguments that came with the call
        self._items: list[dict[str, Any]] = []
        self._parts = 0
        self._id = ""
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
                self._text(_place(event), delta, out)
        elif kind.startswith("response.reasoning") and kind.endswith("text.delta"):
            if isinstance(delta, str) and delta:
                self.lanes.thinking(delta, out)
        elif kind == "response.function_call_arguments.delta":
            if isinstance(delta, str):
                self._arguments(_place(event), delta, out)
        elif kind == "response.refusal.delta":
            if isinstance(delta, str) and delta:
                self.lanes.text(delta, out, refusal=True)
        else:
            self._other(kind, event, payload, out)

    def stop(self, out: list[e.StreamEvent]) -> None:
        """The end; reasoning items go into the state when a tool exchange follows."""
        for place in tuple(self._opening):
            self._end_call(place, out)  # calls that nobody ended
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
        self._id = str(document.get("id") or "")
        self.start(out, self._id, str(document.get("model") or ""))
        for index, item in enumerate(document["output"]):
            if isinstance(item, dict):
                self._whole_item(index, item, out)
        status = str(document.get("status") or "completed")
        self._final(f"response.{status}", document, out)
        return self.ended

    def _text(self, place: object, text: str, out: list[e.StreamEvent]) -> None:
        key = ("text", place)
        self._texts.add(place)
        lane = self.lanes.index(key)
        if lane is None:
            self._parts += 1
            self._shown = True
            lane = self.lanes.open(key, TextPart(""), out)
        out.append(e.IndexedDelta(lane, e.Text(text)))

    def _other(self, kind: str, event: _Event, payload: bytes, out: list[e.StreamEvent]) -> None:
        item = event.item or {}
        place = _place(event)
        if kind == "response.created":
            response = event.response or {}
            self._id = str(response.get("id") or "")
            self.start(out, self._id, str(response.get("model") or ""))
        elif kind == "response.output_item.added" and item.get("type") == "function_call":
            self._open_call(place, item, out)
        elif kind == "response.output_item.done":
            self._missed_text(place, item, out)
            self._item_done(place, item, out)
        elif kind == "response.function_call_arguments.done":
            self._whole_arguments(place, event.arguments, out)
        elif kind == "response.output_text.done":
            if event.text and place not in self._texts:  # a server that sends no deltas
                self._text(place, event.text, out)
        elif kind in _FINAL:
            self._final(kind, event.response or {}, out)
        elif kind == "error" or (event.error and not kind.startswith("response.")):
            self.refuse(load_lenient(payload))
        elif kind in ("keepalive", "ping"):
            out.append(e.Ping())
        elif not kind or (kind.endswith("error") and not kind.startswith("response.")):
            self.stray(payload, out)

    def _open_call(self, place: object, item: Mapping[str, Any], out: list[e.StreamEvent]) -> None:
        self._parts += 1
        self._shown = True
        made = f"{MADE_ID}{self._id}_{len(self._calls)}"
        self._calls[place] = []
        call_id = str(item.get("call_id") or item.get("id") or made)
        self.lanes.open(place, ToolCallPart(call_id, str(item.get("name") or "")), out)
        self._opening[place] = item.get("arguments")

    def _arguments(self, place: object, raw: str, out: list[e.StreamEvent]) -> None:
        """A fragment of a call's arguments."""
        lane = self.lanes.index(place)
        if lane is not None and raw:
            self._calls[place].append(raw)
            out.append(e.IndexedDelta(lane, e.InputJson(raw)))

    def _whole_arguments(self, place: object, given: object, out: list[e.StreamEvent]) -> None:
        """Arguments that came in one piece; of no use once fragments came."""
        if given is not None and not self._calls.get(place):
            self._arguments(place, call_arguments(given)[1], out)

    def _missed_text(
        self, place: object, item: Mapping[str, Any], out: list[e.StreamEvent]
    ) -> None:
        """The text of a finished message, when no delta brought it."""
        if item.get("type") == "message" and place not in self._texts:
            for part in item.get("content") or ():
                if mapping(part).get("type") == "output_text" and part.get("text"):
                    self._text(place, str(part["text"]), out)

    def _end_call(self, place: object, out: list[e.StreamEvent]) -> None:
        self._whole_arguments(place, self._opening.pop(place, None), out)
        self.lanes.close(place, out)

    def _item_done(self, index: object, item: Mapping[str, Any], out: list[e.StreamEvent]) -> None:
        kind = item.get("type")
        if kind == "function_call":
            if index not in self._calls:
                self._open_call(index, item, out)
            self._whole_arguments(index, item.get("arguments"), out)
            self._end_call(index, out)
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
        status = str(response.get("status") or "")  # some say "completed" of whatever ended
        if kind == "response.completed" and f"response.{status}" in _FINAL:
            kind = f"response.{status}"
        if kind == "response.failed":
            error = response.get("error") or "the response failed"
            self.failure = classify(None, refusal_of({"error": error}))
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


def _place(event: _Event) -> object:
    """Which output item an event is about: its index, or its id where there is no index."""
    if event.output_index is not None:
        return event.output_index
    return event.item_id or mapping(event.item).get("id") or 0
