"""A first look at arguments that needs no library: most schemas of tools are made of few words.

``surely_fits`` says yes only when the schema uses nothing but the words below, each in its proper
form, and the value fits. "No" means "not sure": the schema library then decides, and it alone
finds faults. Loading that library can take seconds, so arguments that are in order never wait
for it.

Source: Turn FSM, "ExecutingTools" (B50).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

__all__ = ["surely_fits"]

_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}
_PLAIN: Final = (str, int, bool, type(None))  # kinds whose equality is exact


def _is_schema(given: Any) -> bool:
    """A JSON Schema of which every word is known and well formed."""
    return type(given) is dict and all(
        type(key) is str and key in _WORDS and _WORDS[key][0](value) for key, value in given.items()
    )


def _is_count(given: Any) -> bool:
    return type(given) is int and given >= 0


def _is_number(given: Any) -> bool:
    return type(given) in (int, float)


def _are_names(given: Any) -> bool:
    return (
        type(given) is list
        and all(type(one) is str for one in given)
        and len(set(given)) == len(given)
    )


def _are_schemas(given: Any) -> bool:
    return type(given) is dict and all(type(k) is str and _is_schema(v) for k, v in given.items())


def _object_fits(schema: Mapping[str, Any], value: Any) -> bool:
    """``properties``, ``required`` and ``additionalProperties``; they bind objects only."""
    if type(value) is not dict:
        return True
    known = schema.get("properties", {})
    more = schema.get("additionalProperties", True)
    if any(name not in value for name in schema.get("required", ())):
        return False
    for name, one in value.items():
        if type(name) is not str:
            return False
        rule = known.get(name, more)
        if rule is False or (rule is not True and not _fits(rule, one)):
            return False
    return True


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and type(one) in _PLAIN and bool(one == other)


def _sized(
    kind: type[str] | type[list[Any]], test: Callable[[int, int], bool]
) -> Callable[[Any, Any], bool]:
    def fits(limit: Any, value: Any) -> bool:
        return type(value) is not kind or test(len(value), limit)

    return fits


def _bounded(test: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    return lambda limit, value: type(value) not in (int, float) or test(value, limit)


def _any_word(_given: Any) -> bool:
    return True


def _always(_rule: Any, _value: Any) -> bool:
    return True


def _is_text(given: Any) -> bool:
    return type(given) is str


# word -> (whether what stands there is well formed, whether the value fits it)
_WORDS: Final[Mapping[str, tuple[Callable[[Any], bool], Callable[[Any, Any], bool]]]] = {
    "title": (_is_text, _always),
    "description": (_is_text, _always),
    "default": (_any_word, _always),
    "type": (
        lambda given: type(given) is str and given in _TYPES,
        lambda name, value: type(value) in _TYPES[name],
    ),
    "properties": (_are_schemas, _always),  # with the two below: _object_fits
    "required": (_are_names, _always),
    "additionalProperties": (lambda given: type(given) is bool or _is_schema(given), _always),
    "items": (
        _is_schema,
        lambda rule, value: type(value) is not list or all(_fits(rule, one) for one in value),
    ),
    "enum": (
        lambda given: type(given) is list and bool(given),
        lambda given, value: any(_same(one, value) for one in given),
    ),
    "const": (_any_word, _same),
    "anyOf": (
        lambda given: type(given) is list and bool(given) and all(map(_is_schema, given)),
        lambda given, value: any(_fits(rule, value) for rule in given),
    ),
    "minimum": (_is_number, _bounded(lambda value, limit: value >= limit)),
    "maximum": (_is_number, _bounded(lambda value, limit: value <= limit)),
    "exclusiveMinimum": (_is_number, _bounded(lambda value, limit: value > limit)),
    "exclusiveMaximum": (_is_number, _bounded(lambda value, limit: value < limit)),
    "minLength": (_is_count, _sized(str, lambda size, limit: size >= limit)),
    "maxLength": (_is_count, _sized(str, lambda size, limit: size <= limit)),
    "minItems": (_is_count, _sized(list, lambda size, limit: size >= limit)),
    "maxItems": (_is_count, _sized(list, lambda size, limit: size <= limit)),
}


def _fits(schema: Mapping[str, Any], value: Any) -> bool:
    return all(_WORDS[word][1](rule, value) for word, rule in schema.items()) and _object_fits(
        schema, value
    )


def surely_fits(schema: Any, value: Any) -> bool:
    """Whether a JSON value fits a JSON Schema beyond doubt.

    Args:
        schema: JSON Schema.
        value: The JSON value.

    Returns:
        True when it fits; False when it does not, or when only a full validator can tell.

    Example:
        >>> surely_fits({"type": "object", "properties": {"n": {"type": "integer"}}}, {"n": 3})
        True
        >>> surely_fits({"type": "integer"}, 3.0)
        False
    """
    try:
        return _is_schema(schema) and _fits(schema, value)
    except RecursionError:
        return False
