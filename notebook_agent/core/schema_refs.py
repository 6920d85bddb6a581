"""References inside a JSON Schema: which there are, and which lead back to themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["reaches_itself", "refs"]


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
