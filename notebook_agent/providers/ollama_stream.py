"""Ollama's own format: one JSON document a line, to events; chat and generate.

There is no word for tool calls: a reply that ends cleanly and holds a call ended in one (L5a).

Source: LLM turn, "Event routing, exactly" (L5a, L36-L41, L57).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import msgspec

from notebook_agent.core import events as e
from notebook_agent.core.messages import ToolCallPart
from notebook_agent.core.response import Ending, Usage
from notebook_agent.providers.sse import NdJson, Splitter, StreamCaps
from notebook_agent.providers.wire import (
    MADE_ID,
    StreamDecoder,
    call_arguments,
    load_lenient,
    usage_int,
)

__all__ = ["OllamaDecoder", "ollama_usage"]


class _Message(msgspec.Struct):
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[dict[str, Any] | None] | None = None


class _Line(msgspec.Struct):
    model: str | None = None
    created_at: str | None = None
    message: _Message | None = None
    response: str | None = None
    thinking: str | None = None
    done: bool = False
    done_reason: str | None = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None
    error: Any = None


_LINE: Final = msgspec.json.Decoder(_Line)


def ollama_usage(sent: Mapping[str, Any]) -> Usage:
    """Usage in our words."""
    return Usage(usage_int(sent.get("prompt_eval_count")), usage_int(sent.get("eval_count")))


class OllamaDecoder(StreamDecoder):
    """Lines to events.

    Args:
        caps: Longest line and whole stream.
        full_name: Not used; every decoder takes it.
    """

    ENDINGS: ClassVar[Mapping[str, Ending]] = {
        "stop": Ending.END_TURN,
        "length": Ending.MAX_TOKENS,
        "load": Ending.ERROR,
        "unload": Ending.ERROR,
    }

    def __init__(self, caps: StreamCaps | None = None, *, full_name: str = "") -> None:
        super().__init__(caps)
        self._full_name = full_name
        self._stamp = ""
        self._calls = 0

    def make_splitter(self, caps: StreamCaps | None) -> Splitter:
        """One document a line."""
        return NdJson(caps)

    def item(self, payload: bytes, out: list[e.StreamEvent]) -> None:
        """One line."""
        try:
            line = _LINE.decode(payload) if b"\\u0000" not in payload else None
        except msgspec.DecodeError:
            line = None
        if line is None:
            line = self.lenient(payload, _LINE)
        if line.error:
            self.refuse(load_lenient(payload))
            return
        if line.message is None and line.response is None and not line.done and not line.model:
            self.stray(payload, out)
            return
        if not self.started:
            self._stamp = line.created_at or ""
            self.start(out, "", line.model or "")
        message = line.message
        thinking = line.thinking if message is None else message.thinking
        text = line.response if message is None else message.content
        if thinking:
            self.lanes.thinking(thinking, out)
        if text:
            self.lanes.text(text, out)
        for call in (message.tool_calls or ()) if message is not None else ():
            if call is not None:
                self._call(call, out)
        if line.done:
            self._done(line, out)

    def whole(self, document: Any, out: list[e.StreamEvent]) -> bool:
        """An unstreamed reply.

        Returns:
            Whether the document is one.
        """
        if not isinstance(document, dict) or not ("message" in document or "response" in document):
            return False
        self.item(msgspec.json.encode({**document, "done": True}), out)
        return self.ended

    def _done(self, line: _Line, out: list[e.StreamEvent]) -> None:
        figures = {"prompt_eval_count": line.prompt_eval_count, "eval_count": line.eval_count}
        self.usage_sent = {k: v for k, v in figures.items() if v is not None}
        usage = ollama_usage(self.usage_sent) if self.usage_sent else None
        word = line.done_reason
        if word is None:
            if usage is not None:
                out.append(e.MessageDelta(usage=usage))
        else:
            self.ending(word, out, usage)
            if self._calls and self.ENDINGS.get(word) is Ending.END_TURN:
                name = Ending.TOOL_CALL.value
                out.append(e.MessageDelta(name, None, Ending.TOOL_CALL, word))
        self.stop(out)

    def _call(self, call: Mapping[str, Any], out: list[e.StreamEvent]) -> None:
        function = call.get("function")
        function = function if isinstance(function, dict) else {}
        part_input, raw = call_arguments(function.get("arguments"))  # some builds send the text
        # Ruling: calls carry no id; the line's time stamp makes one that does not come again.
        call_id = call.get("id") or f"{MADE_ID}{self._stamp}_{self._calls}"
        self._calls += 1
        part = ToolCallPart(str(call_id), str(function.get("name") or ""), part_input)
        key = ("call", self._calls)
        lane = self.lanes.open(key, part, out)
        if raw:
            out.append(e.IndexedDelta(lane, e.InputJson(raw)))
        self.lanes.close(key, out)
