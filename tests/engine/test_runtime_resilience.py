"""Fallback over runs, rescue, overflow, compaction in a run, deferred turns, cancel points."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from notebook_agent.core import outcomes as o
from notebook_agent.core.breaker import BreakerConfig, BreakerState
from notebook_agent.core.compaction import CompactionPolicy
from notebook_agent.core.messages import ImagePart, Message, Role, TextPart, ToolCallPart
from notebook_agent.core.policy import RuntimePolicy
from notebook_agent.core.response import Usage
from notebook_agent.core.session import RunStatus
from notebook_agent.core.turn_fsm import BreakLoop, Fail, TurnState, resolve
from notebook_agent.engine.memory import InMemoryLoopMemory, MemoryEntry
from notebook_agent.engine.runtime import STEPS
from notebook_agent.engine.store.memory import MemoryStore
from notebook_agent.errors import (
    AgentError,
    Cancelled,
    ContextExceeded,
    FallbackExhausted,
    ProviderError,
)
from notebook_agent.providers.scripted import Reply, ScriptedModel
from tests.conftest import fixed_surroundings, run_virtual
from tests.engine.runtime_kit import (
    QUIET,
    CharCounter,
    Log,
    check_legal,
    check_run,
    failing,
    make,
    run,
    trace,
)
from tests.providers.legal import check_with_every_client
from tests.providers.test_requests import CLIENTS, client_of

CALL = Reply(text="Looking.", tool_calls=[ToolCallPart("c1", "look", {"at": "sky"})])


def look(at: str) -> str:
    """Look at something."""
    return f"{at} is blue"


WIRES = {api: client_of(api) for api in CLIENTS}

# --- fallback (M3, F01, F04, F05), all in one loop: the breaker's clock is the loop's


def test_M3_three_failing_runs_then_the_backup_serves() -> None:
    log = Log()
    primary = ScriptedModel(["Primary."], script="401,401,401,ok")
    backup = ScriptedModel(["Backup."], name="backup")
    runtime = make(model=primary, fallback=[backup], observers=[log])

    async def story():
        for _ in range(3):
            with pytest.raises(ProviderError):
                await runtime.arun("x")
        served = await runtime.arun("four")
        await asyncio.sleep(61)
        probes = [await runtime.arun("probe") for _ in range(2)]
        return served, probes

    served, probes = run_virtual(story())
    assert served.text == "Backup."
    assert served.turns[0].model == "scripted:backup"
    assert served.turns[0].breaker == "fallback"
    assert [p.turns[0].breaker for p in probes] == ["recovering", "recovering"]
    assert runtime.breaker.state is BreakerState.PRIMARY
    assert len(log.of("on_fallback")) == 1
    switched = [(c.from_model, c.to_model) for c in log.of("on_model_switched")]
    assert switched == [
        ("scripted:scripted", "scripted:backup"),
        ("scripted:backup", "scripted:scripted"),
    ]


def test_F05_everybody_rests() -> None:
    log = Log()
    primary = ScriptedModel(["x"], script="500")
    backup = ScriptedModel(["x"], name="backup", script="401")
    from notebook_agent.core.retry import RetryPolicy, StreamTimeouts

    runtime = make(
        model=primary,
        fallback=[backup],
        breaker=BreakerConfig(trip_threshold=1),
        retry=RetryPolicy(max_retries=0),
        timeouts=StreamTimeouts(fallback_to_non_streaming=False),
        observers=[log],
    )

    async def story():
        for _ in range(3):
            with pytest.raises(ProviderError):
                await runtime.arun("x")
        asked = len(primary.requests) + len(backup.requests)
        starts = len(log.of("on_turn_start"))
        with pytest.raises(FallbackExhausted) as caught:
            await runtime.arun("x")
        assert len(primary.requests) + len(backup.requests) == asked
        assert len(log.of("on_turn_start")) == starts
        return caught.value

    error = run_virtual(story())
    assert {m.name for m in error.models} == {"scripted:scripted", "scripted:backup"}
    assert trace(runtime, error.result)[-1].endswith("ProviderError => Fail(FallbackExhausted)")
    row = error.result.unserved[0].turn
    assert (row.attempts, error.result.unserved[0].outcome) == (0, "failed")
    check_run(runtime, error.result)


def test_strikes_of_a_runs_own_chain_stay_with_the_name() -> None:
    backup = ScriptedModel(["x"], name="backup", script="401")
    runtime = make(
        ["x"], script="401", breaker=BreakerConfig(trip_threshold=1, recovery_timeout=10_000)
    )

    async def story():
        for _ in range(3):
            with pytest.raises(AgentError):
                await runtime.arun("x", fallback=[backup])
        assert runtime.breaker.chain == ()
        with pytest.raises(FallbackExhausted):
            await runtime.arun("x", fallback=[backup])

    run_virtual(story())


def test_F04_cancelled_turns_do_not_count() -> None:
    log = Log()
    runtime = make(["one two"], script="ok,ok,401", observers=[log])

    class Stop:
        left = 2

        def on_text_delta(self, ctx):
            if self.left:
                self.left -= 1
                runtime.cancel()

    runtime.hub.add(Stop())
    for _ in range(2):
        assert isinstance(failing(runtime), Cancelled)
    assert isinstance(failing(runtime), ProviderError)
    assert runtime.breaker.data.consecutive_failures == 1
    assert len(log.of("on_stream_failure")) == 1


def test_L75_a_rescued_turn_is_served() -> None:
    # four attempts break, the unstreamed rescue serves
    runtime = make(["one two three"], script="drop@1,drop@1,drop@1,drop@1,ok")
    result = run(runtime)
    row = result.turns[0]
    assert (result.text, row.rescued, row.attempts) == ("one two three", True, 4)
    assert runtime.breaker.data.consecutive_failures == 0
    assert [m.text_content() for m in runtime.session.history] == ["Hi", "one two three"]
    check_run(runtime, result)


# --- the provider says: too long (M1)


def _overflow():
    return ProviderError(
        __import__("notebook_agent.errors", fromlist=["ErrorKind"]).ErrorKind.BAD_REQUEST,
        "maximum context length exceeded",
        status=400,
        overflow=True,
    )


def test_M1_overflow_compacts_once_and_sends_again() -> None:
    log = Log()
    runtime = make(["x" * 200])
    for n in range(8):
        run(runtime, f"q{n} " + "y" * 200)
    served = iter([_overflow(), "Fits now."])
    runtime.client._choose = lambda request, options, n: next(served)
    runtime.hub.add(log)
    result = run(runtime, "last")
    assert trace(runtime, result)[1:5] == [
        "BUILDING_CONTEXT: ContextReady => ->CALLING_MODEL",
        "CALLING_MODEL: ContextOverBudget => CompactAndRetry",
        "BUILDING_CONTEXT: CompactionTriggered => ->BUILDING_CONTEXT",
        "BUILDING_CONTEXT: ContextReady => ->CALLING_MODEL",
    ]
    row = result.turns[0]
    assert (row.attempts, row.compacted, len(result.turns)) == (2, True, 1)
    assert len(log.of("on_turn_start")) == len(log.of("on_turn_end")) == 1
    assert len(log.of("on_stream_failure")) == 1
    assert runtime.breaker.data.consecutive_failures == 0
    check_run(runtime, result)


def test_M1_a_second_overflow_is_an_error_like_any_other() -> None:
    log = Log()
    runtime = make([_overflow()], observers=[log])
    error = failing(runtime)
    assert isinstance(error, ProviderError)
    assert error.overflow
    assert len(runtime.client.requests) == 2
    assert error.result.unserved[0].turn.attempts == 2
    assert len(log.of("on_turn_start")) == len(log.of("on_turn_end")) == 1
    check_run(runtime, error.result)


# --- compaction inside a run


def _long(turns=9, **given):
    runtime = make(["x" * 300], compaction=CompactionPolicy(window=200_000), **given)
    for n in range(turns):
        run(runtime, f"question {n} " + "y" * 300)
    return runtime


def test_L101_the_view_is_swapped_and_the_log_keeps_all() -> None:
    log = Log()
    runtime = _long()
    before = len(runtime.store.list_messages(runtime.session.id))
    trail = [t.output for r in runtime.session.runs for t in r.turns]
    runtime.set_compaction(window=6_000)
    runtime.hub.add(log)
    result = run(runtime, "last question")
    entries = runtime.store.list_messages(runtime.session.id)[before:]
    kinds = [e.kind for e in entries]
    assert kinds == ["message", "compaction", "summary", "message", "commit"]
    assert [t.output for r in runtime.session.runs[:-1] for t in r.turns] == trail
    assert len(log.of("on_compaction")) == 1
    assert log.of("on_compaction")[0].tokens_saved > 0
    assert runtime.client.requests[-1].messages[-1].text_content() == "last question"
    check_run(runtime, result)
    loaded = make(store=runtime.store)
    loaded.load_session(runtime.session.id)
    assert loaded.session.history == runtime.session.history


def test_L96_a_compaction_stays_when_its_run_fails() -> None:
    runtime = _long()
    runtime.set_compaction(window=6_000)
    runtime.client._choose = lambda request, options, n: _overflow()
    failing(runtime, "last question")
    texts = [m.text_content() for m in runtime.session.history]
    assert texts[-1] == "last question"
    assert len(texts) < 12
    loaded = make(store=runtime.store)
    loaded.load_session(runtime.session.id)
    assert loaded.session.history == runtime.session.history
    check_legal(runtime.session.history)
    runtime.client._choose = lambda request, options, n: "ok"
    check_run(runtime, run(runtime, "next"))


def test_compaction_between_two_turns_of_a_run() -> None:
    """A giant tool result triggers compaction before the next request (L19)."""

    def dump() -> str:
        """Dump."""
        return "z" * 2_000

    runtime = _long(5, tools=[dump])
    runtime.set_compaction(window=6_000)
    replies = iter([Reply(tool_calls=[ToolCallPart("d1", "dump", {})]), "done"])
    runtime.client._choose = lambda request, options, n: next(replies)
    result = run(runtime, "dump it")
    assert result.status is RunStatus.COMPLETED
    assert [t.compacted for t in result.turns] == [False, True]
    assert runtime.client.requests[-1].messages[-1].results
    check_run(runtime, result)
    loaded = make(store=runtime.store)
    loaded.load_session(runtime.session.id)
    assert loaded.session.history == runtime.session.history


def test_fresh_run_that_is_compacted_leaves_the_session_alone() -> None:
    def dump(n: int) -> str:
        """Dump."""
        return f"{n} " + "z" * 700

    runtime = make(["ok"], tools=[dump])
    run(runtime, "before")
    runtime.set_compaction(window=3_200)
    replies = itertools.chain(
        (Reply(tool_calls=[ToolCallPart(f"d{n}", "dump", {"n": n})]) for n in range(5)),
        itertools.repeat("done"),
    )
    runtime.client._choose = lambda request, options, n: next(replies)
    result = run(runtime, "dump it", fresh=True)
    assert result.status is RunStatus.COMPLETED
    assert any(t.compacted for t in result.turns)
    assert all("before" not in m.text_content() for m in runtime.client.requests[-1].messages)
    history = [m.text_content() for m in runtime.session.history]
    assert history[:3] == ["before", "ok", "dump it"]
    assert len(history) == 2 + 1 + 10 + 1
    check_run(runtime, result)


def test_P02_a_threshold_that_can_never_be_met() -> None:
    policy = CompactionPolicy(window=32_768, threshold=85)
    runtime = make(system="s" * 29_000, compaction=policy)
    log = Log()
    runtime.hub.add(log)
    result = run(runtime, "hello")
    states = trace(runtime, result)
    assert sum("ContextOverBudget" in line for line in states) == 1
    assert result.status is RunStatus.COMPLETED
    assert any("29,005" in n and "32,768" in n and "31,129" in n for n in result.notices)
    assert log.of("on_compaction") == []
    tight = make(system="s" * 31_500, compaction=policy)
    error = failing(tight, "hello")
    assert isinstance(error, ContextExceeded)
    assert tight.client.requests == []


@pytest.mark.parametrize(
    ("size", "compacts"), [(6_400, False), (6_401, True), (7_599, True), (7_600, True)]
)
def test_L97_the_lines_with_a_window_of_8000(size, compacts) -> None:
    runtime = make(compaction=CompactionPolicy(window=8_000))
    try:
        result = run_virtual(runtime.arun("x" * size))
    except ContextExceeded as error:
        assert size == 7_600
        result = error.result
    assert any("ContextOverBudget" in line for line in trace(runtime, result)) is compacts


def test_L97_the_emergency_line_works_with_auto_off() -> None:
    runtime = make(compaction=CompactionPolicy(window=8_000, auto=False))
    assert not any("OverBudget" in line for line in trace(runtime, run(runtime, "x" * 7_599)))
    runtime.reset()
    assert isinstance(failing(runtime, "x" * 7_600), ContextExceeded)


def test_undo_after_a_compaction_shows_the_earlier_view() -> None:
    runtime = _long()
    view = list(runtime.session.history)
    runtime.set_compaction(window=6_000)
    run(runtime, "last question")
    assert runtime.session.history != view
    runtime.undo()
    assert runtime.session.history == view


def test_compact_now_and_preview() -> None:
    runtime = _long(surroundings=fixed_surroundings())
    runtime.set_compaction(window=8_000)

    async def story():
        preview = await runtime.acompact_preview()
        before = list(runtime.session.history)
        done = await runtime.acompact_now()
        return preview, before, done

    preview, before, done = run_virtual(story())
    assert before != runtime.session.history
    assert done.applied
    assert preview.tokens_before == done.tokens_before
    check_legal(runtime.session.history)
    check_run(runtime, run(runtime, "next"))
    loaded = make(store=runtime.store)
    loaded.load_session(runtime.session.id)
    assert loaded.session.history == runtime.session.history


# --- deferred turns (L107-L109)


def test_L107_a_deferred_turn_is_invisible() -> None:
    log = Log()
    seen = []

    class Note:
        def contribute(self, turn, conversation):
            seen.append(len(conversation))
            return Message.user("n" * 800)

    runtime = _long(7)
    runtime.contributors.append(Note())
    runtime.set_compaction(window=6_000)  # 4,4xx of history fit, with 800 beside them they do not
    runtime.hub.add(log)
    result = run(runtime, "last question")
    assert sum("ContextOverBudget" in line for line in trace(runtime, result)) == 1
    assert log.names(*QUIET, "on_convergence_detected") == [
        "on_run_start",
        "on_compaction",
        "on_turn_start",
        "on_stream_success",
        "on_response",
        "on_turn_end",
        "on_run_end",
    ]
    assert len(result.turns) == 1
    assert len(seen) == 2
    assert seen[1] < seen[0]  # on the retried turn it sees the compacted history (L109)
    check_run(runtime, result)


def test_L108_the_pass_reserves_the_transients_once() -> None:
    reserved = []
    runtime = _long(7, system="sys")

    class Note:
        def contribute(self, turn, conversation):
            return Message.user("n" * 800)

    runtime.contributors.append(Note())
    runtime.set_compaction(window=6_000)
    real = runtime.compactor.compact

    async def watch(*args, **kw):
        reserved.append(kw["reserved"])
        return await real(*args, **kw)

    runtime.compactor.compact = watch
    run(runtime, "last question")
    assert reserved == [803]
    run(runtime, "short", transients=[])
    assert reserved[1:] in ([], [803])


def test_L109_contributors_are_asked_each_turn_then_memory() -> None:
    class Note:
        def contribute(self, turn, conversation):
            return Message.user(f"note {turn}") if turn == 0 else None

    memory = InMemoryLoopMemory()
    memory.add(MemoryEntry(text="the sky was grey yesterday"))
    runtime = make([CALL, "Blue."], tools=[look], contributors=[Note()], memory=memory)
    run(runtime, "sky?")
    first, second = runtime.client.requests
    assert first.messages[0].text_content() == "note 0"
    assert "grey yesterday" in first.messages[1].text_content()
    assert "grey yesterday" in second.messages[0].text_content()
    assert all("note" not in m.text_content() for m in runtime.session.history)
    assert any("look" in e.text for e in memory.entries)  # the gist of a successful call
    off = make(memory=memory, policy=RuntimePolicy(memory_top_k=0))
    run(off, "sky?")
    assert len(off.client.requests[0].messages) == 1


def test_L111_memory_that_raises_costs_nothing() -> None:
    class Broken(InMemoryLoopMemory):
        async def recall(self, query, top_k, /):
            raise RuntimeError("boom")

    assert run(make(memory=Broken())).status is RunStatus.COMPLETED


# --- counting


def test_T04_overhead_is_measured_once_and_refreshed_on_change() -> None:
    counter = CharCounter()
    runtime = make(["ok"], counter=counter, system="s", tools=[look])
    run(runtime)
    run(runtime)
    asked = counter.overheads_counted
    assert asked == 2  # with and without tools, once
    before = runtime.session.runs[-1].turns[0].context_ref.parts

    def fifteenth(a: int, b: list[str]) -> str:
        """One more tool."""
        return ""

    runtime.registry.register(fifteenth)
    after = run(runtime).turns[0].context_ref.parts
    assert counter.overheads_counted == asked + 2
    assert after["tools"] > before["tools"]
    runtime.system = "a longer system prompt"
    assert run(runtime).turns[0].context_ref.parts["system"] == len("a longer system prompt")


def test_each_message_is_counted_once() -> None:
    counter = CharCounter()
    runtime = make(["ok"], counter=counter)
    for _ in range(20):
        run(runtime)
    assert counter.messages_counted == 40


# --- provider state (L2)


def test_L2_state_travels_while_the_exchange_is_open() -> None:
    class Stateful(ScriptedModel):
        async def stream_messages_with_options(self, request, options):
            from notebook_agent.core import events as e

            async for event in super().stream_messages_with_options(request, options):
                if type(event) is e.MessageDelta:
                    yield e.IndexedDelta(0, e.ProviderState({"signature": ["abc"]}))
                yield event

    model = Stateful([CALL, "Blue.", "Bye."])
    runtime = make(model=model, tools=[look])
    run(runtime, "sky?")
    run(runtime, "more?")
    states = [[m.provider_state for m in r.messages] for r in model.requests]
    assert states[1][1]["signature"] == ["abc"]
    assert states[1][1]["model"] == "scripted:scripted"
    assert states[2] == [None] * 5
    assert all(m.provider_state is None for m in runtime.session.history)


# --- K01, K06 and cancel anywhere


def test_K01_interrupt_while_a_tool_runs() -> None:
    stopped = []

    async def slow_tool() -> str:
        """Slow."""
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            stopped.append(True)
            raise
        return "late"

    call = Reply(tool_calls=[ToolCallPart("s1", "slow_tool", {})])
    runtime = make([call, "Plain."], tools=[slow_tool])

    async def story():
        task = asyncio.ensure_future(runtime.arun("first"))
        await asyncio.sleep(0.2)
        runtime.cancel()
        with pytest.raises(Cancelled) as caught:
            await task
        return caught.value.result, await runtime.arun("second")

    first, second = run_virtual(story())
    assert stopped == [True]
    assert first.status is RunStatus.CANCELLED
    assert len(first.turns) == 1  # the reply was served
    assert runtime.breaker.data.consecutive_failures == 0
    assert [m.text_content() for m in runtime.client.requests[-1].messages] == ["second"]
    assert second.text == "Plain."
    check_run(runtime, first)
    check_run(runtime, second)


@pytest.mark.parametrize(
    "reply",
    [
        Reply(text="\n "), Reply(text="", thinking="hm"), Reply(text="\u3000"), Reply(text=""),
        Reply(text="\u200b"), Reply(text=" \ufeff\n\u2060\u200d "), Reply(text="\u200c" * 200),
    ],
)  # fmt: skip
def test_K06_a_blank_reply_is_kept_in_the_trail_and_left_out_of_requests(reply) -> None:
    runtime = make([reply, "Words."])
    result = run(runtime, "one")
    assert result.status is RunStatus.COMPLETED
    assert len(result.turns) == 1
    run(runtime, "two")
    sent = runtime.client.requests[-1].messages
    assert [m.role for m in sent] == [Role.USER, Role.USER]
    check_legal(runtime.session.history)
    loaded = make(store=runtime.store)
    loaded.load_session(runtime.session.id)
    assert loaded.session.history == runtime.session.history


def test_K06_blank_text_beside_a_call_leaves_the_request() -> None:
    call = Reply(text=" \n", tool_calls=[ToolCallPart("c1", "look", {"at": "sky"})])
    runtime = make([call, "Blue."], tools=[look])
    run(runtime)
    assistant = runtime.client.requests[1].messages[1]
    assert [type(p).__name__ for p in assistant.parts] == ["ToolCallPart"]


def test_L127_a_task_cancelled_from_outside_ends_its_run_in_order() -> None:
    runtime = make([Reply(text="slow slow", delay_s=5.0)])

    async def story():
        task = asyncio.ensure_future(runtime.arun("x"))
        await asyncio.sleep(1)
        task.cancel()
        task.cancel()
        with pytest.raises(Cancelled) as caught:
            await task
        return caught.value.result

    result = run_virtual(story())
    assert result.status is RunStatus.CANCELLED
    assert runtime.breaker.data.consecutive_failures == 0
    check_run(runtime, result)


async def slow(n: int) -> str:
    """Slow."""
    await asyncio.sleep(0.3)
    return f"{n}" * 5


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    at=st.floats(min_value=0.0, max_value=6.0),
    again=st.floats(min_value=0.0, max_value=0.3),
    outside=st.booleans(),
    compacting=st.booleans(),
    calls=st.integers(min_value=1, max_value=3),
)
def test_cancel_at_any_point_keeps_the_history_legal(at, again, outside, compacting, calls) -> None:
    """Whenever the stop comes, the history is legal and the next run works."""
    asked = [ToolCallPart(f"c{n}", "slow", {"n": n}) for n in range(calls)]
    first = Reply(text="Let me see now.", tool_calls=asked, delay_s=0.2)
    last = Reply(text="All of it done.", delay_s=0.2)
    runtime = make([first, last, "Next."], tools=[slow])
    run(runtime, "warm up " + "w" * 400, policy=RuntimePolicy(max_iterations=2))
    runtime.client._served = 0
    if compacting:
        runtime.set_compaction(window=900)

    async def story():
        task = asyncio.ensure_future(runtime.arun("the question " + "q" * 200))
        await asyncio.sleep(at)
        task.cancel() if outside else runtime.cancel()
        await asyncio.sleep(again)
        task.cancel() if outside else None
        try:
            result = await task
        except AgentError as error:
            result = error.result
        runtime.cancel_signal.reset()  # a stop after the end would be the next run's
        return result

    result = run_virtual(story())
    if result is not None:
        check_run(runtime, result)
        assert result.status in (RunStatus.CANCELLED, RunStatus.COMPLETED, RunStatus.FAILED)
    check_legal(runtime.session.history)
    after = (*runtime.session.history, Message.user("next"))
    check_with_every_client(WIRES, after)  # as each provider would be sent it
    loaded = make(store=runtime.store)
    loaded.load_session(runtime.session.id)
    assert loaded.session.history == runtime.session.history
    runtime.set_compaction(window=200_000)
    runtime.client._choose = lambda request, options, n: "Next."
    after = run(runtime, "next")
    assert after.status is RunStatus.COMPLETED
    check_run(runtime, after)
    for request in runtime.client.requests:
        check_legal(request.messages)
        check_with_every_client(WIRES, request.messages)


@pytest.mark.parametrize("state", list(TurnState))
def test_B81_cancel_in_each_state(state) -> None:
    """The signal that fires while a state is entered ends the run in that very state."""
    runtime = make([CALL, "Blue."], tools=[look])

    class Stop:
        def on_state(self, ctx):
            target = getattr(ctx.action, "state", None)
            if target is state:
                runtime.cancel()

    runtime.hub.add(Stop())
    if state is TurnState.CHECKING_POLICY:
        runtime.cancel()
    error = failing(runtime)
    assert trace(runtime, error.result)[-1] == f"{state.name}: Cancelled => Fail(Cancelled)"
    assert error.result.status is RunStatus.CANCELLED
    check_run(runtime, error.result)
    assert runtime.session.history == []


def test_B84_a_write_of_persisting_is_finished() -> None:
    class Slow(MemoryStore):
        armed = False

        def commit(self, commit):
            from notebook_agent.engine.store.base import StoreBusy

            if commit.record.state is TurnState.PERSISTING and not self.armed:
                self.armed = True
                runtime.cancel()
                raise StoreBusy("busy")
            super().commit(commit)

    runtime = make([CALL, "Blue."], tools=[look], store=Slow())
    error = failing(runtime)
    assert trace(runtime, error.result)[-2:] == [
        "PERSISTING: Persisted => ->CHECKING_POLICY",
        "CHECKING_POLICY: Cancelled => Fail(Cancelled)",
    ]
    check_run(runtime, error.result)


# --- random outcomes keep B13


_OUTCOMES = st.sampled_from(
    [
        o.Ok(), o.ContextReady(), o.ContextOverBudget(), o.CompactionTriggered(),
        o.ToolCallsPresent(), o.NoMoreTurns(), o.ToolResultsRecorded(), o.Persisted(),
        o.Cancelled(), o.ProviderError(AgentError("x")), o.ToolFailure(AgentError("x")),
        o.StorageError(AgentError("x")),
    ]
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(_OUTCOMES, min_size=1, max_size=12))
def test_B13_random_outcomes_through_the_real_loop(outcomes) -> None:
    """Whatever steps report, the records replay, B13 holds and the run ends."""
    fed = iter(outcomes)

    async def random_step(run):
        return next(fed, o.Cancelled())

    before = dict(STEPS)
    try:
        STEPS.update(dict.fromkeys(before, random_step))
        runtime = make()
        result = run(runtime)
    finally:
        STEPS.update(before)
    check_run(runtime, result)
    last = [r for r in runtime.store.records(result.run.id) if r.outcome is not None][-1]
    assert isinstance(last.action, (Fail, BreakLoop))
    assert resolve(last.state, last.outcome) == last.action


def test_images_ride_in_a_message() -> None:
    picture = ImagePart("data:image/png;base64,AAAA")
    runtime = make()
    result = run(runtime, Message(Role.USER, (TextPart("What is this?"), picture)))
    assert runtime.client.requests[0].messages[0].parts[1] == picture
    only = run(runtime, Message(Role.USER, (picture,)))
    assert only.status is RunStatus.COMPLETED
    assert result.run.input == "What is this?"


def test_usage_of_a_run_is_the_sum_of_what_was_reported() -> None:
    first = Reply(tool_calls=CALL.tool_calls, usage=Usage(10, 1))
    runtime = make([first, Reply(text="x", usage=Usage(20, 2))], tools=[look])
    assert run(runtime).usage == Usage(30, 3)
