"""``{{name}}`` in a prompt: what is inserted, what stays as typed.

A body is sent exactly as typed. Only ``{{name}}``, followed by any number of ``.attr``, ``[0]``
and ``["key"]``, inserts a variable's text, once; anything else between braces is literal.

Source: notebook side, the prompt (D7, D9, N01, N02).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from notebook_agent.core.text import clean_text
from notebook_agent.errors import InputRejected

__all__ = ["Inserted", "Insertion", "InsertionError", "insert", "literal_brace", "value_text"]

_PATH: Final = r"(?:\.[^\W\d]\w*|\[\s*(?:-?\d+|\"[^\"\n]*\"|'[^'\n]*')\s*\])"
# Not after $ (a workflow's ${{ x }}), not inside three braces (an f-string's {{{x}}}).
_INSERT: Final = re.compile(
    rf"(?P<escaped>\\\{{\{{)|(?<![${{])\{{\{{[ \t]*(?P<name>[^\W\d]\w*)(?P<path>{_PATH}*)[ \t]*\}}\}}(?!\}})"
)
_STEP: Final = re.compile(_PATH)
_SINGLE: Final = re.compile(r"(?<!\{)\{([^\W\d]\w*)\}(?!\})")


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
) -> Inserted:
    """Put the variables' text into a prompt.

    Args:
        body: The prompt as typed.
        namespace: Where the names are looked up.
        raw: Insert nothing (``--raw``); ``\\{{`` stays as typed too.
        fits: Called with expression and text of each value; raises when it is too big.

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
            return "{{"
        expression = match["name"] + match["path"]
        text = clean_text(value_text(_look_up(match["name"], match["path"], namespace)))
        if fits is not None:
            fits(expression, text)
        made.append(Insertion(expression, text))
        return text

    return Inserted(clean_text(_INSERT.sub(replace, body)), tuple(made))


def _look_up(name: str, path: str, namespace: Mapping[str, Any]) -> Any:
    try:
        value = namespace[name]
    except KeyError:
        raise _refused(name + path, f"there is no variable {name!r} in this notebook") from None
    done = name
    for step in _STEP.findall(path):
        try:
            value = getattr(value, step[1:]) if step[0] == "." else _item(value, step)
        except Exception as error:  # noqa: BLE001  # a user object may raise anything
            why = f"{done}{step} failed: {type(error).__name__}: {str(error)[:120]}"
            raise _refused(name + path, why) from None
        done += step
    return value


def _item(value: Any, step: str) -> Any:
    return value[ast.literal_eval(step[1:-1].strip())]


def _refused(expression: str, why: str) -> InsertionError:
    return InsertionError(
        f"{{{{{expression}}}}} cannot be inserted: {why}. Nothing was sent.\n"
        "To send the braces as they are, begin the cell with:\n"
        "%%agent --raw"
    )


def value_text(value: Any) -> str:
    """A value as the text a prompt gets: a frame whole, a result's reply, else ``str``."""
    if isinstance(value, str):
        return value
    if type(value).__module__.split(".")[0] == "pandas" and hasattr(value, "to_string"):
        return str(value.to_string())
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8", "replace")
    return str(value)


def literal_brace(body: str, namespace: Mapping[str, Any]) -> str | None:
    """The first ``{x}`` of a body without ``{{`` where ``x`` is a variable: sent literally.

    People who know f-strings expect an insertion there; the footer says once that none was made.
    """
    if "{{" in body:
        return None
    return next((n for n in _SINGLE.findall(body) if n in namespace), None)
