"""Fallback and breaker, F01-F05, attacked where settings, runs and sessions meet."""

from __future__ import annotations

import asyncio

import pytest

from notebook_agent.core.breaker import BreakerConfig, BreakerState
from notebook_agent.core.compaction import CompactionPolicy
from notebook_agent.core.retry import RetryPolicy, StreamTimeouts
from notebook_agent.engine.runtime import AgentRuntime
from notebook_agent.errors import (
    AgentError,
    ConfigError,
    ContextExceeded,
    ErrorKind,
    FallbackExhausted,
    ProviderError,
)
from tests.conftest import fixed_surroundings, run_virtual
from tests.engine.fakes import DROP, Fake
from tests.engine.runtime_kit import CharCounter, failing, run

ONE_TRY = {
    "retry": RetryPolicy(max_retries=0),
    "timeouts": StreamTimeouts(fallback_to_non_streaming=False),
}
TOO_LONG = ProviderError(ErrorKind.BAD_REQUEST, "too long", status=400, overflow=True)


def runtime_of(*clients, **given):
    given.setdefault("surroundings", fixed_surroundings())
    given.setdefault("breaker", BreakerConfig(trip_threshold=1))
    return AgentRuntime(
        clients[0], fallback=list(clients[1:]), counter=CharCounter(), **ONE_TRY, **given
    )


def on_loop(fn):
    async def go():
        return fn()

    return run_virtual(go())


def test_F01_a_reset_clears_strikes_of_a_runs_own_chain():
    """L78: everything cleared, strikes too, also those of a run's ``--fallback``."""
    a, b = Fake([DROP] * 4, name="a"), Fake([DROP] * 2, name="b")
    runtime = runtime_of(a)
    for _ in range(3):
        failing(runtime, fallback=[b])
    assert len(b.requests) == 2
    on_loop(runtime.llm.reset_breaker)
    failing(runtime, fallback=[b])  # the primary again, and it trips again
    assert run(runtime, fallback=[b]).run.turns[0].model == "fake:b"


def test_F01_a_recovery_clears_strikes_of_a_runs_own_chain():
    a, b = Fake([DROP], name="a"), Fake([DROP] * 2, name="b")
    runtime = runtime_of(a)

    async def story():
        for _ in range(3):
            with pytest.raises(AgentError):
                await runtime.arun("x", fallback=[b])
        with pytest.raises(FallbackExhausted):
            await runtime.arun("x", fallback=[b])
        await asyncio.sleep(61)
        probes = [(await runtime.arun("x")).run.turns[0].model for _ in range(2)]
        assert probes == ["fake:a", "fake:a"]
        assert runtime.breaker.state is BreakerState.PRIMARY
        a.script = [DROP]
        with pytest.raises(AgentError):
            await runtime.arun("x", fallback=[b])
        return (await runtime.arun("x", fallback=[b])).run.turns[0].model

    assert run_virtual(story()) == "fake:b"


def test_F01_strikes_cleared_by_hand_stay_cleared():
    a, b, c = Fake([DROP], name="a"), Fake([DROP] * 2, name="b"), Fake(name="c")
    runtime = runtime_of(a, b)
    for _ in range(3):
        failing(runtime)
    runtime.breaker.clear_failed("fake:b")
    assert run(runtime, fallback=[b, c]).run.turns[0].model == "fake:b"


def test_F01_strikes_stay_with_their_primary():
    a, b, other = Fake([DROP] * 9, name="a"), Fake([DROP] * 9, name="b"), Fake([DROP], name="x")
    runtime = runtime_of(a)
    for _ in range(3):
        failing(runtime, fallback=[b])
    b.script = []
    failing(runtime, model=other, fallback=[b])  # trips the other primary's own breaker
    assert run(runtime, model=other, fallback=[b]).run.turns[0].model == "fake:b"


def test_F01_a_chain_with_one_name_twice_changes_nothing():
    a, b = Fake(name="a"), Fake(name="b")
    runtime = runtime_of(a)
    before = runtime.llm.breaker
    with pytest.raises(ConfigError):
        run_virtual(runtime.arun("x", model=Fake(name="x"), fallback=[b, b]))
    assert runtime.llm.breaker is before
    assert run(runtime).run.turns[0].model == "fake:a"


def test_F02_with_compaction_off_nothing_that_fits_is_said_without_a_request():
    backup = Fake(name="b", window=20)
    runtime = runtime_of(Fake([DROP], name="a"), backup, compaction=CompactionPolicy(window=0))
    failing(runtime)
    error = failing(runtime, "x" * 100)
    assert isinstance(error, ContextExceeded)
    assert "no model in line can hold it" in str(error)
    assert "fake:b: window 20" in str(error)
    assert not backup.requests
    assert runtime.breaker.chain[0].attempt_count == 0


def test_F02_the_window_a_user_names_goes_with_its_model():
    a, b, c = Fake(name="a"), Fake(name="b"), Fake(name="c", window=100_000)
    runtime = runtime_of(a)
    on_loop(lambda: runtime.switch_model(b, context_window=8_000))  # L83
    assert on_loop(runtime.status).context.window == 8_000
    on_loop(lambda: runtime.switch_model(c))
    assert on_loop(runtime.status).context.window == 100_000
    for bad in (0, -1, True, 8e3, "8000"):
        with pytest.raises(ConfigError):
            on_loop(lambda bad=bad: runtime.switch_model(a, context_window=bad))
    assert runtime.primary == "fake:c"


def test_F02_a_backup_skipped_for_its_window_is_back_for_a_small_request():
    a, small, big = (
        Fake([DROP], name="a"),
        Fake(name="small", window=50),
        Fake(name="big", window=5_000),
    )
    runtime = runtime_of(a, small, big)
    failing(runtime)
    assert run(runtime, "x" * 200).run.turns[0].model == "fake:big"
    assert run(runtime, "y", fresh=True).run.turns[0].model == "fake:small"
    assert [entry.attempt_count for entry in runtime.breaker.chain] == [0, 0]


def test_F04_the_second_failure_of_the_turn_that_tripped_is_no_strike():
    """M1, L73: too long trips the breaker; the same turn's next failure is the primary's too."""
    a, b = Fake([TOO_LONG, DROP], name="a"), Fake(name="b")
    runtime = runtime_of(a, b)
    failing(runtime, "x" * 100)
    assert (len(a.requests), len(b.requests)) == (2, 0)
    assert runtime.breaker.state is BreakerState.FALLBACK
    assert runtime.breaker.chain[0].attempt_count == 0
    assert run(runtime).run.turns[0].model == "fake:b"


def test_F05_two_sessions_have_two_breakers():
    a, b = Fake([DROP], name="a"), Fake(name="b")
    one, two = runtime_of(a, b), runtime_of(a, b, session="other")
    failing(one)
    assert one.breaker.state is BreakerState.FALLBACK
    assert two.breaker.state is BreakerState.PRIMARY
    assert run(two).run.turns[0].model == "fake:a"
    assert run(one).run.turns[0].model == "fake:b"
