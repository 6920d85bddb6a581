"""RequestOptions as people write them: what is none is said at once, with what would be one (L7)."""

from __future__ import annotations

import json
from functools import reduce

import pytest

from notebook_agent import AgentRuntime, ScriptedModel
from notebook_agent.core.messages import Message
from notebook_agent.core.request import RequestOptions, StreamRequest, ToolConstraint
from notebook_agent.errors import ConfigError, ErrorKind, ProviderError
from notebook_agent.providers.gemini import Gemini
from notebook_agent.providers.openai_chat import OpenAIChat

FORMATS = [
    "json",
    {},
    {"type": 5},
    {"type": "json_schema", "name": "a b", "schema": {}},
    {"type": "tool", "schema": {}},
    {"type": "tool", "name": "x"},
]


@pytest.mark.parametrize("given", FORMATS)
def test_L7_a_format_that_is_none(given):
    with pytest.raises(ConfigError, match="response_format"):
        RequestOptions(response_format=given)


@pytest.mark.parametrize(
    "given",
    [
        {"type": "json_object"},
        {"type": "json_schema", "schema": {"type": "object"}},
        {"type": "json_schema", "name": "x-1_y", "schema": {}},
        {"type": "tool", "name": "x", "schema": {}},
        {"type": "own"},  # a client may know more
    ],
)
def test_L7_a_format_that_is_one(given):
    assert RequestOptions(response_format=given).response_format == given


def test_L7_a_constraint_may_be_given_by_its_word():
    assert RequestOptions(tool_constraint="strict").tool_constraint is ToolConstraint.STRICT
    for wrong in ("STRICT", "tight", 5, True):
        with pytest.raises(ConfigError, match="strict, grammar"):
            RequestOptions(tool_constraint=wrong)


def test_L7_a_model_is_a_name():
    assert RequestOptions(model=" x\n").model == "x"
    assert RequestOptions(model=" ").model is None
    with pytest.raises(ConfigError, match="model = 5"):
        RequestOptions(model=5)


@pytest.mark.parametrize("given", [None, [1], "x", {1: 2}, {"": 1}])
def test_L7_parameters_are_named(given):
    with pytest.raises(ConfigError, match="extra"):
        RequestOptions(extra=given)


def test_L7_a_number_that_json_has_not_is_not_sent_as_another():
    """It went out as null."""
    for wrong in (float("nan"), float("inf"), float("-inf")):
        with pytest.raises(ConfigError, match=r"finite"):
            RequestOptions(extra={"temperature": wrong})
        with pytest.raises(ConfigError, match=r"a\.b = "):
            RequestOptions(extra={"a": {"b": [1, wrong]}})
    with pytest.raises(ConfigError, match="without end"):
        RequestOptions(extra={"a": reduce(lambda inner, _: [inner], range(9000), 1)})


def test_L7_numbers_of_numpy_are_numbers():
    numpy = pytest.importorskip("numpy")
    given = {
        "seed": numpy.int64(5),
        "t": numpy.float32(0.5),
        "a": numpy.arange(2),
        "b": numpy.bool_(1),
    }
    extra = RequestOptions(extra=given).extra
    assert json.dumps(extra) == '{"seed": 5, "t": 0.5, "a": [0, 1], "b": true}'
    with pytest.raises(ConfigError, match="finite"):
        RequestOptions(extra={"t": numpy.float32("nan")})


def test_L13_only_options_are_laid_over_options():
    for wrong in ({"temperature": 1}, "x", None):
        with pytest.raises(ConfigError, match="RequestOptions"):
            RequestOptions().merged(wrong)


def test_L13_the_runtime_takes_options_only():
    with pytest.raises(ConfigError, match="RequestOptions"):
        AgentRuntime(ScriptedModel(["x"]), options={"temperature": 1})
    options = RequestOptions(extra={"t": 1})
    assert AgentRuntime(ScriptedModel(["x"]), options=options).options == options


async def test_what_json_has_no_form_for_is_the_requests_fault(monkeypatch):
    monkeypatch.setattr("notebook_agent.providers.client.check_allowed", lambda _: None)
    client = OpenAIChat("m", base_url="http://127.0.0.1:1", provider="openai")
    options = RequestOptions(extra={"a": object()})
    with pytest.raises(ProviderError, match="cannot be written as JSON") as caught:
        await client.create_message_with_options(StreamRequest((Message.user("x"),)), options)
    assert (caught.value.kind, caught.value.is_retryable) == (ErrorKind.BAD_REQUEST, False)


def test_a_name_of_a_model_is_one_part_of_geminis_path():
    client = Gemini("m", base_url="http://h")
    for name, path in (
        ("a b?c#d", "/models/a%20b%3Fc%23d"),
        ("ü", "/models/%C3%BC"),
        ("tunedModels/x", "/tunedModels/x"),
    ):
        request = StreamRequest((Message.user("x"),))
        got, _ = client.encode(request, RequestOptions(model=name), stream=False)
        assert got == f"{path}:generateContent"
