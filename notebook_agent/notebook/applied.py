"""What a changed setting does to the sessions that are open already: one row each.

Settings without a row are read at every run.

Source: notebook side, commands (section 3); LLM turn (L76).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from notebook_agent.core.policy import RuntimePolicy
from notebook_agent.core.prices import check_prices
from notebook_agent.core.route import BreakerConfig
from notebook_agent.errors import SessionBusy
from notebook_agent.notebook.model_book import ModelBook, is_address
from notebook_agent.notebook.place import place
from notebook_agent.notebook.settings import Settings

__all__ = ["CHECKS", "FOLLOWS", "breaker_config", "nothing", "run_policy"]


class Agent(Protocol):
    """What a row needs."""

    settings: Settings
    models_book: ModelBook
    _store: Any
    _runtimes: Mapping[str, Any]

    def reopen_store(self) -> None:
        """Open the store that the settings name, in place of the open one."""


def run_policy(settings: Settings) -> RuntimePolicy:
    """The limits of a run by the settings; 0 is the policy's default."""
    given: dict[str, Any] = {
        "max_iterations": settings.max_turns,
        "max_total_tokens": settings.max_tokens,
    }
    return RuntimePolicy(**{name: value for name, value in given.items() if value})


def breaker_config(settings: Settings) -> BreakerConfig:
    """The breaker's numbers by the settings; 0 is the breaker's default."""
    given: dict[str, Any] = {
        "recovery_timeout": settings.cooldown,
        "trip_threshold": settings.trip_after,
    }
    return BreakerConfig(**{name: value for name, value in given.items() if value})


def _model(agent: Agent, runtime: Any) -> None:
    if agent.settings.model:
        runtime.switch_model(agent.models_book.client(agent.settings.model))


def _fallback(agent: Agent, runtime: Any) -> None:
    runtime.set_fallback([agent.models_book.client(n) for n in agent.settings.backups])


def _system(agent: Agent, runtime: Any) -> None:
    runtime.system = agent.settings.system or None


def _policy(agent: Agent, runtime: Any) -> None:
    runtime.policy = run_policy(agent.settings)


def _store(agent: Agent, runtime: Any) -> None:
    if agent._store is not None and runtime.store is not agent._store:
        runtime.use_store(agent._store)


def _breaker(agent: Agent, runtime: Any) -> None:
    wanted = breaker_config(agent.settings)
    runtime.set_breaker(
        recovery_timeout=wanted.recovery_timeout, trip_threshold=wanted.trip_threshold
    )


def _prices(agent: Agent) -> None:
    agent.settings.prices = {**check_prices(agent.settings.prices)}


FOLLOWS: Final[Mapping[str, Callable[[Any, Any], None]]] = {
    "model": _model,
    "fallback": _fallback,
    "system": _system,
    "max_turns": _policy,
    "max_tokens": _policy,
    "store": _store,
    "cooldown": _breaker,
    "trip_after": _breaker,
}


def _model_is_there(agent: Agent) -> None:
    if agent.settings.model:
        agent.settings.model = _kept_name(agent, agent.settings.model)


def _backups_are_there(agent: Agent) -> None:
    agent.settings.fallback = ",".join(_kept_name(agent, n) for n in agent.settings.backups)


def _kept_name(agent: Agent, name: str) -> str:
    """A name that is there; of an address its client's own, without a key in it (X05)."""
    agent.models_book.client(name)
    return agent.models_book.full(name) if is_address(name) else name


def _store_opens(agent: Agent) -> None:
    place(agent.settings.store, '%config AgentMagics.store = "memory"')
    busy = next((name for name, r in agent._runtimes.items() if r.active is not None), None)
    if busy is not None:
        raise SessionBusy(busy)
    if agent._store is not None:  # else it is opened at the first run (D21)
        agent.reopen_store()


CHECKS: Final[Mapping[str, Callable[[Any], None]]] = {
    "prices": _prices,
    "model": _model_is_there,
    "fallback": _backups_are_there,
    "store": _store_opens,
}


def nothing(*_: Any) -> None:
    """The row of a setting that has none."""
