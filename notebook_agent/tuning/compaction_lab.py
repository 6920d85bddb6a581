"""Compaction lab: one recorded conversation under several policies, offline, side by side.

Example:
    >>> from notebook_agent import CompactionPolicy, Message
    >>> talk = []
    >>> for n in range(40):
    ...     talk += [Message.user(f"Box {n}: what is in it?"), Message.assistant("Apples. " * 20)]
    >>> lab = CompactionLab(talk, {
    ...     "extractive": CompactionPolicy(window=1_000),
    ...     "truncate": CompactionPolicy(window=1_000, strategy="truncate"),
    ... })
    >>> report = lab.run()
    >>> report.summary()["policy"].tolist()
    ['extractive', 'truncate']

Source: tune by experiment, compaction lab.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from notebook_agent.core.compaction import CompactionPolicy
from notebook_agent.core.context import TokenCounter
from notebook_agent.core.messages import Message
from notebook_agent.core.request import (
    RequestOptions,
    StreamRequest,
    ToolSchema,
    build_turn_request,
)
from notebook_agent.core.response import ChatResponse
from notebook_agent.engine.cancel import CancelSignal
from notebook_agent.engine.clock import Surroundings
from notebook_agent.engine.compaction_values import CompleteOnce
from notebook_agent.engine.runtime.sync import run_sync
from notebook_agent.engine.tokenizer import default_counter
from notebook_agent.errors import AgentError, Cancelled, ConfigError
from notebook_agent.providers.base import ModelClient, full_name
from notebook_agent.providers.registry import model as model_of
from notebook_agent.tuning.compaction_replay import Outcome, Plan, plans_of, replay_policy
from notebook_agent.tuning.driver import Progress
from notebook_agent.tuning.facts import facts_of
from notebook_agent.tuning.given import whole
from notebook_agent.tuning.lab_report import COLUMNS, LabReport, NextAnswer
from notebook_agent.tuning.lab_work import Price, surroundings
from notebook_agent.tuning.material import Material, material

__all__ = ["CompactionLab", "Plan"]


class CompactionLab:
    """A recorded conversation and the policies to try on it.

    Args:
        source: A session, a runtime, ``(store, session name)``, a run file's path, or messages.
        policies: Name -> CompactionPolicy, or Plan with words for the summariser.
        model: Gives the next answer under each policy; also the summariser, where a policy of
            the ``model`` strategy names none.
        summarisers: Full name -> client, for ``summary_model`` names; others are made by name.
        window: The model's window in tokens; None = as recorded, else the policy's.
        system, tools: Of the replayed requests.
        counter: The token counter; None = the model's own.
        prices: Full model name -> Price.
        surroundings: Clock and ids.

    Raises:
        ConfigError: Nothing to replay, no policy, one that is called like a column of the
            report's frames, or a ``model`` strategy with no model.
    """

    def __init__(
        self,
        source: Any,
        policies: Mapping[str, CompactionPolicy | Plan],
        *,
        model: ModelClient | str | None = None,
        summarisers: Mapping[str, ModelClient] | None = None,
        window: int | None = None,
        system: str | None = None,
        tools: Sequence[ToolSchema] = (),
        counter: TokenCounter | None = None,
        prices: Mapping[str, Price] | None = None,
        surroundings: Surroundings | None = None,
    ) -> None:
        self.material: Material = material(source)
        self.plans = plans_of(policies)
        if not self.plans:
            raise ConfigError(field="policies", value={}, legal="one or more")
        self.model = model_of(model) if isinstance(model, str) else model
        whole("window", window, 0, none=True)
        self.window = window if window is not None else self.material.window
        self.system, self.tools = system, tuple(tools)
        self.prices = dict(prices or {})
        self._summarisers = dict(summarisers or {})
        self._given_surroundings = surroundings
        name = "" if self.model is None else full_name(self.model)
        self.counter = counter if counter is not None else default_counter(name)
        for name, plan in self.plans.items():
            if name in COLUMNS:
                raise ConfigError(
                    f"A column of the report is called {name!r}: give the policy another name.",
                    field="policies",
                )
            policy = plan.policy
            if policy.strategy == "model" and self.model is None and policy.summary_model is None:
                raise ConfigError(
                    f"The policy {name!r} lets a model write its summaries, and there is none.\n"
                    "Give the lab a model=, or the policy a summary_model.",
                    field="model",
                )

    def given(self) -> dict[str, Any]:
        """What it was made with beside the conversation and the policies."""
        return {
            "model": self.model, "summarisers": self._summarisers, "window": self.window,
            "system": self.system, "tools": self.tools, "counter": self.counter,
            "prices": self.prices, "surroundings": self._given_surroundings,
        }  # fmt: skip

    def __repr__(self) -> str:
        return f"<CompactionLab: {self.material.name}, {len(self.plans)} policies>"

    def run(self, *, progress: Callable[[Progress], None] | None = None) -> LabReport:
        """As :meth:`arun`, from a script or under a running loop."""
        signal = CancelSignal()
        return run_sync(
            lambda: self.arun(progress=progress, check=signal.raise_if_cancelled), signal
        )

    async def arun(
        self,
        *,
        progress: Callable[[Progress], None] | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> LabReport:
        """Work the conversation again under every policy; no request but summaries and answers.

        Args:
            progress: Told after each policy.
            check: Called between turns; raises to stop.

        Raises:
            Cancelled: ``check`` stopped it; ``error.result`` is the report of what was done.
        """
        prepare = getattr(self.counter, "prepare", None)
        if prepare is not None and inspect.isawaitable(ready := prepare()):
            await ready
        around = self._given_surroundings or surroundings()
        reserved = self._reserved()
        facts = facts_of(self.material.messages)
        outcomes: list[Outcome] = []
        answers: list[NextAnswer] = []
        try:
            for number, (name, plan) in enumerate(self.plans.items(), start=1):
                outcome = await replay_policy(
                    name, plan, self.material.messages, counter=self.counter, surroundings=around,
                    reserved=reserved, window=self.window, complete_once=self._complete(),
                    window_of=self._window_of, check=check,
                )  # fmt: skip
                outcomes.append(outcome)
                if self.model is not None:
                    answers.append(await self._answer(name, outcome.view, around))
                if progress is not None:
                    total = len(self.plans)
                    progress(Progress(total=total, done=number, finished=number == total))
        except Cancelled as stopped:
            stopped.result = self._report(facts, outcomes, answers)
            raise
        return self._report(facts, outcomes, answers)

    def _report(self, facts: Any, outcomes: list[Outcome], answers: list[NextAnswer]) -> LabReport:
        if self.material.answer is not None:
            recorded = NextAnswer(policy="(recorded)", text=self.material.answer)
            answers = [recorded, *answers]
        return LabReport(
            material=self.material,
            facts_list=tuple(facts),
            outcomes=tuple(outcomes),
            next_answers=tuple(answers),
            counter=self.counter,
            prices=self.prices,
            summariser=None if self.model is None else full_name(self.model),
        )

    # ---- requests --------------------------------------------------------------------------

    def _reserved(self) -> int:
        """Tokens beside the conversation: as given here, else as recorded."""
        if self.system is not None or self.tools:
            return self.counter.count_overhead(self.system, self.tools or None)
        return self.material.reserved or 0

    def _client(self, name: str) -> ModelClient:
        found = self._summarisers.get(name)
        if found is None and self.model is not None and name in ("", full_name(self.model)):
            found = self.model
        if found is None:
            found = self._summarisers[name] = model_of(name)
        return found

    def _complete(self) -> CompleteOnce:
        async def complete(
            request: StreamRequest,
            options: RequestOptions,
            name: str,
            purpose: str,  # noqa: ARG001  # the interface's
        ) -> ChatResponse:
            return await self._client(name).create_message_with_options(request, options)

        return complete

    def _window_of(self, name: str) -> int | None:
        known = getattr(self._client(name), "capabilities", None)
        return None if known is None else known().context_window

    async def _answer(
        self, name: str, view: tuple[Message, ...], around: Surroundings
    ) -> NextAnswer:
        """The next reply on a view; a model that fails is an answer too."""
        assert self.model is not None
        request = build_turn_request((), view, system=self.system, tools=self.tools)
        began = around.now()
        try:
            reply = await self.model.create_message_with_options(request, RequestOptions())
        except Cancelled:
            raise
        except Exception as error:  # noqa: BLE001  # a client of the user's may raise anything
            known = isinstance(error, AgentError)
            said = str(error) if known else f"{type(error).__name__}: {error}"
            return NextAnswer(policy=name, text="", error=said, seconds=around.now() - began)
        text = reply.message.text_content()
        calls = ", ".join(call.name for call in reply.message.tool_calls)
        return NextAnswer(
            policy=name,
            text=text or (f"[calls {calls}]" if calls else ""),
            usage=reply.usage,
            seconds=around.now() - began,
        )
