"""Fit and check the token estimator (L20).

    python bench/fit_estimator.py --model FILE.gguf            the table per kind of text
    python bench/fit_estimator.py --model FILE.gguf --fit      and the discounts' grid
    python bench/fit_estimator.py --model FILE.gguf --write    and the list of known pieces

The corpus is what lies on any machine with the test environment: the standard library, texts of
installed packages, and generated text. Samples go to the fitting or the held-out half by a hash
of their text; constants are chosen on the first, every figure that is claimed is of the second.
The local model's vocabulary is read from its file (the .gguf that ``notebook-agent fetch-model``
puts into the cache); the tests compare it with the real server.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import re
import sys
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import estimator_corpus
import tiktoken
from gguf_vocabulary import local_counter, local_tokens

from notebook_agent.engine.tokenizer import estimate, fitted, vocabulary

LIST = Path(fitted.__file__).parent / "known_pieces.txt.gz"
LIMITS = {"prose": 1.6}  # upper limit of the ratio, 2.0 for every other kind
Counter = Callable[[str], int]


def public_counter(name: str) -> Counter:
    encoding: tiktoken.Encoding = vocabulary.load_encoding(name)
    return lambda text: len(encoding.encode_ordinary(text))


def shared_tokens(model: Path) -> set[bytes]:
    """Tokens that all three vocabularies have."""
    shared = set(local_tokens(model))
    for name in vocabulary.VOCABULARIES:
        encoding = vocabulary.load_encoding(name)
        shared &= set(encoding.token_byte_values())
    return shared


def write_list(model: Path) -> None:
    """known_pieces.txt.gz: words, marks, characters, pairs, triples; a line each."""
    shared = shared_tokens(model)
    words = [t.decode() for t in shared if re.fullmatch(rb" ?[A-Za-z]+", t)]
    marks = [t.decode() for t in shared if re.fullmatch(rb" ?[!-/:-@\[-`{-~]+", t)]
    characters = []
    for token in shared:
        try:
            text = token.decode()
        except UnicodeDecodeError:
            continue
        if len(text) == 1 and not text.isascii():
            characters.append(text)
    pairs = [t.hex() for t in shared if len(t) == 2 and t[0] >= 0xE0]
    triples = [t.hex() for t in shared if len(t) == 3 and t[0] >= 0xF0]
    rows = ("\t".join(sorted(row)) for row in (words, marks, characters, pairs, triples))
    LIST.write_bytes(gzip.compress("\n".join(rows).encode(), 9, mtime=0))
    print(f"{LIST.name}: {len(words)} words, {len(marks)} marks, {len(characters)} characters, "
          f"{len(pairs)} pairs, {len(triples)} triples, {LIST.stat().st_size:,} bytes")  # fmt: skip


def halves(samples: list[str]) -> tuple[list[str], list[str]]:
    """Fitting and held-out half, by a hash of the text."""
    fitting = [s for s in samples if zlib.crc32(s.encode("utf-8", "replace")) % 2]
    held_out = [s for s in samples if not zlib.crc32(s.encode("utf-8", "replace")) % 2]
    return fitting, held_out


def ratios(samples: list[str], truth: dict[str, int]) -> list[float]:
    return sorted(estimate.estimate_tokens(s) / truth[s] for s in samples)


def row(kind: str, samples: list[str], truth: dict[str, int]) -> str:
    r = ratios(samples, truth)
    total = sum(map(estimate.estimate_tokens, samples)) / sum(truth[s] for s in samples)
    limit = LIMITS.get(kind, 2.0)
    below, above = sum(x < 1 for x in r), sum(x > limit for x in r)
    return (f"| {kind} | {len(r)} | {total:.2f} | {r[0]:.2f} | {r[len(r) // 2]:.2f} | "
            f"{r[len(r) * 19 // 20]:.2f} | {r[-1]:.2f} | {below} | {above} |")  # fmt: skip


def use(discounts: fitted.Discounts) -> None:
    estimate.DISCOUNTS = discounts
    estimate._costs.cache_clear()


def fit(fitting: dict[str, list[str]], truth: dict[str, int]) -> None:
    """Smallest discounts with no sample below the truth, cheapest on prose first."""
    found = []
    for letter, cased, parts in itertools.product((0.6, 0.7, 0.8, 0.9), (0.45, 0.55, 0.65), (2, 3)):
        use(replace(fitted.DISCOUNTS, letter=letter, cased_letter=cased, two_parts=parts))
        below = sum(x < 1 for samples in fitting.values() for x in ratios(samples, truth))
        prose = sum(map(estimate.estimate_tokens, fitting["prose"]))
        found.append((below, prose, letter, cased, parts))
    use(fitted.DISCOUNTS)
    print("\nbelow | prose total | letter | cased_letter | two_parts (best five)")
    for line in sorted(found)[:5]:
        print(" | ".join(map(str, line)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    if args.write:
        write_list(args.model)
    counters = [*map(public_counter, vocabulary.VOCABULARIES), local_counter(args.model)]
    fitting, held_out, truth = {}, {}, {}
    for kind, samples in estimator_corpus.corpus().items():
        fitting[kind], held_out[kind] = halves(samples)
        truth.update((s, max(count(s) for count in counters)) for s in samples)
    if args.fit:
        fit(fitting, truth)
    print("\nestimate / dearest of o200k, cl100k and the local model, held-out half")
    print("| kind | samples | total | least | median | 95 % | most | below 1 | over limit |")
    print("|---|---|---|---|---|---|---|---|---|")
    for kind, samples in held_out.items():
        print(row(kind, samples, truth))
    return 0


if __name__ == "__main__":
    sys.exit(main())
