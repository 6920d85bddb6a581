"""Docstrings for the site: tables and roles of reStructuredText become Markdown.

The docstrings are written to be read in a terminal (``help(...)``); this is the only place that
knows the site wants them otherwise.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|exc):`~?([^`]+)`")
BAR = re.compile(r"^(\s*)=+(?: +=+)+\s*$")


def markdown(text: str) -> str:
    """The text with Markdown tables and plain names."""
    text = ROLE.sub(lambda m: f"`{m[1].rpartition('.')[2]}`", text)
    out: list[str] = []
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        if BAR.match(lines[at]):
            end = at
            bars = [at]
            while len(bars) < 3 and end + 1 < len(lines):
                end += 1
                if BAR.match(lines[end]):
                    bars.append(end)
            if len(bars) == 3:
                out += table(lines[at : end + 1], bars[1] - at)
                at = end + 1
                continue
        out.append(lines[at])
        at += 1
    return "\n".join(out).replace("``", "`")


def table(lines: list[str], head: int) -> list[str]:
    """A simple table; a row whose first column is empty goes on from the row above."""
    starts = [m.start() for m in re.finditer(r"=+", lines[0])]
    indent = " " * starts[0]
    rows: list[list[str]] = []
    for line in lines[1:head] + lines[head + 1 : -1]:
        cells = [line[a:b].strip() for a, b in zip(starts, [*starts[1:], None], strict=True)]
        if rows and not cells[0]:
            rows[-1] = [f"{old} {new}".strip() for old, new in zip(rows[-1], cells, strict=True)]
        else:
            rows.append(cells)
    done = ["| " + " | ".join(c.replace("|", "\\|") for c in row) + " |" for row in rows]
    done.insert(1, "|" + "---|" * len(starts))
    return ["", *(indent + line for line in done), ""]


class Words(Extension):
    """Rewrites every docstring once it was read."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)
