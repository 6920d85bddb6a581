"""What a look at a runtime shows: plain values, no request made.

Source: notebook, section 3 (``status``, ``count``); LLM turn, "Counting the context" (L17).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["ContextAnatomy", "Status"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextAnatomy:
    """What the next request would hold, in tokens; no request is made.

    ``prompt`` is the text that was asked about; ``total`` is all of it. ``threshold`` and
    ``emergency`` are the lines of the trigger, 0 = off; ``exact`` False = an estimate.
    """

    system: int
    tools: int
    transients: int
    history: int
    prompt: int
    window: int
    threshold: int
    emergency: int
    exact: bool
    counter: str
    model: str
    messages: int = 0

    @property
    def total(self) -> int:
        """Tokens of the next request."""
        return self.system + self.tools + self.transients + self.history + self.prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Where a runtime stands; values are plain and JSON-able."""

    session: str
    session_id: str
    store: str
    model: str
    served: str
    mode: str
    fallback: tuple[str, ...]
    breaker: dict[str, Any]
    system: str | None
    tools: tuple[str, ...]
    options: dict[str, Any]
    policy: dict[str, Any]
    runs: int
    messages: int
    busy: bool
    state: str | None
    context: ContextAnatomy
    resumable: tuple[str, ...] = ()
    last_error: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)
