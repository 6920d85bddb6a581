"""Frames of tuning: pandas is imported when one is made, not before.

Source: tune by experiment (frames; every absence is <NA>).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from notebook_agent.tuning.journal import Row

__all__ = ["frame_of", "sweep_frame"]


def frame_of(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> Any:
    """Rows as a pandas.DataFrame with these columns and dtypes, also when there are none.

    Args:
        rows: One mapping a row; what is missing is <NA>.
        columns: Name -> pandas dtype, in order.
    """
    import pandas as pd  # noqa: PLC0415  # slow to import

    array: Any = pd.array  # the dtypes are names here
    return pd.DataFrame(
        {
            name: array([_plain(row.get(name)) for row in rows], dtype=dtype)
            if dtype != "object"
            else pd.Series([row.get(name) for row in rows], dtype="object")
            for name, dtype in columns.items()
        }
    )


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and value != value else value  # noqa: PLR0124, RUF100  # NaN


def sweep_frame(rows: Iterable[Row]) -> Any:
    """The rows of a sweep; see :meth:`notebook_agent.tuning.sweep.Sweep.frame`."""
    import pandas as pd  # noqa: PLC0415  # slow to import

    table: list[dict[str, Any]] = []
    places: list[int] = []
    for row in rows:
        spec = row.spec
        line: dict[str, Any] = {"prompt": spec.get("prompt")}
        for group in ("config", "inputs"):
            for name, value in (spec.get(group) or {}).items():
                line[name if name not in line else f"{group}.{name}"] = value
        line |= {"seed": spec.get("seed"), "repeat": spec.get("repeat")}
        line |= {
            "status": row.status,
            "attempts": row.attempts,
            "resent": row.resent,
            "duration_s": row.duration_s,
            "error": None if row.error is None else error_words(row.error),
        }
        if isinstance(row.value, Mapping):
            for name, value in row.value.items():
                line[name if name not in line else f"answer.{name}"] = value
        elif row.status == "done":
            line["value"] = row.value
        table.append(line)
        places.append(row.place)
    first = ["prompt", "seed", "repeat", "status", "attempts", "resent", "duration_s", "error"]
    frame = pd.DataFrame(table, index=pd.Index(places, name="place"))
    if not table:
        return pd.DataFrame(columns=first, index=pd.Index([], name="place", dtype="int64"))
    return frame.astype({"seed": "Int64", "repeat": "Int64", "duration_s": "Float64"})


def error_words(error: Mapping[str, Any]) -> str:
    """An error's JSON in one line."""
    message = str(error.get("message", "")).splitlines()
    return f"{error.get('error', 'Error')}: {message[0] if message else ''}".rstrip(": ")
