"""What the machine beside the reply does: states, attempts, breaker, compaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from notebook_agent.core import agent_events as ev
from notebook_agent.core.session import RunStatus
from notebook_agent.core.turn_fsm import TurnState
from notebook_agent.notebook.panel_state import Happened, Moved, Note, PanelState
from notebook_agent.notebook.reducer.base import (
    CONTEXT,
    INDEX,
    MODEL,
    add_items,
    close_text,
    is_scripted,
)
from notebook_agent.notebook.words import say

__all__ = ["ON_MACHINE", "on_breaker", "on_moved"]


def on_moved(state: PanelState, e: Moved) -> PanelState:
    """A transition of the turn (B58)."""
    here = INDEX[e.state]
    if e.turn != state.turn:
        state = _new_turn(state, e.turn)
    seen = state.seen | {here}
    if e.action == "CompactAndRetry":
        marks = {**state.marks, CONTEXT: "deferred"}
        return replace(
            close_text(state), seen=seen, at_state=CONTEXT, marks=marks, status="compacting"
        )
    if e.to is None:
        failed = e.action == "Fail" and e.outcome != "Cancelled"
        return replace(close_text(state), seen=seen, at_state=-1, bad=here if failed else -1)
    to = INDEX[e.to]
    state = replace(state, seen=seen, at_state=to)
    if e.state is TurnState.CALLING_MODEL:
        state = close_text(state)
    if e.to is TurnState.CALLING_MODEL:
        marks = {k: v for k, v in state.marks.items() if k != CONTEXT or v != "deferred"}
        state = replace(state, marks=marks, status="connecting")
    if e.window is not None:
        state = replace(state, gauge=replace(state.gauge, window=e.window))
    return state


def _new_turn(state: PanelState, turn: int) -> PanelState:
    state = close_text(state)
    return replace(
        state,
        turn=turn,
        seen=frozenset(),
        marks={},
        attempt=1,
        void_from=len(state.items),
        first_text_at=None,
        reset_at=None,
        wait_until=None,
    )


def on_breaker(state: PanelState, e: Happened) -> PanelState:
    """The breaker changed: its view, and one line in the flow when its state did."""
    before, now = state.breaker, e.breaker
    if now is None:
        return state
    state = replace(state, breaker=now)
    if now.state == before.state:
        return state
    if now.state == "fallback":
        backup = now.serves if now.serves != now.primary else ""
        if now.by_hand:
            key = "by hand"
        elif before.state == "recovering":
            key = "probe failed"
        else:
            key = "fallback" if backup else "tripped"
        words = say(
            key,
            primary=now.primary,
            n=now.failures or now.trip_at,
            backup=backup or now.primary,
        )
        return add_items(state, Note("fallback", "wait", words), keep=True)
    if now.state == "recovering":
        words = say("recovering", primary=now.primary, n=now.probes, needed=now.probes_needed)
        return add_items(state, Note("recovering", "live", words), keep=True)
    return add_items(state, Note("primary", "ok", say("closed", primary=now.primary)), keep=True)


def _started(state: PanelState, e: ev.RunStarted) -> PanelState:
    model = e.model or state.model
    if e.provider and ":" not in model:
        model = f"{e.provider}:{model}"
    return replace(
        state,
        run_id=e.run_id or state.run_id,
        model=model,
        scripted=is_scripted(model),
        run_status=RunStatus.RUNNING,
        at_state=0,
    )


def _turn_started(state: PanelState, e: ev.TurnStarted) -> PanelState:
    return replace(_new_turn(state, e.turn), at_state=0)


def _context_built(state: PanelState, e: ev.ContextBuilt) -> PanelState:
    parts = dict(e.parts)
    gauge = replace(
        state.gauge,
        system=int(parts.get("system", 0)),
        tools=int(parts.get("tools", 0)),
        transients=int(parts.get("transients", 0)),
        history=int(parts.get("history", 0)),
    )
    return replace(state, gauge=gauge)


def _compacting(state: PanelState, e: ev.CompactionTriggered) -> PanelState:
    words = say("compacting", turn=state.turn, used=e.used, limit=e.limit, reason=e.reason)
    gauge = state.gauge
    if e.used:  # the estimate that set it off; the rest of it is history
        rest = gauge.system + gauge.tools + gauge.transients
        gauge = replace(gauge, history=max(0, e.used - rest))
    return replace(state, status="compacting", line=words, line_mark="compacting", gauge=gauge)


def _compacted(state: PanelState, e: ev.CompactionCompleted) -> PanelState:
    if e.applied:
        words = say("compacted", before=e.tokens_before, after=e.tokens_after, strategy=e.strategy)
    else:
        words = say("not compacted", detail=e.detail or "nothing to drop")
    state = add_items(state, Note("compacting", "wait", words), keep=True)
    return replace(state, line=(), line_mark="", status="connecting")


def _circuit(state: PanelState, e: ev.CompactionCircuitOpened) -> PanelState:
    words = say("compaction paused", n=e.consecutive_failures)
    return add_items(state, Note("compacting", "wait", words), keep=True)


def _attempt(state: PanelState, e: ev.AttemptStarted) -> PanelState:
    if e.turn != state.turn:  # a resumed run goes on in the middle of a turn
        state = _new_turn(state, e.turn)
    model = e.model or state.model
    marks = dict(state.marks)
    if e.attempt > 1:
        marks[MODEL] = f"attempt {e.attempt}/{e.max_attempts}"
    else:
        state = close_text(state)
        state = replace(state, void_from=len(state.items), first_text_at=None, text_chars=0)
    state = replace(
        state,
        attempt=e.attempt,
        max_attempts=e.max_attempts,
        model=model,
        scripted=is_scripted(model),
        marks=marks,
        wait_until=None,
        attempt_at=state.at,
    )
    if state.status == "attempt reset":
        return state
    words = say("sent", turn=e.turn, attempt=e.attempt, of=e.max_attempts)
    return replace(state, status="connecting", line=words, line_mark="connecting")


def _attempt_failed(state: PanelState, e: ev.AttemptFailed) -> PanelState:
    cause = e.cause.splitlines()[0] if e.cause else "failed"
    marks = dict(state.marks)
    if e.next_step == "retry":
        nxt = e.attempt + 1
        marked = max(state.max_attempts, nxt)
        marks[MODEL] = f"attempt {nxt}/{marked}"
        delay = e.delay_s or 0.0
        return replace(
            state,
            status="waiting",
            marks=marks,
            wait_until=state.at + delay,
            line=say("retry", attempt=nxt, of=marked, cause=cause, delay=delay),
            line_mark="waiting",
        )
    return replace(
        state,
        line=say("attempt failed", attempt=e.attempt, cause=cause, next=e.next_step),
        line_mark="waiting",
        wait_until=None,
    )


def _rescue(state: PanelState, e: ev.RescueStarted) -> PanelState:
    return replace(
        state,
        status="waiting",
        line=say("rescue", seconds=e.deadline_s),
        line_mark="rescued",
        marks={**state.marks, MODEL: "rescue"},
        wait_until=None,
    )


def _switched(state: PanelState, e: ev.ModelSwitched) -> PanelState:
    return replace(state, model=e.to_model, scripted=is_scripted(e.to_model))


def _loop_warning(state: PanelState, e: ev.LoopWarning) -> PanelState:
    return add_items(
        state, Note("waiting", "wait", say("loop", pattern=e.pattern, n=e.repetitions))
    )


ON_MACHINE: Final[Mapping[type[ev.AgentEvent], Callable[[PanelState, Any], PanelState]]] = {
    ev.RunStarted: _started,
    ev.TurnStarted: _turn_started,
    ev.ContextBuilt: _context_built,
    ev.CompactionTriggered: _compacting,
    ev.CompactionCompleted: _compacted,
    ev.CompactionCircuitOpened: _circuit,
    ev.AttemptStarted: _attempt,
    ev.AttemptFailed: _attempt_failed,
    ev.RescueStarted: _rescue,
    ev.ModelSwitched: _switched,
    ev.LoopWarning: _loop_warning,
}
