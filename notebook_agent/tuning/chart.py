"""Chart: an Altair chart with its data inline, and the same as a table that reads anywhere.

JupyterLab draws the chart with the Vega-Lite it ships; nothing is fetched. Where no script runs
(nbconvert, an untrusted notebook, a terminal) the table stands: its bars are characters, each
part has one of its own, so that it reads without colours and with every style taken away.

Source: tune by experiment, views; notebook side, front ends (D15, F5, F13).
"""

from __future__ import annotations

import html
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from notebook_agent.core.text import unset_maths, visible

__all__ = ["COLOURS", "Chart", "bar", "thinned"]

# JupyterLab ships Vega-Lite 5 under this name; our specifications use nothing newer.
VEGA_MIME: Final = "application/vnd.vegalite.v5+json"
MOST_POINTS: Final = 1_000  # places on the x axis: more than a screen has columns
MOST_ROWS: Final = 40  # rows of the table
# The panel's tones (static/panel.css), chosen once so that they read on white and on black.
COLOURS: Final[Mapping[str, str]] = {
    "ink": "#7a7a7a", "live": "#3f8fd2", "ok": "#3c9a46", "wait": "#c77700", "bad": "#d6473f",
    "system": "#6b7280", "tools": "#9aa1ab", "transients": "#b58a3c", "history": "#3f8fd2",
}  # fmt: skip
GLYPHS: Final = "█▓▒░▚▞"


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One view.

    Attributes:
        title: What it shows.
        draw: Makes the Altair chart; called when a front end may draw it.
        header, rows: The table: cells are text.
        right: Which columns are numbers.
        notes: Lines under it: what the signs mean, what was left out.
    """

    title: str
    draw: Callable[[], Any] = field(repr=False)
    header: tuple[str, ...] = field(repr=False)
    rows: tuple[tuple[str, ...], ...] = field(repr=False)
    right: tuple[bool, ...] = field(repr=False)
    notes: tuple[str, ...] = field(default=(), repr=False)

    @property
    def altair(self) -> Any:
        """The Altair chart, to change or to save."""
        return themed(self.draw(), self.title)

    @property
    def spec(self) -> dict[str, Any]:
        """The Vega-Lite specification with its data in it."""
        made: dict[str, Any] = self.altair.to_dict()
        made.pop("$schema", None)  # an address nobody has to look up
        return made

    def __str__(self) -> str:
        cells = [self.header, *self.rows]
        widths = [max(len(row[at]) for row in cells) for at in range(len(self.header))]
        lines = [
            "  ".join(
                visible(cell).rjust(width) if right else visible(cell).ljust(width)
                for cell, width, right in zip(row, widths, self.right, strict=True)
            ).rstrip()
            for row in cells
        ]
        return "\n".join([self.title, "", *lines, *(("", *self.notes) if self.notes else ())])

    def html(self) -> str:
        """The table as HTML: no script, no style sheet, no image."""
        cell = "padding: 2px 10px 2px 0; white-space: nowrap; text-align: "

        def row(cells: Sequence[str], tag: str) -> str:
            return "".join(
                f'<{tag} style="{cell}{"right" if right else "left"}; font-weight: 400">'
                f"{_cell(text)}</{tag}>"
                for text, right in zip(cells, self.right, strict=True)
            )

        body = "".join(f"<tr>{row(one, 'td')}</tr>" for one in self.rows)
        notes = "".join(f"<br>{_escape(note)}" for note in self.notes)
        return unset_maths(
            f'<div style="font-size: 12px"><strong>{_escape(self.title)}</strong>'
            f'<div style="overflow-x: auto"><table style="font-size: 12px; margin: 4px 0">'
            f"<thead><tr>{row(self.header, 'th')}</tr></thead><tbody>{body}</tbody></table></div>"
            f"{notes.removeprefix('<br>')}</div>"
        )

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        plain: dict[str, Any] = {"text/plain": str(self)}
        if os.environ.get("NOTEBOOK_AGENT_DISPLAY") == "static":
            return {**plain, "text/html": self.html()}
        try:
            spec = self.spec
        except ImportError:
            words = "(drawn where altair is installed: pip install notebook-agent[tuning])"
            return {"text/plain": f"{self}\n{words}", "text/html": self.html()}
        # JupyterLab takes text/html before a chart, and a chart before text/markdown. The table
        # is one block of HTML, which is Markdown too: it is what nbconvert and viewers show.
        return {**plain, "text/markdown": self.html(), VEGA_MIME: spec}

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: ARG002  # IPython's signature
        printer.text(str(self))


def bar(parts: Sequence[float], most: float, width: int = 40) -> str:
    """A bar of characters: each part in its own, the whole ``most`` wide at the end.

    Example:
        >>> bar([2, 2], 8, 8)
        '██▓▓····'
    """
    if most <= 0:
        return ""
    made, total, drawn = "", 0.0, 0
    for glyph, part in zip(GLYPHS, parts, strict=False):
        total += max(part, 0)
        upto = max(min(round(total / most * width), width), drawn)
        if part > 0 and upto == drawn and drawn < width:
            upto += 1  # what is there is seen
        made += glyph * (upto - drawn)
        drawn = upto
    return made + "·" * (width - drawn)


def thinned(
    rows: Sequence[Mapping[str, Any]], most: int, size: Callable[[Mapping[str, Any]], float]
) -> tuple[list[Mapping[str, Any]], int]:
    """At most ``most`` rows: of neighbours the largest one stands for all, so no peak is lost.

    Returns:
        The rows, and how many stand behind one.
    """
    if len(rows) <= most:
        return list(rows), 1
    step = -(-len(rows) // most)
    groups = [rows[at : at + step] for at in range(0, len(rows), step)]
    chosen: list[Mapping[str, Any]] = []
    for group in groups:
        row = max(group, key=size)
        if any(one.get("compacted") for one in group):
            row = {**row, "compacted": True}  # a mark of any of them is shown
        chosen.append(row)
    return chosen, step


def altair() -> Any:
    """The library, imported when something is drawn."""
    import altair as alt  # noqa: PLC0415  # extra: tuning, slow to import

    return alt


def themed(chart: Any, title: str) -> Any:
    """The panel's look: no background, quiet lines, one size of type."""
    ink = COLOURS["ink"]
    return (
        chart.properties(title=title)
        .configure(background="transparent", font="system-ui, sans-serif")
        .configure_axis(
            labelColor=ink, titleColor=ink, gridColor=ink, gridOpacity=0.2, domainColor=ink,
            tickColor=ink, labelFontSize=11, titleFontSize=11, titleFontWeight="normal",
        )
        .configure_legend(labelColor=ink, titleColor=ink, labelFontSize=11, orient="bottom")
        .configure_title(color=ink, fontSize=12, anchor="start")
        .configure_view(stroke=None)
    )  # fmt: skip


def _escape(text: str) -> str:
    return html.escape(visible(text), quote=True)


def _cell(text: str) -> str:
    """A cell; bars keep their widths in a fixed font."""
    if text and set(text) <= set(GLYPHS + "·○●◐ |"):
        return f'<code style="background-color: transparent; padding: 0">{_escape(text)}</code>'
    return _escape(text)
