"""Tool calls: one row each, the same height from the first fragment to the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from notebook_agent.core import agent_events as ev
from notebook_agent.notebook.panel_state import Asked, PanelState, Printed, ToolRow
from notebook_agent.notebook.reducer.base import add_items
from notebook_agent.notebook.words import say

__all__ = ["ON_TOOL", "on_asked", "on_printed"]

_OPEN: Final = ("writing", "queued", "running")


def on_printed(state: PanelState, e: Printed) -> PanelState:
    """What a tool printed goes with its row (D20)."""
    rows = _rows(state, e.call_id)
    done = [i for i in rows if _row(state, i).status not in _OPEN]  # it is told at a call's end
    if not rows:
        return state
    at = (done or rows)[-1]
    return _put(state, at, printed=_row(state, at).printed + e.text)


def on_asked(state: PanelState, e: Asked) -> PanelState:
    """The run waits for a person, or goes on (D20)."""
    if e.ask is not None:
        return replace(
            state, ask=e.ask, status="waiting", line=say("asking"), line_mark="waiting",
        )  # fmt: skip
    if state.ask is None:
        return state
    return replace(state, ask=None, status="running tools", line=(), line_mark="")


# ---- which row a call is ----

# An id names a call within its turn only: servers give ``call_0`` in every reply, and some in one
# reply twice. Within a turn the stage decides; ids that repeat there are set apart before the calls
# run ("call_0_2", or "call" for none), so a row that waits may carry another id than its call.


def _rows(state: PanelState, call_id: str) -> list[int]:
    """Places of this turn's rows with this id, in order."""
    return [
        i
        for i, one in enumerate(state.items)
        if isinstance(one, ToolRow) and one.turn == state.turn and one.call_id == call_id
    ]


def _row(state: PanelState, at: int) -> ToolRow:
    one = state.items[at]
    assert isinstance(one, ToolRow)
    return one


def _put(state: PanelState, at: int, **changes: Any) -> PanelState:
    row = replace(_row(state, at), **changes)
    return replace(state, items=(*state.items[:at], row, *state.items[at + 1 :]))


def _new(state: PanelState, call_id: str, name: str) -> tuple[PanelState, int]:
    state = add_items(state, ToolRow(call_id, name, turn=state.turn))
    return state, len(state.items) - 1


def _written(state: PanelState, call_id: str, name: str) -> tuple[PanelState, int]:
    """The row that is being written, made if there is none."""
    open_ = [i for i in _rows(state, call_id) if _row(state, i).status == "writing"]
    return (state, open_[-1]) if open_ else _new(state, call_id, name)


def _running(state: PanelState, call_id: str, name: str) -> tuple[PanelState, int]:
    """The row of a call that runs or ran, made if there is none."""
    same = [i for i in _rows(state, call_id) if _row(state, i).status in _OPEN]
    if same:
        return state, same[0]
    ids: set[str] = set()
    for i, one in enumerate(state.items):
        if not isinstance(one, ToolRow) or one.turn != state.turn:
            continue
        apart = not one.call_id or one.call_id in ids
        if apart and one.name == name and one.status in ("writing", "queued"):
            return _put(state, i, call_id=call_id), i
        ids.add(one.call_id)
    return _new(state, call_id, name)


# ---- what happens to it ----


def _call_started(state: PanelState, e: ev.ToolCallStarted) -> PanelState:
    return _written(state, e.call_id, e.tool_name)[0]


def _call_completed(state: PanelState, e: ev.ToolCallCompleted) -> PanelState:
    state, at = _written(state, e.call_id, e.tool_name)
    return _put(state, at, arguments=e.arguments, status="queued")


def _tool_started(state: PanelState, e: ev.ToolExecutionStarted) -> PanelState:
    state, at = _running(state, e.call_id, e.tool_name)
    return _tools_line(_put(state, at, status="running", began=state.at))


def _tool_finished(state: PanelState, e: ev.ToolExecutionFinished) -> PanelState:
    state, at = _running(state, e.call_id, e.tool_name)
    word = "failed" if e.is_error else "finished"
    if e.status not in ("ok", "error", ""):
        word = e.status.replace("_", " ")
    return _tools_line(_put(state, at, status=word, seconds=e.duration_s, result=e.result))


def _tools_line(state: PanelState) -> PanelState:
    rows = [one for one in state.items[state.void_from :] if isinstance(one, ToolRow)]
    running = sum(row.status == "running" for row in rows)
    if not running:
        return replace(state, line=(), line_mark="")
    words = say("tools", running=running, of=len(rows))
    return replace(state, status="running tools", line=words, line_mark="running tools")


ON_TOOL: Final[Mapping[type[ev.AgentEvent], Callable[[PanelState, Any], PanelState]]] = {
    ev.ToolCallStarted: _call_started,
    ev.ToolCallCompleted: _call_completed,
    ev.ToolExecutionStarted: _tool_started,
    ev.ToolExecutionFinished: _tool_finished,
}
