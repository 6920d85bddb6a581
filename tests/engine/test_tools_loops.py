"""Loop, doom-loop and convergence detection."""

from __future__ import annotations

import pytest

from notebook_agent.engine.tools.loops import (
    ConvergenceDetector,
    DoomLoopDetector,
    LoopDetector,
    LoopPolicy,
    fingerprint,
)
from notebook_agent.errors import ConfigError


def feed(detector, calls):
    return [detector.observe(tool, given, mark) for tool, given, mark in calls]


def test_L124_same_tool_input_and_result():
    seen = feed(LoopDetector(LoopPolicy()), [("f", {"a": 1, "b": 2}, "h")] * 10)
    assert [None if r is None else (r.repetitions, r.stop) for r in seen] == [
        None, None, (3, False), None, None, (6, False), None, None, (9, False), (10, True),
    ]  # fmt: skip


def test_key_order_does_not_matter_but_the_result_does():
    detector = LoopDetector(LoopPolicy())
    assert fingerprint("f", {"a": 1, "b": 2}) == fingerprint("f", {"b": 2, "a": 1})
    assert feed(detector, [("f", {}, str(n)) for n in range(50)]) == [None] * 50
    assert feed(detector, [("f", {"n": n}, "h") for n in range(50)]) == [None] * 50


def test_the_primary_parameter_alone_may_decide():
    detector = LoopDetector(LoopPolicy())
    calls = [{"path": "x", "why": str(n)} for n in range(3)]
    seen = [detector.observe("read", one, "h", primary="path") for one in calls]
    assert seen[2] is not None
    seen = [detector.observe("read", one, "h", primary="gone") for one in calls]
    assert seen == [None] * 3


def test_only_the_window_counts():
    detector = LoopDetector(LoopPolicy(window=5, history=100))
    other = [("g", {"n": n}, "h") for n in range(4)]
    one = ("f", {}, "h")
    assert feed(detector, [one, *other, one, *other, one]) == [None] * 11


def test_zero_switches_off():
    detector = LoopDetector(LoopPolicy(warn_at=0, stop_at=0))
    assert feed(detector, [("f", {}, "h")] * 40) == [None] * 40


def check(calls, **policy):
    detector = DoomLoopDetector(LoopPolicy(strict=True, **policy))
    return [detector.check(tool, given) is not None for tool, given in calls]


def test_B55_three_equal_in_a_row_whatever_the_results():
    assert check([("f", {"a": 1})] * 3) == [False, False, True]
    assert check([("f", {"a": 1}), ("f", {"a": 1}), ("g", {}), ("f", {"a": 1})]) == [False] * 4


@pytest.mark.parametrize("length", [2, 3, 4])
def test_B55_a_cycle_seen_three_times(length):
    cycle = [(f"t{n}", {"n": n}) for n in range(length)]
    said = check(cycle * 3)
    assert said == [False] * (3 * length - 1) + [True]
    assert check(cycle * 2 + [("other", {})] + cycle) == [False] * (3 * length + 1)


def test_B55_a_cycle_of_five_is_none():
    assert not any(check([(f"t{n}", {}) for n in range(5)] * 4))


def test_B55_one_tool_five_times_in_a_row():
    calls = [("f", {"n": n}) for n in range(5)]
    assert check(calls) == [False] * 4 + [True]
    assert check(calls, same_tool=0) == [False] * 5


def test_L124_convergence_three_alike_in_a_row():
    detector = ConvergenceDetector(LoopPolicy())
    said = [
        detector.observe(t) for t in ("It is done.", "it IS done", "Done, it is!", "it is done")
    ]
    assert said == [None, None, "warn", "warn"]
    assert detector.observe("something else") is None
    assert detector.observe("it is done") is None
    detector.reset()
    assert [detector.observe("a") for _ in range(3)] == [None, None, "warn"]


def test_convergence_needs_95_percent():
    detector = ConvergenceDetector(LoopPolicy(convergence_action="stop"))
    base = [f"w{n}" for n in range(100)]
    near = " ".join([*base[:98], "x"])  # 98 of 101 shared
    far = " ".join([*base[:90], "y"])
    assert [detector.observe(t) for t in (" ".join(base), near, " ".join(base))] == [
        None, None, "stop",
    ]  # fmt: skip
    assert detector.observe(far) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("warn_at", -1), ("stop_at", 1.5), ("window", 0), ("window", 200), ("history", 0),
        ("similarity", 0), ("similarity", 1.1), ("similarity", float("nan")),
        ("convergence_repeats", 1), ("convergence_action", "shout"), ("same_tool", True),
    ],
)  # fmt: skip
def test_invalid_settings(field, value):
    with pytest.raises(ConfigError) as caught:
        LoopPolicy(**{field: value})
    assert caught.value.field == field
