"""ModelClient: the one narrow interface between the engine and a provider.

A client is any class with the three methods of L8. It never retries, never invents a
``MessageStop`` after a failure (L9), and raises :class:`~notebook_agent.errors.ProviderError`.

Source: LLM turn, "Two paths, one entry point" (L8, L9); Turn FSM, "CallingModel" (B39).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, runtime_checkable

from notebook_agent.core.events import StreamEvent
from notebook_agent.core.request import RequestOptions, StreamRequest
from notebook_agent.core.response import ChatResponse
from notebook_agent.errors import ConfigError

__all__ = ["Capabilities", "ModelClient", "ModelRequests", "check_allowed", "full_name"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a model can do. None = not known: it is tried, and the provider's word stands.

    ``context_window`` and ``max_output`` in tokens. ``source`` says where it was learnt:
    endpoint, table, user, default.
    """

    chat: bool | None = True
    chat_stream: bool | None = True
    tool_calling: bool | None = None
    parallel_tool_calls: bool | None = None
    json_schema: bool | None = None
    json_object: bool | None = None
    vision: bool | None = None
    thinking: bool | None = None
    streaming_usage: bool | None = None
    embeddings: bool | None = False
    context_window: int | None = None
    max_output: int | None = None
    source: str = "default"

    def overridden(self, **fields: Any) -> Capabilities:
        """The same with some fields set by the user."""
        return replace(self, **fields, source="user")


@runtime_checkable
class ModelClient(Protocol):
    """A provider adapter bound to one model (L8).

    Optional beside these: ``set_model(name) -> bool``, ``base_url() -> str`` (key of the rate
    limiter), ``capabilities() -> Capabilities``, ``async learn() -> Capabilities`` (asks the
    endpoint), ``provider: str`` (the part before the colon), ``async aclose()``,
    ``requires_network: bool`` (False for scripted and recorded models).
    """

    def model(self) -> str:
        """The bare model name."""
        ...

    def stream_messages_with_options(
        self, request: StreamRequest, options: RequestOptions
    ) -> AsyncIterator[StreamEvent]:
        """The reply as events. An async generator: ``aclose()`` closes the HTTP response.

        Raises:
            ProviderError: At the first event for a refused request, later for a broken stream.
        """
        ...

    async def create_message_with_options(
        self, request: StreamRequest, options: RequestOptions
    ) -> ChatResponse:
        """The whole reply of one unstreamed request.

        Raises:
            ProviderError: The request failed.
        """
        ...


def full_name(client: ModelClient, model: str | None = None) -> str:
    """``provider:name`` of a client (B36).

    Raises:
        ConfigError: The client has no such name: it is a class, or ``model()`` gives no text.
    """
    if isinstance(client, type):
        raise ConfigError(
            f"{client.__name__} is a class, and a model is an object.\n"
            f"Give:  {client.__name__}(...)",
            field="model",
        )
    provider = getattr(client, "provider", "")
    if not isinstance(provider, str) or not provider:
        provider = type(client).__name__.lower()
    name, problem = model, ""
    try:
        name = model or client.model()
    except Exception as error:  # noqa: BLE001  # somebody else's code
        problem = f"failed: {type(error).__name__}: {error}"
    if not problem and (not isinstance(name, str) or not name.strip()):
        problem = f"gave {name!r}"
    if problem or ":" in provider:
        problem = f"model() {problem}" if problem else f"provider is {provider!r}"
        raise ConfigError(
            f"The client {type(client).__name__} has no name that can be shown: its {problem}.\n"
            "model() gives the bare name, a text; provider is a word without a colon.",
            field="model",
        )
    return f"{provider}:{name}"


# Longest silence inside an answer, in seconds, for requests sent in this context; None = no limit
# of the transport's own. The stream handler's deadlines rule, so it leaves this alone; passthrough
# sets ``PASSTHROUGH_GAP_S`` before it opens a stream (L70).
READ_GAP_S: Final[ContextVar[float | None]] = ContextVar("read_gap_s", default=None)
PASSTHROUGH_GAP_S: Final = 120.0


@dataclass(slots=True)
class ModelRequests:
    """Whether requests may leave the process; tests switch them off."""

    allowed: bool = True


ALLOW_MODEL_REQUESTS: Final = ModelRequests()


def check_allowed(client_name: str) -> None:
    """Refuse a real request where tests have switched them off.

    Raises:
        ConfigError: Requests are off.
    """
    if not ALLOW_MODEL_REQUESTS.allowed:
        raise ConfigError(
            f"A real request to {client_name} was about to be sent, and requests are off.\n"
            "In tests use ScriptedModel, or set ALLOW_MODEL_REQUESTS.allowed = True.",
            field="ALLOW_MODEL_REQUESTS",
        )
