"""ModelBook: which client a name means. Aliases, the models of this kernel, the default choice.

Source: notebook side, commands (D11); Turn FSM, "CallingModel" (B36).
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from notebook_agent.core.interpolate import known_as
from notebook_agent.engine.routing import capabilities_of
from notebook_agent.errors import ConfigError
from notebook_agent.notebook.option import nearest
from notebook_agent.providers.base import ModelClient, full_name

__all__ = ["SCRIPTED_HINT", "LiveNames", "ModelBook", "is_address", "without_keys"]

LOCAL = "local:smollm2"
SCRIPTED = "scripted:teacher"
SCRIPTED_HINT = "no model is set up, so the scripted one answers; choose one with:  %agent model ID"

Make = Callable[[str], ModelClient]


_ADDRESS: Final = "address "
_URL: Final = re.compile(r"https?://[^\s,'\"]+", re.IGNORECASE)
_USER: Final = re.compile(r"://[^/?#]*@")
_QUERY: Final = re.compile(r"\?[^#]*")


def is_address(name: str) -> bool:
    """Whether a model is named by where its service is."""
    return name.lower().startswith(("http://", "https://"))


def _kept_as(name: str) -> str:
    """What a client is kept under: an address may hold a key, and a dict is easily shown (X05)."""
    if not is_address(name):
        return name
    return _ADDRESS + hashlib.sha256(name.encode(errors="replace")).hexdigest()[:16]


def without_keys(name: str) -> str:
    """A model's name as it is shown: of an address neither user part nor query (X05).

    Example:
        >>> without_keys("https://me:sk-1@host/v1?key=sk-2#small")
        'https://[key]@host/v1?[key]#small'
    """
    return _URL.sub(lambda m: _QUERY.sub("?[key]", _USER.sub("://[key]@", m[0])), name)


def _registry_model(name: str) -> ModelClient:
    from notebook_agent.providers import registry  # noqa: PLC0415  # reads entry points: not at load

    return registry.model(name)


def _local_name() -> str | None:
    """The local model's name if it is installed with its file, without starting anything."""
    from notebook_agent.providers import local_files  # noqa: PLC0415  # looks for files: not at load

    return LOCAL if local_files.is_installed() else None


class ModelBook:
    """Names to clients, each made once per kernel.

    Args:
        namespace: Where ``@variable`` is looked up: a client of the user's own.
        make: Makes the client of a full name; reads keys at use.
    """

    def __init__(self, namespace: Mapping[str, Any], make: Make = _registry_model) -> None:
        self._namespace = namespace
        self._make = make
        self._lock = threading.Lock()
        self._clients: dict[str, ModelClient] = {}
        self.aliases: dict[str, str] = {}

    def alias(self, name: str, target: str) -> None:
        """``name`` means ``target`` from now on.

        Raises:
            ConfigError: The name is no name, or the aliases would form a ring.
        """
        if not name or ":" in name or name.startswith("@") or any(c.isspace() for c in name):
            raise ConfigError(
                f"An alias is one word without a colon; {name!r} is none.\n"
                "Type:  %agent alias fast openai:gpt-4.1-mini"
            )
        seen = {name}
        at = target
        while at in self.aliases:
            if at in seen:
                break
            seen.add(at)
            at = self.aliases[at]
        if at in seen:
            raise ConfigError(
                f"The alias {name!r} would mean itself.\nType:  %agent alias {name} ID"
            )
        self.aliases[name] = target

    def expand(self, name: str) -> str:
        """A name with its aliases followed."""
        name = name.strip()
        while name in self.aliases:
            name = self.aliases[name]
        return name

    def add(self, client: ModelClient) -> str:
        """Take in a client of the user's own; returns its full name.

        Raises:
            ConfigError: Its name or its capabilities are none.
        """
        name = full_name(client)
        capabilities_of(client)
        with self._lock:
            self._clients[name] = client
        return name

    def client(self, name: str) -> ModelClient:
        """The client of a name; made at first use, on any thread.

        Raises:
            ConfigError: An unknown provider, a missing key; says what to type.
        """
        name = self.expand(name)
        if name.startswith("@"):
            return self._own(name[1:])
        kept = _kept_as(name)
        with self._lock:
            made = self._clients.get(kept)
        if made is not None:
            return made
        made = self._make(name)
        with self._lock:
            made = self._clients.setdefault(kept, made)
            if kept != name:
                self._clients.setdefault(full_name(made), made)
            return made

    def _own(self, variable: str) -> ModelClient:
        value = self._namespace.get(known_as(variable, self._namespace))
        if not isinstance(value, ModelClient):
            if value is None:
                held = f"there is no variable {variable!r} in this notebook"
            else:
                held = f"the variable holds {type(value).__name__}, no model"
            mine = [
                n
                for n, v in self._namespace.items()
                if isinstance(v, ModelClient) and not isinstance(v, type) and n[0] != "_"
            ]
            close = nearest(variable, mine) or next(iter(mine), None)
            typed = f"@{close}" if close else "local"
            raise ConfigError(f"@{variable}: {held}.\nType:  %agent model {typed}")
        self.add(value)
        return value

    def full(self, name: str) -> str:
        """``provider:name`` of a name, the client's own word; an address in use has one too."""
        expanded = self.expand(name)
        with self._lock:
            made = self._clients.get(_kept_as(expanded)) if is_address(expanded) else None
        if made is not None:
            return full_name(made)
        return full_name(self._own(expanded[1:])) if expanded.startswith("@") else expanded

    def default(self) -> tuple[str, str | None]:
        """What answers when nothing is set: the local model, else the scripted one.

        Returns:
            The name, and the line that says so for the scripted one.
        """
        local = _local_name()
        return (local, None) if local else (SCRIPTED, SCRIPTED_HINT)

    def forget(self, provider: str) -> None:
        """Clients of a provider are made anew at their next use: its key has changed."""
        with self._lock:
            for name in [n for n in self._clients if n.split(":")[0] == provider]:
                del self._clients[name]

    def of_provider(self, provider: str) -> ModelClient | None:
        """A client in use whose full name begins with that provider, None when there is none."""
        with self._lock:
            clients = list(self._clients.values())
        return next((c for c in clients if full_name(c).startswith(f"{provider}:")), None)

    def known(self) -> list[str]:
        """Aliases and the models in use, sorted."""
        with self._lock:
            clients = {
                full_name(c) if n.startswith(_ADDRESS) else n for n, c in self._clients.items()
            }
            return sorted({*self.aliases, *clients})


class LiveNames(Mapping[str, Any]):
    """The namespace as it is now, whichever dict the shell holds.

    Args:
        get: Gives it.
    """

    def __init__(self, get: Callable[[], Mapping[str, Any]]) -> None:
        self._get = get

    def __getitem__(self, name: str) -> Any:
        return self._get()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._get())

    def __len__(self) -> int:
        return len(self._get())
