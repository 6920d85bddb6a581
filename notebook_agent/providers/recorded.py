"""A recorded HTTP body played back as a model: offline, the same every time.

Source: LLM turn, "Two paths, one entry point" (L8); house plan, providers.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from notebook_agent.core import events as e
from notebook_agent.core.accumulator import StreamAccumulator
from notebook_agent.core.request import RequestOptions, StreamRequest
from notebook_agent.core.response import ChatResponse
from notebook_agent.errors import ConfigError, ProviderError
from notebook_agent.providers.base import Capabilities
from notebook_agent.providers.decode import APIS
from notebook_agent.providers.errors import from_response

__all__ = ["RecordedModel"]


class RecordedModel:
    """Answers each request with the next recorded body; the last one repeats.

    Args:
        bodies: Bodies, or paths of files that hold them.
        api: Their wire format.
        name: The bare model name.
        status: HTTP status of the bodies; one that is not 2xx is raised as its error.
        chunk: Bytes of a piece; None = each body whole.
        delay_s: Seconds before each piece.
        sleep: ``await sleep(seconds)``, for tests with a clock of their own.

    Attributes:
        requests: Every request that arrived, oldest first.

    Raises:
        ConfigError: An unknown api, or no body.
    """

    provider = "recorded"
    requires_network = False

    def __init__(
        self,
        bodies: bytes | str | Path | Sequence[bytes | str | Path],
        api: str,
        *,
        name: str = "recorded",
        status: int = 200,
        chunk: int | None = None,
        delay_s: float = 0.0,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        given = [bodies] if isinstance(bodies, (bytes, str, Path)) else list(bodies)
        if api not in APIS:
            raise ConfigError(field="api", value=api, legal=f"one of {', '.join(sorted(APIS))}")
        if not given:
            raise ConfigError(field="bodies", value=0, legal="at least one body")
        if chunk is not None and chunk < 1:
            raise ConfigError(field="chunk", value=chunk, legal="a number of bytes, 1 or more")
        self._bodies = [b if isinstance(b, bytes) else Path(b).read_bytes() for b in given]
        self._api = api
        self._name = name
        self._status = status
        self._chunk = chunk
        self._delay = delay_s
        self._sleep = sleep
        self.requests: list[StreamRequest] = []

    def __repr__(self) -> str:
        return f"<RecordedModel {self._api}, {len(self._bodies)} bodies>"

    def model(self) -> str:
        """The bare model name."""
        return self._name

    def capabilities(self) -> Capabilities:
        """Nothing is known of it."""
        return Capabilities()

    async def stream_messages_with_options(
        self,
        request: StreamRequest,
        options: RequestOptions,  # noqa: ARG002  # a recording answers whatever is asked
    ) -> AsyncGenerator[e.StreamEvent, None]:
        """The recorded reply as events.

        Raises:
            ProviderError: The recording is an error, or was cut.
        """
        data = self._next(request)
        decoder = self._decoder()
        step = self._chunk or max(len(data), 1)
        for start in range(0, len(data), step):
            if self._delay:
                await self._sleep(self._delay)
            for event in decoder.feed(data[start : start + step]):
                yield event
            if decoder.ended or decoder.failure is not None:
                break
        for event in decoder.finish():
            yield event
        if decoder.failure is not None:
            raise decoder.failure

    async def create_message_with_options(
        self, request: StreamRequest, options: RequestOptions
    ) -> ChatResponse:
        """The recorded reply in one piece.

        Raises:
            ProviderError: The recording is an error, or was cut.
        """
        accumulator = StreamAccumulator()
        async for event in self.stream_messages_with_options(request, options):
            accumulator.apply(event)
        return ChatResponse(
            accumulator.build(),
            accumulator.stop_reason,
            accumulator.usage,
            "",
            accumulator.ending,
            accumulator.ending_raw,
        )

    def _next(self, request: StreamRequest) -> bytes:
        at = min(len(self.requests), len(self._bodies) - 1)
        self.requests.append(request)
        data = self._bodies[at]
        if not 200 <= self._status < 300:
            raise self._refused(data)
        return data

    def _refused(self, data: bytes) -> ProviderError:
        return from_response(self._status, (), data, host="the recording", wall=lambda: 0.0)

    def _decoder(self) -> Any:
        module, name = APIS[self._api]
        return getattr(importlib.import_module(module), name)(full_name=f"recorded:{self._name}")
