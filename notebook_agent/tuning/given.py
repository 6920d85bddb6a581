"""What labs and sweeps are given, looked at before anything is sent: a slip is said with what to
write instead.

Source: tune by experiment (bad input: clear, nothing sent).
"""

from __future__ import annotations

import difflib
import inspect
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from notebook_agent.engine.runtime import AgentRuntime
from notebook_agent.errors import ConfigError

__all__ = ["amount", "mappings", "named", "numbers", "one_or_more", "runtime_settings", "whole"]

# The lab's own affair: every cell has its own client, options, system prompt and session.
_OURS = frozenset({"client_or_name", "options", "session", "system"})


def named(field: str, value: Any, kinds: tuple[type, ...], legal: str) -> dict[Any, Any]:
    """A mapping of names to values of these kinds.

    Raises:
        ConfigError: It is something else.
    """
    if not isinstance(value, Mapping):
        raise ConfigError(field=field, value=value, legal=f"a mapping, {legal}")
    for name, one in value.items():
        if not isinstance(one, kinds):
            raise ConfigError(field=f"{field}[{name!r}]", value=one, legal=legal)
    return dict(value)


def mappings(field: str, value: Any) -> list[dict[str, Any]]:
    """Rows of values: a list of mappings.

    Raises:
        ConfigError: It is something else; of a DataFrame with what to write instead.
    """
    if value is None:
        return []
    if hasattr(value, "to_dict") and hasattr(value, "columns"):
        raise ConfigError(
            f"{field} is a {type(value).__name__}, and a list of mappings is needed.\n"
            f'Write:  {field}.to_dict("records")',
            field=field,
        )
    legal = 'a list of mappings:  [{"name": "value"}, ...]'
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise ConfigError(field=field, value=value, legal=legal)
    rows = list(value)
    for at, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise ConfigError(field=f"{field}[{at}]", value=row, legal=legal)
    return [dict(row) for row in rows]


def one_or_more(field: str, value: Any, alone: Any, legal: str) -> list[Any]:
    """One thing, or several.

    Args:
        alone: Whether a value is one thing: ``alone(value)``.

    Raises:
        ConfigError: It is neither.
    """
    if alone(value):
        return [value]
    if not isinstance(value, Iterable):
        raise ConfigError(field=field, value=value, legal=legal)
    found = list(value)
    for one in found:
        if not alone(one):
            raise ConfigError(field=field, value=one, legal=legal)
    return found


def whole(field: str, value: Any, least: int, *, none: bool = False) -> int | None:
    """A whole number of at least ``least``, of numpy too.

    Args:
        none: Whether None is legal.

    Raises:
        ConfigError: It is something else.
    """
    if value is None and none:
        return None
    legal = f"a whole number, {least} or more" + (", or None" if none else "")
    try:
        found = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        found = None
    if found is None or found < least:
        raise ConfigError(field=field, value=value, legal=legal)
    return found


def numbers(field: str, value: Any) -> list[int | None]:
    """Whole numbers, or None among them.

    Raises:
        ConfigError: It is something else.
    """
    legal = "a list of whole numbers, or None among them"
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise ConfigError(field=field, value=value, legal=legal)
    found: list[int | None] = []
    for one in value:
        try:
            if isinstance(one, bool):
                raise TypeError
            found.append(None if one is None else operator.index(one))
        except TypeError:
            raise ConfigError(field=field, value=one, legal=legal) from None
    return found


def amount(field: str, value: Any, *, none: bool = False) -> None:
    """A finite number, 0 or more.

    Raises:
        ConfigError: It is something else.
    """
    if value is None and none:
        return
    good = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not good or not math.isfinite(value) or value < 0:
        raise ConfigError(field=field, value=value, legal="a number, 0 or more")


def runtime_settings(settings: Mapping[str, Any]) -> None:
    """Settings of each cell's runtime, by their names.

    Raises:
        ConfigError: There is none of that name, or it is the lab's to give.
    """
    known: Sequence[str] = [
        name for name in inspect.signature(AgentRuntime).parameters if name not in _OURS
    ]
    for name in settings:
        if name == "session":
            raise ConfigError(
                "Each cell has a session of its own: one that they share would show a cell the "
                "answers of the others.\nPut what went before into the variant's text.",
                field=name,
            )
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else ", ".join(known)
            raise ConfigError(f"A lab has no setting {name!r}: {hint}", field=name)
