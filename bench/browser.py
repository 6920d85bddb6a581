"""What a person waits for in a page: headless Chromium, the panel alone and in JupyterLab.

Without Chromium (or CHROME) there are no rows but one that says so. Times are wall times.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.kit import Row, plain_row, timed_row
from notebook_agent.notebook.reducer import reduce
from notebook_agent.notebook.wire import PanelWire
from tests.browser.harness import CHROME, browser, greet, messages, mount
from tests.browser.lab import SETUP, Notebook, lab_page
from tests.notebook.recorded import opened, to_model, words

# Every frame's length while messages come one a frame, as 30 a second do.
FRAMES = """async (ms) => {
  const frame = () => new Promise((r) => requestAnimationFrame(r));
  let last = await frame(), most = 0, all = 0;
  for (const m of ms) { window.feed(m); const now = await frame();
    most = Math.max(most, now - last); all += now - last; last = now; }
  return [most, all / ms.length]; }"""
AT_ONCE = """(ms) => { const t = performance.now(); ms.forEach((m) => window.feed(m));
  document.querySelector('.na').offsetHeight; return performance.now() - t; }"""
# When the mark is in an output, live or frozen, seconds since the epoch.
SEEN = """() => { window.seen = null; const look = () => {
  const all = [...document.querySelectorAll('.jp-NotebookPanel .jp-OutputArea')];
  if (all.some((p) => p.textContent.includes('\\u00a7'))) { window.seen = Date.now() / 1000; return; }
  requestAnimationFrame(look); }; look(); }"""
STOP = """() => new Promise((done) => {
  const t = performance.now(); document.querySelector('.jp-NotebookPanel .na-stop button').click();
  const look = () => document.querySelector('.jp-NotebookPanel .na')
    ? requestAnimationFrame(look) : done(performance.now() - t);
  look(); })"""
LAST = """
import time
import notebook_agent.notebook.live as live
at = []
plain = live.LiveObserver.on_text_delta
def noted(self, ctx):
    if "\\u00a7" in ctx.delta:
        at.append(time.time())
    plain(self, ctx)
live.LiveObserver.on_text_delta = noted
m = ScriptedModel([Reply(text="word " * {words} + "\\u00a7. ")], delay_s=1 / 400)
slow = ScriptedModel([Reply(text="word " * 4000)], delay_s=0.01)
_ = %agent model @m
"""


def wire_bytes(size: int) -> int:
    """Bytes of all messages of a reply of ``size`` bytes, flushed each 2 kB."""
    wire, state, total = PanelWire(1), None, 0
    for at, event in enumerate([opened(), *to_model(0.0), *words(0.5, "word " * (size // 5), step=2_000)]):  # fmt: skip
        state = reduce(state, event) if state is not None else reduce(messages([])[1], event)
        ops = wire.diff(state) if at else [{"full": wire.full(state)}]
        total += len(json.dumps(ops))
    return total


def page_rows(quick: bool) -> Iterator[Row]:
    """The panel alone."""
    with browser() as page:
        mount(page)
        made, _ = messages([opened(), *to_model(0.0), *words(0.5, "tokens " * 10_000, step=7)], flush_every=100)  # fmt: skip
        page.evaluate(AT_ONCE, made[:1])
        greet(page)
        took = page.evaluate(AT_ONCE, made[1:]) / 1e3
        yard = ("an empty frame", page.evaluate(FRAMES, [])[0] / 1e3 or 1 / 60)
        yield timed_row(4, "10,000 deltas at full speed: on the page", took, "s", 1.0, yard=yard, wall=True)  # fmt: skip
        mount(page)
        size = 300_000 if quick else 1_000_000
        made, _ = messages([opened(), *to_model(0.0), *words(0.5, "word " * (size // 5), step=size // 300)])  # fmt: skip
        most, mean = page.evaluate(FRAMES, made)
        yield timed_row(
            4, f"{size / 1e6:g} MB reply: longest frame", most / 1e3, "ms", 100,
            yard=("mean frame", mean / 1e3), wall=True,
        )  # fmt: skip


def lab_rows(quick: bool) -> Iterator[Row]:
    """In a real JupyterLab."""
    count, times = (400, 2) if quick else (2_000, 5)
    with tempfile.TemporaryDirectory() as folder, lab_page(Path(folder)) as (server, page):
        setup = SETUP + LAST.format(words=count)
        cells = [setup, "%%agent\nhello", "print('AT', at[-1])", "_ = %agent model @slow"]
        notebook = Notebook(server, page, "bench.ipynb", cells)
        notebook.run(0, done=60)
        late = []
        for _ in range(max(1, times - 2)):
            page.evaluate("() => { window.seen = null; }")
            notebook.run(1)
            notebook.panel(1).wait_for(timeout=20_000)  # the last run's output is gone
            page.evaluate(SEEN)
            notebook.wait_done(1, 60)
            page.wait_for_function("window.seen", timeout=10_000)
            seen = page.evaluate("window.seen")
            notebook.run(2, done=20)
            sent = float(notebook.text(2).split("AT")[1].split()[0])
            late.append(seen - sent)
        yard = ("a frame", 1 / 60)
        yield timed_row(
            4, f"{count:,} deltas at 400/s: last word on the page after it was sent",
            statistics.median(late), "s", 0.2, yard=yard, wall=True,
        )  # fmt: skip
        notebook.run(3, done=20)
        stops = [stop(notebook, page) for _ in range(times)]
        yield timed_row(
            4, "click on Stop to frozen output", statistics.median(stops), "s", 0.25, yard=yard,
            wall=True, note=f"worst {max(stops):.2f} s",
        )  # fmt: skip


def stop(notebook: Notebook, page: Any) -> float:
    """Seconds from the click to the frozen output."""
    notebook.run(1)
    page.locator(".jp-NotebookPanel .na-stop button").wait_for(timeout=10_000)
    time.sleep(0.5)
    took: float = page.evaluate(STOP) / 1e3
    notebook.wait_done(1, 10)
    return took


def rows(quick: bool) -> Iterator[Row]:
    """The rows of this bench."""
    half, whole = wire_bytes(80_000), wire_bytes(160_000)
    yield plain_row(
        4, "bytes of a reply twice as long", f"{whole / 1e3:,.0f} kB", "<= 2.1x",
        whole / half <= 2.1, yardstick=f"half of it {half / 1e3:,.0f} kB", ratio=whole / half,
    )  # fmt: skip
    most = wire_bytes(1_000_000)
    yield plain_row(4, "bytes of a 1 MB reply (the view holds 180 kB)", f"{most / 1e3:,.0f} kB", "<= 1 MB", most <= 1_000_000)  # fmt: skip
    if not Path(CHROME).exists():
        yield plain_row(4, "the page's figures", f"no browser at {CHROME}", "", None)
        return
    yield from page_rows(quick)
    yield from lab_rows(quick)
