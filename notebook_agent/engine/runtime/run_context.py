"""RunContext: one run and everything its steps use. The frame is what survives a crash.

Source: Turn FSM, "Relationship to other components" (B56, B58, M4).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from notebook_agent.core import agent_events as ev
from notebook_agent.core.compaction import CompactionPolicy
from notebook_agent.core.context import TokenCounter, sum_tokens
from notebook_agent.core.messages import Message, ToolCallPart, ToolResultPart
from notebook_agent.core.policy import RuntimePolicy
from notebook_agent.core.request import RequestOptions, StreamRequest, ToolSchema
from notebook_agent.core.response import ChatResponse, Usage
from notebook_agent.core.route import Route
from notebook_agent.core.run_frame import RunFrame
from notebook_agent.core.session import Run, Turn, UnservedTurn
from notebook_agent.engine.cancel import CancelSignal
from notebook_agent.engine.clock import Surroundings
from notebook_agent.engine.compactor import CompactionService, CompactionState
from notebook_agent.engine.context_pipeline import Built, ContextPipeline, Wanted
from notebook_agent.engine.conversation import Conversation
from notebook_agent.engine.llm_turn import LlmTurn
from notebook_agent.engine.memory import LoopMemory
from notebook_agent.engine.observers import Convergence, ObserverHub
from notebook_agent.engine.router import ModelRouter
from notebook_agent.engine.runtime.recorder import Recorder
from notebook_agent.engine.runtime.session_state import SessionState
from notebook_agent.engine.store.base import MessageRecord, ToolExecution
from notebook_agent.engine.structured import OutputSchema
from notebook_agent.engine.tools import ConvergenceDetector
from notebook_agent.engine.turn_values import AttemptFacts
from notebook_agent.errors import AgentError

__all__ = ["RunContext", "Staged", "ToolRunner"]


class ToolRunner(Protocol):
    """ToolRuntime as the steps see it."""

    async def execute(
        self,
        calls: Sequence[ToolCallPart],
        *,
        turn: int,
        run_id: str,
        session_id: str,
        done: Mapping[str, ToolExecution],
    ) -> tuple[ToolResultPart, ...]:
        """Results in request order (B49)."""
        ...


log = logging.getLogger("notebook_agent.runtime")


@dataclass(slots=True)
class Staged:
    """What a step wants written in its transition's transaction (B58).

    ``undo`` puts the frame back when the write failed, ``then`` runs when it succeeded.
    """

    messages: list[MessageRecord] = field(default_factory=list)
    turn: Turn | None = None
    unserved: UnservedTurn | None = None
    undo: list[Callable[[], None]] = field(default_factory=list)
    then: list[Callable[[], Any]] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class RunContext:
    """One run at work.

    Attributes:
        base: The conversation the run stands on: the session's, or an empty one (``--fresh``).
        skip: Messages at the head of pending that ``base`` already stands for (a fresh run
            that was compacted: the session's own conversation is not touched by it).
        built: The last built context of this turn.
        route: The turn's route, looked up once (B36).
        executed: Tool executions of an earlier life of this run, by call id (B75).
        call: Facts of the turn's model call, None when there was none.
        session_facts: What compaction remembers of the session (breaker, idempotence).
        error: The error object that ended the run, with its cause.
        schema: What the reply must be, None = free text.
    """

    frame: RunFrame
    run: Run
    session: SessionState
    base: Conversation
    policy: RuntimePolicy
    options: RequestOptions
    system: str | None
    tools: tuple[ToolSchema, ...]
    transients: tuple[Message, ...]
    counter: TokenCounter
    compaction: CompactionPolicy
    pipeline: ContextPipeline
    llm: LlmTurn
    router: ModelRouter
    tool_runner: ToolRunner
    compactor: CompactionService
    recorder: Recorder
    hub: ObserverHub
    cancel: CancelSignal
    surroundings: Surroundings
    skip: int = 0
    built: Built | None = None
    route: Route | None = None
    staged: Staged = field(default_factory=Staged)
    notices: list[str] = field(default_factory=list)
    executed: Mapping[str, ToolExecution] = field(default_factory=dict)
    call: AttemptFacts | None = None
    session_facts: CompactionState = field(default_factory=CompactionState)
    owner: Mapping[str, Any] = field(default_factory=dict)
    error: AgentError | None = None
    schema: OutputSchema | None = None
    memory: LoopMemory | None = None
    convergence: ConvergenceDetector | None = None
    compact_after: bool = False
    rewrote: bool = False
    resumed: bool = False
    started_s: float = 0.0
    turn_started_s: float = 0.0

    @property
    def turn(self) -> int:
        """Index of the turn in progress."""
        return self.frame.turn

    def emit(self, event: ev.AgentEvent) -> None:
        """Tell and keep an event."""
        self.recorder.emit(event)

    def notice(self, text: str) -> None:
        """A line for the person, once."""
        if text not in self.notices:
            self.notices.append(text)

    def pending(self) -> list[Message]:
        """Pending messages that ``base`` does not stand for."""
        return self.frame.pending[self.skip :] if self.skip else self.frame.pending

    def forces_format(self) -> bool:
        """Whether the next request must be answered in the schema's form."""
        return self.schema is not None and (not self.tools or self.frame.forced)

    def wanted(self) -> Wanted:
        """What the next build starts from. A schema is counted like a tool, sent or not (L18)."""
        facts = self.frame.facts
        schema = self.schema
        words: tuple[Message, ...] = ()
        if schema is not None and schema.in_words and self.forces_format():
            words = (schema.instruction(),)
        return Wanted(
            turn=self.turn,
            base=self.base,
            pending=self.pending(),
            query=facts.input,
            system=self.system,
            tools=self.tools if schema is None else (*self.tools, schema.tool()),
            policy=self.policy,
            transients=(*self.transients, *words),
            route=self.route,
            passes=facts.passes,
            shrank=facts.shrank,
            send_anyway=facts.send_anyway,
        )

    def spend_usage(self, usage: Usage | None, *, stand_in: Callable[[], int]) -> None:
        """Count one call against the budget; what was not reported is estimated (B18).

        Args:
            usage: As reported.
            stand_in: Tokens to count for a usage that is not whole.
        """
        # Ruling: B18, without the estimate a silent provider had an unlimited budget
        total = None if usage is None else usage.total
        if total is None:
            known = 0 if usage is None else (usage.context_tokens or 0) + (usage.output_tokens or 0)
            self.frame.spend(max(known, stand_in()), estimated=True)
        else:
            self.frame.spend(total, estimated=False)
        self.frame.add_usage(usage)

    def answered(self, text: str) -> None:
        """Answer-side detection, on final replies only (L93.8, L124).

        The run ends with this reply anyway: "stop" says so to the person, "compact" makes the
        conversation smaller once the run is complete.
        """
        action = None if self.convergence is None else self.convergence.observe(text)
        if action is None:
            return
        self.hub.fire("on_convergence_detected", Convergence(action))
        if action == "stop":  # a warning is the observers': running a cell again is normal
            self.notice("The last answers say the same again; ask differently, or:  %agent reset")
        self.compact_after = action == "compact"

    def watch(self, event: ev.AgentEvent) -> None:
        """Count what the events tell of tokens: failed attempts, summaries, judges (B19).

        An attempt that broke after its output began (text, reasoning or a tool call) and reported
        nothing is counted with the turn's estimate and the text it sent (B18); one that was
        refused before that used no tokens.
        """
        if type(event) is ev.UsageRecorded and event.purpose != "turn":
            usage = Usage.from_json(event.usage)
            if event.estimated:
                self.frame.spend((usage or Usage()).total or 0, estimated=True)
            else:
                self.spend_usage(usage, stand_in=lambda: 0)
        elif type(event) is ev.AttemptFailed and event.usage is None and event.began:
            sent = self.counter.count_text(event.partial_text)
            self.frame.spend(self.frame.facts.estimate + sent, estimated=True)

    async def ask_once(
        self, request: StreamRequest, options: RequestOptions, model: str, purpose: str
    ) -> ChatResponse:
        """The one-attempt path for summariser and judge (L10); unreported tokens are estimated."""
        if not model:  # the one that serves
            model = self.llm.breaker.routed_model() if self.route is None else self.route.model
        response = await self.llm.complete_once(request, options, model, purpose)
        if response.usage is None:
            tokens = sum_tokens(self.counter, (*request.messages, response.message))
            tokens += self.counter.count_overhead(request.system, request.tools)
            told = Usage(input_tokens=tokens, output_tokens=0)
            self.emit(ev.UsageRecorded(usage=told.to_json(), purpose=purpose, estimated=True))
        return response

    async def remember(
        self, calls: Sequence[ToolCallPart], results: Sequence[ToolResultPart]
    ) -> None:
        """Give memory the gist of what the tools found (L111)."""
        if self.memory is None:
            return
        try:
            await self.memory.note(self.turn, calls, results)
        except Exception:
            log.exception("memory raised in note; the run goes on")

    async def consolidate(self) -> None:
        """The run completed: memory may keep it (L111)."""
        if self.memory is None:
            return
        try:
            await self.memory.consolidate(self.frame.input, self.run.output)
        except Exception:
            log.exception("memory raised in consolidate; the run is complete")
