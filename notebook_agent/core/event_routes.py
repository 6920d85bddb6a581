"""Which stream event goes to whom. The whole routing decision is this table.

Source: LLM turn, "Event routing, exactly" (L45, L46).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from notebook_agent.core import events as e

__all__ = ["EVENT_ROUTES", "EventRoute", "route_of"]


@dataclass(frozen=True, slots=True)
class EventRoute:
    """Who sees an event, in the fixed order streamer, observers, accumulator, engine.

    ``observer`` names the callback; ``engine`` says what the engine takes from the event.
    """

    streamer: bool = False
    observer: str | None = None
    accumulator: bool = False
    engine: str | None = None


# Keyed by event type, for IndexedDelta by its delta's type.
EVENT_ROUTES: Final[Mapping[type, EventRoute]] = {
    e.Text: EventRoute(streamer=True, observer="on_text_delta", accumulator=True),
    e.Thinking: EventRoute(observer="on_thinking_delta"),
    e.InputJson: EventRoute(accumulator=True),
    e.ToolCall: EventRoute(accumulator=True),
    e.ProviderState: EventRoute(accumulator=True),
    e.MessageDelta: EventRoute(accumulator=True, engine="stop reason"),
    e.MessageStart: EventRoute(accumulator=True),
    e.PartStart: EventRoute(accumulator=True),
    e.PartStop: EventRoute(accumulator=True),
    e.MessageStop: EventRoute(engine="end of reply"),
    e.Ping: EventRoute(),
}


def route_of(event: e.StreamEvent) -> EventRoute:
    """The row of an event."""
    kind = type(event.delta) if isinstance(event, e.IndexedDelta) else type(event)
    return EVENT_ROUTES[kind]
