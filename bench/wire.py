"""What a model client costs beside reading the same stream with plain httpx lines.

    python bench/wire.py [--quick]

Ratios of CPU time, medians, all taken in one run against one server on loopback (bench/server.py
in a process of its own). Baseline: the same request body built from dicts with ``json=``, the
answer read with ``Response.aiter_lines()`` and nothing else done. Ours: request encoded, sent,
decoded to events, every event consumed.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from pathlib import Path

import httpx

from notebook_agent.core.messages import Message
from notebook_agent.core.request import RequestOptions, StreamRequest

TEXT = ("The quick brown fox jumps over the lazy dog while prompts are tuned. " * 4)[:200]
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
        import importlib

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


async def measure(base: str, quick: bool) -> None:
    few, many = (10, 3) if quick else (60, 9)
    one = history(1)
    lines = Lines(base, FORMATS["openai-chat"][3])
    ours = Ours(base, "openai-chat")
    print("| measure | httpx lines ms | ours ms | ratio | goal |")
    print("|---|---|---|---|---|")
    for label, n, reps, goal in (("one delta", 1, few, 1.3), ("1,000 deltas", 1000, many, 1.0)):
        r, a, b = await ratio(lines, plain(one), ours, one, n, reps)
        print(
            f"| openai-chat, {label} | {a * 1e3:.3f} | {b * 1e3:.3f} | {r:.2f}x | {goal}x |",
            flush=True,
        )
    thousand = await cpu(ours.turn, 1000, one, many)
    ten = await cpu(ours.turn, 10_000, one, 3)
    print(
        f"| openai-chat, 10,000 of 1,000 deltas | {thousand * 1e3:.2f} | {ten * 1e3:.2f} | {ten / thousand:.2f}x | 10.5x |",
        flush=True,
    )
    short, long = history(1), history(1001)
    _, base_s, long_s = await ratio(ours, short, ours, long, 1, few)
    start = time.process_time()
    for _ in range(20):
        ours.client.encode(StreamRequest(long), RequestOptions(), stream=True)
    encode = (time.process_time() - start) / 20
    print(
        f"| history, us per message per turn (encoding alone / whole turn) | | {encode * 1e3:.3f} us / {(long_s - base_s) * 1e3:.3f} us | | 0.5 us |",
        flush=True,
    )
    await lines.aclose()
    await ours.aclose()
    for api in list(FORMATS)[1:]:
        try:
            ours = Ours(base, api)
        except ImportError:
            continue
        lines = Lines(base, FORMATS[api][3])
        r, a, b = await ratio(lines, plain(one), ours, one, 1000, many)
        print(
            f"| {api}, 1,000 deltas | {a * 1e3:.3f} | {b * 1e3:.3f} | {r:.2f}x | 1.2x |", flush=True
        )
        await lines.aclose()
        await ours.aclose()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("server.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        base = f"http://127.0.0.1:{server.stdout.readline().strip()}"
        asyncio.run(measure(base, given.quick))
    finally:
        server.stdin.close()
        server.wait(10)


if __name__ == "__main__":
    main()
