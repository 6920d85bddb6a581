"""K04, L118, L129: cancel at any byte of a real stream releases the connection at once."""

from __future__ import annotations

import asyncio
import time

import pytest

from notebook_agent.core.breaker import Breaker, BreakerConfig
from notebook_agent.core.messages import Message
from notebook_agent.core.request import RequestOptions, TurnMode
from notebook_agent.core.route import Route
from notebook_agent.engine.cancel import CancelSignal
from notebook_agent.engine.clock import SYSTEM
from notebook_agent.engine.llm_turn import LlmTurn
from notebook_agent.engine.observers import ObserverHub
from notebook_agent.engine.turn_values import TurnContext
from notebook_agent.errors import Cancelled
from tests.engine.test_fault_matrix import TEXT, View, check_whole, client_for, leave_nothing
from tests.faultserver import STREAM, WHOLE, FaultServer

pytestmark = pytest.mark.allow_requests


def engine(client, view, *, mode=TurnMode.STREAMING):
    return LlmTurn(
        resolve_client=lambda _: client,
        breaker=Breaker(BreakerConfig(), "fault:server"),
        hub=ObserverHub([view]),
        emit=lambda _: None,
        cancel=CancelSignal(),
        surroundings=SYSTEM,
        mode=mode,
    )


def context(name):
    return TurnContext(
        conversation=(Message.user("hi"),),
        route=Route("fault:server"),
        options=RequestOptions(model=name),
    )


@pytest.mark.parametrize("mode", TurnMode)
@pytest.mark.parametrize("how", ["signal", "outside"])
async def test_cancel_while_the_server_is_silent_at_any_byte(mode, how):
    async with FaultServer(stall_s=30) as server:
        client = client_for(server)
        view = View()
        slowest = 0.0
        body = STREAM if mode is TurnMode.STREAMING else WHOLE
        for at in range(0, len(body), 23):
            llm = engine(client, view, mode=mode)
            view.text = ""
            task = asyncio.create_task(llm.do_turn(0, (), context(f"stall@{at}#{how}{mode.value}")))
            await asyncio.sleep(0.02)
            start = time.monotonic()
            if how == "signal":
                llm.cancel.cancel()
            else:
                task.cancel()
            with pytest.raises(Cancelled) as caught:
                await task
            slowest = max(slowest, time.monotonic() - start)
            assert view.failures == 0
            assert llm.breaker.data.consecutive_failures == 0
            assert TEXT.startswith(caught.value.partial_text)
            assert caught.value.partial_text == view.text
            # and the next turn on the same client works
            llm.cancel.reset()
            view.text = ""
            check_whole(await llm.do_turn(1, (), context("healthy")), view, mode)
        await client.aclose()
        for task in list(server._tasks):  # those that still sleep over a connection that is gone
            task.cancel()
        await leave_nothing(server)
    assert slowest < 0.5  # 50 ms on an idle machine; this one may be busy


async def test_a_signal_fired_before_sends_nothing():
    async with FaultServer() as server:
        client = client_for(server)
        for mode in TurnMode:
            llm = engine(client, View(), mode=mode)
            llm.cancel.cancel()
            with pytest.raises(Cancelled):
                await llm.do_turn(0, (), context("healthy"))
        assert (server.requests, server.connections) == ({}, 0)
        await client.aclose()
