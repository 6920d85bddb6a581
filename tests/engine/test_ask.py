"""``ask`` and ``aask``, and a runtime under loops that come and go (K02, K03)."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from contextlib import contextmanager

import pytest

from notebook_agent import AgentRuntime, aask, ask
from notebook_agent.core.policy import RuntimePolicy
from notebook_agent.core.session import RunStatus
from notebook_agent.errors import Cancelled, ConfigError
from notebook_agent.providers.openai_chat import OpenAIChat
from notebook_agent.providers.scripted import Reply, ScriptedModel
from tests.engine.runtime_kit import CharCounter
from tests.faultserver import FaultServer

POLICY = RuntimePolicy(max_iterations=1)  # the server's reply always asks for a tool


@contextmanager
def served():
    """A loopback server on a loop and thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server = FaultServer()
    asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(10)
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(server.__aexit__(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def test_ask_in_a_script() -> None:
    result = ask("Hi", model=ScriptedModel(["Hello."]), counter=CharCounter())
    assert (str(result), result.status) == ("Hello.", RunStatus.COMPLETED)


async def test_K03_ask_and_aask_under_a_running_loop() -> None:
    loop = asyncio.get_running_loop()
    plain = ask("Hi", model=ScriptedModel(["Hello."]))
    awaited = await aask("Hi", model=ScriptedModel(["Hello."]))
    assert plain.text == awaited.text == "Hello."
    assert asyncio.get_running_loop() is loop  # nothing was patched or nested


async def test_K03_a_runtime_is_driven_from_both_sides() -> None:
    runtime = AgentRuntime(ScriptedModel(["a", "b", "c"]))
    assert runtime.run("one").text == "a"
    assert (await runtime.arun("two")).text == "b"
    assert runtime.run("three").text == "c"
    assert len(runtime.session.history) == 6


def test_K02_three_loops_in_a_row() -> None:
    runtime = AgentRuntime(ScriptedModel(["a", "b", "c"]))
    assert [asyncio.run(runtime.arun("x")).text for _ in range(3)] == ["a", "b", "c"]


@pytest.mark.allow_requests
def test_K02_three_loops_in_a_row_over_http() -> None:
    """No "Event loop is closed", no warning, nothing left open."""
    with served() as server, warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        client = OpenAIChat("m", base_url=server.url, key="k", provider="openai")
        runtime = AgentRuntime(client, policy=POLICY)
        for _ in range(3):
            assert asyncio.run(runtime.arun("x")).status is RunStatus.LIMIT_REACHED
        assert runtime.run("x").status is RunStatus.LIMIT_REACHED
        gc.collect()
        assert [str(w.message) for w in seen] == []
        assert server.requests["m"] == 4


@pytest.mark.allow_requests
async def test_K03_over_http_under_a_running_loop() -> None:
    with served() as server:
        client = OpenAIChat("m", base_url=server.url, key="k", provider="openai")
        runtime = AgentRuntime(client, policy=POLICY)
        first = await runtime.arun("x")
        second = await asyncio.to_thread(runtime.run, "x")
        third = runtime.run("x")  # blocks this loop, runs on another
        assert {r.status for r in (first, second, third)} == {RunStatus.LIMIT_REACHED}
        await client.aclose()


def test_errors_come_out_of_the_other_thread() -> None:
    async def cell() -> None:
        with pytest.raises(Cancelled) as caught:
            runtime.run("x")
        assert caught.value.result.status is RunStatus.CANCELLED

    runtime = AgentRuntime(ScriptedModel([Reply(text="slow", delay_s=30)]))
    timer = threading.Timer(0.1, runtime.cancel)
    timer.start()
    asyncio.run(cell())
    timer.join()


def test_without_a_model_the_environments_is_asked_else_the_local_one_else_the_scripted(
    monkeypatch,
):
    from notebook_agent.providers import local_files

    monkeypatch.setenv("NOTEBOOK_AGENT_MODEL", " scripted:teacher ")
    assert ask("Hi").turns[0].model == "scripted:teacher"
    monkeypatch.setenv("NOTEBOOK_AGENT_MODEL", "nosuch:model")
    with pytest.raises(ConfigError, match="nosuch"):
        ask("Hi")
    monkeypatch.delenv("NOTEBOOK_AGENT_MODEL")
    monkeypatch.setattr(local_files, "is_installed", lambda: False)
    assert asyncio.run(aask("Hi")).turns[0].model == "scripted:teacher"
    asked = []

    def found(name):
        asked.append(name)
        return ScriptedModel("Local.", name="local")

    monkeypatch.setattr(local_files, "is_installed", lambda: True)
    assert ask("Hi", resolve_client=found).text == "Local."
    assert asked == ["local:smollm2"]
