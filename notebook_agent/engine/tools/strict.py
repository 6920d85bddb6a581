"""``ToolConstraint.STRICT``: closed schemas, and the nulls they make models send.

Source: LLM turn, "Building the request" (L7).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from notebook_agent.core.schema_refs import lone_ref, resolved

__all__ = ["drop_nulls", "strict_schema"]

# Choices that only lead to choices; what is deeper is not looked for.
_MOST_HOPS: Final = 20


def strict_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema for ``ToolConstraint.STRICT``: no extra properties, every property required.

    A property that was optional takes null as well, which reads as left out. Defaults go: a
    required property has none. Maps with free keys stay as they are: strict has no form for
    them, and the provider says so.
    """
    out: dict[str, Any] = _strict(dict(schema))
    if out.get("type") == "object" and "properties" not in out:
        out |= {"properties": {}, "required": [], "additionalProperties": False}
    return out


def _strict(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    out: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "default":
            continue
        if key in ("properties", "$defs") and isinstance(value, dict):
            out[key] = {name: _strict(one) for name, one in value.items()}
        elif key in ("enum", "const", "examples", "required"):
            out[key] = value
        else:
            out[key] = _strict(value)
    if isinstance(out.get("properties"), dict):
        required = set(schema.get("required", ()))
        out["properties"] = {
            name: one if name in required else _nullable(one)
            for name, one in out["properties"].items()
        }
        out["required"] = list(out["properties"])
        out["additionalProperties"] = False
    return lone_ref(out)


def _nullable(schema: Any) -> Any:
    if not isinstance(schema, dict) or _takes_null(schema):
        return schema
    if isinstance(schema.get("type"), str) and "enum" not in schema and "const" not in schema:
        return {**schema, "type": [schema["type"], "null"]}
    beside = {k: v for k, v in schema.items() if k == "description"}
    rest = {k: v for k, v in schema.items() if k != "description"}
    return {"anyOf": [rest, {"type": "null"}], **beside}


def _takes_null(schema: Any) -> bool:
    if not isinstance(schema, Mapping) or not schema:
        return True
    kind = schema.get("type")
    if kind == "null" or (isinstance(kind, (list, tuple)) and "null" in kind):
        return True
    if "enum" in schema:
        return None in schema["enum"]
    if "const" in schema:
        return schema["const"] is None
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return any(_takes_null(one) for one in schema[word])
    return kind is None and "$ref" not in schema and "allOf" not in schema


def drop_nulls(schema: Any, value: Any, root: Any = None) -> Any:
    """Leave out a null where the property is optional and does not take null.

    Models write null for "not given", under strict always; it means the default.

    Args:
        schema: Of the value.
        value: JSON.
        root: What references begin at; ``schema`` itself where it is left out.
    """
    root = schema if root is None else root
    schema = _meant(schema, value, root)
    if not isinstance(schema, Mapping):
        return value
    if isinstance(value, list):
        items = schema.get("items")
        return [drop_nulls(items, one, root) for one in value] if items else value
    properties = schema.get("properties") or {}
    if not isinstance(value, Mapping) or not isinstance(properties, Mapping):
        return value
    required = set(schema.get("required") or ())
    free = schema.get("additionalProperties")
    out: dict[str, Any] = {}
    for key, one in value.items():
        own = properties.get(key, free)
        optional = key in properties and own is not None and key not in required
        if one is None and optional and not _takes_null(resolved(own, root)):
            continue
        out[key] = drop_nulls(own, one, root)
    return out


def _meant(schema: Any, value: Any, root: Any, hops: int = 0) -> Any:
    """The schema that a value is of: behind references, and the first of several that has the
    value's shape and knows its keys."""
    schema = resolved(schema, root)
    if not isinstance(schema, Mapping) or not isinstance(value, (list, Mapping)):
        return schema
    if hops > _MOST_HOPS:
        return schema
    for word in ("anyOf", "oneOf", "allOf"):
        several = schema.get(word)
        for one in several if isinstance(several, list) else ():
            found = _meant(one, value, root, hops + 1)
            if isinstance(found, Mapping) and _shaped(found, value):
                return found
    return schema


def _shaped(schema: Mapping[str, Any], value: Any) -> bool:
    """Whether a value is of an object's or a list's schema, as far as its outside tells."""
    if isinstance(value, list):
        return "items" in schema
    properties = schema.get("properties")
    return isinstance(properties, Mapping) and value.keys() <= properties.keys() and all(
        value[name] == one["const"]
        for name, one in properties.items()
        if name in value and isinstance(one, Mapping) and "const" in one
    )  # fmt: skip
