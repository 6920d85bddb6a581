"""Our clients against aimock, a server of five formats that somebody else wrote (npm).

Installed by ``npm install --prefix tests/providers/aimock``; skipped with a loud line without it;
with CI=true that is a failure.
PyPI's llmock has a file of its own, test_llmock.py.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest
from pydantic import BaseModel

from notebook_agent import AgentRuntime, RateLimitEscalation, RetryPolicy
from notebook_agent.core.request import TurnMode
from notebook_agent.core.retry import RateLimitPolicy
from notebook_agent.core.session import RunStatus
from notebook_agent.errors import ErrorKind, ProviderError
from notebook_agent.providers.registry import model

pytestmark = [pytest.mark.allow_requests, pytest.mark.slow]

HOME = Path(__file__).with_name("aimock")
SCRIPT = HOME / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"
NODE = shutil.which("node")
PLACES = {
    "openai": ("openai:gpt-4o", "/v1"),
    "openai-responses": ("openai-responses:gpt-4o", "/v1"),
    "anthropic": ("anthropic:claude-sonnet-4-5", ""),
    "gemini": ("gemini:gemini-2.5-flash", "/v1beta"),
    "ollama": ("ollama:llama3.2", ""),
}
each = pytest.mark.parametrize("provider", list(PLACES))
MODES = pytest.mark.parametrize("mode", list(TurnMode))


class City(BaseModel):
    city: str
    people: int


def get_weather(city: str, days: int = 1) -> str:
    """The weather."""
    return f"-3 degrees in {city} for {days} days"


def get_time() -> str:
    """The time."""
    return "12:00"


@pytest.fixture(scope="module")
def server():
    if NODE is None or not SCRIPT.exists():
        print("\n!!! aimock is not installed: npm install --prefix tests/providers/aimock !!!")
        line = "aimock is not installed: npm install --prefix tests/providers/aimock"
        if os.environ.get("CI") == "true":
            pytest.fail(line)
        pytest.skip(line)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    child = subprocess.Popen(
        [NODE, str(SCRIPT), "-p", str(port), "-f", str(HOME / "fixtures.json"), "-c", "3",
         "--log-level", "silent"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        for _ in range(400):
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        child.kill()
        child.wait(10)


def runtime(provider: str, server: str, **given) -> AgentRuntime:
    name, path = PLACES[provider]
    client = model(name, base_url=server + path, key="k")
    return AgentRuntime(client, retry=RetryPolicy(max_retries=0), **given)


def run(made: AgentRuntime, prompt: str, **given):
    async def work():
        try:
            return await made.arun(prompt, **given)
        finally:
            await made.clients.aclose()

    return asyncio.run(work())


@each
@MODES
def test_text(provider, mode, server):
    result = run(runtime(provider, server, mode=mode), "hello there")
    assert result.text == "Hello! How can I help you today?"
    assert result.status is RunStatus.COMPLETED
    assert result.usage is not None
    assert result.turns[0].ending.value == "end_turn"


@each
def test_characters(provider, server):
    result = run(runtime(provider, server), "characters please")
    assert result.text.startswith("Žagarė 🦉 – „quoted“")


@each
@MODES
def test_a_tool_exchange(provider, mode, server):
    made = runtime(provider, server, mode=mode, tools=[get_weather, get_time])
    result = run(made, "weather in Riga?")
    assert result.text == "It is -3 degrees in Riga."
    assert [c.input for c in result.turns[0].tool_calls] == [{"city": "Riga", "days": 2}]
    assert len(result.turns) == 2


@each
def test_two_calls_in_one_reply(provider, server):
    made = runtime(provider, server, tools=[get_weather, get_time])
    result = run(made, "two tools", policy=made.policy.__class__(max_iterations=1))
    assert [c.name for c in result.turns[0].tool_calls] == ["get_weather", "get_time"]
    results = made.store.list_messages(made.session.id)[-1].message.results
    assert [r.output for r in results] == ["-3 degrees in Riga for 1 days", "12:00"]


@each
def test_structured_output(provider, server):
    assert run(runtime(provider, server), "json of Riga", schema=City).parsed == City(
        city="Riga", people=605000
    )


@each
def test_a_rate_limit_and_a_wrong_key(provider, server):
    made = runtime(
        provider, server, rate_limit=RateLimitPolicy(default_delay=0.01, max_delay=0.02,
                                                     fallback_after_retries=1),
    )  # fmt: skip
    with pytest.raises(RateLimitEscalation):
        run(made, "limit me")
    with pytest.raises(ProviderError) as caught:
        run(made, "refuse me")
    assert caught.value.kind is ErrorKind.AUTHENTICATION
    assert len(made.session.runs[1].unserved) == 1


def test_the_fixtures_are_whole():
    rows = json.loads((HOME / "fixtures.json").read_text("utf-8"))["fixtures"]
    assert len(rows) == 8
