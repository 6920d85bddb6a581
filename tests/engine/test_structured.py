"""engine/structured.py and runs with a schema: reading, strategies, repair, tools (L7, L18)."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import json
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from notebook_agent import AgentRuntime, RequestOptions, RuntimePolicy, ScriptedModel, ask, tool
from notebook_agent.core.messages import Role
from notebook_agent.core.request import TurnMode
from notebook_agent.core.run_frame import RunFrame
from notebook_agent.core.session import Run, RunStatus
from notebook_agent.engine.replay_drive import redrive
from notebook_agent.engine.runtime.resume import Broken
from notebook_agent.engine.store.jsonl import export_runs
from notebook_agent.engine.store.memory import MemoryStore
from notebook_agent.engine.structured import OutputSchema, format_for
from notebook_agent.errors import ConfigError, ProviderError, StructuredOutputError
from notebook_agent.providers.base import Capabilities
from notebook_agent.providers.scripted_reply import Reply, call


class Item(BaseModel):
    name: str
    price: float = Field(ge=0)


class Order(BaseModel):
    """An order."""

    id: int
    items: list[Item]
    note: str = "none"
    day: date | None = None


@dataclass
class Point:
    x: int
    y: int = 3


class Node(BaseModel):
    value: int
    children: list[Node] = []


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


GOOD = {"id": 1, "items": [{"name": "a", "price": 2.5}]}


def can(**fields: Any) -> Capabilities:
    off = dict(json_schema=False, json_object=False, tool_calling=False)
    return Capabilities(**{**off, **fields})


def scripted(replies: Any, **fields: Any) -> ScriptedModel:
    return ScriptedModel(replies, capabilities=can(**fields) if fields else None)


# --- reading


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(GOOD),
        f"\n```json\n{json.dumps(GOOD)}\n```\n",
        f"Here it is:\n\n~~~\n{json.dumps(GOOD, indent=2)}\n~~~\nAnything else?",
        f"Sure! {json.dumps(GOOD)} - done.",
        f"[1] is a list, the order is {json.dumps(GOOD)}",
        json.dumps({**GOOD, "note": None, "day": None}),  # null for "not given"
        "\ufeff" + json.dumps(GOOD),
    ],
)
def test_a_reply_that_holds_the_value_is_read(text):
    assert OutputSchema.of(Order).read(text) == Order(**GOOD)


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        ("", "$", "empty"),
        ("no", "$", "no JSON"),
        ('{"id": NaN, "items": []}', "$", "no JSON"),
        ("[" * 50_000, "$", "nested"),
        ('{"id": 1}', "$.items", "required"),
        ('{"id": 1, "items": [{"name": "a", "price": 1}, {"name": "b", "price": "x"}]}',
         "$.items[1].price", "number"),
        ('{"id": 1, "items": [{"name": "a", "price": -1}]}', "$.items[0].price", "greater"),
    ],
)  # fmt: skip
def test_an_error_names_the_place_and_keeps_the_text(text, path, words):
    with pytest.raises(StructuredOutputError, match="not a valid Order") as caught:
        OutputSchema.of(Order).read(text)
    assert caught.value.path == path
    assert words in caught.value.faults[0]
    assert caught.value.partial_text == text


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        (Point, '{"x": 1}', Point(1, 3)),
        (list[int], '{"value": [1, 2]}', [1, 2]),
        (list[int], "[1, 2]", [1, 2]),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (Literal["a", "b"], '{"value": "a"}', "a"),
        (Literal["a", "b"], '"b"', "b"),
        (Colour, '{"value": "red"}', Colour.RED),
        (int | None, '{"value": null}', None),
        (Node, '{"value": 1, "children": [{"value": 2}]}', Node(value=1, children=[Node(value=2)])),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, '{"a": 1}', {"a": 1}),
        ({"type": "array", "items": {"type": "string"}}, '{"value": ["x"]}', ["x"]),
        ({"type": "array", "items": {"type": "string"}}, '["x"]', ["x"]),
    ],
)  # fmt: skip
def test_every_kind_of_schema(schema, text, value):
    wanted = OutputSchema.of(schema)
    assert wanted.schema["type"] == "object"
    assert wanted.read(text) == value
    again = OutputSchema.from_json(json.loads(json.dumps(wanted.to_json())))
    assert again is not None
    again.read(text)  # a resumed run has no class, the form is the same


@pytest.mark.parametrize("schema", [Order(**GOOD), 3, "Order", None, {}, {"type": "no such"}, len])
def test_what_is_no_schema_is_said(schema):
    with pytest.raises(ConfigError):
        OutputSchema.of(schema)


def test_a_json_schema_names_the_place_too():
    schema = {
        "type": "object",
        "properties": {"rows": {"type": "array", "items": {"type": "integer"}}},
    }
    with pytest.raises(StructuredOutputError) as caught:
        OutputSchema.of(schema).read('{"rows": [1, "b"]}')
    assert caught.value.path == "$.rows[1]"


def test_a_reference_to_another_host_is_never_fetched():
    with pytest.raises(ConfigError, match="reference"):
        OutputSchema.of({"$ref": "http://127.0.0.1:9/schema.json"})


@given(st.text(alphabet='{}[]",:ab1 \n`~', max_size=200))
def test_any_text_is_a_value_or_a_typed_error(text):
    with contextlib.suppress(StructuredOutputError):
        assert isinstance(OutputSchema.of(Point).read(text), Point)


@pytest.mark.parametrize(
    "text",
    ['{"value": 1, "children": [{"value": 2}', '{"value": 1, "children": [{"value": 2}, NaN]}',
     'Here: {"value": 1, "children": [{"value": 2}]'],
)  # fmt: skip
def test_a_part_of_a_cut_value_is_never_the_value(text):
    with pytest.raises(StructuredOutputError):
        OutputSchema.of(Node).read(text)


def test_braces_in_the_words_before():
    assert OutputSchema.of(Point).read('The set {x} is meant: {"x": 2}') == Point(2)


# --- strategies


@pytest.mark.parametrize(
    ("known", "strategy", "kind", "words"),
    [
        (can(json_schema=True, tool_calling=True), "native", "json_schema", False),
        (can(tool_calling=True, json_object=True), "tool", "tool", False),
        (can(json_object=True), "json", "json_object", True),
        (can(), "words", None, True),
        (Capabilities(), "words", None, True),
    ],
)
def test_how_a_format_is_forced(known, strategy, kind, words):
    name, form, asked = format_for(ScriptedModel("x"), known, OutputSchema.of(Order))
    assert (name, None if form is None else form["type"], asked) == (strategy, kind, words)


# --- runs


@pytest.mark.parametrize(
    "fields", [{"json_schema": True}, {"tool_calling": True}, {"json_object": True}, {"chat": True}]
)
def test_parsed_whatever_the_model_can_do(fields):
    client = scripted(json.dumps(GOOD), **fields)
    result = ask("order", model=client, schema=Order)
    assert result.parsed == Order(**GOOD)
    assert len(result.turns) == 1
    said = "\n".join(m.text_content() for m in client.requests[0].messages)
    assert ("JSON Schema" in said) is ("json_object" in fields or "chat" in fields)


def test_a_forced_tools_arguments_are_the_reply():
    replies = [Reply(text="I will call it.", tool_calls=(call("Order", **GOOD),))]
    client = scripted(replies, tool_calling=True)
    heard: list[str] = []
    runtime = AgentRuntime(client, text_streamer=heard.append)
    result = runtime.run("order", schema=Order)
    assert result.parsed == Order(**GOOD)
    assert json.loads(result.text) == {**GOOD}
    assert "".join(heard) == result.text
    assert result.turns[0].tool_calls == ()
    assert client.calls[0].options.response_format["type"] == "tool"


def test_a_model_that_does_not_call_the_forced_tool_is_heard():
    client = scripted(["I would rather not.", json.dumps(GOOD)], tool_calling=True)
    result = ask("order", model=client, schema=Order)
    assert result.turns[0].output == "I would rather not."
    assert result.parsed == Order(**GOOD)


def test_repair_is_bounded_and_in_the_trail():
    client = scripted(['{"id": 1}', '{"id": 1, "items": 3}', json.dumps(GOOD)])
    runtime = AgentRuntime(client)
    result = runtime.run("order", schema=Order)
    assert result.parsed == Order(**GOOD)
    assert [t.turn for t in result.turns] == [0, 1, 2]
    assert "$.items: Field required" in result.turns[1].input
    assert "$.items" in client.requests[2].messages[-1].text_content()


def test_after_two_repairs_the_error_has_everything():
    runtime = AgentRuntime(scripted("never"))
    with pytest.raises(StructuredOutputError, match="sent back 2 times") as caught:
        runtime.run("order", schema=Order)
    result = caught.value.result
    assert (len(result.turns), result.status) == (3, RunStatus.COMPLETED)
    assert (result.text, result.parsed, caught.value.partial_text) == ("never", None, "never")
    assert runtime.last_error is caught.value
    assert runtime.run("again").text == "never"  # the session goes on


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply(text='{"id": 1, ', stop_reason="length"), "cut at its output limit"),
        (Reply(text="no", stop_reason="content_filter"), "content filter"),
    ],
)
def test_what_a_repair_cannot_mend_is_not_sent_back(reply, words):
    client = scripted([reply])
    with pytest.raises(StructuredOutputError, match=words):
        ask("order", model=client, schema=Order)
    assert len(client.requests) == 1


def test_no_turn_left_for_a_repair():
    client = scripted("never")
    with pytest.raises(StructuredOutputError, match="No turn was left"):
        AgentRuntime(client, policy=RuntimePolicy(max_iterations=1)).run("o", schema=Order)
    assert len(client.requests) == 1


def weather(city: str) -> str:
    """The weather."""
    return f"rain in {city}"


@pytest.mark.parametrize("fields", [{"json_schema": True}, {}])
def test_tools_are_offered_until_the_model_answers(fields):
    client = scripted(
        [Reply(tool_calls=(call("weather", city="Oslo"),)), "It rains.", '{"x": 1}'],
        tool_calling=True, **fields,
    )  # fmt: skip
    result = AgentRuntime(client, tools=[weather]).run("weather?", schema=Point)
    assert result.parsed == Point(1)
    formats = [c.options.response_format for c in client.calls]
    assert [f is None for f in formats] == [True, True, False]
    assert [bool(c.request.tools) for c in client.calls] == [True, True, False]


def test_an_answer_that_fits_needs_no_further_request():
    client = scripted([Reply(tool_calls=(call("weather", city="Oslo"),)), '{"x": 1}'])
    assert AgentRuntime(client, tools=[weather]).run("weather?", schema=Point).parsed == Point(1)
    assert len(client.requests) == 2


def test_tools_and_schema_are_counted_though_not_sent():
    big = OutputSchema.of(Order)
    plain = AgentRuntime(scripted(json.dumps(GOOD)), tools=[weather])
    first = plain.run("x").turns[0].context_estimate
    client = scripted(["words", json.dumps(GOOD)])
    result = AgentRuntime(client, tools=[weather]).run("x", schema=big)
    cost = plain.counter.count_overhead(None, (big.tool(),))
    assert result.turns[0].context_estimate >= first + cost // 2
    assert result.turns[1].context_estimate > result.turns[0].context_estimate
    assert client.requests[1].tools is None


def test_what_cannot_be_is_refused_before_sending():
    client = scripted("x")
    runtime = AgentRuntime(client, tools=[weather], policy=RuntimePolicy(max_iterations=1))
    with pytest.raises(ConfigError, match="two turns"):
        runtime.run("x", schema=Order)
    options = RequestOptions(response_format={"type": "json_object"})
    with pytest.raises(ConfigError, match="one of them"):
        runtime.run("x", schema=Order, options=options, tools=())
    no_tools = AgentRuntime(scripted("x", json_schema=True), tools=[weather])
    with pytest.raises(ProviderError) as caught:
        no_tools.run("x", schema=Order)
    assert caught.value.feature == "tool_calling"
    assert not client.requests


def test_the_next_run_is_free_again():
    client = scripted([json.dumps(GOOD), "words"])
    runtime = AgentRuntime(client)
    runtime.run("order", schema=Order)
    assert runtime.run("talk").text == "words"
    assert client.calls[1].options.response_format is None


def test_a_backup_that_cannot_be_forced_gets_words():
    backup = ScriptedModel(json.dumps(GOOD), name="backup", capabilities=can())
    primary = ScriptedModel("x", script="500", capabilities=can(json_schema=True))
    runtime = AgentRuntime(primary, fallback=[backup])
    for _ in range(3):
        with pytest.raises(ProviderError):
            runtime.run("o", schema=Order)
    assert runtime.run("o", schema=Order).parsed == Order(**GOOD)
    assert "JSON Schema" in backup.requests[0].messages[0].text_content()
    assert backup.requests[0].messages[0].role is Role.USER


def test_unstreamed_too():
    client = scripted([Reply(tool_calls=(call("Order", **GOOD),))], tool_calling=True)
    runtime = AgentRuntime(client, mode=TurnMode.NON_STREAMING, tools=[tool(weather)])
    result = runtime.run("order", schema=Order, tools=())
    assert result.parsed == Order(**GOOD)
    assert not client.calls[0].streamed


@pytest.mark.parametrize("fields", [{"json_schema": True}, {"json_object": True}])
def test_a_run_with_a_schema_is_driven_again_from_its_file(tmp_path, fields):
    replies = [Reply(tool_calls=(call("weather", city="Oslo"),)), "It rains.", "{}", '{"x": 1}']
    client = scripted(replies, tool_calling=True, **fields)
    store = MemoryStore()
    runtime = AgentRuntime(client, store=store, tools=[weather])
    assert runtime.run("weather?", schema=Point).parsed == Point(1)
    file = export_runs(store, runtime.session.id, tmp_path / "run.jsonl", exported_at=0.0)
    report = asyncio.run(redrive(file))
    assert report.ok, str(report)
    assert report.results[0].parsed == {"x": 1}


def test_a_broken_run_goes_on_with_its_schema():
    schema = OutputSchema.of(Point)
    frame = RunFrame(run_id="r", session_id="s", repairs=1, forced=True)
    again = RunFrame.from_json(json.loads(json.dumps(frame.to_json())), [])
    assert (again.repairs, again.forced) == (1, True)
    run = Run(id="r", input="x", start=0.0, config={"schema": schema.to_json()})
    options = Broken(run=run, frame=again).options(primary="scripted:scripted", known_tools=())
    assert options.schema.read('{"x": 4}') == {"x": 4}
