"""Two sessions at once, one session in two runtimes, and overflow in every mode (M1, B78, P03)."""

from __future__ import annotations

import asyncio
import threading

import pytest

from notebook_agent.core.messages import Role
from notebook_agent.core.request import TurnMode
from notebook_agent.core.retry import RetryPolicy, StreamTimeouts
from notebook_agent.core.session import Session
from notebook_agent.engine.clock import SYSTEM
from notebook_agent.engine.runtime import AgentRuntime
from notebook_agent.engine.store.memory import MemoryStore
from notebook_agent.engine.store.sqlite import SqliteStore
from notebook_agent.errors import Cancelled, ErrorKind, ProviderError, SessionBusy
from tests.conftest import fixed_surroundings, run_virtual
from tests.engine.fakes import DROP, HANG, Fake, call_events, text_events
from tests.engine.runtime_kit import (
    QUIET,
    CharCounter,
    Log,
    check_legal,
    check_run,
    failing,
    run,
)

TOO_LONG = ProviderError(ErrorKind.BAD_REQUEST, "too long", status=400, overflow=True)
ONE_TRY = {
    "retry": RetryPolicy(max_retries=0),
    "timeouts": StreamTimeouts(fallback_to_non_streaming=False),
}


def find(q: str) -> str:
    """Find something."""
    return "found " * 8


def runtime_of(client, **given):
    given.setdefault("surroundings", fixed_surroundings())
    return AgentRuntime(client, counter=CharCounter(), **given)


def sent(runtime) -> list[str]:
    (client,) = runtime.clients._known.values()
    return [m.text_content() for m in client.requests[-1].messages]


@pytest.fixture(params=["memory", "sqlite"])
def places(request, tmp_path):
    """Two views of one medium: one store object, or two on one file."""
    if request.param == "memory":
        store = MemoryStore()
        yield store, store
        return
    one, two = (SqliteStore(tmp_path / "runs.db") for _ in range(2))
    yield one, two
    one.close()
    two.close()


def test_K06_a_session_open_in_two_runtimes_is_one_conversation(places):
    """No lost history: what the other one added is in the next request, and in the trail."""
    a = runtime_of(Fake(), store=places[0], session="s", surroundings=SYSTEM)
    run(a, "one")
    b = runtime_of(Fake(), store=places[1], session="s", surroundings=SYSTEM)
    for runtime, text in ((b, "two"), (a, "three"), (b, "four"), (a, "five")):
        run(runtime, text)
    asked = [t for t in sent(a) if t != "ok"]
    assert asked == ["one", "two", "three", "four", "five"]
    assert [r.input for r in a.session.runs] == asked
    b.undo(2)
    assert run(a, "six").text == "ok"
    assert [t for t in sent(a) if t != "ok"] == ["one", "two", "three", "six"]
    check_legal(a.session.history)


def test_P06_compaction_by_hand_knows_what_another_runtime_added(places):
    a = runtime_of(Fake([text_events("x" * 300)] * 9), store=places[0], session="s",
                   surroundings=SYSTEM)  # fmt: skip
    for n in range(4):
        run(a, f"question {n} " + "w" * 200)
    b = runtime_of(Fake(), store=places[1], session="s", surroundings=SYSTEM)
    run(b, "the newest question")
    assert run_virtual(a.acompact_now()).applied
    assert "the newest question" in [m.text_content() for m in a.session.history]
    run(b, "and on")
    assert "the newest question" in sent(b)
    assert any("Summary" in t for t in sent(b))


def test_K04_two_sessions_at_once_do_not_touch_each_other():
    store = MemoryStore()
    slow = [*text_events("a", end=False)[:3], 0.2, *text_events("b")[3:]]
    one, two = (
        runtime_of(
            Fake([list(slow) for _ in range(3)]), store=store, session=Session(id=n, name=n),
            surroundings=SYSTEM,
        )
        for n in ("s1", "s2")
    )  # fmt: skip

    async def both():
        first, second = (asyncio.ensure_future(r.arun("q")) for r in (one, two))
        await asyncio.sleep(0.1)
        one.cancel()
        with pytest.raises(SessionBusy):
            await two.arun("again")
        with pytest.raises(Cancelled):
            await first
        return await second

    assert asyncio.run(both()).text == "a"
    assert len(two.session.history) == 2
    assert one.session.history == []
    assert two.breaker.data.consecutive_failures == 0


def test_P03_too_long_once_is_one_turn_with_its_failed_call_counted():
    """M1: one row, one start and one end, the failed call in ``attempts``."""
    replies = [text_events("x" * 400), text_events("y" * 400), text_events("z"), TOO_LONG]
    log = Log()
    runtime = runtime_of(Fake([*replies, text_events("ok")]), observers=[log], **ONE_TRY)
    for text in "abc":
        run(runtime, text * 100)
    log.calls.clear()
    result = run(runtime, "d" * 100)
    check_run(runtime, result)
    assert (len(result.run.turns), len(result.run.unserved)) == (1, 0)
    assert result.run.turns[0].attempts == 2
    names = log.names(*QUIET)
    assert [names.count(n) for n in ("on_turn_start", "on_turn_end", "on_stream_failure")] == [
        1
    ] * 3
    assert log.of("on_turn_end")[0].success
    assert runtime.breaker.data.consecutive_failures == 0


def test_P03_too_long_twice_is_a_provider_error():
    runtime = runtime_of(Fake([TOO_LONG, TOO_LONG]), **ONE_TRY)
    error = failing(runtime, "d" * 100)
    check_run(runtime, error.result)
    assert isinstance(error, ProviderError)
    assert error.result.run.unserved[0].turn.attempts == 2


@pytest.mark.parametrize("where", ["tool loop", "rescue", "unstreamed"])
def test_P03_too_long_wherever_it_is_said(where):
    match where:
        case "tool loop":
            client = Fake([call_events('{"q":"a"}'), TOO_LONG, text_events("done")])
            runtime = runtime_of(client, tools=[find], **ONE_TRY)
        case "rescue":
            client = Fake([DROP, text_events("done")], rescue=TOO_LONG)
            runtime = runtime_of(client, retry=RetryPolicy(max_retries=0))
        case _:
            runtime = runtime_of(Fake(rescue=[TOO_LONG, "done"]), mode=TurnMode.NON_STREAMING)
    result = run(runtime, "d" * 100)
    check_run(runtime, result)
    assert result.text == "done"


@pytest.mark.parametrize(
    "moment",
    ["on_run_start", "on_turn_start", "on_text_delta", "on_stream_success", "on_response",
     "on_tool_call_received", "on_tool_pre", "on_tool_post", "on_turn_end"],
)  # fmt: skip
def test_K01_a_cancel_from_any_callback_leaves_a_legal_session(moment):
    """L95: the whole unfinished exchange is left out; the next question is answered."""
    stopped = []

    class Stop(Log):
        pass

    def stop(_self, _ctx=None):
        if not stopped:
            stopped.append(moment)
            runtime.cancel()

    setattr(Stop, moment, stop)
    script = [call_events('{"q":"a"}'), text_events("done"), text_events("again")]
    runtime = runtime_of(Fake(script), tools=[find], observers=[Stop()])
    result = run(runtime, "x")
    check_run(runtime, result)
    assert stopped
    assert result.status.value == "cancelled"
    assert runtime.session.history == []
    assert runtime.breaker.data.consecutive_failures == 0
    assert run(runtime, "y").status.value == "completed"


def test_K02_two_threads_on_one_file_keep_two_whole_sessions(tmp_path):
    stores = [SqliteStore(tmp_path / "runs.db") for _ in range(2)]
    runtimes = [
        runtime_of(
            Fake(), store=store, session=Session(id=f"s{n}", name=f"s{n}"), surroundings=SYSTEM
        )
        for n, store in enumerate(stores)
    ]
    failed = []

    def work(runtime):
        try:
            for n in range(10):
                runtime.run(f"q{n}")
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(r,)) for r in runtimes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []
    for runtime, store in zip(runtimes, stores, strict=True):
        assert [m.text_content() for m in runtime.session.history if m.role is Role.USER] == [
            f"q{n}" for n in range(10)
        ]
        store.close()


def test_K04_one_session_on_six_threads_is_busy_or_served():
    slow = [*text_events("a", end=False)[:3], 0.05, *text_events("b")[3:]]
    runtime = runtime_of(Fake([list(slow) for _ in range(9)]), surroundings=SYSTEM)
    ends = []

    def work():
        try:
            ends.append(runtime.run("q").status.value)
        except SessionBusy:
            ends.append("busy")

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(ends) == 6
    assert set(ends) <= {"busy", "completed"}
    assert ends.count("completed") * 2 == len(runtime.session.history)
    assert runtime.run("after").status.value == "completed"


@pytest.mark.parametrize("bad", ["text", b"bytes", ("tuple",), {"type": "message_stop"}], ids=repr)
def test_S10_an_adapter_that_yields_no_event_is_a_failed_attempt(bad):
    """A third party's client: whatever it yields, the reply is whole or the attempt failed."""
    script = [*text_events("half", end=False)[:3], bad]
    client = Fake([script, text_events("whole")])
    result = run(runtime_of(client, observers=[log := Log()]))
    assert result.text == "whole"
    assert len(log.of("on_attempt_reset")) == 1


async def test_K04_a_timeout_around_a_run_leaves_the_session_usable():
    hangs = [*text_events("a", end=False)[:3], HANG]
    runtime = runtime_of(Fake([hangs, list(hangs)]), surroundings=SYSTEM)
    with pytest.raises((TimeoutError, Cancelled)):
        await asyncio.wait_for(runtime.arun("x"), 0.1)

    async def fails():
        await asyncio.sleep(0.05)
        raise ValueError("a sibling")

    with pytest.raises(BaseExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(runtime.arun("y"))
            group.create_task(fails())
    assert (await runtime.arun("z")).text == "ok"
    assert [m.text_content() for m in runtime.session.history] == ["z", "ok"]
