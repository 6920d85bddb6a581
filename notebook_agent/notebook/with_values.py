"""``--with a,b`` and ``--cells N``: what the model is shown for this run only.

A frame is shown as schema, counts and head; code as its source; a figure, a picture or the path of
an image file as the image; anything else as its text; each under a cap. Nothing of it is stored in
the conversation.

Source: notebook side, commands (the table of options: ``-w``, ``--cells``); D9.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from notebook_agent.core.interpolate import known_as, look_up, no_text
from notebook_agent.core.messages import ImagePart, Message, Role, TextPart
from notebook_agent.core.pixels import SUFFIXES
from notebook_agent.core.text import clean_text
from notebook_agent.errors import AgentError, InputRejected
from notebook_agent.notebook.arguments import nearest, own_names

__all__ = ["cells_message", "describe", "values_message"]

HEAD_ROWS: Final = 5
MAX_COLUMNS: Final = 60
_LONGEST_PATH: Final = 1_000

Count = Callable[[str], int]


def values_message(
    names: Sequence[str], namespace: Mapping[str, Any], *, cap: int, count: Count
) -> Message | None:
    """One message that shows variables.

    Args:
        names: Variables, ``Out[3]`` and the like, or paths of image files, in the order given.
        namespace: Where they are looked up.
        cap: Tokens per variable.
        count: Tokens of a text.

    Raises:
        InputRejected: There is no variable of that name.
    """
    if not names:
        return None
    parts: list[str] = []
    images: list[ImagePart] = []
    for name in names:
        value = _value(name, namespace)
        picture, text = _shown(name, value)
        if picture is None:
            parts.append(f"{name}: {capped(text, cap, count)}")
        else:
            images.append(picture)
            size = "" if picture.width is None else f", {picture.width}x{picture.height} pixels"
            parts.append(f"{name}: image {len(images)} below{size}")
    text = "Variables of the notebook, for reference:\n\n" + "\n\n".join(parts)
    return Message(Role.USER, (TextPart(clean_text(text)), *images))


def _value(name: str, namespace: Mapping[str, Any]) -> Any:
    if known_as(name, namespace) in namespace:
        return namespace[known_as(name, namespace)]
    if name.lower().endswith(SUFFIXES):
        return Path(name)
    why = f"there is no variable {name!r} in this notebook"
    if not name.isidentifier():
        try:
            return look_up(name, namespace)
        except LookupError as problem:
            why = str(problem)
    close = nearest(name, own_names(namespace))
    typed = f"%%agent --with {close}" if close else f"{name} = ...   in a cell of its own"
    raise InputRejected(f"--with: {why}. Nothing was sent.\nType:  {typed}")


def _shown(name: str, value: Any) -> tuple[ImagePart | None, str]:
    """A value as image or text.

    Raises:
        InputRejected: It is neither: its own code raises.
    """
    try:
        picture = _picture(value)
        return picture, describe(value) if picture is None else ""
    except AgentError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001  # a user object may raise anything
        raise InputRejected(
            f"--with: {name}: {no_text(value, error)}. Nothing was sent.\n"
            "Type:  text = ...     in a cell of its own, then  %%agent --with text"
        ) from None


def _picture(value: Any) -> ImagePart | None:
    """The image that a value is, shows, or is the path of."""
    from notebook_agent.engine.images import find_image, image  # noqa: PLC0415  # loads at use, not with the extension

    if isinstance(value, Path) and value.suffix.lower() in SUFFIXES:
        return image(value)
    if isinstance(value, str):  # text stays text, unless it names an image file that is there
        named = len(value) < _LONGEST_PATH and value.lower().endswith(SUFFIXES)
        return image(value) if named and Path(value).expanduser().is_file() else None
    if hasattr(value, "dtypes"):
        return None
    return find_image(value)


def cells_message(sources: Sequence[str], *, cap: int, count: Count) -> Message | None:
    """One message with cell sources, oldest first."""
    if not sources:
        return None
    parts = [f"```\n{capped(one.rstrip(), cap, count)}\n```" for one in sources]
    text = "The newest cells of the notebook, for reference:\n\n" + "\n\n".join(parts)
    return Message.user(clean_text(text))


def capped(text: str, cap: int, count: Count) -> str:
    """The text cut in the middle to about ``cap`` tokens, with a note of what was cut."""
    if len(text.encode(errors="replace")) <= cap:
        return text
    # A giant is never counted whole: a token is seldom more than 16 characters.
    if len(text) <= cap * 16 and count(text) <= cap:
        return text
    low, high = 0, min(len(text), cap * 16)
    while high - low > max(16, high // 200):
        middle = (low + high) // 2
        if count(_cut(text, middle)) <= cap:
            low = middle
        else:
            high = middle
    return _cut(text, low)


def _cut(text: str, keep: int) -> str:
    head = keep * 2 // 3
    tail = keep - head
    left = text[:head]
    right = text[len(text) - tail :] if tail else ""
    return f"{left}\n[... {len(text) - keep:,} characters left out ...]\n{right}"


def describe(value: Any) -> str:
    """A value as the model sees it."""
    kind = type(value)
    if kind.__module__.split(".")[0] == "pandas" and hasattr(value, "dtypes"):
        return _frame(value) if hasattr(value, "columns") else _series(value)
    if isinstance(value, str):
        return f"str of {len(value):,} characters\n{value}"
    if inspect.isroutine(value) or inspect.isclass(value):
        return _source(value)
    shape = getattr(value, "shape", None)
    head = kind.__name__
    if isinstance(shape, tuple):
        head += f" of shape {shape}"
        if getattr(value, "dtype", None) is not None:
            head += f", dtype {value.dtype}"
    elif isinstance(value, (list, tuple, dict, set, frozenset)):
        head += f" of {len(value):,}"
    return f"{head}\n{value!r}"


def _frame(frame: Any) -> str:
    rows, columns = frame.shape
    lines = [
        f"DataFrame, {rows:,} rows x {columns:,} columns",
        "column | dtype | not null | distinct",
    ]
    for i, column in enumerate(frame.columns[:MAX_COLUMNS]):
        series = frame.iloc[:, i]
        lines.append(f"{column} | {series.dtype} | {int(series.count()):,} | {_distinct(series)}")
    if columns > MAX_COLUMNS:
        lines.append(f"... {columns - MAX_COLUMNS:,} more columns")
    shown = frame.iloc[:, :MAX_COLUMNS].head(HEAD_ROWS)
    lines += [f"first {min(rows, HEAD_ROWS)} rows:", shown.to_csv(index=False).rstrip()]
    return "\n".join(lines)


def _series(series: Any) -> str:
    lines = [f"Series {series.name!r}, {len(series):,} values, dtype {series.dtype}"]
    lines.append(f"not null {int(series.count()):,}, distinct {_distinct(series)}")
    lines.append("first: " + ", ".join(str(v) for v in series.head(HEAD_ROWS)))
    return "\n".join(lines)


def _distinct(series: Any) -> str:
    try:
        return f"{int(series.nunique()):,}"
    except TypeError:  # lists and dicts in cells
        return "?"


def _source(value: Any) -> str:
    try:
        return textwrap.dedent(inspect.getsource(value)).rstrip()
    except (OSError, TypeError):
        try:
            signature = str(inspect.signature(value))
        except (TypeError, ValueError):
            signature = "(...)"
        name = getattr(value, "__name__", "?")
        return f"{name}{signature}\n{inspect.getdoc(value) or ''}".rstrip()
