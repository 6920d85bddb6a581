"""What tuning costs: a sweep's cell with its journal, opening a journal, replaying a session
under twenty policies, a chart; and the constants of docs/scaling.md.

Run:  python -m bench tuning          the goals
      python -m bench.tuning          the constants
"""

from __future__ import annotations

import json
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.kit import Row, cpu, plain_row, timed_row
from notebook_agent.core.compaction import CompactionPolicy
from notebook_agent.core.messages import Message, Role, ToolCallPart, ToolResultPart
from notebook_agent.tuning import charts
from notebook_agent.tuning.cells import Cell, grid
from notebook_agent.tuning.compaction_lab import CompactionLab
from notebook_agent.tuning.executors import Limit
from notebook_agent.tuning.journal import Answer, Begun, Journal
from notebook_agent.tuning.sweep import Sweep

PART = 5
CELLS = 10_000


async def answer(cell: Cell) -> dict[str, Any]:
    return {"reply": f"answer {cell.inputs['n']}", "input_tokens": 12, "output_tokens": 5}


def sweep(folder: Path, count: list[int]) -> None:
    count[0] += 1
    inputs = [{"n": n, "text": f"question number {n}"} for n in range(CELLS)]
    path = folder / f"sweep{count[0]}.db"
    cells = grid(["Answer: {{text}}"], [{"model": "scripted:x"}], inputs)
    with Sweep(answer, cells, journal=path, limit=Limit(concurrency=64)) as one:
        one.run()
        assert one.progress.done == CELLS


def journal(folder: Path, count: int) -> Path:
    path = folder / "big.db"
    spec = {"prompt": "p" * 200, "config": {}, "inputs": {}, "seed": None, "repeat": 0}
    with Journal(path) as one:
        for start in range(0, count, 10_000):
            keys = [n.to_bytes(16, "big") for n in range(start, min(start + 10_000, count))]
            one.begin([Begun(key, start + at, spec) for at, key in enumerate(keys)])
            one.finish([Answer(key, json.dumps({"reply": "x" * 300})) for key in keys])
    return path


def opened(path: Path) -> None:
    with Journal(path) as one:
        assert len(one.known()) == 100_000


def conversation(turns: int) -> list[Message]:
    out: list[Message] = []
    for n in range(turns // 2):
        call = ToolCallPart(f"c{n}", "look", {"box": n, "file": f"src/part_{n % 50}.py"})
        out += [
            Message.user(
                f"What is in box {n}? It is for Marija Novak, budget {n * 3 + 10} EUR. "
                "We decided to keep the blue ones. " + "Please be exact. " * 6
            ),
            Message(Role.ASSISTANT, (call,)),
            Message.tool_results(
                (ToolResultPart(f"c{n}", "look", f"{n * 3} apples in part_{n}. " + "row, " * 60),)
            ),
            Message.assistant(f"Box {n} holds {n * 3} apples. " + "The rest is as agreed. " * 10),
        ]
    return out


def policies() -> dict[str, CompactionPolicy]:
    found = {}
    for window in (8_000, 16_000, 32_000, 64_000, 128_000):
        for strategy in ("extractive", "truncate"):
            for target in (50, 70):
                name = f"{strategy} {window} {target}"
                found[name] = CompactionPolicy(window=window, strategy=strategy, target=target)
    return found


def lab() -> None:
    report = CompactionLab(conversation(1_000), policies()).run()
    assert len(report.summary()) == 20
    report.facts()


def chart_bundle() -> dict[str, Any]:
    turns = [
        {"turn": n, "system": 400, "tools": 900, "transients": 50, "history": n % 900 * 100,
         "compacted": n % 900 == 0, "window": 128_000}
        for n in range(10_000)
    ]  # fmt: skip
    return charts.anatomy(turns)._repr_mimebundle_()


def rows(quick: bool) -> Iterator[Row]:
    """The rows of this bench."""
    times = 3 if quick else 5
    with tempfile.TemporaryDirectory() as name:
        folder, count = Path(name), [0]
        each = cpu(lambda: sweep(folder, count), times=times) / CELLS
        yield timed_row(PART, "sweep, a cell with its journal on disk", each, "ms", 0.5)
        path = journal(folder, 100_000)
        took = cpu(lambda: opened(path), times=times)
        yield timed_row(PART, "opening a journal of 100,000 cells", took, "s", 1.0)
    took = cpu(lab, times=1 if quick else 3)
    yield timed_row(PART, "1,000 turns under 20 policies, with facts", took, "s", 10.0)
    took = cpu(chart_bundle, times=times)
    yield timed_row(PART, "a chart of 10,000 turns", took, "s", 1.0)
    size = len(json.dumps(chart_bundle())) / 1e6
    yield plain_row(
        PART, "size of that chart in the notebook", f"{size:.2f} MB", "<= 1 MB", size <= 1
    )


def constants() -> None:
    """What docs/scaling.md counts with."""
    with tempfile.TemporaryDirectory() as name:
        folder, count = Path(name), [0]
        began = time.perf_counter()
        sweep(folder, count)
        wall = (time.perf_counter() - began) / CELLS
        size = (folder / "sweep1.db").stat().st_size / CELLS
        print(f"sweep: {wall * 1e3:.3f} ms wall a cell; journal {size:,.0f} bytes a cell")
        with Journal(folder / "single.db") as one:
            spec = {"prompt": "p", "config": {}, "inputs": {}, "seed": None, "repeat": 0}
            began = time.perf_counter()
            for n in range(300):
                key = n.to_bytes(16, "big")
                one.begin([Begun(key, n, spec)])
                one.finish([Answer(key, json.dumps({"reply": "x" * 300}))])
            took = (time.perf_counter() - began) / 300
        print(f"journal, one cell at a time: {took * 1e3:.2f} ms wall (two synced transactions)")
        path = journal(folder, 100_000)
        print(
            f"journal of 100,000 cells with 300-character replies: {path.stat().st_size / 1e6:.0f} MB"
        )
    tracemalloc.start()
    inputs = [{"n": n, "text": f"question number {n}"} for n in range(20_000)]
    before = tracemalloc.get_traced_memory()[0]
    one = Sweep(answer, grid(["p"], [{"model": "m"}], inputs))
    held = (tracemalloc.get_traced_memory()[0] - before) / len(one.cells)
    print(f"memory of a cell in the driver: {held:,.0f} bytes beside its inputs")
    one.run()
    before = tracemalloc.get_traced_memory()[0]
    frame = one.frame()
    held = (tracemalloc.get_traced_memory()[0] - before) / len(frame)
    print(f"memory of a row of the frame: {held:,.0f} bytes")
    tracemalloc.stop()
    began = time.perf_counter()
    one.frame()
    print(f"frame: {(time.perf_counter() - began) / len(one.cells) * 1e6:.0f} us wall a row")


if __name__ == "__main__":
    constants()
