"""L4, L5, B66, M2: stop reasons, usage that may be missing, the FSM's word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_agent.core.messages import Message
from notebook_agent.core.response import (
    ENDING_OF_WORD,
    ChatResponse,
    Ending,
    FinishReason,
    StopReason,
    Usage,
    finish_reason,
)

R = StopReason


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("tool_use", R.TOOL_CALL), ("tool_calls", R.TOOL_CALL), ("length", R.MAX_TOKENS),
        ("max_tokens", R.MAX_TOKENS), ("stop_sequence", R.STOP_SEQUENCE), ("stop", R.END_TURN),
        ("end_turn", R.END_TURN), ("content_filter", None), ("", None), (None, None), ("STOP", None),
    ],
)  # fmt: skip
def test_L5_providers_words(word, reason):
    assert R.parse(word) is reason


@given(st.text())
def test_L5_any_other_word_is_unknown_never_an_error(word):
    assert R.parse(word) in (*R, None)


def test_every_stop_reason_reads_its_own_value():
    for reason in R:
        assert R.parse(reason.value) is reason
        assert ENDING_OF_WORD[reason.value].value == reason.value


counts = st.none() | st.integers(0, 10**9)
usages = st.builds(Usage, counts, counts, counts, counts, counts, st.booleans(), st.booleans())


@given(usages)
def test_L4_usage_survives_json_and_absent_stays_absent(usage):
    assert Usage.from_json(usage.to_json()) == usage
    assert all(v is not None for v in usage.to_json().values())
    assert Usage.from_json(None) is None
    assert Usage.from_json({**usage.to_json(), "later": 1}) == usage


@given(usages, usages)
def test_S13_merging_replaces_and_never_forgets(one, later):
    merged = one.merged(later)
    for name in ("input_tokens", "output_tokens", "cached_input_tokens"):
        new = getattr(later, name)
        assert getattr(merged, name) == (getattr(one, name) if new is None else new)


@given(usages, usages)
def test_B66_sums_add_and_stay_none_when_both_are(one, other):
    total = one.plus(other)
    for name in ("input_tokens", "output_tokens", "reasoning_tokens"):
        a, b = getattr(one, name), getattr(other, name)
        assert getattr(total, name) == (None if a is b is None else (a or 0) + (b or 0))


def test_T06_cached_tokens_are_counted_once():
    assert Usage(184_704, 49, 183_936).context_tokens == 184_704
    assert Usage(25, 9, 900, 10, input_includes_cached=False).context_tokens == 935
    assert Usage(None, 9).context_tokens is None


def test_totals_are_unknown_unless_both_sides_are_known():
    assert Usage(10, 5).total == 15
    assert Usage(10, None).total is None
    assert Usage(None, 5).total is None
    assert Usage(10, 5, reasoning_tokens=7).total == 15
    assert Usage(10, 5, reasoning_tokens=7, output_includes_reasoning=False).total == 22


@pytest.mark.parametrize(
    ("stop", "ending", "word"),
    [
        (R.TOOL_CALL, None, FinishReason.TOOL_CALLS),
        (R.END_TURN, Ending.END_TURN, FinishReason.STOP),
        (R.STOP_SEQUENCE, Ending.STOP_SEQUENCE, FinishReason.STOP),
        (R.MAX_TOKENS, Ending.MAX_TOKENS, FinishReason.LENGTH),
        (R.END_TURN, Ending.CONTENT_FILTER, FinishReason.CONTENT_FILTER),
        (R.END_TURN, Ending.REFUSAL, FinishReason.CONTENT_FILTER),
        (R.END_TURN, Ending.ERROR, FinishReason.ERROR),
        (R.END_TURN, Ending.PAUSE, FinishReason.UNKNOWN),
        (R.END_TURN, Ending.UNKNOWN, FinishReason.UNKNOWN),
    ],
)
def test_M2_the_fsms_word(stop, ending, word):
    response = ChatResponse(Message.assistant("x"), stop_reason=stop, ending=ending)
    assert finish_reason(response) is word
