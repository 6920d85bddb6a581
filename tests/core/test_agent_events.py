"""core/agent_events.py (B68-B70)."""

from __future__ import annotations

import dataclasses
import json

import pytest

from notebook_agent.core import agent_events as ev

VALUES = {"str": "x", "int": 1, "float": 0.5, "bool": True}


def sample(kind: type[ev.AgentEvent]) -> ev.AgentEvent:
    given = {}
    for field in dataclasses.fields(kind):
        name = str(field.type).split(" | ")[0]
        given[field.name] = VALUES.get(name, {"k": 1})
    return kind(**given)


@pytest.mark.parametrize("kind", ev.EVENT_KINDS.values(), ids=lambda k: k.__name__)
def test_events_round_trip(kind: type[ev.AgentEvent]) -> None:
    event = sample(kind)
    assert ev.event_from_json(json.loads(json.dumps(ev.event_to_json(event)))) == event


def test_unknown_event_is_refused_and_unknown_fields_are_skipped() -> None:
    with pytest.raises(ValueError, match="'Nope' is no event"):
        ev.event_from_json({"event": "Nope"})
    later = {"event": "RunCancelled", "run_id": "r", "timestamp": 1.0, "from_the_future": 2}
    assert ev.event_from_json(later) == ev.RunCancelled(run_id="r", timestamp=1.0)


def test_B70_the_terminal_ones() -> None:
    terminal = {name for name, kind in ev.EVENT_KINDS.items() if kind.terminal}
    assert terminal == {"RunCompleted", "RunFailed", "RunCancelled", "InputRejected"}
