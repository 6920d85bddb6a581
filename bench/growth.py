"""The cost of a run does not grow with the number of past turns.

A run of one turn on the scripted model, by a runtime whose session has so many turns behind it;
CPU time, beside the same run after ten. Every message of the past is in the run's request; what
the request's own bytes may cost is part 1's 0.5 µs a message, so a run may grow by that and no
more. (The scripted model sends nothing: encoding is in the bench "wire".)
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.kit import Row, amount, plain_row
from notebook_agent.core.compaction import CompactionPolicy
from notebook_agent.core.messages import Message
from notebook_agent.core.response import Usage
from notebook_agent.core.session import Session
from notebook_agent.engine.runtime import AgentRuntime
from notebook_agent.engine.store.base import Store
from notebook_agent.engine.store.memory import MemoryStore
from notebook_agent.engine.store.sqlite import SqliteStore
from notebook_agent.engine.tokenizer import default_counter
from notebook_agent.providers.scripted import Reply, ScriptedModel

PAST = (10, 100, 1_000, 10_000)
PER_MESSAGE_US = 0.5


def runtime_with(past: int, store: Store) -> AgentRuntime:
    """A runtime with ``past`` turns behind it."""
    old: list[Message] = []
    for n in range(past):
        old += [Message.user("q", id=f"q{n}"), Message.assistant("a", id=f"a{n}")]
    return AgentRuntime(
        ScriptedModel(Reply("ok", usage=Usage(1, 1))),
        store=store,
        session=Session(id="bench", history=old),
        compaction=CompactionPolicy(window=0),
        counter=default_counter(kind="estimate"),
    )


async def run_costs(runtimes: Sequence[AgentRuntime], times: int) -> list[float]:
    """CPU seconds of a run of each, medians; in turn, so that all meet the same machine."""
    taken: list[list[float]] = [[] for _ in runtimes]
    for n in range(times + 3):
        for at, runtime in enumerate(runtimes):
            began = time.process_time()
            await runtime.arun("x")
            if n >= 3:
                taken[at].append(time.process_time() - began)
    return [statistics.median(one) for one in taken]


def rows(quick: bool) -> Iterator[Row]:
    """The rows of this bench."""
    sizes, times = (PAST[:3], 15) if quick else (PAST, 45)
    for kind in ("memory", "SQLite"):
        with tempfile.TemporaryDirectory() as folder:
            stores = [
                MemoryStore() if kind == "memory" else SqliteStore(Path(folder) / f"{past}.db")
                for past in sizes
            ]
            runtimes = [runtime_with(p, s) for p, s in zip(sizes, stores, strict=True)]
            costs = asyncio.run(run_costs(runtimes, times))
            for store in stores:
                store.close()
        most = 2 * (sizes[-1] - sizes[0])  # messages
        slope = (costs[-1] - costs[0]) / most * 1e6
        for past, cost in list(zip(sizes, costs, strict=True))[1:]:
            last = past == sizes[-1]
            shown = amount(cost * 1e3, "ms")
            yield plain_row(
                3, f"run on {kind} after {past:,} turns",
                f"{shown}, {max(slope, 0):.3f} µs more per past message" if last else shown,
                f"<= {PER_MESSAGE_US} µs per past message" if last else "",
                slope <= PER_MESSAGE_US if last else None,
                yardstick=f"after {sizes[0]} turns {amount(costs[0] * 1e3, 'ms')}",
                ratio=cost / costs[0],
            )  # fmt: skip
