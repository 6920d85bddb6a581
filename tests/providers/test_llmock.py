"""Our clients against llmock, a server that somebody else wrote (PyPI, test extra)."""

from __future__ import annotations

import re
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from notebook_agent.core.accumulator import StreamAccumulator
from notebook_agent.core.messages import Message, ToolResultPart
from notebook_agent.core.request import RequestOptions, StreamRequest, ToolSchema
from notebook_agent.core.response import StopReason
from notebook_agent.errors import ErrorKind, ProviderError
from notebook_agent.providers.registry import model
from notebook_agent.providers.transport import HttpSettings

pytestmark = [pytest.mark.allow_requests, pytest.mark.slow]

MODELS = {
    "openai": ("openai:gpt-4o", "/v1"),
    "openai-responses": ("openai-responses:gpt-4o", "/v1"),
    "anthropic": ("anthropic:claude-3-5-sonnet-20241022", "/anthropic"),
    "gemini": ("gemini:gemini-1.5-flash", "/gemini/v1beta"),
    "groq": ("groq:llama-3.3-70b-versatile", "/groq/openai/v1"),
    "mistral": ("mistral:mistral-small-latest", "/mistral/v1"),
    "xai": ("xai:grok-2", "/xai/v1"),
}
each_model = pytest.mark.parametrize("provider", list(MODELS))
ASK = StreamRequest((Message.user("Say hello."),))
# Faults strike somewhere in the first chunks: a reply that repeats this is longer than that.
LONG = StreamRequest((Message.user("Say these many words again, one after the other. " * 6),))
TOOL = ToolSchema(
    "find",
    "Finds a city.",
    {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
)
NONE = RequestOptions()


@contextmanager
def llmock(*arguments: str):
    """A server with faults from the command line, on a port of its own."""
    command = Path(sys.executable).with_name("llmock")
    if not command.exists():
        pytest.skip("llmock is not installed")
    process = subprocess.Popen(
        [str(command), "serve", "--host", "127.0.0.1", "--port", "0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield _address(process)
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()


def _address(process: subprocess.Popen) -> str:
    """Port 0 is not told at the start, so a free one is looked for in what it prints."""
    deadline = time.monotonic() + 40
    while time.monotonic() < deadline:
        line = process.stdout.readline()
        if not line:
            break
        found = re.search(r"Uvicorn running on (http://127\.0\.0\.1:[1-9][0-9]*)", line)
        if found:
            return found.group(1)
    raise AssertionError("llmock did not start")


@pytest.fixture(scope="module")
def plain():
    with llmock() as url:
        yield url


def client_of(url: str, provider: str, **given):
    name, path = MODELS[provider]
    return model(name, base_url=url + path, key="mock-key-0123456789", **given)


async def streamed(client, request=ASK):
    accumulator = StreamAccumulator()
    async for event in client.stream_messages_with_options(request, NONE):
        accumulator.apply(event)
    return accumulator


@each_model
async def test_a_turn_streamed_and_not(plain, provider):
    client = client_of(plain, provider)
    reply = await streamed(client)
    assert reply.build().text_content()
    assert reply.ended
    assert reply.stop_reason is StopReason.END_TURN
    if provider != "mistral":  # llmock gives its usage only when asked for, the service always
        assert reply.usage is not None
        assert reply.usage.input_tokens
    whole = await client.create_message_with_options(ASK, NONE)
    assert whole.message.text_content()
    assert whole.usage is not None
    await client.aclose()


@each_model
async def test_a_tool_exchange(plain, provider):
    client = client_of(plain, provider)
    question = Message.user("Find Riga.")
    first = await streamed(client, StreamRequest((question,), tools=(TOOL,)))
    calls = first.build().tool_calls
    assert [c.name for c in calls] == ["find"]
    assert isinstance(calls[0].input, dict)
    results = tuple(ToolResultPart(c.id, c.name, "It is in Latvia.") for c in calls)
    history = (question, first.build(), Message.tool_results(results))
    second = await streamed(client, StreamRequest(history, tools=(TOOL,)))
    assert second.build().text_content()
    await client.aclose()


@each_model
async def test_models_are_listed(plain, provider):
    client = client_of(plain, provider)
    assert await client.list_models()
    await client.aclose()


@pytest.mark.parametrize("fault", ["disconnect", "truncate", "malformed"])
async def test_faults_in_the_stream_are_failures(fault):
    with llmock("--stream-fault", f"{fault}=1", "--response-style", "echo") as url:
        for provider in MODELS:
            client = client_of(url, provider)
            with pytest.raises(ProviderError) as caught:
                # the piece is chosen at random: only the name of the last event may be lost, and
                # then the reply is whole
                for _ in range(30):
                    await streamed(client, LONG)
            assert caught.value.kind is ErrorKind.TRANSPORT, provider
            assert caught.value.is_retryable
            await client.aclose()


async def test_a_stall_is_ended_by_the_read_gap():
    stall = ("--stream-fault", "stall=1", "--stream-stall-seconds", "4")
    with llmock(*stall, "--response-style", "echo") as url:
        for provider in MODELS:
            client = client_of(url, provider, settings=HttpSettings(read_gap_s=0.3))
            with pytest.raises(ProviderError) as caught:
                await streamed(client, LONG)
            assert caught.value.kind is ErrorKind.TIMEOUT, provider
            await client.aclose()


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, ErrorKind.BAD_REQUEST, False),
        (401, ErrorKind.AUTHENTICATION, False),
        (404, ErrorKind.BAD_REQUEST, False),
        (429, ErrorKind.RATE_LIMITED, True),
        (500, ErrorKind.PROVIDER, True),
        (503, ErrorKind.OVERLOADED, True),
    ],
)
async def test_statuses(status, kind, retryable):
    with llmock("--error-rate", f"{status}=1") as url:
        for provider in MODELS:
            client = client_of(url, provider)
            for ask in (streamed(client), client.create_message_with_options(ASK, NONE)):
                with pytest.raises(ProviderError) as caught:
                    await ask
                error = caught.value
                assert (error.kind, error.status, error.is_retryable) == (
                    kind,
                    status,
                    retryable,
                ), provider
                assert error.message
            await client.aclose()


async def test_a_prompt_that_is_too_long():
    with llmock("--context-window", "50") as url:
        request = StreamRequest((Message.user("many words " * 400),))
        for provider in MODELS:
            client = client_of(url, provider)
            with pytest.raises(ProviderError) as caught:
                await streamed(client, request)
            assert caught.value.overflow, (provider, caught.value.message)
            assert not caught.value.is_retryable
            await client.aclose()


async def test_a_rate_limit_says_when_to_return():
    with llmock("--rpm", "1") as url:
        client = client_of(url, "openai")
        await streamed(client)
        with pytest.raises(ProviderError) as caught:
            await streamed(client)
        assert caught.value.is_rate_limited
        assert caught.value.retry_after is not None
        assert 0 < caught.value.retry_after <= 60
        await client.aclose()


def test_the_server_is_there(plain):
    with urllib.request.urlopen(plain + "/health", timeout=5) as answer:
        assert answer.status == 200
