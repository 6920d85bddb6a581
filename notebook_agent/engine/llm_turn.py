"""LlmTurn: one entry point for every request to a model, two paths behind it.

Source: LLM turn, "Two paths, one entry point" (L10, L14-L16, L22-L35, L80, L127, M1); Turn
FSM, "CallingModel" (B36).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from notebook_agent.core import agent_events as ev
from notebook_agent.core import events as e
from notebook_agent.core.breaker import Breaker
from notebook_agent.core.messages import Message, TextPart
from notebook_agent.core.request import RequestOptions, StreamRequest, TurnMode, build_turn_request
from notebook_agent.core.response import ChatResponse
from notebook_agent.core.retry import RateLimitPolicy, RetryPolicy, StreamTimeouts, cause_of
from notebook_agent.core.route import Route
from notebook_agent.core.verdict import judge_reply
from notebook_agent.engine.cancel import CancelSignal, DeadlineReached, race
from notebook_agent.engine.clock import Surroundings
from notebook_agent.engine.delivery import Delivery, tell_calls
from notebook_agent.engine.failures import as_agent_error, completing, timed_out
from notebook_agent.engine.observers import ObserverHub, TurnStart
from notebook_agent.engine.read_gap import read_gap
from notebook_agent.engine.record import Recorder
from notebook_agent.engine.routing import (
    bare_name,
    choose_route,
    served_name,
    window_of,
    without_foreign_state,
)
from notebook_agent.engine.stream_handler import StreamHandler, wait_for_token
from notebook_agent.engine.turn_values import AttemptFacts, ServedTurn, TurnContext
from notebook_agent.errors import AgentError, Cancelled
from notebook_agent.providers.base import ModelClient

__all__ = ["AttemptFacts", "LlmTurn", "ServedTurn", "TurnContext"]


class LlmTurn:
    """Sends model requests for one session.

    Args:
        resolve_client: Full name ``provider:name`` -> client.
        breaker: Of the session and its primary; see ``use_breaker``.
        hub: The observers.
        emit: Takes every AgentEvent; it stamps ``run_id`` and ``timestamp``.
        cancel: The session's cancel signal.
        surroundings: Clock, sleep, jitter, ids.
        timeouts, retry, rate_limit: The handler's settings (L48); may be exchanged between runs.
        mode: STREAMING (ladder and rescue) or NON_STREAMING (one attempt); likewise.
        text_streamer: Called with every fragment of text; ``reset(attempt)`` if it has one.

    Attributes:
        last_attempts: Facts of the latest call, also when it failed; the same object as before
            when ``do_turn`` refused before anything was sent.
    """

    def __init__(
        self,
        *,
        resolve_client: Callable[[str], ModelClient],
        breaker: Breaker,
        hub: ObserverHub,
        emit: Callable[[ev.AgentEvent], None],
        cancel: CancelSignal,
        surroundings: Surroundings,
        timeouts: StreamTimeouts | None = None,
        retry: RetryPolicy | None = None,
        rate_limit: RateLimitPolicy | None = None,
        mode: TurnMode = TurnMode.STREAMING,
        text_streamer: Callable[[str], Any] | None = None,
    ) -> None:
        self.resolve_client = resolve_client
        self.hub = hub
        self.emit = emit
        self.cancel = cancel
        self.surroundings = surroundings
        self.timeouts = timeouts or StreamTimeouts()
        self.retry = retry or RetryPolicy()
        self.rate_limit = rate_limit or RateLimitPolicy()
        self.mode = mode
        self.text_streamer = text_streamer
        self.last_attempts = AttemptFacts()
        self.windows: dict[str, int] = {}  # the user's word for a model's window (L83)
        breaker.guard_with(threading.RLock())
        self.recorder = Recorder(breaker, hub=hub, emit=emit, surroundings=surroundings)

    @property
    def breaker(self) -> Breaker:
        """The breaker in use."""
        return self.recorder.breaker

    def use_breaker(self, breaker: Breaker) -> None:
        """Take the breaker of another primary, for a run with its own model (B36)."""
        breaker.guard_with(threading.RLock())
        self.recorder.breaker = breaker

    def switch_primary(self, breaker: Breaker) -> None:
        """As ``use_breaker``, for a manual switch: reset, and ``on_model_switched`` (L83)."""
        breaker.guard_with(threading.RLock())
        self.recorder.switch_primary(breaker)

    def trip_breaker(self) -> None:
        """Trip by hand."""
        self.recorder.trip()

    def reset_breaker(self) -> None:
        """Back to the primary, strikes too."""
        self.recorder.reset()

    def route(self, estimate: int) -> Route:
        """Where the next request goes; looked up once per turn (B36). No request, no wait.

        Args:
            estimate: Tokens of the request as far as known; 0 = unknown.

        Returns:
            The route. ``exhausted`` is set when every model is resting (L80), ``fits`` False
            when no model of the chain can hold the request (F02).
        """
        self.recorder.check_recovery(self.surroundings.now())
        return choose_route(self.breaker, estimate, self.window_of, self.surroundings.now())

    def window_of(self, model: str) -> int | None:
        """Window of a model in tokens, None when unknown."""
        return self.windows.get(model) or window_of(self.resolve_client, model)

    # --- a turn

    async def do_turn(
        self, turn: int, transients: Sequence[Message], context: TurnContext
    ) -> ServedTurn:
        """One turn: cancel first, then the path of the mode, then the record.

        Fires ``on_model_switched`` (L81) and ``on_turn_start`` before the request, deltas while
        it runs, ``on_stream_success`` or ``on_fallback``/``on_stream_failure`` after it. The
        caller fires ``on_response`` and ``on_turn_end``.

        Args:
            turn: Counts from 0.
            transients: Messages for this turn only, placed first (L10).
            context: The rest.

        Returns:
            The served turn; its response is judged (L35, L41).

        Raises:
            Cancelled: The signal fired, or the task was cancelled from outside (L127).
            FallbackExhausted: Every model is resting; nothing was sent.
            AgentError: The turn failed; ``partial_text`` holds what had arrived.
        """
        self.cancel.raise_if_cancelled()
        route, options = context.route, self._options(context)
        if route.exhausted is not None:
            raise route.exhausted
        served = served_name(route, options)
        facts = self.last_attempts = AttemptFacts(
            model=served,
            breaker=self.breaker.state.value,
            started_at=self.surroundings.wall(),
        )
        start = self.surroundings.now()
        self.recorder.note_routed_model(served)
        if not context.again:
            self.hub.fire("on_turn_start", TurnStart(turn, context.query, served))
        self.emit(_model_started(served, context.iteration))
        try:
            with read_gap(self.timeouts):
                response = await self._ask(turn, transients, context, options, served)
            response = judge_reply(_signed(response, served))
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  # re-raised as what it is
            facts.duration_s = self.surroundings.now() - start
            raise self._failed(turn, error, served) from error.__cause__
        facts.duration_s = self.surroundings.now() - start
        self.recorder.record_turn_success(turn, response.usage, served=served)
        return _served_turn(response, facts)

    async def complete_once(
        self, request: StreamRequest, options: RequestOptions, model: str, purpose: str
    ) -> ChatResponse:
        """One unstreamed attempt for the summariser or a judge (L10): cancel and deadline, no
        Turn, no breaker; its tokens are an event.

        Args:
            model: Full name of the model to ask.
            purpose: ``summary`` or ``judge``, for the event.

        Raises:
            Cancelled: The signal fired.
            AgentError: The request failed or timed out.
        """
        self.cancel.raise_if_cancelled()
        client = self.resolve_client(model)
        if options.model is None:
            options = replace(options, model=bare_name(model))
        with read_gap(self.timeouts):
            response = await self._call_once(client, request, options)
        if response.usage is not None:
            self.emit(ev.UsageRecorded(usage=response.usage.to_json(), purpose=purpose))
        return replace(response, model=model)

    # --- inside

    def _options(self, context: TurnContext) -> RequestOptions:
        route = context.route
        if not route.override:
            return context.options
        return replace(context.options, model=bare_name(route.model))  # L14: beats the user's

    async def _ask(
        self,
        turn: int,
        transients: Sequence[Message],
        context: TurnContext,
        options: RequestOptions,
        served: str,
    ) -> ChatResponse:
        client = self.resolve_client(context.route.model)
        request = build_turn_request(
            without_foreign_state(transients, served),
            without_foreign_state(context.conversation, served),
            system=context.system,
            tools=() if options.response_format else context.tools,
        )
        if self.mode is TurnMode.NON_STREAMING:
            return await self._unstreamed(turn, client, request, options)
        retry = replace(self.retry, max_retries=0) if context.single_attempt else self.retry
        handler = StreamHandler(
            client,
            turn=turn,
            model=served,
            signal=self.cancel,
            emit=self.emit,
            surroundings=self.surroundings,
            timeouts=self.timeouts,
            retry=retry,
            rate_limit=self.rate_limit,
        )
        return await self._streamed(turn, handler, request, options)

    async def _streamed(
        self, turn: int, handler: StreamHandler, request: StreamRequest, options: RequestOptions
    ) -> ChatResponse:
        now = self.surroundings.now
        delivery = Delivery(turn, hub=self.hub, streamer=self.text_streamer, now=now)
        sinks, delta_event = delivery.sinks, e.IndexedDelta
        rescued: ChatResponse | None = None
        facts = self.last_attempts
        try:
            async with aclosing(handler.stream_turn(request, options)) as events:
                async for event in events:
                    if type(event) is delta_event:
                        if not delivery.shown:
                            delivery.first_fragment()
                        sink = sinks[type(event.delta)]
                        if sink is not None:
                            sink(event.delta)
                    elif type(event) is e.AttemptReset:
                        delivery.reset(event.attempt, event.cause)
                    elif type(event) is e.StreamFallback:
                        rescued = event.response
                    else:
                        delivery.lane(event, handler.accumulator.parts, self.emit)
        finally:
            facts.attempts = handler.attempt
            facts.began = handler.began
            facts.failed_usage = handler.failed_usage
            facts.outcome = handler.outcome
            facts.ttft_s = delivery.ttft_s
            facts.partial_text = handler.partial_text()
        if rescued is not None:
            return self._adopt(rescued, delivery, handler)
        reply = handler.accumulator
        return ChatResponse(
            reply.build(),
            stop_reason=reply.stop_reason,
            usage=reply.usage,
            ending=reply.ending,
            ending_raw=reply.ending_raw,
        )

    def _adopt(
        self, rescued: ChatResponse, delivery: Delivery, handler: StreamHandler
    ) -> ChatResponse:
        """The rescued reply as it is (L31). A live view must not keep the dead stream's text,
        so a reset comes before the new text, which is delivered like one fragment."""
        if delivery.shown:
            delivery.reset(handler.attempt, "rescue")
        for part in rescued.message.parts:
            if isinstance(part, TextPart) and part.text:
                if not delivery.shown:
                    delivery.first_fragment()
                delivery.text(e.Text(part.text, part.refusal))
        tell_calls(rescued.message, self.emit)
        facts = self.last_attempts
        facts.rescued = True
        facts.ttft_s = delivery.ttft_s
        return replace(rescued, rescued=True)

    async def _unstreamed(
        self, turn: int, client: ModelClient, request: StreamRequest, options: RequestOptions
    ) -> ChatResponse:
        """One attempt, always: no retry, whatever the error (L24, L26)."""
        facts = self.last_attempts
        facts.attempts = 1
        started = self.surroundings.now()
        self.emit(ev.AttemptStarted(turn=turn, attempt=1, max_attempts=1, model=facts.model))
        try:
            response = await self._call_once(client, request, options)
        except AgentError as error:
            if not isinstance(error, Cancelled):
                self.emit(
                    ev.AttemptFailed(
                        turn=turn, attempt=1, cause=cause_of(error), next_step="fail",
                        max_attempts=1,
                    )
                )  # fmt: skip
            raise
        facts.ttft_s = self.surroundings.now() - started
        tell_calls(response.message, self.emit)
        return response

    async def _call_once(
        self, client: ModelClient, request: StreamRequest, options: RequestOptions
    ) -> ChatResponse:
        """The biased race: cancel, deadline, reply (L24). The deadline is the turn's (L27)."""
        total = self.timeouts.total_s
        started = self.surroundings.now()
        await wait_for_token(
            client,
            rate_limit=self.rate_limit,
            signal=self.cancel,
            surroundings=self.surroundings,
            remaining=float("inf") if total is None else total,
        )
        left = None if total is None else total - (self.surroundings.now() - started)
        call = completing(client)
        try:
            return await race(self.cancel, left, lambda: call(request, options))
        except DeadlineReached:
            raise timed_out(self.timeouts.total_stream_timeout) from None
        except Exception as error:
            known = as_agent_error(error)
            if known is error:
                raise
            raise known from error

    def _failed(
        self, turn: int, error: Exception | asyncio.CancelledError, served: str
    ) -> AgentError:
        """L72, for whatever ended the turn."""
        if isinstance(error, asyncio.CancelledError):
            # Ruling: L127. The task's own count of cancellations stays, for whoever cancelled.
            known: AgentError = Cancelled()
        else:
            known = as_agent_error(error)
        known = self.recorder.record_turn_failure(turn, known, served=served)
        known.partial_text = self.last_attempts.partial_text
        return known


def _model_started(served: str, iteration: int) -> ev.ModelStarted:
    provider, colon, _ = served.partition(":")
    return ev.ModelStarted(provider=provider if colon else "", model=served, iteration=iteration)


def _signed(response: ChatResponse, served: str) -> ChatResponse:
    """The response under the name that served; provider state says whose it is (L2)."""
    message = response.message
    state = message.provider_state
    if state is not None and "model" not in state:
        message = replace(message, provider_state={**state, "model": served})
    return replace(response, message=message, model=served)


def _served_turn(response: ChatResponse, facts: AttemptFacts) -> ServedTurn:
    facts.partial_text = ""
    return ServedTurn(
        response=response,
        attempts=facts.attempts,
        rescued=facts.rescued,
        ttft_s=facts.ttft_s,
        duration_s=facts.duration_s,
        started_at=facts.started_at,
        failed_usage=facts.failed_usage,
        model=facts.model,
        breaker=facts.breaker,
        outcome=facts.outcome,
    )
