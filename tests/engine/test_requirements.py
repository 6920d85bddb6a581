"""Requirements that had no test of their own name, one test each, over the real runtime."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_agent.core import outcomes as o
from notebook_agent.core.breaker import BreakerConfig, BreakerState
from notebook_agent.core.compaction import CompactionPolicy
from notebook_agent.core.messages import (
    Message,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from notebook_agent.core.policy import MaxIterations, RuntimePolicy, check_policy
from notebook_agent.core.replay import replay
from notebook_agent.core.request import TurnMode
from notebook_agent.core.response import ChatResponse, Ending, FinishReason, StopReason
from notebook_agent.core.retry import RetryPolicy, StreamTimeouts
from notebook_agent.core.run_frame import RunFrame
from notebook_agent.core.trim import trim
from notebook_agent.core.turn_fsm import TurnState, resolve
from notebook_agent.engine.compactor import Guidance
from notebook_agent.engine.failures import as_agent_error, rescue_failed
from notebook_agent.engine.runtime import AgentRuntime
from notebook_agent.engine.tools import LoopPolicy
from notebook_agent.errors import (
    AgentError,
    Cancelled,
    ContextExceeded,
    ErrorKind,
    InvalidTransition,
    ProviderError,
    RateLimitEscalation,
)
from notebook_agent.providers.errors import from_error_object
from tests.conftest import fixed_surroundings, run_virtual
from tests.engine.fakes import DROP, Fake, call_events, text_events
from tests.engine.runtime_kit import (
    QUIET,
    CharCounter,
    Log,
    check_run,
    failing,
    make,
    run,
    trace,
)

ONE_TRY = {
    "retry": RetryPolicy(max_retries=0),
    "timeouts": StreamTimeouts(fallback_to_non_streaming=False),
}


def runtime_of(*clients, **given):
    given.setdefault("surroundings", fixed_surroundings())
    return AgentRuntime(clients[0], fallback=clients[1:], counter=CharCounter(), **given)


def find(q: str) -> str:
    """Find something."""
    if q == "bad":
        raise RuntimeError("no such thing")
    return f"found {q}"


def two_calls(*asked: str):
    """A reply that asks for ``find`` once per word."""
    out = call_events()[:1]
    for at, q in enumerate(asked):
        out += call_events(f'{{"q":"{q}"}}', call_id=f"c{at}")[1:-2]
    return [*out, *call_events()[-2:]]


# --- the request and its clients


def test_L6_the_mode_is_switched_between_runs() -> None:
    client = Fake(rescue="whole")
    runtime = runtime_of(client)
    assert run(runtime).text == "ok"
    assert run(runtime, mode=TurnMode.NON_STREAMING).text == "whole"
    assert run(runtime).text == "ok"
    assert (len(client.requests), len(client.unstreamed)) == (2, 1)


def test_L8_a_client_of_three_methods_is_enough() -> None:
    class Plain:
        def model(self):
            return "plain"

        async def stream_messages_with_options(self, request, options):
            for event in text_events("streamed"):
                yield event

        async def create_message_with_options(self, request, options):
            return ChatResponse(Message.assistant("whole"))

    runtime = runtime_of(Plain())
    assert run(runtime).text == "streamed"
    assert run(runtime, mode=TurnMode.NON_STREAMING).text == "whole"
    assert runtime.primary.endswith("plain")


def test_L68_handler_errors_map_onto_the_tree() -> None:
    same = [Cancelled(), RateLimitEscalation(4, 2.0), DROP]
    assert [as_agent_error(error) for error in same] == same
    table = {
        TimeoutError("t"): ErrorKind.TIMEOUT,
        ConnectionResetError("r"): ErrorKind.TRANSPORT,
        EOFError("e"): ErrorKind.TRANSPORT,
        KeyError("bug"): ErrorKind.PROVIDER,
    }
    for raw, kind in table.items():
        known = as_agent_error(raw)
        assert isinstance(known, ProviderError)
        assert (known.kind, known.__cause__) == (kind, raw)
    both = rescue_failed(DROP, 4, ProviderError(ErrorKind.OVERLOADED, "busy", status=503))
    assert isinstance(both, ProviderError)
    assert both.kind is ErrorKind.TRANSPORT
    assert "4 attempts" in str(both)
    assert "503 busy" in str(both)


def test_B27_one_counter_serves_trigger_compaction_and_gauge() -> None:
    runtime = make(["a"] * 3)
    assert runtime.compactor.counter is runtime.counter is runtime.pipeline().counter
    run(runtime, "x" * 50)
    assert run_virtual(runtime.acontext_anatomy("y" * 7)).total == 50 + 1 + 7
    other = CharCounter("other")
    assert make(counter=other).compactor.counter is other


# --- the state of a run


def test_L85_the_state_of_a_run_is_data_and_policy_is_passed() -> None:
    frame = RunFrame(run_id="r", session_id="s")
    frame.accept_input(Message.user("q", id="m"), "q")
    frame.begin_turn()
    assert "policy" not in frame.to_json()
    again = RunFrame.from_json(frame.to_json(), list(frame.pending))
    assert again == frame
    for limit, refused in ((1, False), (0, True)):
        policy = RuntimePolicy(max_iterations=max(limit, 1))
        turn = frame.iteration + (1 if limit == 0 else 0)
        assert (
            isinstance(check_policy(policy, iteration=turn, tokens_used=0), MaxIterations)
            is refused
        )


def test_L88_M4_asking_twice_gives_an_equal_step_and_there_is_one_decider() -> None:
    members = [o.Ok(), o.ContextOverBudget(9, 8), o.Cancelled(), o.NoMoreTurns(), o.Persisted()]
    for state in TurnState:
        for outcome in members:
            assert resolve(state, outcome) == resolve(state, outcome)
    engine = Path(__file__).parents[2] / "notebook_agent" / "engine"
    deciders = {p.name for p in engine.rglob("*.py") if "resolve(state, " in p.read_text()}
    assert deciders == {"loop.py"}


def test_L89_feeds_change_what_they_say_and_only_in_their_state() -> None:
    frame = RunFrame(run_id="r", session_id="s")
    ask = Message.user("q", id="m1")
    frame.accept_input(ask, "q")
    assert (frame.pending, frame.input) == ([ask], "q")
    frame.begin_turn()
    reply = ChatResponse(Message.assistant("a", id="m2"))
    with pytest.raises(InvalidTransition):
        frame.model_response(reply)
    with pytest.raises(InvalidTransition):
        frame.tool_results(ask)
    with pytest.raises(InvalidTransition):
        frame.over_budget(o.ContextOverBudget(1, 1))
    with pytest.raises(InvalidTransition):
        frame.compaction_result(applied=True)
    with pytest.raises(InvalidTransition):
        frame.inject(ask)
    frame.state = TurnState.CALLING_MODEL
    frame.model_response(reply)
    assert frame.pending == [ask, reply.message]
    frame.state = TurnState.BUILDING_CONTEXT
    frame.over_budget(o.ContextOverBudget(9, 8))
    frame.compaction_result(applied=True)
    assert (frame.pending, frame.facts.over, frame.facts.passes) == ([], None, 1)
    with pytest.raises(InvalidTransition):
        frame.accept_input(ask, "again")


# --- the order of a turn


def test_L93_the_order_within_one_turn() -> None:
    order: list[str] = []

    class Watch(Log):
        pass

    for name in ("on_turn_start", "on_stream_success", "on_response", "on_turn_end"):
        setattr(Watch, name, lambda _self, _ctx=None, name=name: order.append(name))

    class Note:
        def __init__(self, name):
            self.name = name

        def contribute(self, turn, conversation):
            order.append(self.name)

    class Memory:
        async def recall(self, query, top_k):
            order.append("memory")

        async def note(self, *_args):
            order.append("note")

        async def consolidate(self, *_args):
            order.append("consolidate")

    runtime = runtime_of(
        Fake([two_calls("a"), text_events("done")]),
        tools=[find],
        observers=[Watch()],
        contributors=[Note("first"), Note("second")],
        memory=Memory(),
    )
    run(runtime)
    turn = ["first", "second", "memory", "on_turn_start", "on_stream_success", "on_response"]
    assert order == [*turn, "note", "on_turn_end", *turn, "on_turn_end", "consolidate"]


@pytest.mark.parametrize("end", ["failed", "cancelled"])
def test_L94_a_turn_that_is_not_served_ends_once_without_a_row(end) -> None:
    class Stop(Log):
        def on_text_delta(self, _ctx):
            if end == "cancelled":
                runtime.cancel()

    log = Stop()
    script = [[*text_events("half", end=False)[:3], DROP]]
    runtime = runtime_of(Fake(script), observers=[log], **ONE_TRY)
    error = failing(runtime)
    ends = log.of("on_turn_end")
    assert [(e.success, e.error, e.input_tokens, e.output_tokens) for e in ends] == [
        (False, error, None, None)
    ]
    assert "on_response" not in log.names()
    assert error.result.run.turns == []
    assert [u.outcome for u in error.result.run.unserved] == [end]
    assert error.result.run.unserved[0].turn.output == "half"


def test_L125_the_end_of_a_turn_says_how_full_the_context_is() -> None:
    log = Log()
    runtime = runtime_of(Fake([text_events("whole"), text_events("whole")]), observers=[log])
    runtime.run("a question of some words")
    runtime.run("another")
    first, second = log.of("on_turn_end")
    assert first.context_estimate == runtime.session.runs[0].turns[0].context_estimate
    assert second.context_estimate > first.context_estimate > 0
    assert first.context_window == second.context_window == 200_000


def test_L110_contributors_come_in_order_before_memory() -> None:
    class Says:
        def __init__(self, text):
            self.text = text

        def contribute(self, turn, conversation):
            return self.text

    class Memory:
        async def recall(self, query, top_k):
            return Message.user(f"remembered for {query}")

        async def note(self, *_args): ...
        async def consolidate(self, *_args): ...

    client = Fake()
    runtime = runtime_of(client, contributors=[Says("one"), Says("two")], memory=Memory())
    run(runtime, "q", transients=[Message.user("mine")])
    texts = [m.text_content() for m in client.requests[0].messages]
    assert texts == ["one", "two", "mine", "remembered for q", "q"]


def test_L119_an_interrupt_of_the_cell_is_a_cancel() -> None:
    """The task is cancelled from outside, as a kernel's interrupt does; twice is no more."""
    runtime = runtime_of(Fake([[*text_events("part", end=False)[:3], 60.0]]))

    async def cell():
        task = asyncio.ensure_future(runtime.arun("x"))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(Cancelled) as caught:
            await task
        return caught.value

    error = run_virtual(cell())
    check_run(runtime, error.result)
    assert error.partial_text == "part"
    assert run(runtime, "next").text == "ok"


def test_L123_results_go_back_as_one_message_in_the_models_order() -> None:
    client = Fake([two_calls("a", "bad", "b"), text_events("done")])
    runtime = runtime_of(client, tools=[find])
    check_run(runtime, run(runtime))
    results = client.requests[1].messages[-1]
    assert results.role is Role.USER
    assert [(r.call_id, r.is_error) for r in results.results] == [
        ("c0", False),
        ("c1", True),  # soft: the model is told, the run goes on
        ("c2", False),
    ]


# --- ends of replies


@pytest.mark.parametrize(
    ("ending", "stop", "finish"),
    [
        (Ending.END_TURN, "stop", FinishReason.STOP),
        (Ending.STOP_SEQUENCE, "stop_sequence", FinishReason.STOP),
        (Ending.MAX_TOKENS, "length", FinishReason.LENGTH),
        (Ending.CONTENT_FILTER, "content_filter", FinishReason.CONTENT_FILTER),
        (Ending.REFUSAL, "refusal", FinishReason.CONTENT_FILTER),
        (Ending.ERROR, "error", FinishReason.ERROR),
        (Ending.UNKNOWN, "zzz", FinishReason.UNKNOWN),
        (None, None, FinishReason.STOP),
    ],
)
def test_B5_B43_B47_the_ending_names_the_finish_reason(ending, stop, finish) -> None:
    script = text_events("said", stop=stop)
    script[-2] = type(script[-2])(stop_reason=stop, ending=ending, ending_raw=stop)
    runtime = runtime_of(Fake([script]))
    result = run(runtime)
    check_run(runtime, result)
    assert result.status.value == "completed"
    assert trace(runtime, result)[-2:] == [
        "PROCESSING_RESPONSE: NoMoreTurns => ->PERSISTING",
        "PERSISTING: NoMoreTurns => BreakLoop",
    ]
    completed = next(e for e in runtime.store.events(result.run.id) if e.terminal)
    assert completed.finish_reason == finish.value


@pytest.mark.parametrize(("allowed", "turns"), [(0, 1), (1, 2), (2, 3), (9, 4)])
def test_B46_B14_a_cut_reply_is_followed_up_within_its_bound(allowed, turns) -> None:
    """Opt-in, each costs an iteration, none on the last one; the partial is persisted first."""
    parts = [text_events(f"p{n}", stop="length") for n in range(9)]
    policy = RuntimePolicy(max_output_recovery_attempts=allowed, max_iterations=4)
    runtime = runtime_of(Fake(parts), policy=policy)
    result = run(runtime)
    check_run(runtime, result)
    assert result.status.value == "completed"
    assert [t.output for t in result.run.turns] == [f"p{n}" for n in range(turns)]
    assert result.run.turns[-1].stop_reason is StopReason.MAX_TOKENS
    follow = "PROCESSING_RESPONSE: Ok => ->PERSISTING"
    assert trace(runtime, result).count(follow) == turns - 1


def test_B14_a_run_that_would_never_end_is_ended() -> None:
    endless = [two_calls(str(random.Random(n).random())) for n in range(99)]
    runtime = runtime_of(Fake(endless), tools=[find], policy=RuntimePolicy(max_iterations=5))
    result = run(runtime)
    check_run(runtime, result)
    assert (result.status.value, len(result.run.turns)) == ("limit_reached", 5)


def test_B42_one_accumulator_restarted_and_unknown_lanes() -> None:
    """An id that begins again replaces nothing that is closed; unknown lanes are dropped."""
    first = call_events('{"q":"a"}')[:-2]
    again = call_events('{"q":"b"}')[1:-2]
    stray = call_events("never")[2]
    client = Fake([[*first, stray, *again, *call_events()[-2:]], text_events("done")])
    runtime = runtime_of(client, tools=[find])
    result = run(runtime)
    check_run(runtime, result)
    calls = result.run.turns[0].tool_calls
    assert [(c.id, c.input) for c in calls] == [("c1", {"q": "a"}), ("c1_2", {"q": "b"})]


# --- context and compaction


def long(count=8, **given):
    runtime = runtime_of(Fake([text_events("y" * 200) for _ in range(99)]), **given)
    for n in range(count):
        run(runtime, f"{n} " + "x" * 200)
    runtime.client = next(iter(runtime.clients._known.values()))
    return runtime


def test_B20_B21_B23_load_filter_trim_and_back_without_an_iteration() -> None:
    runtime = long(system="sys")
    runtime.set_compaction(window=3_000)
    result = run(runtime, "the question")
    check_run(runtime, result)
    assert trace(runtime, result)[:5] == [
        "CHECKING_POLICY: Ok => ->BUILDING_CONTEXT",
        "BUILDING_CONTEXT: ContextOverBudget => CompactAndRetry",
        "BUILDING_CONTEXT: CompactionTriggered => ->BUILDING_CONTEXT",
        "BUILDING_CONTEXT: ContextReady => ->CALLING_MODEL",
        "CALLING_MODEL: ModelResponse => ->PROCESSING_RESPONSE",
    ]
    assert len(result.run.turns) == 1
    request = runtime.client.requests[-1]
    texts = [m.text_content() for m in request.messages]
    assert request.system == "sys"
    assert texts[0].startswith("[Summary of the earlier conversation")
    assert texts[-1] == "the question"
    assert texts.count("the question") == 1  # B23, L16: stored and sent once


@pytest.mark.parametrize("why", ["veto", "no gain", "fails"])
@pytest.mark.parametrize("size", [2_500, 2_900])
def test_L102_B22_L98_L106_a_pass_without_gain_changes_nothing(why, size) -> None:
    """Under the emergency line it is sent, else it fails with used and limit; both replay."""
    told = []

    class Hook:
        def pre_compact(self, ctx):
            told.append("pre")
            return Guidance(abort="not now") if why == "veto" else None

        def post_compact(self, result):
            told.append("post")

    runtime = runtime_of(
        Fake(), compaction_hooks=[Hook()], compaction=CompactionPolicy(window=3_000)
    )
    log = Log()
    runtime.hub.add(log)
    if why == "fails":

        async def broken(*_args):
            raise AgentError("the strategy is broken")

        runtime.compactor._strategy = broken
    if size == 2_900:
        error = failing(runtime, "x" * size)
        assert isinstance(error, ContextExceeded)
        assert (error.used, error.limit) == (2_900, 3_000)
        result = error.result
    else:
        result = run(runtime, "x" * size)
        assert result.status.value == "completed"
    check_run(runtime, result)
    assert replay(runtime.store.records(result.run.id)).ok
    assert told == ["pre"]  # asked once, and never told of a pass that was none
    assert log.of("on_compaction") == []
    assert any("Compaction changed nothing" in n for n in result.notices)
    assert sum("ContextOverBudget" in line for line in trace(runtime, result)) == 1
    sends = len(next(iter(runtime.clients._known.values())).requests)
    assert sends == (1 if size == 2_500 else 0)


@given(st.data())
def test_B24_trim_never_parts_a_call_from_its_result(data) -> None:
    messages: list[Message] = []
    for n in range(data.draw(st.integers(1, 6))):
        messages.append(Message.user(f"q{n}", id=f"u{n}"))
        if data.draw(st.booleans()):
            calls = tuple(
                ToolCallPart(f"c{n}_{k}", "f", {}) for k in range(data.draw(st.integers(1, 3)))
            )
            messages.append(Message(Role.ASSISTANT, (TextPart("t"), *calls), id=f"a{n}"))
            results = tuple(ToolResultPart(c.id, "f", "r") for c in calls)
            messages.append(Message.tool_results(results, id=f"r{n}"))
        messages.append(Message.assistant("done", id=f"d{n}"))
    if data.draw(st.booleans()):
        messages.insert(0, Message.user("old", id="summary_1"))
    if data.draw(st.booleans()):
        messages.insert(0, Message(Role.SYSTEM, (TextPart("rule"),), id="sys"))
    budget = data.draw(st.integers(0, 30))
    kept = trim(messages, budget, lambda _m: 1)
    asked = {c.id for m in kept for c in m.tool_calls}
    answered = {r.call_id for m in kept for r in m.results}
    assert asked == answered
    fixed = [m for m in messages if m.role is Role.SYSTEM or m.id == "summary_1"]
    newest = max(at for at, m in enumerate(messages) if m.role is Role.USER and not m.results)
    assert {m.id for m in [*fixed, *messages[newest:]]} <= {m.id for m in kept}
    assert [m for m in messages if m in kept] == list(kept)


@pytest.mark.parametrize(
    "words",
    [
        "This model's maximum context length is 8192 tokens",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "too many tokens in the request",
        "The input token count (9999) exceeds the maximum number of tokens allowed (8192)",
        "the request exceeds the available context size",
        "Please reduce the length of the messages",
    ],
)
def test_B29_the_providers_own_words_start_a_reactive_pass(words) -> None:
    error = from_error_object({"error": {"type": "invalid_request_error", "message": words}})
    assert error is not None
    assert error.overflow
    runtime = long(4)
    runtime.client.script = [error, text_events("ok")]
    result = run(runtime, "next")
    check_run(runtime, result)
    assert "CALLING_MODEL: ContextOverBudget => CompactAndRetry" in trace(runtime, result)
    assert result.text == "ok"


# --- over runs


def test_M3_only_failing_runs_trip_and_the_breaker_outlives_them() -> None:
    a, b = Fake([DROP] * 3, name="a"), Fake(name="b")
    log = Log()
    runtime = runtime_of(a, b, observers=[log], breaker=BreakerConfig(trip_threshold=3), **ONE_TRY)
    for n in (1, 2, 3):
        assert failing(runtime).result.status.value == "failed"
        assert (runtime.breaker.state is BreakerState.FALLBACK) is (n == 3)
    assert b.requests == []  # the run that trips is not served by the backup
    assert run(runtime).run.turns[0].model == "fake:b"
    assert log.names(*QUIET).count("on_fallback") == 1


def test_B55_strict_mode_stops_before_the_third_equal_call_and_says_why() -> None:
    """Result-blind rules are opt-in; they do not claim that results were equal."""
    ran = []

    def grows(q: str) -> str:
        """Give another answer each time."""
        ran.append(q)
        return str(len(ran))

    asks = [call_events('{"q":"a"}', name="grows") for _ in range(5)]
    calm = runtime_of(Fake([*asks, text_events("done")]), tools=[grows])
    assert run(calm).text == "done"  # the results change: progress
    ran.clear()
    strict = runtime_of(Fake(list(asks)), tools=[grows], loops=LoopPolicy(strict=True))
    error = failing(strict)
    check_run(strict, error.result)
    assert len(ran) == 2
    assert "three equal calls in a row" in str(error)
    assert "same result" not in str(error)
    same = runtime_of(
        Fake([two_calls("a") for _ in range(20)]), tools=[find], loops=LoopPolicy(stop_at=4)
    )
    assert "gave the same result 4 times" in str(failing(same))
    again = runtime_of(
        Fake([call_events('{"q":"a"}'), text_events("done")] * 5),
        tools=[find],
        loops=LoopPolicy(strict=True),
    )
    assert [run(again).text for _ in range(5)] == ["done"] * 5  # the history is per run
