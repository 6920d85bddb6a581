"""Choosing the route of a turn, and the names of models in it.

Source: LLM turn, "Recording the outcome, exactly" (L14, L15, L79, L80, F02); Turn FSM,
"CallingModel" (B36).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace

from notebook_agent.core.breaker import Breaker, BreakerState
from notebook_agent.core.messages import Message
from notebook_agent.core.request import RequestOptions
from notebook_agent.core.route import Route
from notebook_agent.errors import AgentError, ConfigError
from notebook_agent.providers.base import Capabilities, ModelClient

__all__ = [
    "bare_name",
    "capabilities_of",
    "checked_window",
    "choose_route",
    "may_serve",
    "served_name",
    "window_of",
]


def choose_route(
    breaker: Breaker, estimate: int, window: Callable[[str], int | None], now: float
) -> Route:
    """The route by the breaker's state; ask ``check_recovery`` first.

    Args:
        estimate: Tokens of the request, 0 = unknown.
        window: Full name -> tokens, None when unknown.
        now: Seconds, monotonic.
    """
    exhausted = breaker.exhausted(now)
    if exhausted is not None:
        name = breaker.original_model
        return Route(name, window(name), override=True, exhausted=exhausted)
    # Ruling: L15, in Primary the user's model is honoured; a probe must hit the original
    override = breaker.state is not BreakerState.PRIMARY
    skipped: dict[str, int] = {}
    while True:
        model = breaker.routed_model(skip=skipped)
        size = window(model)
        is_backup = breaker.state is BreakerState.FALLBACK and model != breaker.original_model
        if not is_backup or size is None or estimate <= size:
            break
        skipped[model] = size  # no strike is burned: the model did nothing wrong (F02)
    if skipped and not is_backup:
        # No usable backup holds the request. The primary is resting, so the turn compacts for
        # the largest backup (B36); the primary is not asked before its cooldown is over.
        largest = max(skipped, key=lambda name: skipped[name])
        rest = tuple((n, s) for n, s in skipped.items() if n != largest)
        return Route(largest, skipped[largest], override, rest, fits=False)
    return Route(model, size, override, tuple(skipped.items()))


def window_of(resolve: Callable[[str], ModelClient], model: str) -> int | None:
    """Window of a model in tokens, None when unknown or the model cannot be made."""
    try:
        client = resolve(model)
    except AgentError:
        return None  # the turn itself will say why
    return capabilities_of(client).context_window


def checked_window(tokens: object) -> int:
    """A window in tokens.

    Raises:
        ConfigError: It is no whole number above 0.
    """
    if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 1:
        raise ConfigError(field="context_window", value=tokens, legal="a whole number above 0")
    return tokens


def capabilities_of(client: ModelClient) -> Capabilities:
    """What a client says it can do; nothing known when it does not say.

    Raises:
        ConfigError: What it says is no ``Capabilities``.
    """
    ask = getattr(client, "capabilities", None)
    problem, answer = "", None
    try:
        answer = ask() if callable(ask) else ask
    except Exception as error:  # noqa: BLE001  # somebody else's code
        problem = f"failed: {type(error).__name__}: {error}"
    if answer is None and not problem:
        return Capabilities()
    if isinstance(answer, Capabilities):
        if answer.context_window is not None:
            checked_window(answer.context_window)
        return answer
    if inspect.iscoroutine(answer):
        answer.close()  # asking takes no await: learn() does
    raise ConfigError(
        f"capabilities() of {type(client).__name__} {problem or f'gave a {type(answer).__name__}'}.\n"
        "Give:  Capabilities(tool_calling=..., vision=..., context_window=...)     or None",
        field="capabilities",
    )


def bare_name(model: str) -> str:
    """``openai:gpt-x`` -> ``gpt-x``; a name without a provider stays (B36)."""
    provider, colon, name = model.partition(":")
    return name if colon else provider


def served_name(route: Route, options: RequestOptions) -> str:
    """Full name of the model that will answer: the route's, or the user's per-request one."""
    if route.override or options.model is None:
        return route.model
    provider, colon, _ = route.model.partition(":")
    return f"{provider}:{options.model}" if colon else options.model


def may_serve(primary: str, chain: Sequence[str], options: RequestOptions) -> tuple[str, ...]:
    """Full names of the models that may serve a run, the first one first.

    Args:
        primary: The run's model.
        chain: Its backups.
        options: Its request options; their model is asked while the primary serves (L15).
    """
    backups = [name for name in chain if name != primary]
    asked = served_name(Route(primary), options)
    return (asked, *([primary] if asked != primary else ()), *backups)


def without_foreign_state(messages: Sequence[Message], served: str) -> list[Message]:
    """The messages without the provider state of another model (L2)."""
    # the test first, without a call: a long history has no state at all
    return [m if m.provider_state is None else _own_state(m, served) for m in messages]


def _own_state(message: Message, served: str) -> Message:
    state = message.provider_state
    if state is None or state.get("model", served) == served:
        return message
    return replace(message, provider_state=None)
