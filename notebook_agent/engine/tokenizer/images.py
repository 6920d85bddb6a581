"""Tokens of an image by its size, with the providers' own formulas.

Source: LLM turn, "Counting the context" (L20); case T05.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
from typing import Final

from notebook_agent.core.messages import ImagePart

__all__ = ["UNKNOWN_IMAGE", "image_size", "image_tokens"]

UNKNOWN_IMAGE: Final = 1_600  # tokens, when the size is not known
_HEAD: Final = 4_096  # base64 characters that are looked at for the size


def image_tokens(image: ImagePart) -> int:
    """Tokens of an image: the dearer of the two public formulas, 1,600 for an unknown size.

    By area: width x height / 750 after shrinking to 1,568 pixels a side, at most 1,600. By
    tiles: 85 + 170 for each 512-pixel tile after shrinking into 2,048 and the short side to 768.
    """
    size = image_size(image)
    if size is None:
        return UNKNOWN_IMAGE
    return max(_by_area(*size), _by_tiles(*size))


def image_size(image: ImagePart) -> tuple[int, int] | None:
    """Width and height in pixels: as given, else from the head of a PNG, GIF or JPEG data URI."""
    if image.width and image.height and image.width > 0 and image.height > 0:
        return image.width, image.height
    head, comma, body = image.source[: _HEAD + 200].partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        return None
    try:
        data = base64.b64decode(body[: min(_HEAD, len(body) // 4 * 4)])
    except (binascii.Error, ValueError):
        return None
    size = _size_in(data)
    return size if size and min(size) > 0 else None


def _size_in(data: bytes) -> tuple[int, int] | None:
    try:
        if data[:8] == b"\x89PNG\r\n\x1a\n" and data[12:16] == b"IHDR":
            width, height = struct.unpack(">II", data[16:24])
            return width, height
        if data[:4] == b"GIF8":
            width, height = struct.unpack("<HH", data[6:10])
            return width, height
        if data[:2] == b"\xff\xd8":
            return _jpeg_size(data)
    except struct.error:
        return None
    return None


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        at += 2 + int(struct.unpack(">H", data[at + 2 : at + 4])[0])
    return None


def _by_area(width: int, height: int) -> int:
    shrink = min(1.0, 1_568 / max(width, height))
    return min(UNKNOWN_IMAGE, math.ceil(width * shrink * height * shrink / 750))


def _by_tiles(width: int, height: int) -> int:
    shrink = min(1.0, 2_048 / max(width, height))
    shrink = min(shrink, 768 / min(width, height))
    across, down = (max(1, math.ceil(side * shrink / 512)) for side in (width, height))
    return 85 + 170 * across * down
