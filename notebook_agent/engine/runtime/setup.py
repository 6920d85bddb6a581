"""Setting up one run: the run's own settings over the runtime's, put back afterwards.

Source: LLM turn, "Building the request" (L6, L13, L49, L108, L121); Turn FSM, "CallingModel"
(B36).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any

from notebook_agent.core.compaction import CompactionPolicy
from notebook_agent.core.messages import Message
from notebook_agent.core.policy import RuntimePolicy
from notebook_agent.core.request import RequestOptions
from notebook_agent.core.run_frame import RunFrame
from notebook_agent.core.session import Run, RunStatus
from notebook_agent.core.text import clean_text
from notebook_agent.engine.context_pipeline import ContextPipeline
from notebook_agent.engine.conversation import Conversation
from notebook_agent.engine.images import as_message
from notebook_agent.engine.router import ModelRouter
from notebook_agent.engine.routing import capabilities_of
from notebook_agent.engine.runtime.owner import owner_mark
from notebook_agent.engine.runtime.recorder import Recorder
from notebook_agent.engine.runtime.resume import Broken
from notebook_agent.engine.runtime.run_context import RunContext
from notebook_agent.engine.runtime.run_options import RunOptions
from notebook_agent.engine.structured import OutputSchema, format_for
from notebook_agent.engine.tools import ToolRegistry, ToolRuntime
from notebook_agent.errors import ConfigError

if TYPE_CHECKING:
    from notebook_agent.engine.runtime.agent import AgentRuntime

__all__ = ["Setup", "run_registry"]


class Setup:
    """The settings of one run, in force until :meth:`undo`.

    Args:
        runtime: Whose run.
        given: The run's own settings.

    Raises:
        ConfigError: A tool or model that is not there.
    """

    def __init__(self, runtime: AgentRuntime, given: RunOptions) -> None:
        self.runtime = runtime
        self.given = given
        llm = runtime.llm
        self.registry = run_registry(runtime.registry, given)
        self._before = (llm.breaker, llm.mode, llm.timeouts, llm.text_streamer)
        self.policy = given.policy or runtime.policy
        self.options = (
            runtime.options if given.options is None else runtime.options.merged(given.options)
        )
        system = runtime.system if given.system is None else given.system
        self.system = clean_text(system) if system else None
        self.primary = runtime.primary if given.model is None else runtime.clients.add(given.model)
        self.schema = self._schema()
        chain = None if given.fallback is None else runtime.clients.names(given.fallback)
        breaker = runtime.breaker_of(self.primary)
        if llm.breaker is not breaker:
            llm.use_breaker(breaker)
        self._remember_strikes()
        try:
            self._set_chain(runtime.fallback if chain is None else chain)
        except ConfigError:
            self._put_back()
            raise
        self.counter = runtime.counter_of(given)
        runtime.compactor.counter = self.counter
        if self.schema is not None and self.schema.in_words is None:
            self.schema = replace(self.schema, in_words=self._asks_in_words(self.schema))
        llm.mode = given.mode or llm.mode
        llm.timeouts = given.timeouts or llm.timeouts
        llm.text_streamer = given.text_streamer or llm.text_streamer

    def undo(self) -> None:
        """Put the runtime's own settings back; strikes are remembered by name."""
        self._remember_strikes()
        if self.given.fallback is not None:
            self._set_chain(self.runtime.fallback)
        self._put_back()

    def _put_back(self) -> None:
        llm = self.runtime.llm
        self.runtime.compactor.counter = self.runtime.counter
        first, llm.mode, llm.timeouts, llm.text_streamer = self._before
        if llm.breaker is not first:
            llm.use_breaker(first)

    def _remember_strikes(self) -> None:
        """Strikes of backups outlive a run's own chain, but no recovery and no reset (L78)."""
        breaker = self.runtime.llm.breaker
        known, strikes = self.runtime.strikes.get(breaker.original_model, (0, {}))
        if known != breaker.times_cleared:
            strikes = {}
        now = {entry.name: entry.attempt_count for entry in breaker.chain}
        self.runtime.strikes[breaker.original_model] = (breaker.times_cleared, {**strikes, **now})

    def new_run(self, run_id: str, message: Message) -> RunContext:
        """A run that begins now."""
        runtime = self.runtime
        text = message.text_content()
        frame = RunFrame(run_id=run_id, session_id=runtime.state.session.id, fresh=self.given.fresh)
        frame.accept_input(message.with_id(runtime.surroundings.new_id("message")), text)
        run = Run(
            id=run_id,
            input=text,
            start=runtime.surroundings.wall(),
            status=RunStatus.RUNNING,
            config=self._config(),
        )
        return self._context(frame, run)

    def broken_run(self, broken: Broken) -> RunContext:
        """A run that goes on."""
        context = self._context(broken.frame, broken.run, order=broken.order)
        context.executed = broken.executed
        context.resumed = True
        return context

    def _context(self, frame: RunFrame, run: Run, *, order: int = 0) -> RunContext:
        runtime, llm = self.runtime, self.runtime.llm
        state = runtime.state
        recorder = Recorder(
            runtime.store, runtime.hub, runtime.surroundings, frame.run_id, order=order
        )
        pipeline = ContextPipeline(
            counter=self.counter,
            compaction=runtime.compaction,
            route=llm.route,
            contributors=runtime.contributors,
            recall=None if runtime.memory is None else runtime.memory.recall,
        )
        pipeline.overhead = runtime.overhead
        pipeline.calibration = runtime.calibration
        tools = ToolRuntime(
            self.registry,
            policy=self.policy,
            hub=runtime.hub,
            emit=recorder.emit,
            cancel=runtime.cancel_signal,
            store=runtime.store,
            surroundings=runtime.surroundings,
            run_on_main=runtime.run_on_main,
            approve=runtime.approve,
            loops=runtime.loops,
        )
        context = RunContext(
            frame=frame,
            run=run,
            session=state,
            base=Conversation(upto=state.conversation.upto) if frame.fresh else state.conversation,
            policy=self.policy,
            options=self.options,
            system=self.system,
            tools=self.registry.schemas(self.options.tool_constraint),
            transients=tuple(map(as_message, self.given.transients)),
            counter=self.counter,
            compaction=runtime.compaction,
            pipeline=pipeline,
            llm=llm,
            router=ModelRouter(llm, router_retries=self.policy.router_retries),
            tool_runner=tools,
            compactor=runtime.compactor,
            recorder=recorder,
            hub=runtime.hub,
            cancel=runtime.cancel_signal,
            surroundings=runtime.surroundings,
            memory=runtime.memory,
            session_facts=runtime.compaction_facts,
            owner=owner_mark(),
            convergence=runtime.convergence,
            schema=self.schema,
        )
        recorder.watch = context.watch
        return context

    def _config(self) -> Mapping[str, Any]:
        """What the run was asked with; request parameters by name only (X05)."""
        return {
            "model": self.primary,
            "fallback": [entry.name for entry in self.runtime.llm.breaker.chain],
            "mode": self.runtime.llm.mode.value,
            "policy": {f.name: getattr(self.policy, f.name) for f in fields(RuntimePolicy)},
            "tools": list(self.registry.names()),
            "fresh": self.given.fresh,
            "system": self.system,
            "options": _options_json(self.options),
            "compaction": _compaction_json(self.runtime.compaction),
            **({} if self.schema is None else {"schema": self.schema.to_json()}),
        }

    def _schema(self) -> OutputSchema | None:
        """The run's schema; what cannot be done with it is said before anything is sent."""
        if self.given.schema is None:
            return None
        schema = OutputSchema.of(self.given.schema)
        if self.options.response_format is not None:
            raise ConfigError(
                "A schema and a response_format were given; the schema is the format.\n"
                "Give one of them.",
                field="schema",
            )
        if len(self.registry) and self.policy.max_iterations < 2:
            raise ConfigError(
                "With tools a schema needs two turns: one in which the model may call them, one "
                "that gives the format. Nothing was sent.\n"
                "Type:  %%agent --max-turns 4     or leave the tools out:  --no-tools",
                field="schema",
            )
        return schema

    def _asks_in_words(self, schema: OutputSchema) -> bool:
        """Whether a model that may serve this run cannot be forced to the schema."""
        breaker = self.runtime.llm.breaker
        for name in (breaker.original_model, *(entry.name for entry in breaker.chain)):
            try:
                client = self.runtime.clients(name)
            except ConfigError:
                continue  # a backup that cannot be made serves nothing
            if format_for(client, capabilities_of(client), schema)[2]:
                return True
        return False

    def _set_chain(self, names: tuple[str, ...]) -> None:
        breaker = self.runtime.llm.breaker
        wanted = [name for name in names if name != breaker.original_model]
        if [entry.name for entry in breaker.chain] == wanted:
            return
        breaker.set_chain(wanted)
        _, strikes = self.runtime.strikes[breaker.original_model]
        for entry in breaker.chain:
            for _ in range(strikes.get(entry.name, 0) - entry.attempt_count):
                breaker.mark_fallback_failed(entry.name)


def _compaction_json(policy: CompactionPolicy) -> dict[str, Any]:
    return {**asdict(policy), "keep_tools": list(policy.keep_tools)}


def _options_json(options: RequestOptions) -> dict[str, Any]:
    constraint = options.tool_constraint
    return {
        "model": options.model,
        "response_format": None
        if options.response_format is None
        else dict(options.response_format),
        "tool_constraint": None if constraint is None else constraint.value,
        "extra": sorted(options.extra),
    }


def run_registry(registry: ToolRegistry, given: RunOptions) -> ToolRegistry:
    """The run's tools: all registered ones, or those that it names."""
    if given.tools is None:
        return registry
    chosen = ToolRegistry()
    for one in given.tools:
        if isinstance(one, str):
            known = registry.get(one)
            if known is None:
                names = ", ".join(registry.names()) or "none"
                raise ConfigError(
                    f"There is no tool {one!r}; registered: {names}.\n"
                    f"Add it with:  %agent tools add {one}",
                    field="tools",
                    value=one,
                )
            chosen.register(known)
        else:
            chosen.register(one)
    return chosen
