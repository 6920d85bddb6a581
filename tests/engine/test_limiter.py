"""L65: the token bucket."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_agent.engine.limiter import Buckets, TokenBucket


def test_L65_capacity_then_continuous_refill():
    bucket = TokenBucket(60)
    assert [bucket.take(0.0) for _ in range(60)] == [0.0] * 60
    assert bucket.take(0.0) == pytest.approx(1.0)
    assert bucket.take(0.25) == pytest.approx(0.75)
    assert bucket.take(1.0) == 0.0
    assert bucket.take(1.0) == pytest.approx(1.0)
    assert [bucket.take(1e6) for _ in range(60)] == [0.0] * 60  # never more than its capacity
    assert bucket.take(1e6) > 0


def test_L65_zero_is_off():
    assert [TokenBucket(0).take(0.0) for _ in range(999)] == [0.0] * 999
    assert Buckets().take("x", 0, 0.0) == 0.0


@pytest.mark.parametrize("far", [1e18, float("inf")])
def test_L65_a_far_future_clock_does_not_freeze_the_refill(far):
    bucket = TokenBucket(1)
    assert bucket.take(0.0) == 0.0
    assert bucket.take(far) == 0.0
    assert bucket.take(10.0) == pytest.approx(60.0)
    assert bucket.take(70.0) == 0.0


def test_L65_one_bucket_per_base_url():
    buckets = Buckets()
    assert buckets.take("http://a", 1, 0.0) == 0.0
    assert buckets.take("http://b", 1, 0.0) == 0.0
    assert buckets.take("http://a", 1, 0.0) > 0
    assert buckets.take("http://a", 2, 0.0) == 0.0  # another rate is another bucket


@given(st.lists(st.floats(0, 120), max_size=200), st.integers(1, 100))
def test_L65_never_more_than_the_rate_in_any_window(gaps, rate):
    bucket, now, taken = TokenBucket(rate), 0.0, []
    for gap in gaps:
        now += gap
        if bucket.take(now) == 0.0:
            taken.append(now)
    for start in taken:
        in_window = sum(1 for t in taken if start <= t < start + 60)
        assert in_window <= 2 * rate + 1  # a full bucket and a minute's refill


@given(st.integers(1, 600), st.integers(0, 50))
def test_L65_who_waits_as_told_is_served(rate, used):
    bucket, now = TokenBucket(rate), 0.0
    for _ in range(used):
        bucket.take(now)
    for _ in range(5):
        wait = bucket.take(now)
        if wait == 0.0:
            continue
        now += wait
        assert bucket.take(now) == 0.0
