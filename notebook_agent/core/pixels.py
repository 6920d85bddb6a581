"""Kind and size of an encoded image, from its first bytes and without any image package.

Source: LLM turn, "Counting the context" (L20); case T05.
"""

from __future__ import annotations

from typing import Final

__all__ = ["SUFFIXES", "media_type", "pixel_size"]

# endings of the files that models take as images
SUFFIXES: Final = (".png", ".jpg", ".jpeg", ".gif", ".webp")

_SIGNATURES: Final[tuple[tuple[bytes, str], ...]] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
# JPEG markers that open a frame and hold its size; C4, C8 and CC are tables
_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def media_type(raw: bytes) -> str | None:
    """``image/png``, ``image/jpeg``, ``image/gif``, ``image/webp``; None for anything else."""
    for start, mime in _SIGNATURES:
        if raw.startswith(start):
            return mime
    return "image/webp" if raw[:4] == b"RIFF" and raw[8:12] == b"WEBP" else None


def pixel_size(raw: bytes) -> tuple[int, int] | None:
    """Width and height in pixels, None where the bytes do not tell.

    Args:
        raw: The image, or its first bytes: 30 are enough but for JPEG, whose size may stand
            behind long blocks of metadata.
    """
    size: tuple[int, int] | None = None
    match media_type(raw):
        case "image/png" if len(raw) >= 24 and raw[12:16] == b"IHDR":
            size = int.from_bytes(raw[16:20], "big"), int.from_bytes(raw[20:24], "big")
        case "image/gif" if len(raw) >= 10:
            size = int.from_bytes(raw[6:8], "little"), int.from_bytes(raw[8:10], "little")
        case "image/jpeg":
            size = _jpeg(raw)
        case "image/webp" if len(raw) >= 30:
            size = _webp(raw)
    return size if size is not None and min(size) > 0 else None


def _jpeg(raw: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(raw) and raw[at] == 0xFF:
        mark = raw[at + 1]
        if mark == 0xFF:  # a fill byte before the marker
            at += 1
            continue
        if mark in _FRAMES:
            height = int.from_bytes(raw[at + 5 : at + 7], "big")
            return int.from_bytes(raw[at + 7 : at + 9], "big"), height
        at += 2 + int.from_bytes(raw[at + 2 : at + 4], "big")
    return None


def _webp(raw: bytes) -> tuple[int, int] | None:
    """The three kinds of WebP: lossy, lossless, extended."""
    kind = raw[12:16]
    if kind == b"VP8 " and raw[23:26] == b"\x9d\x01\x2a":
        width, height = (int.from_bytes(raw[i : i + 2], "little") & 0x3FFF for i in (26, 28))
        return width, height
    if kind == b"VP8L" and raw[20] == 0x2F:
        bits = int.from_bytes(raw[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8X":
        width, height = (int.from_bytes(raw[i : i + 3], "little") + 1 for i in (24, 27))
        return width, height
    return None
