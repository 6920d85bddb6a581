"""What a runtime is made with, looked at before anything else: a slip is said with what to give.

Source: Turn FSM, "Relationship to other components"; bad input gets a clear error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from notebook_agent.core.breaker import BreakerConfig
from notebook_agent.core.compaction import CompactionPolicy
from notebook_agent.core.policy import RuntimePolicy
from notebook_agent.core.request import RequestOptions, TurnMode
from notebook_agent.core.retry import RateLimitPolicy, RetryPolicy, StreamTimeouts
from notebook_agent.core.session import Session
from notebook_agent.engine.cancel import CancelSignal
from notebook_agent.engine.runtime.gate import AdmissionPolicy
from notebook_agent.engine.tools import LoopPolicy
from notebook_agent.errors import ConfigError

__all__ = ["check_given"]

# Argument -> what it may be; None is legal wherever it is a default.
KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    "policy": (RuntimePolicy,),
    "options": (RequestOptions,),
    "timeouts": (StreamTimeouts,),
    "retry": (RetryPolicy,),
    "rate_limit": (RateLimitPolicy,),
    "breaker": (BreakerConfig,),
    "compaction": (CompactionPolicy,),
    "admission": (AdmissionPolicy,),
    "loops": (LoopPolicy,),
    "cancel": (CancelSignal,),
    "mode": (TurnMode,),
    "system": (str,),
    "session": (Session, str),
}
SEVERAL: Final = ("tools", "fallback", "contributors", "observers", "compaction_hooks")


def check_given(given: Mapping[str, Any]) -> None:
    """Whether arguments of a runtime are of their kinds.

    Raises:
        ConfigError: One is not; its name, the value, what to give.
    """
    for name, kinds in KINDS.items():
        value = given[name]
        if value is not None and not isinstance(value, kinds):
            legal = " or ".join(
                f"{one.__name__}(...)" if one is not str else "a text" for one in kinds
            )
            raise ConfigError(field=name, value=value, legal=legal)
    for name in SEVERAL:
        value = given[name]
        if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
            raise ConfigError(field=name, value=value, legal="a list")
    store = given["store"]
    if store is not None and not hasattr(store, "commit"):
        raise ConfigError(
            field="store", value=store, legal='a store:  SqliteStore("sessions.db"), MemoryStore()'
        )
