"""Reads a docstring: the prose for the model, and one description per parameter.

Google, NumPy and Sphinx styles; a docstring in none of them is all prose.

Source: Turn FSM, "ExecutingTools" (B48); L12.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field
from typing import Final

__all__ = ["Docstring", "parse_docstring"]

_ARGUMENTS: Final = frozenset(
    {"args", "arguments", "parameters", "params", "keyword args", "keyword arguments"}
    | {"other parameters"}
)
_SECTIONS: Final = _ARGUMENTS | {
    "returns", "return", "yields", "yield", "raises", "raise", "except", "exceptions", "warns",
    "example", "examples", "note", "notes", "attributes", "warning", "warnings", "see also",
    "references", "todo", "source", "methods",
}  # fmt: skip
_GOOGLE_HEAD: Final = re.compile(r"^([A-Za-z ]+):\s*$")
_GOOGLE_ENTRY: Final = re.compile(
    r"^(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?:\([^)]*\))?\s*:\s?(.*)$"
)
_NUMPY_ENTRY: Final = re.compile(r"^(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")
_FIELD: Final = re.compile(
    r"^[:@](?:param|parameter|arg|argument|key|keyword)\s+(?:[^:]*?\s)?(\*{0,2}\w+)\s*:\s*(.*)$"
)
_OTHER_FIELD: Final = re.compile(r"^[:@](?:return|returns|rtype|raises?|type|yields?)\b")


@dataclass(slots=True)
class Docstring:
    """What a docstring says: ``summary`` is the prose before the first section."""

    summary: str = ""
    params: dict[str, str] = field(default_factory=dict)


def parse_docstring(text: str | None) -> Docstring:
    """Split a docstring into prose and parameter descriptions.

    Args:
        text: The raw ``__doc__``, or None.

    Returns:
        The prose with its paragraphs, and name -> description in one line each.

    Example:
        >>> parse_docstring("Add.\\n\\nArgs:\\n    a (int): First.\\n    b: Second.").params
        {'a': 'First.', 'b': 'Second.'}
    """
    out = Docstring()
    lines = inspect.cleandoc(text or "").splitlines()
    prose: list[str] = []
    in_prose = True
    at = 0
    while at < len(lines):
        section, body = _section_at(lines, at)
        if section is not None:
            in_prose = False
            end = _section_end(lines, body)
            if section in _ARGUMENTS:
                numpy = body == at + 2
                out.params.update(_entries(lines[body:end], numpy=numpy))
            at = end
            continue
        if _FIELD.match(lines[at]) or _OTHER_FIELD.match(lines[at]):
            in_prose = False
            at = _read_field(lines, at, out.params)
            continue
        if in_prose:
            prose.append(lines[at])
        at += 1
    out.summary = "\n".join(prose).strip()
    return out


def _section_at(lines: list[str], at: int) -> tuple[str | None, int]:
    """The lower-case name of a section that starts here, and where its body starts."""
    line = lines[at].rstrip()
    google = _GOOGLE_HEAD.match(line)
    if google and google.group(1).strip().lower() in _SECTIONS:
        return google.group(1).strip().lower(), at + 1
    after = lines[at + 1].strip() if at + 1 < len(lines) else ""
    if line.strip().lower() in _SECTIONS and len(after) >= 3 and set(after) <= {"-", "="}:
        return line.strip().lower(), at + 2
    return None, at


def _section_end(lines: list[str], start: int) -> int:
    """A section ends at the next one, or at a line without indent that follows a blank one."""
    google = start < len(lines) and lines[start][:1] in (" ", "\t", "")
    for at in range(start, len(lines)):
        if _section_at(lines, at)[0] is not None:
            return at
        if google and at > start and lines[at][:1].strip() and not lines[at - 1].strip():
            return at
    return len(lines)


def _entries(body: list[str], *, numpy: bool) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    current: list[str] = []
    margin = min((_indent(line) for line in body if line.strip()), default=0)
    for line in body:
        if not line.strip():
            continue
        entry = None
        if _indent(line) == margin:
            entry = (_NUMPY_ENTRY if numpy else _GOOGLE_ENTRY).match(line.strip())
        if entry is None:
            current.append(line.strip())
            continue
        current = [] if numpy else [entry.group(2).strip()]
        for name in entry.group(1).split(","):
            found[name.strip().lstrip("*")] = current
    return {name: " ".join(part for part in parts if part) for name, parts in found.items()}


def _read_field(lines: list[str], at: int, params: dict[str, str]) -> int:
    """One Sphinx field with its indented continuation lines; returns the next line."""
    match = _FIELD.match(lines[at])
    parts = [match.group(2).strip()] if match else []
    at += 1
    while at < len(lines) and lines[at].strip() and lines[at][:1] in (" ", "\t"):
        parts.append(lines[at].strip())
        at += 1
    if match:
        params[match.group(1).lstrip("*")] = " ".join(part for part in parts if part)
    return at


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
