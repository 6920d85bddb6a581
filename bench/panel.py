"""The panel's kernel side, beside three other ways to show text as it streams.

All of it in one real kernel: 2,000 deltas at 400 a second, each way after the other. Ours is the
real road: the deltas are put by the engine's thread through the observers' hub, a run's driver wakes
on the kernel's loop, drains, draws and sends. The other three are called by the kernel's thread.

Two times, both for all four ways:

- Kernel time a delta: wall time inside the calls that take a delta. That is what "4 µs a delta"
  and "1,109 µs with Markdown display updates" mean where the goal comes from, and like there what
  a flusher does later is not in it. The machine's state decides the microseconds (a sleep of
  2.5 ms lies between two calls, and caches are cold after it), so the form that those 4 µs were
  measured on, a lock and a list, is timed beside it.
- All CPU time of the kernel's thread, from the first delta to the frozen end, less what the same
  thread uses while it sleeps as long. Waking the loop, drawing, rendering, JSON, signing and
  sending are all in it. There is no goal for it: half of ours is Jupyter's own, ten wakings and
  ten messages a second, and costs the same however much a message carries.

Messages and bytes are what went out on iopub, the output that is saved with the notebook told
apart: the other three ways are their own saved output.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator

from bench.kit import ROOT, Row, plain_row, timed_row
from tests.notebook.kernel_driver import Kernel

DELTAS, RATE = 2_000, 400
STATIC = ROOT / "notebook_agent/notebook/static"

CODE = """
import asyncio, json, statistics, threading, time, warnings
warnings.simplefilter("ignore")
import ipywidgets
from IPython.display import Markdown, display
from jupyter_client.session import Session
from notebook_agent.core.agent_events import AttemptStarted, ModelStarted
from notebook_agent.core.result import RunResult
from notebook_agent.core.session import Run, RunStatus
from notebook_agent.engine.cancel import CancelSignal
from notebook_agent.engine.observers import ObserverHub, TextDelta
from notebook_agent.notebook.drive import RunDriver
from notebook_agent.notebook.kernel_loop import ThreadLoop
from notebook_agent.notebook.live import LiveObserver
from notebook_agent.notebook.panel import AgentPanel, get_panel
from notebook_agent.notebook.road import KernelRoad
from notebook_agent.notebook.sinks import make_sink
from notebook_agent.notebook.view import LiveView

N, RATE = {deltas}, {rate}
SENT = []
real = Session.send
def send(self, stream, msg, *args, **more):
    out = real(self, stream, msg, *args, **more)
    if isinstance(out, dict):
        SENT.append(out)
    return out
Session.send = send
def tally():
    kept = [m for m in SENT if m["header"]["msg_type"] != "status"]
    size = lambda m: len(json.dumps(m["content"], default=str, ensure_ascii=False).encode())
    saved = [m for m in kept if "text/html" in m["content"].get("data", ())]
    return len(kept), sum(map(size, kept)), sum(map(size, saved))
TEXT = [f"tok{{i}} " if i % 25 else f"tok{{i}}\\n\\n" for i in range(N)]

class Puts:
    def __init__(self, put):
        self.put, self.taken, self.start = put, [0.0] * 5, time.perf_counter()
    def early(self, at):
        return self.start + at / RATE - time.perf_counter()
    def __call__(self, at):
        before = time.perf_counter()
        self.put(TEXT[at])
        self.taken[at * 5 // N] += time.perf_counter() - before
    def each(self):
        return statistics.median(self.taken) * 5 / N * 1e6

async def slept(seconds):
    before = time.thread_time()
    await asyncio.sleep(seconds)
    return time.thread_time() - before

async def by_kernel(put):
    puts, cpu = Puts(put), time.thread_time()
    for at in range(N):
        if (early := puts.early(at)) > 0:
            time.sleep(early)
        puts(at)
    cpu, wall = time.thread_time() - cpu, time.perf_counter() - puts.start
    count, size, saved = tally()
    return puts.each(), count / wall, size / 1e6, (cpu - await slept(wall)) / N * 1e6, saved / 1e6

async def by_engine(number):
    engine, hub = ThreadLoop(), ObserverHub()
    observer = LiveObserver(model="scripted:bench", prompt="x")
    hub.add(observer)
    marks = dict()
    class Marked(LiveView):
        def close(self, outcome):
            marks["count"] = tally()[0]
            super().close(outcome)
    async def start():
        event = lambda kind, **more: hub.fire("on_event", kind(timestamp=1.0, **more))
        event(ModelStarted, run_id="r", iteration=0, provider="scripted", model="bench")
        event(AttemptStarted, run_id="r", turn=0, attempt=1, max_attempts=4, model="scripted:bench")
        await asyncio.sleep(0.3)
        get_panel()._heard(None, {{"t": "hello", "nonce": "n", "front": "lab"}}, [])
        await asyncio.sleep(0.3)
        SENT.clear()
        puts = marks["puts"] = Puts(lambda text: hub.fire("on_text_delta", TextDelta(0, text)))
        for at in range(number):
            if (early := puts.early(at)) > 0:
                await asyncio.sleep(early)
            puts(at)
        marks["wall"] = time.perf_counter() - puts.start
        return RunResult(text="".join(TEXT), run=Run(id="r", input="x", status=RunStatus.COMPLETED))
    view = Marked(observer, make_sink("panel", background=True))
    driver = RunDriver(start, engine=engine, cancel=CancelSignal(), view=view, road=KernelRoad())
    cpu, began = time.thread_time(), time.perf_counter()
    await driver.awaited()
    cpu, whole = time.thread_time() - cpu, time.perf_counter() - began
    engine.close()
    _, size, saved = tally()
    cpu -= await slept(whole)
    return marks["puts"].each(), marks["count"] / marks["wall"], (size - saved) / 1e6, cpu / N * 1e6, saved / 1e6

async def measure(name):
    SENT.clear()
    if name == "panel":
        await by_engine(20)  # what a kernel loads at its first run
        SENT.clear()
        return await by_engine(N)
    acc = []
    if name == "markdown":
        handle = display(Markdown(""), display_id=True)
        return await by_kernel(lambda t: (acc.append(t), handle.update(Markdown("".join(acc)))))
    if name == "html":
        widget = ipywidgets.HTML(); display(widget)
        def put(t):
            acc.append(t); widget.value = "<pre>" + "".join(acc) + "</pre>"
        return await by_kernel(put)
    if name == "list":
        lock = threading.Lock()
        def put(t):
            with lock:
                acc.append(t)
        return await by_kernel(put)
    widget = ipywidgets.Output(); display(widget)
    return await by_kernel(widget.append_stdout)

def creation():
    before = time.process_time()
    AgentPanel("bench").view_bundle()
    return time.process_time() - before

first = creation()
made = statistics.median(creation() for _ in range(5))
before = time.process_time(); ipywidgets.HTML(); plain = time.process_time() - before
out = {{name: await measure(name) for name in ("list", "panel", "markdown", "html", "output")}}
print("BENCH " + json.dumps([first, made, plain, out]))
"""


def rows(quick: bool) -> Iterator[Row]:
    """The rows of this bench."""
    deltas = DELTAS // 4 if quick else DELTAS
    with tempfile.TemporaryDirectory() as home:
        kernel = Kernel({"IPYTHONDIR": home})
        try:
            sent = kernel.send(CODE.format(deltas=deltas, rate=RATE))
            [cell] = kernel.collect(sent, timeout=240)
        finally:
            kernel.close()
    lines = [line for line in cell.stdout.splitlines() if line.startswith("BENCH ")]
    if not lines:
        raise RuntimeError(cell.everything[-1500:])
    first, made, plain, out = json.loads(lines[0][6:])
    yard = ("ipywidgets.HTML", plain)
    yield timed_row(4, "panel creation", made, "ms", 50, yard=yard, note=f"the first {first * 1e3:.0f} ms")  # fmt: skip
    size = sum((STATIC / name).stat().st_size for name in ("panel.js", "panel.css")) / 1000
    yield plain_row(4, "JavaScript and CSS", f"{size:.1f} kB", "<= 40 kB", size <= 40)
    names = {"markdown": "Markdown display updates", "html": "ipywidgets.HTML", "output": "Output"}
    each, a_second, mega, whole, saved = out["panel"]
    what = f"{deltas:,} deltas at {RATE}/s"
    least = f"a lock and a list {out['list'][0]:.1f} µs"
    others = ", ".join([least, *(f"{names[n]} {out[n][0]:,.0f} µs" for n in names)])
    yield plain_row(
        4, f"{what}: kernel time a delta", f"{each:.2f} µs wall in the calls that take it", "<= 6 µs", each <= 6,
        yardstick=others, ratio=each / out["output"][0],
    )  # fmt: skip
    others = ", ".join(f"{names[n]} {out[n][3]:,.0f} µs" for n in names)
    yield plain_row(
        4, f"{what}: all CPU of the kernel's thread, with waking, drawing, rendering and sending",
        f"{whole:.1f} µs", "", None, yardstick=others, ratio=whole / out["output"][3],
    )  # fmt: skip
    others = ", ".join(f"{names[n]} {out[n][2]:,.2f}" for n in names)
    yield plain_row(
        4, f"{what}: bytes", f"{mega:.3f} MB, and {saved:.3f} MB of saved output", "<= 0.1 MB",
        mega <= 0.1,
        yardstick=others + " MB", ratio=mega / out["output"][2],
    )  # fmt: skip
    others = ", ".join(f"{names[n]} {out[n][1]:,.0f}" for n in names)
    yield plain_row(
        4, f"{what}: messages a second", f"{a_second:.1f}", "<= 30", a_second <= 30,
        yardstick=others, ratio=a_second / out["output"][1],
    )  # fmt: skip
