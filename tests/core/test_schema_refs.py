"""core/schema_refs.py."""

from __future__ import annotations

from notebook_agent.core.schema_refs import reaches_itself, refs

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
