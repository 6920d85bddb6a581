"""AgentRuntime: the orchestrator. It holds a session and its parts, and works runs.

Source: Turn FSM, "Relationship to other components" (B56, B78, B79); LLM turn (L6, L13, L95,
L113, L116, L122).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from notebook_agent.core import agent_events as ev
from notebook_agent.core.breaker import Breaker, BreakerConfig, BreakerState
from notebook_agent.core.compaction import CompactionPolicy
from notebook_agent.core.context import Contributor, TokenCounter
from notebook_agent.core.policy import RuntimePolicy
from notebook_agent.core.request import RequestOptions, TurnMode
from notebook_agent.core.result import RunResult
from notebook_agent.core.retry import RateLimitPolicy, RetryPolicy, StreamTimeouts
from notebook_agent.core.session import Session
from notebook_agent.engine.calibrating import Calibration
from notebook_agent.engine.cancel import CancelSignal
from notebook_agent.engine.clock import SYSTEM, Surroundings
from notebook_agent.engine.compactor import CompactionService, CompactionState
from notebook_agent.engine.conversation import Overhead
from notebook_agent.engine.llm_turn import LlmTurn
from notebook_agent.engine.memory import LoopMemory
from notebook_agent.engine.observers import Observer, ObserverHub
from notebook_agent.engine.routing import may_serve
from notebook_agent.engine.runtime.clients import Clients, Resolver
from notebook_agent.engine.runtime.gate import Admission, AdmissionPolicy
from notebook_agent.engine.runtime.given import check_given
from notebook_agent.engine.runtime.run_context import RunContext
from notebook_agent.engine.runtime.run_options import Prompt, RunOptions
from notebook_agent.engine.runtime.session_state import SessionState, find
from notebook_agent.engine.runtime.sync import run_sync
from notebook_agent.engine.runtime.verbs import Verbs
from notebook_agent.engine.runtime.worker import resume_run, work
from notebook_agent.engine.store.base import Store
from notebook_agent.engine.store.memory import MemoryStore
from notebook_agent.engine.subscription import EVENT_BUFFER, Subscription
from notebook_agent.engine.tokenizer import counter_for_models
from notebook_agent.engine.tools import Approve, LoopPolicy, RunOnMain, Tool, ToolRegistry
from notebook_agent.engine.tools.loops import ConvergenceDetector
from notebook_agent.errors import ConfigError
from notebook_agent.providers.base import ModelClient

__all__ = ["AgentRuntime"]


class AgentRuntime(Verbs):
    """Works prompts to their end, turn by turn, on one session.

    Args:
        client_or_name: A model client, or a name or alias for ``resolve_client``.
        resolve_client: Full name -> client; default the front door's ``model``.
        system: System prompt.
        tools: Functions or tools that the model may call.
        policy, options: Limits and request options of every run; a run's own beat them.
        fallback: Chain of backups, names or clients, in order.
        mode: STREAMING (the ladder) or NON_STREAMING (one attempt).
        timeouts, retry, rate_limit: The stream handler's settings.
        breaker: Numbers of the breaker.
        compaction: Window, lines and strategy.
        contributors: Asked for transients each turn, in this order.
        memory: Long-term memory, asked last.
        observers: Told what happens.
        store: Where runs are kept; default this process's memory.
        session: None = a new one named ``default``; a name = that session of the store, made
            when there is none; a Session = that one.
        counter: The token counter; default exact where the vocabulary is there.
        surroundings: Clock, randomness, ids.
        text_streamer: Called with each fragment of text; ``reset(attempt)`` if it has one.
        cancel: The signal; its owner may fire it from any thread.
        approve, run_on_main: Tools that ask first, tools for the notebook's thread (D20).
        admission: What may enter (B79, B80).
        loops: When repeated work is noticed (L124).
        compaction_hooks: Veto and guidance for compaction (L103).
        calibrate: Whether estimates follow what the provider reported; exact counts never do.

    Example:
        >>> from notebook_agent import AgentRuntime, ScriptedModel
        >>> AgentRuntime(ScriptedModel(["Hello."])).run("Hi").text
        'Hello.'

    Source: Turn FSM, "Relationship to other components".
    """

    def __init__(
        self,
        client_or_name: ModelClient | str,
        *,
        resolve_client: Resolver | None = None,
        system: str | None = None,
        tools: Sequence[Tool | Callable[..., Any]] = (),
        policy: RuntimePolicy | None = None,
        options: RequestOptions | None = None,
        fallback: Sequence[ModelClient | str] = (),
        mode: TurnMode = TurnMode.STREAMING,
        timeouts: StreamTimeouts | None = None,
        retry: RetryPolicy | None = None,
        rate_limit: RateLimitPolicy | None = None,
        breaker: BreakerConfig | None = None,
        compaction: CompactionPolicy | None = None,
        contributors: Sequence[Contributor] = (),
        memory: LoopMemory | None = None,
        observers: Sequence[Observer] = (),
        store: Store | None = None,
        session: Session | str | None = None,
        counter: TokenCounter | None = None,
        surroundings: Surroundings = SYSTEM,
        text_streamer: Callable[[str], Any] | None = None,
        cancel: CancelSignal | None = None,
        approve: Approve | None = None,
        run_on_main: RunOnMain | None = None,
        admission: AdmissionPolicy | None = None,
        loops: LoopPolicy | None = None,
        compaction_hooks: Sequence[Any] = (),
        calibrate: bool = True,
    ) -> None:
        check_given(locals())
        self.surroundings = surroundings
        self.clients = Clients(resolve_client)
        self.primary = self.clients.add(client_or_name)
        self.fallback = self.clients.names(fallback)
        self.system, self.registry = system, ToolRegistry(tools)
        self.policy = policy or RuntimePolicy()
        self.options = RequestOptions().merged(options or RequestOptions())
        self.breaker_config = breaker or BreakerConfig()
        self.compaction, self.loops = compaction or CompactionPolicy(), loops or LoopPolicy()
        self.contributors, self.memory = list(contributors), memory
        self.store: Store = store if store is not None else MemoryStore()
        self._given_counter = counter
        self._counters: dict[tuple[str, ...], TokenCounter] = {}
        self.counter = self.counter_of(RunOptions())
        self.cancel_signal = cancel or CancelSignal()
        self.approve, self.run_on_main = approve, run_on_main
        self.admission = Admission(admission)
        self.hub = ObserverHub([_TurnWatch(self), *observers])
        self._wanted_session, self._calibrate = session, calibrate
        self._begin_life()
        self.llm = self._make_llm(timeouts, retry, rate_limit, mode, text_streamer)
        self.compactor = self._make_compactor(compaction_hooks)

    def _begin_life(self) -> None:
        """What the session gathers as it goes."""
        self.active: RunContext | None = None
        self.last_error: BaseException | None = None
        self.greeted = False
        self.told_estimate = False
        self.strikes: dict[str, tuple[int, dict[str, int]]] = {}  # per primary, per backup
        self.overhead, self.calibration = Overhead(), Calibration(self._calibrate)
        self.compaction_facts = CompactionState()
        self.convergence = ConvergenceDetector(self.loops)
        self._state: SessionState | None = None
        self._breakers: dict[str, Breaker] = {}

    def _make_llm(
        self,
        timeouts: StreamTimeouts | None,
        retry: RetryPolicy | None,
        rate_limit: RateLimitPolicy | None,
        mode: TurnMode,
        text_streamer: Callable[[str], Any] | None,
    ) -> LlmTurn:
        return LlmTurn(
            resolve_client=self.clients,
            breaker=self.breaker_of(self.primary),
            hub=self.hub,
            emit=self._emit,
            cancel=self.cancel_signal,
            surroundings=self.surroundings,
            timeouts=timeouts,
            retry=retry,
            rate_limit=rate_limit,
            mode=mode,
            text_streamer=text_streamer,
        )

    def _make_compactor(self, hooks: Sequence[Any]) -> CompactionService:
        return CompactionService(
            self.compaction,
            self.counter,
            self._complete_once,
            hooks,
            self.surroundings,
            window_of=self.llm.window_of,
            cancel=self.cancel_signal,
        )

    # --- running

    async def arun(self, prompt: Prompt, *, wait_s: float = 0.0, **given: Any) -> RunResult:
        """Work a prompt to its end.

        Args:
            prompt: The user's text, a message, or a list of texts and images: paths, bytes,
                Pillow, matplotlib figures.
            wait_s: Seconds to wait when the session is busy; 0 = not at all (B78).
            given: :class:`~notebook_agent.engine.runtime.run_options.RunOptions` of this run.

        Returns:
            The result of a completed run, or of one that met a limit.

        Raises:
            AgentError: The run ended otherwise; ``error.result`` is its RunResult.
        """
        return await work(self, prompt, RunOptions(**given), wait_s=wait_s)

    def run(self, prompt: Prompt, *, wait_s: float = 0.0, **given: Any) -> RunResult:
        """As :meth:`arun`, from a script or under a running loop (then on a thread of its own)."""
        return run_sync(lambda: self.arun(prompt, wait_s=wait_s, **given), self.cancel_signal)

    async def aresume(self, run_id: str | None = None, *, force: bool = False) -> RunResult:
        """Go on with a run that a kill broke off (Ruling: B75).

        Args:
            run_id: Which; None = the session's last one that did not end.
            force: Also when another living process seems to work on it.

        Raises:
            ConfigError: There is nothing to resume.
            SessionBusy: The run is being worked on.
            AgentError: The run ended with it.
        """
        return await resume_run(self, run_id, force=force)

    def resume(self, run_id: str | None = None, *, force: bool = False) -> RunResult:
        """As :meth:`aresume`, from a script."""
        return run_sync(lambda: self.aresume(run_id, force=force), self.cancel_signal)

    def cancel(self) -> None:
        """Stop the run in progress, or the next one when none is (L116)."""
        self.cancel_signal.cancel()

    # --- parts

    @property
    def session(self) -> Session:
        """The session; read from the store at the first use when it was named."""
        return self.state.session

    @property
    def state(self) -> SessionState:
        """The session with its conversation and store."""
        if self._state is None:
            self._state = self._open(self._wanted_session)
        return self._state

    def use_compaction(self, policy: CompactionPolicy) -> None:
        """Another compaction policy from now on."""
        self.compaction = policy
        self.compactor.policy = policy

    def counter_of(self, given: RunOptions) -> TokenCounter:
        """The counter of a run with these settings: one for trigger and compaction alike, never
        below what any model counts that may serve it (L20)."""
        if self._given_counter is not None:
            return self._given_counter
        primary = self.primary if given.model is None else self.clients.add(given.model)
        chain = self.fallback if given.fallback is None else self.clients.names(given.fallback)
        options = self.options if given.options is None else self.options.merged(given.options)
        models = may_serve(primary, chain, options)
        found = self._counters.get(models)
        if found is None:
            found = self._counters[models] = counter_for_models(models)
        return found

    def subscribe(self, *, buffer: int = EVENT_BUFFER, deltas: bool = False) -> Subscription:
        """The events of this runtime from now on, to be read at the reader's own pace.

        A reader that is too slow loses the oldest events, and is told how many; it never holds
        up a run (B71).

        Args:
            buffer: Events that are kept for the reader.
            deltas: Text too, as TextDelta events.

        Example:
            >>> from notebook_agent import AgentRuntime, ScriptedModel
            >>> runtime = AgentRuntime(ScriptedModel(["Hello."]))
            >>> with runtime.subscribe() as events:
            ...     _ = runtime.run("Hi")
            >>> [type(event).__name__ for event in events.take()][-1]
            'RunCompleted'
        """
        return Subscription(self.hub, buffer=buffer, deltas=deltas)

    def breaker_of(self, model: str) -> Breaker:
        """The breaker of a primary; one per (session, primary) (B36)."""
        # Ruling: B36, keyed by the primary: a request's own model never chooses a breaker
        found = self._breakers.get(model)
        if found is None:
            chain = [name for name in self.fallback if name != model]
            found = self._breakers[model] = Breaker(self.breaker_config, model, chain)
        return found

    def set_breaker(self, **changes: Any) -> BreakerConfig:
        """Change numbers of the breaker, from now on and in a cooldown that runs already.

        Args:
            changes: Fields of :class:`BreakerConfig`. Strikes are counted against the
                ``max_fail_count`` that held when a backup joined the chain.

        Raises:
            ConfigError: No such field, or a value outside its range; nothing changed.
        """
        known = BreakerConfig.__slots__
        for name in changes:
            if name not in known:
                raise ConfigError(field="breaker", value=name, legal=", ".join(known))
        self.breaker_config = replace(self.breaker_config, **changes)
        for breaker in self._breakers.values():
            breaker.config = self.breaker_config
        return self.breaker_config

    def restore_breaker(self, kept: Mapping[str, Any] | None) -> None:
        """Take over the breaker of a run's earlier life, where ours has seen nothing yet."""
        if kept is None:
            return
        model = str(kept["original_model"])
        ours = self.breaker_of(model)
        untouched = ours.state is BreakerState.PRIMARY and ours.data.consecutive_failures == 0
        if not untouched:
            return
        breaker = Breaker.from_json(kept, now=self.surroundings.now())
        breaker.set_chain([entry.name for entry in ours.chain])
        self._breakers[model] = breaker
        if self.llm.breaker is ours:
            self.llm.use_breaker(breaker)

    def _open(self, wanted: Session | str | None) -> SessionState:
        if isinstance(wanted, str):
            row = self.store.find_session(wanted)
            if row is not None:
                return SessionState.load(self.store, row, self.surroundings)
        name = wanted if isinstance(wanted, str) else "default"
        session = (
            wanted
            if isinstance(wanted, Session)
            else Session(id=self.surroundings.new_id("session"), name=name)
        )
        by_name = isinstance(wanted, str)
        return SessionState(session, self.store, self.surroundings, by_name=by_name)

    def use_store(self, store: Store) -> None:
        """Keep the session elsewhere from now on; conversation and trail come along.

        Records and events of earlier runs stay where they are.

        Raises:
            SessionBusy: A run is in progress.
        """
        self._require_idle()
        session = self.session
        self.store = store
        self._state = SessionState(session, store, self.surroundings)

    def load_session(self, name_or_id: str) -> Session:
        """Go on with a stored session (D21).

        Raises:
            ConfigError: There is none of that name or id.
            StoreError: It cannot be read.
        """
        self._require_idle()
        row = find(self.store, name_or_id)
        self._state = SessionState.load(self.store, row, self.surroundings)
        self.convergence.reset()
        self.admission.forget()  # per session (Ruling: B80)
        return self._state.session

    def _emit(self, event: ev.AgentEvent) -> None:
        if self.active is not None:
            self.active.emit(event)
        else:
            self.hub.fire("on_event", event)

    async def _complete_once(self, request: Any, options: Any, model: str, purpose: str) -> Any:
        if self.active is not None:
            return await self.active.ask_once(request, options, model, purpose)
        return await self.llm.complete_once(request, options, model or self.primary, purpose)


class _TurnWatch(Observer):
    """Notes in the frame that a turn has begun for the observers (L94, M1)."""

    def __init__(self, runtime: AgentRuntime) -> None:
        self._runtime = runtime

    def on_turn_start(self, _ctx: Any) -> None:
        """The turn is open until ``on_turn_end``."""
        if self._runtime.active is not None:
            self._runtime.active.frame.facts.opened = True
