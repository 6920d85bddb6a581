"""StreamAccumulator: lanes fold stream events into one assistant message.

Source: LLM turn, "Event routing, exactly" (L33, L39-L44); Turn FSM, "CallingModel" (B42).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from notebook_agent.core import events as e
from notebook_agent.core.messages import Message, MessagePart, Role, TextPart, ToolCallPart
from notebook_agent.core.response import Ending, StopReason, Usage
from notebook_agent.core.text import clean_json

__all__ = ["Lane", "StreamAccumulator", "parse_arguments"]

# Ruling: B42, these lanes serve both documents; no second accumulator by call id
_KIND_OF_DELTA: Final[Mapping[type, str]] = {
    e.Text: "text",
    e.InputJson: "tool",
    e.ToolCall: "tool",
    e.Thinking: "thinking",
}


def parse_arguments(raw: str) -> tuple[bool, Any]:
    """Arguments of a call from their text: ``(parsed, value)``.

    Empty or white text and ``null`` are ``{}``; text that is no JSON is ``(False, None)``;
    any other JSON value is returned as it is, also when it is no object (L41, S08).
    NaN and Infinity are not JSON.
    """
    if not raw.strip():
        return True, {}
    try:
        value = json.loads(raw, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False, None
    # An escape in the raw text can stand for half a character or NUL: replaced here, where the
    # arguments become a value (D9, T02).
    if "\\u" in raw:
        value = clean_json(value)
    return True, {} if value is None else value


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


class Lane:
    """An open part: its kind never changes after the start (L39)."""

    __slots__ = ("fragments", "index", "kind", "part")

    def __init__(self, index: int, part: MessagePart | None) -> None:
        self.index = index
        self.part = part
        self.kind = (
            "thinking" if part is None else "tool" if isinstance(part, ToolCallPart) else "text"
        )
        self.fragments: list[str] = []

    def close(self) -> MessagePart | None:
        """The finished part, None when there is nothing to flush (L43)."""
        text = "".join(self.fragments)
        match self.part:
            case ToolCallPart(id=call_id, name=name):
                if not name:
                    return None
                parsed, value = parse_arguments(text)
                return ToolCallPart(call_id, name, value if parsed else None, text)
            case TextPart(refusal=refusal):
                return TextPart(text, refusal) if text else None
            case _:
                return None


class StreamAccumulator:
    """Folds one attempt's events; replaced by a new one on an attempt reset (L30).

    Attributes:
        stop_reason: END_TURN until a recognised word arrives (L32).
        usage: Last reported, merged field by field; None when never reported (L33, S13).
        ended: Whether ``MessageStop`` was seen.
        began: Whether any output had begun: text, reasoning or a tool call.
    """

    def __init__(self) -> None:
        self.stop_reason = StopReason.END_TURN
        self.usage: Usage | None = None
        self.ending: Ending | None = None
        self.ending_raw: str | None = None
        self.message_id = ""
        self.model = ""
        self.ended = False
        self.began = False
        self.parts: list[MessagePart] = []
        self._lanes: list[Lane] = []
        self._open: dict[tuple[str, int], Lane] = {}
        self._state: dict[str, Any] = {}

    def apply(self, event: e.StreamEvent) -> None:
        """Fold one event. Deltas without a matching open lane are dropped (L40)."""
        if type(event) is e.IndexedDelta:
            self._apply_delta(event)
        else:
            _APPLY[type(event)](self, event)

    @property
    def has_closed_part(self) -> bool:
        """Whether at least one part is closed: the handler's has_partial_data (L56)."""
        return bool(self.parts)

    def text(self) -> str:
        """Text so far, closed and open lanes, in order of opening within the open ones."""
        closed = [p.text for p in self.parts if isinstance(p, TextPart)]
        still_open = ["".join(lane.fragments) for lane in self._lanes if lane.kind == "text"]
        return "".join(closed + still_open)

    def build(self) -> Message:
        """The assistant message of closed lanes; open lanes are discarded (L44)."""
        return Message(Role.ASSISTANT, tuple(self.parts), provider_state=self._state or None)

    def _apply_delta(self, event: e.IndexedDelta) -> None:
        delta = event.delta
        kind = type(delta)
        if kind is e.ProviderState:
            self._merge_state(delta.data)  # type: ignore[union-attr]  # kind was just checked
            return
        lane = self._open.get((_KIND_OF_DELTA[kind], event.index))
        if lane is None or lane.kind == "thinking":
            return
        if kind is e.Text:
            lane.fragments.append(delta.text)  # type: ignore[union-attr]  # kind was just checked
        else:
            lane.fragments.append(delta.partial_json)  # type: ignore[union-attr]  # likewise

    def _merge_state(self, data: Mapping[str, Any]) -> None:
        for key, value in data.items():
            old = self._state.get(key)
            if isinstance(old, list) and isinstance(value, list):
                self._state[key] = old + value
            else:
                self._state[key] = value

    def _start_message(self, event: e.MessageStart) -> None:
        self.message_id = event.id
        self.model = event.model

    def _start_part(self, event: e.PartStart) -> None:
        self.began = True
        lane = Lane(event.index, event.part)
        key = (lane.kind, lane.index)
        if key in self._open:  # the same lane opened twice: the first ends where the second begins
            self._close(self._open[key])
        self._open[key] = lane
        self._lanes.append(lane)

    def _stop_part(self, event: e.PartStop) -> None:
        for lane in self._lanes:
            if event.index is None or lane.index == event.index:
                self._close(lane)
                return

    def _close(self, lane: Lane) -> None:
        self._lanes.remove(lane)
        del self._open[lane.kind, lane.index]
        part = lane.close()
        if part is not None:
            self.parts.append(part)

    def _message_delta(self, event: e.MessageDelta) -> None:
        reason = StopReason.parse(event.stop_reason)
        if reason is not None:
            self.stop_reason = reason
        if event.usage is not None:
            if not isinstance(event.usage, Usage) or event.usage.fault():
                raise TypeError(f"no usage: {event.usage!r}")
            self.usage = event.usage if self.usage is None else self.usage.merged(event.usage)
        if event.ending is not None:
            self.ending = event.ending
        if event.ending_raw is not None:
            self.ending_raw = event.ending_raw

    def _stop_message(self, _event: e.MessageStop) -> None:
        self.ended = True

    def _ignore(self, _event: e.Ping) -> None:
        return


_APPLY: Final[Mapping[type, Callable[[StreamAccumulator, Any], None]]] = {
    e.MessageStart: StreamAccumulator._start_message,
    e.PartStart: StreamAccumulator._start_part,
    e.PartStop: StreamAccumulator._stop_part,
    e.MessageDelta: StreamAccumulator._message_delta,
    e.MessageStop: StreamAccumulator._stop_message,
    e.Ping: StreamAccumulator._ignore,
}
