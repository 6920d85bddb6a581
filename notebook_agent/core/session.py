"""Session, Run, Turn: the audit trail; RunEventRecord: what replay reads.

Source: LLM turn, "The turn's paper trail" (L105, L120, L121); Turn FSM, "Persisting"
(B6, B58).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, Final

from notebook_agent.core import outcomes as o
from notebook_agent.core import turn_fsm as fsm
from notebook_agent.core.agent_events import AgentEvent, event_from_json, event_to_json
from notebook_agent.core.messages import Message, ToolCallPart
from notebook_agent.core.response import Ending, StopReason, Usage

__all__ = [
    "Run",
    "RunEventRecord",
    "RunStatus",
    "Session",
    "Turn",
    "UnservedTurn",
]


class RunStatus(Enum):
    """How a run stands or ended (B6)."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REJECTED = "rejected"
    LIMIT_REACHED = "limit_reached"
    TOKEN_BUDGET_EXHAUSTED = "token_budget_exhausted"

    @property
    def terminal(self) -> bool:
        """Whether the run is over."""
        return self not in (RunStatus.PENDING, RunStatus.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One served turn of the audit trail; compaction never touches it (L105, L120).

    The first six fields are the seed's. Tokens are as reported, None = not reported.
    ``failed_*`` are tokens of failed attempts; ``budget_tokens`` is what the run's budget
    counted for this turn and ``budget_estimated`` whether an estimate stood in (B18).
    Times in seconds; ``started_at`` in seconds since the epoch, UTC.
    """

    turn: int
    input: str
    output: str
    tool_calls: tuple[ToolCallPart, ...] = ()
    input_tokens: int | None = None
    output_tokens: int | None = None
    model: str = ""
    stop_reason: StopReason = StopReason.END_TURN
    ending: Ending | None = None
    ending_raw: str | None = None
    attempts: int = 1
    rescued: bool = False
    breaker: str = "primary"
    compacted: bool = False
    tools_not_run: tuple[str, ...] = ()
    cached_input_tokens: int | None = None
    reasoning_tokens: int | None = None
    input_includes_cached: bool | None = None
    failed_input_tokens: int | None = None
    failed_output_tokens: int | None = None
    budget_tokens: int = 0
    budget_estimated: bool = False
    context_estimate: int | None = None
    context_ref: o.ContextRef | None = None
    ttft_s: float | None = None
    duration_s: float | None = None
    started_at: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """JSON form; every field is there, None = not known."""
        out = {name: getattr(self, name) for name in _TURN_FIELDS}
        out["tool_calls"] = [call_to_json(call) for call in self.tool_calls]
        out["tools_not_run"] = list(self.tools_not_run)
        out["stop_reason"] = self.stop_reason.value
        out["ending"] = None if self.ending is None else self.ending.value
        out["context_ref"] = None if self.context_ref is None else self.context_ref.to_json()
        return out

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Turn:
        """The turn that ``to_json`` wrote; fields it does not know are left out.

        Raises:
            ValueError, KeyError: The data is no turn.
        """
        given = {name: data[name] for name in _TURN_FIELDS if name in data}
        given["tool_calls"] = tuple(call_from_json(c) for c in data.get("tool_calls", ()))
        given["tools_not_run"] = tuple(data.get("tools_not_run", ()))
        given["stop_reason"] = StopReason(data.get("stop_reason", "end_turn"))
        ending, ref = data.get("ending"), data.get("context_ref")
        given["ending"] = None if ending is None else Ending(ending)
        given["context_ref"] = None if ref is None else o.ContextRef.from_json(ref)
        return cls(**given)


_TURN_FIELDS: Final = tuple(f.name for f in fields(Turn))


def call_to_json(call: ToolCallPart) -> dict[str, Any]:
    """A requested call of the trail."""
    return {"id": call.id, "name": call.name, "input": call.input, "raw": call.raw}


def call_from_json(data: Mapping[str, Any]) -> ToolCallPart:
    """The call that ``call_to_json`` wrote."""
    return ToolCallPart(data["id"], data["name"], data.get("input"), data.get("raw", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class UnservedTurn:
    """A failed or cancelled turn: ``turn`` holds the partial text and what is known of it."""

    turn: Turn
    outcome: str  # "failed" | "cancelled"
    error: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """JSON form."""
        return {"turn": self.turn.to_json(), "outcome": self.outcome, "error": dict(self.error)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> UnservedTurn:
        """The turn that ``to_json`` wrote."""
        return cls(
            turn=Turn.from_json(data["turn"]),
            outcome=data["outcome"],
            error=data.get("error", {}),
        )


@dataclass(slots=True, kw_only=True)
class Run:
    """One user input worked to its end. Failed and cancelled runs are kept too (L121).

    ``start`` and ``end`` in seconds since the epoch, UTC. ``stop_reason`` of the last served
    turn. ``error`` is ``AgentError.to_json`` of the error that ended the run.
    """

    id: str
    input: str
    start: float = 0.0
    end: float | None = None
    output: str = ""
    turns: list[Turn] = field(default_factory=list)
    unserved: list[UnservedTurn] = field(default_factory=list)
    config: Mapping[str, Any] = field(default_factory=dict)
    status: RunStatus = RunStatus.PENDING
    stop_reason: StopReason | None = None
    ending: Ending | None = None
    error: Mapping[str, Any] | None = None

    @property
    def usage(self) -> Usage | None:
        """Reported tokens of the served turns, None when none was reported."""
        total: Usage | None = None
        for turn in self.turns:
            if turn.input_tokens is None and turn.output_tokens is None:
                continue
            one = Usage(
                turn.input_tokens, turn.output_tokens, turn.cached_input_tokens,
                reasoning_tokens=turn.reasoning_tokens,
                input_includes_cached=turn.input_includes_cached is not False,
            )  # fmt: skip
            total = one if total is None else total.plus(one)
        return total

    def to_json(self) -> dict[str, Any]:
        """JSON form of the run without its turns, which are rows of their own."""
        return {
            "id": self.id,
            "input": self.input,
            "start": self.start,
            "end": self.end,
            "output": self.output,
            "config": dict(self.config),
            "status": self.status.value,
            "stop_reason": None if self.stop_reason is None else self.stop_reason.value,
            "ending": None if self.ending is None else self.ending.value,
            "error": None if self.error is None else dict(self.error),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Run:
        """The run that ``to_json`` wrote, with no turns.

        Raises:
            ValueError, KeyError: The data is no run.
        """
        stop, ending = data.get("stop_reason"), data.get("ending")
        return cls(
            id=data["id"],
            input=data["input"],
            start=data["start"],
            end=data.get("end"),
            output=data.get("output", ""),
            config=data.get("config", {}),
            status=RunStatus(data["status"]),
            stop_reason=None if stop is None else StopReason(stop),
            ending=None if ending is None else Ending(ending),
            error=data.get("error"),
        )


@dataclass(slots=True, kw_only=True)
class Session:
    """All runs with one conversation.

    Attributes:
        history: Committed messages: the conversation the next run sees (L95). The working
            view after compaction; the log in the store is append-only.
        runs: The audit trail.
    """

    id: str = "default"
    name: str = "default"
    config: dict[str, Any] = field(default_factory=dict)
    history: list[Message] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEventRecord:
    """One transition of a run: what was fed to ``resolve`` and what came back (B58).

    ``sequence`` counts from 0 without gaps, per run. ``outcome`` None only in the final
    record, which carries ``status`` and the terminal event.
    """

    run_id: str
    sequence: int
    turn: int
    state: fsm.TurnState
    outcome: o.TurnOutcome | None
    action: fsm.TurnAction | None
    events: tuple[AgentEvent, ...] = ()
    status: RunStatus | None = None
    timestamp: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """JSON form, for the stores and run files."""
        return {
            "run_id": self.run_id,
            "sequence": self.sequence,
            "turn": self.turn,
            "state": self.state.value,
            "outcome": None if self.outcome is None else o.to_json(self.outcome),
            "action": None if self.action is None else fsm.action_to_json(self.action),
            "events": [event_to_json(e) for e in self.events],
            "status": None if self.status is None else self.status.value,
            "timestamp": self.timestamp,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RunEventRecord:
        """The record that ``to_json`` wrote.

        Raises:
            ValueError, KeyError: The data is no record.
        """
        return cls(
            run_id=data["run_id"],
            sequence=data["sequence"],
            turn=data["turn"],
            state=fsm.TurnState(data["state"]),
            outcome=None if data["outcome"] is None else o.from_json(data["outcome"]),
            action=None if data["action"] is None else fsm.action_from_json(data["action"]),
            events=tuple(event_from_json(e) for e in data.get("events", ())),
            status=None if data.get("status") is None else RunStatus(data["status"]),
            timestamp=data["timestamp"],
        )
