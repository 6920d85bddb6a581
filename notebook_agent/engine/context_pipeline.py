"""ContextPipeline: what the next request will hold, where it goes, and whether it fits.

Order: the conversation (history after the compaction filter, then pending), contributors in
registration order, the run's own transients, memory, the estimate, the route (looked up once a
turn, because the trigger needs the window of the model that will serve), the trigger, the trim.

Source: Turn FSM, "BuildingContext" (B20-B25, B36); LLM turn, "Counting the context" (L10-L12,
L17-L21, L107-L112).
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from notebook_agent.core import outcomes as o
from notebook_agent.core.compaction import CompactionPolicy, trigger
from notebook_agent.core.context import (
    ContextEstimate,
    Contributor,
    TokenCounter,
    sum_tokens,
)
from notebook_agent.core.messages import Message, Role
from notebook_agent.core.policy import CompactionExhausted, RuntimePolicy
from notebook_agent.core.request import ToolSchema
from notebook_agent.core.route import Route
from notebook_agent.core.sendable import cleaned, sendable
from notebook_agent.core.trim import trim
from notebook_agent.engine.calibrating import Calibration, setup_of
from notebook_agent.engine.conversation import Conversation, Overhead, without_state

__all__ = ["Built", "ContextPipeline", "Wanted", "effective_window", "pending_view"]

log = logging.getLogger("notebook_agent.context")

DEFAULT_WINDOW = CompactionPolicy().window


class Recall(Protocol):
    """Memory as the pipeline sees it: the message to show, None when nothing fits (L111)."""

    def __call__(self, query: str, top_k: int, /) -> Awaitable[Message | None]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What one build starts from.

    ``base`` is the committed conversation, ``pending`` the run's own messages after it.
    ``route`` is the turn's route when it was looked up before; ``passes``, ``shrank`` and
    ``send_anyway`` say what compaction has done for this turn (L102).
    """

    turn: int
    base: Conversation
    pending: Sequence[Message]
    query: str
    system: str | None
    tools: Sequence[ToolSchema]
    policy: RuntimePolicy
    transients: Sequence[Message] = ()
    route: Route | None = None
    passes: int = 0
    shrank: bool = False
    send_anyway: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """One built context. ``outcome`` is what BuildingContext reports of it.

    ``window`` in tokens; ``trimmed`` counts messages that the trim left out (B24).
    """

    transients: tuple[Message, ...]
    conversation: tuple[Message, ...]
    estimate: ContextEstimate
    route: Route
    window: int
    outcome: o.ContextReady | o.ContextOverBudget | o.PolicyExhausted
    trimmed: int = 0


def effective_window(route: Route, policy: RuntimePolicy, compaction: CompactionPolicy) -> int:
    """Tokens that the serving model can read, one number (3.3 #20).

    The model's own window where it is known, else the configured one; a configured window that
    the user set lower, and ``max_input_tokens``, cap it. 0 = never compact.
    """
    if compaction.window == 0:
        return 0
    window = compaction.window if route.window is None else route.window
    if compaction.window != DEFAULT_WINDOW and compaction.window > 0:
        window = min(window, compaction.window) if window > 0 else compaction.window
    if policy.max_input_tokens is not None:
        window = min(window, policy.max_input_tokens) if window > 0 else policy.max_input_tokens
    return window


def pending_view(pending: Sequence[Message], model: str) -> list[Message]:
    """Pending as a request to ``model`` may carry it (K06, L2).

    An adapter's state goes back only to the model that made it, and only while the exchange is
    open: after the newest user message that is no tool result.
    """
    opened = 0
    for at, message in enumerate(pending):
        if message.role is Role.USER and not message.results:
            opened = at
    view: list[Message] = []
    for at, message in enumerate(pending):
        state = message.provider_state
        if state is not None and (at < opened or state.get("model") != model):
            message = without_state(message)
        kept = sendable(message)
        if kept is not None:
            view.append(kept)
    return view


class ContextPipeline:
    """Builds contexts for one session.

    Args:
        counter: The one counter (L20).
        compaction: Window and lines.
        contributors: Asked in this order.
        recall: Memory, asked last.
        route: ``LlmTurn.route``.
    """

    def __init__(
        self,
        *,
        counter: TokenCounter,
        compaction: CompactionPolicy,
        route: Callable[[int], Route],
        contributors: Sequence[Contributor] = (),
        recall: Recall | None = None,
    ) -> None:
        self.counter = counter
        self.compaction = compaction
        self.contributors = list(contributors)
        self.recall = recall
        self.route = route
        self.overhead = Overhead()
        self.calibration = Calibration(on=False)

    async def build(self, wanted: Wanted) -> Built:
        """One context, and whether it may be sent.

        Returns:
            ``outcome`` is ContextReady, ContextOverBudget when a line is crossed and another
            pass is allowed, PolicyExhausted when none is and the context reaches the
            emergency line (L102).
        """
        base = wanted.base
        transients = await self.gather(wanted)
        route = wanted.route
        anchor = self.calibration.anchor
        likely = "" if anchor is None else anchor.model
        likely = likely if route is None else route.model
        estimate = self.estimate(wanted, transients, model=likely)
        if route is None or not route.fits:
            route = self.route(estimate.total)
            if estimate.calibration and route.model != likely:  # its count says nothing of another
                estimate = self.estimate(wanted, transients)
                route = self.route(estimate.total)
        view = pending_view(wanted.pending, route.model)
        window = effective_window(route, wanted.policy, self.compaction)
        outcome: o.ContextReady | o.ContextOverBudget | o.PolicyExhausted | None
        outcome = self.judge(wanted, estimate, route, window)
        conversation = (*base.messages, *view)
        trimmed = 0
        if outcome is None:
            if 0 < window < estimate.total:
                room = window - estimate.overhead - estimate.transients
                kept = trim(conversation, room, lambda m: sum_tokens(self.counter, (m,)))
                trimmed = len(conversation) - len(kept)
                conversation = tuple(kept)
            ref = o.ContextRef(
                # what the log's watermark does not cover: a turn costs the same at any age
                ids=tuple(m.id for m in view),
                digest=base.digest((*view, *transients)),
                estimate=estimate.total,
                route=route.model,
                window=window or None,
                parts=estimate.parts(),
                upto=base.upto,
            )
            outcome = o.ContextReady(ref=ref)
        return Built(
            transients=transients,
            conversation=conversation,
            estimate=estimate,
            route=route,
            window=window,
            outcome=outcome,
            trimmed=trimmed,
        )

    def estimate(
        self, wanted: Wanted, transients: Sequence[Message] = (), *, model: str = ""
    ) -> ContextEstimate:
        """``tokens(history + pending) + overhead + tokens(transients)`` (L17).

        A message whose state will be dropped is still counted with it: over, never under.

        Args:
            wanted: What the request is made of.
            transients: Messages for this turn only.
            model: Full name of who will read it; an estimate is calibrated by its own count of
                the request before, where there is one.
        """
        system, tools = self.overhead.parts(self.counter, wanted.system, wanted.tools)
        plain = ContextEstimate(
            system=system,
            tools=tools,
            transients=sum_tokens(self.counter, transients),
            history=wanted.base.tokens(self.counter) + sum_tokens(self.counter, wanted.pending),
            exact=self.counter.exact,
        )
        if not model or plain.exact or self.calibration.anchor is None:
            return plain
        setup = setup_of(self.counter, wanted.system, wanted.tools)
        return self.calibration.applied(
            plain, self.counter, wanted.base, wanted.pending, model=model, setup=setup
        )

    def judge(
        self, wanted: Wanted, estimate: ContextEstimate, route: Route, window: int
    ) -> o.ContextOverBudget | o.PolicyExhausted | None:
        """The trigger, or the line of L102 when no further pass is allowed; None = send."""
        if route.exhausted is not None:
            return None  # travels to CALLING_MODEL, which sends nothing (B36)
        crossed = trigger(self.compaction, estimate.total, window)
        if crossed is None:
            if route.fits or route.window is None:
                return None
            # compaction is off, and no model in line can hold the request (F02)
            return o.PolicyExhausted(exhausted(0, estimate.total, route.window, route))
        may_compact = wanted.passes == 0 or (wanted.passes < MAX_PASSES and wanted.shrank)
        if may_compact and not wanted.send_anyway:
            return o.ContextOverBudget(estimate.total, window, crossed)
        if crossed != "emergency":
            return None
        return o.PolicyExhausted(exhausted(wanted.passes, estimate.total, window, route))

    async def gather(self, wanted: Wanted) -> tuple[Message, ...]:
        """Transients: contributors in registration order, the run's own, then memory (L110)."""
        found: list[Message] = []
        conversation: tuple[Message, ...] = ()
        if self.contributors:  # after a compaction they see the compacted history (L109)
            conversation = (*wanted.base.messages, *_kept(wanted.pending))
        for contributor in self.contributors:
            try:
                given: Any = contributor.contribute(wanted.turn, conversation)
                if inspect.isawaitable(given):
                    given = await given
            except (Exception, SystemExit):  # one contributor's bug must not cost the turn
                log.exception("contributor %s raised; left out", type(contributor).__name__)
                continue
            if given is not None:
                found.append(Message.user(given) if isinstance(given, str) else given)
        found += wanted.transients
        if self.recall is not None and wanted.policy.memory_top_k > 0:
            try:
                remembered = await self.recall(wanted.query, wanted.policy.memory_top_k)
            except Exception:  # Ruling: L111, retrieval errors are logged and skipped
                log.exception("memory raised; left out")
            else:
                if remembered is not None:
                    found.append(remembered)
        # transients are never stored: an id would tie them to the log
        return tuple(cleaned(replace(m, id="") if m.id else m) for m in found if m.parts)


MAX_PASSES = 2  # Ruling: L102


def exhausted(passes: int, estimate: int, window: int, route: Route) -> CompactionExhausted:
    """The reason that ends a run whose context cannot be made to fit (B22, B36)."""
    detail = ""
    if route.skipped or not route.fits:
        detail = no_model_fits(estimate, route, window)
    return CompactionExhausted(passes, estimate, window, detail)


def no_model_fits(estimate: int, route: Route, window: int) -> str:
    """Words for F02: every model and what it can hold."""
    rows: Mapping[str, int] = {**dict(route.skipped), route.model: window}
    lines = [f"The request needs about {estimate:,} tokens and no model in line can hold it:"]
    lines += [f"  {name}: window {size:,}" for name, size in rows.items()]
    lines.append("Shorten the prompt, or start over with:  %agent reset")
    return "\n".join(lines)


def _kept(pending: Sequence[Message]) -> list[Message]:
    return [m for m in map(sendable, pending) if m is not None]
