"""Tools as other people write them: names that meet, schemas that services refuse."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from notebook_agent import AgentRuntime, ScriptedModel
from notebook_agent.core.request import ToolConstraint
from notebook_agent.engine.mcp import McpServer
from notebook_agent.engine.tools import Tool
from notebook_agent.providers.scripted_reply import Reply, call

ODD = Path(__file__).with_name("odd_mcp_server.py")
TEXT = {"type": "string"}


def test_no_tool_of_a_server_hides_another():
    """Names that become one when they are cleaned or cut are told apart, always the same way."""
    pytest.importorskip("mcp")
    server = McpServer([sys.executable, str(ODD)], confirm=False)
    try:
        tools = server.start()
        names = [one.name for one in tools]
        assert names[:4] == ["odd_a_b", "odd_a_b_2", "odd_tool", "odd_tool_2"]
        assert len(set(names)) == len(names) == 6  # one that is listed twice is one
        assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", name) for name in names)
        model = ScriptedModel([Reply(tool_calls=tuple(call(name) for name in names)), "done"])
        AgentRuntime(model, tools=tools).run("x")
        said = [r.output for r in model.requests[1].messages[-1].results]
    finally:
        server.close()
    assert said[:4] == ["called a.b", "called a b", "called найти", "called 搜索"]
    assert [one[-1] for one in said[4:]] == ["1", "2"]


def sent(parameters: Any, constraint: ToolConstraint | None = None) -> Any:
    return Tool("t", lambda **_: "ok", "", parameters).schema(constraint).parameters


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"type": "object"}, {"type": "object", "properties": {}}),
        ({"type": ["object", "null"]}, {"type": "object", "properties": {}}),
        ({"type": "string"}, {"type": "object", "properties": {}}),
        ({"type": "object", "properties": None}, {"type": "object", "properties": {}}),
        (
            {"properties": {"a": {"type": "array"}, "b": {"type": ["array", "null"]}}},
            {
                "type": "object",
                "properties": {
                    "a": {"type": "array", "items": {}},
                    "b": {"type": ["array", "null"], "items": {}},
                },
            },
        ),
        (
            {
                "type": "object",
                "properties": {"a": TEXT},
                "required": ["a"],
                "not": {"type": "null"},
            },
            {"type": "object", "properties": {"a": TEXT}, "required": ["a"]},
        ),
        (
            {
                "oneOf": [
                    {"properties": {"a": TEXT}, "required": ["a"]},
                    {"properties": {"b": TEXT}},
                ]
            },
            {"type": "object", "properties": {"a": TEXT, "b": TEXT}},
        ),
        (
            {"type": "object", "allOf": [{"properties": {"a": TEXT}, "required": ["a"]}]},
            {"type": "object", "properties": {"a": TEXT}, "required": ["a"]},
        ),
    ],
)
def test_L12_parameters_in_the_form_that_services_take(given, wanted):
    got = sent(given)
    assert {k: got[k] for k in wanted} == wanted
    assert not {"anyOf", "oneOf", "allOf", "not", "enum"} & got.keys()


def test_L12_a_root_that_is_a_reference():
    inner = {"type": "object", "properties": {"q": TEXT}}
    got = sent({"$ref": "#/$defs/X", "$defs": {"X": inner}})
    assert (got["type"], got["properties"]) == ("object", {"q": TEXT})
    assert "$ref" not in got
    lost = sent({"$ref": "#/nope"})
    assert lost == {"type": "object", "properties": {}}


def test_L12_what_is_a_name_or_a_value_stays():
    """A parameter may be called ``items`` or ``type``, a default may look like a schema."""
    given = {
        "type": "object",
        "properties": {"type": {"enum": ["array"]}, "oneOf": {"default": {"type": "array"}}},
        "required": ["type"],
    }
    assert sent(given) == given


def test_B50_arguments_are_checked_by_the_tools_own_schema():
    """Also where what is sent says less."""
    schema = {
        "type": "object",
        "properties": {"a": TEXT, "b": TEXT},
        "anyOf": [{"required": ["a"]}],
    }
    tool = Tool("t", lambda **_: "ok", "", schema)
    assert tool.prepare({"b": "x"})[2]
    assert not tool.prepare({"a": "x"})[2]


def test_L7_strict_takes_the_same_form():
    got = sent({"type": "object"}, ToolConstraint.STRICT)
    assert got == {
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": False,
    }
