"""A recorded run's tools: they give again what the run file holds, and none of the user's runs.

Source: Turn FSM, "Determinism" (B59).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from notebook_agent.engine.store.base import ToolExecution
from notebook_agent.engine.tools import Tool
from notebook_agent.engine.tools.calls import ErrorAsIs
from notebook_agent.engine.tools.output import Output

__all__ = ["recorded_tools"]


def recorded_tools(names: Sequence[str], executions: Sequence[ToolExecution]) -> list[Tool]:
    """Tools of these names that give back the recorded results; none of them does anything.

    A call is known by its tool and arguments; equal calls, and those of a redacted file, get
    their results in order.
    """
    return [_RecordedTool(name=name, fn=_answer(name, executions)) for name in names]


def _answer(name: str, executions: Sequence[ToolExecution]) -> Callable[..., Any]:
    # Of a call that a kill broke off and a resume ran again, the last one gave the result.
    last = {(one.turn, one.call_id): one for one in executions if one.tool_name == name}
    left = list(last.values())

    async def answer(**given: Any) -> Output:
        if not left:
            raise LookupError("the recording has no result for this call")
        wanted = _canonical(json.dumps(given))
        one = next((x for x in left if _canonical(x.arguments) == wanted), left[0])
        left.remove(one)
        if one.is_error:
            raise ErrorAsIs(one.result)
        return Output(one.result, one.images)

    return answer


class _RecordedTool(Tool):
    """Takes any arguments as they are: they were checked then."""

    def prepare(self, given: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any], list[str]]:
        """The arguments, unchecked."""
        return [], dict(given), []


def _canonical(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments or "{}"), sort_keys=True)
    except ValueError:
        return arguments
