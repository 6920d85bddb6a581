"""What a recorded run saw, for driving it again: contributors' tokens, counting, routes, settings.

The messages of contributors and memory, the tools' schemas and the state of other runs are not in
a run file. What they did to the run is: each build of a context is recorded with its estimate, its
parts, its window and its route, and that is given again.

Source: Turn FSM, "Determinism" (B58, B59); LLM turn, "Counting the context" (L17, L107).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final

from notebook_agent.core import agent_events as ev
from notebook_agent.core import outcomes as o
from notebook_agent.core.breaker import BreakerState
from notebook_agent.core.compaction import CompactionPolicy
from notebook_agent.core.context import TokenCounter
from notebook_agent.core.messages import Message
from notebook_agent.core.policy import CompactionExhausted, RuntimePolicy
from notebook_agent.core.request import RequestOptions, ToolConstraint, ToolSchema
from notebook_agent.core.route import Route
from notebook_agent.core.session import RunEventRecord
from notebook_agent.core.turn_fsm import TurnState
from notebook_agent.engine.routing import served_name
from notebook_agent.engine.runtime.run_context import RunContext
from notebook_agent.engine.store.run_file import RunBundle
from notebook_agent.engine.tokenizer import counter_named, default_counter

__all__ = [
    "RecordedCounter",
    "RecordedRoutes",
    "RecordedTransients",
    "compaction_of",
    "counter_of",
    "options_of",
    "policy_of",
    "refs_of",
    "windows_of",
]

Coming = Callable[[], RunEventRecord | None]

_STANDS_FOR: Final = re.compile(r"\[messages of contributors, (\d+) tokens\]")


def refs_of(bundle: RunBundle) -> list[o.ContextRef]:
    """What each context of the run was."""
    return [r.outcome.ref for r in bundle.records if isinstance(r.outcome, o.ContextReady)]


def windows_of(bundle: RunBundle, primary: str) -> dict[str, int | None]:
    """Model -> the window that its contexts were measured against.

    A run of which no context could be sent tells its window where it says so.
    """
    found = {ref.route: ref.window for ref in refs_of(bundle)}
    for record in bundle.records:
        match record.outcome:
            case o.ContextOverBudget(limit=limit) if limit:
                found.setdefault(primary, limit)
            case o.PolicyExhausted(reason=CompactionExhausted(limit=limit)) if limit:
                found.setdefault(primary, limit)
            case _:
                continue
    return found


class RecordedTransients:
    """Stands for contributors and memory: as many tokens as their messages had in this build.

    Args:
        coming: The record that the build will be compared with.
        live: The run as it is driven now.
    """

    def __init__(self, coming: Coming, live: Callable[[], RunContext | None]) -> None:
        self._coming, self._live = coming, live

    def contribute(self, _turn: int, _conversation: Sequence[Message]) -> Message | None:
        """A message of as many tokens as then, None when there were none."""
        record, run = self._coming(), self._live()
        if record is None or run is None:
            return None
        match record.outcome:
            case o.ContextReady(ref=ref):
                # The words that ask for a schema are transients too, and are said by themselves.
                said = sum(map(run.counter.count_message, run.wanted().transients))
                tokens = ref.parts.get("transients", 0) - said
            case o.ContextOverBudget(used=used):
                tokens = _missing(run, used)
            case o.PolicyExhausted(reason=CompactionExhausted(estimated=used)):
                tokens = _missing(run, used)
            case _:
                return None
        return _stand_in(tokens) if tokens > 0 else None


def _stand_in(tokens: int) -> Message:
    return Message.user(f"[messages of contributors, {tokens} tokens]")


def _missing(run: RunContext, used: int) -> int:
    """Tokens of transients with which the context comes to ``used``: the total grows with them."""
    wanted, pipeline = run.wanted(), run.pipeline
    anchor = pipeline.calibration.anchor
    model = wanted.route.model if wanted.route else ("" if anchor is None else anchor.model)

    def total(tokens: int) -> int:
        given = (*wanted.transients, _stand_in(tokens)) if tokens else wanted.transients
        return pipeline.estimate(wanted, given, model=model).total

    low, high = 0, used
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if total(middle) < used else (low, middle)
    return low


class RecordedRoutes:
    """The way each turn took: the breaker's, unless the record says another.

    What moved the breaker beside this run's own calls (time, a hand, another run) is not in the
    file; where it had moved, the recorded route tells.

    Args:
        ahead: The records still to come.
        live: The run as it is driven now.
        ask: The LLM turn's own ``route``.

    Attributes:
        asked: Calls of the present state that were begun.
    """

    def __init__(
        self,
        ahead: Callable[[], Sequence[RunEventRecord]],
        live: Callable[[], RunContext | None],
        ask: Callable[[int], Route],
    ) -> None:
        self._ahead, self._live, self._ask = ahead, live, ask
        self.asked = 0

    def __call__(self, estimate: int) -> Route:
        """As ``LlmTurn.route``."""
        found, run, ahead = self._ask(estimate), self._live(), self._ahead()
        if run is None or not ahead:
            return found
        # No model could hold the request only where the record says so (F02).
        fits = not isinstance(ahead[0].outcome, o.PolicyExhausted)
        wanted, served = _route_and_model(ahead, self.asked)
        if wanted is None or served_name(found, run.options) == wanted:
            return found if found.exhausted is not None else replace(found, fits=fits)
        breaker = run.llm.breaker
        over = breaker.state is BreakerState.FALLBACK and wanted == breaker.original_model
        if over and found.exhausted is None and found.model != wanted:
            run.llm.recorder.check_recovery(math.inf)  # its cooldown was over by then
            found = self._ask(estimate)
        if found.model == wanted:
            return found if found.exhausted is not None else replace(found, fits=fits)
        window = run.llm.window_of(wanted)
        return Route(wanted, window, override=served in (None, wanted), fits=fits)


def _route_and_model(ahead: Sequence[RunEventRecord], asked: int) -> tuple[str | None, str | None]:
    """The route of the turn, and who served it; None where the record does not tell."""
    if ahead[0].state is TurnState.CALLING_MODEL:  # the router tries again
        models = [e.model for e in ahead[0].events if isinstance(e, ev.ModelStarted)]
        return (models[asked] if asked < len(models) else None), None
    route: str | None = None
    for record in ahead:
        if record.turn != ahead[0].turn:
            break
        if isinstance(record.outcome, o.ContextReady):
            route = record.outcome.ref.route or None
        elif isinstance(record.outcome, o.ModelResponse):
            return route, record.outcome.response.model or None
    return route, None


class RecordedCounter:
    """Counts like another counter, with the recorded cost of system prompt and tools: the
    tools' schemas are not in the file, and the trigger must see what it saw."""

    def __init__(self, counter: TokenCounter, refs: Sequence[o.ContextRef]) -> None:
        self._counter = counter
        self.name, self.exact = counter.name, counter.exact
        self._parts: Mapping[str, int] = refs[0].parts if refs else {}

    def count_text(self, text: str) -> int:
        """Tokens of a text."""
        return self._counter.count_text(text)

    def count_message(self, message: Message) -> int:
        """Tokens of a message; of one that stands for recorded transients, their tokens."""
        stood_for = _STANDS_FOR.fullmatch(message.text_content())
        return int(stood_for[1]) if stood_for else self._counter.count_message(message)

    def count_overhead(self, system: str | None, tools: Sequence[ToolSchema] | None) -> int:
        """The recorded tokens where there are any."""
        if not self._parts:
            return self._counter.count_overhead(system, tools)
        alone = self._parts.get("system", 0)
        return alone if tools is None else alone + self._parts.get("tools", 0)


def policy_of(given: Mapping[str, Any]) -> RuntimePolicy:
    """The recorded limits."""
    known = {f.name for f in fields(RuntimePolicy)}
    return RuntimePolicy(**{k: v for k, v in given.items() if k in known})


def options_of(given: Mapping[str, Any]) -> RequestOptions:
    """The recorded options, as far as they are in the record."""
    constraint = given.get("tool_constraint")
    return RequestOptions(
        model=given.get("model"),
        response_format=given.get("response_format"),
        tool_constraint=None if constraint is None else ToolConstraint(constraint),
    )


def counter_of(config: Mapping[str, Any]) -> TokenCounter:
    """The recorded counter, the default one when its name says nothing."""
    return counter_named(str(config.get("counter", ""))) or default_counter()


def compaction_of(bundle: RunBundle) -> CompactionPolicy:
    """The recorded policy; of an old file the default one with the recorded strategy."""
    given = bundle.run.config.get("compaction")
    if isinstance(given, Mapping):
        known = {f.name for f in fields(CompactionPolicy)}
        return CompactionPolicy(**{k: v for k, v in given.items() if k in known})
    done = [e for e in bundle.events if isinstance(e, ev.CompactionCompleted) and e.strategy]
    return CompactionPolicy(strategy=done[0].strategy) if done else CompactionPolicy()
