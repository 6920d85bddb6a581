"""Values that go into an LLM turn and come out of it.

Source: LLM turn, "Two paths, one entry point", "The turn's paper trail" (L23, L120, M1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from notebook_agent.core.messages import Message
from notebook_agent.core.request import RequestOptions, ToolSchema
from notebook_agent.core.response import ChatResponse, Usage
from notebook_agent.core.route import Route
from notebook_agent.core.stream_outcome import StreamOutcome

__all__ = ["AttemptFacts", "ServedTurn", "TurnContext"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnContext:
    """What a turn is made of, beside its number and its transients.

    Attributes:
        conversation: Committed history + pending.
        system: System prompt.
        tools: Schemas of all registered tools; left out of the request under a forced JSON
            format (L18).
        options: The run's options; the route's override beats their ``model``.
        route: From ``LlmTurn.route``.
        query: ``turn_input`` for ``on_turn_start`` (L112); never sent (L16).
        estimate: Tokens of the request, for a new route when the router retries.
        iteration: turn + 1.
        again: The turn was started before (M1's second call, a router retry):
            ``on_turn_start`` is not fired again.
        single_attempt: The router owns the retries: the transport ladder has no rung (3.3 #1).
    """

    conversation: Sequence[Message]
    route: Route
    system: str | None = None
    tools: Sequence[ToolSchema] = ()
    options: RequestOptions = field(default_factory=RequestOptions)
    query: str = ""
    estimate: int = 0
    iteration: int = 1
    again: bool = False
    single_attempt: bool = False


@dataclass(slots=True, kw_only=True)
class AttemptFacts:
    """What is known of the turn's latest call, however it ended; for the audit row.

    Attributes:
        model: Full name of the model that was asked.
        breaker: Breaker state when it was asked.
        attempts: The rescue not counted.
        rescued: Served by the rescue call.
        partial_text: Text that had arrived when it failed, "" when served.
        began: Whether any attempt that did not serve had begun its output (B18).
        failed_usage: Tokens reported by attempts that did not serve, None = none reported.
        ttft_s: Seconds from the start to the first fragment of the served (or last) attempt.
        duration_s: Seconds of the whole call.
        started_at: Seconds since the epoch, UTC.
        outcome: How the stream ended; None for an unstreamed turn.
    """

    model: str = ""
    breaker: str = "primary"
    attempts: int = 0
    rescued: bool = False
    partial_text: str = ""
    began: bool = False
    failed_usage: Usage | None = None
    ttft_s: float | None = None
    duration_s: float = 0.0
    started_at: float = 0.0
    outcome: StreamOutcome | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedTurn:
    """A served turn: the reply as it counts (L35, L41) and the facts of the call (L120)."""

    response: ChatResponse
    attempts: int = 1
    rescued: bool = False
    ttft_s: float | None = None
    duration_s: float = 0.0
    started_at: float = 0.0
    failed_usage: Usage | None = None
    model: str = ""
    breaker: str = "primary"
    outcome: StreamOutcome | None = None
