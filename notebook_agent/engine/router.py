"""ModelRouter: capability check, then the LLM turn, and retries only where it owns them.

Source: Turn FSM, "CallingModel" (B36-B41; 3.3 #1-#4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from notebook_agent.core.messages import ImagePart, Message, ToolResultPart
from notebook_agent.core.request import TurnMode
from notebook_agent.core.response import Usage
from notebook_agent.core.retry import transport_delay
from notebook_agent.engine.llm_turn import LlmTurn
from notebook_agent.engine.routing import capabilities_of
from notebook_agent.engine.stream_handler import pause
from notebook_agent.engine.turn_values import ServedTurn, TurnContext
from notebook_agent.errors import AgentError, ErrorKind, ProviderError
from notebook_agent.providers.base import Capabilities

__all__ = ["FEATURES", "ModelRouter", "check_capabilities"]

Need = Callable[[TurnContext, Sequence[Message], TurnMode], bool]


def _format_is(context: TurnContext, kind: str) -> bool:
    wanted = context.options.response_format
    return wanted is not None and wanted.get("type") == kind


def _has_tools(context: TurnContext) -> bool:
    if _format_is(context, "tool"):
        return True
    return bool(context.tools) and not context.options.response_format


def _has_images(context: TurnContext, transients: Sequence[Message]) -> bool:
    for message in (*transients, *context.conversation):
        for part in message.parts:
            if isinstance(part, ImagePart) or (isinstance(part, ToolResultPart) and part.images):
                return True
    return False


# capability -> (what it is called, when a request needs it) (B39)
FEATURES: Final[Mapping[str, tuple[str, Need]]] = {
    "chat": ("chat", lambda _c, _t, _m: True),
    "chat_stream": ("streaming", lambda _c, _t, mode: mode is TurnMode.STREAMING),
    "tool_calling": ("tool calling", lambda c, _t, _m: _has_tools(c)),
    "parallel_tool_calls": (
        "parallel tool calls",
        lambda c, _t, _m: _has_tools(c) and bool(c.options.extra.get("parallel_tool_calls")),
    ),
    "json_schema": ("JSON schema output", lambda c, _t, _m: _format_is(c, "json_schema")),
    "json_object": ("JSON output", lambda c, _t, _m: _format_is(c, "json_object")),
    "vision": ("images", lambda c, t, _m: _has_images(c, t)),
}

_WAY_OUT: Final[Mapping[str, str]] = {
    "chat_stream": "Ask it unstreamed with:  %%agent --no-stream",
    "tool_calling": "Ask without tools:  %%agent --no-tools     or another model:  %%agent -m NAME",
}


def check_capabilities(
    can: Capabilities,
    model: str,
    context: TurnContext,
    transients: Sequence[Message] = (),
    *,
    mode: TurnMode = TurnMode.STREAMING,
) -> None:
    """Refuse what the model says it cannot do, before any network use.

    A capability that is not known (None) is tried, and the provider's word stands.

    Raises:
        ProviderError: UNSUPPORTED, with the missing feature.
    """
    for name, (words, needed) in FEATURES.items():
        if getattr(can, name) is False and needed(context, transients, mode):
            way_out = _WAY_OUT.get(name, "Use another model:  %%agent -m NAME")
            raise ProviderError(
                ErrorKind.UNSUPPORTED, f"{model} does not support {words}.\n{way_out}", feature=name
            )


class ModelRouter:
    """CallingModel's one door.

    Args:
        llm: The LLM turn, whose ladder owns the retries of a streamed turn.
        router_retries: Whole turns retried here; 0 (default) leaves retries to the ladder. Above
            0 the router owns the transport retries and each turn makes one attempt, so the two
            are never multiplied (3.3 #1). Each retry is a turn of its own for the breaker, and
            is routed anew.
    """

    def __init__(self, llm: LlmTurn, *, router_retries: int = 0) -> None:
        self.llm = llm
        self.router_retries = router_retries

    async def route_chat(
        self, turn: int, transients: Sequence[Message], context: TurnContext
    ) -> ServedTurn:
        """Check, then carry out the route of ``context``.

        Raises:
            ProviderError: UNSUPPORTED, before any request; or the turn's own failure.
            AgentError: As ``LlmTurn.do_turn``.
        """
        # Ruling: B40, the ladder owns the back-off; the two are never multiplied (3.3 #1)
        if self.router_retries <= 0:
            self._check(transients, context)
            return await self.llm.do_turn(turn, transients, context)
        context = replace(context, single_attempt=True)
        attempts, spent, retry = 0, None, 0
        while True:
            self._check(transients, context)
            before = self.llm.last_attempts
            try:
                served = await self.llm.do_turn(turn, transients, context)
            except AgentError as error:
                facts = self.llm.last_attempts
                if facts is before:  # nothing was sent: cancelled, or every model is resting
                    raise
                facts.attempts, facts.failed_usage = attempts, spent = (
                    attempts + facts.attempts,
                    _sum(spent, facts.failed_usage),
                )
                delay = self._delay(retry, error)
                if delay is None:
                    raise
                await pause(delay, self.llm.cancel, self.llm.surroundings)
            else:
                return replace(
                    served,
                    attempts=attempts + served.attempts,
                    failed_usage=_sum(spent, served.failed_usage),
                )
            retry += 1
            context = replace(context, route=self.llm.route(context.estimate), again=True)

    def _delay(self, retry: int, error: AgentError) -> float | None:
        """Seconds before another turn, None when there is none. An escalation is final (3.3 #3)."""
        if retry >= self.router_retries or not isinstance(error, ProviderError):
            return None
        if not error.is_retryable:
            return None
        hint = error.retry_after
        if hint is None or not self.llm.rate_limit.respect_retry_after:
            return transport_delay(self.llm.retry, retry, self.llm.surroundings.uniform)
        return hint if hint <= self.llm.rate_limit.max_delay else None

    def _check(self, transients: Sequence[Message], context: TurnContext) -> None:
        route = context.route
        if route.exhausted is None:
            client = self.llm.resolve_client(route.model)
            can = capabilities_of(client)
            check_capabilities(can, route.model, context, transients, mode=self.llm.mode)


def _sum(one: Usage | None, other: Usage | None) -> Usage | None:
    if one is None or other is None:
        return other if one is None else one
    return one.plus(other)
