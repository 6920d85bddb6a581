"""A real kernel: from the interrupt to idle, a cell's own cost, the panel's creation."""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Iterator

from bench.kit import Row, timed_row
from tests.notebook.kernel_driver import Kernel

SETUP = """
%load_ext notebook_agent
%config AgentMagics.store = "memory"
from notebook_agent.providers.scripted import ScriptedModel, Reply
slow = ScriptedModel([Reply(text="word " * 3000)], delay_s=0.01)
_ = %agent model @slow
"""


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
