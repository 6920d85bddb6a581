"""L10-L35, L45-L47, L79-L81, L115-L117: a turn through its one entry point, in virtual time."""

from __future__ import annotations

import asyncio
import threading

import pytest

from notebook_agent.core import agent_events as ev
from notebook_agent.core import events as e
from notebook_agent.core.breaker import Breaker, BreakerConfig, BreakerState
from notebook_agent.core.messages import Message, Role, TextPart, ToolCallPart
from notebook_agent.core.request import RequestOptions, StreamRequest, ToolSchema, TurnMode
from notebook_agent.core.response import ChatResponse, Ending, StopReason, Usage
from notebook_agent.core.retry import RateLimitPolicy, RetryPolicy, StreamTimeouts
from notebook_agent.core.stream_outcome import StreamEnd
from notebook_agent.engine.llm_turn import LlmTurn
from notebook_agent.errors import (
    AgentError,
    Cancelled,
    ErrorKind,
    FallbackExhausted,
    ProviderError,
    RateLimitEscalation,
)
from tests.conftest import run_virtual
from tests.engine.fakes import DROP, HANG, Bench, Fake, call_events, http, text_events

BEFORE = text_events("half", end=False)[:3]


def run(bench_maker, **kw):
    """One turn; its error is kept in ``bench.error``."""

    async def main():
        bench = bench_maker()
        bench.served = bench.error = None
        try:
            bench.served = await bench.turn(**kw)
        except AgentError as error:
            bench.error = error
        assert asyncio.current_task().cancelling() == 0
        assert bench.client.opened == bench.client.closed
        return bench

    return run_virtual(main())


def unstreamed(rescue, **kw):
    return lambda: Bench(Fake(rescue=rescue), mode=TurnMode.NON_STREAMING, **kw)


# --- the request


@pytest.mark.parametrize("mode", TurnMode)
def test_L10_both_paths_send_the_same_request(mode):
    note, said = Message.user("goal"), Message.user("hello")
    bench = run(
        lambda: Bench(Fake(rescue="x"), mode=mode),
        transients=[note], conversation=[said], system="Be brief", tools=[ToolSchema("f")],
        options=RequestOptions(extra={"seed": 1}),
    )  # fmt: skip
    sent = (bench.client.requests or bench.client.unstreamed)[0]
    assert sent == StreamRequest((note, said), "Be brief", (ToolSchema("f"),))
    assert bench.client.options == [RequestOptions(extra={"seed": 1})]


def test_L18_a_forced_format_suppresses_the_tools():
    options = RequestOptions(response_format={"type": "json_object"})
    bench = run(lambda: Bench(), tools=[ToolSchema("f")], options=options)
    assert bench.client.requests[0].tools is None


def test_L16_the_query_is_never_sent():
    bench = run(lambda: Bench(), conversation=[Message.user("only this")])
    assert [m.text_content() for m in bench.client.requests[0].messages] == ["only this"]
    assert bench.log.of("on_turn_start")[0].query == "hello"


def test_L2_state_of_another_model_is_left_out():
    own, other = (
        Message(Role.ASSISTANT, (TextPart("x"),), provider_state={"model": m, "sig": 1})
        for m in ("fake:one", "fake:two")
    )
    bench = run(lambda: Bench(), conversation=[own, other])
    assert [m.provider_state for m in bench.client.requests[0].messages] == [
        own.provider_state,
        None,
    ]


def test_L2_state_that_arrives_is_signed_with_the_model():
    state = e.IndexedDelta(0, e.ProviderState({"sig": 1}))
    bench = run(lambda: Bench(Fake([[state, *text_events("x")]])))
    assert bench.served.response.message.provider_state == {"sig": 1, "model": "fake:one"}


# --- L22-L28: the non-streaming path


def test_L22_a_fired_signal_touches_nothing():
    for mode in TurnMode:

        def make(mode=mode):
            bench = Bench(mode=mode)
            bench.signal.cancel()
            return bench

        bench = run(make)
        assert isinstance(bench.error, Cancelled)
        assert (bench.client.requests, bench.client.unstreamed) == ([], [])
        assert (bench.log.calls, bench.events) == ([], [])
        assert bench.llm.breaker.data.consecutive_failures == 0


def test_L24_one_call():
    reply = ChatResponse(Message.assistant("hi"), usage=Usage(3, 4))
    bench = run(unstreamed(reply))
    assert bench.served.response.message.text_content() == "hi"
    assert (bench.served.attempts, bench.served.outcome) == (1, None)
    assert bench.log.names() == ["on_turn_start", "on_stream_success"]
    assert bench.log.of("on_stream_success")[0].usage == Usage(3, 4)


@pytest.mark.parametrize("error", [http(429), http(503), http(500), DROP, http(401), OSError("x")])
def test_L26_no_retry_whatever_the_error(error):
    bench = run(unstreamed(error))
    assert len(bench.client.unstreamed) == 1
    assert isinstance(bench.error, ProviderError)
    assert bench.error is error or bench.error.__cause__ is error
    assert bench.llm.last_attempts.attempts == 1
    assert bench.told(ev.AttemptFailed)[0].next_step == "fail"
    assert bench.log.names() == ["on_turn_start", "on_stream_failure"]


def test_L24_and_L27_the_turns_timeout():
    async def slow():
        await asyncio.sleep(301)

    bench = run(unstreamed(lambda: slow()))
    assert (bench.error.kind, str(bench.error)) == (
        ErrorKind.TIMEOUT,
        "the request timed out after 300 s",
    )
    assert bench.llm.last_attempts.duration_s == pytest.approx(300)


def test_L25_without_a_timeout_the_arm_never_wins():
    async def slow():
        await asyncio.sleep(90_000)
        return ChatResponse(Message.assistant("at last"))

    bench = run(unstreamed(lambda: slow(), timeouts=StreamTimeouts(passthrough=True)))
    assert bench.served.response.message.text_content() == "at last"


def test_L24_cancel_in_the_call():
    async def slow():
        await asyncio.Event().wait()

    def make():
        bench = unstreamed(lambda: slow())()
        asyncio.get_running_loop().call_later(2, bench.signal.cancel)
        return bench

    bench = run(make)
    assert isinstance(bench.error, Cancelled)
    assert bench.log.names() == ["on_turn_start"]
    assert bench.told(ev.AttemptFailed) == []


def test_the_gate_holds_unstreamed_requests_too():
    async def main():
        rate = RateLimitPolicy(requests_per_minute=1)
        bench = Bench(Fake(rescue="x"), mode=TurnMode.NON_STREAMING, rate_limit=rate)
        bench.client.base_url = lambda: "http://gate.of.this.test"
        for _ in range(2):
            await bench.turn()
        return asyncio.get_running_loop().time() - 1000

    assert run_virtual(main()) == pytest.approx(30)  # max_wait, then it goes ahead


# --- L29-L33, L45-L47: the streaming path


def test_L45_and_L46_who_sees_what_in_which_order():
    seen = []
    script = [
        e.MessageStart("m"), e.Ping(), e.PartStart(0, None), e.IndexedDelta(0, e.Thinking("hm")),
        e.IndexedDelta(0, e.Thinking("")), e.PartStop(0), e.PartStart(0, TextPart("")),
        e.IndexedDelta(0, e.Text("Hi")), e.PartStart(1, ToolCallPart("c", "f")),
        e.IndexedDelta(1, e.InputJson("{")), e.IndexedDelta(1, e.ToolCall("}")), e.PartStop(0),
        e.PartStop(1), e.MessageDelta("tool_calls", Usage(1, 2)), e.MessageStop(),
    ]  # fmt: skip

    def make():
        bench = Bench(Fake([script]), text_streamer=lambda text: seen.append(("streamer", text)))
        for name in ("on_text_delta", "on_thinking_delta"):
            bench.llm.hub._heard[name].append(lambda ctx, n=name: seen.append((n, ctx.delta)))
        return bench

    bench = run(make)
    assert seen == [
        ("on_thinking_delta", "hm"), ("on_thinking_delta", ""), ("streamer", "Hi"), ("on_text_delta", "Hi"),
    ]  # fmt: skip
    reply = bench.served.response
    assert reply.message.parts == (TextPart("Hi"), ToolCallPart("c", "f", {}, "{}"))
    assert (reply.stop_reason, reply.usage) == (StopReason.TOOL_CALL, Usage(1, 2))
    assert bench.log.names() == [
        "on_turn_start", "on_thinking_delta", "on_thinking_delta", "on_text_delta", "on_stream_success",
    ]  # fmt: skip


class Printer:
    def __init__(self):
        self.log = []

    def __call__(self, text):
        self.log.append(text)

    def reset(self, attempt):
        self.log.append(attempt)


def test_R03_and_L30_and_L47_text_is_shown_again_only_after_a_reset():
    printer = Printer()
    script = [
        [*text_events("The plan is", end=False)[:3], DROP],
        text_events("The plan is", " simple."),
    ]
    bench = run(lambda: Bench(Fake(script), text_streamer=printer))
    assert bench.served.response.message.text_content() == "The plan is simple."
    assert printer.log == ["The plan is", 2, "The plan is", " simple."]
    assert bench.log.names() == [
        "on_turn_start", "on_text_delta", "on_attempt_reset", "on_text_delta", "on_text_delta",
        "on_stream_success",
    ]  # fmt: skip
    reset = bench.log.of("on_attempt_reset")[0]
    assert (reset.attempt, reset.cause) == (2, DROP.message)
    assert bench.served.attempts == 2


def test_a_streamer_that_raises_does_not_stop_the_turn(caplog):
    class Bad:
        def __call__(self, text):
            raise RuntimeError("printer on fire")

        def reset(self, attempt):
            raise RuntimeError("still on fire")

    bench = run(lambda: Bench(Fake([[*BEFORE, DROP], text_events("ok")]), text_streamer=Bad()))
    assert bench.served.response.message.text_content() == "ok"
    assert "printer on fire" in caplog.text


def test_a_plain_function_is_a_streamer_too():
    seen = []
    run(
        lambda: Bench(
            Fake([[*BEFORE, DROP], text_events("ok")]), text_streamer=seen.append, observe=False
        )
    )
    assert seen == ["half", "ok"]


def test_L31_the_rescued_reply_is_adopted_whole():
    printer = Printer()
    reply = ChatResponse(
        Message(Role.ASSISTANT, (TextPart("Saved"), ToolCallPart("c", "f", {}, "{}"))),
        stop_reason=StopReason.TOOL_CALL, usage=Usage(5, 6), ending=Ending.TOOL_CALL,
    )  # fmt: skip
    script = [[*text_events("Let me check ", end=False)[:3], DROP]] * 4
    bench = run(lambda: Bench(Fake(script, rescue=reply), text_streamer=printer))
    served = bench.served
    assert served.response.message == reply.message
    assert (served.response.usage, served.response.stop_reason) == (
        Usage(5, 6),
        StopReason.TOOL_CALL,
    )
    assert (served.rescued, served.response.rescued, served.attempts) == (True, True, 4)
    assert served.outcome.end is StreamEnd.FALLBACK_TO_NON_STREAMING
    assert printer.log[-2:] == [4, "Saved"]  # a reset before any replacement text
    assert [c.cause for c in bench.log.of("on_attempt_reset")][-1] == "rescue"
    assert bench.log.names()[-1] == "on_stream_success"  # L75: a success
    assert bench.llm.breaker.data.consecutive_failures == 0
    assert bench.llm.last_attempts.partial_text == ""


def test_L31_no_reset_when_nothing_was_shown():
    printer = Printer()
    bench = run(lambda: Bench(Fake([http(500)] * 4, rescue="Saved"), text_streamer=printer))
    assert printer.log == [2, 3, 4, "Saved"]
    assert bench.served.ttft_s == pytest.approx(0.7)


def test_L31_a_rescued_refusal_is_marked():
    part = TextPart("I can't", refusal=True)
    reply = ChatResponse(Message(Role.ASSISTANT, (part, TextPart(""))))
    bench = run(lambda: Bench(Fake([http(500)] * 4, rescue=reply)))
    delta = bench.log.of("on_text_delta")[0]
    assert (delta.delta, delta.refusal) == ("I can't", True)


def test_L32_L33_the_last_word_and_the_last_usage():
    script = [
        *text_events("x", stop=None)[:-1],
        e.MessageDelta("length", Usage(1)),
        e.MessageDelta("odd", Usage(None, 9)),
        e.MessageStop(),
    ]
    bench = run(lambda: Bench(Fake([script])))
    assert bench.served.response.stop_reason is StopReason.MAX_TOKENS
    assert bench.served.response.usage == Usage(1, 9)
    bench = run(lambda: Bench(Fake([text_events("x", stop=None)])))
    assert (bench.served.response.stop_reason, bench.served.response.usage) == (
        StopReason.END_TURN,
        None,
    )


# --- S07, S09: the verdict, on both paths


def test_S07_complete_calls_that_end_with_stop_are_run():
    bench = run(
        lambda: Bench(Fake([call_events('{"q":"ice"}', stop="stop", ending=Ending.END_TURN)]))
    )
    assert bench.served.response.stop_reason is StopReason.TOOL_CALL
    assert bench.served.response.message.tool_calls[0].input == {"q": "ice"}
    reply = ChatResponse(Message(Role.ASSISTANT, (ToolCallPart("c", "f", {}),)), ending=None)
    assert run(unstreamed(reply)).served.response.stop_reason is StopReason.TOOL_CALL


@pytest.mark.parametrize("word", ["length", "content_filter"])
def test_S07_not_when_the_end_says_otherwise(word):
    ending = {"length": Ending.MAX_TOKENS, "content_filter": Ending.CONTENT_FILTER}[word]
    bench = run(lambda: Bench(Fake([call_events("{}", stop=word, ending=ending)])))
    reply = bench.served.response
    assert reply.stop_reason in (StopReason.MAX_TOKENS, StopReason.END_TURN)
    assert (reply.message.tool_calls, reply.tools_not_run) == ((), ("find",))


@pytest.mark.parametrize("word", ["tool_calls", "length", "stop"])
def test_S09_a_cut_call_dressed_up_as_finished(word):
    cut = call_events('{"path":"notes.md",', '"text":"lorem ip', name="save", stop=word)
    bench = run(lambda: Bench(Fake([cut])))
    reply = bench.served.response
    assert (reply.stop_reason, reply.tools_not_run) == (StopReason.MAX_TOKENS, ("save",))
    assert reply.message.tool_calls == ()
    assert len(bench.client.requests) == 1  # it is no failed attempt


def test_S09_no_end_seen_is_a_cut_stream():
    cut = call_events('{"path":"no', name="save")[:-2]
    bench = run(lambda: Bench(Fake([cut, text_events("whole")])))
    assert bench.served.attempts == 2


# --- L71-L75, L115: what is recorded, in which order


def test_L115_and_L23_a_failed_turn():
    bench = run(lambda: Bench(Fake([[*BEFORE, http(401)]])))
    assert bench.log.names() == ["on_turn_start", "on_text_delta", "on_stream_failure"]
    failure = bench.log.of("on_stream_failure")[0]
    assert (failure.model, failure.error) == ("fake:one", bench.error)
    assert bench.error.partial_text == "half"
    facts = bench.llm.last_attempts
    assert (facts.partial_text, facts.attempts, facts.model) == ("half", 1, "fake:one")
    assert bench.llm.breaker.data.consecutive_failures == 1  # 3.3 #15: a 401 counts


def test_M1_overflow_is_recorded_like_any_failure_and_raised():
    error = http(400, "prompt is too long", overflow=True)
    bench = run(lambda: Bench(Fake([error])))
    assert bench.error is error
    assert bench.log.names() == ["on_turn_start", "on_stream_failure"]


def test_M1_the_second_call_of_a_turn_does_not_start_it_again():
    bench = run(lambda: Bench(), again=True)
    assert bench.log.names("on_text_delta") == ["on_stream_success"]


@pytest.mark.parametrize("step", [HANG, http(429)])
def test_L117_a_cancelled_turn_is_no_failure(step):
    def make():
        bench = Bench(Fake([[*BEFORE, step]]))
        asyncio.get_running_loop().call_later(2, bench.signal.cancel)
        return bench

    bench = run(make)
    assert isinstance(bench.error, Cancelled)
    assert bench.error.partial_text == "half"
    assert bench.log.names() == ["on_turn_start", "on_text_delta"]
    assert bench.llm.breaker.data.consecutive_failures == 0
    assert bench.llm.last_attempts.outcome.end is StreamEnd.CANCELLED


@pytest.mark.parametrize("mode", TurnMode)
def test_L127_cancelled_from_outside_becomes_the_loops_cancelled(mode):
    async def never():
        await asyncio.Event().wait()

    async def main():
        bench = Bench(Fake([[*BEFORE, HANG]], rescue=lambda: never()), mode=mode)
        caught = []

        async def turn():
            try:
                await bench.turn()
            except Cancelled:
                caught.append(asyncio.current_task().cancelling())

        task = asyncio.create_task(turn())
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert caught == [1]  # who cancelled can still tell
        assert bench.log.of("on_stream_failure") == []
        assert bench.llm.breaker.data.consecutive_failures == 0
        assert bench.client.opened == bench.client.closed
        assert not bench.signal._listeners

    run_virtual(main())


@pytest.mark.parametrize("at", [0.0, 0.05, 0.25, 0.55, 1.0, 5.0, 50.0])
def test_K_any_moment_of_cancel_leaves_nothing_behind(at):
    """Half a stream, a back-off, a silent stream, the rescue: whatever it hits."""

    async def never():
        await asyncio.Event().wait()

    def make():
        script = [[*BEFORE, 0.1, DROP], http(500), [0.3, *BEFORE, DROP], [*BEFORE, 3.0, DROP]]
        bench = Bench(Fake(script, rescue=lambda: never()))
        asyncio.get_running_loop().call_later(at, bench.signal.cancel)
        return bench

    bench = run(make)
    assert isinstance(bench.error, Cancelled)
    assert bench.llm.breaker.data.consecutive_failures == 0
    assert "on_stream_failure" not in bench.log.names()


def test_a_keyboard_interrupt_passes_through():
    async def main():
        bench = Bench(Fake([[*BEFORE, lambda: (_ for _ in ()).throw(KeyboardInterrupt)]]))
        await bench.turn()

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())


def test_A03_the_row_of_a_turn_with_a_failed_attempt():
    dies = [e.MessageStart(), e.PartStart(0, TextPart("")), e.IndexedDelta(0, e.Text("lost")),
            e.MessageDelta(usage=Usage(900)), DROP]  # fmt: skip
    bench = run(lambda: Bench(Fake([dies, text_events("kept", usage=Usage(900, 40))])))
    served = bench.served
    assert (served.response.usage, served.failed_usage) == (Usage(900, 40), Usage(900))
    assert served.attempts == 2
    assert served.response.message.text_content() == "kept"


def test_the_time_to_the_first_fragment_is_the_served_attempts():
    script = [[1.0, *BEFORE, DROP], [2.0, *text_events("x")]]
    served = run(lambda: Bench(Fake(script))).served
    assert served.ttft_s == pytest.approx(3.1)
    assert served.duration_s == pytest.approx(3.1)
    assert served.started_at == 1_767_225_600.0


# --- routes: L14, L15, L79-L81, F02


def failing(n=99):
    return [http(401)] * n


def chain(*, primary=(), two=(), three=(), **kw):
    return Bench(Fake(primary), Fake(two, name="two"), Fake(three, name="three"), **kw)


async def turns(bench, n, **kw):
    out = []
    for _ in range(n):
        try:
            out.append((await bench.turn(**kw)).model)
        except AgentError as error:
            out.append(type(error).__name__)
    return out


def test_L15_in_primary_the_users_model_is_honoured():
    bench = run(lambda: Bench(), options=RequestOptions(model="gpt-x"))
    assert bench.client.options[0].model == "gpt-x"
    assert bench.served.model == "fake:gpt-x"
    bench = run(lambda: Bench())
    assert bench.client.options[0].model is None


def test_L14_the_backup_beats_the_users_model_and_the_client_is_not_changed():
    async def main():
        bench = chain(primary=failing(3))
        options = RequestOptions(model="gpt-x", extra={"seed": 1})
        assert await turns(bench, 4, options=options) == ["ProviderError"] * 3 + ["fake:two"]
        two = bench.clients["fake:two"]
        assert two.options == [RequestOptions(model="two", extra={"seed": 1})]
        assert bench.client.model() == "one"
        await asyncio.sleep(60)
        await bench.turn(options=options)  # the probe must hit the primary
        assert bench.client.options[-1].model == "one"

    run_virtual(main())


def test_F01_and_L81_it_comes_back():
    async def main():
        bench = chain(primary=failing(3))
        assert await turns(bench, 5) == ["ProviderError"] * 3 + ["fake:two"] * 2
        await asyncio.sleep(60)
        assert await turns(bench, 3) == ["fake:one"] * 3
        assert bench.llm.breaker.state is BreakerState.PRIMARY
        fallbacks = bench.log.of("on_fallback")
        assert [(f.from_model, f.to_model) for f in fallbacks] == [("fake:one", "fake:two")]
        switches = [(s.from_model, s.to_model) for s in bench.log.of("on_model_switched")]
        assert switches == [("fake:one", "fake:two"), ("fake:two", "fake:one")]
        states = [b.breaker["state"] for b in bench.told(ev.BreakerChanged)]
        assert states == ["primary", "primary", "fallback", "recovering", "recovering", "primary"]
        assert all(e.attempt_count == 0 for e in bench.llm.breaker.chain)
        assert len(bench.told(ev.ModelSwitched)) == 2

    run_virtual(main())


def test_L115_and_L71_the_order_in_the_turn_that_trips():
    async def main():
        bench = chain(primary=failing(3))
        await turns(bench, 3)
        assert bench.log.names()[-3:] == ["on_turn_start", "on_fallback", "on_stream_failure"]
        bench.log.calls.clear()
        await turns(bench, 1)
        assert bench.log.names() == [
            "on_model_switched",
            "on_turn_start",
            "on_text_delta",
            "on_stream_success",
        ]

    run_virtual(main())


def test_F01_two_strikes_and_the_chain_moves_on():
    async def main():
        bench = chain(primary=failing(3), two=failing(9))
        got = await turns(bench, 6)
        assert got == ["ProviderError"] * 5 + ["fake:three"]
        assert [len(c.requests) for c in bench.clients.values()] == [3, 2, 1]
        assert len(bench.log.of("on_fallback")) == 1

    run_virtual(main())


def test_F05_every_model_is_resting():
    async def main():
        bench = chain(primary=failing(3), two=failing(), three=failing())
        await turns(bench, 7)
        bench.log.calls.clear()
        bench.events.clear()
        with pytest.raises(FallbackExhausted) as caught:
            await bench.turn()
        assert [m.name for m in caught.value.models] == ["fake:one", "fake:two", "fake:three"]
        assert caught.value.models[0].retry_in == pytest.approx(60)
        assert (bench.log.calls, bench.events) == ([], [])  # no request, no on_turn_start
        await asyncio.sleep(60)
        assert await turns(bench, 1) == ["fake:one"]

    run_virtual(main())


def test_L80_without_a_chain_the_primary_keeps_serving():
    async def main():
        bench = Bench(Fake(failing(4)))
        assert await turns(bench, 5) == ["ProviderError"] * 4 + ["fake:one"]
        assert bench.llm.breaker.state is BreakerState.FALLBACK
        assert bench.log.of("on_fallback") == []

    run_virtual(main())


def test_F04_cancels_neither_add_nor_reset():
    async def main():
        bench = Bench(Fake([http(401), [HANG], [HANG], http(401)]))
        loop = asyncio.get_running_loop()
        await turns(bench, 1)
        for _ in range(2):
            loop.call_later(1, bench.signal.cancel)
            assert await turns(bench, 1) == ["Cancelled"]
            bench.signal.reset()
        assert bench.llm.breaker.data.consecutive_failures == 1
        await turns(bench, 1)
        assert bench.llm.breaker.data.consecutive_failures == 2
        assert len(bench.log.of("on_stream_failure")) == 2

    run_virtual(main())


def test_F04_a_connection_closed_by_the_other_side_is_a_failure():
    async def main():
        bench = chain(primary=[[*BEFORE, DROP]] * 12)
        assert await turns(bench, 3) == ["ProviderError"] * 3
        assert bench.llm.breaker.state is BreakerState.FALLBACK

    run_virtual(main())


def test_R02_an_empty_purse_is_one_request():
    bench = run(lambda: Bench(Fake([http(429, "no quota left", quota=True)])))
    assert len(bench.client.requests) == 1
    assert not isinstance(bench.error, RateLimitEscalation)
    assert bench.llm.last_attempts.duration_s == 0
    assert bench.llm.breaker.data.consecutive_failures == 1


def test_R06_three_turns_that_exhaust_their_attempts_trip():
    async def main():
        bench = chain(primary=[http(529)] * 12)
        assert await turns(bench, 4) == ["ProviderError"] * 3 + ["fake:two"]
        assert len(bench.client.requests) == 12

    run_virtual(main())


def test_F02_a_backup_whose_window_is_too_small_is_passed_over():
    async def main():
        bench = Bench(Fake(failing(3), window=200_000), Fake(name="small", window=4_000),
                      Fake(name="big", window=128_000))  # fmt: skip
        await turns(bench, 3)
        route = bench.llm.route(15_000)
        assert (route.model, route.window, route.skipped) == (
            "fake:big",
            128_000,
            (("fake:small", 4_000),),
        )
        assert (route.override, route.fits) == (True, True)
        assert await turns(bench, 1, estimate=15_000) == ["fake:big"]
        assert bench.clients["fake:small"].requests == []
        assert bench.llm.breaker.chain[0].attempt_count == 0  # no strike
        assert bench.llm.route(4_000).model == "fake:small"

    run_virtual(main())


def test_F02_a_strike_goes_to_the_backup_that_served():
    async def main():
        bench = Bench(Fake(failing(3)), Fake(name="small", window=10), Fake(failing(1), name="big"))
        await turns(bench, 4, estimate=99)
        assert [e.attempt_count for e in bench.llm.breaker.chain] == [0, 1]

    run_virtual(main())


def test_F02_nothing_in_the_chain_fits():
    async def main():
        bench = Bench(Fake(failing(3), window=200_000), Fake(name="small", window=4_000),
                      Fake(name="mid", window=8_000), Fake(name="off"))  # fmt: skip
        bench.llm.breaker.set_available("fake:off", available=False)
        await turns(bench, 3)
        route = bench.llm.route(15_000)
        assert (route.model, route.window, route.fits) == ("fake:mid", 8_000, False)
        assert route.skipped == (("fake:small", 4_000),)

    run_virtual(main())


def test_L72_a_rate_limited_probe_goes_back_without_on_fallback():
    async def main():
        bench = chain(primary=[*failing(3), http(429, retry_after=999)])
        await turns(bench, 3)
        await asyncio.sleep(60)
        assert await turns(bench, 2) == ["RateLimitEscalation", "fake:two"]
        assert len(bench.log.of("on_fallback")) == 1
        assert bench.llm.breaker.chain[0].attempt_count == 0  # the probe was the primary's

    run_virtual(main())


def test_a_backup_that_cannot_be_made_takes_the_strike():
    async def main():
        bench = chain(primary=failing(3))

        def resolve(name):
            if name == "fake:two":
                raise AgentError("no key for fake")
            return bench.clients[name]

        bench.llm.resolve_client = resolve
        assert bench.llm.window_of("fake:two") is None
        assert await turns(bench, 6) == ["ProviderError"] * 3 + ["AgentError"] * 2 + ["fake:three"]

    run_virtual(main())


def test_L74_a_broken_breaker_supersedes():
    def make():
        bench = Bench(Fake([http(401)]))
        bench.llm.breaker.record_failure = lambda *a, **k: 1 / 0
        return bench

    bench = run(make)
    assert "LockPoisoned" in str(bench.error)
    assert bench.log.of("on_stream_failure")[0].error is bench.error


# --- by hand: L78, L83


def test_L78_trip_and_reset_by_hand():
    async def main():
        bench = chain()
        bench.llm.trip_breaker()
        assert [(f.from_model, f.to_model) for f in bench.log.of("on_fallback")] == [
            ("fake:one", "fake:two")
        ]
        assert await turns(bench, 1) == ["fake:two"]
        bench.llm.reset_breaker()
        assert await turns(bench, 1) == ["fake:one"]
        alone = Bench()
        alone.llm.trip_breaker()
        assert alone.log.calls == []

    run_virtual(main())


def test_L83_a_manual_switch():
    async def main():
        bench = chain()
        other = Breaker(BreakerConfig(), "fake:three")
        other.trip(0.0)
        bench.llm.switch_primary(other)
        assert bench.llm.breaker is other
        assert other.state is BreakerState.PRIMARY
        assert [(s.from_model, s.to_model) for s in bench.log.of("on_model_switched")] == [
            ("fake:one", "fake:three")
        ]
        assert await turns(bench, 1) == ["fake:three"]
        assert len(bench.log.of("on_model_switched")) == 1  # told once
        bench.llm.switch_primary(other)
        assert len(bench.log.of("on_model_switched")) == 1
        bench.llm.use_breaker(Breaker(BreakerConfig(), "fake:two"))
        assert await turns(bench, 1) == ["fake:two"]
        assert len(bench.log.of("on_model_switched")) == 2

    run_virtual(main())


# --- L10: the one-attempt path for summariser and judge


def test_L10_complete_once_writes_no_turn_and_leaves_the_breaker_alone():
    async def main():
        bench = Bench(Fake(rescue=ChatResponse(Message.assistant("sum"), usage=Usage(7, 8))))
        got = await bench.llm.complete_once(
            StreamRequest((Message.user("x"),)), RequestOptions(), "fake:one", "summary"
        )
        assert (got.message.text_content(), got.model) == ("sum", "fake:one")
        assert bench.client.options[0].model == "one"
        assert bench.log.calls == []
        assert [(u.purpose, u.usage) for u in bench.told(ev.UsageRecorded)] == [
            ("summary", {**Usage(7, 8).to_json()})
        ]
        bench.client.rescue = http(500)
        with pytest.raises(ProviderError):
            await bench.llm.complete_once(
                StreamRequest(()), RequestOptions(model="x"), "fake:one", "judge"
            )
        assert len(bench.client.unstreamed) == 2  # no retry
        assert bench.llm.breaker.data.consecutive_failures == 0
        bench.signal.cancel()
        with pytest.raises(Cancelled):
            await bench.llm.complete_once(StreamRequest(()), RequestOptions(), "fake:one", "judge")
        assert len(bench.client.unstreamed) == 2

    run_virtual(main())


def test_L10_complete_once_without_usage_tells_nothing():
    async def main():
        bench = Bench(Fake(rescue="x"))
        await bench.llm.complete_once(StreamRequest(()), RequestOptions(), "fake:one", "judge")
        assert bench.events == []

    run_virtual(main())


# --- and


def test_defaults_are_the_configured_handler():
    llm = Bench().llm
    assert (llm.timeouts, llm.retry, llm.rate_limit) == (
        StreamTimeouts(),
        RetryPolicy(),
        RateLimitPolicy(),
    )
    assert llm.mode is TurnMode.STREAMING
    assert isinstance(llm, LlmTurn)


def test_L84_the_breaker_gets_a_real_lock():
    assert isinstance(Bench().llm.breaker._lock, type(threading.RLock()))


def test_a_client_without_capabilities_or_base_url_is_fine():
    async def main():
        bench = Bench()
        bench.client.capabilities = None
        bench.client.base_url = None
        bench.llm.rate_limit = RateLimitPolicy(requests_per_minute=600)
        assert bench.llm.window_of("fake:one") is None
        await bench.turn()

    run_virtual(main())
