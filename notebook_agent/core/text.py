"""What enters and leaves as text.

In: lone surrogates and NUL become U+FFFD once, where text enters (D9). Out: every other control
character and bidirectional override is kept in store and made visible on output only (X03, D14).
"""

from __future__ import annotations

import re
from typing import Any, Final

__all__ = ["clean_json", "clean_text", "unset_maths", "visible"]

_ENTERS: Final = re.compile("[\ud800-\udfff\x00]")
# C0 but tab and newline, DEL, C1, bidi overrides and isolates, line separators.
_LEAVES: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069\ufeff]"
    "|[\ud800-\udfff]"
)

_TAG: Final = re.compile(r"""(<[^<>"]*(?:"[^"]*"[^<>"]*)*>)""")


def clean_text(text: str) -> str:
    """Text as it may be counted, sent, stored and shown: no lone surrogate, no NUL.

    A surrogate pair written as two escapes is joined into its character first.

    Example:
        >>> clean_text("a\\ud83d b")
        'a\ufffd b'
    """
    if text.isascii() and "\x00" not in text:
        return text
    if _ENTERS.search(text) is None:
        return text
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return joined.replace("\x00", "\ufffd")


def clean_json(value: Any) -> Any:
    """``clean_text`` on every string of a JSON value, keys too."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [clean_json(v) for v in value]
    if isinstance(value, dict):
        return {clean_text(str(k)): clean_json(v) for k, v in value.items()}
    return value


def visible(text: str) -> str:
    """Control characters as pictures, bidi overrides as ``<U+202E>``; tab and newline stay.

    CRLF becomes a newline.

    Example:
        >>> visible("a\\x1b[2J")
        'a␛[2J'
    """
    return _LEAVES.sub(_picture, text.replace("\r\n", "\n"))


def unset_maths(markup: str) -> str:
    """HTML of ours in whose text no front end finds maths to set.

    JupyterLab, nbconvert and others run MathJax over ``text/html``: two prices in one line became
    a formula, and commands in a model's text could draw over the page. A dollar or a backslash
    that stands alone in an element begins nothing, with every attribute taken away as well.
    Ruling: D14, F5, ``abbr`` has no look of its own and passes every cleaner that was tried.

    Args:
        markup: Well-formed, every ``<`` of its text escaped.

    Example:
        >>> unset_maths("<p>$5, <code>$x</code></p>")
        '<p><abbr>&#36;</abbr>5, <code>$x</code></p>'
    """
    if "$" not in markup and "\\" not in markup:
        return markup
    out, code = [], 0  # front ends skip ``pre`` and ``code``
    for at, piece in enumerate(_TAG.split(markup)):
        if at % 2:
            code += piece.startswith(("<pre", "<code"))
            code -= piece.startswith(("</pre", "</code"))
        elif not code:
            piece = piece.replace("$", "<abbr>&#36;</abbr>").replace("\\", "<abbr>&#92;</abbr>")
        out.append(piece)
    return "".join(out)


def _picture(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if 0xD800 <= code <= 0xDFFF:
        return "\ufffd"
    return f"<U+{code:04X}>"
