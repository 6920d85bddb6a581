"""core/calibration.py: the tail after a reported request never breaks the safe bound's promise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_agent.core.calibration import (
    HIDDEN_TOKENS,
    LEAST_SHARE,
    Anchor,
    anchored_estimate,
    believable,
)

tokens = st.integers(0, 200_000)


@given(true=st.lists(tokens, min_size=2, max_size=2), over=st.lists(tokens, min_size=2, max_size=2))
def test_never_below_the_truth_while_each_estimate_is_safe(true, over):
    """A right report and safe estimates of both halves: the calibrated number covers the truth
    and is never above the plain estimate."""
    old, new = true
    safe_old, safe_new = old + over[0], new + over[1]
    anchor = Anchor(reported=old, estimate=safe_old)
    found = anchored_estimate(anchor, safe_old + safe_new, safe_new)
    assert old + new <= found <= safe_old + safe_new


@given(estimate=tokens, more=st.integers(1, 50_000), added=tokens)
def test_a_provider_that_counts_more_raises_it(estimate, more, added):
    anchor = Anchor(reported=estimate + more, estimate=estimate)
    assert anchored_estimate(anchor, estimate + added, added) == estimate + more + added


@given(reported=tokens, estimate=tokens, safe=tokens, added=st.integers(-5, 200_000))
def test_bounds_hold_for_any_numbers(reported, estimate, safe, added):
    found = anchored_estimate(Anchor(reported=reported, estimate=estimate), safe, added)
    assert found >= min(safe, reported + max(added, 0))
    assert found >= safe if reported > estimate else found <= safe


@given(estimate=st.integers(1, 1_000_000), window=st.none() | st.integers(1, 2_000_000))
def test_absurd_reports_are_not_believed(estimate, window):
    limit = window or LEAST_SHARE * estimate + HIDDEN_TOKENS
    for absurd in (0, -1, -estimate, limit + 1, 10**18, True, None, "17", 17.0, float("nan")):
        assert not believable(absurd, estimate, window)
    assert not believable((estimate - 1) // LEAST_SHARE, estimate, window)
    assert believable(estimate, estimate, window) == (estimate <= limit)


@pytest.mark.parametrize(
    ("reported", "good"), [(900, True), (899, False), (1_000, True), (5_000, True)]
)
def test_a_conversation_that_grew_was_not_read_in_fewer_tokens(reported, good):
    """Only this turn's messages of the request before (100 of its 1,000) may be gone."""
    before = Anchor(reported=1_000, estimate=1_500, transients=100)
    assert believable(reported, 2_000, None, before) is good
