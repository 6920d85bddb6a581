"""Faults over real sockets, every wire format: what comes out is a whole reply or a failure.

fault kind x byte position x format, streamed. The rescue and the ladder are the engine's; here a
client must never hand out a cut reply as a whole one, never hang, and leave its connection closed.
"""

from __future__ import annotations

import asyncio

import pytest

from notebook_agent.core.accumulator import StreamAccumulator
from notebook_agent.core.messages import Message
from notebook_agent.core.request import RequestOptions, StreamRequest
from notebook_agent.errors import ErrorKind, ProviderError
from notebook_agent.providers.transport import HttpSettings
from tests.providers.bodies import (
    BEGIN,
    CREATED,
    G_CALL,
    G_USAGE,
    STOPPED,
    USAGE,
    asks,
    call,
    delta,
    ended,
    events,
    lines,
    over,
    part,
    say,
    says,
    text_block,
    use_block,
)
from tests.providers.server import Reply, serve
from tests.providers.test_requests import CLIENTS

pytestmark = pytest.mark.allow_requests

ASK = StreamRequest((Message.user("x"),))
STREAM = "text/event-stream"
# A small stream with text, a tool call and usage for each format.
SMALL = {
    "openai-chat": (STREAM, events(delta(content="So."), delta(tool_calls=[call(0, "c1", "f", arguments='{"x":')]), delta(tool_calls=[call(0, arguments="1}")]), delta("tool_calls"), {"choices": [], "usage": USAGE}, "[DONE]")),
    "anthropic-messages": (STREAM, events(BEGIN, *text_block(0, "So."), *use_block(1, "c1", "f", '{"x":', "1}"), ended("tool_use"), STOPPED, named=True)),
    "gemini": (STREAM, events(part({"text": "So."}), part(G_CALL, finish="STOP", usage=G_USAGE))),
    "openai-responses": (STREAM, events(CREATED, say("So."), *asks(1, "c1", "f", '{"x":', "1}"), over(), named=True)),
    "ollama": ("application/x-ndjson", lines(says("So."), says(tool_calls=[{"function": {"name": "f", "arguments": {"x": 1}}}]), says(done=True, done_reason="stop", eval_count=3))),
}  # fmt: skip
FAULTS = ("cut", "truncate", "hang", "garbage", "error")
PLACES = 14


def faulty(kind: str, data: bytes, place: int, content_type: str, api: str) -> Reply:
    head = {"content-type": content_type}
    pieces = [data[:place]] if place else []
    if kind == "cut":  # the connection breaks inside the body
        return Reply(pieces, headers=head, no_end=True)
    if kind == "truncate":  # a clean end of the body in the middle of the reply
        return Reply(pieces, headers=head)
    if kind == "hang":
        return Reply(pieces, headers=head, hang=True)
    if kind == "garbage":
        junk = b"\n\xff\x00{oops\n\n" if api == "ollama" else b"\n\ndata: \xff\x00{oops\n\n"
        return Reply([*pieces, junk, data[place:]], headers=head)
    error = b'{"error": {"type": "overloaded_error", "message": "busy", "code": 503}}'
    line = (
        b"\n" + error + b"\n" if api == "ollama" else b"\n\nevent: error\ndata: " + error + b"\n\n"
    )
    return Reply([*pieces, line], headers=head)


@pytest.mark.parametrize("api", list(SMALL))
@pytest.mark.parametrize("kind", FAULTS)
async def test_fault(api, kind):
    content_type, data = SMALL[api]
    places = sorted({len(data) * k // PLACES for k in range(PLACES + 1)})
    whole = 0
    for place in places:
        async with serve(faulty(kind, data, place, content_type, api)) as server:
            client = CLIENTS[api](
                "m",
                base_url=server.url,
                provider="test",
                settings=HttpSettings(read_gap_s=0.15),
            )
            accumulator = StreamAccumulator()
            failed: ProviderError | None = None
            try:
                async for event in client.stream_messages_with_options(ASK, RequestOptions()):
                    accumulator.apply(event)
            except ProviderError as error:
                failed = error
            if failed is None:
                whole += 1
                message = accumulator.build()
                assert accumulator.ended
                assert message.text_content() == "So."
                assert [(c.name, c.input) for c in message.tool_calls] == [("f", {"x": 1})]
            else:
                assert not accumulator.ended
                assert failed.is_retryable
                expected = {ErrorKind.TRANSPORT, ErrorKind.TIMEOUT, ErrorKind.OVERLOADED}
                assert failed.kind in expected
                assert "So.".startswith(accumulator.text())
            await client.aclose()
            for _ in range(100):
                if server.open == 0:
                    break
                await asyncio.sleep(0.01)
            assert server.open == 0
    assert whole < len(places)
    if kind in ("truncate", "error", "garbage", "hang") and api != "gemini":
        assert whole >= 1  # the last place is behind the end marker


@pytest.mark.parametrize("api", list(SMALL))
async def test_whole(api):
    content_type, data = SMALL[api]
    for pieces in ([data], [data[i : i + 1] for i in range(len(data))]):
        async with serve(Reply(pieces, headers={"content-type": content_type})) as server:
            client = CLIENTS[api]("m", base_url=server.url, provider="test")
            accumulator = StreamAccumulator()
            async for event in client.stream_messages_with_options(ASK, RequestOptions()):
                accumulator.apply(event)
            assert accumulator.ended
            assert accumulator.usage is not None
            assert [c.input for c in accumulator.build().tool_calls] == [{"x": 1}]
            await client.aclose()
