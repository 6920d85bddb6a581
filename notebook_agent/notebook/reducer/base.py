"""Small moves that every part of the reducer makes."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from notebook_agent.core.text import clean_text
from notebook_agent.core.turn_fsm import TurnState
from notebook_agent.notebook.blocks import flush_tail
from notebook_agent.notebook.panel_state import STATES, Item, PanelState, Scan

__all__ = ["CONTEXT", "INDEX", "MODEL", "add_items", "close_text", "is_scripted"]

INDEX: Final = {state: i for i, state in enumerate(STATES)}
MODEL: Final = INDEX[TurnState.CALLING_MODEL]
CONTEXT: Final = INDEX[TurnState.BUILDING_CONTEXT]


def close_text(state: PanelState) -> PanelState:
    """The tail becomes finished blocks: something else stands after it."""
    if not state.tail:
        return state
    blocks = flush_tail(clean_text(state.tail), state.tail_turn)
    return replace(state, items=(*state.items, *blocks), tail="", scan=Scan())


def add_items(state: PanelState, *items: Item, keep: bool = False) -> PanelState:
    """Append to the flow, after what text there is.

    Args:
        keep: The items are about the machine, not about the attempt: a reset of the attempt in
            progress does not take them back (only where nothing of the attempt stands before).
    """
    state = close_text(state)
    clean = len(state.items) == state.void_from
    grown = (*state.items, *items)
    return replace(state, items=grown, void_from=len(grown) if keep and clean else state.void_from)


def is_scripted(model: str) -> bool:
    """Whether a full name is the scripted model's (D11: every place says so)."""
    return model == "scripted" or model.startswith("scripted:")
