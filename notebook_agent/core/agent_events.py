"""AgentEvent: what happened in a run, in words; the log keeps them, subscribers see them.

Every run ends with exactly one terminal event, and it is the last (B68, B70).

Source: Turn FSM, "Persisting", "Relationship to other components" (B67-B71).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Final

__all__ = ["EVENT_KINDS", "AgentEvent", "event_from_json", "event_to_json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEvent:
    """Base: ``run_id`` and ``timestamp`` (seconds since the epoch, UTC).

    ``order`` tells events of one timestamp apart: a number that grows within the run.
    """

    terminal: ClassVar[bool] = False
    run_id: str = ""
    timestamp: float = 0.0
    order: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted(AgentEvent):
    """A run begins; ``model`` is the primary's full name."""

    session_id: str
    provider: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRejected(AgentEvent):
    """The input was refused; terminal (B79)."""

    terminal: ClassVar[bool] = True
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStarted(AgentEvent):
    """A turn begins; ``turn`` counts from 0, ``iteration`` is turn + 1."""

    turn: int
    iteration: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextBuilt(AgentEvent):
    """A context is ready: number of messages, estimate in tokens and its parts."""

    message_count: int
    estimate: int = 0
    parts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionTriggered(AgentEvent):
    """A compaction pass begins; reason threshold, emergency or provider."""

    reason: str
    used: int = 0
    limit: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionCompleted(AgentEvent):
    """A pass ended: applied or not, tokens before and after, by which strategy, why not."""

    applied: bool
    tokens_before: int = 0
    tokens_after: int = 0
    strategy: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionCircuitOpened(AgentEvent):
    """Automatic compaction pauses after failures in a row (B34)."""

    consecutive_failures: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStarted(AgentEvent):
    """A request is about to be sent to a model."""

    provider: str
    model: str
    iteration: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStarted(AgentEvent):
    """An attempt of the turn's request begins; both count from 1."""

    turn: int
    attempt: int
    max_attempts: int
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFailed(AgentEvent):
    """An attempt failed: cause, what comes next (retry, rescue, escalate, fail), after how long.

    ``max_attempts`` is how many the turn can have, for "attempt 3 of 4 in 0.2 s: 503". ``began``
    says whether any output had begun (text, reasoning or a tool call): then the request was read
    and has used tokens, reported or not (B18).
    """

    turn: int
    attempt: int
    cause: str
    next_step: str
    delay_s: float | None = None
    partial_text: str = ""
    usage: Mapping[str, Any] | None = None
    max_attempts: int = 0
    began: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RescueStarted(AgentEvent):
    """The rescue call begins; ``deadline_s`` seconds from now."""

    turn: int
    deadline_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta(AgentEvent):
    """A fragment of text. For subscribers only, never logged."""

    delta: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallStarted(AgentEvent):
    """The model began to write a call."""

    call_id: str
    tool_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallDelta(AgentEvent):
    """A fragment of arguments. For subscribers only, never logged."""

    call_id: str
    delta: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallCompleted(AgentEvent):
    """A call is complete, arguments as raw text."""

    call_id: str
    tool_name: str
    arguments: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolExecutionStarted(AgentEvent):
    """A tool runs."""

    call_id: str
    tool_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolExecutionFinished(AgentEvent):
    """A tool ended; ``result`` as given to the model, duration in seconds."""

    call_id: str
    tool_name: str
    result: str = ""
    is_error: bool = False
    duration_s: float = 0.0
    status: str = "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantMessageCommitted(AgentEvent):
    """The assistant's message is written."""

    message_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolMessageCommitted(AgentEvent):
    """The message with the tool results is written."""

    message_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRecorded(AgentEvent):
    """Tokens of one call (``Usage.to_json``); ``purpose`` turn, failed_attempt, summary, judge."""

    usage: Mapping[str, Any]
    purpose: str = "turn"
    estimated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSwitched(AgentEvent):
    """The serving model changed between turns (L81)."""

    from_model: str
    to_model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerChanged(AgentEvent):
    """The breaker's state as ``Breaker.to_json`` after a change."""

    breaker: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopWarning(AgentEvent):
    """The loop detector warns (L124)."""

    pattern: str
    repetitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DoomLoopDetected(AgentEvent):
    """The detector stops the run (B55)."""

    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSaved(AgentEvent):
    """A snapshot is durable."""

    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnCompleted(AgentEvent):
    """A turn is written."""

    turn: int
    iteration: int
    finish_reason: str
    usage: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCompleted(AgentEvent):
    """The run is complete; terminal."""

    terminal: ClassVar[bool] = True
    finish_reason: str
    iterations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFailed(AgentEvent):
    """The run failed or reached a limit; terminal. ``error`` is ``AgentError.to_json``."""

    terminal: ClassVar[bool] = True
    error: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCancelled(AgentEvent):
    """The user stopped the run; terminal."""

    terminal: ClassVar[bool] = True


EVENT_KINDS: Final[Mapping[str, type[AgentEvent]]] = {
    kind.__name__: kind
    for kind in (
        RunStarted, InputRejected, TurnStarted, ContextBuilt, CompactionTriggered,
        CompactionCompleted, CompactionCircuitOpened, ModelStarted, AttemptStarted, AttemptFailed,
        RescueStarted, TextDelta, ToolCallStarted, ToolCallDelta, ToolCallCompleted,
        ToolExecutionStarted, ToolExecutionFinished, AssistantMessageCommitted,
        ToolMessageCommitted, UsageRecorded, ModelSwitched, BreakerChanged, LoopWarning,
        DoomLoopDetected, SnapshotSaved, TurnCompleted, RunCompleted, RunFailed, RunCancelled,
    )
}  # fmt: skip


def event_to_json(event: AgentEvent) -> dict[str, Any]:
    """JSON form: ``{"event": name, fields...}``."""
    return {
        "event": type(event).__name__,
        **{f.name: getattr(event, f.name) for f in fields(event)},
    }


def event_from_json(data: Mapping[str, Any]) -> AgentEvent:
    """The event that ``event_to_json`` wrote.

    Raises:
        ValueError: The name is no event.
    """
    kind = EVENT_KINDS.get(str(data.get("event")))
    if kind is None:
        raise ValueError(f"{data.get('event')!r} is no event")
    known = {f.name for f in fields(kind)}
    return kind(**{k: v for k, v in data.items() if k in known})
