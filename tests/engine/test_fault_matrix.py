"""Every fault at every byte of a stream, over real sockets, in every wire format: the reply is
exact, or the error is one of ours; a reset comes before any replacement text (S10, S11, R03-R06).

OpenAI chat meets each kind at every byte. The others meet each kind of fault of the body at every
third byte and around every end of an event; the third begins elsewhere for each kind.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter

import pytest

from notebook_agent.core.breaker import Breaker, BreakerConfig
from notebook_agent.core.messages import Message, ToolCallPart
from notebook_agent.core.request import RequestOptions, TurnMode
from notebook_agent.core.response import StopReason
from notebook_agent.core.retry import RateLimitPolicy, RetryPolicy, StreamTimeouts
from notebook_agent.core.route import Route
from notebook_agent.engine.cancel import CancelSignal
from notebook_agent.engine.clock import SYSTEM
from notebook_agent.engine.llm_turn import LlmTurn
from notebook_agent.engine.observers import Observer, ObserverHub
from notebook_agent.engine.turn_values import TurnContext
from notebook_agent.errors import AgentError, ProviderError, RateLimitEscalation
from notebook_agent.providers.openai_chat import OpenAIChat
from tests.faultformats import FORMATS, OPENAI_CHAT, TEXT, Format
from tests.faultserver import BODY_FAULTS, FAULTS, FaultServer

pytestmark = [pytest.mark.allow_requests, pytest.mark.timeout(900), pytest.mark.serial]

AT_ONCE = 12
WAITING = ("stall", "slow_first")  # these only wait: many at once cost nothing
EVERY = pytest.mark.parametrize("wire", FORMATS, ids=lambda wire: wire.name)
# Delays shortened by configuration; the rules are the same.
TIMEOUTS = StreamTimeouts(
    initial_event_timeout=0.15, per_event_timeout=0.15, total_stream_timeout=20.0
)
RETRY = RetryPolicy(base_delay=0.001, max_delay=0.002)
RATE = RateLimitPolicy(default_delay=0.001, max_delay=0.5)
CALL = ToolCallPart("c1", "find", {"q": "ice"}, '{"q":"ice"}')


class View(Observer):
    """What a reader sees: fragments, cleared by a reset."""

    def __init__(self) -> None:
        self.text = ""
        self.resets = 0
        self.failures = 0

    def on_text_delta(self, ctx) -> None:
        self.text += ctx.delta
        # never a mixture: at every moment the view is the beginning of the one right text
        assert TEXT.startswith(self.text), self.text

    def on_attempt_reset(self, ctx) -> None:
        self.text = ""
        self.resets += 1

    def on_stream_failure(self, ctx) -> None:
        self.failures += 1


class Reader:
    """One engine on one client; a fresh breaker and view for every turn."""

    def __init__(self, client, *, mode=TurnMode.STREAMING, timeouts=TIMEOUTS):
        self.client = client
        self.mode = mode
        self.timeouts = timeouts

    async def turn(self, name: str):
        view = View()
        llm = LlmTurn(
            resolve_client=lambda _: self.client,
            breaker=Breaker(BreakerConfig(), "fault:server"),
            hub=ObserverHub([view]),
            emit=lambda _: None,
            cancel=CancelSignal(),
            surroundings=SYSTEM,
            timeouts=self.timeouts,
            retry=RETRY,
            rate_limit=RATE,
            mode=self.mode,
        )
        context = TurnContext(
            conversation=(Message.user("hi"),),
            route=Route("fault:server"),
            options=RequestOptions(model=name),
        )
        try:
            return await llm.do_turn(0, (), context), view, None
        except AgentError as error:
            return None, view, error


def positions(kind: str, wire: Format = OPENAI_CHAT) -> list[int]:
    """Where a kind of fault strikes a streamed answer."""
    every = wire is OPENAI_CHAT
    size = len(wire.stream)
    if kind == "split":  # from that byte on every byte is a chunk of its own: dear, so not all
        return list(range(0, size + 1, 11 if every else 67))
    if kind in BODY_FAULTS:
        if every:
            return list(range(size + 1))
        if kind == "pause":
            return list(range(0, size + 1, 9))
        thirds = range(BODY_FAULTS.index(kind) % 3, size + 1, 3)
        return sorted({*thirds, *wire.borders(), size})
    found = {
        "head_cut": range(len(wire.head) + 40),
        "slow_first": range(24),
        "keep_alive_closed": range(0, 260, 4),
    }.get(kind, range(len(wire.error) + 1))
    return list(found if every else found[:: 2 if kind == "slow_first" else 9])


async def each(names, work):
    """``work(name)`` for every name, a few at once; those that only wait, many at once."""
    wrong = []

    async def worker(queue):
        while queue and len(wrong) < 5:
            name = queue.pop()
            try:
                await work(name)
            except Exception as error:
                wrong.append(f"{name}: {type(error).__name__}: {error}")

    waiting = [name for name in reversed(names) if name.startswith(WAITING)]
    others = [name for name in reversed(names) if not name.startswith(WAITING)]
    queues = [waiting] * (2 * AT_ONCE) + [others] * AT_ONCE
    await asyncio.gather(*map(worker, queues))
    assert not wrong, "\n".join(wrong)


def client_for(server) -> OpenAIChat:
    """A client of the OpenAI-compatible format."""
    return OPENAI_CHAT.make(server.root)


def check_whole(served, view, mode, *, cut_after_finish=False) -> None:
    reply = served.response
    assert reply.message.text_content() == TEXT
    assert reply.message.tool_calls == (CALL,)
    assert reply.stop_reason is StopReason.TOOL_CALL
    # L57: a finish reason followed by a clean end of body is complete, its usage perhaps unsaid
    used = None if reply.usage is None else (reply.usage.input_tokens, reply.usage.output_tokens)
    assert used == (9, 7) or (used is None and cut_after_finish)
    assert view.failures == 0
    if mode is TurnMode.STREAMING:
        assert view.text == TEXT
        assert view.resets >= served.attempts - 1


@pytest.mark.slow
@EVERY
async def test_one_fault_anywhere_then_a_healthy_server_gives_the_exact_reply(wire, capsys):
    runs, retried, rescued = Counter(), Counter(), Counter()
    async with FaultServer(stall_s=1.0) as server:
        client = wire.make(server.root)
        reader = Reader(client)

        async def one(name):
            kind, _, at = name.partition("~")[0].partition("@")
            served, view, error = await reader.turn(name)
            assert error is None, error
            late = kind in ("truncate", "close") and int(at) >= wire.finished_at
            check_whole(served, view, TurnMode.STREAMING, cut_after_finish=late)
            runs[kind] += 1
            retried[kind] += served.attempts > 1
            rescued[kind] += served.rescued
            if kind == "keep_alive_closed":  # the next turn meets the dead connection
                served, view, error = await reader.turn("healthy")
                assert error is None, error
                check_whole(served, view, TurnMode.STREAMING)

        names = [f"{kind}@{at}~1" for kind in FAULTS for at in positions(kind, wire)]
        await each(names, one)
        assert server.faults == runs
        await client.aclose()
        await asyncio.sleep(0.05)
        await leave_nothing(server)
    for kind in ("close", "reset", "truncate", "stall", "garbage", "error_event", "bad_chunk"):
        # everything before the end is a failed attempt; only a clean end after the finish is not
        early = sum(at < wire.finished_at - 2 for at in positions(kind, wire))
        assert retried[kind] >= early, (kind, early, retried)
    assert retried["pause"] + retried["split"] < 60  # slow is not dead (a loaded machine may be)
    assert sum(runs.values()) >= (3_000 if wire is OPENAI_CHAT else 750)
    assert len(runs) >= 8
    table = "\n".join(
        f"  {kind:18} {runs[kind]:5} runs  {retried[kind]:5} retried  {rescued[kind]:3} rescued"
        for kind in FAULTS
    )
    with capsys.disabled():
        print(f"\nfault matrix, streaming, {wire.name}: {sum(runs.values())} runs\n{table}")


@pytest.mark.slow
@EVERY
async def test_a_server_that_always_fails_gives_a_typed_error_and_never_a_mixture(wire, capsys):
    ends, runs = Counter(), 0
    async with FaultServer(stall_s=1.0) as server:
        client = wire.make(server.root)
        timeouts = StreamTimeouts(
            initial_event_timeout=0.15, per_event_timeout=0.15, total_stream_timeout=0.6
        )
        reader = Reader(client, timeouts=timeouts)

        async def one(name):
            nonlocal runs
            served, view, error = await reader.turn(name)
            runs += 1
            if error is None:  # the fault came after the end mark, or the rescue got through
                check_whole(served, view, TurnMode.STREAMING, cut_after_finish=True)
                ends["whole"] += 1
                return
            assert isinstance(error, (ProviderError, RateLimitEscalation)), error
            assert TEXT.startswith(error.partial_text)
            assert view.failures == 1
            ends[type(error).__name__] += 1

        kinds = [k for k in FAULTS if k not in ("pause", "split", "keep_alive_closed")]
        step = 9 if wire is OPENAI_CHAT else 17
        names = [f"{kind}@{at}~2!" for kind in kinds for at in positions(kind, wire)[::step]]
        await each(names, one)
        await client.aclose()
        await asyncio.sleep(0.05)
        await leave_nothing(server)
    assert ends["ProviderError"] > (300 if wire is OPENAI_CHAT else 30)
    with capsys.disabled():
        print(f"\nfault matrix, always failing, {wire.name}: {runs} runs, {dict(ends)}")


@pytest.mark.slow
@EVERY
async def test_unstreamed_one_request_exact_or_typed(wire, capsys):
    ends, runs = Counter(), 0
    async with FaultServer(stall_s=1.0) as server:
        client = wire.make(server.root)
        timeouts = StreamTimeouts().capped(0.3)
        reader = Reader(client, mode=TurnMode.NON_STREAMING, timeouts=timeouts)

        async def one(name):
            nonlocal runs
            served, view, error = await reader.turn(name)
            runs += 1
            # L26; 0: a kept connection was dead already
            assert server.requests[name.replace("~", "#")] <= 1
            if error is None:
                check_whole(served, view, TurnMode.NON_STREAMING)
                ends["whole"] += 1
            else:
                assert isinstance(error, ProviderError), error
                assert view.failures == 1
                ends[error.kind.value] += 1

        kinds = [k for k in FAULTS if k not in ("stall", "slow_first", "keep_alive_closed")]
        size, step = len(wire.whole), 3 if wire is OPENAI_CHAT else 17
        names = [f"{kind}@{at}~3" for kind in kinds for at in range(0, size + 1, step)]
        names += [f"stall@{at}~3" for at in range(0, size + 1, 40)]
        await each(names, one)
        await client.aclose()
        await asyncio.sleep(0.05)
        await leave_nothing(server)
    assert ends["whole"] > 0
    with capsys.disabled():
        print(f"\nfault matrix, unstreamed, {wire.name}: {runs} runs, {dict(ends)}")


async def leave_nothing(server) -> None:
    """No connection and no task but the test's own and the server's."""
    for _ in range(100):
        if server.connections == 0:
            break
        await asyncio.sleep(0.02)
    assert server.connections == 0
    gc.collect()
    others = asyncio.all_tasks() - {asyncio.current_task()} - server._tasks
    assert not others, others
