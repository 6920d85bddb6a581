"""Soak: many turns with random faults; nothing may leak and every reply must be exact.

    python -m bench.soak [--turns 10000] [--share 0.2] [--seed 1] [--at-once 8]

Runs the LLM turn over real sockets against the tests' fault server on 127.0.0.1, in one process.
Exits non-zero when a reply is not exact, or when a task, a thread, a file descriptor or memory
is left behind.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import random
import resource
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bench.kit import Row, plain_row
from notebook_agent.core.request import TurnMode
from tests.engine.test_fault_matrix import Reader, check_whole, client_for, positions
from tests.faultserver import FAULTS, FaultServer

KINDS = [k for k in FAULTS if k != "split"]
# Memory may grow by this much after the warm-up: allocator noise, not a leak per turn.
ALLOWED_KB = 4096


def rss_kb() -> int:
    """Resident memory now, in KiB."""
    try:
        return (
            int(Path("/proc/self/statm").read_text().split()[1])
            * os.sysconf("SC_PAGE_SIZE")
            // 1024
        )
    except OSError:  # the peak, in bytes on macOS; it never falls, which only makes it stricter
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak // 1024 if sys.platform == "darwin" else peak


def descriptors() -> int:
    """Open file descriptors, -1 where that cannot be told."""
    try:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())
    except OSError:
        return -1


def names(turns: int, share: float, rng: random.Random) -> list[str]:
    """One model name a turn: healthy, or one fault at a random byte."""
    out = []
    for n in range(turns):
        if rng.random() < share:
            kind = rng.choice(KINDS)
            out.append(f"{kind}@{rng.choice(positions(kind))}#{n}")
        else:
            out.append("healthy")
    return out


async def soak(turns: int, share: float, seed: int, at_once: int) -> tuple[int, str]:
    """Run it and print what it found.

    Returns:
        The number of things that are wrong, and a line of counts.
    """
    rng = random.Random(seed)
    wrong: list[str] = []
    seen: Counter[str] = Counter()
    marks: list[tuple[int, int, int, int]] = []
    start, cpu = time.monotonic(), time.process_time()
    async with FaultServer(stall_s=0.5) as server:
        client = client_for(server)
        reader = Reader(client)

        async def one(name: str) -> None:
            served, view, error = await reader.turn(name)
            kind = name.partition("@")[0]
            seen["turns"] += 1
            seen["faults"] += kind != "healthy"
            if error is not None:
                wrong.append(f"{name}: {error}")
                return
            try:
                late = kind in ("truncate", "close")
                check_whole(served, view, TurnMode.STREAMING, cut_after_finish=late)
            except AssertionError as bad:
                wrong.append(f"{name}: not exact: {bad}")
            seen["retried"] += served.attempts > 1
            seen["rescued"] += served.rescued

        queue = names(turns, share, rng)
        for block in range(0, turns, turns // 10 or 1):
            todo = queue[block : block + (turns // 10 or 1)]
            todo.reverse()

            async def worker(todo: list[str] = todo) -> None:
                while todo:
                    await one(todo.pop())

            await asyncio.gather(*(worker() for _ in range(at_once)))
            server.requests.clear()
            gc.collect()
            others = asyncio.all_tasks() - {asyncio.current_task()} - server._tasks
            marks.append((len(others), threading.active_count(), descriptors(), rss_kb()))
            print(f"{seen['turns']:7} turns  tasks {len(others)}  threads {marks[-1][1]}  "
                  f"descriptors {marks[-1][2]}  memory {marks[-1][3]:,} KiB", flush=True)  # fmt: skip
        await client.aclose()
        await asyncio.sleep(0.6)
        left = server.connections
    took, used = time.monotonic() - start, time.process_time() - cpu
    wrong += [] if not left else [f"{left} connections are still open"]
    wrong += [f"{m[0]} tasks outlived their turns" for m in marks if m[0]]
    if marks[-1][1] > marks[0][1]:
        wrong.append(f"threads grew from {marks[0][1]} to {marks[-1][1]}")
    if marks[-1][2] > marks[0][2] + 2 * at_once:
        wrong.append(f"descriptors grew from {marks[0][2]} to {marks[-1][2]}")
    half = marks[len(marks) // 2][3]
    if marks[-1][3] > half + ALLOWED_KB:
        wrong.append(f"memory grew from {half:,} to {marks[-1][3]:,} KiB in the second half")
    line = (
        f"{seen['turns']:,} turns, {seen['faults']:,} faults, {seen['retried']:,} retried, "
        f"{seen['rescued']} rescued, {len(wrong)} wrong; memory {half / 1024:.1f} MiB at half, "
        f"{marks[-1][3] / 1024:.1f} MiB at the end; {took:.0f} s, CPU {used:.1f} s"
    )
    print(line)
    for one_wrong in wrong[:20]:
        print("WRONG", one_wrong)
    return len(wrong), line


def rows(quick: bool) -> Iterator[Row]:
    """The row of this bench."""
    with contextlib.redirect_stdout(sys.stderr):
        bad, line = asyncio.run(soak(500 if quick else 10_000, 0.2, 1, 8))
    yield plain_row(
        2, "soak: tasks, threads, sockets, memory, exact replies", line,
        "nothing left, memory flat, every reply exact", bad == 0,
    )  # fmt: skip


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=10_000)
    parser.add_argument("--share", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=8)
    given = parser.parse_args()
    bad, _ = asyncio.run(soak(given.turns, given.share, given.seed, given.at_once))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
