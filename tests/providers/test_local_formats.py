"""The local llama.cpp server asked in other wire formats: a real model behind each of our clients."""

from __future__ import annotations

import os

import pytest

from notebook_agent.core.accumulator import StreamAccumulator
from notebook_agent.core.messages import Message
from notebook_agent.core.request import RequestOptions, StreamRequest
from notebook_agent.core.response import StopReason
from notebook_agent.errors import ErrorKind, ProviderError
from notebook_agent.providers.anthropic_messages import AnthropicMessages
from notebook_agent.providers.local import LocalModel
from notebook_agent.providers.local_files import is_installed
from notebook_agent.providers.openai_chat import OpenAIChat
from notebook_agent.providers.openai_responses import OpenAIResponses
from notebook_agent.providers.transport import HttpSettings

pytestmark = [pytest.mark.local_model, pytest.mark.allow_requests]

# client, path behind the server's address, name of the limit
ROUTES = {
    "openai-chat": (OpenAIChat, "/v1", "max_tokens"),
    "openai-responses": (OpenAIResponses, "/v1", "max_output_tokens"),
    "anthropic-messages": (AnthropicMessages, "", "max_tokens"),
}


async def client_of(api: str):
    if not is_installed():
        if os.environ.get("CI") == "true":
            pytest.fail("no local model: run notebook-agent fetch-model")
        pytest.skip("NO LOCAL MODEL: run notebook-agent fetch-model")
    local = LocalModel()
    await local.learn()
    make, path, _ = ROUTES[api]
    client = make(
        "smollm2",
        base_url=local._server.facts.url + path,
        key=local._server.key,
        provider="local",
        settings=HttpSettings(keep_alive=False),
    )
    await local.aclose()
    return client


@pytest.mark.parametrize("api", list(ROUTES))
async def test_a_real_reply(api):
    client = await client_of(api)
    options = RequestOptions(extra={ROUTES[api][2]: 8, "temperature": 0})
    request = StreamRequest((Message.user("Tell a long story."),), system="You are brief.")
    reply = StreamAccumulator()
    async for event in client.stream_messages_with_options(request, options):
        reply.apply(event)
    assert reply.ended
    assert reply.text().strip()
    assert reply.usage is not None
    assert reply.usage.output_tokens == 8
    whole = await client.create_message_with_options(request, options)
    assert whole.message.text_content().strip()
    assert whole.usage is not None
    if api != "openai-responses":  # llama.cpp calls a cut response "completed" there
        assert reply.stop_reason is StopReason.MAX_TOKENS
        assert whole.stop_reason is StopReason.MAX_TOKENS
    await client.aclose()


@pytest.mark.parametrize("api", list(ROUTES))
async def test_too_long_is_recognised(api):
    client = await client_of(api)
    request = StreamRequest((Message.user("word " * 20_000),))
    with pytest.raises(ProviderError) as caught:
        async for _ in client.stream_messages_with_options(request, RequestOptions()):
            pass
    assert caught.value.overflow
    assert caught.value.kind is ErrorKind.BAD_REQUEST
    await client.aclose()


@pytest.mark.parametrize("api", list(ROUTES))
async def test_a_wrong_key(api):
    right = await client_of(api)
    make = ROUTES[api][0]
    client = make(
        "smollm2", base_url=right.base_url(), key="wrong-key-0123456789", provider="local"
    )
    with pytest.raises(ProviderError) as caught:
        async for _ in client.stream_messages_with_options(
            StreamRequest((Message.user("x"),)), RequestOptions()
        ):
            pass
    assert caught.value.kind is ErrorKind.AUTHENTICATION
    assert "Check the key that was given for local" in str(caught.value)
    await client.aclose()
    await right.aclose()
