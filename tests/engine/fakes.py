"""A model client driven by a script of attempts, for engine tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from notebook_agent.core import events as e
from notebook_agent.core.breaker import Breaker, BreakerConfig
from notebook_agent.core.messages import Message, TextPart, ToolCallPart
from notebook_agent.core.request import RequestOptions, TurnMode
from notebook_agent.core.response import ChatResponse, StopReason, Usage
from notebook_agent.core.route import Route
from notebook_agent.engine.cancel import CancelSignal
from notebook_agent.engine.llm_turn import LlmTurn
from notebook_agent.engine.observers import CALLBACKS, Observer, ObserverHub
from notebook_agent.engine.turn_values import TurnContext
from notebook_agent.errors import ErrorKind, ProviderError
from notebook_agent.providers.base import Capabilities
from tests.conftest import fixed_surroundings


def text_events(*fragments: str, stop: str | None = "stop", usage: Usage | None = None, end=True):
    """A text reply as events."""
    out: list[Any] = [e.MessageStart("m1"), e.PartStart(0, TextPart(""))]
    out += [e.IndexedDelta(0, e.Text(f)) for f in fragments]
    out += [e.PartStop(0), e.MessageDelta(stop_reason=stop, usage=usage)]
    return [*out, e.MessageStop()] if end else out


def call_events(
    *fragments: str,
    name="find",
    call_id="c1",
    stop: str | None = "tool_calls",
    usage=None,
    ending=None,
):
    """A reply with one tool call, its arguments as fragments."""
    out: list[Any] = [e.MessageStart("m1"), e.PartStart(0, ToolCallPart(call_id, name))]
    out += [e.IndexedDelta(0, e.InputJson(f)) for f in fragments]
    out += [
        e.PartStop(0),
        e.MessageDelta(stop_reason=stop, usage=usage, ending=ending),
        e.MessageStop(),
    ]
    return out


def http(status: int, message: str = "busy", **kw) -> ProviderError:
    """The error an adapter makes of a status."""
    kind = {
        401: ErrorKind.AUTHENTICATION, 400: ErrorKind.BAD_REQUEST, 429: ErrorKind.RATE_LIMITED,
        503: ErrorKind.OVERLOADED, 529: ErrorKind.OVERLOADED, 408: ErrorKind.TIMEOUT,
    }.get(status, ErrorKind.PROVIDER)  # fmt: skip
    return ProviderError(kind, message, status=status, **kw)


DROP = ProviderError(ErrorKind.TRANSPORT, "connection closed by the other side")
HANG = object()


class Fake:
    """One entry of ``script`` per attempt: an exception, or a list of events in which an
    exception is raised, HANG waits for ever, a number sleeps and a callable is called."""

    provider = "fake"

    def __init__(
        self,
        script: Sequence[Any] = (),
        *,
        rescue: Any = None,
        name: str = "one",
        window=None,
        **can,
    ):
        self.script = list(script)
        self.rescue = rescue
        self.name = name
        self.requests: list[Any] = []
        self.options: list[RequestOptions] = []
        self.unstreamed: list[Any] = []
        self.opened = 0
        self.closed = 0
        self.can = Capabilities(context_window=window, **can)

    def model(self) -> str:
        return self.name

    def base_url(self) -> str:
        return "http://fake"

    def capabilities(self) -> Capabilities:
        return self.can

    async def stream_messages_with_options(self, request, options):
        self.requests.append(request)
        self.options.append(options)
        step = self.script.pop(0) if self.script else text_events("ok")
        self.opened += 1
        try:
            if isinstance(step, BaseException):
                raise step
            for item in step:
                if isinstance(item, BaseException):
                    raise item
                if item is HANG:
                    await asyncio.Event().wait()
                elif isinstance(item, (int, float)):
                    await asyncio.sleep(item)
                elif callable(item):
                    item()
                else:
                    yield item
        finally:
            self.closed += 1

    async def create_message_with_options(self, request, options):
        self.unstreamed.append(request)
        self.options.append(options)
        step = self.rescue
        if isinstance(step, list):
            step = step.pop(0)
        if callable(step):
            step = step()
        if asyncio.iscoroutine(step):
            step = await step
        if step is None:
            raise http(503, "rescue refused")
        if isinstance(step, BaseException):
            raise step
        return ChatResponse(Message.assistant(step)) if isinstance(step, str) else step


class Log(Observer):
    """Writes down every callback as ``(name, context)``."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def names(self, *without: str) -> list[str]:
        return [n for n, _ in self.calls if n not in without]

    def of(self, name: str) -> list[Any]:
        return [ctx for n, ctx in self.calls if n == name]


def _writer(name: str) -> Callable[[Log, Any], None]:
    def write(self: Log, ctx: Any = None) -> None:
        self.calls.append((name, ctx))

    return write


for _name in CALLBACKS:
    setattr(Log, _name, _writer(_name))


class Bench:
    """An LlmTurn on fakes, with everything that it told anybody."""

    def __init__(
        self, *clients: Fake, breaker: BreakerConfig | None = None, observe=True, **settings
    ):
        self.clients = {f"fake:{c.name}": c for c in clients or (Fake(),)}
        names = list(self.clients)
        self.log = Log()
        self.events: list[Any] = []
        self.signal = CancelSignal()
        settings.setdefault("surroundings", fixed_surroundings())
        self.llm = LlmTurn(
            resolve_client=self.clients.__getitem__,
            breaker=Breaker(breaker or BreakerConfig(), names[0], names[1:]),
            hub=ObserverHub([self.log] if observe else []),
            emit=self.events.append,
            cancel=self.signal,
            **settings,
        )
        self.turns = 0

    @property
    def client(self) -> Fake:
        return next(iter(self.clients.values()))

    def context(self, **kw) -> TurnContext:
        kw.setdefault("conversation", (Message.user("hello"),))
        if "route" not in kw:
            kw["route"] = self.llm.route(kw.get("estimate", 0))
        return TurnContext(query="hello", iteration=self.turns + 1, **kw)

    async def turn(self, transients=(), **kw):
        turn, self.turns = self.turns, self.turns + 1
        return await self.llm.do_turn(turn, transients, self.context(**kw))

    def told(self, kind: type) -> list[Any]:
        return [ev for ev in self.events if type(ev) is kind]


__all__ = [
    "DROP",
    "HANG",
    "Bench",
    "Fake",
    "Log",
    "Route",
    "StopReason",
    "TurnMode",
    "call_events",
    "http",
    "text_events",
]
