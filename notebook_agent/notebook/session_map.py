"""The sessions of a kernel by name, under the form that the store keeps (X06).

Source: notebook side, commands (``-s``, ``session``), D9; case X06.
"""

from __future__ import annotations

import unicodedata
from typing import Any

from notebook_agent.core.text import clean_text

__all__ = ["SessionMap", "kept_name"]


def kept_name(name: str) -> str:
    """A session's name as the store keeps it: two spellings of one name are one session.

    Example:
        >>> kept_name("re\\u0301sume\\u0301") == "r\\u00e9sum\\u00e9"
        True
    """
    return unicodedata.normalize("NFC", clean_text(name))


class SessionMap(dict[str, Any]):
    """Runtimes by session name; a name is looked up in whatever form it is typed."""

    def __getitem__(self, name: str) -> Any:
        return super().__getitem__(kept_name(name))

    def __setitem__(self, name: str, runtime: Any) -> None:
        super().__setitem__(kept_name(name), runtime)

    def __delitem__(self, name: str) -> None:
        super().__delitem__(kept_name(name))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and super().__contains__(kept_name(name))

    def get(self, name: str, default: Any = None) -> Any:
        """The runtime of a name, or ``default``."""
        return super().get(kept_name(name), default)
