"""The chain: ordered backup models with their strikes, as plain values.

Source: LLM turn, "Recording the outcome, exactly" (L76, L77, L82).
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from notebook_agent.errors import ConfigError

__all__ = ["ChainEntry", "ChainOps"]


@dataclass(frozen=True, slots=True)
class ChainEntry:
    """One backup. ``attempt_count`` strikes of ``max_fail_count``; ``available`` is its switch."""

    name: str
    available: bool = True
    attempt_count: int = 0
    max_fail_count: int = 2
    last_cause: str = ""

    @property
    def failed(self) -> bool:
        """Switched off, or no strike left."""
        return not self.available or self.attempt_count >= self.max_fail_count

    def cleared(self) -> ChainEntry:
        """The same with all strikes back."""
        return replace(self, attempt_count=0, last_cause="")


def chain_of(names: Iterable[str], max_fail_count: int) -> tuple[ChainEntry, ...]:
    """A fresh chain.

    Raises:
        ConfigError: A name is blank or there twice.
    """
    chain: tuple[ChainEntry, ...] = ()
    for name in names:
        chain = inserted(chain, len(chain), name, max_fail_count)
    return chain


def inserted(
    chain: tuple[ChainEntry, ...], at: int, name: str, max_fail_count: int
) -> tuple[ChainEntry, ...]:
    """The chain with a backup in front of position ``at``.

    Raises:
        ConfigError: The name is blank or already there.
    """
    clean = name.strip()
    if not clean:
        raise ConfigError(field="fallback", value=name, legal="the name of a model")
    if any(entry.name == clean for entry in chain):
        raise ConfigError(field="fallback", value=name, legal="each model once")
    at = max(at, 0)  # a position before the first is the first, not counted from the end
    return (*chain[:at], ChainEntry(clean, max_fail_count=max_fail_count), *chain[at:])


def removed(chain: tuple[ChainEntry, ...], name: str) -> tuple[ChainEntry, ...]:
    """The chain without a backup; unknown names change nothing."""
    return tuple(entry for entry in chain if entry.name != name)


def with_entry(chain: tuple[ChainEntry, ...], name: str, **changes: Any) -> tuple[ChainEntry, ...]:
    """The chain with some fields of one entry changed.

    Raises:
        ConfigError: No such backup.
    """
    if all(entry.name != name for entry in chain):
        legal = ", ".join(entry.name for entry in chain) or "nothing: the chain is empty"
        raise ConfigError(field="fallback", value=name, legal=legal)
    return tuple(replace(e, **changes) if e.name == name else e for e in chain)


def struck(chain: tuple[ChainEntry, ...], name: str, cause: str) -> tuple[ChainEntry, ...]:
    """The chain with one strike more against ``name``; unknown names change nothing."""
    return tuple(
        replace(e, attempt_count=e.attempt_count + 1, last_cause=cause) if e.name == name else e
        for e in chain
    )


def first_usable(chain: tuple[ChainEntry, ...], skip: Collection[str] = ()) -> str | None:
    """Name of the first entry that is not failed and not skipped."""
    return next((e.name for e in chain if not e.failed and e.name not in skip), None)


def entry_to_json(entry: ChainEntry) -> dict[str, Any]:
    """JSON form, with the derived ``failed``."""
    return {
        "name": entry.name,
        "available": entry.available,
        "attempt_count": entry.attempt_count,
        "max_fail_count": entry.max_fail_count,
        "last_cause": entry.last_cause,
        "failed": entry.failed,
    }


def entry_from_json(data: Mapping[str, Any]) -> ChainEntry:
    """The entry that ``entry_to_json`` wrote."""
    return ChainEntry(
        data["name"],
        data["available"],
        data["attempt_count"],
        data["max_fail_count"],
        data.get("last_cause", ""),
    )


class ChainOps:
    """The operations on a chain, each under one lock (L82, L84)."""

    def __init__(self, max_fail_count: int) -> None:
        self._strikes = max_fail_count
        self._lock: AbstractContextManager[Any] = contextlib.nullcontext()

    def _get_chain(self) -> tuple[ChainEntry, ...]:
        raise NotImplementedError

    def _set_chain(self, chain: tuple[ChainEntry, ...]) -> None:
        raise NotImplementedError

    def guard_with(self, lock: AbstractContextManager[Any]) -> None:
        """Take a reentrant lock: every read-decide-write step runs under it (L84)."""
        self._lock = lock

    def set_chain(self, names: Iterable[str]) -> None:
        """Set all backups; names kept from before keep their strikes."""
        with self._lock:
            old = {entry.name: entry for entry in self._get_chain()}
            new = chain_of(names, self._strikes)
            self._set_chain(tuple(old.get(entry.name, entry) for entry in new))

    def add_fallback(self, name: str) -> None:
        """Append a backup."""
        with self._lock:
            self.insert_fallback(len(self._get_chain()), name)

    def insert_fallback(self, at: int, name: str) -> None:
        """Put a backup in front of position ``at`` (from 0)."""
        with self._lock:
            self._set_chain(inserted(self._get_chain(), at, name, self._strikes))

    def remove_fallback(self, name: str) -> bool:
        """Take a backup out. Returns whether it was there."""
        with self._lock:
            before = self._get_chain()
            self._set_chain(removed(before, name))
            return len(self._get_chain()) < len(before)

    def mark_failed(self, name: str) -> None:
        """Use up all strikes of a backup."""
        with self._lock:
            self._set_chain(with_entry(self._get_chain(), name, attempt_count=self._strikes))

    def clear_failed(self, name: str) -> None:
        """Give a backup its strikes back."""
        with self._lock:
            self._set_chain(with_entry(self._get_chain(), name, attempt_count=0, last_cause=""))

    def set_available(self, name: str, available: bool) -> None:
        """Switch a backup off or on, strikes untouched."""
        with self._lock:
            self._set_chain(with_entry(self._get_chain(), name, available=available))
