"""L50-L64, L126-L129: the handler over a client that fails in every way, in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import gc

import pytest

from notebook_agent.core import agent_events as ev
from notebook_agent.core import events as e
from notebook_agent.core.messages import Message, TextPart
from notebook_agent.core.request import RequestOptions, StreamRequest
from notebook_agent.core.response import ChatResponse, Usage
from notebook_agent.core.retry import RateLimitPolicy, RetryPolicy, StreamTimeouts
from notebook_agent.core.stream_outcome import StreamEnd
from notebook_agent.engine import stream_handler
from notebook_agent.engine.cancel import CancelSignal
from notebook_agent.engine.limiter import Buckets
from notebook_agent.engine.stream_handler import StreamHandler
from notebook_agent.errors import (
    AgentError,
    Cancelled,
    ErrorKind,
    ProviderError,
    RateLimitEscalation,
)
from tests.conftest import fixed_surroundings, run_virtual
from tests.engine.fakes import DROP, HANG, Fake, http, text_events

REQUEST = StreamRequest((Message.user("hello"),), system="Be brief")
OPTIONS = RequestOptions(extra={"temperature": 0})
BEFORE = text_events("half", end=False)[:3]  # start, lane, one delta: no closed part


class Turn:
    """One handler with all that it yielded and told, and when."""

    def __init__(self, script=(), *, rescue=None, client=None, **settings):
        self.client = client or Fake(script, rescue=rescue)
        self.signal = CancelSignal()
        self.events = []
        self.told = []
        given = {
            "timeouts": StreamTimeouts(), "retry": RetryPolicy(), "rate_limit": RateLimitPolicy(),
            "surroundings": fixed_surroundings(), "buckets": Buckets(),
        }  # fmt: skip
        self.handler = StreamHandler(
            self.client, signal=self.signal, emit=self.told.append, **{**given, **settings}
        )
        self.error = None
        self.took = None

    async def run(self, *, cancel_at=None):
        loop = asyncio.get_running_loop()
        start = loop.time()
        if cancel_at is not None:
            loop.call_later(cancel_at, self.signal.cancel)
        try:
            async for event in self.handler.stream_turn(REQUEST, OPTIONS):
                self.events.append(event)
        except AgentError as error:
            self.error = error
        self.took = loop.time() - start
        assert self.client.opened == self.client.closed  # L129
        assert not self.signal._listeners
        assert asyncio.current_task().cancelling() == 0
        return self

    @property
    def kinds(self):
        return [type(x).__name__ for x in self.events]

    @property
    def end(self):
        return self.handler.outcome.end

    def of(self, kind):
        return [x for x in self.told if type(x) is kind]


def run(script=(), *, cancel_at=None, **settings):
    async def main():
        return await Turn(script, **settings).run(cancel_at=cancel_at)

    return run_virtual(main())


def test_L29_a_clean_stream_passes_through():
    turn = run([text_events("Hi", " you")])
    assert turn.events == text_events("Hi", " you")
    assert turn.handler.accumulator.build().text_content() == "Hi you"
    assert turn.end is StreamEnd.COMPLETED
    assert (turn.handler.outcome.events_processed, turn.handler.attempt) == (7, 1)
    assert [type(x) for x in turn.told] == [ev.AttemptStarted]
    assert turn.client.options == [OPTIONS]


def test_L52_a_reset_comes_before_anything_of_a_new_attempt_and_never_first():
    turn = run([[*BEFORE, DROP], http(500), text_events("whole")])
    assert turn.kinds == [
        "MessageStart", "PartStart", "IndexedDelta", "AttemptReset", "AttemptReset",
        *[type(x).__name__ for x in text_events("whole")],
    ]  # fmt: skip
    resets = [x for x in turn.events if type(x) is e.AttemptReset]
    assert [(r.attempt, r.cause) for r in resets] == [(2, DROP.message), (3, "500 busy")]
    assert turn.handler.accumulator.build().text_content() == "whole"


def test_L60_waits_between_attempts():
    turn = run([http(500), http(500), http(500), text_events("x")])
    assert turn.took == pytest.approx(0.7)
    failed = turn.of(ev.AttemptFailed)
    assert [(f.attempt, f.next_step, f.max_attempts) for f in failed] == [
        (1, "retry", 4), (2, "retry", 4), (3, "retry", 4),
    ]  # fmt: skip
    assert [f.delay_s for f in failed] == pytest.approx([0.1, 0.2, 0.4])
    started = turn.of(ev.AttemptStarted)
    assert [(s.attempt, s.max_attempts) for s in started] == [(n, 4) for n in (1, 2, 3, 4)]


# --- R04, L54, L55: silence


def test_R04_the_first_event_is_waited_for_120_s():
    turn = run([[HANG]] * 4, retry=RetryPolicy(max_retries=0), rescue="saved")
    assert turn.took == pytest.approx(120)
    assert turn.kinds == ["StreamFallback"]
    assert turn.of(ev.AttemptFailed)[0].cause == "the stream was silent for 120 s after 0 events"


def test_R04_then_180_s_between_events():
    turn = run([[*BEFORE, HANG]], retry=RetryPolicy(max_retries=0), rescue="saved")
    assert turn.took == pytest.approx(180)


def test_R04_a_silent_stream_is_retried_after_the_idle_limit():
    timeouts = StreamTimeouts(
        initial_event_timeout=1, per_event_timeout=0.3, total_stream_timeout=2
    )
    turn = run([[*BEFORE, HANG], text_events("whole")], timeouts=timeouts)
    assert turn.took == pytest.approx(0.4)  # 0.3 of silence, 0.1 of back-off
    assert turn.client.closed == 2
    assert turn.kinds.count("AttemptReset") == 1
    assert turn.end is StreamEnd.COMPLETED


def test_R04_pings_for_ever_are_stopped_by_the_total_limit():
    timeouts = StreamTimeouts(
        initial_event_timeout=1, per_event_timeout=0.3, total_stream_timeout=2
    )
    forever = [*BEFORE] + [0.1, e.Ping()] * 100
    turn = run([forever], timeouts=timeouts, rescue=http(500))
    assert turn.took == pytest.approx(2)
    assert turn.client.opened == 1  # L58.3: no further streaming attempt
    assert turn.error.kind is ErrorKind.TIMEOUT
    assert turn.handler.outcome.events_processed == 3  # pings are no events
    assert "Ping" not in turn.kinds


def test_L55_a_ping_resets_the_timer_but_is_no_first_event():
    timeouts = StreamTimeouts(
        initial_event_timeout=1, per_event_timeout=0.3, total_stream_timeout=9,
        fallback_to_non_streaming=False,
    )  # fmt: skip
    turn = run(
        [[0.9, e.Ping(), 0.9, e.Ping(), HANG]], timeouts=timeouts, retry=RetryPolicy(max_retries=0)
    )
    assert turn.took == pytest.approx(2.8)  # the initial limit still applies
    assert turn.end is StreamEnd.EVENT_TIMEOUT


def test_L55_a_wait_that_timed_out_below_the_limit_loses_no_event():
    timeouts = StreamTimeouts(
        initial_event_timeout=5, per_event_timeout=1, total_stream_timeout=60,
        max_consecutive_timeouts=3,
    )  # fmt: skip
    slow = []
    for event in text_events("a", "b", "c"):
        slow += [2.5, event]  # two timed-out waits before each event
    turn = run([slow], timeouts=timeouts)
    assert turn.events == text_events("a", "b", "c")
    assert turn.client.opened == 1
    assert turn.end is StreamEnd.COMPLETED


def test_L55_the_count_starts_again_with_every_event():
    timeouts = StreamTimeouts(
        initial_event_timeout=5, per_event_timeout=1, total_stream_timeout=60,
        max_consecutive_timeouts=3,
    )  # fmt: skip
    turn = run(
        [[*BEFORE, 2.5, BEFORE[2], HANG]], timeouts=timeouts, retry=RetryPolicy(max_retries=0),
    )  # fmt: skip
    assert turn.took == pytest.approx(2.5 + 3)
    assert turn.of(ev.AttemptFailed)[0].cause == "the stream was silent for 1 s after 4 events"


@pytest.mark.parametrize(("most", "seconds"), [(1, 1), (2, 2), (5, 2)])
def test_L55_empty_stream_fast_fail(most, seconds):
    timeouts = StreamTimeouts(
        initial_event_timeout=1, per_event_timeout=1, total_stream_timeout=60,
        max_consecutive_timeouts=most, fallback_to_non_streaming=False,
    )  # fmt: skip
    turn = run([[HANG]], timeouts=timeouts, retry=RetryPolicy(max_retries=0))
    assert turn.took == pytest.approx(seconds)
    assert turn.handler.outcome.consecutive_timeouts == min(most, 2)


def test_L54_and_L51_the_total_deadline_spans_all_attempts():
    timeouts = StreamTimeouts(
        initial_event_timeout=6, per_event_timeout=6, total_stream_timeout=10,
        fallback_to_non_streaming=False,
    )  # fmt: skip
    turn = run([[HANG]] * 9, timeouts=timeouts)
    assert turn.took == pytest.approx(10)
    assert turn.end is StreamEnd.TOTAL_TIMEOUT
    assert str(turn.error).startswith("the request timed out after 10 s")
    assert turn.client.opened == 2


def test_L54_a_stream_that_never_pauses_is_stopped_too():
    clock = [0.0]

    def tick():
        clock[0] += 1.0

    async def main():
        asyncio.get_running_loop().time = lambda: 1000 + clock[0]
        script = [*BEFORE] + [x for _ in range(500) for x in (tick, BEFORE[2])]
        timeouts = StreamTimeouts(fallback_to_non_streaming=False)
        return await Turn([script], timeouts=timeouts).run()

    turn = run_virtual(main())
    assert turn.end is StreamEnd.TOTAL_TIMEOUT
    assert turn.handler.outcome.events_processed == 3 + 300


# --- L56, L57: what counts as a reply


def test_S11_a_stream_without_an_end_mark_is_a_failed_attempt():
    turn = run([text_events("half", end=False), text_events("whole")])
    assert turn.handler.attempt == 2
    assert turn.handler.accumulator.build().text_content() == "whole"
    assert "cut after 5 events" in turn.of(ev.AttemptFailed)[0].cause


def test_S11_when_nothing_saves_it_the_text_is_still_there():
    turn = run([text_events("half", end=False)] * 4)
    assert turn.handler.partial_text() == "half"
    assert turn.end is StreamEnd.INIT_FAILED
    assert turn.handler.outcome.has_partial_data
    assert isinstance(turn.error, ProviderError)
    assert "Gave up after 4 attempts; the unstreamed rescue failed too: 503" in str(turn.error)


def test_the_latest_text_outlives_an_attempt_that_brought_none():
    turn = run([[*BEFORE, DROP], http(500), http(500), http(500)])
    assert turn.handler.partial_text() == "half"
    assert not turn.handler.outcome.has_partial_data  # L56: no part was closed


def test_L57_the_turn_ends_at_message_stop_whatever_the_transport_does():
    turn = run([[*text_events("done"), DROP]])
    assert turn.end is StreamEnd.COMPLETED
    turn = run([[*text_events("done"), HANG]])
    assert (turn.end, turn.took) == (StreamEnd.COMPLETED, 0)


@pytest.mark.parametrize(
    "junk", [None, {"type": "ping"}, "text", e.IndexedDelta(0, "text"), e.IndexedDelta(0, None)]
)
def test_L56_a_malformed_event_fails_the_attempt(junk):
    turn = run([[*BEFORE, junk], text_events("whole")])
    assert turn.handler.attempt == 2
    assert "malformed" in turn.of(ev.AttemptFailed)[0].cause
    assert junk not in turn.events


def test_L56_a_fragment_that_is_no_text_fails_before_the_part_is_passed_on():
    bad = [*BEFORE, e.IndexedDelta(0, e.Text(7)), e.PartStop(0), e.MessageStop()]
    turn = run([bad, text_events("whole")])
    assert turn.handler.accumulator.build().text_content() == "whole"


# --- L58: classes


@pytest.mark.parametrize(
    "error",
    [http(401), http(400), http(404), http(429, quota=True), http(400, overflow=True),
     ProviderError(ErrorKind.UNSUPPORTED, "no", feature="vision"), AgentError("odd")],
)  # fmt: skip
def test_L58_permanent_errors_one_attempt_no_wait_no_rescue(error):
    turn = run([error], rescue="never")
    assert turn.error is error
    assert (turn.client.opened, turn.client.unstreamed, turn.took) == (1, [], 0)
    assert turn.of(ev.AttemptFailed)[0].next_step == "fail"
    assert turn.of(ev.RescueStarted) == []


def test_L58_a_permanent_error_in_mid_stream_is_permanent_too():
    turn = run([[*BEFORE, http(400)]], rescue="never")
    assert turn.error.status == 400
    assert turn.client.unstreamed == []


@pytest.mark.parametrize("error", [ConnectionResetError("gone"), TimeoutError("slow"), EOFError()])
def test_network_errors_that_an_adapter_let_through_are_transient(error):
    turn = run([[*BEFORE, error], text_events("whole")])
    assert (turn.handler.attempt, turn.error) == (2, None)


def test_a_bug_in_an_adapter_is_one_attempt_and_keeps_its_cause():
    bug = KeyError("choices")
    turn = run([[*BEFORE, bug]], rescue="never")
    assert turn.error.kind is ErrorKind.PROVIDER
    assert turn.error.__cause__ is bug
    assert turn.client.opened == 1


def test_L59_rate_limits_escalate_on_the_fourth_without_rescue():
    turn = run([http(429)] * 9, rescue="never")
    assert isinstance(turn.error, RateLimitEscalation)
    assert (turn.error.attempts, turn.client.opened, turn.took) == (4, 4, 15)
    assert turn.end is StreamEnd.RATE_LIMITED
    assert turn.client.unstreamed == []


def test_L64_a_storm_of_429_leaves_the_transport_retries_untouched():
    script = [http(429), http(500), http(429), http(500), http(429), http(500), text_events("x")]
    turn = run(script)
    assert turn.error is None
    assert turn.handler.attempt == 7
    assert turn.took == pytest.approx(15 + 0.7)


def test_R05_told_to_come_back_in_three_hours():
    turn = run([http(429, retry_after=10_800)], rescue="never")
    assert isinstance(turn.error, RateLimitEscalation)
    assert (turn.took, turn.client.opened) == (0, 1)
    assert "in 3 h (at 03:00 UTC)" in str(turn.error)


@pytest.mark.parametrize("status", [503, 529])
def test_R06_overloaded_twice_then_the_reply(status):
    turn = run([http(status), http(status), text_events("ok")])
    assert turn.error is None
    assert turn.handler.attempt == 3
    assert turn.took == pytest.approx(0.3)


def test_L58_overloaded_with_too_long_a_hint_ends_at_once():
    turn = run([http(503, retry_after=7200)], rescue="never")
    assert (turn.error.kind, turn.error.retry_after) == (ErrorKind.OVERLOADED, 7200)
    assert "says to return in 2 h" in str(turn.error)
    assert (turn.took, turn.client.unstreamed) == (0, [])


def test_L60_a_back_off_that_eats_the_budget_starts_no_attempt():
    timeouts = StreamTimeouts(initial_event_timeout=2, per_event_timeout=2, total_stream_timeout=2)
    turn = run([http(500)] * 9, timeouts=timeouts, rescue="saved",
               retry=RetryPolicy(base_delay=10, max_delay=10, jitter_factor=0))  # fmt: skip
    assert (turn.client.opened, turn.handler.attempt) == (1, 1)
    assert turn.kinds == ["StreamFallback"]
    assert turn.of(ev.RescueStarted)[0].deadline_s == 2  # L61: one fresh initial timeout


# --- L61: the rescue


def test_F03_the_rescue_sends_the_same_request_and_options():
    reply = ChatResponse(Message.assistant("Here"), usage=Usage(3, 4))
    turn = run([[*BEFORE, DROP]] * 4, rescue=reply)
    assert turn.client.unstreamed == [REQUEST]
    assert turn.client.options == [OPTIONS] * 5
    assert turn.events[-1] == e.StreamFallback(reply, {"cause": DROP.message})
    assert turn.end is StreamEnd.FALLBACK_TO_NON_STREAMING
    assert turn.handler.attempt == 4  # the rescue is not counted


def test_L61_a_reply_that_is_ready_at_the_deadline_counts():
    async def late():
        await asyncio.sleep(5)
        return ChatResponse(Message.assistant("just in time"))

    timeouts = StreamTimeouts(initial_event_timeout=5, per_event_timeout=5, total_stream_timeout=5)
    turn = run([[HANG]], timeouts=timeouts, rescue=lambda: late())
    assert turn.kinds == ["StreamFallback"]
    assert turn.took == pytest.approx(10)


def test_L61_a_rescue_past_its_deadline_fails_with_both_errors():
    async def never():
        await asyncio.Event().wait()

    timeouts = StreamTimeouts(initial_event_timeout=5, per_event_timeout=5, total_stream_timeout=5)
    turn = run([[HANG]], timeouts=timeouts, rescue=lambda: never())
    assert turn.took == pytest.approx(10)
    assert "timed out after 5 s" in str(turn.error)
    assert "rescue failed too" in str(turn.error)
    assert turn.end is StreamEnd.TOTAL_TIMEOUT


def test_M1_what_only_the_rescue_learnt_about_length_is_kept():
    turn = run([http(500)] * 4, rescue=http(400, "prompt is too long", overflow=True))
    assert turn.error.overflow
    assert turn.error.status == 500


def test_a_rescue_that_raises_anything_is_one_error():
    turn = run([http(500)] * 4, rescue=ZeroDivisionError("oops"))
    assert isinstance(turn.error, ProviderError)
    assert "1 attempt" not in str(turn.error)
    assert "oops" in str(turn.error)


def test_L48_the_rescue_can_be_switched_off():
    turn = run(
        [http(500)] * 4, rescue="never", timeouts=StreamTimeouts(fallback_to_non_streaming=False)
    )
    assert (turn.error.status, turn.client.unstreamed) == (500, [])
    assert "Gave up after 4 attempts." in str(turn.error)


# --- L50


@pytest.mark.parametrize(
    "script", [[http(429)], [http(500)], [[*BEFORE, DROP]], [text_events("x", end=False)]]
)
def test_L50_passthrough_neither_retries_nor_rescues(script):
    turn = run(script, timeouts=StreamTimeouts(passthrough=True), rescue="never")
    assert isinstance(turn.error, ProviderError)
    assert (turn.client.opened, turn.client.unstreamed) == (1, [])
    assert turn.of(ev.AttemptStarted)[0].max_attempts == 1


def test_L50_passthrough_has_no_deadline():
    turn = run(
        [[*BEFORE, 50_000.0, *text_events("late")[3:]]], timeouts=StreamTimeouts(passthrough=True)
    )
    assert turn.error is None
    assert turn.took == pytest.approx(50_000)


# --- L62, L117: cancel


def cancelled(turn, at):
    assert isinstance(turn.error, Cancelled)
    assert turn.took == pytest.approx(at)
    assert turn.end is StreamEnd.CANCELLED


def test_L62_cancel_while_waiting_for_the_first_event():
    turn = run([[HANG]], cancel_at=3, rescue="never")
    cancelled(turn, 3)
    assert (turn.of(ev.AttemptFailed), turn.client.unstreamed) == ([], [])


def test_L62_cancel_in_mid_stream_keeps_the_text():
    turn = run([[*BEFORE, HANG]], cancel_at=3)
    cancelled(turn, 3)
    assert turn.handler.partial_text() == "half"


def test_L62_cancel_in_a_back_off():
    turn = run([http(429)], cancel_at=2)
    cancelled(turn, 2)
    assert turn.client.opened == 1


def test_L62_cancel_in_the_rescue():
    stopped = []

    async def slow():
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(True)

    turn = run([http(500)] * 4, rescue=lambda: slow(), cancel_at=5)
    cancelled(turn, 5)
    assert stopped == [True]


def test_L62_cancel_at_the_limiter():
    buckets = Buckets()
    for _ in range(2):
        buckets.take("http://fake", 2, 1000.0)
    turn = run([text_events("x")], cancel_at=4, buckets=buckets,
               rate_limit=RateLimitPolicy(requests_per_minute=2))  # fmt: skip
    cancelled(turn, 4)
    assert turn.client.opened == 0


def test_L54_cancel_between_two_events_that_are_both_there():
    async def main():
        turn = Turn([[*BEFORE, lambda: turn.signal.cancel(), BEFORE[2], *text_events("no")[3:]]])
        return await turn.run()

    turn = run_virtual(main())
    assert isinstance(turn.error, Cancelled)
    assert len(turn.events) == 4  # the event that was under way is passed on, no more


def test_L22_a_fired_signal_beats_a_permanent_error():
    async def main():
        turn = Turn()

        def fail():
            turn.signal.cancel()
            raise http(401)

        turn.client.script = [[*BEFORE, fail]]
        return await turn.run()

    assert isinstance(run_virtual(main()).error, Cancelled)


def test_L127_a_cancellation_from_outside_passes_as_it_is():
    async def main():
        turn = Turn([[*BEFORE, HANG]])
        task = asyncio.create_task(turn.run())
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert turn.client.opened == turn.client.closed == 1
        assert not turn.signal._listeners

    run_virtual(main())


def test_L127_both_at_once_the_one_from_outside_is_not_swallowed():
    async def main():
        turn = Turn([[*BEFORE, HANG]])
        task = asyncio.create_task(turn.run())
        await asyncio.sleep(1)
        turn.signal.cancel()
        await asyncio.sleep(0)  # the guard has interrupted, the task has not run yet
        task.cancel()
        with pytest.raises((asyncio.CancelledError, AssertionError)):
            await task
        assert task.cancelled() or task.cancelling()

    run_virtual(main())


def test_a_client_that_swallows_the_interruption_does_not_poison_the_task():
    class Stubborn(Fake):
        async def stream_messages_with_options(self, request, options):
            self.opened += 1
            try:
                for event in text_events("stubborn"):
                    with contextlib.suppress(asyncio.CancelledError):
                        await asyncio.sleep(3)
                    yield event
            finally:
                self.closed += 1

    timeouts = StreamTimeouts(initial_event_timeout=2, per_event_timeout=2, total_stream_timeout=60)

    async def main():
        return await Turn(client=Stubborn(), timeouts=timeouts).run()

    run_virtual(main())  # run() checks the task's count of cancellations


# --- K05, L129: closing


def test_K05_a_consumer_that_stops_closes_the_response():
    for script in (
        text_events("a", "b"),
        [e.MessageStart(), e.PartStart(0), e.IndexedDelta(0, e.Thinking("hm")), HANG],
    ):

        async def main(script=script):
            turn = Turn([script])
            events = turn.handler.stream_turn(REQUEST, OPTIONS)
            seen = [await anext(events), await anext(events)]
            await events.aclose()
            assert turn.client.closed == 1
            assert not turn.signal._listeners
            with pytest.raises(StopAsyncIteration):
                await anext(events)
            return seen

        assert len(run_virtual(main())) == 2
        gc.collect()


def test_L129_a_stream_that_will_not_close_holds_nothing_up():
    class Sticky(Fake):
        async def stream_messages_with_options(self, request, options):
            try:
                for event in text_events("x"):
                    yield event
            finally:
                await asyncio.sleep(1e6)

    turn = run(client=Sticky())
    assert turn.error is None
    assert turn.took == pytest.approx(stream_handler.CLOSE_TIMEOUT_S)


def test_L129_an_error_in_closing_is_not_the_turns():
    class Broken(Fake):
        async def stream_messages_with_options(self, request, options):
            try:
                for event in text_events("x"):
                    yield event
            finally:
                raise OSError("close failed")

    assert run(client=Broken()).error is None


def test_a_plain_iterator_without_aclose_is_fine():
    class Plain(Fake):
        def stream_messages_with_options(self, request, options):
            class It:
                events = iter(text_events("x"))

                def __aiter__(self):
                    return self

                async def __anext__(self):
                    return next(self.events)

            return It()

    assert run(client=Plain()).end is StreamEnd.COMPLETED


# --- A03: tokens of failed attempts


def test_A03_usage_of_failed_attempts_is_summed():
    dies = [e.MessageStart(), e.MessageDelta(usage=Usage(900)), DROP]
    turn = run([dies, dies, text_events("x", usage=Usage(900, 40))])
    assert turn.handler.failed_usage == Usage(1800)
    assert turn.handler.accumulator.usage == Usage(900, 40)
    recorded = turn.of(ev.UsageRecorded)
    assert [(u.purpose, u.usage["input_tokens"]) for u in recorded] == [("failed_attempt", 900)] * 2
    assert [f.usage["input_tokens"] for f in turn.of(ev.AttemptFailed)] == [900, 900]


def test_A03_a_cancelled_attempt_counts_too():
    turn = run([[e.MessageDelta(usage=Usage(900)), HANG]], cancel_at=1)
    assert turn.handler.failed_usage == Usage(900)


# --- L53


def test_L53_the_limiter_holds_a_request_back():
    async def main():
        buckets = Buckets()
        rate = RateLimitPolicy(requests_per_minute=2)
        times = []
        for _ in range(4):
            turn = Turn([text_events("x")], buckets=buckets, rate_limit=rate)
            await turn.run()
            times.append(asyncio.get_running_loop().time() - 1000)
        return times

    assert run_virtual(main()) == pytest.approx([0, 0, 30, 60])


def test_L53_never_longer_than_max_wait_then_it_goes_ahead():
    async def main():
        buckets = Buckets()
        buckets.take("http://fake", 1, 1000.0)
        rate = RateLimitPolicy(requests_per_minute=1, max_wait=7)
        return await Turn([text_events("x")], buckets=buckets, rate_limit=rate).run()

    turn = run_virtual(main())
    assert (turn.took, turn.error) == (pytest.approx(7), None)


def test_L53_never_past_the_total_deadline():
    async def main():
        buckets = Buckets()
        buckets.take("http://fake", 1, 1000.0)
        timeouts = StreamTimeouts(fallback_to_non_streaming=False).capped(5)
        return await Turn([text_events("x")], buckets=buckets, timeouts=timeouts,
                          rate_limit=RateLimitPolicy(requests_per_minute=1)).run()  # fmt: skip

    turn = run_virtual(main())
    assert turn.took == pytest.approx(5)
    assert (turn.end, turn.client.opened) == (StreamEnd.TOTAL_TIMEOUT, 0)


def test_a_clock_that_stands_still_cannot_hang_a_silent_stream():
    turn = run([[HANG]], surroundings=fixed_surroundings(now=lambda: 0.0), rescue="saved",
               retry=RetryPolicy(max_retries=0))  # fmt: skip
    assert turn.took == pytest.approx(120)
    assert turn.kinds == ["StreamFallback"]


def test_refusal_lane_text_is_partial_text_too():
    turn = run(
        [
            [
                e.MessageStart(),
                e.PartStart(0, TextPart("", refusal=True)),
                e.IndexedDelta(0, e.Text("I can't", True)),
                http(400),
            ]
        ]
    )
    assert turn.handler.partial_text() == "I can't"
