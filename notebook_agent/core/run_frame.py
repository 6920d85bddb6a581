"""RunFrame: where a run stands. The one serialisable object of a run (M4).

It is pure data with feeds: no I/O, no clock. ``resolve`` alone decides what comes next; the
frame only remembers. Saved before each state's work (B72) and restored by ``from_json``, after
which the next step is equal (L92).

Source: LLM turn, "Building the request" (L85-L92, L108); Turn FSM, "Edge cases" (B72, B75).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

from notebook_agent.core import outcomes as o
from notebook_agent.core.messages import Message, Role
from notebook_agent.core.response import ChatResponse, Usage
from notebook_agent.core.turn_fsm import TurnState
from notebook_agent.errors import InvalidTransition

__all__ = ["RunFrame", "TurnFacts"]

S = TurnState
FORMAT = 1


@dataclass(slots=True, kw_only=True)
class TurnFacts:
    """What is known of the turn in progress; a new one at the top of every turn.

    ``over`` is the line that was crossed, until the pass it asks for has run. ``passes`` counts
    compaction passes of this turn, ``shrank`` says whether the last one did, ``send_anyway``
    switches the trigger off for the rest of the turn (L102). ``reserved`` are the tokens of the
    deferring turn's transients (L108). ``overflows`` counts "too long" from the provider and
    ``failed_*`` what those calls cost (M1). ``opened`` = ``on_turn_start`` has fired, ``closed``
    = ``on_turn_end`` has; ``served`` = the turn has its audit row.
    """

    over: o.ContextOverBudget | None = None
    passes: int = 0
    shrank: bool = False
    send_anyway: bool = False
    compacted: bool = False
    reserved: int = 0
    overflows: int = 0
    failed_attempts: int = 0
    failed_usage: Usage | None = None
    budget: int = 0
    budget_estimated: bool = False
    estimate: int = 0
    opened: bool = False
    closed: bool = False
    served: bool = False
    input: str = ""

    def to_json(self) -> dict[str, Any]:
        """JSON form; what is as it began is left out, for it is written at every transition."""
        out = {
            name: value
            for name, first in _FIRST_FACTS.items()
            if (value := getattr(self, name)) != first
        }
        if self.over is not None:
            out["over"] = o.to_json(self.over)
        if self.failed_usage is not None:
            out["failed_usage"] = self.failed_usage.to_json()
        return out

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TurnFacts:
        """The facts that ``to_json`` wrote."""
        known = {k: v for k, v in data.items() if k in cls.__slots__}
        over = known.get("over")
        known["over"] = None if over is None else o.from_json(over)
        known["failed_usage"] = Usage.from_json(known.get("failed_usage"))
        return cls(**known)


_FIRST_FACTS: Final[Mapping[str, Any]] = {f.name: f.default for f in fields(TurnFacts)}


@dataclass(slots=True, kw_only=True)
class RunFrame:
    """One run in progress.

    Attributes:
        state: Where the turn is.
        iteration: Counts from 1 once the first turn has begun; ``turn`` is iteration - 1.
        seq: Sequence number of the next record.
        pending: Messages of the run that are not the conversation's yet (L95).
        logged: How many of ``pending`` the append-only log already has.
        response: The settled reply of this turn, from CALLING_MODEL to PERSISTING.
        more: Another turn follows (B11).
        budget: Tokens counted for ``max_total_tokens`` so far, all attempts (B19).
        usage: Tokens as reported so far, all attempts, None when none was.
        recoveries: Follow-ups after replies cut at their length (B46).
        repairs: Replies sent back because they did not fit the run's schema.
        forced: With tools and a schema: the model has answered, the format is forced from now on.
        ended: How the run ended, once that is decided: ``{"error": None | error JSON}``.
        facts: The turn in progress.
    """

    run_id: str
    session_id: str
    input: str = ""
    fresh: bool = False
    state: TurnState = S.CHECKING_POLICY
    iteration: int = 0
    seq: int = 0
    pending: list[Message] = field(default_factory=list)
    logged: int = 0
    response: ChatResponse | None = None
    more: bool = False
    budget: int = 0
    usage: Usage | None = None
    recoveries: int = 0
    repairs: int = 0
    forced: bool = False
    last_finish: str | None = None
    ended: Mapping[str, Any] | None = None
    facts: TurnFacts = field(default_factory=TurnFacts)

    @property
    def turn(self) -> int:
        """Index of the turn in progress, from 0."""
        return max(self.iteration - 1, 0)

    def accept_input(self, message: Message, text: str) -> None:
        """The user's message: the only road into pending for the user's text (L16, L89)."""
        self._only(S.CHECKING_POLICY, "accept_input")
        self.input = text
        self.pending = [message]
        self.logged = 0

    def begin_turn(self) -> None:
        """Count the iteration on entry, before the check (B15)."""
        self._only(S.CHECKING_POLICY, "begin_turn")
        self.iteration += 1
        self.facts = TurnFacts()
        self.response = None
        self.more = False

    def model_response(self, response: ChatResponse) -> None:
        """The reply of this turn joins pending."""
        self._only(S.CALLING_MODEL, "model_response")
        self.response = response
        self.pending.append(response.message)

    def tool_results(self, message: Message) -> None:
        """The results of this turn's calls join pending, as one user message (L123)."""
        self._only(S.EXECUTING_TOOLS, "tool_results")
        self.pending.append(message)

    def over_budget(self, over: o.ContextOverBudget) -> None:
        """A line was crossed, or the provider said too long: a pass is due (B8a)."""
        if self.state not in (S.BUILDING_CONTEXT, S.CALLING_MODEL):
            self._only(S.BUILDING_CONTEXT, "over_budget")
        self.facts.over = over

    def compaction_result(self, *, applied: bool) -> None:
        """A pass has run. Applied: pending has moved into the history (L101).

        Otherwise both are untouched and the trigger is off for the rest of the turn (L102).
        """
        self._only(S.BUILDING_CONTEXT, "compaction_result")
        facts = self.facts
        facts.over = None
        facts.passes += 1
        facts.shrank = applied
        if applied:
            facts.compacted = True
            if not self.fresh:
                self.pending = []
                self.logged = 0
        else:
            facts.send_anyway = True

    def inject(self, message: Message) -> None:
        """A message joins pending without changing anything else (L89)."""
        if self.state not in (S.PROCESSING_RESPONSE, S.PERSISTING):
            self._only(S.PERSISTING, "inject")
        self.pending.append(message)

    def spend(self, tokens: int, *, estimated: bool) -> None:
        """Count tokens against the run's budget and on this turn's row (B18, B19)."""
        self.budget += tokens
        self.facts.budget += tokens
        self.facts.budget_estimated = self.facts.budget_estimated or estimated

    def add_usage(self, usage: Usage | None) -> None:
        """Add reported tokens to the run's."""
        if usage is not None:
            self.usage = usage if self.usage is None else self.usage.plus(usage)

    def unlogged(self) -> tuple[Message, ...]:
        """Messages of the run that the log does not have yet."""
        return tuple(self.pending[self.logged :])

    def to_json(self) -> dict[str, Any]:
        """JSON form without messages: those are in the snapshot's ``pending`` or in the log."""
        schema = {"repairs": self.repairs, "forced": self.forced}
        return {
            "format": FORMAT,
            "run_id": self.run_id,
            "session_id": self.session_id,
            "input": self.input,
            "fresh": self.fresh,
            "state": self.state.value,
            "iteration": self.iteration,
            "seq": self.seq,
            "logged": self.logged,
            "response": None if self.response is None else o.response_to_json(self.response),
            "more": self.more,
            "budget": self.budget,
            "usage": None if self.usage is None else self.usage.to_json(),
            "recoveries": self.recoveries,
            "last_finish": self.last_finish,
            "ended": None if self.ended is None else dict(self.ended),
            "facts": self.facts.to_json(),
            **{k: v for k, v in schema.items() if v},  # of runs with a schema only
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], pending: Sequence[Message]) -> RunFrame:
        """The frame that ``to_json`` wrote.

        Args:
            data: ``to_json``'s mapping.
            pending: The run's messages that are not in the conversation: ``logged`` of them
                from the log, then the snapshot's.

        Raises:
            KeyError, ValueError: The data is no frame.
        """
        plain = (
            "run_id", "session_id", "input", "fresh", "iteration", "seq", "logged", "more",
            "budget", "recoveries", "last_finish", "ended",
        )  # fmt: skip
        frame = cls(
            **{name: data[name] for name in plain},
            state=TurnState(data["state"]),
            pending=list(pending),
            usage=Usage.from_json(data["usage"]),
            facts=TurnFacts.from_json(data["facts"]),
            repairs=data.get("repairs", 0),
            forced=data.get("forced", False),
        )
        if data["response"] is not None:
            frame.response = _reply_among(data["response"], frame.pending)
        return frame

    def _only(self, state: TurnState, feed: str) -> None:
        # Ruling: L90, a feed in the wrong state is an error here
        if self.state is not state:
            raise InvalidTransition(self.state.name, feed, [f"{feed} in {state.name}"])


def _reply_among(data: Mapping[str, Any], pending: Sequence[Message]) -> ChatResponse:
    found = [m for m in pending if m.id == data["message_id"] and m.role is Role.ASSISTANT]
    if not found:
        raise ValueError(f"the reply {data['message_id']!r} is not among the run's messages")
    return o.response_from_json(data, found[-1])
