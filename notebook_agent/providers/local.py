"""The local model: SmolLM2 (or a .gguf file of your own) in llama.cpp's server, no key needed.

Source: LLM turn, "Two paths, one entry point" (L7-L9); notebook D11.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Final

from notebook_agent.core import events as e
from notebook_agent.core.messages import Message, TextPart
from notebook_agent.core.request import RequestOptions, StreamRequest
from notebook_agent.core.response import ChatResponse
from notebook_agent.errors import ConfigError, ErrorKind, ProviderError
from notebook_agent.providers.base import Capabilities, check_allowed
from notebook_agent.providers.local_files import SMOLLM2, find_model
from notebook_agent.providers.local_process import (
    ServerFacts,
    ServerSettings,
    shared_server,
)
from notebook_agent.providers.openai_chat import OpenAIChat
from notebook_agent.providers.transport import HttpSettings

__all__ = ["LocalModel"]

# The model card's own recommendation.
_SAMPLING: Final = (("temp", 0.2), ("top_p", 0.9))
_REAP_TRIES: Final = 10
_REAP_S: Final = 0.02


class LocalModel:
    """A model in a child process of this one, reached over loopback.

    The server starts at the first request (about half a second), is shared by all clients of
    the process with the same settings, and ends with it.

    Args:
        name: ``smollm2``, or the path of a .gguf file.
        threads: Compute threads; None = one less than there are cores.
        slots: Replies at the same time.
        n_ctx: Window of all slots together in tokens; None = the model's own for each.
        capabilities: Overrides what is known.

    Raises:
        ConfigError: The file or llama.cpp's package is not there; says what to type.
    """

    provider = "local"
    requires_network = False

    def __init__(
        self,
        name: str = SMOLLM2.name,
        *,
        threads: int | None = None,
        slots: int = 1,
        n_ctx: int | None = None,
        capabilities: Capabilities | None = None,
    ) -> None:
        for field, value in (("threads", threads), ("slots", slots), ("n_ctx", n_ctx)):
            if value is not None and value < 1:
                raise ConfigError(field=field, value=value, legal="1 or more")
        own = name.endswith(".gguf")
        path = _own_file(name) if own else _known_file(name)
        self._name = Path(name).stem if own else name
        settings = ServerSettings(
            model=str(path),
            name=self._name,
            sha256=None if own else SMOLLM2.sha256,
            slots=slots,
            n_ctx=n_ctx or 0,
            sampling=() if own else _SAMPLING,
        )
        if threads is not None:
            settings = replace(settings, threads=threads)
        self._server = shared_server(settings)
        self._client: OpenAIChat | None = None
        self._served_by: ServerFacts | None = None
        self._capabilities = capabilities or Capabilities(
            tool_calling=None if own else False,
            json_schema=True,
            json_object=True,
            vision=False,
            thinking=False,
            streaming_usage=True,
            context_window=n_ctx // slots if n_ctx else None if own else SMOLLM2.window,
            source="table",
        )

    def __repr__(self) -> str:
        return f"<LocalModel local:{self._name}>"

    def model(self) -> str:
        """The bare model name."""
        return self._name

    def base_url(self) -> str:
        """Empty: the server is ours, there is nothing to limit."""
        return ""

    def capabilities(self) -> Capabilities:
        """What the model can do; the window as the running server says, once it runs."""
        return self._capabilities

    async def learn(self) -> Capabilities:
        """Start the server and ask it.

        Raises:
            ProviderError: The server did not start.
        """
        await self._ready()
        return self._capabilities

    async def aclose(self) -> None:
        """Close this loop's connections; the shared server goes on."""
        if self._client is not None:
            await self._client.aclose()

    async def stream_messages_with_options(
        self, request: StreamRequest, options: RequestOptions
    ) -> AsyncGenerator[e.StreamEvent, None]:
        """The reply as events.

        Raises:
            ProviderError: Tools were asked for, or the server failed.
        """
        self._refuse_tools(request, options)
        client = await self._ready()
        self._refuse_tools(request, options)
        events = client.stream_messages_with_options(_plain(request), options)
        failed: ProviderError | None = None
        async with contextlib.aclosing(events):
            try:
                async for event in events:
                    yield event
            except ProviderError as error:
                failed = error
        if failed is not None:
            raise await self._explained(failed)

    async def create_message_with_options(
        self, request: StreamRequest, options: RequestOptions
    ) -> ChatResponse:
        """The whole reply of one unstreamed request.

        Raises:
            ProviderError: Tools were asked for, or the server failed.
        """
        self._refuse_tools(request, options)
        client = await self._ready()
        self._refuse_tools(request, options)
        try:
            return await client.create_message_with_options(_plain(request), options)
        except ProviderError as error:
            failed = error
        raise await self._explained(failed)

    async def _ready(self) -> OpenAIChat:
        check_allowed(f"local:{self._name}")
        for seconds in self._server.waits():
            await asyncio.sleep(seconds)
        facts = self._server.facts
        assert facts is not None
        if self._client is None or facts is not self._served_by:
            self._served_by = facts
            self._capabilities = _learnt(self._capabilities, facts)
            self._client = OpenAIChat(
                self._name,
                base_url=f"{facts.url}/v1",
                key=self._server.key,
                provider="local",
                # One request in 12 to 25 on a reused connection is dropped by the server.
                settings=HttpSettings(keep_alive=False),
            )
        return self._client

    def _refuse_tools(self, request: StreamRequest, options: RequestOptions) -> None:
        """The template would leave the tools out without a word (L7)."""
        sent = request.tools is not None and options.response_format is None
        if sent and self._capabilities.tool_calling is False:
            raise ProviderError(
                ErrorKind.UNSUPPORTED,
                f"local:{self._name} cannot call tools: its chat template would leave them out. "
                "Nothing was sent.",
                feature="tool_calling",
                hint="Ask without tools (%%agent --no-tools) or choose another model: "
                "%agent model provider:name",
            )

    async def _explained(self, error: ProviderError) -> ProviderError:
        """The error, or what became of the server when it is gone."""
        if error.kind is not ErrorKind.TRANSPORT:
            return error
        for _ in range(_REAP_TRIES):  # the connection breaks a moment before the process is gone
            how = self._server.ended()
            if how:
                return ProviderError(
                    ErrorKind.TRANSPORT,
                    f"{how[0].upper()}{how[1:]}. The next request starts it again.",
                )
            await asyncio.sleep(_REAP_S)
        return error


def _known_file(name: str) -> Path:
    if name != SMOLLM2.name:
        raise ConfigError(
            f"There is no local model {name!r}.\n"
            f"Give local:{SMOLLM2.name}, or the path of a file: local:FOLDER/MODEL.gguf",
            field="model",
            value=name,
        )
    _need_llama()
    found = find_model()
    if found is None:
        raise ConfigError(
            f"The local model's file is not on this machine ({SMOLLM2.size // 1_000_000} MB).\n"
            "Fetch it with:  %run -m notebook_agent fetch-model",
            field="model",
            value=f"local:{name}",
        )
    return found.path


def _own_file(name: str) -> Path:
    path = Path(name).expanduser()
    if not path.is_file():
        raise ConfigError(f"There is no model file {path}.", field="model", value=name)
    _need_llama()
    return path.resolve()


def _need_llama() -> None:
    from importlib.util import find_spec  # noqa: PLC0415 - looked up only when it is asked for

    try:
        there = find_spec("xllamacpp") is not None
    except (ImportError, ValueError):
        there = False
    if not there:
        raise ConfigError(
            "The local model needs a package that is not installed.\n"
            'Type:  %pip install "notebook-agent[local]"',
            field="model",
            value="local",
        )


def _learnt(known: Capabilities, facts: ServerFacts) -> Capabilities:
    tools = known.tool_calling if facts.tools else False
    if known.source == "user":
        return known
    return replace(known, context_window=facts.n_ctx, tool_calling=tools, source="endpoint")


def _plain(request: StreamRequest) -> StreamRequest:
    """Calls and results of an earlier model as text: this template knows no such messages."""
    if not any(m.tool_calls or m.results for m in request.messages):
        return request
    messages = tuple(
        Message(m.role, (TextPart(m.display_text()),)) if m.tool_calls or m.results else m
        for m in request.messages
    )
    return replace(request, messages=messages)
