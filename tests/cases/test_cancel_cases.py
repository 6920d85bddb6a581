"""Cancel at moments other than a request: the gate, compaction by hand, after a run (K04, P06)."""

from __future__ import annotations

import asyncio

import pytest

from notebook_agent.core.compaction import CompactionPolicy
from notebook_agent.core.session import Session
from notebook_agent.engine.runtime.gate import GATE, AdmissionPolicy
from notebook_agent.engine.tools import LoopPolicy
from notebook_agent.errors import Cancelled, ConfigError, InputRejected, SessionBusy
from tests.conftest import run_virtual
from tests.engine.runtime_kit import make, run


def test_K04_a_cancel_of_the_wait_for_a_busy_session_is_used_up():
    """L116: one cancel is one cancelled run, also when that run never began."""
    runtime = make(["a"] * 5)
    run(runtime, "one")
    key = runtime.state.key
    assert GATE.try_enter(key, "other")

    async def waits():
        task = asyncio.ensure_future(runtime.arun("two", wait_s=10))
        await asyncio.sleep(0.1)
        runtime.cancel()
        with pytest.raises(Cancelled):
            await task

    try:
        run_virtual(waits())
    finally:
        GATE.leave(key)
    assert run(runtime, "three").status.value == "completed"


def test_K04_waiting_for_a_busy_session_ends_when_it_is_free():
    """B78: fail at once by default, wait when asked to."""
    runtime = make(["a"] * 5)
    key = runtime.state.key
    assert GATE.try_enter(key, "other")
    with pytest.raises(SessionBusy):
        run_virtual(runtime.arun("one"))

    async def waits():
        task = asyncio.ensure_future(runtime.arun("two", wait_s=10))
        await asyncio.sleep(0.1)
        GATE.leave(key)
        return await task

    assert run_virtual(waits()).text == "a"
    assert GATE.holder(key) is None


def test_K04_what_was_refused_as_busy_may_be_asked_again():
    """B80: an input that never became a run is no duplicate, and sessions do not share them."""
    runtime = make(["a"] * 9, admission=AdmissionPolicy(duplicate_window_s=60.0))
    key = runtime.state.key
    assert GATE.try_enter(key, "other")
    with pytest.raises(SessionBusy):
        run_virtual(runtime.arun("same"))
    GATE.leave(key)
    assert run(runtime, "same").status.value == "completed"
    with pytest.raises(InputRejected):
        run_virtual(runtime.arun("  same\n"))
    name = runtime.session.id
    other = make(["b"], session=Session(id="s2", name="two"), store=runtime.store)
    run(other, "x")
    runtime.load_session("two")
    assert run(runtime, "same").status.value == "completed"
    runtime.load_session(name)
    with pytest.raises(ConfigError):
        runtime.load_session("none such")


def test_P06_a_cancel_of_compaction_by_hand_does_not_reach_the_next_run():
    runtime = make(["a " * 40] * 12)
    for at in range(6):
        run(runtime, f"question {at} " + "word " * 50)
    before = list(runtime.session.history)
    runtime.cancel()
    with pytest.raises(Cancelled):
        run_virtual(runtime.acompact_now())
    assert runtime.session.history == before
    assert run(runtime, "on").status.value == "completed"


@pytest.mark.parametrize("end", [Cancelled(), ConfigError("no model to ask")])
def test_P06_a_run_is_complete_whatever_the_pass_after_it_does(end):
    """L124: the answer that repeats itself makes the conversation smaller after the run."""
    loops = LoopPolicy(convergence_repeats=2, convergence_action="compact")
    runtime = make(["the same answer"] * 4, loops=loops, compaction=CompactionPolicy(keep_turns=1))

    async def fails(reason):
        if isinstance(end, Cancelled):
            runtime.cancel()
        raise end

    assert run(runtime, "one").text == "the same answer"
    runtime.compact_unheld = fails
    result = run(runtime, "two")
    assert result.status.value == "completed"
    assert any("Compaction failed" in n for n in result.notices) is isinstance(end, ConfigError)
    assert not runtime.cancel_signal.is_cancelled()
    assert run(runtime, "three").status.value == "completed"
