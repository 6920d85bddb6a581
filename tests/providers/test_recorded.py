"""Recorded bodies played back as a model."""

from __future__ import annotations

import pytest

from notebook_agent.core.accumulator import StreamAccumulator
from notebook_agent.core.messages import Message
from notebook_agent.core.request import RequestOptions, StreamRequest
from notebook_agent.errors import ConfigError, ErrorKind, ProviderError
from notebook_agent.providers.base import ModelClient
from notebook_agent.providers.recorded import RecordedModel
from tests.providers.bodies import BODIES
from tests.providers.server import collect

ASK = StreamRequest((Message.user("x"),))
NONE = RequestOptions()


@pytest.mark.parametrize("api", list(BODIES))
@pytest.mark.parametrize("chunk", [None, 1])
async def test_a_body_is_played_back(api, chunk, tmp_path):
    path = tmp_path / "body"
    path.write_bytes(BODIES[api][0][1])
    model = RecordedModel(path, api, chunk=chunk)
    assert isinstance(model, ModelClient)
    for _ in range(2):  # the last one repeats
        accumulator = StreamAccumulator()
        for event in await collect(model.stream_messages_with_options(ASK, NONE)):
            accumulator.apply(event)
        assert accumulator.build().text_content() == "Hello"
    whole = await model.create_message_with_options(ASK, NONE)
    assert whole.message.text_content() == "Hello"
    assert model.requests == [ASK] * 3


async def test_bodies_in_their_order_cuts_and_errors():
    rows = {name: body for name, body, _ in BODIES["openai-chat"]}
    model = RecordedModel(
        [rows["S11 the body ends"], rows["S10 a plain error"], rows["plain"]], "openai-chat"
    )
    for words in ("ended in the middle", "boom"):
        with pytest.raises(ProviderError, match=words):
            await collect(model.stream_messages_with_options(ASK, NONE))
    assert await collect(model.stream_messages_with_options(ASK, NONE))
    refused = RecordedModel(b'{"error": {"message": "bad key"}}', "openai-chat", status=401)
    with pytest.raises(ProviderError, match="bad key") as caught:
        await refused.create_message_with_options(ASK, NONE)
    assert caught.value.kind is ErrorKind.AUTHENTICATION


@pytest.mark.parametrize(
    ("given", "options"), [([], {}), (b"", {"chunk": 0}), (b"", {"api": "soap"})]
)
def test_wrong_settings(given, options):
    with pytest.raises(ConfigError):
        RecordedModel(given, **{"api": "gemini", **options})
