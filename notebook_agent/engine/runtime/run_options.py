"""RunOptions: what one run may have of its own.

Source: LLM turn, "Building the request" (L6, L13, L49); notebook, options of ``%%agent``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from notebook_agent.core.messages import Message
from notebook_agent.core.policy import RuntimePolicy
from notebook_agent.core.request import RequestOptions, TurnMode
from notebook_agent.core.settings import StreamTimeouts
from notebook_agent.engine.tools import Tool
from notebook_agent.providers.base import ModelClient

__all__ = ["Prompt", "RunOptions"]

# A text, a message, or a list of texts and images (paths, figures, Pillow, bytes, parts).
Prompt = str | Message | Sequence[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """One run's own settings; None = the runtime's.

    ==============  ============================================================
    field           meaning
    ==============  ============================================================
    options         request options, laid over the runtime's field by field
    policy          limits
    transients      messages shown in every turn of this run, never stored; texts and images
                    become messages
    fresh           send no earlier history; it is not erased
    tools           names of registered tools, or tools; () = none
    model           primary of this run: a client, a name or an alias
    fallback        chain of this run; strikes stay with the model's name
    system          system prompt; "" = none
    mode            streaming or one attempt
    timeouts        the stream handler's times
    text_streamer   gets the text of this run
    schema          what the reply must be: a pydantic class, a dataclass, a type hint or a
                    JSON Schema; the value is the result's ``parsed``
    ==============  ============================================================
    """

    options: RequestOptions | None = None
    policy: RuntimePolicy | None = None
    transients: Sequence[Any] = ()
    fresh: bool = False
    tools: Sequence[str | Tool | Callable[..., Any]] | None = None
    model: ModelClient | str | None = None
    fallback: Sequence[ModelClient | str] | None = None
    system: str | None = None
    mode: TurnMode | None = None
    timeouts: StreamTimeouts | None = None
    text_streamer: Callable[[str], Any] | None = None
    schema: Any = None
