"""B36-B41, 3.3: capability check first, and one owner of retries."""

from __future__ import annotations

import asyncio

import pytest

from notebook_agent.core import agent_events as ev
from notebook_agent.core import events as e
from notebook_agent.core.messages import ImagePart, Message, Role, ToolResultPart
from notebook_agent.core.request import RequestOptions, ToolSchema, TurnMode
from notebook_agent.core.response import Usage
from notebook_agent.core.retry import RateLimitPolicy, StreamTimeouts
from notebook_agent.engine.router import FEATURES, ModelRouter, check_capabilities
from notebook_agent.errors import (
    AgentError,
    Cancelled,
    ErrorKind,
    FallbackExhausted,
    ProviderError,
    RateLimitEscalation,
)
from notebook_agent.providers.base import Capabilities
from tests.conftest import run_virtual
from tests.engine.fakes import DROP, Bench, Fake, http, text_events

NO_RESCUE = StreamTimeouts(fallback_to_non_streaming=False)
PICTURE = ImagePart("data:image/png;base64,AAAA")


def route(bench, *, retries=0, **kw):
    async def main():
        start = asyncio.get_running_loop().time()
        router = ModelRouter(bench.llm, router_retries=retries)
        bench.served = bench.error = None
        try:
            bench.served = await router.route_chat(0, kw.pop("transients", ()), bench.context(**kw))
        except AgentError as error:
            bench.error = error
        bench.took = asyncio.get_running_loop().time() - start
        return bench

    return run_virtual(main())


CASES = {
    "chat": {},
    "chat_stream": {},
    "tool_calling": {"tools": [ToolSchema("f")]},
    "parallel_tool_calls": {
        "tools": [ToolSchema("f")], "options": RequestOptions(extra={"parallel_tool_calls": True}),
    },
    "json_schema": {"options": RequestOptions(response_format={"type": "json_schema", "schema": {}})},
    "json_object": {"options": RequestOptions(response_format={"type": "json_object"})},
    "vision": {"conversation": [Message(Role.USER, (PICTURE,))]},
}  # fmt: skip


def test_B39_every_capability_has_a_case():
    assert set(CASES) == set(FEATURES)


@pytest.mark.parametrize("feature", CASES)
def test_B39_a_missing_capability_is_refused_before_any_request(feature):
    bench = route(Bench(Fake(**{feature: False})), **CASES[feature])
    assert (bench.error.kind, bench.error.feature) == (ErrorKind.UNSUPPORTED, feature)
    assert str(bench.error).count("\n") == 1  # what, and what to type
    assert "%%agent" in str(bench.error)
    assert bench.client.requests == []
    assert bench.log.calls == []  # no attempt: nothing starts, the breaker hears nothing
    assert bench.llm.breaker.data.consecutive_failures == 0


@pytest.mark.parametrize("feature", CASES)
@pytest.mark.parametrize("can", [True, None])
def test_B39_what_is_there_or_unknown_is_tried(feature, can):
    bench = route(Bench(Fake(**{feature: can})), **CASES[feature])
    assert bench.error is None


def test_B39_what_is_not_asked_for_is_not_missed():
    lacks = {name: False for name in FEATURES if name not in ("chat", "chat_stream")}
    assert route(Bench(Fake(**lacks))).error is None
    assert (
        route(Bench(Fake(chat_stream=False, rescue="x"), mode=TurnMode.NON_STREAMING)).error is None
    )


def test_B39_under_a_forced_format_the_tools_are_not_sent_and_not_missed():
    options = RequestOptions(response_format={"type": "json_object"})
    bench = route(Bench(Fake(tool_calling=False)), tools=[ToolSchema("f")], options=options)
    assert bench.error is None


def test_B39_images_in_tool_results_and_transients_count():
    result = Message.tool_results((ToolResultPart("c", "f", "see", images=(PICTURE,)),))
    can = Capabilities(vision=False)
    bench = Bench()
    with pytest.raises(ProviderError, match="images"):
        check_capabilities(can, "m", bench_context(bench, [result]))
    with pytest.raises(ProviderError, match="images"):
        check_capabilities(can, "m", bench_context(bench), [Message(Role.USER, (PICTURE,))])
    plain = Message.tool_results((ToolResultPart("c", "f", "see"),))
    check_capabilities(can, "m", bench_context(bench, [plain]))


def bench_context(bench, conversation=()):
    async def main():
        return bench.context(conversation=conversation)

    return run_virtual(main())


def test_L80_an_exhausted_route_is_not_checked_and_not_sent():
    async def main():
        bench = Bench(Fake(chat=False), Fake(name="two"))
        bench.llm.trip_breaker()
        bench.llm.breaker.mark_failed("fake:two")
        with pytest.raises(FallbackExhausted):
            await ModelRouter(bench.llm).route_chat(0, (), bench.context())

    run_virtual(main())


def test_B40_and_33_by_default_the_router_adds_no_retry():
    bench = route(Bench(Fake([DROP] * 9), timeouts=NO_RESCUE))
    assert len(bench.client.requests) == 4  # the ladder's
    bench = route(Bench(Fake(rescue=http(503)), mode=TurnMode.NON_STREAMING))
    assert len(bench.client.unstreamed) == 1


@pytest.mark.parametrize("mode", TurnMode)
def test_33_the_two_are_never_multiplied(mode):
    bench = route(
        Bench(Fake([http(503)] * 99, rescue=http(503)), mode=mode, timeouts=NO_RESCUE), retries=2
    )
    assert len(bench.client.requests) + len(bench.client.unstreamed) == 3
    assert bench.took == pytest.approx(0.1 + 0.2)
    assert bench.llm.last_attempts.attempts == 3
    assert bench.error.status == 503
    assert bench.log.names().count("on_turn_start") == 1
    assert bench.log.names().count("on_stream_failure") == 3


def test_33_three_failures_in_one_run_trip_and_the_backup_serves():
    bench = Bench(Fake([http(503)] * 9), Fake(name="two"), timeouts=NO_RESCUE)
    route(bench, retries=3)
    assert bench.served.model == "fake:two"
    assert bench.served.attempts == 4
    names = bench.log.names("on_text_delta")
    assert names == [
        "on_turn_start", "on_stream_failure", "on_stream_failure", "on_fallback",
        "on_stream_failure", "on_model_switched", "on_stream_success",
    ]  # fmt: skip


def test_33_tokens_of_every_failed_turn_are_summed():
    dies = [e.MessageDelta(usage=Usage(10, 1)), DROP]
    fine = text_events("x", usage=Usage(10, 5))
    bench = route(Bench(Fake([dies, dies, fine]), timeouts=NO_RESCUE), retries=5)
    assert (bench.served.failed_usage, bench.served.attempts) == (Usage(20, 2), 3)
    bench = route(Bench(Fake([dies, http(401)]), timeouts=NO_RESCUE), retries=5)
    assert bench.llm.last_attempts.failed_usage == Usage(10, 1)
    assert bench.llm.last_attempts.attempts == 2


@pytest.mark.parametrize("error", [http(401), http(400), http(429, quota=True), AgentError("odd")])
def test_B37_permanent_errors_are_not_retried(error):
    bench = route(Bench(Fake([error])), retries=5)
    assert bench.error is error
    assert len(bench.client.requests) == 1


def test_33_an_escalation_is_final():
    bench = route(Bench(Fake([http(429)] * 99)), retries=5)
    assert isinstance(bench.error, RateLimitEscalation)
    assert len(bench.client.requests) == 4


@pytest.mark.parametrize(("hint", "requests", "took"), [(7.0, 2, 7.0), (61.0, 1, 0.0)])
def test_the_providers_hint_is_kept_or_the_turn_fails(hint, requests, took):
    bench = Bench(Fake(rescue=[http(503, retry_after=hint), "fine"]), mode=TurnMode.NON_STREAMING)
    route(bench, retries=1)
    assert (len(bench.client.unstreamed), bench.took) == (requests, pytest.approx(took))


def test_the_hint_can_be_ignored():
    bench = Bench(
        Fake(rescue=[http(503, retry_after=61), "fine"]), mode=TurnMode.NON_STREAMING,
        rate_limit=RateLimitPolicy(respect_retry_after=False),
    )  # fmt: skip
    assert route(bench, retries=1).took == pytest.approx(0.1)


def test_a_cancel_between_two_turns():
    async def main():
        bench = Bench(Fake(rescue=http(503, retry_after=30)), mode=TurnMode.NON_STREAMING)
        asyncio.get_running_loop().call_later(3, bench.signal.cancel)
        with pytest.raises(Cancelled):
            await ModelRouter(bench.llm, router_retries=9).route_chat(0, (), bench.context())
        assert len(bench.client.unstreamed) == 1
        assert bench.told(ev.AttemptFailed)[0].cause == "503 busy"

    run_virtual(main())


def test_33_a_turn_that_never_began_adds_no_attempts():
    async def main():
        bench = Bench(Fake([DROP]), timeouts=NO_RESCUE)
        real = bench.llm.route

        def cancel_then_route(estimate):
            bench.signal.cancel()
            return real(estimate)

        context = bench.context()
        bench.llm.route = cancel_then_route
        with pytest.raises(Cancelled):
            await ModelRouter(bench.llm, router_retries=3).route_chat(0, (), context)
        assert bench.llm.last_attempts.attempts == 1

    run_virtual(main())
