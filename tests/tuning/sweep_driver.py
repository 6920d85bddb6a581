"""A sweep in a process of its own, to be killed: ``python sweep_driver.py JOURNAL LOG COUNT``.

Every call of the work writes its number to LOG before it answers, with O_APPEND: one write each.
"""

from __future__ import annotations

import asyncio
import os
import sys

from notebook_agent.tuning.cells import grid
from notebook_agent.tuning.executors import Limit
from notebook_agent.tuning.sweep import Sweep


def main() -> None:
    journal, log, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def work(cell):
        os.write(out, f"{cell.inputs['n']}\n".encode())
        await asyncio.sleep(0.002)
        return cell.inputs["n"] * 2

    cells = grid(inputs=[{"n": n} for n in range(count)])
    with Sweep(work, cells, journal=journal, code="1", limit=Limit(concurrency=4)) as sweep:
        sweep.run()
        p = sweep.progress
        print(f"done {p.done} resent {p.resent}", flush=True)


if __name__ == "__main__":
    main()
