"""Tokens of a text without its vocabulary: never below, seldom far above.

Ruling: L20. Instead of one ratio per kind of text, the text is cut into small pieces, and a
piece is one token when it is known to be one in every fitted vocabulary, else its bytes with a
fitted discount for words. Mixed text needs no guess at its kind, and text of no known kind
(another language, noise) comes out as its bytes. What this gives per kind is printed by
``bench/fit_estimator.py``.

Source: LLM turn, "Counting the context" (L18, L20).
"""

from __future__ import annotations

import math
import re
from functools import cache
from typing import Final

from notebook_agent.engine.tokenizer.fitted import DISCOUNTS, KnownPieces, known_pieces

__all__ = ["estimate_tokens"]

_MARKS: Final = r"!-/:-@\[-`{-~"
_PIECE: Final = re.compile(
    r"'(?:s|t|re|ve|m|ll|d)(?![A-Za-z])"  # contraction: one token everywhere
    rf"|[A-Za-z0-9+/]{{{DISCOUNTS.random_from},}}=*"  # long run: random, or words
    r"| ?[A-Za-z]+"
    r"|[0-9]"  # a digit is a token of its own in the local model's vocabulary
    rf"| ?[{_MARKS}]+"
    r"|\s+(?!\S)|\s"
    r"|[^\s]",
)
_IN_RUN: Final = re.compile(rf"[A-Za-z]+|[0-9]|[{_MARKS}]+")
_CAMEL: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_BLANKS: Final = re.compile(r"(?:\r\n)+|\n+| +|\t+|.", re.DOTALL)
_LONGEST_MARK: Final = 8
_LONGEST_WORD: Final = 40  # no two known pieces make a longer one
_KEPT: Final = 50_000  # distinct pieces whose cost is remembered


def estimate_tokens(text: str) -> int:
    """An upper estimate of a text's tokens, whatever the model's byte-level vocabulary.

    Args:
        text: Any text; lone surrogates count as the character that replaces them (T02).

    Returns:
        Tokens, 0 for an empty text, never more than the text's UTF-8 bytes.
    """
    cost = _costs()
    total = sum(map(cost.__getitem__, _PIECE.findall(text)))
    if len(cost) > _KEPT:
        cost.clear()
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    total += total // DISCOUNTS.margin + (total >= DISCOUNTS.margin_from)
    return min(total, size)


@cache
def _costs() -> _Costs:
    return _Costs(known_pieces())


class _Costs(dict[str, int]):
    """Piece -> tokens, worked out when first asked for."""

    def __init__(self, known: KnownPieces) -> None:
        super().__init__()
        self.known = known

    def __missing__(self, piece: str) -> int:
        first = piece[-1] if piece[0] == " " else piece[0]
        if not first.isascii():
            cost = self.blanks(piece) if first.isspace() else self.character(piece)
        elif first.isspace():
            cost = self.blanks(piece)
        elif len(piece) >= DISCOUNTS.random_from and piece[0] != " ":
            return self.run(piece)  # seldom seen twice: not worth its place
        else:
            cost = self.plain(piece)
        self[piece] = cost
        return cost

    def plain(self, piece: str) -> int:
        """A word, digit, contraction or run of marks."""
        if piece in self.known.words or piece in self.known.marks:
            return 1
        second = piece[1] if piece[0] == " " else piece[0]
        if second.isalpha():
            return self.word(piece)
        if second == "'" and piece[1:].isalpha():
            return 1
        return self.marks(piece)

    def word(self, piece: str) -> int:
        """Letters, perhaps camelCase, perhaps after a space."""
        if piece in self.known.words:
            return 1
        bare = piece.lstrip(" ")
        parts = _CAMEL.findall(bare)
        first = self.part(piece[: len(piece) - len(bare)] + parts[0])
        rest = sum(DISCOUNTS.camel + self.part(part) for part in parts[1:])
        return min(len(bare), first + rest)

    def part(self, part: str) -> int:
        """One part of a word."""
        words = self.known.words
        if part in words:
            return 1
        for cut in range(len(part) - 1, 3, -1) if len(part) <= _LONGEST_WORD else ():
            if part[:cut] in words and part[cut:] in words:
                return DISCOUNTS.two_parts
        bare = part.lstrip(" ")
        lower = bare.lower()
        usual = lower != bare and (lower in words or f" {lower}" in words)
        if usual:
            return max(2, math.ceil(len(bare) * DISCOUNTS.cased_letter))
        return math.ceil(len(bare) * DISCOUNTS.letter)

    def marks(self, piece: str) -> int:
        """A run of punctuation: the longest known pieces from the left."""
        tokens, at, known = 0, 0, self.known.marks
        while at < len(piece):
            end = min(len(piece), at + _LONGEST_MARK)
            while end > at + 1 and piece[at:end] not in known:
                end -= 1
            tokens, at = tokens + 1, end
        return tokens

    def run(self, piece: str) -> int:
        """A long run of letters, digits, + and /: its bytes when it looks random."""
        parts = _IN_RUN.findall(piece)
        cut = sum(len(_CAMEL.findall(p)) if p[0].isalpha() else 1 for p in parts)
        if cut >= len(piece) * DISCOUNTS.random_share:
            return len(piece)
        return sum(
            self.word(p) if p[0].isalpha() else 1 if p[0].isdigit() else self.marks(p)
            for p in parts
        )

    def blanks(self, piece: str) -> int:
        """White space between words: equal blanks share tokens."""
        size = len(piece.encode())
        runs = (len(run) for run in _BLANKS.findall(piece))
        if not piece.isascii():
            return size
        return min(size, sum(-(-run // DISCOUNTS.blank_run) for run in runs))

    def character(self, piece: str) -> int:
        """One character beyond ASCII: its bytes less those that are known to go together."""
        if piece in self.known.characters:
            return 1
        raw = piece.encode("utf-8", "surrogatepass")
        if len(raw) == 4 and raw[:3] in self.known.triples:
            return 2
        if len(raw) > 2 and raw[:2] in self.known.pairs:
            return len(raw) - 1
        return len(raw)
