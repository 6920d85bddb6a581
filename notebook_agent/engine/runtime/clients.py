"""Clients by full name. The engine knows no provider: a resolver is injected.

Source: Turn FSM, "CallingModel" (B36); LLM turn (L14, K02).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module

from notebook_agent.engine.routing import capabilities_of
from notebook_agent.errors import ConfigError
from notebook_agent.providers.base import ModelClient, full_name

__all__ = ["Clients", "Resolver", "front_door_model"]

Resolver = Callable[[str], ModelClient]


def front_door_model(name: str) -> ModelClient:
    """The front door's ``model(name)``: the default resolver, asked at the first use only.

    Not an import of a provider: whoever puts another front door there is asked instead.
    """
    resolve: Resolver = import_module("notebook_agent").model
    return resolve(name)


class Clients:
    """One client per full name, kept for the session.

    A client opens its connections on the loop that uses it and never shares them between
    loops (K02), so that one object may serve several.
    """

    def __init__(self, resolve: Resolver | None = None) -> None:
        self._resolve = resolve or front_door_model
        self._known: dict[str, ModelClient] = {}

    def add(self, client: ModelClient | str) -> str:
        """Take a client, or find the one of that name or alias.

        Returns:
            Its full name, ``provider:name``.

        Raises:
            ConfigError: No such model, or the object is no client, or its name or capabilities are
                none.
        """
        if isinstance(client, str):
            if client in self._known:
                return client
            found = self._resolve(client)
            name = full_name(found)
            self._known.setdefault(name, found)
            return name
        if not isinstance(client, ModelClient):
            raise ConfigError(
                field="model",
                value=client,
                legal="a name like 'openai:gpt-x', or a client with model(), "
                "stream_messages_with_options() and create_message_with_options()",
            )
        name = full_name(client)
        capabilities_of(client)  # what it cannot say is said now, not in the middle of a run
        self._known[name] = client
        return name

    def names(self, clients: Iterable[ModelClient | str]) -> tuple[str, ...]:
        """Full names of a chain. A name is not resolved before it is needed."""
        return tuple(one if isinstance(one, str) else self.add(one) for one in clients)

    def __call__(self, name: str) -> ModelClient:
        """The client of a full name.

        Raises:
            ConfigError: No such model.
        """
        client = self._known.get(name)
        if client is None:
            client = self._known[name] = self._resolve(name)
        return client

    async def aclose(self) -> None:
        """Close what the running loop has open."""
        for client in list(self._known.values()):
            close = getattr(client, "aclose", None)
            if close is not None:
                await close()
