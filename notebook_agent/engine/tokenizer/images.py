"""Tokens of an image by its size, with the providers' own formulas.

Source: LLM turn, "Counting the context" (L20); case T05.
"""

from __future__ import annotations

import base64
import binascii
import math
from typing import Final

from notebook_agent.core.messages import ImagePart
from notebook_agent.core.pixels import pixel_size

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
    """Width and height in pixels: as given, else from the head of a PNG, GIF, JPEG or WebP data
    URI."""
    if image.width and image.height and image.width > 0 and image.height > 0:
        return image.width, image.height
    head, comma, body = image.source[: _HEAD + 200].partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        return None
    try:
        data = base64.b64decode(body[: min(_HEAD, len(body) // 4 * 4)])
    except (binascii.Error, ValueError):
        return None
    return pixel_size(data)


def _by_area(width: int, height: int) -> int:
    shrink = min(1.0, 1_568 / max(width, height))
    return min(UNKNOWN_IMAGE, math.ceil(width * shrink * height * shrink / 750))


def _by_tiles(width: int, height: int) -> int:
    shrink = min(1.0, 2_048 / max(width, height))
    shrink = min(shrink, 768 / min(width, height))
    across, down = (max(1, math.ceil(side * shrink / 512)) for side in (width, height))
    return 85 + 170 * across * down
