"""JSON Schemas in the narrower forms that services force replies to.

Source: provider formats, structured output (L7).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from notebook_agent.core.schema_refs import reaches_itself

__all__ = ["closed_schema", "strict_schema"]

# Words that services with closed schemas refuse or do not enforce; the reply is validated by the
# whole schema afterwards, so leaving them out loses nothing.
_LOOSENED: Final = frozenset(
    {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength",
     "maxLength", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties",
     "pattern", "default", "examples", "$schema", "$id", "title"}
)  # fmt: skip
# Words that no closed form has.
_BEYOND: Final = frozenset(
    {"patternProperties", "propertyNames", "not", "if", "then", "else", "dependentRequired",
     "dependentSchemas", "prefixItems", "contains", "unevaluatedProperties", "oneOf"}
)  # fmt: skip
_DEEPEST: Final = 60
NULL: Final = {"type": "null"}


class _Beyond(Exception):
    """The schema has no closed form."""


def strict_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The closed form with every property required; an optional one takes null as well.

    Returns:
        None when the schema has no such form.
    """
    closed = closed_schema(schema, recursion=True)
    return None if closed is None else _all_required(closed)


def closed_schema(schema: Mapping[str, Any], *, recursion: bool = False) -> dict[str, Any] | None:
    """The schema with every object closed and every bound left out.

    Args:
        schema: A JSON Schema object.
        recursion: Whether a definition may reach itself.

    Returns:
        The closed form, None when there is none: maps with free keys, recursion, conditions.
    """
    try:
        out: dict[str, Any] = _closed(schema, 0)
        if not recursion and _recursive(out):
            return None
    except _Beyond:
        return None
    return out


def _closed(schema: Any, depth: int) -> Any:
    if depth > _DEEPEST:
        raise _Beyond
    if isinstance(schema, list):
        return [_closed(one, depth + 1) for one in schema]
    if not isinstance(schema, Mapping):
        if schema is True:
            raise _Beyond
        return schema
    if _BEYOND & schema.keys() or not schema:
        raise _Beyond
    out: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _LOOSENED or key == "additionalProperties":
            continue
        if key in ("properties", "$defs", "definitions") and isinstance(value, Mapping):
            out[key] = {name: _closed(one, depth + 1) for name, one in value.items()}
        elif key in ("enum", "const", "required", "type", "description", "$ref", "format"):
            out[key] = value
        else:
            out[key] = _closed(value, depth + 1)
    kind = schema.get("type")
    if kind == "object" or (isinstance(kind, list) and "object" in kind) or "properties" in schema:
        if schema.get("additionalProperties") not in (None, False) or "properties" not in out:
            raise _Beyond
        out["additionalProperties"] = False
    return out


def _all_required(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_all_required(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    out = {
        k: v
        if k in ("enum", "const", "required")
        else {n: _all_required(p) for n, p in v.items()}
        if k in ("properties", "$defs", "definitions")
        else _all_required(v)
        for k, v in schema.items()
    }
    if "properties" in out:
        given = set(schema.get("required", ()))
        out["properties"] = {
            n: p if n in given else _or_null(p) for n, p in out["properties"].items()
        }
        out["required"] = list(out["properties"])
    return out


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    for word in ("anyOf", "type"):
        told = schema.get(word)
        if told == "null" or (isinstance(told, list) and ("null" in told or NULL in told)):
            return schema
    return {"anyOf": [schema, NULL]}


def _recursive(schema: Mapping[str, Any]) -> bool:
    """Whether a definition, or the root, reaches itself."""
    defs = {f"#/{word}/{name}": one for word in ("$defs", "definitions")
            for name, one in schema.get(word, {}).items()}  # fmt: skip
    rest = {k: v for k, v in schema.items() if k not in ("$defs", "definitions")}
    defs["#"] = rest
    return any(reaches_itself(start, defs) for start in defs)
