"""JSON Schemas in the narrower forms that services force replies to.

Source: provider formats, structured output (L7).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from notebook_agent.core.schema_refs import each_schema, lone_ref, reaches_itself

__all__ = ["closed_schema", "strict_schema"]

# Words of the closed form, beside those that hold schemas. Services refuse or do not enforce the
# others (bounds, defaults, notes of one's own); the reply is validated by the whole schema
# afterwards, so leaving them out loses nothing.
_KEPT: Final = frozenset({"$ref", "const", "description", "enum", "required", "type"})
_MAPS: Final = frozenset({"$defs", "definitions", "properties"})
_FORMATS: Final = frozenset(
    {"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid"}
)
# One of these says what a value is; a service refuses a schema that says nothing.
_SHAPES: Final = frozenset({"$ref", "anyOf", "properties", "items"})
_TELLING: Final = frozenset({"$ref", "anyOf", "type"})
_TYPES: Final[Mapping[type, str]] = {
    bool: "boolean", dict: "object", float: "number", int: "integer", list: "array",
    str: "string", type(None): "null",
}  # fmt: skip
# Words that no closed form has.
_BEYOND: Final = frozenset(
    {"patternProperties", "propertyNames", "not", "if", "then", "else", "dependentRequired",
     "dependentSchemas", "prefixItems", "contains", "unevaluatedProperties"}
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
    return None if closed is None else each_schema(closed, _all_required)


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
        if "anyOf" in out or (not recursion and _recursive(out)):
            return None
    except _Beyond:
        return None
    return out


def _closed(schema: Any, depth: int) -> Any:
    if depth > _DEEPEST:
        raise _Beyond
    if not isinstance(schema, Mapping) or _BEYOND & schema.keys():
        raise _Beyond
    schema = _alone(schema)
    out: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _MAPS and isinstance(value, Mapping):
            out[key] = {name: _closed(one, depth + 1) for name, one in value.items()}
        elif key in ("anyOf", "oneOf"):  # of several that fit, the validation tells
            if "anyOf" in out:
                raise _Beyond
            out["anyOf"] = [_closed(one, depth + 1) for one in value]
        elif key == "items":
            out[key] = _closed(value, depth + 1)
        elif key in _KEPT or (key == "format" and value in _FORMATS):
            out[key] = value
    _told_type(out)
    kinds = out.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if "object" in kinds:
        free = schema.get("additionalProperties") not in (None, False) or "properties" not in out
        if free or set(out.get("required", ())) - out["properties"].keys():
            raise _Beyond
        out["additionalProperties"] = False
    if ("array" in kinds and "items" not in out) or len(_SHAPES & out.keys()) > 1:
        raise _Beyond
    return lone_ref(out)


def _alone(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema with what its one ``allOf`` says; of several there is no closed form."""
    inner = schema.get("allOf")
    if inner is None:
        return schema
    if not isinstance(inner, list) or len(inner) != 1 or not isinstance(inner[0], Mapping):
        raise _Beyond
    beside = {k: v for k, v in schema.items() if k != "allOf"}
    if beside.keys() & inner[0].keys() - {"description", "title", "default"}:
        raise _Beyond
    return {**inner[0], **beside}


def _told_type(out: dict[str, Any]) -> None:
    """The type, told where the schema leaves it to its values or its properties."""
    if _TELLING & out.keys():
        return
    if "properties" in out:
        out["type"] = "object"
        return
    values = out.get("enum", [out["const"]] if "const" in out else [])
    found = sorted({_TYPES[type(v)] for v in values if type(v) in _TYPES})
    if not found:
        raise _Beyond
    out["type"] = found[0] if len(found) == 1 else found


def _all_required(out: dict[str, Any]) -> dict[str, Any]:
    if "properties" in out:
        given = set(out.get("required", ()))
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
