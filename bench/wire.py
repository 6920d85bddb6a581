"""What a model client costs beside reading the same stream with plain httpx lines.

Ratios of CPU time, medians, all taken in one run against one server on loopback (bench/server.py
in a process of its own). Baseline: the same request body built from dicts with ``json=``, the
answer read with ``Response.aiter_lines()`` and nothing else done. Ours: request encoded, sent,
decoded to events, every event consumed.
"""

from __future__ import annotations

import asyncio
import importlib
import statistics
import time
from collections.abc import Iterator

import httpx

from bench.kit import Row, plain_row, ratio_row, server
from notebook_agent.core.messages import Message
from notebook_agent.core.request import RequestOptions, StreamRequest

TEXT = ("The quick brown fox jumps over the lazy dog while prompts are tuned. " * 4)[:200]
JSON = {"content-type": "application/json"}
FORMATS = {
    "openai-chat": ("openai_chat", "OpenAIChat", "/v1", "/v1/chat/completions"),
    "anthropic-messages": ("anthropic_messages", "AnthropicMessages", "", "/v1/messages"),
    "openai-responses": ("openai_responses", "OpenAIResponses", "/v1", "/v1/responses"),
    "gemini": (
        "gemini", "Gemini", "/v1beta", "/v1beta/models/bench-{n}:streamGenerateContent?alt=sse",
    ),
    "ollama": ("ollama", "Ollama", "", "/api/chat"),
}  # fmt: skip


def history(k: int) -> tuple[Message, ...]:
    made = [
        (Message.user, Message.assistant)[i % 2](f"{i}: {TEXT}") for i in range(k - 1 - (k - 1) % 2)
    ]
    return (*made, Message.user("Say one word."))


def plain(messages) -> list[dict]:
    return [{"role": m.role.value, "content": m.text_content()} for m in messages]


class Lines:
    def __init__(self, base: str, path: str) -> None:
        self.client = httpx.AsyncClient(base_url=base)
        self.path = path

    async def turn(self, n: int, messages: list[dict]) -> int:
        body = {"model": f"bench-{n}", "messages": messages, "stream": True}
        seen = 0
        async with self.client.stream("POST", self.path.format(n=n), json=body) as response:
            async for _line in response.aiter_lines():
                seen += 1
        return seen

    async def aclose(self) -> None:
        await self.client.aclose()


class Ours:
    def __init__(self, base: str, api: str) -> None:
        module, name, path, _ = FORMATS[api]
        self.make = getattr(importlib.import_module(f"notebook_agent.providers.{module}"), name)
        self.client = self.make("bench-1", base_url=base + path, key="test-key-0123456789")

    async def turn(self, n: int, messages: tuple[Message, ...]) -> int:
        seen = 0
        options = RequestOptions(model=f"bench-{n}")
        request = StreamRequest(messages)
        async for _event in self.client.stream_messages_with_options(request, options):
            seen += 1
        return seen

    async def aclose(self) -> None:
        await self.client.aclose()


async def cpu(turn, n: int, messages, reps: int) -> float:
    """Median CPU seconds of a turn."""
    for _ in range(3):
        assert await turn(n, messages) >= n
    times = []
    for _ in range(reps):
        start = time.process_time()
        await turn(n, messages)
        times.append(time.process_time() - start)
    return statistics.median(times)


async def ratio(
    one, messages_one, two, messages_two, n: int, reps: int
) -> tuple[float, float, float]:
    """Interleaved, so that what else the machine does hits both."""
    a, b = [], []
    for _ in range(5):
        a.append(await cpu(one.turn, n, messages_one, reps))
        b.append(await cpu(two.turn, n, messages_two, reps))
    return statistics.median(b) / statistics.median(a), statistics.median(a), statistics.median(b)


class Bytes(Lines):
    """Plain httpx sends a body that is encoded already, and reads lines."""

    async def turn(self, n: int, body: bytes) -> int:
        seen, path = 0, self.path.format(n=n)
        async with self.client.stream("POST", path, content=body, headers=JSON) as response:
            async for _line in response.aiter_lines():
                seen += 1
        return seen


async def history_row(base: str, reps: int) -> Row:
    """What each message of a history of 1,000 costs in a request.

    Ours without and with history, and plain httpx with the very bytes of both, in turn, so that
    all four meet the same machine.
    """
    ours, lines = Ours(base, "openai-chat"), Bytes(base, FORMATS["openai-chat"][3])
    one, long = history(1), history(1001)

    def body(messages: tuple[Message, ...]) -> bytes:
        return ours.client.encode(StreamRequest(messages), RequestOptions(), stream=True)[1]

    works = [
        (ours, one), (ours, long), (lines, body(one)), (lines, body(long)),
    ]  # fmt: skip
    taken: list[list[float]] = [[] for _ in range(5)]
    for n in range(reps + 5):
        for at, (kind, sent) in enumerate(works):
            start = time.process_time()
            await kind.turn(1, sent)
            if n >= 5:
                taken[at].append(time.process_time() - start)
        start = time.process_time()
        body(long)
        if n >= 5:
            taken[4].append(time.process_time() - start)
    each = statistics.median(b - a for a, b in zip(taken[0], taken[1], strict=True)) * 1e3
    sent = statistics.median(b - a for a, b in zip(taken[2], taken[3], strict=True)) * 1e3
    alone = statistics.median(taken[4]) * 1e3  # us per message: s / 1,000 messages
    await ours.aclose()
    await lines.aclose()
    return plain_row(
        1, "history, CPU per message and request at 1,000 messages",
        f"{each:.3f} µs, encoding alone {alone:.3f} µs", "<= 0.5 µs", each <= 0.5,
        yardstick=f"httpx sending the same bytes {sent:.3f} µs, our request without history "
        f"{statistics.median(taken[0]) * 1e3:.2f} ms",
    )  # fmt: skip


async def measure(base: str, quick: bool) -> list[Row]:
    few, many = (10, 3) if quick else (60, 9)
    one = history(1)
    lines = Lines(base, FORMATS["openai-chat"][3])
    ours = Ours(base, "openai-chat")
    out = []
    for label, n, reps, goal in (("one delta", 1, few, 1.3), ("1,000 deltas", 1000, many, 1.0)):
        _, a, b = await ratio(lines, plain(one), ours, one, n, reps)
        out.append(ratio_row(1, f"client, openai-chat, {label}", b, a, goal, yard="httpx lines"))
    thousand = await cpu(ours.turn, 1000, one, many)
    ten = await cpu(ours.turn, 10_000, one, 3 if quick else 5)
    label = "client, openai-chat, 10,000 deltas beside 1,000"
    out.append(ratio_row(1, label, ten, thousand, 10.5, yard="1,000 deltas"))
    out.append(await history_row(base, 20 if quick else 120))
    await lines.aclose()
    await ours.aclose()
    for api in list(FORMATS)[1:]:
        ours = Ours(base, api)
        lines = Lines(base, FORMATS[api][3])
        _, a, b = await ratio(lines, plain(one), ours, one, 1000, many)
        label = f"client, {api}, 1,000 deltas"
        out.append(ratio_row(6, label, b, a, 1.2, yard="httpx lines"))
        await lines.aclose()
        await ours.aclose()
    return out


def rows(quick: bool) -> Iterator[Row]:
    """The rows of this bench."""
    with server() as base:
        yield from asyncio.run(measure(base, quick))
