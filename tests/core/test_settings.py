"""L48, L49: defaults, and every invalid setting names field, value and legal range."""

from __future__ import annotations

import dataclasses

import pytest

from notebook_agent.core.settings import RateLimitPolicy, RetryPolicy, StreamTimeouts
from notebook_agent.errors import ConfigError

NAN, INF = float("nan"), float("inf")


def test_L48_defaults():
    assert dataclasses.asdict(StreamTimeouts()) == {
        "initial_event_timeout": 120, "per_event_timeout": 180, "total_stream_timeout": 300,
        "max_consecutive_timeouts": 1, "fallback_to_non_streaming": True, "passthrough": False,
    }  # fmt: skip
    assert dataclasses.asdict(RetryPolicy()) == {
        "max_retries": 3, "base_delay": 0.1, "max_delay": 10, "jitter_factor": 0.1,
    }  # fmt: skip
    assert dataclasses.asdict(RateLimitPolicy()) == {
        "respect_retry_after": True, "default_delay": 5, "max_delay": 60,
        "fallback_after_retries": 3, "max_retries": 5, "requests_per_minute": 0, "max_wait": 30,
    }  # fmt: skip


WRONG = [
    *((StreamTimeouts, name, value)
      for name in ("initial_event_timeout", "per_event_timeout", "total_stream_timeout")
      for value in (0, -1, NAN, INF, "5", None, True)),
    (StreamTimeouts, "total_stream_timeout", 119.9),
    (StreamTimeouts, "initial_event_timeout", 300.1),
    (StreamTimeouts, "max_consecutive_timeouts", 0),
    (StreamTimeouts, "max_consecutive_timeouts", 1.0),
    (StreamTimeouts, "fallback_to_non_streaming", "yes"),
    (StreamTimeouts, "passthrough", 1),
    (RetryPolicy, "max_retries", -1),
    (RetryPolicy, "max_retries", 2.5),
    (RetryPolicy, "base_delay", 0),
    (RetryPolicy, "base_delay", 11),
    (RetryPolicy, "max_delay", 0.09),
    *((RetryPolicy, "jitter_factor", v) for v in (-0.1, 1.1, NAN, INF, "x")),
    (RateLimitPolicy, "respect_retry_after", 0),
    (RateLimitPolicy, "default_delay", 0),
    (RateLimitPolicy, "default_delay", 61),
    (RateLimitPolicy, "max_delay", 4.9),
    (RateLimitPolicy, "max_retries", 0),
    (RateLimitPolicy, "fallback_after_retries", -1),
    (RateLimitPolicy, "fallback_after_retries", 6),
    (RateLimitPolicy, "requests_per_minute", -1),
    (RateLimitPolicy, "max_wait", -1),
    (RateLimitPolicy, "max_wait", INF),
]  # fmt: skip
# a field that another one bounds is blamed on the one that was checked against it
BLAMED = {("initial_event_timeout", 300.1): "total_stream_timeout", ("base_delay", 11): "max_delay",
          ("default_delay", 61): "max_delay"}  # fmt: skip


@pytest.mark.parametrize(("kind", "field", "value"), WRONG)
def test_L49_every_invalid_setting_is_refused(kind, field, value):
    with pytest.raises(ConfigError) as caught:
        kind(**{field: value})
    error = caught.value
    blamed = BLAMED.get((field, value), field)
    assert error.field == blamed
    assert error.legal
    assert blamed in str(error)
    assert repr(error.value) in str(error)
    assert error.legal in str(error)


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (StreamTimeouts, {"initial_event_timeout": 300}),
        (StreamTimeouts, {"total_stream_timeout": 120}),
        (StreamTimeouts, {"per_event_timeout": 1e6}),
        (RetryPolicy, {"max_retries": 0, "base_delay": 10, "jitter_factor": 0}),
        (RetryPolicy, {"jitter_factor": 1}),
        (RateLimitPolicy, {"fallback_after_retries": 5, "max_retries": 5}),
        (RateLimitPolicy, {"fallback_after_retries": 0, "max_retries": 1, "max_wait": 0}),
    ],
)
def test_L49_the_edges_are_legal(kind, given):
    for name, value in given.items():
        assert getattr(kind(**given), name) == value


@pytest.mark.parametrize(
    ("total", "expected"),
    [(10, (10, 10, 10)), (150, (120, 150, 150)), (900, (120, 180, 900)), (0.5, (0.5, 0.5, 0.5))],
)
def test_L49_a_users_timeout_caps_all_three(total, expected):
    capped = StreamTimeouts().capped(total)
    assert (
        capped.initial_event_timeout, capped.per_event_timeout, capped.total_stream_timeout,
    ) == expected  # fmt: skip


@pytest.mark.parametrize("total", [0, -1, NAN, INF, "5", None])
def test_L49_a_users_timeout_out_of_range(total):
    with pytest.raises(ConfigError) as caught:
        StreamTimeouts().capped(total)
    assert caught.value.field == "total_stream_timeout"


def test_L50_passthrough_has_no_deadline():
    assert StreamTimeouts(passthrough=True).total_s is None
    assert StreamTimeouts().total_s == 300


def test_L55_empty_stream_fast_fail():
    for most, empty in ((1, 1), (2, 2), (3, 2), (10, 2)):
        timeouts = StreamTimeouts(max_consecutive_timeouts=most)
        assert (timeouts.allowed_timeouts(0), timeouts.allowed_timeouts(1)) == (empty, most)
