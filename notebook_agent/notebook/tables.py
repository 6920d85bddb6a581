"""Tables as aligned text and as plain HTML that reads without any style.

Source: notebook side, "Front ends" (F5); X02, X03.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

from notebook_agent.core.text import unset_maths, visible

__all__ = [
    "cells_of",
    "escape",
    "html_table",
    "number",
    "short_cell",
    "shorten",
    "text_table",
    "tokens",
]

LINE = "rgba(128,128,128,0.4)"


def escape(text: str) -> str:
    """Text for HTML: escaped, control characters and bidi overrides visible (D14)."""
    return html.escape(visible(text), quote=True)


def shorten(text: str, limit: int) -> str:
    """One line of at most ``limit`` characters, an ellipsis where something is missing."""
    line = " ".join(text[: limit * 4].split())
    if len(line) <= limit and len(text) <= limit * 4:
        return line
    return line[: limit - 1] + "…"


def number(value: Any) -> str:
    """A number for people: thousands separated, two digits for seconds, "" for unknown."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.2f}" if abs(value) < 10 else f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def tokens(value: int | None) -> str:
    """Tokens: ``?`` where the provider reported none."""
    return "?" if value is None else f"{value:,}"


def short_cell(value: Any, limit: int) -> str:
    """A text cell on one line, nothing invisible in it; "?" for <NA>."""
    return visible(shorten(value, limit)) if isinstance(value, str) else "?"


def cells_of(row: Iterable[Any], limit: int) -> list[str]:
    """A frame's row as short text; <NA> as ``?``."""
    out = []
    for value in row:
        if isinstance(value, str):
            out.append(shorten(value, limit))
        elif value is None or type(value).__name__ == "NAType" or value != value:  # noqa: PLR0124, RUF100  # NaN
            out.append("?")
        else:
            out.append(number(value.item() if hasattr(value, "item") else value))
    return out


def text_table(names: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]) -> str:
    """Columns aligned with spaces, a rule under the head."""
    shown = [[visible(cell).replace("\n", " ") for cell in row] for row in rows]
    widths = [
        max(len(name), *(len(row[i]) for row in shown), 0) if shown else len(name)
        for i, name in enumerate(names)
    ]

    def line(cells: Sequence[str]) -> str:
        parts = [
            cell.rjust(w) if r else cell.ljust(w)
            for cell, w, r in zip(cells, widths, right, strict=True)
        ]
        return "  ".join(parts).rstrip()

    return "\n".join([line(names), "  ".join("-" * w for w in widths), *(line(r) for r in shown)])


def html_table(
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[bool],
    *,
    caption: str = "",
    spread: bool = False,
) -> str:
    """A real table, inline declarations only; ``spread`` over the width of the text."""
    align = ["right" if r else "left" for r in right]
    cell = "padding: 4px 6px 4px 0; "
    head = "".join(
        f'<th scope="col" style="{cell}text-align: {a}; vertical-align: bottom; font-weight: 400">'
        f"{escape(name)}</th>"
        for name, a in zip(names, align, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f'<td style="{cell}white-space: nowrap; text-align: {a}">{escape(value)}</td>'
            for value, a in zip(row, align, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    title = f"<p>{escape(caption)}</p>" if caption else ""
    width = "; table-layout: auto; width: 100%; max-width: 690px" if spread else ""
    return unset_maths(
        f'{title}<div tabindex="0" style="overflow-x: auto"><table style="font-size: 12px; margin: 0{width}">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )
