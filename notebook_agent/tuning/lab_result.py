"""LabResult: the answers of a prompt lab as frames, with scores, costs and comparisons.

Scores are worked out here, from the kept replies: another scorer asks no model again.

Source: tune by experiment, prompt lab.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from notebook_agent.errors import ConfigError
from notebook_agent.tuning.cells import Cell
from notebook_agent.tuning.frames import error_words, frame_of
from notebook_agent.tuning.journal import Row
from notebook_agent.tuning.lab_work import Price, filled, judge_inputs
from notebook_agent.tuning.pairs import paired
from notebook_agent.tuning.scorers import Judge, Scored, Scorer, score

__all__ = ["Judged", "LabResult", "TextDiff"]

# Column of the frame -> dtype; scores and their errors come after these.
COLUMNS: Final[Mapping[str, str]] = {
    "variant": "str", "model": "str", "input": "Int64", "seed": "Int64", "repeat": "Int64",
    "status": "str", "reply": "str", "error": "str", "seconds": "Float64",
    "first_text_s": "Float64", "input_tokens": "Int64", "output_tokens": "Int64",
    "cost": "Float64", "turns": "Int64", "attempts": "Int64", "resent": "Int64",
    "stop_reason": "str", "run_status": "str",
}  # fmt: skip
MEASURES: Final = ("seconds", "input_tokens", "output_tokens", "cost")


@dataclass(frozen=True, slots=True)
class Judged:
    """A judge and the rows of its own calls."""

    judge: Judge
    rows: tuple[Row, ...]


class TextDiff(str):
    """A unified diff; a cell's last value shows it as it is."""

    __slots__ = ()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: ARG002  # IPython's signature
        printer.text(str(self))


@dataclass(frozen=True, kw_only=True)
class LabResult:
    """What a lab has answered so far; an experiment that goes on gives a new one."""

    rows: tuple[Row, ...]
    cells: tuple[Cell, ...]
    variants: Mapping[str, Any] = field(repr=False)
    labels: tuple[tuple[str, int], ...] = field(repr=False)  # place -> variant, input
    scorers: tuple[Scorer, ...] = field(repr=False)
    judged: tuple[Judged, ...] = field(repr=False)
    prices: Mapping[str, Price] = field(repr=False)

    def __repr__(self) -> str:
        done = sum(row.status == "done" for row in self.rows)
        failed = sum(row.status == "failed" for row in self.rows)
        return f"<LabResult: {done:,} of {len(self.cells):,} cells answered, {failed:,} failed>"

    @property
    def metrics(self) -> tuple[str, ...]:
        """Columns that can be compared: the scores, then cost and latency."""
        return (*(s.name for s in self.scorers), *(j.judge.name for j in self.judged), *MEASURES)

    # ---- frames ----------------------------------------------------------------------------

    @functools.cached_property
    def table(self) -> list[dict[str, Any]]:
        """One mapping for each cell that was sent, in the order of the sweep."""
        grades = [_grades(one) for one in self.judged]
        return [self._line(row, grades) for row in self.rows]

    def frame(self) -> Any:
        """One row for each cell that was sent.

        Returns:
            A pandas.DataFrame: what was asked (``variant``, ``model``, ``input`` = its number,
            ``seed``, ``repeat``), what came (``status``, ``reply``, ``error``, ``seconds``,
            tokens, ``cost`` in the currency of ``prices``, ``run_status``: ``completed``, or the
            limit that ended the run), one column for each score and one ``NAME_error`` where a
            scorer raised. What is not known is <NA>, never 0.
        """
        names = [s.name for s in self.scorers] + [j.judge.name for j in self.judged]
        columns = dict(COLUMNS) | dict.fromkeys(names, "Float64")
        raised = [n for n in names if any(line.get(f"{n}_error") for line in self.table)]
        columns |= {f"{n}_error": "str" for n in raised}
        return frame_of(self.table, columns)

    def _line(self, row: Row, grades: Sequence[Mapping[str, Scored]]) -> dict[str, Any]:
        spec = row.spec
        config, answer = spec["config"], row.value or {}
        variant, number = self.labels[row.place]
        line: dict[str, Any] = {
            "variant": variant, "model": config["model"], "input": number, "seed": spec["seed"],
            "repeat": spec["repeat"], "status": row.status, "reply": answer.get("reply"),
            "error": None if row.error is None else error_words(row.error),
            "resent": row.resent, "attempts": answer.get("run_attempts"),
            "run_status": answer.get("status_of_run"),
        }  # fmt: skip
        for name in ("seconds", "first_text_s", "input_tokens", "output_tokens", "turns", "stop_reason"):  # fmt: skip
            line[name] = answer.get(name)
        if row.status != "done":
            return line
        price = self.prices.get(config["model"])
        line["cost"] = None if price is None else price.of(answer)
        for one in self.scorers:
            _put(line, one.name, score(one, answer["reply"], spec["inputs"], line))
        for judged, grade in zip(self.judged, grades, strict=True):
            key = _mark(judge_inputs(spec, answer["reply"]))
            _put(line, judged.judge.name, grade.get(key, Scored()))
        return line

    def summary(self) -> Any:
        """One row for each variant and model: how many, how good, how fast, what it cost.

        Returns:
            A pandas.DataFrame: ``cells``, ``done``, ``failed``, the mean of each score over the
            cells that have one, ``seconds`` (median), mean tokens, ``cost`` (sum).
        """
        groups: dict[tuple[str, str], list[dict[str, Any]]] = {
            (variant, model): []
            for variant in self.variants
            for model in dict.fromkeys(cell.config["model"] for cell in self.cells)
        }
        for line in self.table:
            groups.setdefault((line["variant"], line["model"]), []).append(line)
        scores = [n for n in self.metrics if n not in MEASURES]
        rows = []
        for (variant, model), lines in groups.items():
            row: dict[str, Any] = {
                "variant": variant, "model": model, "cells": len(lines),
                "done": sum(li["status"] == "done" for li in lines),
                "failed": sum(li["status"] == "failed" for li in lines),
            }  # fmt: skip
            row |= {name: _mean(lines, name) for name in scores}
            row |= {"seconds": _median(lines, "seconds")}
            row |= {name: _mean(lines, name) for name in ("input_tokens", "output_tokens")}
            known = [li["cost"] for li in lines if li.get("cost") is not None]
            row["cost"] = sum(known) if known else None
            rows.append(row)
        counts = dict.fromkeys(("cells", "done", "failed"), "Int64")
        columns = {"variant": "str", "model": "str", **counts, **dict.fromkeys(scores, "Float64")}
        columns |= dict.fromkeys(("seconds", "input_tokens", "output_tokens", "cost"), "Float64")
        return frame_of(rows, columns)

    def judgements(self) -> Any:
        """Every call of every judge: what it was asked, what it said, the score read from it."""
        rows = []
        for one in self.judged:
            for row in one.rows:
                reply = (row.value or {}).get("reply")
                got = Scored() if reply is None else one.judge.read(reply)
                rows.append({
                    "judge": one.judge.name, "status": row.status, "reply": reply,
                    "asked": filled(row.spec["prompt"]["text"], row.spec["inputs"]),
                    "score": got.value,
                    "error": error_words(row.error) if row.error else got.error,
                })  # fmt: skip
        text = dict.fromkeys(("judge", "status", "asked", "reply"), "str")
        return frame_of(rows, {**text, "score": "Float64", "error": "str"})

    # ---- comparisons -----------------------------------------------------------------------

    def compare(
        self,
        a: str,
        b: str,
        *,
        by: str = "variant",
        metrics: Sequence[str] | str | None = None,
        confidence: float = 0.95,
        seed: int = 0,
    ) -> Any:
        """B minus A on the same inputs, with a bootstrap confidence interval.

        Args:
            a, b: Two variants, or two models with ``by="model"``.
            metrics: Which columns; default the scores, then cost and latency.
            confidence: Of the interval.
            seed: Of the bootstrap.

        Returns:
            A pandas.DataFrame, one row for each metric: ``inputs`` and ``pairs`` compared,
            ``dropped`` (cells without a partner), the means ``a`` and ``b``, ``difference``,
            ``low`` and ``high``, ``note``.

        Raises:
            ConfigError: There is no such variant, model or metric.
        """
        if by not in ("variant", "model"):
            raise ConfigError(field="by", value=by, legal="variant or model")
        if not 0 < confidence < 1:
            raise ConfigError(field="confidence", value=confidence, legal="between 0 and 1")
        models = dict.fromkeys(cell.config["model"] for cell in self.cells)
        there = self.variants if by == "variant" else models
        for one in (a, b):
            if one not in there:
                raise ConfigError(field=by, value=one, legal=f"one of {', '.join(there)}")
        rows = []
        for metric in (metrics,) if isinstance(metrics, str) else metrics or self.metrics:
            if metric not in self.metrics:
                raise ConfigError(field="metrics", value=metric, legal=", ".join(self.metrics))
            found = paired(
                self._values(by, a, metric), self._values(by, b, metric),
                confidence=confidence, seed=seed,
            )  # fmt: skip
            rows.append({
                "metric": metric, "inputs": found.inputs, "pairs": found.pairs,
                "dropped": found.dropped, "a": found.mean_a, "b": found.mean_b,
                "difference": found.difference, "low": found.low, "high": found.high,
                "note": found.note,
            })  # fmt: skip
        whole = dict.fromkeys(("inputs", "pairs", "dropped"), "Int64")
        parts = dict.fromkeys(("a", "b", "difference", "low", "high"), "Float64")
        return frame_of(rows, {"metric": "str", **whole, **parts, "note": "str"})

    def _values(self, by: str, name: str, metric: str) -> dict[tuple[Hashable, Hashable], float]:
        other = "model" if by == "variant" else "variant"
        return {
            (line["input"], (line[other], line["seed"], line["repeat"])): float(line[metric])
            for line in self.table
            if line[by] == name and line.get(metric) is not None
        }

    def diff(self, a: str, b: str) -> TextDiff:
        """The two variants' texts as a unified diff."""
        texts = []
        for name in (a, b):
            if name not in self.variants:
                raise ConfigError(
                    field="variant", value=name, legal=f"one of {', '.join(self.variants)}"
                )
            one = self.variants[name]
            system = f"[system]\n{one.system}\n[prompt]\n" if one.system else ""
            texts.append((system + one.text).splitlines())
        lines = difflib.unified_diff(texts[0], texts[1], a, b, lineterm="")
        return TextDiff("\n".join(lines))


def _mark(value: Mapping[str, Any]) -> str:
    return repr(sorted(value.items()))


def _grades(one: Judged) -> dict[str, Scored]:
    """What was asked about -> the judge's score, or why there is none."""
    found = {}
    for row in one.rows:
        key = _mark(row.spec["inputs"])  # all of them: the judge may have been shown any
        if row.status == "done":
            found[key] = one.judge.read(row.value["reply"])
        elif row.error is not None:
            found[key] = Scored(error=error_words(row.error))
    return found


def _put(line: dict[str, Any], name: str, got: Scored) -> None:
    line[name] = got.value
    if got.error is not None:
        line[f"{name}_error"] = got.error


def _numbers(lines: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [float(line[name]) for line in lines if line.get(name) is not None]


def _mean(lines: Sequence[Mapping[str, Any]], name: str) -> float | None:
    found = _numbers(lines, name)
    return sum(found) / len(found) if found else None


def _median(lines: Sequence[Mapping[str, Any]], name: str) -> float | None:
    found = sorted(_numbers(lines, name))
    if not found:
        return None
    middle = len(found) // 2
    return found[middle] if len(found) % 2 else (found[middle - 1] + found[middle]) / 2
