"""The outcomes a step reports, under the seed's names. Written with their module:
``outcomes.ProviderError(error)``, so nothing clashes with the error of the same name.

``to_json`` is the record's form: it names messages by id and never repeats them (B58), so an
outcome read back has ``context`` None and ``response.message`` without parts.

Source: Turn FSM, "The transition function" (B2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from notebook_agent.core import policy as p
from notebook_agent.core.messages import Message, Role
from notebook_agent.core.request import StreamRequest
from notebook_agent.core.response import ChatResponse, Ending, StopReason, Usage
from notebook_agent.errors import AgentError, error_from_json
from notebook_agent.errors import Cancelled as CancelledError

__all__ = [
    "OUTCOMES",
    "Cancelled",
    "CompactionTriggered",
    "ContextOverBudget",
    "ContextReady",
    "ContextRef",
    "Failed",
    "ModelResponse",
    "NoMoreTurns",
    "Ok",
    "Persisted",
    "PolicyExhausted",
    "ProviderError",
    "StorageError",
    "ToolCallsPresent",
    "ToolFailure",
    "ToolResultsRecorded",
    "TurnOutcome",
    "from_json",
    "response_from_json",
    "response_to_json",
    "to_json",
]


@dataclass(frozen=True, slots=True)
class ContextRef:
    """What a turn saw, without the messages: their ids, a digest, and the estimate (L120).

    ``route`` is the full name of the model that will serve; ``window`` its tokens, None when
    unknown. ``parts`` splits the estimate: system, tools, transients, history.
    """

    ids: tuple[str, ...] = ()
    digest: str = ""
    estimate: int = 0
    route: str = ""
    window: int | None = None
    parts: Mapping[str, int] = field(default_factory=dict)
    upto: int = 0  # watermark: messages of the log that the context rests on

    def to_json(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "ids": list(self.ids),
            "digest": self.digest,
            "estimate": self.estimate,
            "route": self.route,
            "window": self.window,
            "parts": dict(self.parts),
            "upto": self.upto,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ContextRef:
        """The reference that ``to_json`` wrote; fields it does not know are left out."""
        known = {k: v for k, v in data.items() if k in cls.__slots__}
        return cls(**{**known, "ids": tuple(data.get("ids", ()))})


@dataclass(frozen=True, slots=True)
class Ok:
    """Go on (policy ok; or a reply cut at its length that policy follows up)."""


@dataclass(frozen=True, slots=True)
class ContextReady:
    """The context is built. ``context`` and ``payload`` stay in memory, ``ref`` is recorded.

    ``payload`` is the engine's own: the route and what the LLM turn needs beside the request.
    """

    context: StreamRequest | None = field(default=None, compare=False)
    ref: ContextRef = ContextRef()
    payload: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ContextOverBudget:
    """The estimate crossed a line, or the provider said too long. ``used`` of ``limit`` tokens."""

    used: int = 0
    limit: int = 0
    reason: str = "threshold"  # threshold | emergency | provider


@dataclass(frozen=True, slots=True)
class CompactionTriggered:
    """A compaction pass ran. ``result`` says what it did, JSON-able (L102)."""

    result: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelResponse:
    """The model replied."""

    response: ChatResponse


@dataclass(frozen=True, slots=True)
class ToolCallsPresent:
    """The reply asks for tools."""

    call_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolResultsRecorded:
    """Every call of the turn has its result."""

    call_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NoMoreTurns:
    """The reply is the last one (in PROCESSING_RESPONSE) / all is written (in PERSISTING)."""


@dataclass(frozen=True, slots=True)
class Persisted:
    """The turn is written and another one follows (B11)."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Base of the outcomes that carry an error; not an outcome itself."""

    error: AgentError


@dataclass(frozen=True, slots=True)
class PolicyExhausted:
    """A limit of the policy ends the run."""

    reason: p.PolicyReason

    @property
    def error(self) -> AgentError:
        """The error the reason stands for."""
        return self.reason.error()


@dataclass(frozen=True, slots=True)
class ProviderError(Failed):
    """The LLM turn failed; the original error, unchanged (M1)."""


@dataclass(frozen=True, slots=True)
class ToolFailure(Failed):
    """A tool failed and the policy says not to go on (B52)."""


@dataclass(frozen=True, slots=True)
class StorageError(Failed):
    """A write failed: fail-stop (B62, B74)."""


@dataclass(frozen=True, slots=True)
class Cancelled(Failed):
    """The user stopped the run; wins in any state (B81)."""

    error: AgentError = field(default_factory=CancelledError)


TurnOutcome = (
    Ok
    | PolicyExhausted
    | ContextReady
    | ContextOverBudget
    | CompactionTriggered
    | ModelResponse
    | ProviderError
    | ToolCallsPresent
    | NoMoreTurns
    | ToolResultsRecorded
    | Persisted
    | Cancelled
    | ToolFailure
    | StorageError
)

# Ruling: B2, the seed's eleven in its order, then Cancelled and the two beside it.
OUTCOMES: Final[tuple[type, ...]] = (
    Ok,
    PolicyExhausted,
    ContextReady,
    ContextOverBudget,
    CompactionTriggered,
    ModelResponse,
    ProviderError,
    ToolCallsPresent,
    NoMoreTurns,
    ToolResultsRecorded,
    Persisted,
    Cancelled,
    ToolFailure,
    StorageError,
)
_BY_NAME: Final[Mapping[str, type]] = {kind.__name__: kind for kind in OUTCOMES}


def to_json(outcome: TurnOutcome) -> dict[str, Any]:
    """The record's form: ``{"outcome": name, fields...}``."""
    out: dict[str, Any] = {"outcome": type(outcome).__name__}
    match outcome:
        case ContextReady(ref=ref):
            out["ref"] = ref.to_json()
        case ContextOverBudget(used=used, limit=limit, reason=reason):
            out |= {"used": used, "limit": limit, "reason": reason}
        case CompactionTriggered(result=result):
            out["result"] = dict(result)
        case ModelResponse(response=response):
            out["response"] = response_to_json(response)
        case ToolCallsPresent(call_ids=ids) | ToolResultsRecorded(call_ids=ids):
            out["call_ids"] = list(ids)
        case PolicyExhausted(reason=why):
            out["reason"] = {name: getattr(why, name) for name in why.__slots__}
        case Failed(error=error):
            out["error"] = error.to_json()
    return out


def from_json(data: Mapping[str, Any]) -> TurnOutcome:
    """The outcome that ``to_json`` wrote.

    Raises:
        ValueError: The name is no outcome.
    """
    name = str(data.get("outcome"))
    kind = _BY_NAME.get(name)
    if kind is None:
        raise ValueError(f"{name!r} is no outcome; legal: {', '.join(_BY_NAME)}")
    read = _READERS.get(name)
    outcome: TurnOutcome = read(data) if read else _read_plain(kind, data)
    return outcome


def _read_plain(kind: Any, data: Mapping[str, Any]) -> Any:
    if issubclass(kind, Failed):
        return kind(error_from_json(data["error"]))
    if kind in (ToolCallsPresent, ToolResultsRecorded):
        return kind(tuple(data["call_ids"]))
    return kind()


def _read_context(data: Mapping[str, Any]) -> ContextReady:
    return ContextReady(ref=ContextRef.from_json(data["ref"]))


def _read_policy(data: Mapping[str, Any]) -> PolicyExhausted:
    why = dict(data["reason"])
    kinds = {
        "max_iterations": p.MaxIterations,
        "token_budget": p.TokenBudget,
        "compaction_exhausted": p.CompactionExhausted,
    }
    return PolicyExhausted(kinds[why["type"]](**why))


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Any]]] = {
    "ContextReady": _read_context,
    "PolicyExhausted": _read_policy,
    "ContextOverBudget": lambda d: ContextOverBudget(d["used"], d["limit"], d["reason"]),
    "CompactionTriggered": lambda d: CompactionTriggered(d["result"]),
    "ModelResponse": lambda d: ModelResponse(response_from_json(d["response"])),
}


def response_to_json(response: ChatResponse) -> dict[str, Any]:
    """The record's form of a reply: its message by id."""
    return {
        "message_id": response.message.id,
        "stop_reason": response.stop_reason.value,
        "usage": None if response.usage is None else response.usage.to_json(),
        "model": response.model,
        "ending": None if response.ending is None else response.ending.value,
        "ending_raw": response.ending_raw,
        "rescued": response.rescued,
        "tools_not_run": list(response.tools_not_run),
    }


def response_from_json(data: Mapping[str, Any], message: Message | None = None) -> ChatResponse:
    """The reply that ``response_to_json`` wrote, around ``message``, else around its id alone."""
    return ChatResponse(
        message or Message(Role.ASSISTANT, (), id=data["message_id"]),
        stop_reason=StopReason(data["stop_reason"]),
        usage=Usage.from_json(data["usage"]),
        model=data["model"],
        ending=None if data["ending"] is None else Ending(data["ending"]),
        ending_raw=data["ending_raw"],
        rescued=data["rescued"],
        tools_not_run=tuple(data["tools_not_run"]),
    )
