"""Passthrough has no deadlines of its own, so the transport gives up on a silent line (L50, L70)."""

from __future__ import annotations

import asyncio

import pytest

from notebook_agent.core.messages import Message
from notebook_agent.core.request import RequestOptions, StreamRequest, TurnMode
from notebook_agent.core.retry import StreamTimeouts
from notebook_agent.errors import ErrorKind, ProviderError
from notebook_agent.providers import base
from tests.engine.test_cancel_on_the_wire import context, engine
from tests.engine.test_fault_matrix import View, client_for, leave_nothing
from tests.faultserver import FaultServer

pytestmark = pytest.mark.allow_requests

GAP_S = 0.05


@pytest.mark.parametrize("mode", TurnMode)
@pytest.mark.parametrize("order", ["slow_first@0#1", "stall@60#1", "stall@200#1"])
async def test_L70_a_silent_line_ends_in_passthrough(monkeypatch, mode, order):
    monkeypatch.setattr(base, "PASSTHROUGH_GAP_S", GAP_S)
    async with FaultServer(stall_s=1) as server:
        client, view = client_for(server), View()
        llm = engine(client, view, mode=mode)
        llm.timeouts = StreamTimeouts(passthrough=True)
        async with asyncio.timeout(5):
            with pytest.raises(ProviderError, match=f"nothing for {GAP_S:g} s") as caught:
                await llm.do_turn(0, (), context(order))
        assert caught.value.kind is ErrorKind.TIMEOUT
        assert server.requests[order] == 1  # L50: no retry, no rescue
        assert base.READ_GAP_S.get() is None  # and nothing of it stays behind
        await client.aclose()
        await leave_nothing(server)


async def test_L70_under_the_handler_the_transport_has_no_gap_of_its_own(monkeypatch):
    monkeypatch.setattr(base, "PASSTHROUGH_GAP_S", GAP_S)
    async with FaultServer(stall_s=1, pause_s=4 * GAP_S) as server:
        client, view = client_for(server), View()
        llm = engine(client, view)
        served = await llm.do_turn(0, (), context("pause@60#1"))
        assert served.attempts == 1
        await client.aclose()
        await leave_nothing(server)


async def test_L10_the_summarisers_request_has_the_gap_too(monkeypatch):
    monkeypatch.setattr(base, "PASSTHROUGH_GAP_S", GAP_S)
    async with FaultServer(stall_s=1) as server:
        client = client_for(server)
        llm = engine(client, View())
        llm.timeouts = StreamTimeouts(passthrough=True)
        request = StreamRequest((Message.user("hi"),))
        async with asyncio.timeout(5):
            with pytest.raises(ProviderError, match="nothing for"):
                await llm.complete_once(
                    request, RequestOptions(model="stall@30#1"), "fault:server", "summary"
                )
        await client.aclose()
        await leave_nothing(server)


def test_L70_the_gap_is_two_minutes():
    assert base.PASSTHROUGH_GAP_S == 120.0
