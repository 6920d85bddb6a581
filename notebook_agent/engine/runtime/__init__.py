"""AgentRuntime: the STEPS table, the loop, the single exit, resume.

Source: Turn FSM, all sections; LLM turn, "Building the request".
"""

from __future__ import annotations

from notebook_agent.engine.runtime.agent import AgentRuntime
from notebook_agent.engine.runtime.gate import AdmissionPolicy, AdmissionState
from notebook_agent.engine.runtime.resume import broken_runs
from notebook_agent.engine.runtime.run_options import RunOptions
from notebook_agent.engine.runtime.status import ContextAnatomy, Status
from notebook_agent.engine.runtime.steps import STEPS

__all__ = [
    "STEPS",
    "AdmissionPolicy",
    "AdmissionState",
    "AgentRuntime",
    "ContextAnatomy",
    "RunOptions",
    "Status",
    "broken_runs",
]
