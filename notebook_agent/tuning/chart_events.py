"""Rows of the charts that are about time, read from a run's events.

Source: tune by experiment, views; Turn FSM, "Persisting" (B57, B67).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from notebook_agent.core import agent_events as ev
from notebook_agent.errors import ConfigError

__all__ = ["breaker_rows", "events_of", "latency_rows", "own_rows"]


def own_rows(source: Any, columns: Sequence[str]) -> list[dict[str, Any]] | None:
    """Rows that the user made; None when the source is something else.

    Args:
        source: Mappings; a row without ``turn`` gets its place, an absence is None or NaN.
        columns: Those that are numbers.

    Raises:
        ConfigError: A column holds something else.
    """
    if not isinstance(source, Sequence) or not all(isinstance(one, Mapping) for one in source):
        return None
    rows: list[dict[str, Any]] = []
    for at, given in enumerate(source):
        row: dict[str, Any] = {name: _number(given.get(name), name, at) for name in columns}
        turn = given.get("turn")
        turn = turn if isinstance(turn, str) else _number(turn, "turn", at)
        marked = _number(given.get("compacted"), "compacted", at)
        rows.append({**row, "turn": at if turn is None else turn, "compacted": bool(marked)})
    return rows


def _number(value: Any, column: str, at: int) -> float | int | None:
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    try:
        number = float(value)
        if number.is_integer():
            return int(number)
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(
            field=f"row {at}, {column}", value=value, legal="a number, or None"
        ) from None
    return number if math.isfinite(number) else None


def events_of(
    source: Any, run: str | None = None, *, all_runs: bool = False
) -> list[ev.AgentEvent]:
    """The events of a run, in order.

    Args:
        source: A runtime, ``(store, run id)``, or events.
        run: Which run of a runtime; None = the newest, or all.

    Raises:
        ConfigError: There is no run, or the source has no events.
    """
    if isinstance(source, tuple) and len(source) == 2 and hasattr(source[0], "events"):
        return list(source[0].events(source[1]))
    store, session = getattr(source, "store", None), getattr(source, "session", None)
    if store is not None and session is not None:
        runs = [one.id for one in session.runs]
        if not runs:
            raise ConfigError("This session has no runs yet; there is nothing to draw.")
        wanted = [run] if run is not None else (runs if all_runs else runs[-1:])
        return [event for one in wanted for event in store.events(one)]
    if isinstance(source, Iterable):
        found = list(source)
        if all(isinstance(one, ev.AgentEvent) for one in found):
            return found
    raise ConfigError(
        f"{type(source).__name__} has no events to draw.\n"
        "Give a runtime, (store, run id), or the events of a run.",
        field="source",
    )


def latency_rows(source: Any, run: str | None = None) -> list[dict[str, Any]]:
    """One row for each attempt, wait, rescue and tool: ``what``, ``kind``, ``start``, ``end``,
    ``outcome``; seconds from the run's start."""
    events = events_of(source, run)
    spans = _Spans()
    for event in events:
        spans.take(event, event.timestamp - events[0].timestamp)
    return spans.rows


class _Spans:
    """Stretches of time, opened and closed by events."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._open: dict[str, dict[str, Any]] = {}

    def _begin(self, key: str, what: str, kind: str, at: float) -> None:
        row = {"what": what, "kind": kind, "start": at, "end": at, "outcome": "not ended"}
        self._open[key] = row
        self.rows.append(row)

    def _end(self, key: str, at: float, outcome: str) -> None:
        row = self._open.pop(key, None)
        if row is not None:
            row["end"], row["outcome"] = at, outcome

    def take(self, event: ev.AgentEvent, at: float) -> None:
        """One event, ``at`` seconds after the first."""
        match event:
            case ev.AttemptStarted():
                self._end("wait", at, "over")
                name = f"turn {event.turn} attempt {event.attempt}"
                self._begin("attempt", f"{name} {event.model}".rstrip(), "attempt", at)
            case ev.AttemptFailed():
                self._end("attempt", at, event.cause)
                if event.delay_s:
                    self._begin("wait", f"turn {event.turn} wait {event.attempt}", "wait", at)
            case ev.RescueStarted():
                self._begin("attempt", f"turn {event.turn} rescue", "rescue", at)
            case ev.ToolExecutionStarted():
                self._end("attempt", at, "served")
                self._begin(event.call_id, f"{event.tool_name} {event.call_id}", "tool", at)
            case ev.ToolExecutionFinished():
                self._end(event.call_id, at, event.status)
            case ev.AssistantMessageCommitted() | ev.TurnCompleted() | ev.UsageRecorded():
                self._end("attempt", at, "served")
            case ev.RunCompleted() | ev.RunFailed() | ev.RunCancelled():
                word = "cancelled" if isinstance(event, ev.RunCancelled) else "failed"
                for key in list(self._open):
                    self._end(key, at, word)
            case _:
                return


def breaker_rows(source: Any, run: str | None = None) -> list[dict[str, Any]]:
    """One row for each stretch of time in one state: ``start``, ``end`` (seconds from the first
    event), ``state``, ``failures``, ``model``."""
    events: Sequence[ev.AgentEvent] = events_of(source, run, all_runs=True)
    if not events:
        return []
    zero, last = events[0].timestamp, events[-1].timestamp - events[0].timestamp
    started = next((e for e in events if isinstance(e, ev.RunStarted)), None)
    model = "" if started is None else f"{started.provider}:{started.model}"
    rows: list[dict[str, Any]] = [
        {"start": 0.0, "end": last, "state": "primary", "failures": 0, "model": model}
    ]
    for event in events:
        if not isinstance(event, ev.BreakerChanged):
            continue
        at, fields = event.timestamp - zero, event.breaker
        rows[-1]["end"] = at
        rows.append({
            "start": at, "end": last, "state": str(fields.get("state", "?")),
            "failures": int(fields.get("consecutive_failures") or 0),
            "model": str(fields.get("routed_model") or model),
        })  # fmt: skip
    return [row for row in rows if row["end"] > row["start"] or row is rows[-1]]
