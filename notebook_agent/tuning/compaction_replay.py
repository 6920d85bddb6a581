"""A conversation worked again under one compaction policy, without a model but the summariser's.

Before every reply of the record the context is measured and, where a line is crossed, compacted,
with the engine's own trigger, window and service: what the lab shows is what a run would do.

Source: tune by experiment, compaction lab; LLM turn, "Counting the context" (L17, L97-L104).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from notebook_agent.core.compaction import CompactionPolicy, trigger
from notebook_agent.core.context import TokenCounter, sum_tokens
from notebook_agent.core.messages import Message, Role
from notebook_agent.core.policy import RuntimePolicy
from notebook_agent.core.response import Usage
from notebook_agent.core.route import Route
from notebook_agent.engine.clock import Surroundings
from notebook_agent.engine.compaction_values import CompactionResult, CompleteOnce, Guidance
from notebook_agent.engine.compactor import CompactionService
from notebook_agent.engine.context_pipeline import MAX_PASSES, effective_window
from notebook_agent.tuning.given import named

__all__ = ["Fate", "Outcome", "Pass", "Plan", "Point", "replay_policy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A policy to try.

    Attributes:
        policy: Strategy and numbers.
        instructions: Added to the summariser's task, for the ``model`` strategy.
    """

    policy: CompactionPolicy
    instructions: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One compaction pass: where, why, and what came of it. Tokens of the whole request."""

    turn: int
    reason: str
    result: CompactionResult
    window: int
    seconds: float

    @property
    def tokens_before(self) -> int:
        """Before it."""
        return self.result.tokens_before


@dataclass(frozen=True, slots=True)
class Point:
    """The context of one request, in tokens: before the trigger looked, and as it was sent."""

    turn: int
    before: int
    sent: int
    compacted: bool


@dataclass(slots=True)
class Fate:
    """What became of a message: kept, shortened, summarised or left out; ``turn`` of the pass."""

    fate: str = "kept"
    turn: int | None = None
    tokens_after: int = 0


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What a policy did to a conversation.

    Attributes:
        view: What the next request would hold.
        fates: One for each message of the material.
        stuck: First turn whose context could not be brought under the emergency line: a run
            would have ended there; None = every request could be sent.
    """

    name: str
    plan: Plan
    window: int
    reserved: int
    view: tuple[Message, ...] = ()
    passes: list[Pass] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    fates: list[Fate] = field(default_factory=list)
    stuck: int | None = None

    @property
    def applied(self) -> list[Pass]:
        """The passes that changed the context."""
        return [one for one in self.passes if one.result.applied]

    @property
    def usage(self) -> Usage | None:
        """What the summariser reported, None when it reported nothing."""
        total: Usage | None = None
        for one in self.passes:
            if one.result.usage is not None:
                total = one.result.usage if total is None else total.plus(one.result.usage)
        return total

    @property
    def calls(self) -> int:
        """Requests that went to the summariser."""
        return sum(one.result.calls for one in self.passes)

    @property
    def tokens(self) -> int:
        """Tokens of the next request."""
        return self.points[-1].sent if self.points else self.reserved


async def replay_policy(
    name: str,
    plan: Plan,
    messages: Sequence[Message],
    *,
    counter: TokenCounter,
    surroundings: Surroundings,
    reserved: int,
    window: int | None = None,
    complete_once: CompleteOnce | None = None,
    window_of: Callable[[str], int | None] | None = None,
    check: Callable[[], None] = lambda: None,
) -> Outcome:
    """Work a conversation again.

    Args:
        name: The policy's name in the frames.
        messages: As they were said; each with an id of its own.
        counter: The one counter.
        reserved: Tokens of system prompt, tools and transients.
        window: The model's window where it is known; the policy's caps it.
        complete_once: Asks the summariser, for the ``model`` strategy.
        window_of: Window of a summariser by its name.
        check: Called between turns; raises to stop.

    Raises:
        ConfigError: The ``model`` strategy without a model.
    """
    size = effective_window(Route("", window=window), RuntimePolicy(), plan.policy)
    outcome = Outcome(name=name, plan=plan, window=size, reserved=reserved)
    outcome.fates = [Fate(tokens_after=sum_tokens(counter, (m,))) for m in messages]
    hooks = [] if plan.instructions is None else [_guide(plan.instructions)]
    service = CompactionService(
        plan.policy, counter, complete_once, hooks, surroundings, window_of=window_of
    )
    worker = _Replay(outcome, service, messages, surroundings)
    for at, message in enumerate(messages):
        if message.role is Role.ASSISTANT:
            check()
            await worker.request()
        worker.add(at, message)
    await worker.request()  # the next one
    outcome.view = tuple(worker.view)
    return outcome


def _guide(instructions: str) -> Callable[[object], Guidance]:
    return lambda _: Guidance(new_instructions=instructions)


class _Replay:
    """The growing view of one policy."""

    def __init__(
        self,
        outcome: Outcome,
        service: CompactionService,
        messages: Sequence[Message],
        surroundings: Surroundings,
    ) -> None:
        self.outcome, self.service, self.now = outcome, service, surroundings.now
        self.view: list[Message] = []
        self.place: dict[str, int] = {}  # id in the view -> place in the material
        self.tokens = 0
        self.turn = 0
        self.messages = messages

    def add(self, at: int, message: Message) -> None:
        """One more message of the record."""
        self.view.append(message)
        self.place[message.id] = at
        self.tokens += sum_tokens(self.service.counter, (message,))

    async def request(self) -> None:
        """A request is about to be made: the trigger looks, and looks again after a pass (L102)."""
        out, policy = self.outcome, self.service.policy
        before = sent = out.reserved + self.tokens
        compacted = False
        for number in range(MAX_PASSES):
            reason = trigger(policy, sent, out.window)
            if reason is None:
                break
            began = self.now()
            result = await self.service.compact(
                self.view, (), reason=reason, window=out.window, reserved=out.reserved,
                passes=number,
            )  # fmt: skip
            out.passes.append(
                Pass(
                    turn=self.turn, reason=reason, result=result, window=out.window,
                    seconds=self.now() - began,
                )
            )  # fmt: skip
            if not result.applied:
                break
            compacted = True
            self._take(result)
            sent = out.reserved + self.tokens
        if out.stuck is None and trigger(policy, sent, out.window) == "emergency":
            out.stuck = self.turn
        out.points.append(Point(self.turn, before, sent, compacted))
        self.turn += 1

    def _take(self, result: CompactionResult) -> None:
        count: Callable[[Message], int] = lambda m: sum_tokens(self.service.counter, (m,))  # noqa: E731  # one expression, used once below
        stays: dict[str, int] = {}
        for message in result.messages:
            origin = result.origins.get(message.id, message.id)
            at = self.place.get(origin)
            if at is None:
                continue
            stays[message.id] = at
            if origin != message.id:
                fate = self.outcome.fates[at]
                fate.fate, fate.turn, fate.tokens_after = "shortened", self.turn, count(message)
        gone = "summarised" if result.summary is not None else "left out"
        for at in set(self.place.values()) - set(stays.values()):
            fate = self.outcome.fates[at]
            fate.fate, fate.turn, fate.tokens_after = gone, self.turn, 0
        self.place = stays
        self.view = list(result.messages)
        self.tokens = sum_tokens(self.service.counter, self.view)


def plans_of(policies: Mapping[str, Plan | CompactionPolicy]) -> dict[str, Plan]:
    """Policies as plans, by name.

    Raises:
        ConfigError: It is no mapping of those.
    """
    policies = named("policies", policies, (Plan, CompactionPolicy), "name -> CompactionPolicy")
    return {n: p if isinstance(p, Plan) else Plan(policy=p) for n, p in policies.items()}
