"""The local model's vocabulary out of its .gguf file, as a counter (benchmarks only)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import regex
import tiktoken

_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
            12: "d"}  # fmt: skip
_PATTERN = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"  # after digits
)


@cache
def metadata(path: Path) -> dict[str, Any]:
    """Keys and values at the head of a .gguf file."""
    with path.open("rb") as file:
        magic, _version, _tensors, count = struct.unpack("<4sIQQ", file.read(24))
        assert magic == b"GGUF", "no gguf file"
        return {_text(file).decode(): _value(file, _number(file, "I")) for _ in range(count)}


def _number(file: BinaryIO, code: str) -> Any:
    return struct.unpack("<" + code, file.read(struct.calcsize(code)))[0]


def _text(file: BinaryIO) -> bytes:
    return file.read(_number(file, "Q"))


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == 8:
        return _text(file)
    if kind == 9:
        inner, size = _number(file, "I"), _number(file, "Q")
        return [_value(file, inner) for _ in range(size)]
    return _number(file, _FORMATS[kind])


def _byte_of() -> dict[str, int]:
    """GPT-2's printable stand-ins for bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(rest)}


@cache
def local_tokens(path: Path) -> dict[bytes, int]:
    """Token -> rank: the 256 bytes, then the merges in order."""
    byte_of = _byte_of()
    ranks: dict[bytes, int] = {bytes([b]): i for i, b in enumerate(sorted(byte_of.values()))}
    for merge in metadata(path)["tokenizer.ggml.merges"]:
        left, right = merge.decode().split(" ")
        ranks.setdefault(bytes(byte_of[c] for c in left + right), len(ranks))
    return ranks


def local_counter(path: Path) -> Callable[[str], int]:
    """``text -> tokens`` of the local model; every digit is cut off first, as it does."""
    encoding = tiktoken.Encoding(
        "local", pat_str=_PATTERN, mergeable_ranks=local_tokens(path), special_tokens={}
    )
    digit = regex.compile(r"(\p{N})")
    return lambda text: sum(len(encoding.encode_ordinary(s)) for s in digit.split(text) if s)
