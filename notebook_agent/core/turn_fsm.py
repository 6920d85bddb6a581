"""What happens next in a turn. Every rule is one cell of TRANSITIONS. No I/O, no clock.

Source: Turn FSM, all sections (B1-B14, B81, B82).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from notebook_agent.core import outcomes as o
from notebook_agent.errors import AgentError, InvalidTransition, error_from_json

__all__ = [
    "TRANSITIONS",
    "BreakLoop",
    "CompactAndRetry",
    "Continue",
    "Fail",
    "TurnAction",
    "TurnState",
    "action_from_json",
    "action_to_json",
    "mermaid",
    "resolve",
]


class TurnState(Enum):
    """Where a turn is (B1)."""

    CHECKING_POLICY = "checking_policy"
    BUILDING_CONTEXT = "building_context"
    CALLING_MODEL = "calling_model"
    PROCESSING_RESPONSE = "processing_response"
    EXECUTING_TOOLS = "executing_tools"
    PERSISTING = "persisting"


@dataclass(frozen=True, slots=True)
class Continue:
    """Go to a state."""

    state: TurnState


@dataclass(frozen=True, slots=True)
class CompactAndRetry:
    """Compact, then build the context again (B8a)."""


@dataclass(frozen=True, slots=True)
class BreakLoop:
    """The run is complete."""


@dataclass(frozen=True, slots=True)
class Fail:
    """The run ends with this error."""

    error: AgentError


TurnAction = Continue | CompactAndRetry | BreakLoop | Fail

S = TurnState
GIVE_UP: Final = Fail(AgentError("the outcome's own error"))  # resolve() puts the real one in

# state -> outcome -> action. A cell that is not here is illegal and fails the run.
TRANSITIONS: Final[Mapping[TurnState, Mapping[type, TurnAction]]] = {
    S.CHECKING_POLICY: {
        o.Ok: Continue(S.BUILDING_CONTEXT),
        o.PolicyExhausted: GIVE_UP,
        o.StorageError: GIVE_UP,
    },
    S.BUILDING_CONTEXT: {
        o.ContextReady: Continue(S.CALLING_MODEL),
        o.ContextOverBudget: CompactAndRetry(),
        o.CompactionTriggered: Continue(S.BUILDING_CONTEXT),  # the only way back in
        o.PolicyExhausted: GIVE_UP,  # Ruling: B22, compaction cannot help any more
        o.StorageError: GIVE_UP,
    },
    S.CALLING_MODEL: {
        o.ModelResponse: Continue(S.PROCESSING_RESPONSE),
        o.ContextOverBudget: CompactAndRetry(),  # the provider said: too long (M1)
        o.ProviderError: GIVE_UP,
        o.StorageError: GIVE_UP,
    },
    S.PROCESSING_RESPONSE: {
        o.ToolCallsPresent: Continue(S.EXECUTING_TOOLS),
        o.NoMoreTurns: Continue(S.PERSISTING),
        o.Ok: Continue(S.PERSISTING),  # Ruling: B46, cut short and policy follows up
        o.StorageError: GIVE_UP,
    },
    S.EXECUTING_TOOLS: {
        o.ToolResultsRecorded: Continue(S.PERSISTING),
        o.ToolFailure: GIVE_UP,
        o.StorageError: GIVE_UP,
    },
    S.PERSISTING: {
        o.Persisted: Continue(S.CHECKING_POLICY),
        o.NoMoreTurns: BreakLoop(),
        o.StorageError: GIVE_UP,
    },
}


def resolve(state: TurnState, outcome: o.TurnOutcome) -> TurnAction:
    """The action for a pair: total, pure, never raises (B7).

    Args:
        state: Where the turn is.
        outcome: What its step reported.

    Returns:
        The table's action; ``Fail(Cancelled)`` for a cancel in any state (B81);
        ``Fail(InvalidTransition)`` for a pair the table does not have (B9).

    Example:
        >>> from notebook_agent import TurnState, outcomes, resolve
        >>> resolve(TurnState.CHECKING_POLICY, outcomes.Ok())
        Continue(state=<TurnState.BUILDING_CONTEXT: 'building_context'>)

    Source: Turn FSM, "The transition function" (B7-B12).
    """
    if isinstance(outcome, o.Cancelled):
        return Fail(outcome.error)
    row = TRANSITIONS[state]
    action = row.get(type(outcome))
    if action is None:
        legal = [kind.__name__ for kind in row]
        return Fail(InvalidTransition(state.name, type(outcome).__name__, legal))
    if action is GIVE_UP and isinstance(outcome, (o.Failed, o.PolicyExhausted)):
        return Fail(outcome.error)
    return action


def action_to_json(action: TurnAction) -> dict[str, Any]:
    """JSON form of an action, for records."""
    match action:
        case Continue(state=state):
            return {"action": "Continue", "state": state.value}
        case Fail(error=error):
            return {"action": "Fail", "error": error.to_json()}
        case _:
            return {"action": type(action).__name__}


def action_from_json(data: Mapping[str, Any]) -> TurnAction:
    """The action that ``action_to_json`` wrote.

    Raises:
        ValueError: The name is no action, or the state no state.
    """
    match data.get("action"):
        case "Continue":
            return Continue(TurnState(data["state"]))
        case "Fail":
            return Fail(error_from_json(data["error"]))
        case "CompactAndRetry":
            return CompactAndRetry()
        case "BreakLoop":
            return BreakLoop()
        case other:
            raise ValueError(f"{other!r} is no action")


def mermaid() -> str:
    """The state diagram of TRANSITIONS as mermaid text, one line per cell."""
    lines = ["stateDiagram-v2", f"    [*] --> {S.CHECKING_POLICY.name}"]
    for state, row in TRANSITIONS.items():
        for outcome, action in row.items():
            match action:
                case Continue(state=to):
                    target, note = to.name, ""
                case CompactAndRetry():
                    target, note = S.BUILDING_CONTEXT.name, " / compact"
                case BreakLoop():
                    target, note = "[*]", " / completed"
                case _:
                    target, note = "[*]", " / failed"
            lines.append(f"    {state.name} --> {target} : {outcome.__name__}{note}")
        lines.append(f"    {state.name} --> [*] : Cancelled / cancelled")
    return "\n".join(lines)
