"""What a tool returned, as the text and images that go back to the model.

Source: Turn FSM, "ExecutingTools" (B54); T05, A02, D9.
"""

from __future__ import annotations

import base64
import dataclasses
import io
import json
from collections.abc import ItemsView, KeysView, Mapping, ValuesView
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from types import GeneratorType
from typing import Any, Final

from pydantic_core import to_jsonable_python

from notebook_agent.core.messages import ImagePart, TextPart
from notebook_agent.core.pixels import media_type, pixel_size
from notebook_agent.core.text import clean_json, clean_text

__all__ = [
    "MAX_BYTES",
    "MAX_LINES",
    "Output",
    "image_of",
    "image_part",
    "to_output",
    "truncate_output",
]

MAX_LINES: Final = 2_000
MAX_BYTES: Final = 50 * 1024
_JSON_KINDS: Final = (Mapping, list, tuple, set, frozenset, int, float)
_LAZY: Final = (GeneratorType, KeysView, ValuesView, ItemsView, filter, map, range, zip)
_MAX_ITEMS: Final = 10_000  # of a lazy value, which may have no end
_MAX_ROWS: Final = 60  # rows of a frame in the text; the shape tells the rest


@dataclass(frozen=True, slots=True)
class Output:
    """A result that is already text and images: it is taken as it is."""

    text: str
    images: tuple[ImagePart, ...] = ()


def to_output(value: Any) -> tuple[str, tuple[ImagePart, ...]]:
    """Text and images of a tool's return value.

    Args:
        value: Anything. Strings stay; JSON-able values, dataclasses and pydantic models become
            JSON; a generator, a range or a view the list of its first 10,000 items; a DataFrame
            its shape and text; images (PNG, JPEG, GIF, WebP bytes, Pillow, matplotlib, ImagePart)
            image parts; a list may mix text and images.

    Returns:
        Clean text (no lone surrogate, no NUL), never cut; images in order.
    """
    images: list[ImagePart] = []
    text = _text_of(value, images)
    return clean_text(text), tuple(images)


def _text_of(value: Any, images: list[ImagePart]) -> str:
    if value is None:
        # A tool that only acts: an empty result reads like a failure to several models.
        return "(no result)"
    if isinstance(value, str):
        return value
    if isinstance(value, _LAZY):
        return _text_of(list(islice(value, _MAX_ITEMS)), images)
    if isinstance(value, TextPart):
        return value.text
    if isinstance(value, Output):
        images += value.images
        return value.text
    image = image_of(value)
    if image is not None:
        images.append(image)
        size = "" if image.width is None else f" {image.width}x{image.height}"
        return f"[image{size}]"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _bytes_text(bytes(value))
    if isinstance(value, (list, tuple)) and any(_holds_image(one) for one in value):
        return "\n".join(_text_of(one, images) for one in value)
    frame = _frame_text(value)
    return _json_text(value) if frame is None else frame


def _holds_image(value: Any) -> bool:
    return isinstance(value, (ImagePart, TextPart)) or image_of(value) is not None


def _bytes_text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return f"[{len(raw):,} bytes that are no text]"


def _json_text(value: Any) -> str:
    structured = isinstance(value, (*_JSON_KINDS, Enum)) or dataclasses.is_dataclass(value)
    if not structured and not hasattr(value, "model_dump"):
        item = getattr(value, "item", None)  # a numpy scalar
        if callable(item) and getattr(value, "shape", None) == ():
            return _json_text(item())
        return _shown(value)
    try:
        plain = to_jsonable_python(value, fallback=_fallback, inf_nan_mode="constants")
        return json.dumps(clean_json(plain), ensure_ascii=False)
    except Exception:  # noqa: BLE001  # a foreign object may raise anything when it is read
        return _last_resort(value)


def _shown(value: Any) -> str:
    try:
        return str(value)
    except Exception as error:  # noqa: BLE001  # a foreign __str__
        return f"[{type(value).__name__} that cannot be shown: {type(error).__name__}]"


def _fallback(value: Any) -> Any:
    for word in ("tolist", "to_dict", "item"):
        method = getattr(value, word, None)
        if callable(method):
            return method()
    return str(value)


def _last_resort(value: Any) -> str:
    """Text with a lone surrogate, a cycle, or keys that JSON has no form for."""
    try:
        return json.dumps(clean_json(value), ensure_ascii=False, default=_shown)
    except (TypeError, ValueError, RecursionError):
        return _shown(value)


def _frame_text(value: Any) -> str | None:
    """A pandas object by its text; pandas itself is never imported here."""
    if type(value).__module__.split(".")[0] != "pandas" or not hasattr(value, "to_string"):
        return None
    rows = len(value)
    if hasattr(value, "columns"):
        head = f"{rows:,} rows x {len(value.columns)} columns"
        body = value.to_string(max_rows=_MAX_ROWS)
    elif hasattr(value, "dtype"):
        head = f"{rows:,} values, {value.dtype}"
        body = value.to_string(max_rows=_MAX_ROWS)
    else:
        return str(value)
    return f"{head}\n{body}"


def image_of(value: Any) -> ImagePart | None:
    """The image that a value is, None when it is none or cannot be drawn."""
    if isinstance(value, ImagePart):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return image_part(bytes(value))
    if isinstance(value, io.BytesIO):
        return image_part(value.getvalue())
    if isinstance(value, (str, int, float, Mapping, list, tuple, type)):
        return None
    kind = type(value)
    root = kind.__module__.split(".")[0]
    try:
        if root == "matplotlib" and hasattr(value, "savefig"):
            sink = io.BytesIO()
            value.savefig(sink, format="png")
            return image_part(sink.getvalue())
        if root == "PIL" and hasattr(value, "save"):
            return image_part(_pillow_bytes(value))
        if root == "IPython" and kind.__name__ == "Image" and value.data:
            return image_part(value.data)
    except Exception:  # noqa: BLE001  # a figure that cannot be drawn is shown as text instead
        return None
    return None


# Modes that PNG has no form for -> the nearest one that it has, with every pixel's colour kept.
_NEAREST: Final = {"HSV": "RGB", "LAB": "RGB", "PA": "RGBA", "RGBa": "RGBA", "La": "LA"}


def _pillow_bytes(value: Any) -> bytes:
    """A Pillow image as PNG; one that was opened from a JPEG stays one, a photo is ten times
    bigger as PNG."""
    sink = io.BytesIO()
    if getattr(value, "format", None) == "JPEG":
        value.save(sink, format="JPEG", quality="keep")
    else:
        value = value.convert(_NEAREST[value.mode]) if value.mode in _NEAREST else value
        value.save(sink, format="PNG")
    return sink.getvalue()


def image_part(raw: bytes) -> ImagePart | None:
    """An image part of encoded bytes, None when they are no image the models take.

    Returns:
        A ``data:`` URI with the size in pixels where the header tells it.
    """
    kind = media_type(raw)
    if kind is None:
        return None
    width, height = pixel_size(raw) or (None, None)
    source = f"data:{kind};base64,{base64.b64encode(raw).decode('ascii')}"
    return ImagePart(source, width, height)


def truncate_output(text: str, *, max_lines: int = MAX_LINES, max_bytes: int = MAX_BYTES) -> str:
    """Cut long output in its middle; the marker tells what was there.

    Ruling: B54. Too many lines: first and last half stay. Too many bytes: then three quarters
    of the room for the head, one for the tail. The marker counts towards both limits.

    Args:
        text: The output.
        max_lines: Lines that may stay, marker included; at least 3.
        max_bytes: UTF-8 bytes that may stay, marker included; at least 200.

    Returns:
        The text itself when it fits.
    """
    size = len(text) if text.isascii() else len(text.encode("utf-8"))
    lines = text.count("\n") + 1
    if lines <= max_lines and size <= max_bytes:
        return text
    marker = f"\n[... cut: the whole output has {lines:,} lines, {size:,} bytes ...]\n"
    head, tail = text, ""
    if lines > max_lines:
        split = text.split("\n")
        room = max_lines - 1  # the marker is a line of its own
        head = "\n".join(split[: room - room // 2])
        tail = "\n".join(split[-(room // 2) :])
    budget = max_bytes - len(marker)
    first, last = head.encode("utf-8"), tail.encode("utf-8")
    if len(first) + len(last) > budget:
        whole = first + last
        most = budget * 3 // 4
        first, last = whole[:most], whole[-(budget - most) :]
    return f"{first.decode('utf-8', 'ignore')}{marker}{last.decode('utf-8', 'ignore')}"
