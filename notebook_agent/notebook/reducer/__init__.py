"""``reduce(state, event)``: the one place that decides what a view shows. Pure.

Every rule is a row of ``REDUCERS`` (by UiEvent) or ``ON_EVENT`` (by AgentEvent); an event that is
in neither table changes nothing but the time.

Source: notebook side, "The panel" (D13, D18, D19); LLM turn, "Event routing, exactly" (L47);
Turn FSM, "Relationship to other components" (B67-B71).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from notebook_agent.core import agent_events as ev
from notebook_agent.notebook.panel_state import (
    Appended,
    Asked,
    Ended,
    Happened,
    Moved,
    Opened,
    PanelState,
    Printed,
    Replied,
    RowAdded,
    UiEvent,
    Voided,
)
from notebook_agent.notebook.reducer.ending import on_ended
from notebook_agent.notebook.reducer.machine import ON_MACHINE, on_breaker, on_moved
from notebook_agent.notebook.reducer.stream import on_appended, on_opened, on_replied, on_voided
from notebook_agent.notebook.reducer.tools import ON_TOOL, on_asked, on_printed

__all__ = ["ON_EVENT", "REDUCERS", "reduce", "reduce_all"]

RESET_SHOWN_S: Final = 2.0  # how long the word "attempt reset" stands

Reducer = Callable[[PanelState, Any], PanelState]


def reduce(state: PanelState, event: UiEvent) -> PanelState:
    """The state after an event; the old one is not changed.

    After the end only a late audit row may still come in.
    """
    if state.done:
        return _on_row(state, event) if isinstance(event, RowAdded) else state
    kind = type(event)
    if kind is not Appended and event.at > state.at:  # text sets it itself: one copy less a flush
        state = state.but(at=event.at)
    handler = REDUCERS.get(kind)
    return _settle(handler(state, event) if handler else state)


def reduce_all(events: Iterable[UiEvent], state: PanelState | None = None) -> PanelState:
    """Fold a list of events."""
    state = PanelState() if state is None else state
    for event in events:
        state = reduce(state, event)
    return state


def _settle(state: PanelState) -> PanelState:
    """What time alone changes: "attempt reset" gives way two seconds later."""
    if (
        state.status == "attempt reset"
        and state.reset_at is not None
        and state.at - state.reset_at >= RESET_SHOWN_S
    ):
        word = "streaming" if state.tail or len(state.items) > state.void_from else "connecting"
        return replace(state, status=word, line=(), line_mark="", reset_at=None)
    return state


def _on_row(state: PanelState, e: RowAdded) -> PanelState:
    return replace(state, rows=(*state.rows, e.row))


def _on_happened(state: PanelState, e: Happened) -> PanelState:
    state = on_breaker(state, e)
    handler = ON_EVENT.get(type(e.event))
    return handler(state, e.event) if handler else state


REDUCERS: Final[Mapping[type[UiEvent], Reducer]] = {
    Opened: on_opened,
    Appended: on_appended,
    Replied: on_replied,
    Voided: on_voided,
    Moved: on_moved,
    Printed: on_printed,
    Asked: on_asked,
    RowAdded: _on_row,
    Happened: _on_happened,
    Ended: on_ended,
}
ON_EVENT: Final[Mapping[type[ev.AgentEvent], Reducer]] = {**ON_MACHINE, **ON_TOOL}
