"""Charts: context anatomy, tokens per turn, latency waterfall, breaker timeline, compaction.

Each function takes what is at hand (a session, a run or its result, a runtime, rows) and gives a
:class:`~notebook_agent.tuning.chart.Chart`.

Source: tune by experiment, views.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from notebook_agent.core.compaction import CompactionPolicy, emergency_line, threshold_line
from notebook_agent.core.result import RunResult
from notebook_agent.core.session import Run, Session, Turn
from notebook_agent.errors import ConfigError
from notebook_agent.tuning.chart import (
    COLOURS,
    MOST_POINTS,
    MOST_ROWS,
    Chart,
    altair,
    bar,
    thinned,
)
from notebook_agent.tuning.chart_events import breaker_rows, latency_rows, own_rows
from notebook_agent.tuning.lab_report import LabReport

__all__ = ["anatomy", "breaker", "compaction", "tokens", "waterfall"]

PARTS: Final = ("system", "tools", "transients", "history")
_WIDTH: Final = 600  # pixels
_STATES: Final = {"primary": "●", "fallback": "○", "recovering": "◐"}

Rows = Sequence[Mapping[str, Any]]


def turns_of(source: Any) -> list[Turn]:
    """The served turns of a session, a run, its result, or a runtime; oldest first.

    Raises:
        ConfigError: It is none of these.
    """
    match source:
        case Session():
            return [turn for run in source.runs for turn in run.turns]
        case Run():
            return list(source.turns)
        case RunResult():
            return list(source.run.turns)
    session = getattr(source, "session", None)
    if isinstance(session, Session):
        return turns_of(session)
    raise ConfigError(
        f"{type(source).__name__} has no turns to draw.\nGive a session, a run, a result or rows.",
        field="source",
    )


def _whole(row: Mapping[str, Any]) -> int:
    return sum(int(row.get(part) or 0) for part in PARTS)


def _input(row: Mapping[str, Any]) -> int:
    return int(row.get("input") or 0)


def _sent(row: Mapping[str, Any]) -> int:
    return int(row["tokens"])


# ---- context -----------------------------------------------------------------------------------


def anatomy(source: Any, *, policy: CompactionPolicy | None = None) -> Chart:
    """What the context of each turn was made of, against window, trigger and emergency line.

    Args:
        source: A session, run, result or runtime; or rows with ``turn``, the four parts in
            tokens, ``compacted`` and ``window``.
        policy: Where the lines are; default: the engine's own policy.
    """
    rows = own_rows(source, (*PARTS, "window"))
    if rows is None:
        rows = [_parts(n, t) for n, t in enumerate(turns_of(source))]
    lines = policy or getattr(source, "compaction", None) or CompactionPolicy()
    window = max((row.get("window") or 0 for row in rows), default=0) or lines.window
    limits = {
        "window": window,
        "trigger": threshold_line(lines, window),
        "emergency": emergency_line(lines, window),
    }
    points, step = thinned(rows, MOST_POINTS, _whole)
    shown, behind = thinned(rows, MOST_ROWS, _whole)
    marks = [{"turn": row["turn"]} for row in thinned([r for r in rows if r.get("compacted")], MOST_POINTS, _whole)[0]]  # fmt: skip
    return Chart(
        title="Context of each turn, in tokens",
        draw=lambda: _draw_anatomy(points, limits, marks),
        header=("turn", f"0 to {window:,}", *PARTS, "total", "of window", ""),
        right=(True, False, *(True,) * 6, False),
        rows=tuple(_anatomy_row(row, window, _whole(row)) for row in shown),
        notes=(
            "bar: █ system, ▓ tools, ▒ transients, ░ history, · free",
            "  ".join(f"{name}: {value:,}" for name, value in limits.items()),
            *_thin_note(behind),
            *((f"drawn: the largest of each {step} turns",) if step > 1 else ()),
        ),
    )


def _parts(number: int, turn: Turn) -> dict[str, Any]:
    ref = turn.context_ref
    parts = {} if ref is None else dict(ref.parts)
    if not parts and turn.context_estimate is not None:
        parts = {"history": turn.context_estimate}
    window = None if ref is None else ref.window
    return {"turn": number, **parts, "compacted": turn.compacted, "window": window}


def _anatomy_row(row: Mapping[str, Any], window: int, total: float) -> tuple[str, ...]:
    parts = [row.get(part) or 0 for part in PARTS]
    share = f"{100 * total / window:.0f} %" if window else ""
    mark = "compacted" if row.get("compacted") else ""
    return (
        str(row["turn"]), bar(parts, window, 32), *(f"{p:,}" for p in parts), f"{total:,}", share,
        mark,
    )  # fmt: skip


def _draw_anatomy(points: Rows, limits: Mapping[str, int], marks: Rows) -> Any:
    alt = altair()
    rows = [{"turn": r["turn"], **{p: r.get(p) or 0 for p in PARTS}} for r in points]
    order = "indexof(['system','tools','transients','history'], datum.part)"
    bars = (
        alt.Chart(alt.Data(values=rows))
        .transform_fold(list(PARTS), as_=["part", "tokens"])
        .transform_calculate(order=order)
        .mark_area(interpolate="step-after")
        .encode(
            x=alt.X("turn:Q", title="turn"),
            y=alt.Y("tokens:Q", title="tokens", stack="zero"),
            color=alt.Color("part:N", title=None, sort=list(PARTS), scale=_scale(PARTS)),
            order="order:Q",
            tooltip=["turn:Q", "part:N", "tokens:Q"],
        )
    )
    lines = (
        alt.Chart(alt.Data(values=[{"line": n, "tokens": v} for n, v in limits.items() if v]))
        .mark_rule(strokeWidth=1.5)
        .encode(
            y="tokens:Q",
            strokeDash=alt.StrokeDash(
                "line:N", title=None, sort=list(limits),
                scale=alt.Scale(domain=list(limits), range=[[1, 0], [6, 3], [2, 2]]),
            ),
            color=alt.value(COLOURS["ink"]),
            tooltip=["line:N", "tokens:Q"],
        )
    )  # fmt: skip
    return alt.layer(bars, lines, _marks(marks)).properties(width=_WIDTH, height=240)


def _marks(marks: Rows) -> Any:
    """Compactions: a triangle on the axis and a line."""
    alt = altair()
    return (
        alt.Chart(alt.Data(values=list(marks)))
        .mark_rule(strokeDash=[2, 4], strokeWidth=1, color=COLOURS["wait"])
        .encode(x="turn:Q", tooltip=[alt.Tooltip("turn:Q", title="compacted before turn")])
    )


def _scale(names: Sequence[str]) -> Any:
    return altair().Scale(domain=list(names), range=[COLOURS[name] for name in names])


def _thin_note(behind: int) -> tuple[str, ...]:
    return (f"each row is the largest of {behind} turns",) if behind > 1 else ()


# ---- tokens ------------------------------------------------------------------------------------


def tokens(source: Any) -> Chart:
    """Input and output tokens of each turn as they were reported, compactions marked."""
    rows = own_rows(source, ("input", "output", "cached"))
    if rows is None:
        rows = [
            {
                "turn": n, "input": t.input_tokens, "output": t.output_tokens,
                "cached": t.cached_input_tokens, "compacted": t.compacted,
            }
            for n, t in enumerate(turns_of(source))
        ]  # fmt: skip
    points, _ = thinned(rows, MOST_POINTS, _input)
    shown, behind = thinned(rows, MOST_ROWS, _input)
    most = max((_input(row) for row in rows), default=0)
    marks = [{"turn": row["turn"]} for row in points if row.get("compacted")]
    return Chart(
        title="Tokens of each turn, as reported",
        draw=lambda: _draw_tokens(points, marks),
        header=("turn", f"input, 0 to {most:,}", "input", "cached", "output", ""),
        right=(True, False, True, True, True, False),
        rows=tuple(
            (
                str(row["turn"]), bar([_input(row)], most, 32), _number(row.get("input")),
                _number(row.get("cached")), _number(row.get("output")),
                "compacted" if row.get("compacted") else "",
            )
            for row in shown
        ),
        notes=("?: the provider reported none", *_thin_note(behind)),
    )  # fmt: skip


def _number(value: Any) -> str:
    return "?" if value is None else f"{value:,}"


def _draw_tokens(points: Rows, marks: Rows) -> Any:
    alt = altair()
    names = ["input", "output"]
    rows = [{"turn": r["turn"], **{n: r.get(n) for n in names}} for r in points]
    lines = (
        alt.Chart(alt.Data(values=rows))
        .transform_fold(names, as_=["kind", "tokens"])
        .mark_line(interpolate="step-after", point=len(rows) <= 60)
        .encode(
            x=alt.X("turn:Q", title="turn"),
            y=alt.Y("tokens:Q", title="tokens"),
            color=alt.Color(
                "kind:N", title=None, sort=names,
                scale=alt.Scale(domain=names, range=[COLOURS["live"], COLOURS["transients"]]),
            ),
            strokeDash=alt.StrokeDash("kind:N", title=None, sort=names, scale=alt.Scale(domain=names)),
            tooltip=["turn:Q", "kind:N", "tokens:Q"],
        )
    )  # fmt: skip
    return alt.layer(lines, _marks(marks)).properties(width=_WIDTH, height=200)


# ---- time --------------------------------------------------------------------------------------


def waterfall(source: Any, run: str | None = None) -> Chart:
    """When each attempt and tool of a run began and ended, in seconds from its start.

    Args:
        source: A runtime (its newest run, or ``run``), ``(store, run id)``, or the events.
    """
    rows = latency_rows(source, run)
    most = max((row["end"] for row in rows), default=0.0)
    shown = rows[:MOST_POINTS]
    return Chart(
        title="Attempts and tools, in seconds from the run's start",
        draw=lambda: _draw_waterfall(shown),
        header=("what", f"0 to {most:.2f} s", "from", "to", "seconds", "ended"),
        right=(False, False, True, True, True, False),
        rows=tuple(
            (
                row["what"], _span(row, most), f"{row['start']:.2f}", f"{row['end']:.2f}",
                f"{row['end'] - row['start']:.2f}", row["outcome"],
            )
            for row in shown[:MOST_ROWS]
        ),
        notes=() if len(rows) <= MOST_ROWS else (f"the first {MOST_ROWS} of {len(rows):,}",),
    )  # fmt: skip


def _span(row: Mapping[str, Any], most: float, width: int = 32) -> str:
    if most <= 0:
        return "█"
    begin: int = min(int(row["start"] / most * width), width - 1)
    end: int = max(round(row["end"] / most * width), begin + 1)
    glyph = "░" if row["kind"] == "wait" else ("▒" if row["kind"] == "tool" else "█")
    return "·" * begin + glyph * (end - begin) + "·" * (width - end)


def _draw_waterfall(rows: Rows) -> Any:
    alt = altair()
    kinds = ["attempt", "rescue", "tool", "wait"]
    tones = [COLOURS["live"], COLOURS["ok"], COLOURS["transients"], COLOURS["tools"]]
    bars = (
        alt.Chart(alt.Data(values=[{**row, "row": at} for at, row in enumerate(rows)]))
        .mark_bar(height=10)
        .encode(
            x=alt.X("start:Q", title="seconds"),
            x2="end:Q",
            y=alt.Y("what:N", title=None, sort=alt.SortField("row"), axis=alt.Axis(labelLimit=220)),
            color=alt.Color("kind:N", title=None, scale=alt.Scale(domain=kinds, range=tones)),
            tooltip=["what:N", "kind:N", "start:Q", "end:Q", "outcome:N"],
        )
    )
    return bars.properties(width=_WIDTH, height=alt.Step(16))


def breaker(source: Any, run: str | None = None) -> Chart:
    """The breaker's state over time: who served, when it tripped, when it probed.

    Args:
        source: A runtime (all its runs, or ``run``), ``(store, run id)``, or the events.
    """
    rows = breaker_rows(source, run)
    return Chart(
        title="Breaker over time, in seconds from the first run's start",
        draw=lambda: _draw_breaker(rows[:MOST_POINTS]),
        header=("from", "to", "state", "", "failures", "routed to"),
        right=(True, True, False, False, True, False),
        rows=tuple(
            (
                f"{row['start']:.2f}", f"{row['end']:.2f}", _STATES.get(row["state"], "?"),
                row["state"], str(row["failures"]), row["model"],
            )
            for row in rows[:MOST_ROWS]
        ),
        notes=("● primary, ○ fallback, ◐ recovering",),
    )  # fmt: skip


def _draw_breaker(rows: Rows) -> Any:
    alt = altair()
    names = list(_STATES)
    tones = [COLOURS["ok"], COLOURS["wait"], COLOURS["live"]]
    bars = (
        alt.Chart(alt.Data(values=list(rows)))
        .mark_bar(height=18)
        .encode(
            x=alt.X("start:Q", title="seconds"),
            x2="end:Q",
            y=alt.Y("state:N", title=None, sort=names, scale=alt.Scale(domain=names)),
            color=alt.Color("state:N", legend=None, scale=alt.Scale(domain=names, range=tones)),
            tooltip=["state:N", "start:Q", "end:Q", "failures:Q", "model:N"],
        )
    )
    return bars.properties(width=_WIDTH, height=90)


# ---- compaction --------------------------------------------------------------------------------


def compaction(report: LabReport) -> Chart:
    """Each policy's context over the conversation: before and after its passes."""
    if not isinstance(report, LabReport):
        raise ConfigError(
            f"{type(report).__name__} is no report of a compaction lab.\n"
            "Give what CompactionLab(...).run() gave.",
            field="report",
        )
    every = [
        {"policy": one.name, "turn": p.turn, "tokens": p.sent, "compacted": p.compacted}
        for one in report.outcomes
        for p in one.points
    ]  # fmt: skip
    per = max(MOST_POINTS // max(len(report.outcomes), 1), 50)
    points: list[Mapping[str, Any]] = []
    for one in report.outcomes:
        mine = [row for row in every if row["policy"] == one.name]
        points += thinned(mine, per, _sent)[0]
    passes = [(one.name, p) for one in report.outcomes for p in one.passes]
    most = max((p.result.tokens_before for _, p in passes), default=0)
    return Chart(
        title="Compaction: tokens of the request before and after each pass",
        draw=lambda: _draw_compaction(points),
        header=("policy", "turn", "why", f"kept and freed, 0 to {most:,}", "before", "after", "freed", ""),
        right=(False, True, False, False, True, True, True, False),
        rows=tuple(
            (
                name, str(p.turn), p.reason,
                bar([p.result.tokens_before - p.result.tokens_saved, 0, 0, p.result.tokens_saved], most, 32),
                f"{p.result.tokens_before:,}", f"{p.result.tokens_after:,}",
                f"{p.result.tokens_saved:,}", p.result.status,
            )
            for name, p in passes[:MOST_ROWS]
        ),
        notes=(
            "bar: █ after the pass, ░ freed",
            *((f"the first {MOST_ROWS} of {len(passes):,} passes",) if len(passes) > MOST_ROWS else ()),
        ),
    )  # fmt: skip


def _draw_compaction(points: Rows) -> Any:
    alt = altair()
    base = alt.Chart(alt.Data(values=list(points)))
    scale = alt.Scale(domain=sorted({p["policy"] for p in points}))  # the same: one legend, not two
    lines = base.mark_line(interpolate="step-after").encode(
        x=alt.X("turn:Q", title="turn"),
        y=alt.Y("tokens:Q", title="tokens of the request"),
        color=alt.Color("policy:N", title=None, scale=scale),
        strokeDash=alt.StrokeDash("policy:N", title=None, scale=scale),
        tooltip=["policy:N", "turn:Q", "tokens:Q"],
    )
    marks = (
        base.transform_filter("datum.compacted")
        .mark_point(shape="triangle-down", size=50, filled=True)
        .encode(x="turn:Q", y="tokens:Q", color=alt.Color("policy:N", title=None, scale=scale))
    )
    return alt.layer(lines, marks).properties(width=_WIDTH, height=240)
