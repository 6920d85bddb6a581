"""Tools: functions that a model may call, and the runtime that runs them.

Source: Turn FSM, "ExecutingTools" (B48-B55, B75, D20); LLM turn (L12, L91, L122-L124).
"""

from __future__ import annotations

from notebook_agent.engine.tools.calls import Approve, RunOnMain
from notebook_agent.engine.tools.loops import (
    ConvergenceDetector,
    DoomLoopDetector,
    LoopDetector,
    LoopPolicy,
)
from notebook_agent.engine.tools.output import image_part, to_output, truncate_output
from notebook_agent.engine.tools.registry import ToolRegistry
from notebook_agent.engine.tools.runtime import INTERRUPTED, ToolRuntime
from notebook_agent.engine.tools.tool import Tool, as_tool, tool
from notebook_agent.engine.tools.workers import abandoned_tools, capture, current_cancel

__all__ = [
    "INTERRUPTED",
    "Approve",
    "ConvergenceDetector",
    "DoomLoopDetector",
    "LoopDetector",
    "LoopPolicy",
    "RunOnMain",
    "Tool",
    "ToolRegistry",
    "ToolRuntime",
    "abandoned_tools",
    "as_tool",
    "capture",
    "current_cancel",
    "image_part",
    "to_output",
    "tool",
    "truncate_output",
]
