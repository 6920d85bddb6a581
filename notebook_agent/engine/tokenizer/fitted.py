"""The estimator's constants, fitted by ``bench/fit_estimator.py``; change them there.

The known pieces are those that are one token in o200k, in cl100k and in the local model's
vocabulary alike, so counting them as one is no guess; everything else is counted as its bytes,
less the discounts below, each fitted on one half of the corpus and checked on the other.

Source: LLM turn, "Counting the context" (L20).
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

__all__ = ["DISCOUNTS", "Discounts", "KnownPieces", "known_pieces"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Discounts:
    """What a piece costs that is not known, in tokens.

    Attributes:
        letter: Per letter of an unknown word.
        cased_letter: Per letter of a word that is known in lower case only (LICENSE, Licence).
        two_parts: A word made of two known pieces, the first of 4 letters or more.
        camel: Added for every part after the first of camelCase.
        blank_run: Equal blanks (spaces, tabs, newlines) in one token.
        random_share: Parts per character from which a long run of letters and digits is
            random (base64, hex, keys) and counted as its bytes.
        random_from: Length from which a run is looked at for that.
        margin: One token is added for so many, and one to a text of ``margin_from`` or more.
    """

    letter: float
    cased_letter: float
    two_parts: int
    camel: int
    blank_run: int
    random_share: float
    random_from: int
    margin: int
    margin_from: int


DISCOUNTS: Final = Discounts(
    letter=0.7,
    cased_letter=0.5,
    two_parts=3,
    camel=1,
    blank_run=8,
    random_share=0.25,
    random_from=16,
    margin=32,
    margin_from=4,
)


@dataclass(frozen=True, slots=True)
class KnownPieces:
    """Pieces that are one token in every fitted vocabulary, and beginnings of characters.

    Attributes:
        words: ASCII letters with or without a leading space, cased.
        marks: Runs of ASCII punctuation with or without a leading space.
        characters: Single characters beyond ASCII.
        pairs: First two bytes of three- and four-byte characters that are one token.
        triples: First three bytes of four-byte characters that are one token.
    """

    words: frozenset[str]
    marks: frozenset[str]
    characters: frozenset[str]
    pairs: frozenset[bytes]
    triples: frozenset[bytes]


@cache
def known_pieces() -> KnownPieces:
    """Read the list that ships with the package, once per process (about 15 ms)."""
    packed = files(__package__).joinpath("known_pieces.txt.gz").read_bytes()
    lines = gzip.decompress(packed).decode().split("\n")
    words, marks, characters, pairs, triples = (line.split("\t") for line in lines[:5])
    return KnownPieces(
        frozenset(words),
        frozenset(marks),
        frozenset(characters),
        frozenset(map(bytes.fromhex, pairs)),
        frozenset(map(bytes.fromhex, triples)),
    )
