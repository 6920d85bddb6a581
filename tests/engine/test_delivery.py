"""engine/delivery.py: what is told while a reply arrives (B68)."""

from __future__ import annotations

import asyncio

import pytest

from notebook_agent.core.agent_events import ToolCallCompleted, ToolCallStarted
from notebook_agent.core.request import TurnMode
from notebook_agent.engine.clock import pinned
from notebook_agent.engine.observers import Observer
from notebook_agent.engine.runtime import AgentRuntime
from notebook_agent.providers.scripted import Reply, ScriptedModel, call


@pytest.mark.parametrize("mode", [TurnMode.STREAMING, TurnMode.NON_STREAMING])
def test_B68_calls_are_told_with_their_arguments(mode) -> None:
    """ToolCallStarted when the lane opens, ToolCallCompleted with the arguments when it closes."""
    seen = []

    class Watch(Observer):
        def on_event(self, event):
            if isinstance(event, (ToolCallStarted, ToolCallCompleted)):
                seen.append(
                    (type(event).__name__, event.tool_name, getattr(event, "arguments", ""))
                )

    model = ScriptedModel([Reply("look", tool_calls=[call("find", q="x"), call("now")]), "done"])
    runtime = AgentRuntime(model, observers=[Watch()], mode=mode, surroundings=pinned())
    asyncio.run(runtime.arun("hi"))
    assert seen == [
        ("ToolCallStarted", "find", ""),
        ("ToolCallCompleted", "find", '{"q": "x"}'),
        ("ToolCallStarted", "now", ""),
        ("ToolCallCompleted", "now", "{}"),
    ]
