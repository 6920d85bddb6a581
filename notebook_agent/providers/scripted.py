"""ScriptedModel: replies, delays and faults from a short script, in process.

The test double, the model of the strict notebooks and the teacher where nothing is configured.
Deterministic, no network, and every place that shows its name says ``scripted``.

Example:
    >>> import asyncio
    >>> from notebook_agent.core.request import RequestOptions, StreamRequest
    >>> double = ScriptedModel(["Hello."])
    >>> asyncio.run(double.create_message_with_options(StreamRequest(()), RequestOptions())).message.text_content()
    'Hello.'

Source: LLM turn, "Two paths, one entry point" (L8, L9, L36-L38); notebook D11.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from types import EllipsisType
from typing import Final

from notebook_agent.core import events as e
from notebook_agent.core.accumulator import StreamAccumulator
from notebook_agent.core.request import RequestOptions, StreamRequest
from notebook_agent.core.response import ENDING_OF_WORD, ChatResponse, Ending, Usage
from notebook_agent.errors import ConfigError
from notebook_agent.providers.base import Capabilities
from notebook_agent.providers.fault_script import OK, ScriptStep, parse_script, step_error
from notebook_agent.providers.forced_tool import turner
from notebook_agent.providers.scripted_reply import (
    Reply,
    arguments,
    call,
    characters,
    lanes,
    text_deltas,
    word_of,
)
from notebook_agent.providers.teacher import teach

__all__ = ["Reply", "ScriptedCall", "ScriptedModel", "call"]


ReplyLike = str | Reply | BaseException
Replies = ReplyLike | Sequence[ReplyLike] | Callable[[StreamRequest], ReplyLike]


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """One request that reached the model: what, with which options, streamed or not, its step."""

    request: StreamRequest
    options: RequestOptions
    streamed: bool
    step: ScriptStep


_DEFAULT_CAPABILITIES: Final = Capabilities(
    tool_calling=True,
    parallel_tool_calls=True,
    json_schema=True,
    json_object=True,
    vision=True,
    thinking=True,
    streaming_usage=True,
    context_window=128_000,
    max_output=32_000,
    source="table",
)


class ScriptedModel:
    """A deterministic model in this process.

    Args:
        replies: One reply, a list, or a function ``request -> reply``. A reply is a text, a
            :class:`Reply` or an exception to raise. The next one of a list is taken when a
            request was served (or raised its exception); a request that met a fault does not
            use one up, so that a retry gets the same reply again. The last repeats. None =
            the teacher: a reply that says it is scripted and how to choose a real model.
        script: Faults, see :mod:`notebook_agent.providers.fault_script`. Each request,
            streamed or unstreamed (a rescue too), takes one step; the last repeats.
        delay_s: Seconds before each delta.
        usage: Reported usage: ``...`` = a quarter of the characters, None = never reported.
        name: The bare model name.
        capabilities: What it says it can do.
        window: Context window in tokens; shorthand for ``capabilities``.
        sleep: ``await sleep(seconds)``, for tests with a clock of their own.

    Attributes:
        requests: Every request that arrived, oldest first.
        calls: The same with options, step and whether it was streamed.
        open_streams: Streams that were begun and not yet closed.

    Raises:
        ConfigError: The script has an unknown word, or a setting is out of range.
    """

    provider = "scripted"
    requires_network = False

    def __init__(
        self,
        replies: Replies | None = None,
        *,
        script: str = "",
        delay_s: float = 0.0,
        usage: Usage | EllipsisType | None = ...,
        name: str = "scripted",
        capabilities: Capabilities | None = None,
        window: int | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        if not 0 <= delay_s < float("inf"):
            raise ConfigError(field="delay_s", value=delay_s, legal="seconds, 0 or more")
        if window is not None and window < 1:
            raise ConfigError(field="window", value=window, legal="1 token or more")
        self._choose = _chooser(replies)
        self._script = parse_script(script)
        self._delay_s = delay_s
        self._usage = usage
        self._name = name
        known = capabilities or _DEFAULT_CAPABILITIES
        self._capabilities = known if window is None else known.overridden(context_window=window)
        self._sleep = sleep
        self._served = 0
        self.calls: list[ScriptedCall] = []
        self.open_streams = 0

    def __repr__(self) -> str:
        return f"<ScriptedModel {self._name!r}, {len(self.calls)} requests>"

    @property
    def requests(self) -> list[StreamRequest]:
        """Every request that arrived, oldest first."""
        return [call.request for call in self.calls]

    def model(self) -> str:
        """The bare model name."""
        return self._name

    def set_model(self, name: str) -> bool:
        """Take another name."""
        self._name = name
        return True

    def base_url(self) -> str:
        """Empty: there is no endpoint to limit."""
        return ""

    def capabilities(self) -> Capabilities:
        """As given."""
        return self._capabilities

    async def learn(self) -> Capabilities:
        """As given: there is no endpoint to ask."""
        return self._capabilities

    async def aclose(self) -> None:
        """Nothing to close."""

    async def stream_messages_with_options(
        self, request: StreamRequest, options: RequestOptions
    ) -> AsyncGenerator[e.StreamEvent, None]:
        """The reply as events, or the fault that the script names (L8, L9).

        Raises:
            ProviderError: The script says so.
        """
        step = self._take_step(request, options, streamed=True)
        self.open_streams += 1
        try:
            await self._meet_early(step)
            deltas = 0
            for delay, event in self._play(request, options, step):
                if type(event) is e.MessageDelta and not step.serves:
                    await self._strike(step)  # the position lies past the last delta
                    return
                if delay > 0:
                    await self._sleep(delay)
                if type(event) is e.MessageStop:
                    self._served += 1  # counted before: the reader may stop reading here (L57)
                yield event
                if type(event) is e.IndexedDelta:
                    deltas += 1
                elif type(event) is not e.MessageStart:
                    continue
                if deltas == step.at:
                    await self._strike(step)
                    return
        finally:
            self.open_streams -= 1

    async def create_message_with_options(
        self, request: StreamRequest, options: RequestOptions
    ) -> ChatResponse:
        """The whole reply. A fault of the script strikes here without any part of the reply.

        Raises:
            ProviderError: The script says so.
        """
        step = self._take_step(request, options, streamed=False)
        await self._meet_early(step)
        if not step.serves:
            await self._hang_or_raise(step)
        accumulator = StreamAccumulator()
        for delay, event in self._play(request, options, step):
            if delay > 0:
                await self._sleep(delay)
            accumulator.apply(event)
        self._served += 1
        return ChatResponse(
            accumulator.build(),
            accumulator.stop_reason,
            accumulator.usage,
            ending=accumulator.ending,
            ending_raw=accumulator.ending_raw,
        )

    def _take_step(
        self, request: StreamRequest, options: RequestOptions, *, streamed: bool
    ) -> ScriptStep:
        step = self._script[min(len(self.calls), len(self._script) - 1)] if self._script else OK
        self.calls.append(ScriptedCall(request, options, streamed, step))
        return replace(step, streamed=streamed)

    async def _meet_early(self, step: ScriptStep) -> None:
        if step.kind == "slow":
            await self._sleep(step.seconds or 0.0)
        elif step.before_reply:
            await self._hang_or_raise(step)

    async def _strike(self, step: ScriptStep) -> None:
        """Raise or hang; returns for ``trunc``: that stream just ends (L9)."""
        if step.kind != "trunc":
            await self._hang_or_raise(step)

    async def _hang_or_raise(self, step: ScriptStep) -> None:
        if step.kind == "hang":
            await asyncio.Event().wait()
        raise step_error(step)

    def _reply_to(self, request: StreamRequest, options: RequestOptions, step: ScriptStep) -> Reply:
        chosen = self._choose(request, options, self._served)
        if isinstance(chosen, str):
            return Reply(text=chosen)
        if isinstance(chosen, Reply):
            return chosen
        if step.serves:
            self._served += 1
        raise chosen

    def _play(
        self, request: StreamRequest, options: RequestOptions, step: ScriptStep
    ) -> Iterator[tuple[float, e.StreamEvent]]:
        """``(seconds to wait first, event)`` of the whole reply."""
        reply = self._reply_to(request, options, step)
        number = len(self.calls)
        delay = self._delay_s if reply.delay_s is None else reply.delay_s
        name = (options.model or self._name).removeprefix(f"{self.provider}:")
        yield 0.0, e.MessageStart(id=f"scripted_{number}", model=name)
        for _ in range(reply.pings):
            yield delay, e.Ping()
        word = word_of(reply)
        ending = None if word is None else ENDING_OF_WORD.get(word, Ending.UNKNOWN)
        end = e.MessageDelta(word, self._usage_of(reply, request), ending, word)
        turn = turner(options)  # a forced tool's arguments are the reply's text
        for event in chain(lanes(reply, number), (end, e.MessageStop())):
            for one in (event,) if turn is None else turn.turned((event,)):
                yield delay if type(one) is e.IndexedDelta else 0.0, one

    def _usage_of(self, reply: Reply, request: StreamRequest) -> Usage | None:
        usage = self._usage if isinstance(reply.usage, EllipsisType) else reply.usage
        if not isinstance(usage, EllipsisType):
            return usage
        sent = sum(characters(m) for m in request.messages) + len(request.system or "")
        back = len(reply.thinking or "") + sum(map(len, text_deltas(reply)))
        back += sum(len(c.name) + len(arguments(c)) for c in reply.tool_calls)
        return Usage(input_tokens=-(-sent // 4), output_tokens=-(-back // 4))


_Chooser = Callable[[StreamRequest, RequestOptions, int], ReplyLike]


def _chooser(replies: Replies | None) -> _Chooser:
    """``(request, options, number served so far) -> reply``."""
    if replies is None:
        return lambda request, options, _: _from_teacher(request, options)
    if isinstance(replies, (str, Reply, BaseException)):
        return lambda _request, _options, _served: replies
    if callable(replies):
        return lambda request, _options, _served: replies(request)
    rows = tuple(replies)
    if not rows:
        raise ConfigError(field="replies", value=[], legal="at least one reply")
    return lambda _request, _options, served: rows[min(served, len(rows) - 1)]


def _from_teacher(request: StreamRequest, options: RequestOptions) -> Reply:
    text, calls = teach(request, options)
    return Reply(text=text, tool_calls=calls)
