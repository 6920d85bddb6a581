"""Sixteen streams of 100 deltas a second in one process, beside plain httpx reading the same.

The engine works whole runs (policy, context, breaker, records); httpx reads lines and nothing
else. A ticker in the same loop measures how late the loop is, in two ways:

- By CPU time: what the loop's thread used between two ticks, which is how late the next one is at
  most on an idle core, whatever else the machine does. All sixteen runs begin in one instant and end in
  one, so the longest of these is sixteen beginnings in a row.
- By the clock. The goal is for an idle core: where a loop with nothing to do is late as well, there
  is none, and a figure above the goal is neither met nor missed. How much later ours is than that
  loop is told beside it.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator

import httpx

from bench.faults import engine
from bench.kit import Row, plain_row, ratio_row, server

STREAMS, RATE = 16, 100
TICK_S = 0.005
IDLE_MS = 2.0  # the 99th percentile of a loop with nothing to do on an idle core, at most


class Lag:
    """How late a timer of 5 ms is, while a block runs, and the CPU time between two of them."""

    def __init__(self) -> None:
        self.late: list[float] = []
        self.held: list[float] = []

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due, used = loop.time() + TICK_S, time.thread_time()
            await asyncio.sleep(TICK_S)
            self.late.append(loop.time() - due)
            self.held.append(time.thread_time() - used)

    async def __aenter__(self) -> Lag:
        self._task = asyncio.ensure_future(self._watch())
        return self

    async def __aexit__(self, *_exc) -> None:
        self._task.cancel()


def p99(values: list[float]) -> float:
    """The 99th percentile."""
    return statistics.quantiles(values, n=100)[98]


async def by_engine(runtimes, model: str) -> None:
    async def one(runtime) -> None:
        result = await runtime.arun("x", fresh=True)
        assert result.text.count("word") == int(model.rpartition("-")[2])

    await asyncio.gather(*(one(runtime) for runtime in runtimes))


async def by_httpx(client: httpx.AsyncClient, model: str) -> None:
    body = {"model": model, "messages": [{"role": "user", "content": "x"}], "stream": True}

    async def one() -> None:
        seen = 0
        async with client.stream("POST", "/v1/chat/completions", json=body) as response:
            async for _line in response.aiter_lines():
                seen += 1
        assert seen > int(model.rpartition("-")[2])

    await asyncio.gather(*(one() for _ in range(STREAMS)))


async def measured(work) -> tuple[float, float, float, float]:
    """CPU seconds; at the 99th percentile how late the loop is and how long held; longest held."""
    async with Lag() as lag:
        began = time.process_time()
        await work()
        used = time.process_time() - began
    return used, p99(lag.late), p99(lag.held), max(lag.held)


async def measure(base: str, quick: bool) -> list[Row]:
    seconds, times = (2, 1) if quick else (4, 3)
    model = f"pace{RATE}-{RATE * seconds}"
    limits = httpx.Limits(max_connections=STREAMS)
    plain = httpx.AsyncClient(base_url=base, limits=limits, timeout=30)
    runtimes = [engine(base, model) for _ in range(STREAMS)]
    await by_engine(runtimes, model)
    ours, theirs, idle = [], [], []
    for _ in range(times):
        theirs.append(await measured(lambda: by_httpx(plain, model)))
        ours.append(await measured(lambda: by_engine(runtimes, model)))
        idle.append(await measured(lambda: asyncio.sleep(1)))
    await plain.aclose()
    own = statistics.median(one[0] for one in ours)
    base_cpu = statistics.median(one[0] for one in theirs)
    late, held, longest = (
        [statistics.median(one[n] for one in part) * 1e3 for part in (ours, theirs, idle)]
        for n in (1, 2, 3)
    )
    idle_core = late[2] <= IDLE_MS
    what = f"{STREAMS} streams of {RATE} deltas/s for {seconds} s"
    return [
        ratio_row(2, f"{what}: CPU", own, base_cpu, 1.5, yard="plain httpx"),
        plain_row(
            2, f"{what}: the loop is late on an idle core (CPU time it is held), 99th percentile",
            f"{held[0]:.1f} ms, the longest {longest[0]:.1f} ms", "<= 10 ms", held[0] <= 10,
            ratio=held[0] / held[1],
            yardstick=f"plain httpx {held[1]:.1f} ms, the longest {longest[1]:.1f} ms",
        ),
        plain_row(
            2, f"{what}: the loop is late by the clock, 99th percentile",
            f"{late[0]:.1f} ms, {late[0] - late[2]:+.1f} ms beside nothing to do"
            + ("" if idle_core else "; this core is not idle"),
            "<= 10 ms on an idle core", True if late[0] <= 10 else False if idle_core else None,
            ratio=late[0] / late[1],
            yardstick=f"plain httpx {late[1]:.1f} ms, nothing to do {late[2]:.1f} ms",
        ),
    ]  # fmt: skip


def rows(quick: bool) -> Iterator[Row]:
    """The rows of this bench."""
    with server() as base:
        yield from asyncio.run(measure(base, quick))
