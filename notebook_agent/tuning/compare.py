"""compare: two runs, two sessions, two lab results or two policies side by side, as frames.

Source: tune by experiment (``tuning.compare``, diff of two runs or two prompts).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from notebook_agent.core.compaction import CompactionPolicy
from notebook_agent.core.result import RunResult
from notebook_agent.core.session import Run, Session, Turn
from notebook_agent.engine.store.run_file import RunFile, read_run_file
from notebook_agent.errors import ConfigError
from notebook_agent.tuning.compaction_lab import CompactionLab
from notebook_agent.tuning.compaction_replay import Plan
from notebook_agent.tuning.frames import frame_of
from notebook_agent.tuning.lab_report import LabReport
from notebook_agent.tuning.lab_result import LabResult, TextDiff

__all__ = ["Comparison", "compare"]

_MEASURES: Final[tuple[str, ...]] = (
    "turns", "unserved", "attempts", "tool_calls", "input_tokens", "output_tokens",
    "cached_input_tokens", "largest_context", "compacted_turns", "seconds",
)  # fmt: skip
_TURN: Final[tuple[str, ...]] = (
    "model", "stop_reason", "input_tokens", "output_tokens", "context", "attempts", "tools",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two things side by side.

    Attributes:
        names: What A and B are called.
        summary: One row for each measure: ``a``, ``b``, ``change`` (B minus A).
        turns: Turn by turn, or cell by cell; for policies, the passes.
        text: The texts as a unified diff: replies of runs, differences of replies.
        report: For policies, the whole lab report.
    """

    names: tuple[str, str]
    summary: Any = field(repr=False)
    turns: Any = field(repr=False)
    text: TextDiff = field(repr=False)
    report: LabReport | None = field(default=None, repr=False)

    def _repr_html_(self) -> str:
        import pandas as pd  # noqa: PLC0415  # slow to import

        with pd.option_context("display.html.use_mathjax", False):  # names may hold two dollars
            return str(self.summary.to_html(index=False, border=0))

    def __str__(self) -> str:
        return str(self.summary.to_string(index=False))

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: ARG002  # IPython's signature
        printer.text(str(self))


def compare(a: Any, b: Any, *, on: Any = None, names: tuple[str, str] = ("a", "b")) -> Comparison:
    """Put two of one kind side by side.

    Args:
        a, b: Two runs (Run, RunResult, Session, run file), two LabResults of one experiment, or
            two policies (CompactionPolicy or Plan).
        on: For policies: the conversation to try them on; see
            :class:`~notebook_agent.tuning.compaction_lab.CompactionLab`.
        names: What they are called.

    Raises:
        ConfigError: They are of two kinds, or policies without a conversation.

    Example:
        >>> from notebook_agent import ScriptedModel, ask
        >>> one, two = ask("Hi", model=ScriptedModel("A.")), ask("Hi", model=ScriptedModel("B."))
        >>> print(compare(one, two).text)
        --- a
        +++ b
        @@ -1 +1 @@
        -A.
        +B.
    """
    if isinstance(a, (CompactionPolicy, Plan)) and isinstance(b, (CompactionPolicy, Plan)):
        return _policies(a, b, on, names)
    if isinstance(a, LabResult) and isinstance(b, LabResult):
        return _results(a, b, names)
    return _runs(_runs_of(a), _runs_of(b), names)


# ---- runs --------------------------------------------------------------------------------------


def _runs_of(given: Any) -> list[Run]:
    match given:
        case Run():
            return [given]
        case RunResult():
            return [given.run]
        case Session():
            return list(given.runs)
        case RunFile():
            return [bundle.run for bundle in given.runs]
    if isinstance(given, str) or hasattr(given, "__fspath__"):
        return [bundle.run for bundle in read_run_file(given).runs]
    if isinstance(getattr(given, "session", None), Session):
        return list(given.session.runs)
    raise ConfigError(
        f"{type(given).__name__} cannot be compared.\n"
        "Give two runs, results, sessions, run files, lab results, or policies with on=SESSION.",
        field="compare",
    )


def _runs(a: Sequence[Run], b: Sequence[Run], names: tuple[str, str]) -> Comparison:
    left, right = _measures(a), _measures(b)
    turns_a, turns_b = ([t for run in runs for t in run.turns] for runs in (a, b))
    rows = []
    for at in range(max(len(turns_a), len(turns_b))):
        row: dict[str, Any] = {"turn": at}
        for side, turns in (("a", turns_a), ("b", turns_b)):
            if at < len(turns):
                row |= {f"{name}_{side}": v for name, v in _turn(turns[at]).items()}
        rows.append(row)
    columns = {"turn": "Int64"}
    for name in _TURN:
        kind = "str" if name in ("model", "stop_reason", "tools") else "Int64"
        columns |= {f"{name}_a": kind, f"{name}_b": kind}
    text = _diff("\n".join(r.output for r in a), "\n".join(r.output for r in b), names)
    return Comparison(
        names=names, summary=_table(left, right), turns=frame_of(rows, columns), text=text
    )


def _measures(runs: Sequence[Run]) -> dict[str, float | None]:
    turns = [turn for run in runs for turn in run.turns]
    ends = [(run.start, run.end) for run in runs if run.end is not None]
    found: dict[str, float | None] = {
        "turns": len(turns),
        "unserved": sum(len(run.unserved) for run in runs),
        "attempts": sum(turn.attempts for turn in turns),
        "tool_calls": sum(len(turn.tool_calls) for turn in turns),
        "largest_context": max((t.context_estimate or 0 for t in turns), default=None),
        "compacted_turns": sum(turn.compacted for turn in turns),
        "seconds": sum(max(end - start, 0.0) for start, end in ends) if ends else None,
    }
    for name in ("input_tokens", "output_tokens", "cached_input_tokens"):
        known = [getattr(turn, name) for turn in turns if getattr(turn, name) is not None]
        found[name] = sum(known) if known else None
    return {name: found[name] for name in _MEASURES}


def _turn(turn: Turn) -> dict[str, Any]:
    return {
        "model": turn.model,
        "stop_reason": turn.stop_reason.value,
        "input_tokens": turn.input_tokens,
        "output_tokens": turn.output_tokens,
        "context": turn.context_estimate,
        "attempts": turn.attempts,
        "tools": ", ".join(call.name for call in turn.tool_calls),
    }


# ---- lab results -------------------------------------------------------------------------------


def _results(a: LabResult, b: LabResult, names: tuple[str, str]) -> Comparison:
    """Two results of one experiment: what changed in which cell."""

    def cells(result: LabResult) -> dict[Any, Mapping[str, Any]]:
        keys = ("variant", "model", "input", "seed", "repeat")
        return {tuple(line[k] for k in keys): line for line in result.table}

    left, right = cells(a), cells(b)
    metrics = [m for m in a.metrics if m in b.metrics]
    rows, lines = [], []
    for key in dict.fromkeys((*left, *right)):
        one, two = left.get(key, {}), right.get(key, {})
        row = dict(zip(("variant", "model", "input", "seed", "repeat"), key, strict=True))
        row |= {"same_reply": one.get("reply") == two.get("reply")}
        for name in metrics:
            row |= {f"{name}_a": one.get(name), f"{name}_b": two.get(name)}
        rows.append(row)
        if not row["same_reply"]:
            found = _diff(str(one.get("reply") or ""), str(two.get("reply") or ""), names)
            lines.append(f"cell {key}\n{found}")
    whole = dict.fromkeys(("input", "seed", "repeat"), "Int64")
    columns = {"variant": "str", "model": "str", **whole, "same_reply": "boolean"}
    columns |= {f"{name}_{side}": "Float64" for name in metrics for side in "ab"}
    sums = [
        {"replies": float(len(c)), **{m: _mean([x.get(m) for x in c.values()]) for m in metrics}}
        for c in (left, right)
    ]
    return Comparison(
        names=names,
        summary=_table(sums[0], sums[1]),
        turns=frame_of(rows, columns),
        text=TextDiff("\n\n".join(lines)),
    )


# ---- policies ----------------------------------------------------------------------------------


def _policies(
    a: CompactionPolicy | Plan, b: CompactionPolicy | Plan, on: Any, names: tuple[str, str]
) -> Comparison:
    if on is None:
        raise ConfigError(
            "Two policies are compared on a conversation.\n"
            "Give one:  compare(a, b, on=session)     or a run file's path",
            field="on",
        )
    if names[0] == names[1]:
        raise ConfigError(field="names", value=names, legal="two different names")
    policies, more = {names[0]: a, names[1]: b}, dict[str, Any]()
    if isinstance(on, CompactionLab):  # its conversation, model and counter; these policies
        on, more = on.material, on.given()
    return of_report(CompactionLab(on, policies, **more).run(), names)


def of_report(report: LabReport, names: tuple[str, str]) -> Comparison:
    """Two policies of a report that is there already."""
    frame = report.summary().set_index("policy")
    measures = [n for n in frame.columns if n != "strategy"]
    sides = [
        {n: None if _missing(frame.loc[name, n]) else float(frame.loc[name, n]) for n in measures}
        for name in names
    ]
    replies = {one.policy: one.text for one in report.next_answers}
    return Comparison(
        names=names,
        summary=_table(sides[0], sides[1]),
        turns=report.passes(),
        text=_diff(replies.get(names[0], ""), replies.get(names[1], ""), names),
        report=report,
    )


def _missing(value: Any) -> bool:
    return value is None or type(value).__name__ == "NAType" or bool(value != value)  # noqa: PLR0124, RUF100  # NaN


# ---- both --------------------------------------------------------------------------------------


def _table(a: Mapping[str, float | None], b: Mapping[str, float | None]) -> Any:
    rows = []
    for name in a:
        left, right = a[name], b.get(name)
        change = None if left is None or right is None else right - left
        rows.append({"measure": name, "a": left, "b": right, "change": change})
    return frame_of(rows, {"measure": "str", **dict.fromkeys(("a", "b", "change"), "Float64")})


def _mean(values: Sequence[Any]) -> float | None:
    known = [float(v) for v in values if v is not None]
    return sum(known) / len(known) if known else None


def _diff(a: str, b: str, names: tuple[str, str]) -> TextDiff:
    lines = difflib.unified_diff(a.splitlines(), b.splitlines(), *names, lineterm="")
    return TextDiff("\n".join(lines))
