"""Schemas from signatures and docstrings, the way back to Python values, the registry."""

from __future__ import annotations

import datetime as dt
import enum
import functools
import pathlib
import uuid
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NotRequired

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from notebook_agent.core.request import ToolConstraint, ToolSchema
from notebook_agent.engine.tools import Tool, ToolRegistry, as_tool, tool
from notebook_agent.engine.tools.docstrings import parse_docstring
from notebook_agent.errors import ConfigError


class Place(BaseModel):
    city: str = Field(description="The city.")
    zoom: int = 3


@dataclass
class Point:
    x: float
    y: float = 0.0
    tags: list[str] = field(default_factory=list)


class Node(BaseModel):
    name: str
    children: list[Node] = []


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


def params(fn) -> dict[str, Any]:
    schema = dict(as_tool(fn).schema().parameters)
    Draft202012Validator.check_schema(schema)
    return schema


def test_plain_hints_defaults_and_required():
    def f(a: int, b: str = "x", c: float | None = None, d: bool = True, e=None): ...

    assert params(f) == {
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "b": {"type": "string", "default": "x"},
            "c": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None},
            "d": {"type": "boolean", "default": True},
            "e": {"default": None},
        },
        "required": ["a"],
    }


def test_literal_optional_list_dict_enum():
    def f(
        unit: Literal["C", "F"], xs: list[int], m: dict[str, float], o: int | None, c: Colour
    ): ...

    props = params(f)["properties"]
    assert props["unit"] == {"enum": ["C", "F"], "type": "string"}
    assert props["xs"] == {"items": {"type": "integer"}, "type": "array"}
    assert props["m"] == {"additionalProperties": {"type": "number"}, "type": "object"}
    assert props["o"] == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert props["c"] == {"enum": ["red", "blue"], "type": "string"}


def test_annotated_field_and_field_as_default():
    def f(
        n: Annotated[int, Field(description="How many.", ge=1)],
        m: int = Field(4, description="More.", le=9),
        k: int = Field(description="No default."),
    ): ...

    schema = params(f)
    assert schema["properties"]["n"] == {
        "description": "How many.",
        "minimum": 1,
        "type": "integer",
    }
    assert schema["properties"]["m"] == {
        "description": "More.",
        "maximum": 9,
        "type": "integer",
        "default": 4,
    }
    assert schema["required"] == ["n", "k"]
    assert as_tool(f).prepare({"n": 1, "m": 12, "k": 1})[2] == [
        "m: 12 is greater than the maximum of 9"
    ]


def test_models_and_dataclasses_are_inlined_and_come_back_as_instances():
    def f(place: Place, at: Point, many: list[Place]): ...

    schema = params(f)
    assert "$defs" not in schema
    assert schema["properties"]["place"]["properties"]["city"] == {
        "description": "The city.",
        "type": "string",
    }
    _, kwargs, faults = as_tool(f).prepare(
        {"place": {"city": "Riga"}, "at": {"x": 1}, "many": [{"city": "Oslo", "zoom": 1}]}
    )
    assert not faults
    assert kwargs["place"] == Place(city="Riga")
    assert kwargs["at"] == Point(1.0)
    assert kwargs["many"] == [Place(city="Oslo", zoom=1)]


def test_a_recursive_model_keeps_its_definition():
    def f(tree: Node): ...

    schema = params(f)
    assert list(schema["$defs"]) == ["Node"]
    value = {"name": "a", "children": [{"name": "b"}]}
    _, kwargs, faults = as_tool(f).prepare({"tree": value})
    assert not faults
    assert kwargs["tree"].children[0].name == "b"
    assert as_tool(f).prepare({"tree": {"name": "a", "children": [{}]}})[2]


def test_a_parameter_named_title_or_json_or_schema_is_no_trap():
    def f(title: str, json: int, schema: str = "s", copy: bool = False, _x: int = 1): ...

    props = params(f)["properties"]
    assert list(props) == ["title", "json", "schema", "copy", "_x"]
    assert props["title"] == {"type": "string"}


class Book(BaseModel):
    title: str = Field(title="The Book's Title")
    default: int = 1


def test_a_users_own_title_and_properties_named_like_keywords_stay():
    def f(book: Book): ...

    book = params(f)["properties"]["book"]
    assert book["properties"]["title"] == {"title": "The Book's Title", "type": "string"}
    assert book["properties"]["default"] == {"default": 1, "type": "integer"}


GOOGLE = """Find things.

    In many places.

    Args:
        query (str): What to look for,
            in words.
        limit: How many: at most 10.

    Returns:
        Lines.
    """
NUMPY = """Find things.

    In many places.

    Parameters
    ----------
    query : str
        What to look for,
        in words.
    limit : int, optional
        How many: at most 10.

    Returns
    -------
    str
    """
SPHINX = """Find things.

    In many places.

    :param str query: What to look for,
        in words.
    :param limit: How many: at most 10.
    :type limit: int
    :returns: Lines.
    """


@pytest.mark.parametrize("doc", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_docstrings(doc):
    def find(query: str, limit: int = 5): ...

    find.__doc__ = doc
    made = as_tool(find)
    assert made.description == "Find things.\n\nIn many places."
    props = made.schema().parameters["properties"]
    assert props["query"]["description"] == "What to look for, in words."
    assert props["limit"]["description"] == "How many: at most 10."


def test_docstring_corners():
    assert parse_docstring(None).summary == ""
    assert parse_docstring("One: two.\nThree.").summary == "One: two.\nThree."
    both = parse_docstring("S.\n\nParameters\n----------\nx, y : int\n    Both.\nz\n    Last.\n")
    assert both.params == {"x": "Both.", "y": "Both.", "z": "Last."}
    later = parse_docstring("S.\n\nArgs:\n    a: A.\n\nExample:\n    >>> 1\n\nArgs:\n    b: B.")
    assert later.params == {"a": "A.", "b": "B."}
    assert later.summary == "S."


def test_bound_methods_partials_callables_and_positional_only():
    class Box:
        def pick(self, n: int) -> int:
            "Pick."
            return n

        def __call__(self, k: str) -> str:
            return k

    def pos(a: int, b: int = 2, /, c: int = 3):
        return a, b, c

    assert list(params(Box().pick)["properties"]) == ["n"]
    assert list(params(tool(name="box")(Box()))["properties"]) == ["k"]
    part = tool(functools.partial(pos, 1))
    assert part.name == "pos"
    made = as_tool(pos)
    args, kwargs, faults = made.prepare({"a": 5, "c": 7})
    assert not faults
    assert pos(*args, **kwargs) == (5, 2, 7)


def test_open_keyword_arguments():
    def f(a: int, **rest): ...

    args, kwargs, faults = as_tool(f).prepare({"a": 1, "z": [2]})
    assert (args, kwargs, faults) == ([], {"a": 1, "z": [2]}, [])


def test_types_local_to_a_function_are_found():
    class Local(BaseModel):
        n: int

    def f(x: Local, y: list[Local]):
        return Local

    _, kwargs, faults = as_tool(f).prepare({"x": {"n": 1}, "y": []})
    assert not faults
    assert kwargs["x"] == Local(n=1)


@pytest.mark.parametrize(
    ("fn", "words"),
    [
        (lambda x: x, "lambda has no name"),
        (pytest, "is not a function"),
    ],
)
def test_refused(fn, words):
    with pytest.raises(ConfigError, match=words):
        tool(fn)


def test_refused_signatures():
    def star(*xs): ...

    def odd(x: memoryview): ...

    def unknown(x: Nowhere): ...  # noqa: F821  # the unknown name is the test

    def gen(x: int):
        yield x

    for fn, words in [
        (star, "list"),
        (odd, "JSON has no form"),
        (unknown, "Nowhere"),
        (gen, "yields"),
    ]:
        with pytest.raises(ConfigError, match=words):
            tool(fn)
    with pytest.raises(ConfigError, match="64 letters"):
        Tool("a b", star)
    for bad in (0, -1, float("inf"), float("nan"), "3", True):
        with pytest.raises(ConfigError, match="timeout_s"):
            Tool("t", star, timeout_s=bad)
    with pytest.raises(ConfigError, match="primary"):

        @tool(primary="nope")
        def f(a: int): ...


class Options(TypedDict):
    a: int
    b: NotRequired[str]


def test_typed_dicts_and_rich_types():
    def f(o: Options, when: dt.datetime, path: pathlib.Path, u: uuid.UUID, t: tuple[int, str]): ...

    schema = params(f)
    assert schema["properties"]["o"]["required"] == ["a"]
    assert schema["properties"]["when"] == {"type": "string", "format": "date-time"}
    _, kwargs, faults = as_tool(f).prepare(
        {"o": {"a": 1}, "when": "2026-01-01T00:00:00Z", "path": "/x", "t": [1, "x"],
         "u": "12345678-1234-5678-1234-567812345678"}
    )  # fmt: skip
    assert not faults
    assert kwargs["when"].year == 2026
    assert (kwargs["path"], kwargs["t"]) == (pathlib.Path("/x"), (1, "x"))
    assert as_tool(f).prepare({"o": {}, "when": "x", "path": 1, "u": "1", "t": [1]})[2]


def test_the_tool_is_still_the_function():
    @tool(idempotent=True, timeout_s=2)
    def add(a: int, b: int = 1) -> int:
        """Add."""
        return a + b

    import inspect

    assert add(2) == 3
    assert inspect.signature(add).parameters["a"].annotation == "int"
    assert add.__doc__ == "Add."
    assert (add.idempotent, add.timeout_s, add.concurrent, add.main) == (True, 2, False, False)
    assert "0x" not in repr(add)
    assert tool(add).name == "add"


def test_all_faults_are_joined():
    def f(a: int, b: str, c: Literal["x"]): ...

    faults = as_tool(f).prepare({"a": "one", "c": "y", "zz": 1})[2]
    text = "; ".join(faults)
    assert "'b' is a required property" in text
    assert "a: 'one' is not of type 'integer'" in text
    assert "c: 'x' was expected" in text
    assert "zz: no such parameter; the parameters are: a, b, c" in text


def test_pydantic_only_rules_are_faults_too():
    from pydantic import AfterValidator

    def even(n: int) -> int:
        if n % 2:
            raise ValueError("odd")
        return n

    def f(n: Annotated[int, AfterValidator(even)]): ...

    assert as_tool(f).prepare({"n": 3})[2] == ["n: Value error, odd"]


def test_null_means_left_out_where_null_is_not_legal():
    def f(a: int, b: int = 2, c: int | None = 3): ...

    assert as_tool(f).prepare({"a": 1, "b": None, "c": None})[1] == {"a": 1, "c": None}
    assert as_tool(f).prepare({"a": None})[2]


@pytest.mark.parametrize("schema", [None, True, {}, []])
def test_B50_no_schema_accepts_everything(schema):
    made = Tool("raw", lambda **kw: kw, parameters=schema)
    assert made.prepare({"any": [1, None]}) == ([], {"any": [1, None]}, [])
    assert made.schema().parameters == {"type": "object", "properties": {}}


def test_own_schemas():
    @tool(parameters={"properties": {"a": {"type": "integer"}}})
    def made(**given): ...

    assert made.prepare({"a": "x"})[2] == ["a: 'x' is not of type 'integer'"]
    broken = Tool("raw", print, parameters={"type": "objekt"})
    assert "own schema is broken" in broken.prepare({})[2][0]
    away = Tool("raw", print, parameters={"properties": {"a": {"$ref": "http://x.example/s"}}})
    assert "leads nowhere" in away.prepare({"a": 1})[2][0]
    long = Tool("raw", print, parameters={"properties": {"a": {"type": "integer"}}})
    assert len(long.prepare({"a": "y" * 9999})[2][0]) <= 300


def walk(schema):
    if isinstance(schema, dict):
        yield schema
        for value in schema.values():
            yield from walk(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from walk(value)


def test_L7_strict_closes_and_requires_everything():
    def f(a: int, place: Place, b: Literal["x", "y"] = "x", at: Point | None = None): ...

    schema = as_tool(f).schema(ToolConstraint.STRICT).parameters
    Draft202012Validator.check_schema(dict(schema))
    for one in walk(schema):
        if "properties" in one and isinstance(one["properties"], dict):
            assert one["additionalProperties"] is False
            assert one["required"] == list(one["properties"])
        assert "default" not in one
    validator = Draft202012Validator(dict(schema))
    full = {"a": 1, "place": {"city": "R", "zoom": None}, "b": None, "at": None}
    assert validator.is_valid(full)
    assert not validator.is_valid({"a": 1})
    assert not validator.is_valid({**full, "a": None})
    # and what strict makes a model send is a legal call
    _, kwargs, faults = as_tool(f).prepare(full)
    assert not faults
    assert kwargs == {"a": 1, "place": Place(city="R"), "at": None}


def test_strict_of_a_tool_without_parameters():
    def now(): ...

    assert as_tool(now).schema(ToolConstraint.STRICT).parameters == {
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": False,
    }


def test_registry_is_sorted_stable_and_replaces():
    def b(x: int): ...

    def a(): ...

    one, two = ToolRegistry([b, a]), ToolRegistry([a, b])
    assert [s.name for s in one.schemas()] == ["a", "b"]
    assert one.schemas() == two.schemas()
    assert one.key() == two.key()
    assert one.schemas() is one.schemas()
    before = one.key()

    def b(x: int, y: str = ""): ...

    one.register(b)
    assert one.key() != before
    assert len(one) == 2
    assert one.remove("b")
    assert not one.remove("b")
    assert one.names() == ("a",)
    assert "a" in one
    assert one.get("b") is None
    assert [t.name for t in one] == ["a"]
    assert ToolRegistry().schemas() == ()
    assert one.key() != one.key(ToolConstraint.STRICT)


def test_L12_schema_is_a_tool_schema():
    def f(x: int):
        "Doc."

    assert ToolRegistry([f]).schemas() == (
        ToolSchema(
            "f",
            "Doc.",
            {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
        ),
    )
