"""The quick look at arguments never says yes where the schema library finds a fault (B50)."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from notebook_agent.engine.tools.quick_check import surely_fits

names = st.sampled_from(["a", "b", "c"])
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.floats(-3, 3), st.sampled_from(["", "x", "xyz"])
)  # fmt: skip
values = st.recursive(
    scalars, lambda v: st.lists(v, max_size=3) | st.dictionaries(names, v, max_size=3), max_leaves=6
)
types = st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object"])


def _schema(inner):
    """Schemas of the known words, some words that are not, and some that are malformed."""
    words = {
        "type": types | st.sampled_from([["string", "null"], "int", 3]),
        "title": st.just("A title") | st.just(7),
        "default": values,
        "properties": st.dictionaries(names, inner, max_size=3),
        "required": st.lists(names, max_size=3),
        "additionalProperties": st.booleans() | inner,
        "items": inner | st.lists(inner, max_size=2),
        "enum": st.lists(values, max_size=3),
        "const": values,
        "anyOf": st.lists(inner, max_size=3),
        "minimum": st.integers(-3, 3) | st.booleans(),
        "exclusiveMaximum": st.floats(-3, 3),
        "minLength": st.integers(-1, 3),
        "maxItems": st.integers(0, 3),
        "multipleOf": st.integers(1, 3),
        "pattern": st.just("^x"),
        "not": inner,
        "$ref": st.just("#/$defs/gone"),
    }
    return st.fixed_dictionaries({}, optional=words)


schemas = st.recursive(
    st.fixed_dictionaries({}, optional={"type": types}), _schema, max_leaves=5
)  # fmt: skip


@settings(max_examples=1500, deadline=None)
@given(schemas, values)
def test_B50_a_yes_is_never_wrong(schema, value):
    if not surely_fits(schema, value):
        return
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as broken:
        pytest.fail(f"yes to a broken schema: {schema}: {broken.message}")
    assert not list(Draft202012Validator(schema).iter_errors(value)), (schema, value)


@pytest.mark.parametrize(
    ("schema", "value", "answer"),
    [
        ({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}, {"n": 3}, True),
        ({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}, {}, False),
        ({"type": "object", "properties": {}, "additionalProperties": False}, {"x": 1}, False),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, ["b", "a"], True),
        ({"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}, None, True),
        ({"type": "integer"}, True, False),
        ({"type": "integer"}, 3.0, False),  # JSON Schema says yes: not sure, so the library is asked
        ({"type": "string", "format": "email"}, "a@b.c", False),
        ({"type": "string", "minLength": 2}, "a", False),
        ({"$ref": "#/$defs/x"}, 1, False),
    ],
)  # fmt: skip
def test_B50_what_it_is_sure_of(schema, value, answer):
    assert surely_fits(schema, value) is answer


def test_good_arguments_do_not_load_the_schema_library():
    code = (
        "import sys\n"
        "from notebook_agent.engine.tools import tool\n"
        "@tool\n"
        "def look(x: int, names: list[str] | None = None, how: str = 'a') -> str:\n"
        "    'Look.'\n"
        "    return 'seen'\n"
        "assert look.prepare({'x': 1, 'names': ['a']})[2] == []\n"
        "assert 'jsonschema' not in sys.modules\n"
        "assert look.prepare({'x': 'one'})[2]\n"
        "assert 'jsonschema' in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]
