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


def on_printed(state: PanelState, e: Printed) -> PanelState:
    """What a tool printed goes with its row (D20)."""
    return _change_tool(state, e.call_id, lambda row: replace(row, printed=row.printed + e.text))


def on_asked(state: PanelState, e: Asked) -> PanelState:
    """The run waits for a person, or goes on (D20)."""
    if e.ask is not None:
        return replace(
            state, ask=e.ask, status="waiting", line=say("asking"), line_mark="waiting",
        )  # fmt: skip
    if state.ask is None:
        return state
    return replace(state, ask=None, status="running tools", line=(), line_mark="")


def _change_tool(
    state: PanelState, call_id: str, change: Callable[[ToolRow], ToolRow]
) -> PanelState:
    items = list(state.items)
    for i in range(len(items) - 1, -1, -1):
        one = items[i]
        if isinstance(one, ToolRow) and one.call_id == call_id:
            items[i] = change(one)
            return replace(state, items=tuple(items))
    return state


def _tool(state: PanelState, call_id: str, name: str) -> PanelState:
    """The state with a row for this call, made if there is none."""
    for one in reversed(state.items):
        if isinstance(one, ToolRow) and one.call_id == call_id:
            return state
    return add_items(state, ToolRow(call_id, name))


def _call_started(state: PanelState, e: ev.ToolCallStarted) -> PanelState:
    return _tool(state, e.call_id, e.tool_name)


def _call_completed(state: PanelState, e: ev.ToolCallCompleted) -> PanelState:
    state = _tool(state, e.call_id, e.tool_name)
    return _change_tool(
        state, e.call_id, lambda row: replace(row, arguments=e.arguments, status="queued")
    )


def _tool_started(state: PanelState, e: ev.ToolExecutionStarted) -> PanelState:
    state = _tool(state, e.call_id, e.tool_name)
    at = state.at
    state = _change_tool(state, e.call_id, lambda row: replace(row, status="running", began=at))
    return _tools_line(state)


def _tool_finished(state: PanelState, e: ev.ToolExecutionFinished) -> PanelState:
    state = _tool(state, e.call_id, e.tool_name)
    word = "failed" if e.is_error else "finished"
    if e.status not in ("ok", "error", ""):
        word = e.status.replace("_", " ")
    state = _change_tool(
        state,
        e.call_id,
        lambda row: replace(row, status=word, seconds=e.duration_s, result=e.result),
    )
    return _tools_line(state)


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
