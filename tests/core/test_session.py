"""core/session.py (L120, L121, B6, B58)."""

from __future__ import annotations

import json

import pytest

from notebook_agent.core import outcomes as o
from notebook_agent.core import turn_fsm as fsm
from notebook_agent.core.agent_events import RunCompleted
from notebook_agent.core.response import Usage
from notebook_agent.core.session import Run, RunEventRecord, RunStatus, Turn


def test_B6_statuses() -> None:
    assert [s.value for s in RunStatus if not s.terminal] == ["pending", "running"]
    assert len(RunStatus) == 8


@pytest.mark.parametrize("final", [False, True])
def test_B58_record_round_trip(final: bool) -> None:
    record = RunEventRecord(
        run_id="r",
        sequence=3,
        turn=1,
        state=fsm.TurnState.PERSISTING,
        outcome=None if final else o.NoMoreTurns(),
        action=None if final else fsm.BreakLoop(),
        events=(RunCompleted(run_id="r", finish_reason="stop", iterations=2),) if final else (),
        status=RunStatus.COMPLETED if final else None,
        timestamp=1.5,
    )
    assert RunEventRecord.from_json(json.loads(json.dumps(record.to_json()))) == record


def test_A01_run_usage_is_none_until_something_is_reported() -> None:
    run = Run(id="r", input="q")
    assert run.usage is None
    run.turns.append(Turn(turn=0, input="q", output="a"))
    assert run.usage is None
    run.turns.append(Turn(turn=1, input="q", output="a", input_tokens=12, output_tokens=3))
    run.turns.append(Turn(turn=2, input="q", output="a", output_tokens=4, reasoning_tokens=2))
    assert run.usage == Usage(12, 7, reasoning_tokens=2)
