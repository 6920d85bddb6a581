"""Arguments against a tool's JSON Schema: every fault, not only the first.

Source: Turn FSM, "ExecutingTools" (B50).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from notebook_agent.engine.tools.quick_check import surely_fits

__all__ = ["schema_faults"]

_LONG: Final = 300  # characters of one fault: a message quotes the value


def schema_faults(schema: Mapping[str, Any] | None, arguments: Any) -> list[str]:
    """What is wrong with arguments, one line per fault, ordered by place.

    Args:
        schema: JSON Schema; None, or one that is no object, accepts everything.
        arguments: The JSON value.

    Returns:
        Lines ``path: what is wrong``; empty when all is well. A schema that is itself broken
        gives one line that says so.
    """
    if not isinstance(schema, Mapping) or not schema:
        return []
    plain = dict(schema)
    if surely_fits(plain, arguments):
        return []
    # The package first: two threads that enter its modules at different doors break its import.
    import jsonschema  # noqa: F401, PLC0415  # slow to import
    from jsonschema.exceptions import SchemaError  # noqa: PLC0415  # slow to import
    from jsonschema.validators import validator_for  # noqa: PLC0415  # slow to import
    from referencing import Registry  # noqa: PLC0415  # comes with jsonschema
    from referencing.exceptions import Unresolvable  # noqa: PLC0415  # comes with jsonschema

    kind = validator_for(plain)
    try:
        kind.check_schema(plain)
        # an empty registry: a reference to another host is an error, never a request
        found = list(kind(plain, registry=Registry()).iter_errors(arguments))
    except SchemaError as error:
        return [_cut(f"the tool's own schema is broken: {error.message}")]
    except Unresolvable as error:
        return [_cut(f"the tool's own schema has a reference that leads nowhere: {error}")]
    except RecursionError:
        return ["the tool's own schema refers to itself without end"]
    found.sort(key=lambda error: [str(part) for part in error.absolute_path])
    return [_cut(_line(error.absolute_path, error.message)) for error in found]


def _line(path: Any, message: str) -> str:
    where = ".".join(str(part) for part in path)
    return f"{where}: {message}" if where else message


def _cut(text: str) -> str:
    return text if len(text) <= _LONG else f"{text[: _LONG - 1]}…"
