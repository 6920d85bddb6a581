"""StreamHandler: the ladder. Retries, deadlines, rate limits and the rescue of one turn.

What to do after a failure is decided by ``core/retry.py``; this file performs it. The events
of an attempt are folded before they are passed on, so the shadow accumulator of L56 and the
engine's own are one object: it is replaced when an attempt is reset, and read at the end.

Source: LLM turn, "The streaming path" (L50-L64, L126-L129).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, Final

from notebook_agent.core import events as e
from notebook_agent.core.accumulator import StreamAccumulator
from notebook_agent.core.agent_events import (
    AgentEvent,
    AttemptFailed,
    AttemptStarted,
    RescueStarted,
    UsageRecorded,
)
from notebook_agent.core.request import RequestOptions, StreamRequest
from notebook_agent.core.response import Usage
from notebook_agent.core.retry import (
    Decision,
    Ladder,
    RateLimitPolicy,
    RetryPolicy,
    Situation,
    Step,
    StreamTimeouts,
    cause_of,
    next_step,
    rescue_deadline,
)
from notebook_agent.core.stream_outcome import StreamEnd, StreamOutcome
from notebook_agent.engine.cancel import CancelSignal, DeadlineReached, race
from notebook_agent.engine.clock import Surroundings
from notebook_agent.engine.failures import (
    AttemptFailure,
    as_agent_error,
    completing,
    failure_of,
    gave_up,
    rescue_failed,
    timed_out,
    unreadable_event,
)
from notebook_agent.engine.limiter import BUCKETS, Buckets
from notebook_agent.engine.wait_guard import Interrupt, WaitGuard
from notebook_agent.errors import AgentError, Cancelled
from notebook_agent.providers.base import ModelClient

__all__ = ["StreamHandler", "base_url_of", "pause", "wait_for_token"]

log = logging.getLogger("notebook_agent.stream")

# Seconds a provider's clean-up may take before the turn goes on without it.
CLOSE_TIMEOUT_S: Final = 1.0


class StreamHandler:
    """One streamed turn.

    Args:
        client: The model's client.
        turn: Its number, for the events.
        model: Full name that serves, for the events.
        signal, emit, surroundings: As for the LLM turn.
        timeouts, retry, rate_limit: The settings.
        buckets: Token buckets per base URL.

    Attributes:
        accumulator: Of the current attempt.
        attempt: Number of the current attempt, from 1; the rescue is not counted.
        failed_usage: Tokens reported by attempts that did not serve, None = none reported.
        outcome: Set when the turn has ended (L63).
        began: Whether any attempt that did not serve had begun its output.
    """

    def __init__(
        self,
        client: ModelClient,
        *,
        signal: CancelSignal,
        emit: Callable[[AgentEvent], None],
        surroundings: Surroundings,
        timeouts: StreamTimeouts,
        retry: RetryPolicy,
        rate_limit: RateLimitPolicy,
        turn: int = 0,
        model: str = "",
        buckets: Buckets = BUCKETS,
    ) -> None:
        self._client = client
        self._signal = signal
        self._emit = emit
        self._surroundings = surroundings
        self._timeouts = timeouts
        self._retry = retry
        self._rate_limit = rate_limit
        self._turn = turn
        self._model = model
        self._buckets = buckets
        self._ladder = Ladder()
        self._now = surroundings.now
        self._last_text = ""
        self._cause = ""
        self._started = 0.0
        self._max_attempts = 1 if timeouts.passthrough else retry.max_retries + 1
        self.accumulator = StreamAccumulator()
        self.attempt = 1
        self.failed_usage: Usage | None = None
        self.outcome: StreamOutcome | None = None
        self.began = False

    def partial_text(self) -> str:
        """Text of the latest attempt that brought any: what a failing turn leaves behind."""
        return self.accumulator.text() or self._last_text

    async def stream_turn(
        self, request: StreamRequest, options: RequestOptions
    ) -> AsyncGenerator[e.HandlerEvent, None]:
        """The turn's events; AttemptReset before anything of a new attempt, StreamFallback as
        the last one when the rescue saved it. Pings are not passed on.

        Raises:
            AgentError: Cancelled in whatever wait (L62), RateLimitEscalation, ProviderError.
        """
        self._started = self._now()
        guard = WaitGuard(self._signal, self._timeouts, self._now)
        try:
            while True:
                if self.attempt > 1:
                    yield self._reset()
                failed: AttemptFailure | None = None
                stream: Any = None
                try:
                    stream = await self._open(guard, request, options)
                    next_event, accumulator = stream.__anext__, self.accumulator
                    apply, now, stopped = (
                        accumulator.apply,
                        guard.loop_time,
                        self._signal.is_cancelled,
                    )
                    while not accumulator.ended:
                        guard.since = since = now()
                        if since >= guard.due:
                            raise DeadlineReached
                        if stopped():
                            raise Cancelled
                        guard.waiting = True
                        event = await next_event()
                        guard.waiting = False
                        guard.consecutive_timeouts = 0
                        if type(event) is e.Ping:
                            continue
                        try:
                            apply(event)
                        except Exception as bug:
                            raise unreadable_event(event) from bug
                        guard.events += 1
                        yield event
                except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  # named there
                    failed = self._failed(error, guard)
                finally:
                    guard.end_attempt()
                    await _close(stream)
                if failed is None:
                    self._end(StreamEnd.COMPLETED, guard)
                    return
                if await self._retries(failed, guard):
                    continue
                yield await self._rescue(failed, guard, request, options)
                return
        except Cancelled:
            self._end(StreamEnd.CANCELLED, guard)
            raise
        finally:
            guard.close()

    def _reset(self) -> e.AttemptReset:
        self._last_text = self.partial_text()
        self.accumulator = StreamAccumulator()
        return e.AttemptReset(self.attempt, self._cause)

    async def _open(
        self, guard: WaitGuard, request: StreamRequest, options: RequestOptions
    ) -> AsyncIterator[e.StreamEvent]:
        await wait_for_token(
            self._client,
            rate_limit=self._rate_limit,
            signal=self._signal,
            surroundings=self._surroundings,
            remaining=guard.remaining(),
            buckets=self._buckets,
        )
        if guard.remaining() <= 0:
            raise DeadlineReached
        self._signal.raise_if_cancelled()
        self._emit(
            AttemptStarted(
                turn=self._turn,
                attempt=self.attempt,
                max_attempts=max(self._max_attempts, self.attempt),
                model=self._model,
            )
        )
        guard.begin_attempt()
        return aiter(self._client.stream_messages_with_options(request, options))

    def _failed(self, error: BaseException, guard: WaitGuard) -> AttemptFailure:
        """What ended the attempt; its tokens are counted. A cancel is raised, not returned."""
        usage = self.accumulator.usage
        self.began = self.began or self.accumulator.began
        if usage is not None:
            old = self.failed_usage
            self.failed_usage = usage if old is None else old.plus(usage)
            self._emit(UsageRecorded(usage=usage.to_json(), purpose="failed_attempt"))
        interrupt = guard.take()
        if self._signal.is_cancelled() or interrupt is Interrupt.CANCEL:
            raise Cancelled from None
        if isinstance(error, asyncio.CancelledError) and interrupt is None:
            raise error  # from outside: the turn's boundary knows what it means (L127)
        return failure_of(error, interrupt=interrupt, events=guard.events, timeouts=self._timeouts)

    async def _retries(self, failed: AttemptFailure, guard: WaitGuard) -> bool:
        """Decide and wait. True: another attempt begins; False: the rescue.

        Raises:
            AgentError: The turn has failed.
        """
        while True:
            decision = next_step(failed.failure, self._situation(failed.error, guard))
            self._max_attempts = decision.max_attempts
            self._tell(failed, decision)
            if decision.step is Step.RESCUE:
                return False
            if decision.step is not Step.RETRY:
                self._end(failed.end, guard, cause_of(failed.error))
                error = decision.error or failed.error
                raise gave_up(error, self.attempt) if error is failed.error else error
            await pause(decision.delay, self._signal, self._surroundings)
            if guard.remaining() > 0:
                self._ladder = decision.ladder
                self.attempt = decision.ladder.attempts
                self._cause = cause_of(failed.error)
                return True
            # the budget ended in the wait: no attempt is begun just to fail
            failed = failure_of(
                DeadlineReached(), interrupt=None, events=guard.events, timeouts=self._timeouts
            )

    async def _rescue(
        self,
        failed: AttemptFailure,
        guard: WaitGuard,
        request: StreamRequest,
        options: RequestOptions,
    ) -> e.StreamFallback:
        """One unstreamed call with the same request and options (L61, F03)."""
        self._signal.raise_if_cancelled()
        deadline = rescue_deadline(self._timeouts, guard.remaining())
        self._emit(RescueStarted(turn=self._turn, deadline_s=deadline))
        call = completing(self._client)
        try:
            response = await race(
                self._signal, deadline, lambda: call(request, options), reply_first=True
            )
        except Cancelled:
            raise
        except DeadlineReached:
            self._end(failed.end, guard, cause_of(failed.error))
            raise rescue_failed(failed.error, self.attempt, timed_out(deadline)) from None
        except Exception as error:
            self._end(failed.end, guard, cause_of(failed.error))
            raise rescue_failed(failed.error, self.attempt, as_agent_error(error)) from error
        self._end(StreamEnd.FALLBACK_TO_NON_STREAMING, guard, cause_of(failed.error))
        return e.StreamFallback(response, {"cause": cause_of(failed.error)})

    def _situation(self, error: AgentError, guard: WaitGuard) -> Situation:
        return Situation(
            error=error,
            ladder=self._ladder,
            remaining=guard.remaining(),
            timeouts=self._timeouts,
            retry=self._retry,
            rate_limit=self._rate_limit,
            uniform=self._surroundings.uniform,
            wall=self._surroundings.wall(),
        )

    def _tell(self, failed: AttemptFailure, decision: Decision) -> None:
        usage = self.accumulator.usage
        self._emit(
            AttemptFailed(
                turn=self._turn,
                attempt=self.attempt,
                cause=cause_of(failed.error),
                next_step=decision.step.value,
                delay_s=decision.delay if decision.step is Step.RETRY else None,
                partial_text=self.accumulator.text(),
                usage=None if usage is None else usage.to_json(),
                max_attempts=decision.max_attempts,
                began=self.accumulator.began,
            )
        )

    def _end(self, end: StreamEnd, guard: WaitGuard, detail: str = "") -> None:
        self.outcome = StreamOutcome(
            end=end,
            events_processed=guard.total_events,
            duration_s=self._now() - self._started,
            has_partial_data=self.accumulator.has_closed_part,
            consecutive_timeouts=guard.consecutive_timeouts,
            attempts=self.attempt,
            detail=detail,
        )


def base_url_of(client: ModelClient) -> str:
    """Key of the rate limiter: the client's base URL, "" when it has none (L8)."""
    ask = getattr(client, "base_url", None)
    return str(ask()) if callable(ask) else ""


async def wait_for_token(
    client: ModelClient,
    *,
    rate_limit: RateLimitPolicy,
    signal: CancelSignal,
    surroundings: Surroundings,
    remaining: float,
    buckets: Buckets = BUCKETS,
) -> None:
    """The gate of L53: wait until the bucket has a token, never longer than ``max_wait`` or
    the budget; then the request goes ahead anyway.

    Args:
        remaining: Seconds of the turn's budget.

    Raises:
        Cancelled: The signal fired.
    """
    rate = rate_limit.requests_per_minute
    if rate <= 0:
        return
    key = base_url_of(client)
    end = surroundings.now() + min(rate_limit.max_wait, remaining)
    while (short := buckets.take(key, rate, surroundings.now())) > 0:
        left = end - surroundings.now()
        if left <= 0:
            return
        await pause(min(short, left), signal, surroundings)


async def pause(delay: float, signal: CancelSignal, surroundings: Surroundings) -> None:
    """Sleep ``delay`` seconds; the cancel signal ends it at once (L62).

    Raises:
        Cancelled: The signal fired.
    """
    signal.raise_if_cancelled()
    if delay <= 0:
        return

    async def sleep() -> None:
        await surroundings.sleep(delay)

    await race(signal, None, sleep)


async def _close(stream: Any) -> None:
    """Close the event iterator, and with it the HTTP response (L129)."""
    # Ruling: L129, an abandoned iterator would leak its connection
    aclose = getattr(stream, "aclose", None)
    if aclose is None:
        return
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await aclose()
    except TimeoutError:
        log.warning("a stream did not close within %g s; going on without it", CLOSE_TIMEOUT_S)
    except Exception:
        log.warning("closing a stream failed; going on", exc_info=True)
