"""Delivery: who sees an event while the reply arrives, compiled from EVENT_ROUTES.

Source: LLM turn, "Event routing, exactly" (L30, L45-L47).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from typing import Any

from notebook_agent.core import events as e
from notebook_agent.core.agent_events import AgentEvent, ToolCallCompleted, ToolCallStarted
from notebook_agent.core.event_routes import EVENT_ROUTES, EventRoute
from notebook_agent.core.messages import Message, MessagePart, ToolCallPart
from notebook_agent.engine.observers import (
    AttemptResetInfo,
    ObserverHub,
    TextDelta,
    ThinkingDelta,
)

__all__ = ["Delivery", "tell_calls"]

log = logging.getLogger("notebook_agent.turn")


class Delivery:
    """Streamer first, then observers (L46); nobody there costs one look into a dict.

    Args:
        turn: Its number.
        hub: The observers.
        streamer: The user's callable for text; its ``reset(attempt)``, if it has one, is called
            when what it was given is void.
        now: The clock, seconds.

    Attributes:
        ttft_s: Seconds from the start to the first fragment of the current attempt.
        shown: Whether the current attempt has delivered anything.
        sinks: Delta type -> what to call, None when nobody listens.
    """

    def __init__(
        self,
        turn: int,
        *,
        hub: ObserverHub,
        streamer: Callable[[str], Any] | None,
        now: Callable[[], float],
    ) -> None:
        self._turn = turn
        self._hub = hub
        self._streamer = streamer
        self._now = now
        self._start = now()
        self.ttft_s: float | None = None
        self.shown = False
        self._closed = 0
        self.sinks: dict[type, Callable[[Any], None] | None] = {
            kind: self._sink_of(route) for kind, route in EVENT_ROUTES.items()
        }

    def first_fragment(self) -> None:
        """Note the time to the first fragment."""
        self.ttft_s = self._now() - self._start
        self.shown = True

    def lane(
        self, event: object, parts: Sequence[MessagePart], emit: Callable[[AgentEvent], None]
    ) -> None:
        """Tell of a call when its lane opens and when it closes (B68); text lanes say nothing.

        ``parts`` are the attempt's closed parts, the event's own folded in.
        """
        if type(event) is e.PartStart and isinstance(event.part, ToolCallPart):
            emit(ToolCallStarted(call_id=event.part.id, tool_name=event.part.name))
        elif type(event) is e.PartStop and len(parts) > self._closed:
            self._closed = len(parts)
            part = parts[-1]
            if isinstance(part, ToolCallPart):
                emit(_completed(part))

    def reset(self, attempt: int, cause: str) -> None:
        """What came so far is void (L47)."""
        self.ttft_s = None
        self.shown = False
        self._closed = 0
        stream_reset = getattr(self._streamer, "reset", None)
        if callable(stream_reset):
            try:
                stream_reset(attempt)
            except Exception:
                log.exception("text_streamer.reset raised; the turn goes on")
        self._hub.fire("on_attempt_reset", AttemptResetInfo(self._turn, attempt, cause))

    def text(self, delta: e.Text) -> None:
        """One fragment of text to streamer and observers."""
        sink = self.sinks[e.Text]
        if sink is not None:
            sink(delta)

    def _sink_of(self, route: EventRoute) -> Callable[[Any], None] | None:
        heard = route.observer is not None and self._hub.hears(route.observer)
        streams = route.streamer and self._streamer is not None
        if not heard and not streams:
            return None
        if route.observer == "on_thinking_delta":
            return self._to_thinking
        if not streams:
            return self._to_observers
        return self._to_both if heard else self._to_streamer

    def _to_streamer(self, delta: e.Text) -> None:
        assert self._streamer is not None
        try:
            self._streamer(delta.text)
        except Exception:
            log.exception("text_streamer raised; the turn goes on")

    def _to_observers(self, delta: e.Text) -> None:
        self._hub.fire("on_text_delta", TextDelta(self._turn, delta.text, delta.refusal))

    def _to_both(self, delta: e.Text) -> None:
        self._to_streamer(delta)
        self._to_observers(delta)

    def _to_thinking(self, delta: e.Thinking) -> None:
        self._hub.fire("on_thinking_delta", ThinkingDelta(self._turn, delta.text))


def tell_calls(message: Message, emit: Callable[[AgentEvent], None]) -> None:
    """The calls of a reply that came whole: unstreamed, or rescued (B68)."""
    for part in message.tool_calls:
        emit(ToolCallStarted(call_id=part.id, tool_name=part.name))
        emit(_completed(part))


def _completed(part: ToolCallPart) -> ToolCallCompleted:
    text = part.raw or ("" if part.input is None else json.dumps(part.input, ensure_ascii=False))
    return ToolCallCompleted(call_id=part.id, tool_name=part.name, arguments=text)
