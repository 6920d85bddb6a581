"""The real local model in llama.cpp's own server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import urllib.request

import pytest

from notebook_agent.core import events as e
from notebook_agent.core.accumulator import StreamAccumulator
from notebook_agent.core.context import sum_tokens
from notebook_agent.core.messages import Message, Role, TextPart, ToolCallPart, ToolResultPart
from notebook_agent.core.request import RequestOptions, StreamRequest, ToolSchema
from notebook_agent.core.response import StopReason
from notebook_agent.engine.tokenizer import default_counter
from notebook_agent.engine.tokenizer.estimate import estimate_tokens
from notebook_agent.errors import ConfigError, ErrorKind, ProviderError
from notebook_agent.providers.base import full_name
from notebook_agent.providers.local import LocalModel
from notebook_agent.providers.local_files import is_installed
from tests.engine.test_tokenizer import SAMPLES

pytestmark = [pytest.mark.local_model, pytest.mark.allow_requests]

SHORT = RequestOptions(extra={"max_tokens": 8, "temperature": 0})


@pytest.fixture
def model():
    if not is_installed():
        if os.environ.get("CI") == "true":
            pytest.fail("no local model: run notebook-agent fetch-model")
        pytest.skip("NO LOCAL MODEL: run notebook-agent fetch-model")
    return LocalModel()


def ask(text="Say hi"):
    return StreamRequest((Message.user(text),))


async def stream(model, request, options=SHORT):
    events = []
    async for event in model.stream_messages_with_options(request, options):
        events.append(event)
    return events


def folded(events):
    accumulator = StreamAccumulator()
    for event in events:
        accumulator.apply(event)
    return accumulator


async def test_streams_a_real_reply_with_usage(model):
    events = await stream(model, ask("Tell a long story."))
    reply = folded(events)
    assert reply.ended
    assert reply.text().strip()
    assert sum(isinstance(x, e.IndexedDelta) for x in events) > 2
    assert reply.usage.input_tokens > 5
    assert reply.usage.output_tokens == 8
    assert reply.stop_reason is StopReason.MAX_TOKENS
    assert full_name(model) == "local:smollm2"
    await model.aclose()


async def test_unstreamed_reply(model):
    reply = await model.create_message_with_options(ask(), SHORT)
    assert reply.message.text_content().strip()
    assert reply.usage.total > 8
    await model.aclose()


async def test_window_is_read_from_the_server_and_divided_by_slots(model):
    assert (await model.learn()).context_window == 8192
    two = LocalModel(slots=2, n_ctx=8192)
    assert two.capabilities().context_window == 4096
    assert (await two.learn()).context_window == 4096
    assert two.capabilities().source == "endpoint"
    two._server.stop()


async def test_overflow_is_recognised(model):
    with pytest.raises(ProviderError) as caught:
        await stream(model, ask("word " * 9000))
    assert caught.value.overflow
    assert not caught.value.is_retryable
    with pytest.raises(ProviderError) as caught:
        await model.create_message_with_options(ask("word " * 9000), SHORT)
    assert caught.value.overflow
    await model.aclose()


async def test_tools_are_refused_before_anything_is_sent(model):
    request = StreamRequest(ask().messages, tools=(ToolSchema("add"),))
    for call in (stream(model, request), model.create_message_with_options(request, SHORT)):
        with pytest.raises(ProviderError) as caught:
            await call
        assert caught.value.kind is ErrorKind.UNSUPPORTED
        assert caught.value.feature == "tool_calling"
        assert "--no-tools" in str(caught.value)
    assert model.capabilities().tool_calling is False


async def test_a_tool_exchange_of_another_model_is_readable(model):
    request = StreamRequest(
        (
            Message.user("How many apples?"),
            Message(
                Role.ASSISTANT, (TextPart("Looking."), ToolCallPart("1", "count", {"of": "a"}))
            ),
            Message.tool_results((ToolResultPart("1", "count", "7 apples"),)),
        )
    )
    assert folded(await stream(model, request)).ended
    await model.aclose()


async def test_forced_json_is_json(model):
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}},
        "required": ["ok"],
        "additionalProperties": False,
    }
    options = RequestOptions(
        response_format={"type": "json_schema", "name": "x", "schema": schema},
        extra={"max_tokens": 30, "temperature": 0},
    )
    reply = folded(await stream(model, ask("Is water wet?"), options))
    assert isinstance(json.loads(reply.text())["ok"], bool)
    await model.aclose()


async def test_many_requests_in_a_row_and_at_once(model):
    """A reused connection would lose one request in 12 to 25."""
    tiny = RequestOptions(extra={"max_tokens": 1})
    for _ in range(40):
        assert folded(await stream(model, ask("Hi"), tiny)).ended
    replies = await asyncio.gather(*(stream(LocalModel(), ask("Hi"), tiny) for _ in range(8)))
    assert all(folded(r).ended for r in replies)
    await model.aclose()


async def test_one_server_for_all_clients(model):
    other = LocalModel()
    await model.learn()
    await other.learn()
    assert model._server is other._server


async def test_only_with_the_key(model):
    await model.learn()
    url = model._server.facts.url
    assert url.startswith("http://127.0.0.1:")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{url}/v1/chat/completions", data=b"{}", timeout=5)
    assert caught.value.code == 401
    caught.value.close()


async def test_closing_in_the_middle_frees_the_slot(model):
    events = model.stream_messages_with_options(
        ask("Tell a long story."), RequestOptions(extra={"max_tokens": 2000})
    )
    async for event in events:
        if isinstance(event, e.IndexedDelta):
            break
    await events.aclose()
    async with asyncio.timeout(10):
        assert folded(await stream(model, ask())).ended
    await model.aclose()


async def test_a_crash_of_the_server_is_an_error_and_the_next_request_works(model):
    first = (await model.learn(), model._server.facts)[1]
    events = model.stream_messages_with_options(
        ask("Tell a long story."), RequestOptions(extra={"max_tokens": 2000})
    )
    with pytest.raises(ProviderError) as caught:
        async for event in events:
            if isinstance(event, e.IndexedDelta):
                os.kill(first.pid, signal.SIGKILL)
    assert caught.value.kind is ErrorKind.TRANSPORT
    assert caught.value.is_retryable
    assert "signal 9" in str(caught.value)
    assert folded(await stream(model, ask())).ended
    assert model._server.facts.pid != first.pid
    await model.aclose()


def test_works_on_one_loop_after_the_other(model):
    for _ in range(2):
        assert folded(asyncio.run(stream(model, ask()))).ended


async def test_tests_cannot_ask_by_default(model):
    from notebook_agent.providers.base import ALLOW_MODEL_REQUESTS

    ALLOW_MODEL_REQUESTS.allowed = False
    with pytest.raises(ConfigError):
        await stream(model, ask())


@pytest.mark.parametrize("kind", SAMPLES)
async def test_estimate_is_never_below_the_models_own_count_nor_far_above(model, kind):
    await model.learn()
    text = SAMPLES[kind]
    request = urllib.request.Request(
        f"{model._server.facts.url}/tokenize",
        data=json.dumps({"content": text}).encode(),
        headers={"Authorization": f"Bearer {model._server.key.reveal()}"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=10) as answer:
        true = len(json.load(answer)["tokens"])
    assert true <= estimate_tokens(text) <= 2 * true
    await model.aclose()


@pytest.mark.parametrize("system", [None, "Answer in one word."])
async def test_context_estimate_is_never_below_what_the_model_reports(model, system):
    counter = default_counter(full_name(model))
    messages = [Message.user("What is a Jupyter notebook? Answer in two sentences.")]
    for text in (
        "A notebook mixes code and text.",
        "Say it again, for a child.",
        "Fine.",
        "Go on.",
    ):
        request = StreamRequest(tuple(messages), system=system)
        estimate = sum_tokens(counter, messages) + counter.count_overhead(system, None)
        reply = await model.create_message_with_options(request, SHORT)
        assert reply.usage.input_tokens <= estimate <= 1.8 * reply.usage.input_tokens
        messages.append((Message.user if len(messages) % 2 == 0 else Message.assistant)(text))
    await model.aclose()
