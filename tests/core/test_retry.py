"""L58-L61, L64: the two ladders as pure decisions."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_agent.core.retry import (
    LADDER_OF_FAILURE,
    FailureClass,
    Ladder,
    RateLimitPolicy,
    RetryPolicy,
    Situation,
    Step,
    StreamTimeouts,
    cause_of,
    classify_failure,
    next_step,
    rescue_deadline,
    return_time,
    transport_delay,
)
from notebook_agent.core.stream_outcome import StreamEnd, StreamOutcome
from notebook_agent.errors import (
    AgentError,
    Cancelled,
    ConfigError,
    ErrorKind,
    ProviderError,
    RateLimitEscalation,
)

FC = FailureClass
FRESH = Ladder()


def err(kind=ErrorKind.TRANSPORT, message="boom", **kw):
    return ProviderError(kind, message, **kw)


def limited(retry_after=None):
    return err(ErrorKind.RATE_LIMITED, "slow down", status=429, retry_after=retry_after)


def busy(retry_after=None):
    return err(ErrorKind.OVERLOADED, "busy", status=503, retry_after=retry_after)


def situation(error=None, *, ladder=FRESH, remaining=300.0, wall=0.0, **kw):
    given = {
        "timeouts": StreamTimeouts(), "retry": RetryPolicy(), "rate_limit": RateLimitPolicy(),
        "uniform": lambda low, high: (low + high) / 2,
    }  # fmt: skip
    return Situation(
        error=error or err(), ladder=ladder, remaining=remaining, wall=wall, **{**given, **kw}
    )


def walk(failure, error=None, **kw):
    """Decisions until there is no retry."""
    ladder, out = Ladder(), []
    while True:
        out.append(next_step(failure, situation(error, ladder=ladder, **kw)))
        ladder = out[-1].ladder
        if out[-1].step is not Step.RETRY:
            return out


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (limited(), FC.RATE_LIMITED),
        (busy(), FC.OVERLOADED),
        (err(ErrorKind.OVERLOADED, status=529), FC.OVERLOADED),
        (err(ErrorKind.RATE_LIMITED, status=429, quota=True), FC.PERMANENT),
        (err(ErrorKind.AUTHENTICATION, status=401), FC.PERMANENT),
        (err(ErrorKind.BAD_REQUEST, status=400), FC.PERMANENT),
        (err(ErrorKind.BAD_REQUEST, status=400, overflow=True), FC.PERMANENT),
        (err(ErrorKind.PROVIDER, status=404), FC.PERMANENT),
        (err(ErrorKind.PROVIDER), FC.PERMANENT),
        (err(ErrorKind.UNSUPPORTED, feature="vision"), FC.PERMANENT),
        (err(ErrorKind.DECODE), FC.PERMANENT),
        (ConfigError(field="x"), FC.PERMANENT),
        (Cancelled(), FC.PERMANENT),
        (RateLimitEscalation(4), FC.PERMANENT),
        (err(ErrorKind.PROVIDER, status=500), FC.TRANSIENT),
        (err(ErrorKind.PROVIDER, status=408), FC.TRANSIENT),
        (err(ErrorKind.TIMEOUT), FC.TRANSIENT),
        (err(ErrorKind.TRANSPORT), FC.TRANSIENT),
    ],
)
def test_L58_classes(error, expected):
    assert classify_failure(error) is expected


def test_every_class_has_a_ladder():
    assert set(LADDER_OF_FAILURE) == set(FC)


# --- L60


def test_L60_four_attempts_with_doubling_waits_then_the_rescue():
    steps = walk(FC.TRANSIENT)
    assert [d.step for d in steps] == [Step.RETRY] * 3 + [Step.RESCUE]
    assert [d.delay for d in steps[:3]] == pytest.approx([0.1, 0.2, 0.4])
    assert [d.ladder.attempts for d in steps] == [2, 3, 4, 4]
    assert {d.max_attempts for d in steps} == {4}


def test_L60_without_the_rescue_the_turn_fails_with_the_error():
    error = err()
    last = walk(FC.TRANSIENT, error, timeouts=StreamTimeouts(fallback_to_non_streaming=False))[-1]
    assert (last.step, last.error) == (Step.FAIL, error)


@given(st.integers(0, 5000), st.floats(-1, 1))
def test_L60_jitter_comes_after_the_cap(attempt, u):
    policy = RetryPolicy(jitter_factor=0.1)
    delay = transport_delay(policy, attempt, lambda low, high: low + (high - low) * (u + 1) / 2)
    assert delay == pytest.approx(min(0.1 * 2 ** min(attempt, 60), 10.0) * (1 + 0.1 * u))
    assert 0 < delay <= 11.0


def test_L60_the_delay_is_clamped_to_the_budget():
    assert next_step(FC.TRANSIENT, situation(remaining=0.04)).delay == 0.04
    assert next_step(FC.TRANSIENT, situation(remaining=-5)).delay == 0


@pytest.mark.parametrize("retries", [0, 1, 7])
def test_L60_max_retries_counts_the_attempts_after_the_first(retries):
    assert len(walk(FC.TRANSIENT, retry=RetryPolicy(max_retries=retries))) == retries + 1


# --- L59


def test_L59_three_waits_and_the_fourth_escalates():
    steps = walk(FC.RATE_LIMITED, limited())
    assert [d.step for d in steps] == [Step.RETRY] * 3 + [Step.ESCALATE]
    assert [d.delay for d in steps[:3]] == [5, 5, 5]
    error = steps[-1].error
    assert isinstance(error, RateLimitEscalation)
    assert (error.attempts, error.retry_after) == (4, None)
    assert {d.max_attempts for d in steps} == {4}


def test_L59_the_providers_word_is_honoured_unless_switched_off():
    assert next_step(FC.RATE_LIMITED, situation(limited(2.5))).delay == 2.5
    assert next_step(FC.RATE_LIMITED, situation(limited(0.0))).delay == 0
    off = RateLimitPolicy(respect_retry_after=False)
    assert next_step(FC.RATE_LIMITED, situation(limited(9999), rate_limit=off)).delay == 5


def test_L59_hard_stop_needs_equal_limits():
    equal = RateLimitPolicy(fallback_after_retries=2, max_retries=2)
    steps = walk(FC.RATE_LIMITED, limited(), rate_limit=equal)
    assert [d.step for d in steps] == [Step.RETRY, Step.RETRY, Step.RESCUE]
    no_rescue = StreamTimeouts(fallback_to_non_streaming=False)
    last = walk(FC.RATE_LIMITED, limited(), rate_limit=equal, timeouts=no_rescue)[-1]
    assert (last.step, type(last.error)) == (Step.FAIL, ProviderError)


@pytest.mark.parametrize(("hint", "remaining"), [(60.1, 300), (10_800, 300), (20, 19.9), (1, -1)])
def test_R05_a_hint_that_cannot_be_kept_escalates_at_once(hint, remaining):
    step = next_step(FC.RATE_LIMITED, situation(limited(hint), remaining=remaining))
    assert step.step is Step.ESCALATE
    assert (step.error.attempts, step.error.retry_after) == (1, hint)


def test_R05_the_error_names_the_time_to_return():
    wall = 1_767_225_600.0  # 2026-01-01 00:00 UTC
    text = str(next_step(FC.RATE_LIMITED, situation(limited(10_800), wall=wall)).error)
    assert "in 3 h (at 03:00 UTC)" in text
    assert "Rate limited once: 429 slow down" in text


def test_L59_a_hint_at_the_cap_is_waited_for():
    assert next_step(FC.RATE_LIMITED, situation(limited(60))).delay == 60


def test_L59_the_default_wait_is_clamped_to_the_budget():
    assert next_step(FC.RATE_LIMITED, situation(limited(), remaining=2)).delay == 2


# --- L58.1: overloaded


def test_L58_overloaded_climbs_the_transport_ladder():
    steps = walk(FC.OVERLOADED, busy())
    assert [d.step for d in steps] == [Step.RETRY] * 3 + [Step.RESCUE]
    assert steps[0].ladder == Ladder(1, 0)


def test_L58_a_hint_replaces_the_computed_delay():
    assert [d.delay for d in walk(FC.OVERLOADED, busy(3.0))[:3]] == [3, 3, 3]


@pytest.mark.parametrize(("hint", "remaining"), [(61, 300), (30, 29)])
def test_L58_too_long_a_hint_ends_the_turn_without_rescue(hint, remaining):
    step = next_step(FC.OVERLOADED, situation(busy(hint), remaining=remaining))
    assert step.step is Step.FAIL
    assert (step.error.kind, step.error.status) == (ErrorKind.OVERLOADED, 503)
    assert step.error.retry_after == hint
    assert "says to return in" in str(step.error)


# --- the rest


@pytest.mark.parametrize("failure", list(FC))
def test_L50_passthrough_never_retries_nor_rescues(failure):
    error = limited()
    step = next_step(failure, situation(error, timeouts=StreamTimeouts(passthrough=True)))
    assert (step.step, step.error) == (Step.FAIL, error)


def test_L58_permanent_fails_now():
    error = err(ErrorKind.AUTHENTICATION, status=401)
    step = next_step(FC.PERMANENT, situation(error))
    assert (step.step, step.error, step.delay, step.ladder) == (Step.FAIL, error, 0, Ladder())


@pytest.mark.parametrize(("rescue", "step"), [(True, Step.RESCUE), (False, Step.FAIL)])
def test_L58_total_timeout_is_not_retried(rescue, step):
    timeouts = StreamTimeouts(fallback_to_non_streaming=rescue)
    assert next_step(FC.TOTAL_TIMEOUT, situation(timeouts=timeouts)).step is step


@given(st.lists(st.sampled_from([FC.TRANSIENT, FC.OVERLOADED, FC.RATE_LIMITED]), max_size=20))
def test_L64_the_ladders_never_spend_each_others_retries(failures):
    ladder = Ladder()
    for failure in failures:
        error = limited() if failure is FC.RATE_LIMITED else busy()
        step = next_step(failure, situation(error, ladder=ladder))
        own = ladder.rate_limit_retries if failure is FC.RATE_LIMITED else ladder.transport_attempts
        assert (step.step is Step.RETRY) == (own < 3)  # by its own counter alone
        if step.step is not Step.RETRY:
            break
        grown = (
            step.ladder.transport_attempts - ladder.transport_attempts,
            step.ladder.rate_limit_retries - ladder.rate_limit_retries,
        )
        assert grown == ((0, 1) if failure is FC.RATE_LIMITED else (1, 0))
        assert step.ladder.attempts <= step.max_attempts
        ladder = step.ladder
    assert ladder.attempts <= 7


def test_equal_situations_give_equal_decisions():
    for failure, ladder in itertools.product(FC, (Ladder(), Ladder(2, 1))):
        one, two = (next_step(failure, situation(busy(1), ladder=ladder)) for _ in range(2))
        assert one == two


def test_L61_the_rescues_deadline():
    assert rescue_deadline(StreamTimeouts(), 7.5) == 7.5
    assert rescue_deadline(StreamTimeouts(), 0.0) == 120
    assert rescue_deadline(StreamTimeouts().capped(20), -3) == 20


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (busy(), "503 busy"),
        (err(message="503 already said", status=503), "503 already said"),
        (err(message="HTTP 503: busy", status=503), "HTTP 503: busy"),
        (err(message="", status=503), "503"),
        (err(message="after 1503 tokens", status=503), "503 after 1503 tokens"),
        (err(message="\n  cut \nmore"), "cut"),
        (err(message=""), "transport"),
        (AgentError(), "AgentError"),
        (ValueError("x"), "x"),
    ],
)
def test_causes_fit_one_line(error, text):
    assert cause_of(error) == text
    assert len(cause_of(err(message="x" * 9999))) == 200


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.5, "in 0.5 s (at 00:00 UTC)"),
        (59, "in 59 s (at 00:00 UTC)"),
        (60, "in 1 min (at 00:01 UTC)"),
        (5400, "in 90 min (at 01:30 UTC)"),
        (10_800, "in 3 h (at 03:00 UTC)"),
        (86_400, "in 1 d (at 2026-01-02 00:00 UTC)"),
        (1e30, "in 1000000000000000019884624838656 s"),
    ],
)
def test_times_to_return(seconds, text):
    assert return_time(seconds, 1_767_225_600.0) == text


def test_L63_outcomes_in_rising_severity():
    assert [end.name for end in sorted(StreamEnd, key=lambda end: end.severity)] == [
        "COMPLETED", "TOTAL_TIMEOUT", "EVENT_TIMEOUT", "RATE_LIMITED", "INIT_FAILED",
        "FALLBACK_TO_NON_STREAMING", "CANCELLED",
    ]  # fmt: skip
    assert StreamOutcome(end=StreamEnd.RATE_LIMITED, attempts=4).to_json() == {
        "end": "rate_limited", "events_processed": 0, "duration_s": 0.0, "has_partial_data": False,
        "consecutive_timeouts": 0, "attempts": 4, "detail": "",
    }  # fmt: skip
