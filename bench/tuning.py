"""What tuning costs: CPU seconds, median of three, beside a yardstick of the same run.

    python -m bench.tuning

A sweep's cost for each cell with its journal on disk, opening a journal of 100,000 cells, a
1,000-turn session under 20 policies, a chart of 10,000 turns.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from notebook_agent.core.compaction import CompactionPolicy
from notebook_agent.core.messages import Message, Role, ToolCallPart, ToolResultPart
from notebook_agent.tuning.cells import Cell, grid
from notebook_agent.tuning.compaction_lab import CompactionLab
from notebook_agent.tuning.executors import Limit
from notebook_agent.tuning.journal import Answer, Begun, Journal
from notebook_agent.tuning.sweep import Sweep

CELLS = 10_000
GOALS = {"sweep": 0.5, "open": 1.0, "lab": 10.0, "chart": 1.0, "chart size": 1.0}


def measured(work: Callable[[], Any], times: int = 3) -> tuple[float, float]:
    """Median CPU and wall seconds; the first call warms up and is not counted."""
    work()
    cpu, wall = [], []
    for _ in range(times):
        began, at = time.process_time(), time.perf_counter()
        work()
        cpu.append(time.process_time() - began)
        wall.append(time.perf_counter() - at)
    return statistics.median(cpu), statistics.median(wall)


def yardstick() -> float:
    """CPU seconds to write and read 20,000 small JSON objects."""
    row = {"reply": "a short reply", "input_tokens": 12, "output_tokens": 5, "seconds": 0.25}
    return measured(lambda: [json.loads(json.dumps(row)) for _ in range(20_000)])[0]


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


def main() -> None:
    yard = yardstick()
    print(f"yardstick: 20,000 JSON objects written and read, {yard:.3f} CPU s")
    rows: list[tuple[str, float, float, str]] = []
    with tempfile.TemporaryDirectory() as name:
        folder, count = Path(name), [0]
        cpu, wall = measured(lambda: sweep(folder, count))
        rows.append(("sweep", cpu / CELLS * 1e3, wall / CELLS * 1e3, "ms a cell, with journal"))
        path = journal(folder, 100_000)
        cpu, wall = measured(lambda: opened(path))
        rows.append(("open", cpu, wall, "s, 100,000 cells"))
    cpu, wall = measured(lab, 1)
    rows.append(("lab", cpu, wall, "s, 1,000 turns under 20 policies, with facts"))
    rows += charted()
    for what, cpu, wall, unit in rows:
        goal = GOALS[what]
        word = "met" if cpu <= goal else "MISSED"
        print(f"{what:<11} {cpu:8.3f} cpu {wall:8.3f} wall  {unit}  goal {goal:g}: {word}")


def charted() -> list[tuple[str, float, float, str]]:
    from notebook_agent.tuning import charts

    turns = [
        {"turn": n, "system": 400, "tools": 900, "transients": 50, "history": n % 900 * 100,
         "compacted": n % 900 == 0, "window": 128_000}
        for n in range(10_000)
    ]  # fmt: skip
    sizes = []

    def draw() -> None:
        made = charts.anatomy(turns)._repr_mimebundle_()
        sizes.append(len(json.dumps(made)))

    cpu, wall = measured(draw)
    size = sizes[-1] / 1e6
    return [("chart", cpu, wall, "s, 10,000 turns"), ("chart size", size, size, "MB")]


if __name__ == "__main__":
    main()
