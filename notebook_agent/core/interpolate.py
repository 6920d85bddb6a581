"""``{{name}}`` in a prompt: what is inserted, what stays as typed.

A body is sent exactly as typed. Only ``{{name}}``, followed by any number of ``.attr``, ``[0]``
and ``["key"]``, inserts a variable's text, once; anything else between braces is literal.

Source: notebook side, the prompt (D7, D9, N01, N02); tune by experiment (``{{placeholders}}``).
"""

from __future__ import annotations

import ast
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from notebook_agent.core.text import clean_text
from notebook_agent.errors import AgentError, InputRejected

__all__ = [
    "Inserted",
    "Insertion",
    "InsertionError",
    "insert",
    "known_as",
    "literal_brace",
    "look_up",
    "no_text",
    "placeholders",
    "value_text",
]

# A candidate for an identifier: \w leaves out the vowel signs and accents that many scripts have.
_WORD: Final = r"[^\W\d][^\x00-/:-@\[-^`{-\x7f\s]*"
_PATH: Final = rf"(?:\.{_WORD}|\[\s*(?:-?\d+|\"[^\"\n]*\"|'[^'\n]*')\s*\])"
# Not after $ (a workflow's ${{ x }}), not inside three braces (an f-string's {{{x}}}).
_INSERT: Final = re.compile(
    rf"(?P<escaped>\\\{{\{{)|(?<![${{])\{{\{{[ \t]*(?P<name>{_WORD})(?P<path>{_PATH}*)[ \t]*\}}\}}(?!\}})"
)
_STEP: Final = re.compile(_PATH)
_HINT: Final = "To send the braces as they are, begin the cell with:\n%%agent --raw"
_SINGLE: Final = re.compile(rf"(?<!\{{)\{{({_WORD})\}}(?!\}})")


class InsertionError(InputRejected):
    """A ``{{name}}`` that cannot be inserted; nothing was sent."""


@dataclass(frozen=True, slots=True)
class Insertion:
    """One insertion: what stood between the braces, and its length in characters."""

    expression: str
    text: str


@dataclass(frozen=True, slots=True)
class Inserted:
    """A prompt with its values in place."""

    text: str
    insertions: tuple[Insertion, ...] = ()


def insert(
    body: str,
    namespace: Mapping[str, Any],
    *,
    raw: bool = False,
    fits: Callable[[str, str], None] | None = None,
    ahead: Callable[[str, Any], None] | None = None,
    where: str = "in this notebook",
    hint: str = _HINT,
    place: Callable[[str], str] = lambda text: text,
) -> Inserted:
    """Put the variables' text into a prompt.

    Args:
        body: The prompt as typed.
        namespace: Where the names are looked up.
        raw: Insert nothing (``--raw``); ``\\{{`` stays as typed too.
        fits: Called with expression and text of each value; raises when it is too big.
        ahead: Called with expression and value before its text is made, which may take long.
        where: Where names are looked up, for the error.
        hint: What to type when a name is not there, the error's last lines.
        place: Gives what is put in place of a value, for a line that is still to be split.

    Returns:
        The prompt, with lone surrogates and NUL made U+FFFD (D9). Inserted text is never
        expanded again.

    Raises:
        InsertionError: An unknown name, attribute, index or key.

    Example:
        >>> insert("hi {{who}}, {x} \\\\{{who}}", {"who": "Ada"}).text
        'hi Ada, {x} {{who}}'
    """
    if raw or "{{" not in body:
        return Inserted(clean_text(body))
    made: list[Insertion] = []

    def replace(match: re.Match[str]) -> str:
        if match["escaped"]:
            return place("{{")
        if not _is_named(match):
            return match[0]
        expression = match["name"] + match["path"]
        try:
            value = _look_up(match["name"], match["path"], namespace, where)
            text = _text_of(expression, value, ahead)
        except _NotThere as problem:
            raise InsertionError(
                f"{{{{{expression}}}}} cannot be inserted: {problem}. Nothing was sent.\n{hint}"
            ) from None
        if fits is not None:
            fits(expression, text)
        made.append(Insertion(expression, text))
        return place(text)

    return Inserted(clean_text(_INSERT.sub(replace, body)), tuple(made))


def placeholders(body: str) -> tuple[str, ...]:
    """Names that a prompt inserts, each once, in order; escaped ones are no placeholders.

    Example:
        >>> placeholders("{{a.b}} {{c}} \\\\{{d}} {{a}}")
        ('a', 'c')
    """
    found = (m["name"] for m in _INSERT.finditer(body) if not m["escaped"] and _is_named(m))
    return tuple(dict.fromkeys(found))


def look_up(expression: str, namespace: Mapping[str, Any]) -> Any:
    """The value of ``name.attr[0]["key"]``, by the rule of ``{{...}}``; nothing is evaluated.

    Raises:
        LookupError: It is no such expression, or it leads nowhere; the text says why.
    """
    match = _INSERT.fullmatch(f"{{{{{expression}}}}}")
    if match is None or match["escaped"] or not _is_named(match):
        raise LookupError(f"{expression!r} names no variable")
    try:
        return _look_up(match["name"], match["path"], namespace, "in this notebook")
    except _NotThere as problem:
        raise LookupError(str(problem)) from None


def known_as(name: str, namespace: Mapping[str, Any]) -> str:
    """A name as Python keeps it: in NFKC, unless it is there as it was typed."""
    return name if name in namespace else unicodedata.normalize("NFKC", name)


def _is_named(match: re.Match[str]) -> bool:
    attributes = (one[1:] for one in _STEP.findall(match["path"]) if one[0] == ".")
    return match["name"].isidentifier() and all(one.isidentifier() for one in attributes)


class _NotThere(Exception):  # it never leaves this module
    """A value that cannot be looked up; why, in words."""


def _look_up(name: str, path: str, namespace: Mapping[str, Any], where: str) -> Any:
    try:
        value = namespace[known_as(name, namespace)]
    except KeyError:
        raise _NotThere(f"there is no variable {name!r} {where}") from None
    done = name
    for step in _STEP.findall(path):
        try:
            value = _step(value, step)
        except (Exception, SystemExit) as error:  # noqa: BLE001  # a user object may raise anything
            why = f"{done}{step} failed: {type(error).__name__}: {str(error)[:120]}"
            raise _NotThere(why) from None
        done += step
    return value


def _text_of(expression: str, value: Any, ahead: Callable[[str, Any], None] | None) -> str:
    try:
        if ahead is not None:
            ahead(expression, value)
        return clean_text(value_text(value))
    except AgentError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001  # a user object may raise anything
        raise _NotThere(no_text(value, error)) from None


def _step(value: Any, step: str) -> Any:
    if step[0] == ".":
        return getattr(value, unicodedata.normalize("NFKC", step[1:]))
    return value[ast.literal_eval(step[1:-1].strip())]


def value_text(value: Any) -> str:
    """A value as the text a prompt gets: a frame whole, a result's reply, else ``str``."""
    if isinstance(value, str):
        return str.__str__(value)  # a subclass may say something else
    if type(value).__module__.split(".")[0] == "pandas" and hasattr(value, "to_string"):
        return str(value.to_string())
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8", "replace")
    return str(value)


def no_text(value: Any, error: BaseException) -> str:
    """Why a value has no text, in words."""
    said = "" if isinstance(error, RecursionError) else str(error)[:120]
    why = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return f"its {type(value).__name__} cannot be written as text ({why})"


def literal_brace(body: str, namespace: Mapping[str, Any]) -> str | None:
    """The first ``{x}`` of a body without ``{{`` where ``x`` is a variable: sent literally.

    People who know f-strings expect an insertion there; the footer says once that none was made.
    """
    if "{{" in body:
        return None
    return next((n for n in _SINGLE.findall(body) if n in namespace), None)
