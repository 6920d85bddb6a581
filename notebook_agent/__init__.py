"""notebook_agent: agent cells for Jupyter, driven by a turn engine you can see and replay.

Quick start, in a notebook::

    %load_ext notebook_agent

    %%agent
    Explain this error in two sentences.

The names below are the front door. They load on first use, so that ``import notebook_agent``
costs next to nothing; everything else is importable by its module path.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

__version__ = "0.1.0"

logging.getLogger("notebook_agent").addHandler(logging.NullHandler())

_HOME_OF: Final[dict[str, str]] = {
    "AgentError": "errors",
    "AgentPanel": "notebook.panel",
    "AgentRuntime": "engine.runtime",
    "BreakerConfig": "core.breaker",
    "CancelSignal": "engine.cancel",
    "Cancelled": "errors",
    "ChatResponse": "core.response",
    "CompactionPolicy": "core.compaction",
    "ContextExceeded": "errors",
    "Contributor": "core.context",
    "FallbackExhausted": "errors",
    "Message": "core.messages",
    "ModelClient": "providers.base",
    "Observer": "engine.observers",
    "ProviderError": "errors",
    "RateLimitEscalation": "errors",
    "RateLimitPolicy": "core.retry",
    "RequestOptions": "core.request",
    "RetryPolicy": "core.retry",
    "Run": "core.session",
    "RunResult": "core.result",
    "RunState": "core.run_state",
    "RunStatus": "core.session",
    "RuntimePolicy": "core.policy",
    "ScriptedModel": "providers.scripted",
    "Session": "core.session",
    "StopReason": "core.response",
    "StreamTimeouts": "core.retry",
    "TokenCounter": "core.context",
    "Tool": "engine.tools",
    "Turn": "core.session",
    "TurnAction": "core.turn_fsm",
    "TurnState": "core.turn_fsm",
    "Usage": "core.response",
    "aask": "asking",
    "ask": "asking",
    "audit_frame": "notebook.audit",
    "audit_view": "notebook.audit",
    "model": "providers.registry",
    "outcomes": "core",
    "replay": "core.replay",
    "resolve": "core.turn_fsm",
    "tool": "engine.tools",
}

__all__ = [
    "AgentError",
    "AgentPanel",
    "AgentRuntime",
    "BreakerConfig",
    "CancelSignal",
    "Cancelled",
    "ChatResponse",
    "CompactionPolicy",
    "ContextExceeded",
    "Contributor",
    "FallbackExhausted",
    "Message",
    "ModelClient",
    "Observer",
    "ProviderError",
    "RateLimitEscalation",
    "RateLimitPolicy",
    "RequestOptions",
    "RetryPolicy",
    "Run",
    "RunResult",
    "RunState",
    "RunStatus",
    "RuntimePolicy",
    "ScriptedModel",
    "Session",
    "StopReason",
    "StreamTimeouts",
    "TokenCounter",
    "Tool",
    "Turn",
    "TurnAction",
    "TurnState",
    "Usage",
    "aask",
    "ask",
    "audit_frame",
    "audit_view",
    "model",
    "outcomes",
    "replay",
    "resolve",
    "tool",
]

if TYPE_CHECKING:
    from notebook_agent.asking import aask, ask
    from notebook_agent.core import outcomes
    from notebook_agent.core.breaker import BreakerConfig
    from notebook_agent.core.compaction import CompactionPolicy
    from notebook_agent.core.context import Contributor, TokenCounter
    from notebook_agent.core.messages import Message
    from notebook_agent.core.policy import RuntimePolicy
    from notebook_agent.core.replay import replay
    from notebook_agent.core.request import RequestOptions
    from notebook_agent.core.response import ChatResponse, StopReason, Usage
    from notebook_agent.core.result import RunResult
    from notebook_agent.core.retry import RateLimitPolicy, RetryPolicy, StreamTimeouts
    from notebook_agent.core.run_state import RunState
    from notebook_agent.core.session import Run, RunStatus, Session, Turn
    from notebook_agent.core.turn_fsm import TurnAction, TurnState, resolve
    from notebook_agent.engine.cancel import CancelSignal
    from notebook_agent.engine.observers import Observer
    from notebook_agent.engine.runtime import AgentRuntime
    from notebook_agent.engine.tools import Tool, tool
    from notebook_agent.errors import (
        AgentError,
        Cancelled,
        ContextExceeded,
        FallbackExhausted,
        ProviderError,
        RateLimitEscalation,
    )
    from notebook_agent.notebook.audit import audit_frame, audit_view
    from notebook_agent.notebook.panel import AgentPanel
    from notebook_agent.providers.base import ModelClient
    from notebook_agent.providers.registry import model
    from notebook_agent.providers.scripted import ScriptedModel


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'notebook_agent' has no attribute {name!r}")
    module = import_module(f"notebook_agent.{home}")
    value = import_module("notebook_agent.core.outcomes") if name == "outcomes" else None
    value = getattr(module, name) if value is None else value
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load_ipython_extension(ipython: Any) -> None:
    """``%load_ext notebook_agent``: the magics. Prints nothing, opens nothing (section 3)."""
    import_module("notebook_agent.notebook.extension").load_ipython_extension(ipython)


def unload_ipython_extension(ipython: Any) -> None:
    """``%unload_ext notebook_agent``: everything that loading added is gone again (N04)."""
    import_module("notebook_agent.notebook.extension").unload_ipython_extension(ipython)
