"""The audit trail's DataFrame: pandas in every way, but for what a display of it may do.

A text of a model stands in the cells as it came. When the frame is shown, control characters are
made visible, since a terminal would obey them (X03), and no maths is set in it (D14).
Importing this module imports pandas.

Source: notebook side, "Audit frame", "The panel" (D14); X02, X03.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from notebook_agent.core.text import visible

__all__ = ["TrailFrame", "TrailSeries"]


class TrailFrame(pd.DataFrame):
    """A DataFrame whose display is safe; what is made of it by pandas is one too."""

    @property
    def _constructor(self) -> Any:
        return TrailFrame

    @property
    def _constructor_sliced(self) -> Any:
        return TrailSeries

    def __repr__(self) -> str:
        return repr(_shown(self))

    def _repr_html_(self) -> Any:
        # pandas' own, or what the person put in its place (itables)
        draw: Any = getattr(_shown(self), "_repr_html_")  # noqa: B009  # hidden from its stubs
        with pd.option_context("display.html.use_mathjax", False):
            html = draw()
        if isinstance(html, str) and "mathjax_ignore" not in html:  # pandas 2: only the older word
            html = html.replace("tex2jax_ignore", "tex2jax_ignore mathjax_ignore", 1)
        return html


class TrailSeries(pd.Series):
    """One column or row of it."""

    @property
    def _constructor(self) -> Any:
        return TrailSeries

    @property
    def _constructor_expanddim(self) -> Any:
        return TrailFrame

    def __repr__(self) -> str:
        frame = _shown(pd.DataFrame({0: pd.Series(self)}))
        shown = frame[0]
        shown.name = _clean(self.name)
        if isinstance(self.dtype, pd.StringDtype):
            shown = shown.astype(self.dtype)
        return repr(shown)


def _clean(value: Any) -> Any:
    if isinstance(value, tuple):  # of an index of several levels
        return tuple(_clean(one) for one in value)
    return visible(value) if isinstance(value, str) else value


def _holds_text(dtype: Any) -> bool:
    return pd.api.types.is_object_dtype(dtype) or isinstance(dtype, pd.StringDtype)


def _shown(frame: pd.DataFrame) -> pd.DataFrame:
    """A plain frame for the eye, texts no longer than pandas would show."""
    width = pd.get_option("display.max_colwidth")
    end = None if width is None else width + 1  # one more, so that pandas marks the cut
    plain = pd.DataFrame(frame).copy(deep=False)
    for at, dtype in enumerate(plain.dtypes):
        if _holds_text(dtype):
            plain.isetitem(
                at, [_clean(v[:end] if isinstance(v, str) else v) for v in plain.iloc[:, at]]
            )
    for axis in ("index", "columns"):
        labels = getattr(plain, axis)
        if len(labels) and _holds_text(labels.dtype):
            setattr(plain, axis, labels.map(_clean))
    return plain
