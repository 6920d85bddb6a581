"""Settings of the magics: one plain object, filled by ``%config AgentMagics`` or by hand.

No key is ever a setting (X05).

Source: notebook side, commands (section 3, D11, D21, F3).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from typing import Any

__all__ = ["Settings"]


def _env(name: str, default: str = "") -> str:
    return os.environ.get(name, default)


@dataclass(slots=True)
class Settings:
    """What runs use when the cell says nothing else.

    Attributes:
        model: ``provider:name`` or an alias; "" chooses (D11). ``NOTEBOOK_AGENT_MODEL`` sets it.
        fallback: Backups, parted by commas.
        system: System prompt.
        show: auto (what fits the front end, F3), panel, update, static, stream or null.
        store: "" = the file under the user's data folder, "memory", or a path (D21).
            ``NOTEBOOK_AGENT_STORE`` sets it.
        max_turns, max_tokens: Limits of a run; 0 = the policy's default.
        timeout: Seconds a reply may take in all; 0 = the default.
        stream: False = one unstreamed attempt per turn.
        with_tokens: Cap in tokens of each value of ``--with`` and each cell of ``--cells``.
        pinned: Fixed clock and ids, for notebooks whose stored outputs are compared (D16).
    """

    model: str = field(default_factory=lambda: _env("NOTEBOOK_AGENT_MODEL"))
    fallback: str = ""
    system: str = ""
    show: str = "auto"
    store: str = field(default_factory=lambda: _env("NOTEBOOK_AGENT_STORE"))
    max_turns: int = 0
    max_tokens: int = 0
    timeout: float = 0.0
    stream: bool = True
    with_tokens: int = 2000
    pinned: bool = field(default_factory=lambda: _env("NOTEBOOK_AGENT_PINNED") not in ("", "0"))

    def pairs(self) -> dict[str, Any]:
        """Name and value of every setting."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @property
    def backups(self) -> tuple[str, ...]:
        """The chain as names."""
        return tuple(n.strip() for n in self.fallback.split(",") if n.strip())
