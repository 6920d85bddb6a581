"""``ToolConstraint.STRICT``: closed schemas, and the nulls they make models send.

Source: LLM turn, "Building the request" (L7).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["drop_nulls", "strict_schema"]


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
    return out


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


def drop_nulls(schema: Any, value: Any) -> Any:
    """Leave out a null where the property is optional and does not take null.

    Models write null for "not given", under strict always; it means the default.
    """
    if not isinstance(schema, Mapping):
        return value
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        return [drop_nulls(schema["items"], one) for one in value]
    properties = schema.get("properties")
    if not isinstance(value, Mapping) or not isinstance(properties, Mapping):
        return value
    required = set(schema.get("required") or ())
    out: dict[str, Any] = {}
    for key, one in value.items():
        own = properties.get(key)
        if one is None and own is not None and key not in required and not _takes_null(own):
            continue
        out[key] = drop_nulls(own, one)
    return out
