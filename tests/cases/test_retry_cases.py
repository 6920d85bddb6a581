"""Retries and rate limits, R01-R06, in variants: mixed ladders, other shapes, both modes."""

from __future__ import annotations

import pytest

from notebook_agent.core import agent_events as ev
from notebook_agent.core.breaker import BreakerState
from notebook_agent.core.request import TurnMode
from notebook_agent.core.retry import RateLimitPolicy, RetryPolicy, StreamTimeouts
from notebook_agent.core.stream_outcome import StreamEnd
from notebook_agent.errors import ErrorKind, ProviderError, RateLimitEscalation
from notebook_agent.providers.errors import from_error_object, from_response
from tests.conftest import run_virtual
from tests.engine.fakes import DROP, HANG, Bench, Fake, http, text_events
from tests.engine.runtime_kit import failing, make
from tests.engine.test_stream_handler import BEFORE, Turn

NO_RESCUE = StreamTimeouts(fallback_to_non_streaming=False)


def answered(status, body=b"", headers=(), wall=1_750_000_000.0):
    return from_response(status, headers, body, host="h", wall=lambda: wall)


@pytest.mark.parametrize(
    ("headers", "waited"),
    [
        ([("Retry-After", "2")], 2.0),
        ([("retry-after", "60"), ("Retry-After-Ms", "1500")], 1.5),
        ([("RETRY-AFTER", "-5")], 5.0),
        ([("retry-after", "soon")], 5.0),
        ([("retry-after", "")], 5.0),
        ([], 5.0),
        ([("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT")], 0.0),
        ([("retry-after", "Sun, 15 Jun 2025 15:06:44 -0000")], 4.0),
    ],
    ids=str,
)
def test_R01_the_wait_of_the_handler_is_what_the_header_says(headers, waited):
    turn = run_virtual(Turn([answered(429, headers=headers), text_events("ok")]).run())
    assert turn.error is None
    assert turn.took == pytest.approx(waited, abs=1e-6)
    assert [x.delay_s for x in turn.of(ev.AttemptFailed)] == [pytest.approx(waited)]


@pytest.mark.parametrize("hint", [float("nan"), -4.0, -0.5])
def test_R01_a_hint_that_is_no_time_is_the_default_delay(hint):
    """A client of one's own may put anything into ``retry_after``."""
    limited = ProviderError(ErrorKind.RATE_LIMITED, "slow", status=429, retry_after=hint)
    turn = run_virtual(Turn([limited, text_events("ok")]).run())
    assert turn.error is None
    assert turn.took == pytest.approx(5.0)


@pytest.mark.parametrize(
    "body",
    [
        b'{"error":{"type":"insufficient_quota","code":"insufficient_quota","message":"m"}}',
        b'{"error":{"message":"You exceeded your quota","code":"exceeded_current_quota_error"}}',
        (
            b'{"type":"error","error":{"type":"invalid_request_error","message":'
            b'"Your credit balance is too low to access the API"}}'
        ),
        b'{"error":{"message":"Insufficient Balance","type":"unknown_error"}}',
        (
            b'{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"Quota exceeded for '
            b'metric: GenerateRequestsPerDayPerProjectPerModel-FreeTier","details":[{"retryDelay":"3s"}]}}'
        ),
    ],
    ids=lambda b: b[:60].decode(),
)
def test_R02_an_empty_purse_is_asked_once_whatever_its_words(body):
    for status in (429, 402, 400, 403):
        error = answered(status, body, [("retry-after", "1")])
        if status in (400, 403) and b"PerDay" in body:
            continue
        turn = run_virtual(Turn([error, text_events("never")], rescue="never").run())
        assert isinstance(turn.error, ProviderError)
        assert turn.error.quota
        assert len(turn.client.requests) == 1
        assert not turn.client.unstreamed
        assert turn.took == 0


def test_R02_a_limit_per_minute_is_no_empty_purse():
    error = answered(
        429,
        b'{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"Quota exceeded for '
        b'GenerateRequestsPerMinutePerProject","details":[{"@type":"x","retryDelay":"7s"}]}}',
    )
    turn = run_virtual(Turn([error, text_events("ok")]).run())
    assert (turn.error, turn.took) == (None, 7.0)


@pytest.mark.parametrize("mode", list(TurnMode))
def test_R03_every_way_of_breaking_after_text_leaves_one_copy(mode):
    """Drop, malformed, error event, silence, cut, rate limit: each after text was shown."""
    breaks = [
        DROP,
        from_error_object({"error": {"type": "overloaded_error", "message": "busy"}}),
        http(429, "slow", retry_after=0.0),
        http(503),
        ProviderError(ErrorKind.TRANSPORT, "malformed"),
    ]
    for broken in [*breaks, "cut", "silent"]:
        tail = [] if broken == "cut" else [HANG] if broken == "silent" else [broken]
        shown = []
        bench = Bench(
            Fake([[*BEFORE, *tail], text_events("half done")], rescue="half done"),
            text_streamer=shown.append,
            mode=mode,
        )
        served = run_virtual(bench.turn())
        assert served.response.message.text_content() == "half done"
        resets = bench.log.of("on_attempt_reset")
        if mode is TurnMode.STREAMING:
            assert shown == ["half", "half done"]
            assert len(resets) == 1
            assert served.attempts == 2
        else:
            assert (len(resets), served.attempts) == (0, 1)


def test_R04_comments_for_ever_then_cancel_returns_at_once():
    from notebook_agent.core.events import Ping

    pings = [0.1, Ping()] * 5000
    turn = run_virtual(Turn([[*BEFORE, *pings]]).run(cancel_at=33.33))
    assert turn.end is StreamEnd.CANCELLED
    assert turn.took == pytest.approx(33.33, abs=0.11)


@pytest.mark.parametrize("status", [429, 503, 529])
def test_R05_told_to_come_back_after_the_budget_ends_at_once(status):
    """L59, L58.1: also a hint below ``max_delay`` that the turn's budget cannot hold."""
    limits = StreamTimeouts().capped(20.0)
    for hint, fits in ((10_800.0, False), (30.0, False), (10.0, True)):
        turn = run_virtual(
            Turn([http(status, retry_after=hint), text_events("ok")], rescue="no", timeouts=limits).run()
        )  # fmt: skip
        assert (turn.error is None) is fits
        assert turn.took == pytest.approx(10.0 if fits else 0.0)
        assert not turn.client.unstreamed
        if not fits:
            assert "UTC" in str(turn.error)
            assert isinstance(turn.error, RateLimitEscalation) is (status == 429)


def test_R05_an_unstreamed_turn_makes_one_request_with_the_same_words():
    bench = Bench(
        Fake(rescue=answered(429, headers=[("retry-after", "10800")])), mode=TurnMode.NON_STREAMING
    )
    with pytest.raises(ProviderError) as caught:
        run_virtual(bench.turn())
    assert caught.value.retry_after == 10_800
    assert len(bench.client.unstreamed) == 1


def test_R06_the_two_ladders_never_spend_each_others_retries():
    """L64: 429 and 529 in turn; four transport attempts and three waits fit in one turn."""
    mixed = [http(529), http(429, retry_after=1.0)] * 3
    turn = run_virtual(Turn([*mixed, text_events("ok")], timeouts=NO_RESCUE).run())
    assert turn.error is None
    assert turn.handler.attempt == 7
    assert turn.handler.outcome.attempts == 7
    late = run_virtual(Turn([*mixed, http(529)], timeouts=NO_RESCUE).run())
    assert isinstance(late.error, ProviderError)
    assert late.handler.attempt == 7


def test_R06_an_error_keeps_its_advice_when_the_ladder_gives_up():
    """The line that says what to type survives "gave up", the failed rescue and the long wait."""
    advice = {"hint": "Start the server with:  ollama serve"}
    for script, rescue, timeouts in (
        ([ProviderError(ErrorKind.TRANSPORT, "refused", **advice)] * 4, None, NO_RESCUE),
        ([ProviderError(ErrorKind.TRANSPORT, "refused", **advice)] * 4, None, StreamTimeouts()),
        ([ProviderError(ErrorKind.OVERLOADED, "busy", retry_after=9e9, **advice)], "x", NO_RESCUE),
    ):
        turn = run_virtual(Turn(script, rescue=rescue, timeouts=timeouts).run())
        assert "ollama serve" in str(turn.error)


def test_R06_three_overloaded_turns_trip_in_both_modes():
    for mode in TurnMode:
        a = Fake([http(529)] * 99, rescue=lambda: http(529), name="a")
        b = Fake([], rescue="from b", name="b")
        bench = Bench(a, b, mode=mode, retry=RetryPolicy(max_retries=1), timeouts=NO_RESCUE)
        for _ in range(3):
            with pytest.raises(ProviderError):
                run_virtual(bench.turn())
        assert bench.llm.breaker.state is BreakerState.FALLBACK
        assert run_virtual(bench.turn()).model == "fake:b"


@pytest.mark.parametrize("equal", [1, 2])
def test_R06_the_hard_stop_is_reached_only_with_equal_limits(equal):
    """L59: with both numbers equal the rescue serves; else the turn escalates."""
    policy = RateLimitPolicy(fallback_after_retries=equal, max_retries=equal)
    turn = run_virtual(
        Turn([http(429, retry_after=0.0)] * 9, rescue="saved", rate_limit=policy).run()
    )
    assert turn.kinds[-1] == "StreamFallback"
    assert turn.handler.attempt == equal + 1
    apart = RateLimitPolicy(fallback_after_retries=equal, max_retries=equal + 1)
    turn = run_virtual(
        Turn([http(429, retry_after=0.0)] * 9, rescue="saved", rate_limit=apart).run()
    )
    assert isinstance(turn.error, RateLimitEscalation)
    assert turn.error.attempts == equal + 1


def test_R06_a_failed_turn_of_a_run_says_how_often_it_tried():
    runtime = make(model=Fake([http(503)] * 9), timeouts=NO_RESCUE)
    error = failing(runtime)
    assert "Gave up after 4 attempts." in str(error)
    assert error.result.run.unserved[0].turn.attempts == 4
