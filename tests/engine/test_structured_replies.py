"""Replies that hold the value in an unusual way, and schemas that are found out before sending."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from typing_extensions import TypeAliasType

from notebook_agent import ScriptedModel, ask
from notebook_agent.engine.structured import OutputSchema, format_for
from notebook_agent.errors import ConfigError
from notebook_agent.providers.base import Capabilities


class Person(BaseModel):
    name: str


class Price(BaseModel):
    value: int


def test_L7_what_was_thought_is_not_the_answer():
    """Servers without a parser for reasoning leave it in the reply."""
    schema = OutputSchema.of(Person)
    for text in (
        '<think>{"name": "no"}</think>{"name": "yes"}',
        'maybe {"name": "no"}</think>\n```json\n{"name": "yes"}\n```',
    ):
        assert schema.read(text) == Person(name="yes")
    assert schema.read('{"name": "a</think>b"}') == Person(name="a</think>b")


@pytest.mark.parametrize("text", ['{"value": {"value": 3}}', '{"value": 3}'])
def test_a_value_whose_one_property_is_called_like_the_box(text):
    assert OutputSchema.of(Person | Price).read(text) == Price(value=3)
    assert OutputSchema.of(Price).read('{"value": 3}') == Price(value=3)
    assert OutputSchema.of(list[Price]).read('[{"value": 3}]') == [Price(value=3)]


def test_an_alias_of_a_type_is_a_hint():
    assert OutputSchema.of(TypeAliasType("Numbers", list[int])).read("[1, 2]") == [1, 2]


@pytest.mark.parametrize("ref", ["#/nope", "#/$defs/b", "other.json", "#/properties/a/items/9"])
def test_a_reference_that_leads_nowhere_is_found_before_anything_is_sent(ref):
    """At any depth: it cost three turns and was called a tool's schema before."""
    model = ScriptedModel(['{"a": 1}'])
    schema: dict[str, Any] = {"type": "object", "properties": {"a": {"$ref": ref}}, "$defs": {}}
    with pytest.raises(ConfigError, match="refer"):
        ask("x", model=model, schema=schema)
    assert model.requests == []


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/x~1y"}}, "$defs": {"x/y": {}}},
        {"type": "object", "properties": {"a": {"$ref": "#/properties/b"}, "b": {}}},
        {"type": "object", "properties": {"a": {"$ref": "#n"}}, "$defs": {"n": {"$anchor": "n"}}},
        {"type": "object", "properties": {"$ref": {"type": "string"}, "a": {"$ref": "#"}}},
    ],
)
def test_a_reference_that_leads_somewhere_is_none_of_our_business(schema):
    OutputSchema.of(schema)


def test_a_client_that_cannot_demand_a_call_is_asked_by_json_mode():
    class Client:
        forces_tools = False

    known = Capabilities(json_schema=False, tool_calling=True, json_object=True)
    wanted = OutputSchema.of(Person)
    assert format_for(Client(), known, wanted)[0] == "json"
    Client.forces_tools = True
    assert format_for(Client(), known, wanted)[0] == "tool"
