"""A JSON Schema's references, and the walk through all of its places."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import unquote

__all__ = [
    "each_schema",
    "lone_ref",
    "lone_refs",
    "lost_refs",
    "reaches_itself",
    "refs",
    "resolved",
]

# References that only lead to references; a chain that is longer leads nowhere.
_MOST_HOPS: Final = 20
# Words of a schema that hold schemas by name, and those that hold no schemas.
_MAPS: Final = frozenset({"$defs", "definitions", "patternProperties", "properties"})
_VALUES: Final = frozenset({"const", "default", "enum", "examples", "required"})


def refs(schema: Any) -> list[str]:
    """Every ``$ref`` below a schema, as written, in order of appearance."""
    if isinstance(schema, list):
        return [ref for one in schema for ref in refs(one)]
    if not isinstance(schema, Mapping):
        return []
    own = [schema["$ref"]] if isinstance(schema.get("$ref"), str) else []
    return own + [ref for value in schema.values() for ref in refs(value)]


def resolved(schema: Any, root: Any) -> Any:
    """What a local reference stands for; the schema itself where it is none, or leads nowhere."""
    for _ in range(_MOST_HOPS):
        if not isinstance(schema, Mapping) or not isinstance(schema.get("$ref"), str):
            break
        place = _at(schema["$ref"], root)
        if place is None:
            break
        schema = place
    return schema


def _at(ref: str, root: Any) -> Any:
    """What stands at ``#/a/b``, None where nothing does."""
    if not ref.startswith("#"):
        return None
    for word in unquote(ref[1:]).split("/")[1:]:
        word = word.replace("~1", "/").replace("~0", "~")
        if isinstance(root, list) and word.isdecimal() and int(word) < len(root):
            root = root[int(word)]
        else:
            root = root.get(word) if isinstance(root, Mapping) else None
    return root


def lost_refs(schema: Mapping[str, Any]) -> list[str]:
    """References that lead nowhere in the schema; none are judged where names are given to
    places (``$id``, ``$anchor``)."""
    text = repr(schema)
    if any(f"'{word}'" in text for word in ("$id", "$anchor", "$dynamicAnchor", "id")):
        return []
    return [ref for ref in refs(schema) if _at(ref, schema) is None]


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
    return each_schema(schema, lone_ref)


def each_schema(schema: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """The schema with a change made to each schema in it, the innermost first.

    Args:
        schema: It is left as it is; values that are no schemas (``const``, ``default``) are kept.
        change: Is given a fresh dictionary, which it may change.
    """
    if isinstance(schema, list):
        return [each_schema(one, change) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    out: dict[str, Any] = {}
    for word, told in schema.items():
        if word in _VALUES:
            out[word] = told
        elif word in _MAPS and isinstance(told, Mapping):
            out[word] = {name: each_schema(one, change) for name, one in told.items()}
        else:
            out[word] = each_schema(told, change)
    return change(out)
