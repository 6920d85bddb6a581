"""Anthropic messages: the reply, streamed or whole, to events.

Usage figures are running totals: a later figure replaces an earlier one field by field (S13).
Thinking blocks with their signatures become provider state, with their place among the parts, so
that they can travel back during a tool exchange (L2).

Source: LLM turn, "Event routing, exactly" (L2, L36-L41, L57); cases S10, S11, S13.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import msgspec

from notebook_agent.core import events as e
from notebook_agent.core.messages import TextPart, ToolCallPart
from notebook_agent.core.response import ENDING_OF_WORD, Ending, Usage
from notebook_agent.providers.sse import StreamCaps
from notebook_agent.providers.wire import (
    MADE_ID,
    StreamDecoder,
    load_lenient,
    mapping,
    usage_int,
)

__all__ = ["MessagesDecoder", "messages_usage"]


class _Delta(msgspec.Struct):
    type: str | None = None
    text: str | None = None
    partial_json: Any = None
    thinking: str | None = None
    signature: str | None = None
    stop_reason: str | None = None


class _Event(msgspec.Struct):
    type: str | None = None
    index: int | None = None
    delta: _Delta | list[Any] | None = None
    content_block: dict[str, Any] | None = None
    message: Any = None
    usage: Any = None
    error: Any = None


_EVENT: Final = msgspec.json.Decoder(_Event)


def messages_usage(sent: Mapping[str, Any]) -> Usage:
    """Usage in our words; the input excludes what came from or went to the cache."""
    return Usage(
        usage_int(sent.get("input_tokens")),
        usage_int(sent.get("output_tokens")),
        usage_int(sent.get("cache_read_input_tokens")),
        usage_int(sent.get("cache_creation_input_tokens")),
        input_includes_cached=False,
    )


class MessagesDecoder(StreamDecoder):
    """Message events to our events.

    Args:
        caps: Longest line and whole stream.
        full_name: ``provider:name``, kept in provider state (L2).
    """

    ENDINGS: ClassVar[Mapping[str, Ending]] = {
        **ENDING_OF_WORD,
        "model_context_window_exceeded": Ending.MAX_TOKENS,
    }

    def __init__(self, caps: StreamCaps | None = None, *, full_name: str = "") -> None:
        super().__init__(caps)
        self._full_name = full_name
        self._blocks: dict[int, dict[str, Any]] = {}
        self._thinking: list[dict[str, Any]] = []
        self._parts = 0  # text and call blocks begun: the place of a thinking block among them
        self._calls = 0
        self._id = ""

    def item(self, payload: bytes, out: list[e.StreamEvent]) -> None:
        """One event of the stream."""
        try:
            event = _EVENT.decode(payload) if b"\\u0000" not in payload else None
        except msgspec.DecodeError:
            if payload.strip() == b"[DONE]":  # a marker that this format does not need
                return
            event = None
        if event is None:
            event = self.lenient(payload, _EVENT)
        kind = event.type
        delta = event.delta if isinstance(event.delta, _Delta) else None
        if kind == "content_block_delta" and delta is not None:
            self._delta(event.index or 0, delta, out)
        elif kind == "error" or event.error:
            self.refuse(load_lenient(payload))
        elif kind == "ping":
            out.append(e.Ping())
        elif kind == "content_block_start":
            self._begin(event.index or 0, event.content_block or {}, out)
        elif kind == "content_block_stop":
            self._end(event.index or 0, out)
        elif kind == "message_start":
            message = mapping(event.message)
            self._id = str(message.get("id") or "")
            self.start(out, self._id, str(message.get("model") or ""))
            self._usage(message.get("usage"), out)
        elif kind == "message_delta":
            self._usage(event.usage, out)
            if delta is not None and delta.stop_reason:
                self.ending(delta.stop_reason, out)
        elif kind == "message_stop":
            self._usage(event.usage, out)
            self.stop(out)
        elif kind is None or kind.endswith("error"):
            self.stray(payload, out)

    def stop(self, out: list[e.StreamEvent]) -> None:
        """The end; thinking goes into the state when a tool exchange follows."""
        if not self.ended:
            for index in tuple(self._blocks):
                self._end(index, out)  # blocks that nobody ended
        if not self.ended and self._calls and self._thinking:
            self.start(out)
            state = {"model": self._full_name, "thinking": self._thinking}
            out.append(e.IndexedDelta(0, e.ProviderState(state)))
        super().stop(out)

    def whole(self, document: Any, out: list[e.StreamEvent]) -> bool:
        """An unstreamed reply.

        Returns:
            Whether the document is a message.
        """
        if not isinstance(document, dict) or not isinstance(document.get("content"), list):
            return False
        self._id = str(document.get("id") or "")
        self.start(out, self._id, str(document.get("model") or ""))
        for index, block in enumerate(document["content"]):
            if isinstance(block, dict):
                self._begin(index, block, out)
                self._end(index, out)
        self._usage(document.get("usage"), out)
        if isinstance(document.get("stop_reason"), str):
            self.ending(document["stop_reason"], out)
        self.stop(out)
        return True

    def _delta(self, index: int, delta: _Delta, out: list[e.StreamEvent]) -> None:
        lane = self.lanes.index(index)
        if lane is None:
            return
        if delta.text is not None:
            self._blocks[index]["came"] = True
            out.append(e.IndexedDelta(lane, e.Text(delta.text)))
        elif delta.partial_json is not None:
            raw = delta.partial_json
            raw = raw if isinstance(raw, str) else msgspec.json.encode(raw).decode()
            if raw:
                self._blocks[index]["came"] = True
                out.append(e.IndexedDelta(lane, e.InputJson(raw)))
        elif delta.thinking is not None:
            if delta.thinking and self._blocks[index]["type"] == "thinking":
                self._blocks[index]["thinking"] += delta.thinking
                out.append(e.IndexedDelta(lane, e.Thinking(delta.thinking)))
            elif delta.thinking:  # reasoning in a block of another kind
                self.lanes.thinking(delta.thinking, out)
        elif delta.signature is not None:
            self._blocks[index]["signature"] = delta.signature

    def _begin(self, index: int, block: Mapping[str, Any], out: list[e.StreamEvent]) -> None:
        self.start(out)
        if index in self._blocks:
            self._end(index, out)  # the block before it was never ended
        kind = block.get("type")
        if kind == "text":
            self._parts += 1
            self._blocks[index] = {"type": "text", "came": bool(block.get("text"))}
            lane = self.lanes.open(index, TextPart(""), out)
            if block.get("text"):
                out.append(e.IndexedDelta(lane, e.Text(str(block["text"]))))
        elif kind == "tool_use":
            self._parts += 1
            self._calls += 1
            self._blocks[index] = {"type": kind, "input": block.get("input"), "came": False}
            call_id = str(block.get("id") or f"{MADE_ID}{self._id}_{self._calls - 1}")
            part = ToolCallPart(call_id, str(block.get("name") or ""))
            self.lanes.open(index, part, out)
        elif kind in ("thinking", "redacted_thinking"):
            lane = self.lanes.open(index, None, out)
            kept = self._blocks[index] = {"type": kind, "at": self._parts}
            self._thinking.append(kept)
            if kind == "redacted_thinking":
                kept["data"] = block.get("data", "")
                out.append(e.IndexedDelta(lane, e.Thinking("")))
                return
            kept["thinking"] = str(block.get("thinking") or "")
            kept["signature"] = block.get("signature") or ""
            if kept["thinking"]:
                out.append(e.IndexedDelta(lane, e.Thinking(kept["thinking"])))

    def _end(self, index: int, out: list[e.StreamEvent]) -> None:
        block = self._blocks.pop(index, {})
        lane = self.lanes.index(index)
        if lane is not None and block.get("input") and not block["came"]:
            # Whole arguments in the opening block, as compatible servers and replies send them.
            raw = msgspec.json.encode(block["input"]).decode()
            out.append(e.IndexedDelta(lane, e.InputJson(raw)))
        elif lane is not None and block.get("type") == "text" and not block["came"]:
            self._parts -= 1  # an empty text becomes no part
        self.lanes.close(index, out)

    def _usage(self, sent: object, out: list[e.StreamEvent]) -> None:
        if not isinstance(sent, dict):
            return
        figures = {k: v for k, v in sent.items() if v is not None}
        if figures:
            self.usage_sent = {**self.usage_sent, **figures}
            out.append(e.MessageDelta(usage=messages_usage(self.usage_sent)))
