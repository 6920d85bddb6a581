"""Report: what a verb shows. Plain values, a stable ``text/plain``, nothing to render.

Source: notebook side, commands (D14, F5, F12, X03).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from notebook_agent.core.text import visible

__all__ = ["Report", "report"]


@dataclass(frozen=True, slots=True)
class Report:
    """Lines of text: a title, pairs, a table, notes.

    Attributes:
        title: First line, "" for none.
        pairs: Name and value, aligned.
        header, rows: A table; cells are text.
        lines: Free lines at the end.
        data: The same as plain values, for programs.
    """

    title: str = ""
    pairs: tuple[tuple[str, str], ...] = ()
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    lines: tuple[str, ...] = ()
    data: Any = None

    def __str__(self) -> str:
        out = [self.title] if self.title else []
        width = max((len(name) for name, _ in self.pairs), default=0)
        for name, value in self.pairs:
            first, *rest = str(value).split("\n")
            out.append(f"{name:<{width}}  {first}".rstrip())
            out += [" " * (width + 2) + one for one in rest]
        if self.pairs and self.header:
            out.append("")
        out += _table(self.header, self.rows)
        out += self.lines
        return visible("\n".join(out))

    def __repr__(self) -> str:
        return str(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: ARG002  # IPython's signature
        printer.text(str(self))


def report(title: str = "", *lines: str, **pairs: Any) -> Report:
    """A report of a title, lines and pairs; underscores in pair names become spaces."""
    return Report(
        title,
        tuple((name.replace("_", " "), str(value)) for name, value in pairs.items()),
        lines=lines,
    )


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    if not header:
        return []
    cells = [header, *rows]
    widths = [max(len(str(row[i])) for row in cells) for i in range(len(header))]
    return [
        "  ".join(
            str(cell).replace("\n", " ").ljust(w) for cell, w in zip(row, widths, strict=True)
        ).rstrip()
        for row in cells
    ]
