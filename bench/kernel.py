"""A real kernel: from the interrupt to idle, and a soak of some hundred cells, a fifth of them faulty."""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Iterator

from bench.kit import Row, plain_row, timed_row
from tests.notebook.kernel_driver import Kernel

SETUP = """
%load_ext notebook_agent
%config AgentMagics.store = "memory"
from notebook_agent.providers.scripted import ScriptedModel, Reply
slow = ScriptedModel([Reply(text="word " * 3000)], delay_s=0.01)
_ = %agent model @slow
"""

# The soak: each cell is an execute request of its own. Of ten cells two meet faults: one that a
# retry heals, one cut in the middle and rescued.
SOAK_SETUP = """
%load_ext notebook_agent
%config AgentMagics.store = "memory"
import asyncio, gc, threading, os
from notebook_agent.core.retry import RetryPolicy
from notebook_agent.providers.scripted import ScriptedModel, Reply
def turning(request):
    return Reply(text=f"Reply {request.messages[-1].text_content()}. " + "word " * 40)
words = []
for n in range(4000):
    words += ["503", "ok"] if n % 10 == 3 else ["drop@7", "ok"] if n % 10 == 7 else ["ok"]
m = ScriptedModel(turning, script=",".join(words))
_ = %agent model @m
def at():
    gc.collect()
    comms = len(get_ipython().kernel.comm_manager.comms)
    with open("/proc/self/statm") as f:
        memory = int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024
    tasks = len(asyncio.all_tasks(get_ipython().kernel.io_loop.asyncio_loop))
    print("AT", comms, threading.active_count(), tasks, memory)
"""
MARKS = 10
ALLOWED_KB_A_CELL = 60.0  # a cell's history, its records, its line in In and Out


def soak_row(cells: int) -> Row:
    """Many ``%%agent`` cells in one kernel: what is left behind, and what memory does."""
    with tempfile.TemporaryDirectory() as home:
        kernel = Kernel({"NOTEBOOK_AGENT_DISPLAY": "panel", "IPYTHONDIR": home})
        wrong, marks, began = 0, [], time.perf_counter()
        try:
            done = kernel.run(SOAK_SETUP)
            assert done.status == "ok", done.everything[:500]
            for n in range(1, cells + 1):
                cell = kernel.run(f"%%agent\n{n}")
                wrong += cell.status != "ok" or f"Reply {n}." not in cell.everything
                if n % max(1, cells // MARKS) == 0:
                    said = kernel.run("at()").stdout.split("AT")[1].split()
                    marks.append([int(one) for one in said])
        finally:
            kernel.close()
    half, last = marks[len(marks) // 2 - 1], marks[-1]
    each = (last[3] - half[3]) / (cells - cells // 2)
    grown = [name for name, a, b in zip(("comms", "threads", "tasks"), half, last, strict=False) if b > a]  # fmt: skip
    return plain_row(
        4, f"{cells} cells in one kernel, a fifth with faults: what is left behind",
        f"{wrong} wrong replies; comms {half[0]} and {last[0]}, threads {half[1]} and {last[1]}, "
        f"tasks {half[2]} and {last[2]}, memory {half[3] / 1024:.1f} and {last[3] / 1024:.1f} MB "
        f"at half and at the end, {each:.1f} kB a cell; {time.perf_counter() - began:.0f} s",
        f"all replies, nothing grows, <= {ALLOWED_KB_A_CELL:g} kB a cell",
        not wrong and not grown and each <= ALLOWED_KB_A_CELL,
    )  # fmt: skip


def to_idle(kernel: Kernel, code: str, wait: float = 0.8) -> float:
    """Seconds from the interrupt of a cell until the kernel says it is idle."""
    pressed: list[float] = []

    def press() -> None:
        time.sleep(wait)
        pressed.append(kernel.interrupt())

    thread = threading.Thread(target=press)
    sent = kernel.send(code)
    thread.start()
    [cell] = kernel.collect(sent)
    thread.join()
    assert cell.status == "error", cell.everything[:300]
    return cell.idle_at - pressed[0]


def rows(quick: bool) -> Iterator[Row]:
    """The rows of this bench."""
    times = 3 if quick else 7
    with tempfile.TemporaryDirectory() as home:
        kernel = Kernel({"NOTEBOOK_AGENT_DISPLAY": "panel", "IPYTHONDIR": home})
        try:
            done = kernel.run(SETUP)
            assert done.status == "ok", done.everything[:500]
            kernel.run("import time")
            to_idle(kernel, "%%agent\ntell me")
            plain = statistics.median(to_idle(kernel, "time.sleep(30)") for _ in range(times))
            yard = ("an interrupted sleep", plain)
            for part, name, code in (
                (2, "%%agent", "%%agent\ntell me"),
                (2, "a synchronous run", "get_ipython().run_cell_magic('agent', '', 'tell me')"),
            ):
                taken = [to_idle(kernel, code) for _ in range(times)]
                yield timed_row(
                    part, f"interrupt of {name} to idle kernel", statistics.median(taken), "s", 0.25,
                    yard=yard, wall=True, note=f"worst {max(taken):.2f} s",
                )  # fmt: skip
        finally:
            kernel.close()
    yield soak_row(60 if quick else 400)
