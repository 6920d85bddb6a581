"""Images from what people have at hand: a file, a figure, a picture of Pillow, a cell's output.

Source: notebook, option ``--with``; LLM turn (L1, L20); case T05.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from notebook_agent.core.messages import ImagePart, Message, MessagePart, Role, TextPart
from notebook_agent.engine.tools.output import image_of, image_part
from notebook_agent.errors import InputRejected

__all__ = ["MAX_IMAGE_BYTES", "as_message", "find_image", "image"]

# No provider takes more in one image; a bigger one would be read, encoded and sent for nothing.
MAX_IMAGE_BYTES: Final = 20 * 1024 * 1024
_KINDS: Final = "PNG, JPEG, GIF or WebP"
_SCHEME: Final = re.compile(r"\s*(data(?=:)|[a-zA-Z][a-zA-Z0-9+.-]+(?=://))", re.IGNORECASE)
_STANDARD: Final = str.maketrans("-_", "+/")  # the other alphabet of base64
_LONGEST: Final = 120  # characters of a path in a message


def image(value: Any) -> ImagePart:
    """An image part of a file's path, image bytes, Pillow, matplotlib, an output with an image.

    Args:
        value: The path of a PNG, JPEG, GIF or WebP file, its bytes, a ``PIL.Image``, a
            matplotlib figure or axes, anything that Jupyter shows as an image, or an http(s)
            address or ``data:`` URI.

    Returns:
        A ``data:`` URI (an address stays one) with the size in pixels.

    Raises:
        InputRejected: It is no image that models take, or too big.
    """
    if isinstance(value, str) and (scheme := _SCHEME.match(value)):
        value = value.strip()
        if scheme[1].lower() == "data":
            return _of_uri(value)
        if not re.fullmatch(r"(?i:https?)://[^\s/?#]+\S*", value):
            raise InputRejected(
                f"{_short(value)} is no address that a model can fetch an image from. Nothing was "
                "sent.\nGive one with http:// or https://, or the image's data."
            )
        return ImagePart(value)
    if isinstance(value, (str, os.PathLike)):
        return _of_file(Path(value))
    found = find_image(value)
    if found is None:
        raise InputRejected(
            f"A {type(value).__name__} is no image. Nothing was sent.\n"
            f"Give a path or bytes of {_KINDS}, a PIL image, or a matplotlib figure."
        )
    return found


def find_image(value: Any) -> ImagePart | None:
    """The image that a value is or shows, None when it is none. A path or text is none.

    Raises:
        InputRejected: The image is too big.
    """
    found = image_of(value)
    if found is None and not isinstance(value, (str, bytes, type)):
        found = _shown(value)
    if found is not None:
        _check_size(found.source)
    return found


def as_message(given: Any, role: Role = Role.USER) -> Message:
    """A message of a text, an image, or a list that mixes both.

    Args:
        given: A Message stays; text stays text, also when it is a path; other values are images.
        role: Who speaks.

    Raises:
        InputRejected: A part is neither text nor image.
    """
    if isinstance(given, Message):
        return given
    if given is None or isinstance(given, (bool, int, float)):
        raise InputRejected(
            f"The prompt is {given!r}. Nothing was sent.\n"
            "Give a text, a Message, or a list of texts and images."
        )
    many = isinstance(given, Sequence) and not isinstance(given, (str, bytes, bytearray))
    return Message(role, tuple(_part(one) for one in (given if many else (given,))))


def _part(one: Any) -> MessagePart:
    if isinstance(one, str):
        return TextPart(one)
    return one if isinstance(one, (TextPart, ImagePart)) else image(one)


def _of_file(path: Path) -> ImagePart:
    path = path.expanduser()
    try:
        if path.stat().st_size > MAX_IMAGE_BYTES:
            raise _too_big(path.stat().st_size)
        raw = path.read_bytes()
    except (OSError, ValueError) as error:  # a NUL in the path is a ValueError
        why = getattr(error, "strerror", None) or error
        raise InputRejected(
            f"The image {_short(str(path))} cannot be read: {why}. Nothing was sent."
        ) from None
    return _of_bytes(raw, _short(str(path)))


def _of_uri(source: str) -> ImagePart:
    head, _, body = source.partition(",")
    body = "".join(unquote(body).split()).translate(_STANDARD).rstrip("=")  # as browsers read it
    try:
        coded = head.lower().endswith(";base64")
        raw = base64.b64decode(body + "=" * (-len(body) % 4), validate=True) if coded else b""
    except ValueError:
        raw = b""
    return _of_bytes(raw, f"{head[:60]},...")


def _of_bytes(raw: bytes, what: str) -> ImagePart:
    if len(raw) > MAX_IMAGE_BYTES:
        raise _too_big(len(raw))
    found = image_part(raw)
    if found is None:
        raise InputRejected(f"{what} is no {_KINDS} image. Nothing was sent.")
    return found


def _short(text: str) -> str:
    """A path or address for a message."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _check_size(source: str) -> None:
    data = source.partition(",")[2]
    size = len(data) * 3 // 4 - data[-2:].count("=")
    if source.startswith("data:") and size > MAX_IMAGE_BYTES:
        raise _too_big(size)


def _too_big(size: int) -> InputRejected:
    return InputRejected(
        f"The image has {size:,} bytes; at most {MAX_IMAGE_BYTES:,} are sent. Nothing was sent.\n"
        "Make it smaller, or save it as JPEG."
    )


def _shown(value: Any) -> ImagePart | None:
    """The image that Jupyter would show for a value: its PNG or JPEG form."""
    figure = _attribute(value, "figure")  # axes, a seaborn grid
    if figure is not None and figure is not value:
        found = image_of(figure)
        if found is not None:
            return found
    for name in ("_repr_png_", "_repr_jpeg_", "_repr_mimebundle_"):
        method = _attribute(value, name)
        if not callable(method):
            continue
        raw = _called(method)
        found = None if raw is None else image_part(raw)
        if found is not None:
            return found
    return None


def _attribute(value: Any, name: str) -> Any:
    try:
        return getattr(value, name, None)
    except Exception:  # noqa: BLE001  # a foreign object's own attributes may raise anything
        return None


def _called(method: Any) -> bytes | None:
    try:
        return _bytes_of(method())
    except (Exception, SystemExit):  # noqa: BLE001  # a foreign object may raise anything when it is shown
        return None


def _bytes_of(data: Any) -> bytes | None:
    if isinstance(data, tuple) and data:  # (data, metadata)
        data = data[0]
    if isinstance(data, dict):
        kinds = ("image/png", "image/jpeg", "image/gif", "image/webp")
        data = next((data[k] for k in kinds if k in data), None)
    if isinstance(data, str):
        return base64.b64decode(data)
    return bytes(data) if isinstance(data, (bytes, bytearray)) else None
