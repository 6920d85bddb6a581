"""What goes into a compaction pass and what comes out of it.

Source: Turn FSM, "BuildingContext" (B25, B32, B34); LLM turn (L98, L99, L103).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from notebook_agent.core.messages import Message
from notebook_agent.core.request import RequestOptions, StreamRequest
from notebook_agent.core.response import ChatResponse, Usage

__all__ = [
    "CompactionHook",
    "CompactionPreview",
    "CompactionResult",
    "CompactionState",
    "CompleteOnce",
    "Draft",
    "Guidance",
    "PreCompact",
    "PreviewRow",
    "SummaryFailed",
]

# (request, options, full model name or "" = the one that serves, purpose) -> reply
CompleteOnce = Callable[[StreamRequest, RequestOptions, str, str], Awaitable[ChatResponse]]


class SummaryFailed(Exception):  # it never leaves the service
    """No summary that may be stored came back; the reason in words (P05)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreCompact:
    """What a hook sees before a pass.

    ``instructions`` are those set by earlier hooks; tokens measure the full request.
    """

    reason: str
    strategy: str
    tokens_before: int
    target: int
    window: int
    message_count: int
    instructions: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Guidance:
    """What a hook may say (L103).

    Attributes:
        abort: A reason not to compact; the first one ends the walk.
        new_instructions: For the summary; the last writer wins.
        additional_context: A line to keep; all are kept, in order.
    """

    abort: str | None = None
    new_instructions: str | None = None
    additional_context: str | None = None


class CompactionHook(Protocol):
    """Asked before a pass; a hook with no opinion returns None. May be a plain function."""

    def __call__(self, ctx: PreCompact, /) -> Guidance | Awaitable[Guidance | None] | None: ...


@dataclass(slots=True)
class CompactionState:
    """What a session remembers between passes: the circuit and what has been tried (B33, B34).

    Not part of a snapshot: a resumed run starts with a closed circuit (B77).
    """

    failures: int = 0
    paused: bool = False
    fruitless: dict[str, None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What a strategy proposes.

    Attributes:
        messages: The new working history: summary first when there is one, then what is kept.
        summary: The new summary, None for a strategy that makes none.
        usage: Tokens that the summariser reported, None when it reported none.
        calls: Requests that were sent.
    """

    messages: tuple[Message, ...]
    summary: Message | None = None
    usage: Usage | None = None
    calls: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    """One pass, done or not.

    To store an applied one, append to the log in this order: ``new_messages`` (as ``message``
    entries), the ``compaction`` marker with :meth:`meta`, the ``summary`` (when there is one).
    Nothing is deleted (B32).

    Attributes:
        applied: Whether ``messages`` replace history and pending.
        status: applied, nothing, no_gain, vetoed, paused, or failed.
        messages: The working history after it; the one before when not applied.
        summary: The summary message (role user), None when there is none.
        new_messages: Shortened versions of kept messages, to be logged before the marker.
        origins: Id of a shortened version -> id of the message that it stands for.
        kept_ids: Ids of all messages but the summary, in order (B25).
        tokens_before, tokens_after: The full request by the one counter, system prompt, tools
            and transients included (P07); for a rejected draft ``tokens_after`` is the draft's.
        strategy, reason: By which strategy, why.
        detail: Why it was not applied, or what else is worth knowing; one line.
        removed: Messages that are no longer sent.
        usage, calls: What summarising cost; each call is also an event (L10).
        circuit_opened: Failures in a row when this one paused automatic passes, else None.
    """

    applied: bool
    status: str
    messages: tuple[Message, ...]
    tokens_before: int
    tokens_after: int
    strategy: str
    reason: str
    detail: str = ""
    summary: Message | None = None
    new_messages: tuple[Message, ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict)
    kept_ids: tuple[str, ...] = ()
    removed: int = 0
    usage: Usage | None = None
    calls: int = 0
    circuit_opened: int | None = None

    @property
    def tokens_saved(self) -> int:
        """Tokens that the next request is shorter by; 0 when nothing was applied."""
        return self.tokens_before - self.tokens_after if self.applied else 0

    def meta(self) -> dict[str, Any]:
        """The marker's meta (B25)."""
        return {
            "kept_ids": list(self.kept_ids),
            "summary_id": None if self.summary is None else self.summary.id,
            "strategy": self.strategy,
            "reason": self.reason,
            "tokens_before": self.tokens_before,
            "tokens_after": self.tokens_after,
        }

    def to_json(self) -> dict[str, Any]:
        """For CompactionTriggered's record; messages by id only (B58)."""
        return {
            "applied": self.applied,
            "status": self.status,
            "strategy": self.strategy,
            "reason": self.reason,
            "tokens_before": self.tokens_before,
            "tokens_after": self.tokens_after,
            "detail": self.detail,
            "removed": self.removed,
            "calls": self.calls,
            "summary_id": None if self.summary is None else self.summary.id,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewRow:
    """One message of a preview. ``fate``: kept, summarised, updated, left out, or shortened;
    ``tokens`` now, ``tokens_after`` then (0 when it goes)."""

    place: int
    id: str
    role: str
    text: str
    tokens: int
    fate: str
    tokens_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPreview:
    """What a pass would do, without doing it and without a request.

    ``estimated``: a model would write the summary, its size is the allowed one.
    """

    rows: tuple[PreviewRow, ...]
    strategy: str
    tokens_before: int
    tokens_after: int
    target: int
    window: int
    status: str
    detail: str = ""
    estimated: bool = False
    summary: str = ""
    parts: Mapping[str, int] = field(default_factory=dict)
