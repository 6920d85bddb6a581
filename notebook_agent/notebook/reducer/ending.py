"""How a run ended, in one word and one sentence."""

from __future__ import annotations

from dataclasses import replace

from notebook_agent.core.session import RunStatus
from notebook_agent.notebook.panel_state import (
    Ended,
    PanelState,
    Rich,
    TextBlock,
    ToolRow,
)
from notebook_agent.notebook.reducer.base import close_text
from notebook_agent.notebook.words import END_LINES, ENDING_WORDS, STATUS_WORDS

__all__ = ["on_ended"]


def on_ended(state: PanelState, e: Ended) -> PanelState:
    """The run is over: the closing word and sentence."""
    state = close_text(state)
    items = tuple(
        replace(one, status="not run")
        if isinstance(one, ToolRow) and one.status in ("writing", "queued")
        else replace(one, status="stopped")
        if isinstance(one, ToolRow) and one.status == "running"
        else one
        for one in state.items
    )
    word, line = _ending(state, e)
    return replace(
        state,
        items=items,
        done=True,
        run_status=e.status,
        status=word,
        line=line,
        line_mark=word,
        at_state=-1,
        wait_until=None,
        ask=None,
        error=e.error,
        notices=(*state.notices, *e.notices),
    )


def _ending(state: PanelState, e: Ended) -> tuple[str, Rich]:
    """The status word and the closing sentence."""
    last = state.rows[-1] if state.rows else {}
    if e.status is RunStatus.COMPLETED:
        ending = str(last.get("ending") or "")
        if ending in ENDING_WORDS:
            return ENDING_WORDS[ending], END_LINES[ending]
        if last.get("rescued"):
            return "rescued", END_LINES["rescued"]
        if state.scripted:
            return "completed", END_LINES["scripted"]
        return "completed", ()
    word = STATUS_WORDS.get(e.status.value, "failed")
    partial = any(isinstance(one, TextBlock) for one in state.items[state.void_from :])
    if word == "cancelled":
        return word, END_LINES["stopped, partial" if partial else "stopped"]
    if word == "failed":
        return word, END_LINES["incomplete"] if partial else ()
    return word, END_LINES.get(word, ())
