"""Closed and strict forms of JSON Schemas: what a service refuses is not in them."""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import pathlib
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import AnyUrl, BaseModel, Field, SecretStr

from notebook_agent.core.messages import Message
from notebook_agent.core.request import RequestOptions, StreamRequest, ToolSchema
from notebook_agent.core.schema_refs import lone_refs
from notebook_agent.engine.structured import OutputSchema
from notebook_agent.engine.tools.strict import strict_schema as strict_tool
from notebook_agent.providers.gemini import Gemini
from notebook_agent.providers.schema_forms import closed_schema, strict_schema

# What a strict format takes, from the services' own pages.
WORDS = {
    "$defs", "$ref", "additionalProperties", "anyOf", "const", "definitions", "description", "enum",
    "format", "items", "properties", "required", "type",
}  # fmt: skip
FORMATS = {
    "date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid",
}  # fmt: skip


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Inner(BaseModel):
    "Something inside."

    a: int = 5
    b: str | None = None


class Described(BaseModel):
    inner: Inner = Field(description="the inner one")
    color: Color = Field(Color.RED, description="its colour")
    many: list[Inner] = Field(default=[], description="more")


class Formats(BaseModel):
    url: AnyUrl
    path: pathlib.Path
    secret: SecretStr
    price: Decimal
    net: ipaddress.IPv4Network
    at: dt.datetime


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    kind: Literal["dog"]
    loud: bool


class Pets(BaseModel):
    pet: Cat | Dog = Field(discriminator="kind")


class Noted(BaseModel):
    x: Annotated[int, Field(ge=1, json_schema_extra={"x-own": 1}, deprecated=True)]
    mixed: Literal[1, "a", None]


class Node(BaseModel):
    value: int
    kids: list[Node] = []


def faults(schema: dict[str, Any], where: str = "$") -> list[str]:
    """What a service with strict formats refuses, written from its rules alone."""
    out = [f"{where}: {word}" for word in schema.keys() - WORDS]
    if where != "$" and not {"$ref", "anyOf", "type"} & schema.keys():
        out.append(f"{where}: no type")
    if "$ref" in schema and schema.keys() - {"$ref", "$defs"}:
        out.append(f"{where}: words beside $ref")
    if schema.get("format", "date") not in FORMATS:
        out.append(f"{where}: format")
    if "properties" in schema:
        if schema.get("additionalProperties") is not False or schema.get("type") == "array":
            out.append(f"{where}: open")
        if set(schema["required"]) != set(schema["properties"]):
            out.append(f"{where}: required")
    for word in ("properties", "$defs", "definitions"):
        for name, one in schema.get(word, {}).items():
            out += faults(one, f"{where}.{name}")
    for one in [*schema.get("anyOf", ()), *([schema["items"]] if "items" in schema else ())]:
        out += faults(one, f"{where}[]")
    return out


@pytest.mark.parametrize("kind", [Inner, Described, Formats, Pets, Noted, Node, list[Inner], Color])
def test_L7_the_strict_form_holds_nothing_that_is_refused(kind):
    schema = OutputSchema.of(kind).schema
    strict = strict_schema(schema)
    assert strict is not None
    assert strict["type"] == "object"
    assert faults(strict) == []
    assert OutputSchema.of(kind).schema == schema  # the validation's own is as it was


def test_what_a_field_says_of_itself_is_kept():
    strict = strict_schema(OutputSchema.of(Described).schema)
    inner = strict["properties"]["inner"]
    assert inner == {"description": "the inner one", "anyOf": [{"$ref": "#/$defs/Inner"}]}
    closed = closed_schema({"type": "object", "properties": {"a": {"allOf": [{"type": "string"}]}}})
    assert closed["properties"]["a"] == {"type": "string"}


@pytest.mark.parametrize(
    "schema",
    [
        {"a": {"title": "Anything"}},
        {"a": {}},
        {"a": True},
        {"a": {"type": "array"}},
        {"a": {"type": "object", "properties": {}, "required": ["b"]}},
        {"a": {"allOf": [{"type": "string"}, {"minLength": 2}]}},
        {"a": {"$ref": "#/$defs/x", "anyOf": [{"type": "null"}]}},
    ],
)
def test_no_form_where_there_is_none(schema):
    whole = {"type": "object", "properties": schema}
    assert strict_schema(whole) is None
    assert closed_schema(whole) is None


def test_no_form_for_an_object_that_is_one_of_several():
    several = {"type": "object", "properties": {"a": {"type": "string"}}, "anyOf": [{}]}
    assert strict_schema({**several, "anyOf": [{"type": "object", "properties": {}}]}) is None


def test_nothing_stands_beside_a_reference_in_gemini_and_in_strict_tools():
    schema = OutputSchema.of(Described).schema
    assert strict_tool(schema)["properties"]["inner"]["anyOf"] == [{"$ref": "#/$defs/Inner"}]
    client = Gemini("m", base_url="http://h.example")
    wanted = {"type": "json_schema", "name": "n", "schema": schema}
    for request, options in (
        (StreamRequest((Message.user("x"),)), RequestOptions(response_format=wanted)),
        (StreamRequest((Message.user("x"),), tools=(ToolSchema("t", "", schema),)), RequestOptions()),
    ):  # fmt: skip
        _, body = client.encode(request, options, stream=False)
        found = [r for r in _with_ref(json.loads(body)) if set(r) != {"$ref"}]
        assert found == []


def _with_ref(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, list):
        return [r for one in value for r in _with_ref(one)]
    if not isinstance(value, dict):
        return []
    own = [value] if "$ref" in value else []
    return own + [r for one in value.values() for r in _with_ref(one)]


def test_a_property_may_have_the_name_of_a_word():
    named = {"type": "object", "properties": {"$ref": {"type": "string"}, "type": {"type": "null"}}}
    assert lone_refs(named) == named
    assert set(strict_schema(named)["properties"]) == {"$ref", "type"}
