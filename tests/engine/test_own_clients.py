"""Clients that anybody writes: what is wrong with one is said in its own words, and early."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from notebook_agent import AgentRuntime, ChatResponse, Message, RetryPolicy, StopReason, Usage
from notebook_agent.core import events as e
from notebook_agent.core.messages import Role, TextPart
from notebook_agent.core.request import TurnMode
from notebook_agent.errors import AgentError, ConfigError, ErrorKind, ProviderError
from notebook_agent.providers.base import Capabilities


class Echo:
    """The least that a client is."""

    def model(self) -> Any:
        return "small"

    async def stream_messages_with_options(self, request, options):
        yield e.PartStart(0, TextPart(""))
        yield e.IndexedDelta(0, e.Text("hi"))
        yield e.PartStop(0)
        yield e.MessageStop()

    async def create_message_with_options(self, request, options):
        return ChatResponse(Message.assistant("hi"))


def client(**over: Any) -> Any:
    return type("Mine", (Echo,), over)()


def run(model: Any, mode: TurnMode = TurnMode.STREAMING) -> Any:
    return AgentRuntime(model, mode=mode, retry=RetryPolicy(max_retries=0)).run("x")


def test_L8_three_methods_are_enough():
    for mode in TurnMode:
        result = run(client(), mode)
        assert (result.text, result.turns[0].model) == ("hi", "mine:small")


def _raises(self: Any) -> Any:
    raise ZeroDivisionError("mine")


async def _later(self: Any) -> Capabilities:
    return Capabilities()


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Echo, r"Echo is a class"),
        (client(model=lambda s: None), "gave None"),
        (client(model=lambda s: " "), "gave ' '"),
        (client(model=lambda s: 5), "gave 5"),
        (client(model="small"), "not callable"),
        (client(model=_raises), "ZeroDivisionError: mine"),
        (client(provider="a:b"), "without a colon"),
        (client(capabilities=_raises), "ZeroDivisionError: mine"),
        (client(capabilities=lambda s: {"vision": False}), "gave a dict"),
        (client(capabilities=_later), "gave a coroutine"),
        (client(capabilities=lambda s: Capabilities(context_window="8k")), "context_window"),
        (client(capabilities=lambda s: Capabilities(context_window=0)), "context_window"),
    ],
)
def test_B39_what_is_no_client_is_said_when_it_is_chosen(model, words):
    with pytest.raises(ConfigError, match=words):
        AgentRuntime(model)
    with pytest.raises(ConfigError, match=words):
        AgentRuntime(client(), fallback=[model])


def test_B39_capabilities_may_be_a_value_or_nothing():
    for given in (Capabilities(vision=False), lambda s: None, None):
        assert run(client(capabilities=given)).text == "hi"
    with pytest.raises(ProviderError, match="images"):
        png = "89504e470d0a1a0a0000000d49484452000000010000000108020000009077"
        AgentRuntime(client(capabilities=Capabilities(vision=False))).run(
            ["x", bytes.fromhex(png + "53de")]
        )


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (None, "a NoneType, not a ChatResponse"),
        ("hi", "a str, not a ChatResponse"),
        (ChatResponse(Message.user("x")), "no message of the assistant"),
        (ChatResponse(None), "no message of the assistant"),
        (ChatResponse(Message(Role.ASSISTANT, (TextPart(5),))), "TextPart"),
        (ChatResponse(Message(Role.ASSISTANT, ("text",))), "str"),
        (ChatResponse(Message.assistant("x"), "stop"), "not a StopReason"),
        (ChatResponse(Message.assistant("x"), StopReason.END_TURN, {"a": 1}), "not a Usage"),
        (ChatResponse(Message.assistant("x"), usage=Usage("1", 2)), "usage.input_tokens is '1'"),
        (ChatResponse(Message.assistant("x"), usage=Usage(1.5)), "usage.input_tokens is 1.5"),
    ],
)
def test_L24_a_reply_that_is_none_is_the_clients_fault(reply, words):
    """In both ways it may come: asked unstreamed, and as the rescue of a cut stream."""

    async def create(self, request, options):
        return reply

    async def cut(self, request, options):
        yield e.MessageStart(model="m")

    given = client(create_message_with_options=create, stream_messages_with_options=cut)
    for mode in TurnMode:
        with pytest.raises(ProviderError) as caught:
            run(given, mode)
        assert words in str(caught.value)
        assert "Internal error" not in str(caught.value)


@pytest.mark.parametrize("usage", [{"input_tokens": 1}, Usage("1"), Usage(None, 1.5)])
def test_L56_counts_that_are_none_make_an_event_unreadable(usage):
    async def stream(self, request, options):
        yield e.MessageDelta("stop", usage)
        yield e.MessageStop()

    async def create(self, request, options):
        raise ProviderError(ErrorKind.BAD_REQUEST, "no rescue")

    given = client(stream_messages_with_options=stream, create_message_with_options=create)
    with pytest.raises(ProviderError, match="malformed event"):
        run(given)


@pytest.mark.parametrize(
    "event", ["text", {"type": "text"}, None, e.Text("bare"), e.IndexedDelta(0, "text")]
)
def test_L56_what_is_no_event_is_named(event):
    async def stream(self, request, options):
        yield event
        yield e.MessageStop()

    async def create(self, request, options):
        raise ProviderError(ErrorKind.BAD_REQUEST, "no rescue")

    given = client(stream_messages_with_options=stream, create_message_with_options=create)
    with pytest.raises(AgentError, match="malformed event"):
        run(given)


def test_methods_of_another_shape():
    """Neither an endless wait nor an internal error."""
    for over in (
        {"stream_messages_with_options": lambda s, r, o: [e.MessageStop()]},
        {"stream_messages_with_options": lambda s, r: None},
        {"aclose": lambda s: None},
        {"base_url": _raises},
    ):
        try:
            assert run(client(**over)).text == "hi"
        except ProviderError as error:
            assert "the model's client failed" in str(error)  # noqa: PT017  # either may be
    with pytest.raises(ProviderError, match="client failed"):
        run(client(create_message_with_options=lambda s, r, o: "now"), TurnMode.NON_STREAMING)
    assert asyncio.run(AgentRuntime(client()).arun("x")).text == "hi"
