"""What a killed kernel left behind, and what to type to go on with it.

Source: notebook side, where things are kept (D21); Turn FSM (B75).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from notebook_agent.engine.clock import Surroundings
from notebook_agent.engine.runtime import broken_runs
from notebook_agent.engine.runtime.resume import find_broken
from notebook_agent.engine.runtime.session_state import SessionState
from notebook_agent.engine.store.base import Store
from notebook_agent.errors import AgentError

__all__ = ["broken_lines"]

SHOWN: Final = 3  # runs that are offered at most
ASKED: Final = 60  # characters of a prompt


def broken_lines(store: Store, mine: Collection[str], surroundings: Surroundings) -> list[str]:
    """Three lines per broken run, newest first.

    Args:
        store: Where earlier kernels kept their runs.
        mine: Ids of this kernel's own sessions.
        surroundings: Clock and ids.
    """
    lines: list[str] = []
    for snapshot in reversed(broken_runs(store)):
        row = store.get_session(snapshot.session_id)
        if snapshot.session_id in mine or row is None:
            continue
        try:  # a run that another living kernel works on is not broken
            state = SessionState.load(store, row, surroundings)
            run = find_broken(state, snapshot.run_id, force=False).run
        except AgentError:
            continue
        asked = run.input if len(run.input) <= ASKED else run.input[:ASKED] + "..."
        lines += [
            f"A run of session {row.name!r} was broken off: {asked!r}. Go on with:",
            f"%agent session load {row.id}",
            f"%agent resume {run.id}",
        ]
        if len(lines) >= SHOWN * 3:
            break
    return lines
