"""Nulls for "not given", inside the classes of a class: strict formats make models send them."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from notebook_agent import ScriptedModel, ask, tool
from notebook_agent.engine.tools.strict import drop_nulls


class Inner(BaseModel):
    a: int = 5
    b: str | None = "b"


class Cat(BaseModel):
    kind: str = "cat"
    lives: int = 9


class Outer(BaseModel):
    inner: Inner = Inner()
    many: list[Inner] = []
    named: dict[str, Inner] = {}
    either: Inner | int = 1
    pet: Cat | Inner | None = None


@pytest.mark.parametrize(
    ("sent", "got"),
    [
        ('{"inner": {"a": null, "b": null}}', {"inner": Inner(a=5, b=None)}),
        ('{"many": [{"a": null}, {"a": 2}]}', {"many": [Inner(a=5), Inner(a=2)]}),
        ('{"named": {"x": {"a": null}}}', {"named": {"x": Inner(a=5)}}),
        ('{"either": {"a": null, "b": "x"}}', {"either": Inner(a=5, b="x")}),
        ('{"pet": {"kind": null, "lives": 3}}', {"pet": Cat(lives=3)}),
        ('{"inner": null, "many": null, "pet": null}', {}),
    ],
)
def test_L7_a_null_at_any_depth_means_not_given(sent, got):
    result = ask("x", model=ScriptedModel([sent]), schema=Outer)
    assert result.parsed == Outer(**got)
    assert len(result.turns) == 1  # nothing was sent back for repair


def test_L7_so_it_does_in_the_arguments_of_a_tool():
    @tool
    def keep(what: Outer) -> str:
        "Keep it."
        return str(what.inner.a)

    args, kwargs, faults = keep.prepare({"what": {"inner": {"a": None}}})
    assert faults == []
    assert next(iter([*args, *kwargs.values()])).inner.a == 5


def test_a_null_that_is_a_value_stays():
    schema = {
        "$defs": {"N": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
        "type": "object",
        "properties": {"n": {"$ref": "#/$defs/N"}, "free": {}},
    }
    assert drop_nulls(schema, {"n": None, "free": None, "more": None}) == {
        "n": None, "free": None, "more": None,
    }  # fmt: skip


def test_schemas_that_lead_to_themselves_or_nowhere_end():
    loop = {"$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}]}, "B": {"$ref": "#/$defs/B"}}}
    for ref in ("#/$defs/A", "#/$defs/B", "#/$defs/none", "other.json#/x"):
        schema = {**loop, "type": "object", "properties": {"x": {"$ref": ref}}}
        assert drop_nulls(schema, {"x": {"y": None}}) == {"x": {"y": None}}
