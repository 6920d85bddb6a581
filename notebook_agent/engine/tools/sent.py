"""A tool's parameters in the form that every service takes.

Services refuse, whatever the tool means: a root that is no object, an object without ``properties``, a
list without ``items``, a choice at the root. Schemas of MCP servers and schemas written by hand have
all of these. What is sent is a help for the model; arguments are checked by the tool's own schema (B50).

Source: Turn FSM, "ExecutingTools" (B50); LLM turn, "Building the request" (L12).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from notebook_agent.core.schema_refs import each_schema, resolved

__all__ = ["sent_schema"]

_CHOICES: Final = ("anyOf", "oneOf", "allOf")
_REFUSED: Final = frozenset({*_CHOICES, "const", "else", "enum", "if", "not", "then"})


def sent_schema(given: object) -> dict[str, Any]:
    """The schema of an object with ``properties``, equal to ``given`` as far as it is one.

    Args:
        given: A tool's parameters; anything that is no schema of an object becomes an open one.
    """
    root = dict(given) if isinstance(given, Mapping) else {}
    if "$ref" in root:
        target = resolved(root, root)
        beside = {k: v for k, v in root.items() if k != "$ref"}
        root = (
            {**target, **beside} if isinstance(target, Mapping) and target is not root else beside
        )
    kind = root.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        root = {}
    found = root.get("properties")
    properties = dict(found) if isinstance(found, Mapping) else {}
    required = [name for name in root.get("required") or () if isinstance(name, str)]
    for word in _CHOICES:
        several = root.get(word)
        for one in several if isinstance(several, list) else ():
            branch = resolved(one, root)
            inner = branch.get("properties") if isinstance(branch, Mapping) else None
            if isinstance(inner, Mapping):
                properties = {**inner, **properties}
                if word == "allOf":
                    required += [n for n in branch.get("required") or () if n not in required]
    kept = {k: v for k, v in root.items() if k not in _REFUSED}
    kept |= {"type": "object", "properties": properties}
    if required:
        kept["required"] = required
    whole: dict[str, Any] = each_schema(kept, _with_items)
    return whole


def _with_items(out: dict[str, Any]) -> dict[str, Any]:
    """``items`` at a list: what it holds is anything where nobody says."""
    kind = out.get("type")
    if (kind == "array" or (isinstance(kind, list) and "array" in kind)) and "items" not in out:
        out["items"] = {}
    return out
