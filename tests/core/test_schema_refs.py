"""core/schema_refs.py."""

from __future__ import annotations

from notebook_agent.core.schema_refs import (
    each_schema,
    lone_refs,
    lost_refs,
    reaches_itself,
    refs,
    resolved,
)

NODE = {
    "type": "object",
    "properties": {"next": {"anyOf": [{"$ref": "#/$defs/Leaf"}, {"$ref": "#/$defs/Node"}]}},
}
PLACES = {
    "#/$defs/Node": NODE,
    "#/$defs/Leaf": {"type": "null"},
    "#/$defs/User": {"items": {"$ref": "#/$defs/Node"}},
}


def test_refs_are_found_in_lists_and_maps_in_order() -> None:
    assert refs(NODE) == ["#/$defs/Leaf", "#/$defs/Node"]
    assert refs({"$ref": 7}) == refs("text") == []


def test_only_what_leads_back_reaches_itself() -> None:
    assert reaches_itself("#/$defs/Node", PLACES)
    assert not reaches_itself("#/$defs/Leaf", PLACES)
    assert not reaches_itself("#/$defs/User", PLACES)  # uses a recursive one, is none
    assert not reaches_itself("#/$defs/Missing", PLACES)


def test_a_reference_into_another_document_leads_nowhere() -> None:
    far = {"$ref": "other.json#/$defs/A"}
    assert resolved(far, {"$defs": {"A": {"type": "string"}}}) is far
    assert lost_refs({"properties": {"a": far}}) == ["other.json#/$defs/A"]


def test_a_local_reference_is_followed_through_lists_and_escapes() -> None:
    root = {"$defs": {"a/b": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/c~d"}]}, "c~d": {"type": "string"}}}  # fmt: skip
    assert resolved({"$ref": "#/$defs/a~1b/anyOf/1"}, root) == {"type": "string"}
    assert resolved({"$ref": "#/$defs/a~1b/anyOf/7"}, root) == {"$ref": "#/$defs/a~1b/anyOf/7"}
    assert resolved("no schema", root) == "no schema"
    endless = {"$ref": "#"}
    assert resolved(endless, endless) == endless
    assert lost_refs({"$id": "x", "a": {"$ref": "#/nowhere"}}) == []


def test_each_schema_is_changed_once_and_values_are_not() -> None:
    seen: list[str] = []

    def named(schema: dict) -> dict:
        seen.append(schema.get("title", ""))
        return {**schema, "seen": True}

    given = {
        "title": "root", "default": {"title": "value"}, "enum": [{"title": "value"}],
        "properties": {"default": {"title": "a property of that name"}},
        "anyOf": [{"title": "one"}, {"title": "two"}], "type": "object",
    }  # fmt: skip
    before = repr(given)
    out = each_schema(given, named)
    assert seen == ["a property of that name", "one", "two", "root"]
    assert out["default"] == {"title": "value"}
    assert out["properties"]["default"]["seen"]
    assert repr(given) == before
    assert each_schema("no schema", named) == "no schema"


def test_words_beside_a_reference_stand_beside_a_choice_of_it() -> None:
    beside = {"items": [{"$ref": "#/$defs/A", "description": "d"}, {"$ref": "#/$defs/A"}]}
    assert lone_refs(beside) == {
        "items": [{"description": "d", "anyOf": [{"$ref": "#/$defs/A"}]}, {"$ref": "#/$defs/A"}]
    }
