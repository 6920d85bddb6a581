"""References inside a JSON Schema: which there are, and which lead back to themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["lone_ref", "lone_refs", "reaches_itself", "refs"]

# Words of a schema that hold schemas by name.
_MAPS: Final = frozenset({"$defs", "definitions", "properties"})


def refs(schema: Any) -> list[str]:
    """Every ``$ref`` below a schema, as written, in order of appearance."""
    if isinstance(schema, list):
        return [ref for one in schema for ref in refs(one)]
    if not isinstance(schema, Mapping):
        return []
    own = [schema["$ref"]] if isinstance(schema.get("$ref"), str) else []
    return own + [ref for value in schema.values() for ref in refs(value)]


def reaches_itself(start: str, places: Mapping[str, Any]) -> bool:
    """Whether following references from ``start`` leads back to it.

    Args:
        start: A reference as it is written, like ``#/$defs/Node``.
        places: Reference -> the schema it stands for; others lead nowhere.
    """
    seen: set[str] = set()
    todo = [start]
    while todo:
        for ref in refs(places.get(todo.pop(), {})):
            if ref == start:
                return True
            if ref not in seen:
                seen.add(ref)
                todo.append(ref)
    return False


def lone_ref(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema in which no other word stands beside ``$ref``: services refuse that.

    pydantic writes a described field of a class so: ``{"$ref": ..., "description": ...}``.
    """
    beside = {k: v for k, v in schema.items() if k != "$ref"}
    lone = all(k.startswith("$") or k == "definitions" for k in beside)
    if "$ref" not in schema or lone or "anyOf" in beside:
        return dict(schema)
    return {**beside, "anyOf": [{"$ref": schema["$ref"]}]}


def lone_refs(schema: Any) -> Any:
    """As :func:`lone_ref`, at every place of a schema."""
    if isinstance(schema, list):
        return [lone_refs(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    out = {
        k: v if k in ("const", "default", "enum", "examples", "required")
        else {n: lone_refs(one) for n, one in v.items()} if k in _MAPS and isinstance(v, Mapping)
        else lone_refs(v)
        for k, v in schema.items()
    }  # fmt: skip
    return lone_ref(out)
