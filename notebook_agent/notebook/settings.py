"""Settings of the magics: one plain object, filled by ``%config AgentMagics`` or by hand.

No key is ever a setting (X05).

Source: notebook side, commands (section 3, D11, D21, F3).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from notebook_agent.core.prices import check_prices
from notebook_agent.errors import ConfigError

__all__ = ["SHOWN", "Settings", "legal_value"]

SHOWN: Final = ("auto", "panel", "update", "static", "stream", "null")
_LEAST: Final[Mapping[str, float]] = {
    "max_turns": 0, "max_tokens": 0, "timeout": 0, "cooldown": 0, "trip_after": 0, "with_tokens": 1,
}  # fmt: skip
_WORDS: Final[Mapping[type, str]] = {
    str: "a text", bool: "True or False", int: "a whole number", float: "a finite number",
}  # fmt: skip


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
        timeout: Seconds a reply may take, and a rescue again; 0 = the default.
        cooldown: Seconds a tripped breaker rests before it probes the primary; 0 = 60.
        trip_after: Failed turns in a row that trip the breaker; 0 = 3.
        stream: False = one unstreamed attempt per turn.
        with_tokens: Cap in tokens of each value of ``--with`` and each cell of ``--cells``.
        prices: ``{"provider:model": (input, output, cached input)}`` per million tokens, in your
            own currency; the footer and ``%agent audit`` then tell the cost.
        prompt_cache: Mark what providers may keep between turns, where they have such marks.
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
    cooldown: float = 0.0
    trip_after: int = 0
    stream: bool = True
    with_tokens: int = 2000
    prices: dict[str, tuple[float, ...]] = field(default_factory=dict)
    prompt_cache: bool = False
    pinned: bool = field(default_factory=lambda: _env("NOTEBOOK_AGENT_PINNED") not in ("", "0"))

    def pairs(self) -> dict[str, Any]:
        """Name and value of every setting."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @property
    def backups(self) -> tuple[str, ...]:
        """The chain as names."""
        return tuple(n.strip() for n in self.fallback.split(",") if n.strip())


def legal_value(name: str, value: Any) -> Any:
    """A value as its setting keeps it.

    Raises:
        ConfigError: Not of the setting's kind, or outside its range.
    """
    if name == "prices":
        return check_prices(value)
    kind = type(getattr(Settings(), name))
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    least = _LEAST.get(name)
    fits = type(value) is kind and (least is None or least <= value < float("inf"))
    if fits and (name != "show" or value in SHOWN):
        return value
    legal = ", ".join(SHOWN) if name == "show" else _WORDS[kind]
    legal += "" if least is None else f" of at least {least:g}"
    raise ConfigError(field=name, value=value, legal=legal)
