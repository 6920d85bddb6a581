"""Frames of tuning: pandas is imported when one is made, not before.

Source: tune by experiment (frames; every absence is <NA>).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

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

    found = list(rows)
    table = [_line(row) for row in found]
    places = pd.Index([row.place for row in found], name="place", dtype="int64")
    frame = pd.DataFrame(table, index=places, columns=None if table else [*_OURS])
    kinds = dict(_OURS)
    if any(abs(row.spec.get("seed") or 0) >= _INT64 for row in found):
        kinds["seed"] = "object"
    return frame.astype({name: kind for name, kind in kinds.items() if kind})


# The sweep's own columns -> dtype, also when there are no rows; None = whatever the prompts are.
_OURS: Final[Mapping[str, str | None]] = {
    "prompt": None, "seed": "Int64", "repeat": "Int64", "status": "str", "attempts": "int64",
    "resent": "int64", "duration_s": "Float64", "error": "str",
}  # fmt: skip
_INT64: Final = 2**63


def _line(row: Row) -> dict[str, Any]:
    """A row's columns: a name of ours stays ours, a config's, input's or answer's gets its
    group's in front of it then."""
    spec = row.spec
    line: dict[str, Any] = {"prompt": spec.get("prompt")}
    for group in ("config", "inputs"):
        for name, value in (spec.get(group) or {}).items():
            taken = name in line or name in _OURS or name == "value"
            line[f"{group}.{name}" if taken else name] = value
    line |= {
        "seed": spec.get("seed"),
        "repeat": spec.get("repeat"),
        "status": row.status,
        "attempts": row.attempts,
        "resent": row.resent,
        "duration_s": row.duration_s,
        "error": None if row.error is None else error_words(row.error),
    }
    if isinstance(row.value, Mapping):
        for name, value in row.value.items():
            line[f"answer.{name}" if name in line else name] = value
    elif row.status == "done":
        line["value"] = row.value
    return line


def error_words(error: Mapping[str, Any]) -> str:
    """An error's JSON in one line."""
    message = str(error.get("message", "")).splitlines()
    return f"{error.get('error', 'Error')}: {message[0] if message else ''}".rstrip(": ")
