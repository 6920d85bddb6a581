"""Deltas, resets and whole replies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from notebook_agent.core.session import RunStatus
from notebook_agent.core.text import clean_text
from notebook_agent.notebook.blocks import split_blocks
from notebook_agent.notebook.panel_state import (
    Appended,
    Item,
    Opened,
    PanelState,
    Replied,
    Scan,
    TextBlock,
    Thinking,
    Void,
    Voided,
)
from notebook_agent.notebook.reducer.base import add_items, close_text, is_scripted
from notebook_agent.notebook.words import say

__all__ = ["on_appended", "on_opened", "on_replied", "on_voided"]


def on_opened(state: PanelState, e: Opened) -> PanelState:
    """A run begins in a view: the first paint, before anything came back."""
    model = e.model or state.model
    return replace(
        state,
        run_id=e.run_id or state.run_id,
        session=e.session,
        prompt=e.prompt or state.prompt,
        model=model,
        scripted=is_scripted(model),
        breaker=e.breaker or state.breaker,
        gauge=e.gauge or state.gauge,
        run_status=RunStatus.RUNNING,
        started=e.at,
        at=e.at,
        line=say("connecting", model=model),
        line_mark="connecting",
    )


def on_appended(state: PanelState, e: Appended) -> PanelState:
    """Text or thinking arrived."""
    if not e.text:
        return state if e.at <= state.at else state.but(at=e.at)
    if e.lane == "thinking":
        return _think(state, e)
    if state.tail and state.tail_turn != e.turn:
        state = close_text(state)
    scan = state.scan if state.tail else Scan()
    blocks, tail, scan = split_blocks(_joined(state.tail, e.text), scan, e.turn)
    blocks = [block for block in blocks if block.text.strip()]
    return state.but(
        items=(*state.items, *blocks) if blocks else state.items,
        tail=tail,
        tail_turn=e.turn,
        scan=scan,
        text_chars=state.text_chars + len(e.text),
        **_arrived(state, e.at),
    )


def _joined(tail: str, text: str) -> str:
    """The tail grown by clean text (D9): a client of one's own may give any. The first half of a
    character waits for the second."""
    if _is_high(tail[-1:]):
        tail, text = tail[:-1], tail[-1] + text
    half = text[-1] if _is_high(text[-1:]) else ""
    return tail + clean_text(text[: len(text) - len(half)]) + half


def _is_high(char: str) -> bool:
    return "\ud800" <= char <= "\udbff"


def _think(state: PanelState, e: Appended) -> PanelState:
    state = close_text(state)
    last = state.items[-1] if len(state.items) > state.void_from else None
    words = len(e.text.split())
    items: tuple[Item, ...]
    if isinstance(last, Thinking) and last.turn == e.turn:
        # counted over the new text only; a word cut in two by the deltas counts once
        more = max(0, words - _runs_on(last.text, e.text))
        one = replace(
            last, text=last.text + e.text, words=last.words + more, seconds=e.at - last.began
        )
        items = (*state.items[:-1], one)
    else:
        began = e.at if state.attempt_at is None else state.attempt_at
        items = (*state.items, Thinking(e.turn, e.text, words, began, max(0.0, e.at - began)))
    return state.but(items=items, **_arrived(state, e.at, first_text=False))


def _runs_on(before: str, after: str) -> bool:
    """Whether a word runs on from one delta into the next."""
    return bool(before and after) and not before[-1].isspace() and not after[0].isspace()


def _arrived(state: PanelState, at: float, *, first_text: bool = True) -> dict[str, Any]:
    """What any delta changes: the word, the sentence, the time of the first text."""
    out: dict[str, Any] = {"wait_until": None, "at": max(at, state.at)}
    if state.status != "attempt reset":
        out |= {"status": "streaming", "line": (), "line_mark": ""}
    if first_text and state.first_text_at is None:
        out["first_text_at"] = at
    return out


def on_voided(state: PanelState, e: Voided) -> PanelState:
    """Attempt reset: what this attempt showed folds into one row, in its place (L30, L47)."""
    shown = bool(state.tail.strip()) or len(state.items) > state.void_from
    state = fold(state, first=e.attempt - 1, last=e.attempt - 1, cause=e.cause)
    of = max(state.max_attempts, e.attempt)
    if not shown:
        return replace(state, first_text_at=None)
    return replace(
        state,
        status="attempt reset",
        reset_at=e.at,
        first_text_at=None,
        wait_until=None,
        line=say("void", attempt=e.attempt, of=of),
        line_mark="attempt reset",
    )


def fold(state: PanelState, *, first: int, last: int, cause: str) -> PanelState:
    """Take the attempt's items back; a row keeps their text, struck through.

    Several void attempts of one turn make one row.
    """
    state = close_text(state)
    kept, void = state.items[: state.void_from], state.items[state.void_from :]
    text = "".join(one.text for one in void if isinstance(one, TextBlock))
    if not void:
        return state
    before = kept[-1] if kept else None
    if isinstance(before, Void) and before.turn == state.turn:
        first, kept = before.first, kept[:-1]
        text = "\n\n".join(part for part in (before.text, text) if part)
        if before.cause and before.cause != cause:
            cause = f"{before.cause}; {cause}" if cause else before.cause
    items = (*kept, Void(first, last, cause, text, state.turn))
    return replace(state, items=items, void_from=len(items), tail="", scan=Scan(), text_chars=0)


def on_replied(state: PanelState, e: Replied) -> PanelState:
    """The turn's reply as adopted. Where it is not what was streamed (the rescue's reply, the
    one-attempt path), it takes the place of what was."""
    shown = "".join(
        one.text for one in state.items[state.void_from :] if isinstance(one, TextBlock)
    )
    if not e.text or _bare(shown + state.tail) == _bare(e.text):  # both clean: it is no other text
        return state
    if shown or state.tail:
        state = fold(state, first=1, last=max(1, state.attempt), cause="stream cut")
    state = on_appended(state, Appended(at=e.at, lane="text", text=e.text, turn=e.turn))
    return add_items(state)


def _bare(text: str) -> str:
    return "".join(clean_text(text).split())
