"""What a person does with a runtime between runs: look, undo, reset, compact, switch.

Source: notebook, section 3 (every verb has its Python twin); LLM turn (L13, L83); Turn FSM
(B29, B34).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from notebook_agent.core.breaker import Breaker
from notebook_agent.core.compaction import CompactionPolicy, emergency_line, threshold_line
from notebook_agent.core.context import Contributor, TokenCounter
from notebook_agent.core.messages import Message
from notebook_agent.core.policy import RuntimePolicy
from notebook_agent.core.request import RequestOptions
from notebook_agent.core.route import Route
from notebook_agent.core.session import Session
from notebook_agent.engine.cancel import CancelSignal
from notebook_agent.engine.clock import Surroundings
from notebook_agent.engine.compactor import (
    CompactionPreview,
    CompactionResult,
    CompactionService,
    CompactionState,
)
from notebook_agent.engine.context_pipeline import Wanted, effective_window
from notebook_agent.engine.conversation import Conversation, Overhead
from notebook_agent.engine.images import as_message
from notebook_agent.engine.llm_turn import LlmTurn
from notebook_agent.engine.memory import LoopMemory
from notebook_agent.engine.observers import Compaction, ObserverHub
from notebook_agent.engine.routing import checked_window, choose_route
from notebook_agent.engine.runtime.clients import Clients
from notebook_agent.engine.runtime.exact_count import ExactCount
from notebook_agent.engine.runtime.gate import GATE
from notebook_agent.engine.runtime.resume import broken_runs
from notebook_agent.engine.runtime.run_context import RunContext
from notebook_agent.engine.runtime.run_options import RunOptions
from notebook_agent.engine.runtime.session_state import SessionState
from notebook_agent.engine.runtime.setup import run_registry
from notebook_agent.engine.runtime.status import ContextAnatomy, Status
from notebook_agent.engine.runtime.sync import run_sync
from notebook_agent.engine.store.base import Store
from notebook_agent.engine.structured import OutputSchema
from notebook_agent.engine.tools import ToolRegistry
from notebook_agent.engine.tools.loops import ConvergenceDetector
from notebook_agent.errors import Cancelled, ConfigError, SessionBusy
from notebook_agent.providers.base import ModelClient

__all__ = ["Verbs"]


class Verbs(ExactCount):
    """The part of AgentRuntime that works between runs."""

    primary: str
    fallback: tuple[str, ...]
    system: str | None
    registry: ToolRegistry
    policy: RuntimePolicy
    options: RequestOptions
    compaction: CompactionPolicy
    compactor: CompactionService
    compaction_facts: CompactionState
    contributors: list[Contributor]
    memory: LoopMemory | None
    store: Store
    counter: TokenCounter
    cancel_signal: CancelSignal
    convergence: ConvergenceDetector
    clients: Clients
    llm: LlmTurn
    hub: ObserverHub
    overhead: Overhead
    surroundings: Surroundings
    active: RunContext | None
    last_error: BaseException | None

    @property
    def state(self) -> SessionState:
        """The session with its conversation and store."""
        raise NotImplementedError

    @property
    def session(self) -> Session:
        """The session."""
        raise NotImplementedError

    def counter_of(self, given: RunOptions) -> TokenCounter:
        """The counter of a run with these settings."""
        raise NotImplementedError

    def breaker_of(self, model: str) -> Breaker:
        """The breaker of a primary."""
        raise NotImplementedError

    def use_compaction(self, policy: CompactionPolicy) -> None:
        """Another compaction policy from now on."""
        raise NotImplementedError

    @property
    def breaker(self) -> Breaker:
        """The breaker of the session's model."""
        return self.breaker_of(self.primary)

    # --- looking

    def context_anatomy(self, text: str = "", **given: Any) -> ContextAnatomy:
        """Tokens of the next request by part; nothing is sent (``%agent count``).

        Args:
            text: A prompt that would be asked.
            given: As for ``arun``.
        """
        options = RunOptions(**given)
        if not self.contributors and self.memory is None:
            shown = tuple(map(as_message, options.transients))
            return self._anatomy(text, options, shown)
        return run_sync(lambda: self.acontext_anatomy(text, **given), self.cancel_signal)

    async def acontext_anatomy(self, text: str = "", **given: Any) -> ContextAnatomy:
        """As :meth:`context_anatomy`."""
        options = RunOptions(**given)
        prepare = getattr(self.counter_of(options), "prepare", None)
        if prepare is not None:
            await prepare()
        transients = await self.pipeline().gather(self._wanted(text, options))
        return self._anatomy(text, options, transients)

    def _wanted(self, text: str, given: RunOptions) -> Wanted:
        constraint = self.options.tool_constraint
        if given.options is not None and given.options.tool_constraint is not None:
            constraint = given.options.tool_constraint
        tools = run_registry(self.registry, given).schemas(constraint)
        if given.schema is not None:
            tools = (*tools, OutputSchema.of(given.schema).tool())
        return Wanted(
            turn=0,
            base=Conversation() if given.fresh else self.state.conversation,
            pending=(),
            query=text,
            system=(self.system if given.system is None else given.system) or None,
            tools=tools,
            policy=given.policy or self.policy,
            transients=tuple(map(as_message, given.transients)),
        )

    def _anatomy(
        self, text: str, given: RunOptions, transients: Sequence[Message]
    ) -> ContextAnatomy:
        wanted = self._wanted(text, given)
        counter = self.counter_of(given)
        asked = counter.count_message(Message.user(text)) if text else 0
        model = self.primary if given.model is None else self.clients.add(given.model)
        estimate = self.pipeline(counter).estimate(wanted, transients, model=model)
        if model == self.llm.breaker.original_model:
            route = choose_route(
                self.llm.breaker,
                estimate.total + asked,
                self.llm.window_of,
                self.surroundings.now(),
            )
        else:
            route = Route(model, self.llm.window_of(model))
        window = effective_window(route, wanted.policy, self.compaction)
        return ContextAnatomy(
            system=estimate.system,
            tools=estimate.tools,
            transients=estimate.transients,
            history=estimate.history,
            prompt=asked,
            window=window,
            threshold=threshold_line(self.compaction, window),
            emergency=emergency_line(self.compaction, window),
            exact=estimate.exact,
            counter=counter.name,
            model=route.model,
            messages=len(wanted.base.messages),
        )

    def status(self) -> Status:
        """Where things stand (``%agent status``); no request."""
        session = self.session
        last = next((t for run in reversed(session.runs) for t in reversed(run.turns)), None)
        active = self.active
        error = self.last_error
        anatomy = self._anatomy("", RunOptions(), ())
        return Status(
            session=session.name,
            session_id=session.id,
            store=self.store.location,
            model=self.primary,
            served="" if last is None else last.model,
            mode=self.llm.mode.value,
            fallback=self.fallback,
            breaker=self.llm.breaker.to_json(self.surroundings.now()),
            system=self.system,
            tools=self.registry.names(),
            options={
                name: getattr(self.options, name)
                for name in RequestOptions.__slots__
                if getattr(self.options, name)
            },
            policy={name: getattr(self.policy, name) for name in self.policy.__slots__},
            runs=len(session.runs),
            messages=len(session.history),
            busy=active is not None,
            state=None if active is None else active.frame.state.value,
            context=anatomy,
            resumable=tuple(s.run_id for s in broken_runs(self.store, session.id))
            if active is None
            else (),
            last_error=None if error is None else str(error),
        )

    # --- changing what the next run starts from

    def set_request_options(self, options: RequestOptions) -> None:
        """Options of the following runs; a run's own are laid over them (L13)."""
        self.options = options
        self._count_again()

    def switch_model(self, model: ModelClient | str, *, context_window: int | None = None) -> str:
        """Another primary from now on; its breaker is reset (L83).

        Args:
            model: A client, a name or an alias.
            context_window: Its window in tokens, where the model does not say or says wrong.

        Returns:
            The full name.

        Raises:
            ConfigError: No such model, or a window that is none; nothing changed.
            SessionBusy: A run is in progress.
        """
        self._require_idle()
        name = self.clients.add(model)
        if context_window is not None:
            self.llm.windows[name] = checked_window(context_window)
        self.llm.switch_primary(self.breaker_of(name))
        self.primary = name
        self._count_again()
        return name

    def set_fallback(self, chain: Sequence[ModelClient | str]) -> None:
        """The chain of backups; names that stay keep their strikes.

        Raises:
            ConfigError: A name is blank or there twice.
            SessionBusy: A run is in progress.
        """
        self._require_idle()
        names = self.clients.names(chain)
        self.breaker.set_chain([n for n in names if n != self.primary])
        self.fallback = names
        self._count_again()

    def _count_again(self) -> None:
        """Other models may serve the next run: the counter follows; a run keeps its own (L20)."""
        self.counter = self.counter_of(RunOptions())
        if self.active is None:
            self.compactor.counter = self.counter

    def set_compaction(self, **changes: Any) -> CompactionPolicy:
        """Change numbers of the compaction policy (``%agent compact policy K=V``).

        Raises:
            ConfigError: No such field, or a value outside its range.
        """
        known = CompactionPolicy.__slots__
        for name in changes:
            if name not in known:
                raise ConfigError(field="policy", value=name, legal=", ".join(known))
        values = {name: getattr(self.compaction, name) for name in known}
        self.use_compaction(CompactionPolicy(**{**values, **changes}))
        return self.compaction

    def undo(self, count: int = 1) -> tuple[str, ...]:
        """Drop the last runs from the conversation by a marker; log and trail stay (D21).

        Returns:
            Ids of the runs that left it, newest first.

        Raises:
            SessionBusy: A run is in progress.
        """
        with self._held("undo"):
            return self.state.undo(count)

    def reset(self, hard: bool = False) -> None:
        """Clear the conversation; the trail stays unless ``hard``.

        Raises:
            SessionBusy: A run is in progress.
        """
        with self._held("reset"):
            self.state.reset(hard=hard)
            self.convergence.reset()
            self.compaction_facts = CompactionState()

    # --- compaction by hand

    def compact_now(self) -> CompactionResult:
        """One pass now, whatever the estimate (``%agent compact now``)."""
        return run_sync(self.acompact_now, self.cancel_signal)

    async def acompact_now(self) -> CompactionResult:
        """As :meth:`compact_now`.

        Raises:
            Cancelled: The user stopped it; nothing changed.
            SessionBusy: A run is in progress.
            StoreError: The markers could not be written; the conversation is as it was.
        """
        with self._held("compact"):
            try:
                self.state.catch_up()
                return await self.compact_unheld("manual")
            except Cancelled:
                self.cancel_signal.reset()  # used up: the next run is not cancelled (L116)
                raise

    async def compact_unheld(self, reason: str) -> CompactionResult:
        """A pass between two turns, the session being held by the caller."""
        state = self.state
        window, reserved = await self._room()
        result = await self.compactor.compact(
            state.conversation.messages,
            [],
            reason=reason,
            window=window,
            reserved=reserved,
            session_state=self.compaction_facts,
            model=self.llm.breaker.routed_model(),
            manual=True,
        )
        if result.applied:
            state.append(state.marker_entries(result))
            state.conversation.replace(list(result.messages))
            self.hub.fire(
                "on_compaction",
                Compaction(
                    result.tokens_before, result.tokens_after, result.tokens_saved, result.strategy
                ),
            )
            await self.compactor.after_rewrite(result)
        return result

    def compact_preview(self) -> CompactionPreview:
        """What a pass would do, without doing it (``%agent compact preview``)."""
        return run_sync(self.acompact_preview, self.cancel_signal)

    async def acompact_preview(self) -> CompactionPreview:
        """As :meth:`compact_preview`."""
        window, reserved = await self._room()
        return await self.compactor.preview(
            self.state.conversation.messages,
            [],
            reason="manual",
            window=window,
            reserved=reserved,
            model=self.llm.breaker.routed_model(),
        )

    async def _room(self) -> tuple[int, int]:
        anatomy = await self.acontext_anatomy()
        return anatomy.window, anatomy.system + anatomy.tools

    # --- sessions

    def rename_session(self, name: str) -> Session:
        """Give the session another name (``%agent session save NAME``)."""
        state = self.state
        with self._held("rename"):
            state.session.name = name
            state.store_again()
            self.store.rename_session(state.session.id, name)
        return state.session

    def _require_idle(self) -> None:
        if self.active is not None:
            raise SessionBusy(self.session.name)

    def _held(self, what: str) -> Any:
        state = self.state
        return GATE.held(state.key, state.session.name, what)
