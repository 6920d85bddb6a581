"""L76-L84: the breaker's table, row by row, chain, strikes, exhaustion."""

from __future__ import annotations

import contextlib
import json
import threading
from typing import ClassVar

import pybreaker
import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_agent.core import breaker as b
from notebook_agent.core.breaker import Breaker, BreakerConfig, BreakerState, FailureKind
from notebook_agent.core.chain import first_usable
from notebook_agent.errors import ConfigError

PRIMARY, FALLBACK, RECOVERING = BreakerState
TRANSIENT, RATE_LIMIT = FailureKind
KINDS = list(FailureKind)


def fresh(*chain, **config):
    return Breaker(BreakerConfig(**config), "a:one", chain)


def tripped(*chain, now=0.0, **config):
    breaker = fresh(*chain, **config)
    assert [breaker.record_failure(TRANSIENT, now) for _ in range(3)] == [False, False, True]
    return breaker


def recovering(*chain, **config):
    breaker = tripped(*chain, **config)
    assert breaker.check_recovery(60.0)
    return breaker


# --- the rows of L78


def test_L78_primary_success_clears_the_count():
    breaker = fresh()
    for _ in range(9):
        breaker.record_failure(TRANSIENT, 0)
        breaker.record_failure(RATE_LIMIT, 0)
        breaker.record_success(0)
    assert (breaker.state, breaker.data.consecutive_failures) == (PRIMARY, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_L78_primary_failure_below_the_threshold(kind):
    breaker = fresh()
    assert breaker.record_failure(kind, 1.0) is False
    assert (breaker.state, breaker.data.consecutive_failures) == (PRIMARY, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_L78_and_L73_the_third_failure_trips(kind):
    breaker = fresh("a:two")
    breaker.record_failure(TRANSIENT, 1.0)
    breaker.record_failure(RATE_LIMIT, 2.0)
    assert breaker.record_failure(kind, 3.0, cause="503 busy") is True
    data = breaker.data
    assert (data.state, data.consecutive_failures, data.primary_success_count) == (FALLBACK, 0, 0)
    assert (data.fallback_activated, data.fallback_switched_at) == (True, 3.0)
    assert data.last_cause == "503 busy"
    assert data.chain[0].attempt_count == 0  # L73: no strike against the backup it trips to


@pytest.mark.parametrize("threshold", [0, 1])
def test_L76_threshold_zero_trips_on_the_first(threshold):
    assert fresh(trip_threshold=threshold).record_failure(TRANSIENT, 0) is True


def test_L78_a_backups_success_proves_nothing():
    breaker = tripped("a:two")
    before = breaker.data
    for _ in range(5):
        breaker.record_success(1.0)
    assert breaker.data == before


@pytest.mark.parametrize("kind", KINDS)
def test_L78_a_failure_in_fallback_changes_nothing_by_itself(kind):
    breaker = tripped("a:two")
    before = breaker.data
    assert breaker.record_failure(kind, 1.0, cause="x") is False
    assert breaker.data == before


@pytest.mark.parametrize(("at", "probes"), [(59.999, False), (60.0, True), (1e9, True)])
def test_L78_the_cooldown_ends_at_sixty_seconds(at, probes):
    breaker = tripped("a:two")
    assert breaker.check_recovery(at) is probes
    assert breaker.state is (RECOVERING if probes else FALLBACK)
    assert breaker.check_recovery(at) is False  # once


def test_L78_two_probe_successes_close_it():
    breaker = recovering("a:two", "a:three")
    breaker.mark_fallback_failed("a:two")
    breaker.record_success(61.0)
    assert (breaker.state, breaker.data.primary_success_count) == (RECOVERING, 1)
    breaker.record_success(62.0)
    data = breaker.data
    assert (data.state, data.consecutive_failures, data.primary_success_count) == (PRIMARY, 0, 0)
    assert data.fallback_switched_at is None
    assert [entry.attempt_count for entry in data.chain] == [0, 0]
    assert data.fallback_activated is True  # 1.21 #9: sticky until reset


def test_L78_a_transient_probe_failure_only_resets_the_streak():
    breaker = recovering("a:two")
    breaker.record_success(61.0)
    assert breaker.record_failure(TRANSIENT, 62.0) is False
    assert (breaker.state, breaker.data.primary_success_count) == (RECOVERING, 0)
    breaker.record_success(63.0)
    assert breaker.state is RECOVERING


def test_L78_a_rate_limited_probe_goes_back_and_the_clock_restarts():
    breaker = recovering("a:two")
    breaker.record_success(61.0)
    assert breaker.record_failure(RATE_LIMIT, 62.0) is False
    assert (breaker.state, breaker.cooldown_left(62.0)) == (FALLBACK, 60.0)
    assert breaker.check_recovery(122.0)
    assert breaker.data.primary_success_count == 0


@pytest.mark.parametrize("make", [fresh, tripped, recovering])
def test_L78_reset_and_manual_trip_from_anywhere(make):
    breaker = make("a:two")
    breaker.mark_fallback_failed("a:two")
    assert breaker.trip(100.0) is True
    assert (breaker.state, breaker.cooldown_left(100.0)) == (FALLBACK, 60.0)
    assert breaker.data.last_cause == "tripped by hand"
    breaker.reset()
    assert breaker.data == fresh("a:two").data


def test_L78_a_manual_trip_without_a_backup_says_so():
    assert fresh().trip(0.0) is False


def test_the_table_has_the_rows_of_L78_and_no_others():
    table = {s: set(row) for s, row in b.BREAKER_TRANSITIONS.items()}
    e = b.BreakerEvent
    everywhere = {e.SUCCESS, e.TRANSIENT, e.RATE_LIMIT, e.TRIP, e.RESET}
    assert table == {
        PRIMARY: everywhere | {e.LAST_FAILURE},
        FALLBACK: everywhere | {e.COOLDOWN_OVER},
        RECOVERING: everywhere | {e.LAST_SUCCESS},
    }
    tripping = [
        (s, k) for s, row in b.BREAKER_TRANSITIONS.items() for k, r in row.items() if r.tripped
    ]
    assert set(tripping) == {(PRIMARY, e.LAST_FAILURE), *((s, e.TRIP) for s in BreakerState)}


# --- routing


def test_L79_routed_model():
    breaker = fresh("a:two", "a:three")
    assert breaker.routed_model() == "a:one"
    breaker.trip(0)
    assert breaker.routed_model() == "a:two"
    assert breaker.routed_model(skip={"a:two"}) == "a:three"
    assert breaker.routed_model(skip={"a:two", "a:three"}) == "a:one"
    breaker.check_recovery(60)
    assert breaker.routed_model() == "a:one"


def test_L80_without_a_chain_the_primary_keeps_serving():
    breaker = tripped()
    assert breaker.routed_model() == "a:one"
    assert breaker.exhausted(1.0) is None
    assert breaker.check_recovery(60.0)


def test_L72_and_L77_two_strikes_move_the_route_on():
    breaker = tripped("a:two", "a:three")
    breaker.mark_fallback_failed("a:two", cause="500")
    assert breaker.routed_model() == "a:two"
    breaker.mark_fallback_failed("a:two", cause="500")
    assert breaker.routed_model() == "a:three"
    breaker.mark_fallback_failed("b:unknown")
    assert breaker.routed_model() == "a:three"


def test_F05_every_model_is_resting():
    breaker = tripped("a:two", "a:three", now=100.0)
    breaker.record_failure(TRANSIENT, 100.0)
    for _ in range(2):
        breaker.mark_fallback_failed("a:two", cause="500 boom")
    assert breaker.exhausted(110.0) is None
    breaker.set_available("a:three", available=False)
    error = breaker.exhausted(110.0)
    assert [(m.name, m.retry_in) for m in error.models] == [
        ("a:one", 50.0), ("a:two", None), ("a:three", None),
    ]  # fmt: skip
    assert "2 of 2 strikes (500 boom)" in error.models[1].reason
    assert error.models[2].reason == "switched off"
    for word in ("a:one", "a:two", "a:three", "may be tried in 50 s", "%agent breaker reset"):
        assert word in str(error)
    assert breaker.check_recovery(160.0)  # the probe check runs first: the primary is asked
    assert breaker.exhausted(160.0) is None
    assert fresh("a:two").exhausted(0.0) is None


def test_F05_exhaustion_is_told_with_its_cause():
    breaker = fresh("a:two")
    for _ in range(3):
        breaker.record_failure(TRANSIENT, 0.0, cause="503 busy")
    breaker.mark_failed("a:two")
    assert breaker.exhausted(0.0).models[0].reason == "503 busy"
    by_hand = fresh("a:two")
    by_hand.trip(0.0, cause="")
    by_hand.mark_failed("a:two")
    assert by_hand.exhausted(0.0).models[0].reason == "tripped"


# --- chain operations (L82)


def names(breaker):
    return [entry.name for entry in breaker.chain]


def test_L82_chain_operations():
    breaker = fresh()
    breaker.set_chain(["a:two"])
    breaker.add_fallback("a:four")
    breaker.insert_fallback(1, " a:three ")
    assert names(breaker) == ["a:two", "a:three", "a:four"]
    assert breaker.active_fallback == "a:two"
    assert breaker.remove_fallback("a:two") is True
    assert breaker.remove_fallback("a:two") is False
    breaker.mark_failed("a:three")
    assert (breaker.chain[0].failed, breaker.active_fallback) == (True, "a:four")
    breaker.set_available("a:four", available=False)
    assert breaker.active_fallback is None
    breaker.clear_failed("a:three")
    assert breaker.active_fallback == "a:three"
    breaker.mark_failed("a:three")
    breaker.set_chain(["a:five", "a:three"])
    assert [e.failed for e in breaker.chain] == [False, True]  # strikes are kept


@pytest.mark.parametrize(
    "break_it",
    [
        lambda x: x.add_fallback("a:two"),
        lambda x: x.add_fallback("  "),
        lambda x: x.insert_fallback(0, "a:two"),
        lambda x: x.set_chain(["a:x", "a:x"]),
        lambda x: x.mark_failed("a:nine"),
        lambda x: x.clear_failed("a:nine"),
        lambda x: x.set_available("a:nine", available=True),
    ],
)
def test_L82_a_wrong_chain_operation_changes_nothing(break_it):
    breaker = fresh("a:two")
    before = breaker.data
    with pytest.raises(ConfigError) as caught:
        break_it(breaker)
    assert caught.value.field == "fallback"
    assert breaker.data == before


def test_L82_positions_out_of_range_are_the_ends():
    breaker = fresh("a:two")
    breaker.insert_fallback(-5, "a:first")
    breaker.insert_fallback(99, "a:last")
    assert names(breaker) == ["a:first", "a:two", "a:last"]


def test_L82_a_wrong_entry_of_an_empty_chain():
    with pytest.raises(ConfigError, match="the chain is empty"):
        fresh().mark_failed("a:two")


def test_L83_another_primary_starts_clean():
    breaker = tripped("a:two")
    breaker.switch_primary("b:one")
    assert (breaker.original_model, breaker.state) == ("b:one", PRIMARY)
    assert breaker.routed_model() == "b:one"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("trip_threshold", -1), ("trip_threshold", 1.5), ("trip_threshold", True),
        ("recovery_timeout", -0.1), ("recovery_timeout", float("nan")),
        ("recovery_timeout", float("inf")), ("recovery_timeout", "60"), ("recovery_timeout", True),
        ("recovery_successes_needed", 0), ("max_fail_count", 0), ("max_fail_count", None),
    ],
)  # fmt: skip
def test_L76_settings_out_of_range(field, value):
    with pytest.raises(ConfigError) as caught:
        BreakerConfig(**{field: value})
    assert (caught.value.field, caught.value.legal != "") == (field, True)
    assert field in str(caught.value)


# --- whole values


operations = st.lists(
    st.sampled_from(["ok", "transient", "rate", "strike", "probe", "trip", "reset", "off", "on"]),
    max_size=40,
)


def do(breaker, step, now):
    match step:
        case "ok":
            breaker.record_success(now)
        case "transient":
            breaker.record_failure(TRANSIENT, now)
        case "rate":
            breaker.record_failure(RATE_LIMIT, now)
        case "strike":
            breaker.mark_fallback_failed(breaker.active_fallback or "")
        case "probe":
            breaker.check_recovery(now)
        case "trip":
            breaker.trip(now)
        case "reset":
            breaker.reset()
        case "off" | "on":
            breaker.set_available("a:two", available=step == "on")


@given(operations, st.integers(0, 100))
def test_any_sequence_keeps_the_invariants_and_survives_json(steps, gap):
    breaker = fresh("a:two", "a:three")
    now = 0.0
    for step in steps:
        now += gap
        do(breaker, step, now)
        data = breaker.data
        assert (data.fallback_switched_at is None) == (data.state is PRIMARY)
        assert 0 <= data.consecutive_failures < 3
        assert data.primary_success_count in ((0, 1) if data.state is RECOVERING else (0,))
        assert breaker.active_fallback == first_usable(data.chain)
        assert breaker.routed_model() in ("a:one", "a:two", "a:three")
        back = Breaker.from_json(json.loads(json.dumps(breaker.to_json(now))), now=now)
        assert back.to_json(now) == breaker.to_json(now)
        assert back.check_recovery(now + 60) == (data.state is FALLBACK)


def test_json_never_holds_a_reading_of_the_clock():
    breaker = tripped("a:two", now=123456.0)
    assert "123456" not in json.dumps(breaker.to_json(123460.0))
    assert breaker.to_json(123460.0)["cooldown_left_s"] == 56.0
    assert breaker.to_json()["cooldown_left_s"] is None
    assert Breaker.from_json(breaker.to_json(), now=7.0).cooldown_left(7.0) == 60.0


def test_L84_steps_run_under_the_given_lock():
    breaker, lock = fresh("a:two"), threading.RLock()
    breaker.guard_with(lock)
    held = []

    def other():
        held.append(breaker.record_failure(TRANSIENT, 0.0))

    with lock:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(0.05)
        assert held == []
    thread.join(5)
    assert held == [False]


def test_L84_a_thousand_failures_from_many_threads_trip_once():
    breaker = fresh("a:two")
    breaker.guard_with(threading.RLock())
    trips = []
    threads = [
        threading.Thread(
            target=lambda: trips.extend(breaker.record_failure(TRANSIENT, 0.0) for _ in range(125))
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert (len(trips), sum(trips)) == (1000, 1)


# --- an independent implementation as the oracle (issue 3)


class Boom(Exception):
    pass


def fail():
    raise Boom


class Oracle:
    """``pybreaker`` with the same numbers; its cooldown is ended by hand."""

    STATES: ClassVar = {"closed": PRIMARY, "open": FALLBACK, "half-open": RECOVERING}

    def __init__(self):
        self.breaker = pybreaker.CircuitBreaker(fail_max=3, success_threshold=2, reset_timeout=60)

    @property
    def state(self):
        return self.STATES[self.breaker.current_state]

    def step(self, step):
        if step == "cooldown":
            if self.state is FALLBACK:
                self.breaker.half_open()
        elif self.state is not FALLBACK:  # while open nothing reaches the primary
            with contextlib.suppress(Boom, pybreaker.CircuitBreakerError):
                self.breaker.call(fail if step == "fail" else lambda: None)


@given(st.lists(st.sampled_from(["ok", "fail", "cooldown"]), max_size=60))
def test_pybreaker_agrees_on_every_sequence(steps):
    """A failure while RECOVERING counts as a rate limit here: there both go back to open. A
    transient one stays RECOVERING by L78, which the rows above test."""
    ours, oracle, now = fresh("a:two"), Oracle(), 0.0
    for step in steps:
        was = ours.state
        if step == "cooldown":
            now += 60.0
            ours.check_recovery(now)
        elif step == "ok":
            ours.record_success(now)
        else:
            ours.record_failure(RATE_LIMIT if was is RECOVERING else TRANSIENT, now)
        oracle.step(step)
        assert ours.state is oracle.state, (steps, step, was)
        if ours.state is PRIMARY:
            assert ours.data.consecutive_failures == oracle.breaker.fail_counter


def test_L78_a_rate_limited_probe_forgets_the_probes_before_it() -> None:
    breaker = Breaker(BreakerConfig(recovery_successes_needed=2), "a:one", ["a:two"])
    breaker.trip(0.0)
    assert breaker.check_recovery(60.0)
    breaker.record_success(61.0)
    assert breaker.data.primary_success_count == 1
    assert not breaker.record_failure(FailureKind.RATE_LIMIT, 62.0)
    assert breaker.state is BreakerState.FALLBACK
    assert breaker.data.primary_success_count == 0
    assert breaker.cooldown_left(62.0) == 60.0
