"""Where keys come from: this kernel, the environment, a keyring. Never a magic line or a file.

A key is looked up at use and handed out as a :class:`Secret` only (D11, X05).

Source: notebook side, commands (D11); cases X05, N11.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Final

from notebook_agent.errors import ConfigError
from notebook_agent.providers.secret import Secret

__all__ = ["KEYRING_SERVICE", "KeyStore"]

KEYRING_SERVICE: Final = "notebook_agent"


class KeyStore:
    """The keys of this kernel. Thread-safe; its repr holds none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._set: dict[str, Secret] = {}
        self._ring: dict[str, Secret | None] = {}

    def __repr__(self) -> str:
        return f"<KeyStore: {', '.join(sorted(self._set)) or 'empty'}>"

    def set(self, provider: str, value: str, *, save: bool = False) -> None:
        """Keep a key for this kernel, or in the keyring.

        Args:
            provider: Whose key.
            value: The key; white space around it is dropped.
            save: Write it to the keyring too.

        Raises:
            ConfigError: An empty key, or no usable keyring.
        """
        secret = Secret(value.strip())
        if not secret:
            raise ConfigError(
                f"The key for {provider} is empty; nothing was kept.\nType:  %agent key {provider}",
                field="key",
            )
        with self._lock:
            self._set[provider] = secret
            self._ring.pop(provider, None)
        if save:
            _write_keyring(provider, secret)

    def forget(self, provider: str) -> None:
        """Drop a key of this kernel; environment and keyring are not touched."""
        with self._lock:
            self._set.pop(provider, None)
            self._ring.pop(provider, None)

    def get(self, provider: str, names: Sequence[str]) -> Secret | None:
        """The key: of this kernel, else of the environment, else of the keyring.

        Args:
            provider: Whose key.
            names: Environment variables, in order.
        """
        return self._find(provider, names)[0]

    def where(self, provider: str, names: Sequence[str]) -> str:
        """Where the key is, in words: ``this kernel``, ``OPENAI_API_KEY``, ``keyring``, ``not set``."""
        return self._find(provider, names)[1]

    def _find(self, provider: str, names: Sequence[str]) -> tuple[Secret | None, str]:
        with self._lock:
            own = self._set.get(provider)
        if own is not None:
            return own, "this kernel"
        for name in names:
            if os.environ.get(name, "").strip():
                return Secret(os.environ[name].strip()), name
        with self._lock:
            known = provider in self._ring
        if not known:
            found = _read_keyring(provider)
            with self._lock:
                self._ring[provider] = found
        kept = self._ring.get(provider)
        return kept, "keyring" if kept is not None else "not set"


def _read_keyring(provider: str) -> Secret | None:
    """The keyring's entry; a machine without a working keyring has none."""
    try:
        import keyring  # noqa: PLC0415  # slow to import, and not everywhere usable

        found = keyring.get_password(KEYRING_SERVICE, provider)
    except Exception:  # noqa: BLE001  # every back end has errors of its own
        return None
    return Secret(found) if found else None


def _write_keyring(provider: str, secret: Secret) -> None:
    problem = ""
    try:
        import keyring  # noqa: PLC0415  # slow to import, and not everywhere usable

        keyring.set_password(KEYRING_SERVICE, provider, secret.reveal())
    except Exception as caught:  # noqa: BLE001  # every back end has errors of its own
        problem = type(caught).__name__
    if problem:
        raise ConfigError(
            f"This machine has no usable keyring ({problem}); the key is kept for this kernel only.",
            field="key",
        )
