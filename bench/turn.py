"""What a whole run through AgentRuntime costs, and that its cost does not grow with its past.

    python bench/turn.py [--quick]

CPU time, medians. First table: a turn (``LlmTurn.do_turn``: request, ladder, lanes, breaker,
observers) and a whole run of one turn (policy, context, seven records, memory store), over our
client, against reading the same stream with plain httpx lines, taken in one process against one
server on loopback. Second table: a run on the scripted model after so many past runs.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from wire import FORMATS, Lines, history, plain, ratio

from notebook_agent.core.compaction import CompactionPolicy
from notebook_agent.core.context import estimate_context
from notebook_agent.core.messages import Message
from notebook_agent.core.request import RequestOptions
from notebook_agent.core.response import Usage
from notebook_agent.core.session import Session
from notebook_agent.engine.runtime import AgentRuntime
from notebook_agent.engine.store.memory import MemoryStore
from notebook_agent.engine.store.sqlite import SqliteStore
from notebook_agent.engine.turn_values import TurnContext
from notebook_agent.providers.openai_chat import OpenAIChat
from notebook_agent.providers.scripted import Reply, ScriptedModel


class Runs:
    """One run each time, on a session with a history of ``k`` messages that is not kept."""

    def __init__(self, base: str) -> None:
        self.client = OpenAIChat("bench-1", base_url=base + "/v1", key="test-key-0123456789")
        self.runtime = AgentRuntime(self.client)

    async def turn(self, n: int, messages: tuple[Message, ...]) -> int:
        options = RequestOptions(model=f"bench-{n}")
        await self.runtime.arun(messages[-1].text_content(), options=options, fresh=True)
        return n


class Turns(Runs):
    """One LLM turn each time, without the loop around it."""

    async def turn(self, n: int, messages: tuple[Message, ...]) -> int:
        llm = self.runtime.llm
        options = RequestOptions(model=f"bench-{n}")
        await llm.do_turn(
            0, (), TurnContext(conversation=messages, route=llm.route(0), options=options)
        )
        return n


async def against_httpx(base: str, quick: bool) -> None:
    few, many = (10, 3) if quick else (60, 9)
    lines, one = Lines(base, FORMATS["openai-chat"][3]), history(1)
    print("| through the engine | httpx lines ms | ours ms | ratio | goal |")
    print("|---|---|---|---|---|")
    for name, kind in (("turn", Turns), ("whole run", Runs)):
        ours = kind(base)
        for label, n, reps, goal in (
            ("one delta", 1, few, "1.3x"),
            ("1,000 deltas", 1000, many, "1.0x"),
        ):
            r, a, b = await ratio(lines, plain(one), ours, one, n, reps)
            goal = goal if kind is Turns else ""
            print(
                f"| {name}, {label} | {a * 1e3:.3f} | {b * 1e3:.3f} | {r:.2f}x | {goal} |",
                flush=True,
            )
        await ours.client.aclose()
    await lines.aclose()


async def growth(quick: bool) -> None:
    print("\n| past runs | memory ms | SQLite ms | estimate us | record + snapshot bytes |")
    print("|---|---|---|---|---|")
    for past in (10, 100, 1_000) if quick else (10, 100, 1_000, 10_000):
        row = [f"{past:,}"]
        told = 0.0
        size = 0
        with tempfile.TemporaryDirectory() as folder:
            for store in (MemoryStore(), SqliteStore(Path(folder) / "bench.db")):
                old: list[Message] = []
                for n in range(past):
                    old += [Message.user("q", id=f"q{n}"), Message.assistant("a", id=f"a{n}")]
                model = ScriptedModel(Reply("ok", usage=Usage(1, 1)))
                runtime = AgentRuntime(
                    model,
                    store=store,
                    session=Session(id="bench", history=old),
                    compaction=CompactionPolicy(window=0),
                )
                for _ in range(3):
                    await runtime.arun("x")
                times = []
                for _ in range(15):
                    start = time.process_time()
                    result = await runtime.arun("x")
                    times.append(time.process_time() - start)
                row.append(f"{statistics.median(times) * 1e3:.2f}")
                size = sum(len(str(r.to_json())) for r in store.records(result.run.id))
                pipeline = runtime.pipeline()
                talk, counter = runtime.state.conversation, runtime.counter
                start = time.process_time()
                for _ in range(200):
                    talk.tokens(counter)
                    pipeline.overhead.parts(counter, None, ())
                    estimate_context(counter, ())
                told = (time.process_time() - start) / 200
                store.close()
        print(f"| {' | '.join(row)} | {told * 1e6:.1f} | {size:,} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    server = subprocess.Popen(
        [sys.executable, os.fspath(Path(__file__).with_name("server.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        base = f"http://127.0.0.1:{server.stdout.readline().strip()}"
        asyncio.run(against_httpx(base, quick))
    finally:
        server.stdin.close()
        server.wait(10)
    asyncio.run(growth(quick))


if __name__ == "__main__":
    main()
