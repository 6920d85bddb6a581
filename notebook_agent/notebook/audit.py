"""The audit trail as a DataFrame, one row per turn, failed and cancelled ones too.

Unknown is not zero: a count nobody reported is ``<NA>``, all the way into the frame.

Source: LLM turn, "The turn's paper trail" (L105, L120, L121); notebook side, "Audit frame";
A01, A03, A04.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from notebook_agent.core.prices import Prices, turn_cost
from notebook_agent.core.session import Run, Session, Turn

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "COLUMNS", "AuditView", "audit_frame", "audit_view", "cost_column", "run_frame", "run_rows",
    "turn_row",
]  # fmt: skip

# Column -> dtype, in order. ``Int64``, ``Float64`` and ``boolean`` hold <NA>.
COLUMNS: Final[Mapping[str, str]] = {
    "run": "int64",
    "run_id": "string",
    "turn": "int64",
    "provider": "string",
    "model": "string",
    "outcome": "string",
    "ending": "string",
    "stop_reason": "string",
    "input_tokens": "Int64",
    "output_tokens": "Int64",
    "cached_input_tokens": "Int64",
    "reasoning_tokens": "Int64",
    "context_estimate": "Int64",
    "failed_input_tokens": "Int64",
    "failed_output_tokens": "Int64",
    "budget_tokens": "Int64",
    "budget_estimated": "boolean",
    "input_includes_cached": "boolean",
    "attempts": "Int64",
    "rescued": "boolean",
    "breaker": "string",
    "compacted": "boolean",
    "tool_calls": "Int64",
    "tools_not_run": "string",
    "ttft_s": "Float64",
    "duration_s": "Float64",
    "started_at": "datetime64[ns, UTC]",
    "input": "string",
    "output": "string",
}
SHOWN: Final = (
    "run", "turn", "model", "outcome", "stop_reason", "input_tokens", "output_tokens",
    "context_estimate", "attempts", "tool_calls", "ttft_s", "duration_s", "cost", "input", "output",
)  # fmt: skip
TEXT_SHOWN: Final = 80  # characters of a text cell in the view; the frame holds all
ROWS_SHOWN: Final = 200
INTERACTIVE_ROWS: Final = 1_000  # 14 columns of 1,000 short rows: one output stays below 1 MB
INTERACTIVE_TEXT: Final = 120


def audit_frame(session: Session) -> pd.DataFrame:
    """One row per turn of the session, oldest first.

    Args:
        session: The session to read. Not changed. Without turns the frame is empty, with the
            same columns and dtypes.

    Returns:
        Shape ``(n_turns, 29)``, indexed from 0. Columns and units:

        * ``run``, ``turn``: count from 0; ``turn`` restarts in each run.
        * ``provider``, ``model``: what served the turn (full name ``provider:name``).
        * ``outcome``: ``served``, ``failed`` or ``cancelled``; the latter two keep the partial
          text in ``output``.
        * ``*_tokens``: tokens as reported, ``<NA>`` = not reported, so a sum is a lower bound
          wherever ``isna().any()``. ``failed_*`` are those of failed attempts of the turn.
        * ``context_estimate``, ``budget_tokens``: our own count, tokens.
        * ``attempts``, ``tool_calls``: counts. ``tools_not_run``: names, comma separated.
        * ``ttft_s``, ``duration_s``: seconds. ``started_at``: UTC.

    Example:
        >>> audit_frame(Session()).shape
        (0, 29)

    Source: LLM turn, "The turn's paper trail"; L105, L120.
    """
    return _frame(row for number, run in enumerate(session.runs) for row in iter_rows(run, number))


def cost_column(session: Session, prices: Prices) -> pd.Series:
    """Cost of each row of :func:`audit_frame`, in the currency of the prices.

    Args:
        session: As given to ``audit_frame``.
        prices: From ``check_prices``.

    Returns:
        Float64; ``<NA>`` where the model has no price or tokens were not reported.
    """
    import pandas as pd  # noqa: PLC0415  # slow to import

    costs = [
        None if cost is None or not cost.complete else cost.amount
        for run in session.runs
        for turn in iter_turns(run)
        for cost in (turn_cost(turn[0], prices),)
    ]
    return pd.Series(costs, dtype="Float64")


def run_frame(run: Run, number: int = 0) -> pd.DataFrame:
    """The same frame for one run; ``number`` goes into its ``run`` column."""
    return _frame(iter_rows(run, number))


def run_rows(run: Run, number: int = 0) -> list[dict[str, Any]]:
    """The rows of a run as dicts with the frame's columns, None for what is not known."""
    return [dict(zip(COLUMNS, row, strict=True)) for row in iter_rows(run, number)]


def turn_row(turn: Turn, run: Run, number: int = 0, outcome: str = "served") -> dict[str, Any]:
    """One turn as a dict with the frame's columns."""
    return dict(zip(COLUMNS, _values(turn, run, number, outcome), strict=True))


def iter_rows(run: Run, number: int) -> Iterator[tuple[Any, ...]]:
    """Served and unserved turns in the order they ran."""
    for turn, outcome in iter_turns(run):
        yield _values(turn, run, number, outcome)


def iter_turns(run: Run) -> list[tuple[Turn, str]]:
    """Served and unserved turns with their outcome, in the order they ran."""
    both = [(turn, "served") for turn in run.turns]
    if run.unserved:
        both += [(one.turn, one.outcome) for one in run.unserved]
        both.sort(key=lambda pair: (pair[0].turn, pair[0].started_at))
    return both


def _values(t: Turn, run: Run, number: int, outcome: str) -> tuple[Any, ...]:
    served = outcome == "served"
    provider = t.model.partition(":")[0]
    return (
        number,
        run.id,
        t.turn,
        provider,
        t.model,
        outcome,
        t.ending.value if t.ending is not None else None,
        t.stop_reason.value if served else None,  # an unserved turn has no stop reason
        t.input_tokens,
        t.output_tokens,
        t.cached_input_tokens,
        t.reasoning_tokens,
        t.context_estimate,
        t.failed_input_tokens,
        t.failed_output_tokens,
        t.budget_tokens,
        t.budget_estimated,
        t.input_includes_cached,
        t.attempts,
        t.rescued,
        t.breaker,
        t.compacted,
        len(t.tool_calls),
        ", ".join(t.tools_not_run) if t.tools_not_run else "",
        t.ttft_s,
        t.duration_s,
        t.started_at,
        t.input,
        t.output,
    )


def _frame(rows: Iterable[tuple[Any, ...]]) -> pd.DataFrame:
    from notebook_agent.notebook.trail_frame import TrailFrame  # noqa: PLC0415  # pandas is slow to import

    columns = list(zip(*rows, strict=True)) or [()] * len(COLUMNS)
    made = {
        name: _column(values, dtype)
        for (name, dtype), values in zip(COLUMNS.items(), columns, strict=True)
    }
    return TrailFrame(made, copy=False)


def _column(values: tuple[Any, ...], dtype: str) -> Any:
    """One column with its dtype; filled values and a mask where the dtype holds <NA>."""
    import numpy as np  # noqa: PLC0415  # comes with pandas
    import pandas as pd  # noqa: PLC0415  # pandas is slow to import

    if dtype == "int64":
        return np.array(values, dtype="int64")
    if dtype.startswith("datetime64"):
        # whole microseconds: a float has no more, and none of it is lost
        micros = np.array([round(v * 1e6) for v in values], dtype="int64")
        return pd.DatetimeIndex(micros.view("M8[us]")).tz_localize("UTC").as_unit("ns")
    if dtype in _MASKED:
        kind, zero = _MASKED[dtype]
        mask = np.fromiter((v is None for v in values), dtype=bool, count=len(values))
        data = np.array([zero if v is None else v for v in values], dtype=kind)
        make = {
            "Int64": pd.arrays.IntegerArray,
            "Float64": pd.arrays.FloatingArray,
            "boolean": pd.arrays.BooleanArray,
        }[dtype]
        return make(data, mask)
    return pd.array(list(values), dtype="string")


_MASKED: Final[Mapping[str, tuple[str, Any]]] = {
    "Int64": ("int64", 0),
    "Float64": ("float64", 0.0),
    "boolean": ("bool", False),
}


# ---- the view ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, repr=False)
class AuditView:
    """The trail for reading: long text shortened, many rows folded; ``.frame`` holds all.

    Example:
        ``audit_view(session).where(outcome="failed")``
    """

    frame: Any
    rows: int = ROWS_SHOWN

    def where(self, **equal: Any) -> AuditView:
        """Only rows whose columns equal these values.

        Args:
            equal: Column -> the value, a list (one of them), or a function of the whole column
                that says which rows: ``where(duration_s=lambda s: s > 5)``.

        Raises:
            KeyError: There is no such column.

        A row whose value is ``<NA>`` never passes a comparison.
        """
        frame = self.frame
        for name, value in equal.items():
            if name not in frame.columns:
                raise KeyError(f"no column {name!r}; there are {', '.join(frame.columns)}")
            if callable(value):
                passed = value(frame[name]).fillna(value=False).astype(bool)
            else:
                wanted = value if isinstance(value, (list, tuple, set)) else [value]
                passed = frame[name].isin(list(wanted))
            frame = frame[passed]
        return AuditView(frame, self.rows)

    def tail(self, n: int = 10) -> AuditView:
        """The newest ``n`` rows."""
        return AuditView(self.frame.tail(n), self.rows)

    def interactive(self, rows: int = INTERACTIVE_ROWS) -> None:
        """Show the trail as a table to sort and to search, with a filter for each column.

        Drawn by itables where it is installed, else the plain table is shown and says so. Its
        library is put into the output (0.7 MB, once a call): nothing is fetched, the saved
        notebook works offline.

        Args:
            rows: The newest rows at most; text is shortened, ``.frame`` holds all.
        """
        from IPython.display import display  # noqa: PLC0415  # a view only

        if importlib.util.find_spec("itables") is None:
            show: Any = display  # IPython has no types
            show(self)
            print("For sorting and filters:  %pip install itables")  # noqa: T201  # said to the person
            return
        import itables  # noqa: PLC0415  # optional: used when the user has it
        import pandas as pd  # noqa: PLC0415  # slow to import

        frame = self._interactive_frame(rows)
        # the person's own choice for all frames stays what it was
        mine = str(getattr(pd.DataFrame, "_repr_html_", None).__module__).startswith("itables")
        itables.init_notebook_mode(all_interactive=mine, connected=False)
        itables.show(
            frame, connected=False, allow_html=False, column_filters="header", maxBytes=0,
            maxRows=0, maxColumns=0,
        )  # fmt: skip

    def _interactive_frame(self, rows: int) -> Any:
        """Numbers as numbers, so that they sort; texts short and with nothing invisible in them."""
        from notebook_agent.notebook.tables import short_cell  # noqa: PLC0415  # a view only

        frame = self._shown().tail(rows)
        texts = [name for name in frame.columns if COLUMNS.get(name) == "string"]
        short = {name: [short_cell(v, INTERACTIVE_TEXT) for v in frame[name]] for name in texts}
        return frame.assign(**short).rename(columns=lambda name: name.replace("_", " "))

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": self.text(), "text/html": self.html()}

    def __repr__(self) -> str:
        return self.text()

    def text(self) -> str:
        """Aligned text."""
        return self._render("text")

    def html(self) -> str:
        """A plain table, everything escaped, no style sheet; far below a megabyte."""
        return self._render("html")

    def _shown(self) -> Any:
        columns = [name for name in SHOWN if name in self.frame.columns]
        return self.frame[columns]

    def _render(self, form: str) -> str:
        from notebook_agent.notebook.tables import cells_of, html_table, text_table  # noqa: PLC0415  # a view only

        frame = self._shown()
        total = len(frame)
        head = frame if total <= self.rows else frame.iloc[: self.rows // 2]
        rest = frame.iloc[0:0] if total <= self.rows else frame.iloc[total - self.rows // 2 :]
        names = [name.replace("_", " ") for name in frame.columns]
        numeric = [
            COLUMNS.get(name, "Float64") in ("int64", "Int64", "Float64") for name in frame.columns
        ]
        rows = [cells_of(row, TEXT_SHOWN) for row in head.itertuples(index=False)]
        if len(rest):
            gap = f"... {total - len(head) - len(rest):,} rows not shown; the frame has all"
            rows.append([gap, *[""] * (len(names) - 1)] if form == "html" else ["..."] * len(names))
            rows += [cells_of(row, TEXT_SHOWN) for row in rest.itertuples(index=False)]
        note = f"{total:,} turns" if total != 1 else "1 turn"
        if form == "html":
            return html_table(names, rows, numeric, caption=note)
        return f"{text_table(names, rows, numeric)}\n{note}"


def audit_view(source: Session | Any) -> AuditView:
    """The trail for reading, from a session or an audit frame.

    Args:
        source: A session, or what ``audit_frame`` and ``%agent audit`` gave.

    Returns:
        An :class:`AuditView`: ``where`` and ``tail`` filter, ``interactive`` makes a table.

    Source: A04.
    """
    return AuditView(audit_frame(source) if isinstance(source, Session) else source)
