"""RunState: the fold of a run's records; replay: records -> actions, compared.

Source: Turn FSM, "Determinism", "Relationship to other components" (B59, B63-B67).
"""

from __future__ import annotations

from dataclasses import dataclass

from notebook_agent.core.response import Usage
from notebook_agent.core.session import RunStatus

__all__ = ["RunState"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """What a run's log says of it (B64). An empty log is Pending with nothing used."""

    run_id: str = ""
    session_id: str = ""
    status: RunStatus = RunStatus.PENDING
    provider: str = ""
    model: str = ""
    iteration: int = 0
    total_usage: Usage = Usage()
    last_finish: str | None = None
    last_error: str | None = None
    event_count: int = 0
    created_at: float | None = None
    updated_at: float | None = None
