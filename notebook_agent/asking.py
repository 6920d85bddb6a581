"""``ask`` and ``aask``: one question, one answer, no session to care for.

The module is not called ``ask``: importing it would put a module where the front door's
function of that name belongs.

Source: notebook, section 6 (works in a script too); LLM turn (K02, K03, D11).
"""

from __future__ import annotations

import os
from typing import Any

from notebook_agent.core.result import RunResult
from notebook_agent.engine.runtime import AgentRuntime
from notebook_agent.engine.runtime.run_options import Prompt
from notebook_agent.providers.base import ModelClient

__all__ = ["aask", "ask"]


def ask(
    text: Prompt,
    *,
    model: ModelClient | str | None = None,
    schema: Any = None,
    **settings: Any,
) -> RunResult:
    """Ask a model once, from a script or a notebook cell.

    Works where an event loop is running (a notebook cell, an async function) without patching
    it: the run then has a thread and a loop of its own.

    Args:
        text: The prompt; a message, or a list of texts and images (``["What is this?", figure]``).
        model: A client, a name like ``"openai:gpt-x"`` or an alias. None = the environment's
            ``NOTEBOOK_AGENT_MODEL``, else the local model where it is installed, else the
            scripted one, which says so.
        schema: What the reply must be: a pydantic class, a dataclass, a type hint or a JSON
            Schema. The value is the result's ``parsed``.
        settings: As for :class:`~notebook_agent.engine.runtime.AgentRuntime`: ``system``,
            ``tools``, ``policy``, ``fallback``, ...

    Returns:
        The result; ``str(result)`` is the reply.

    Raises:
        AgentError: The run failed; ``error.result`` is what there is of it.

    Example:
        >>> from notebook_agent import ScriptedModel, ask
        >>> str(ask("Hi", model=ScriptedModel(["Hello."])))
        'Hello.'
    """
    return AgentRuntime(_or_default(model), **settings).run(text, schema=schema)


async def aask(
    text: Prompt,
    *,
    model: ModelClient | str | None = None,
    schema: Any = None,
    **settings: Any,
) -> RunResult:
    """As :func:`ask`, on the running loop: ``await aask("Hi")``."""
    return await AgentRuntime(_or_default(model), **settings).arun(text, schema=schema)


def _or_default(model: ModelClient | str | None) -> ModelClient | str:
    if model is not None:
        return model
    named = os.environ.get("NOTEBOOK_AGENT_MODEL", "").strip()
    if named:
        return named
    from notebook_agent.providers.local_files import (  # noqa: PLC0415  # looks for files
        is_installed,
    )

    return "local:smollm2" if is_installed() else "scripted:teacher"
