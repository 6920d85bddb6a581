"""Session names are data: what is accepted, and the file name derived from one.

Source: LLM turn, "The turn's paper trail" (L121); Turn FSM, "Persisting" (B60). Cases X06, X07.
"""

from __future__ import annotations

import hashlib
import unicodedata
from typing import Final

from notebook_agent.core.text import clean_text
from notebook_agent.errors import ConfigError

__all__ = ["MAX_NAME", "safe_file_stem", "session_name"]

MAX_NAME: Final = 200  # characters, after NFC

_STEM_BYTES: Final = 120  # of the readable half, in UTF-8; every file system takes 255 in all
_DIGEST_CHARS: Final = 16


def session_name(name: str) -> str:
    """The name as the store keeps it: NFC, NUL and lone surrogates as U+FFFD (X06).

    ``A`` and ``a`` are two names, and so are ``../x`` and ``x``: nothing is a path.

    Raises:
        ConfigError: The name is empty or longer than 200 characters.

    Example:
        >>> session_name("re\\u0301sume\\u0301") == session_name("r\\u00e9sum\\u00e9")
        True
    """
    kept = unicodedata.normalize("NFC", clean_text(name))
    if not kept:
        raise ConfigError(
            "A session name may not be empty.\nGive one with:  %%agent -s NAME",
            field="session",
            value=name,
            legal=f"1 to {MAX_NAME} characters",
        )
    if len(kept) > MAX_NAME:
        raise ConfigError(
            f"A session name may have {MAX_NAME} characters, this one has {len(kept)}: "
            f"{kept[:40]!r}...\nGive a shorter one with:  %%agent -s NAME",
            field="session",
            value=kept,
            legal=f"1 to {MAX_NAME} characters",
        )
    return kept


def safe_file_stem(name: str) -> str:
    """A file name without its ending for any session name or id.

    A readable half of letters, digits, ``_`` and ``-``, then a digest of the whole name: two
    names never share a file, also where the file system ignores case or composes accents, and
    no result is a path, hidden, or a name that Windows reserves.

    Example:
        >>> safe_file_stem("../x").startswith("x-")
        True
    """
    kept = unicodedata.normalize("NFC", clean_text(name))
    digest = hashlib.sha256(kept.encode()).hexdigest()[:_DIGEST_CHARS]
    readable = "".join(c if c.isalnum() or c in "_-" else "_" for c in kept).strip("_-")
    while len(readable.encode()) > _STEM_BYTES:
        readable = readable[:-1]
    return f"{readable or 'session'}-{digest}"
