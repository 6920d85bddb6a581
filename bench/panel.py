"""The panel's kernel side, beside three other ways to show text as it streams.

All of it in one real kernel: 2,000 deltas at 400 a second, each way after the other. Kernel time
is CPU time inside the calls that take a delta; where deltas are gathered and drawn by a tick, what
the ticks take is a row of its own. Messages and bytes are what went out on iopub, the output that
is saved with the notebook told apart: the other three ways are their own saved output.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator

from bench.kit import ROOT, Row, plain_row, timed_row
from tests.notebook.kernel_driver import Kernel

DELTAS, RATE, SECONDS = 2_000, 400, 5.0
STATIC = ROOT / "notebook_agent/notebook/static"

CODE = """
import json, statistics, time, warnings
warnings.simplefilter("ignore")
import ipywidgets
from IPython.display import Markdown, display
from jupyter_client.session import Session
from notebook_agent.core.agent_events import AttemptStarted, ModelStarted
from notebook_agent.engine.observers import TextDelta
from notebook_agent.notebook.live import LiveObserver
from notebook_agent.notebook.panel import AgentPanel, get_panel
from notebook_agent.notebook.sinks import make_sink
from notebook_agent.notebook.view import LiveView
from notebook_agent.core.result import RunResult
from notebook_agent.core.session import Run, RunStatus

N, RATE, TICK = {deltas}, {rate}, 1 / 30
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

def paced(put, tick=None):
    taking, showing, clock, start, shown = [0.0] * 5, 0.0, time.thread_time, time.perf_counter(), 0.0
    for at, text in enumerate(TEXT):
        due = start + at / RATE
        if (early := due - time.perf_counter() - 0.0005) > 0:
            time.sleep(early)
        while time.perf_counter() < due:  # awake before the delta, as a busy event loop is
            pass
        before = clock()
        put(text)
        after = clock()
        taking[at * 5 // N] += after - before
        if tick is not None and time.perf_counter() - shown >= TICK:
            shown = time.perf_counter()
            tick()
            showing += clock() - after
    return statistics.median(taking) * 5, showing, time.perf_counter() - start

def measure(name):
    SENT.clear()
    acc = []
    if name == "markdown":
        handle = display(Markdown(""), display_id=True)
        put, tick, end = lambda t: (acc.append(t), handle.update(Markdown("".join(acc)))), None, None
    elif name == "html":
        widget = ipywidgets.HTML(); display(widget)
        def put(t):
            acc.append(t); widget.value = "<pre>" + "".join(acc) + "</pre>"
        tick = end = None
    elif name == "output":
        widget = ipywidgets.Output(); display(widget)
        put, tick, end = widget.append_stdout, None, None
    else:
        observer = LiveObserver(model="scripted:bench", prompt="x")
        view = LiveView(observer, make_sink("panel", background=True))
        view.open()
        observer.on_event(ModelStarted(run_id="r", timestamp=1.0, iteration=0, provider="scripted", model="bench"))
        observer.on_event(AttemptStarted(run_id="r", timestamp=1.0, turn=0, attempt=1, max_attempts=4, model="scripted:bench"))
        view.tick()
        get_panel()._heard(None, {{"t": "hello", "nonce": "n", "front": "lab"}}, [])
        view.tick()
        SENT.clear()
        put = lambda t: observer.on_text_delta(TextDelta(0, t))
        tick, end = view.tick, lambda: (view.tick(), view.close(RunResult(text="".join(TEXT), run=Run(id="r", input="x", status=RunStatus.COMPLETED))))
    taking, showing, wall = paced(put, tick)
    count, size, saved = tally()
    if end is not None:
        before = time.thread_time(); end(); showing += time.thread_time() - before
        _, size, saved = tally()
        size -= saved
    return taking / N * 1e6, count / wall, size / 1e6, (taking + showing) / N * 1e6, saved / 1e6

def creation():
    before = time.process_time()
    AgentPanel("bench").view_bundle()
    return time.process_time() - before

first = creation()
made = statistics.median(creation() for _ in range(5))
before = time.process_time(); ipywidgets.HTML(); plain = time.process_time() - before
nothing = paced(lambda t: None)[0] / N * 1e6
out = {{name: measure(name) for name in ("panel", "markdown", "html", "output")}}
print("BENCH " + json.dumps([first, made, plain, nothing, out]))
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
    first, made, plain, nothing, out = json.loads(lines[0][6:])
    yard = ("ipywidgets.HTML", plain)
    yield timed_row(4, "panel creation", made, "ms", 50, yard=yard, note=f"the first {first * 1e3:.0f} ms")  # fmt: skip
    size = sum((STATIC / name).stat().st_size for name in ("panel.js", "panel.css")) / 1000
    yield plain_row(4, "JavaScript and CSS", f"{size:.1f} kB", "<= 40 kB", size <= 40)
    names = {"markdown": "Markdown display updates", "html": "ipywidgets.HTML", "output": "Output"}
    each, a_second, mega, whole, saved = out["panel"]
    what = f"{deltas:,} deltas at {RATE}/s"
    others = ", ".join(f"{names[n]} {out[n][0]:,.0f} µs" for n in names)
    each -= nothing  # what the clock itself takes
    yield plain_row(
        4, f"{what}: kernel time a delta", f"{each:.2f} µs, the clock's {nothing:.1f} µs taken off", "<= 6 µs", each <= 6,
        yardstick=others, ratio=each / out["output"][0],
    )  # fmt: skip
    yield plain_row(
        4, f"{what}: the same with drawing, rendering and sending 30 times a second",
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
