"""The panel's front end alone in Chromium: messages from the real PanelWire, no Jupyter.

Fast enough to look at every state of the design in both themes and three widths.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from notebook_agent.notebook.panel_state import PanelState
from notebook_agent.notebook.reducer import reduce
from notebook_agent.notebook.wire import PanelWire

STATIC = Path(__file__).parents[2] / "notebook_agent/notebook/static"
CHROME = os.environ.get("CHROME", "/usr/bin/chromium")
ARGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
]  # fmt: skip

THEMES = {
    "light": "--jp-layout-color0:#fff;--jp-layout-color1:#fff;--jp-border-color2:#e0e0e0;"
    "--jp-ui-font-color0:#000;--jp-brand-color1:#1976d2;--jp-success-color1:#388e3c;"
    "--jp-warn-color1:#f57c00;--jp-error-color1:#d32f2f;--jp-cell-editor-background:#f5f5f5;"
    "color-scheme:light;background:#fff",
    "dark": "--jp-layout-color0:#111;--jp-layout-color1:#212121;--jp-border-color2:#424242;"
    "--jp-ui-font-color0:#fff;--jp-brand-color1:#2196f3;--jp-success-color1:#4caf50;"
    "--jp-warn-color1:#ff9800;--jp-error-color1:#f44336;--jp-cell-editor-background:#212121;"
    "color-scheme:dark;background:#111",
    "none": "color-scheme:light dark;background:Canvas",
}
FONTS = (
    '--jp-content-font-size1:14px;--jp-ui-font-family:system-ui,"Segoe UI",sans-serif;'
    "--jp-content-font-family:var(--jp-ui-font-family);"
    '--jp-code-font-family:menlo,consolas,"DejaVu Sans Mono",monospace'
)


@contextlib.contextmanager
def browser(width=1240, height=760, **context):
    """A page in a fresh headless Chromium profile."""
    from playwright.sync_api import sync_playwright

    profile = tempfile.mkdtemp(prefix="na_chrome")
    with sync_playwright() as pw:
        ctx = pw.chromium.launch_persistent_context(
            profile, executable_path=CHROME, headless=True, args=ARGS,
            viewport={"width": width, "height": height}, **context,
        )  # fmt: skip
        try:
            yield ctx.pages[0]
        finally:
            ctx.close()
            shutil.rmtree(profile, ignore_errors=True)


def messages(events, *, flush_every=1):
    """Events -> panel messages, one flush for every ``flush_every`` events."""
    wire, state, seq, out = PanelWire(1), PanelState(), 1, []
    for i, event in enumerate(events):
        state = reduce(state, event)
        if i == 0:
            out.append({"seq": 1, "run": 1, "ops": [{"t": "full", "full": wire.full(state)}]})
        elif i % flush_every == 0 or i == len(events) - 1:
            ops = wire.diff(state)
            if ops:
                seq += 1
                out.append({"seq": seq, "run": 1, "ops": ops})
    return out, state


def mount(page, *, theme="light", width=1200, channel=""):
    """An empty page with one view; ``feed`` then gives it messages."""
    js = (STATIC / "panel.js").read_text()
    css = (STATIC / "panel.css").read_text()
    page.set_content(
        f"<!doctype html><html lang=en style='{THEMES[theme]};{FONTS}'><head><title>panel</title>"
        f"<style>{css}</style></head><body style='margin:20px'>"
        f"<main id=el style='max-width:{width}px'></main></body></html>"
    )
    page.evaluate(
        """async ([js, channel]) => {
          const url = URL.createObjectURL(new Blob([js], {type: 'text/javascript'}));
          const panel = await import(url);
          const said = window.said = [], heard = [];
          const traits = {schema: 1, status: 'ready', final: {}, channel};
          const model = window.model = {
            get: (k) => traits[k], set: (k, v) => { traits[k] = v; },
            on: (name, f) => { if (name === 'msg:custom') heard.push(f); },
            off: () => {}, send: (m) => said.push(m), save_changes: () => {},
          };
          window.panel = panel;
          window.feed = (m) => heard.forEach((f) => f(m));
          panel.default.initialize({model});
          window.close_view = panel.default.render({model, el: document.getElementById('el')});
        }""",
        [js, channel],
    )


def axe_found(page, selector, *, off=(), **only):
    """What axe-core finds in an element, as (rule, nodes). Without it CI fails, a person skips."""
    spec = importlib.util.find_spec("axe_playwright_python")
    if spec is None or spec.origin is None:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail("axe-core is missing: pip install axe-playwright-python")
        pytest.skip("axe-core is missing: pip install axe-playwright-python")
    if not page.evaluate("'axe' in window"):
        page.evaluate((Path(spec.origin).parent / "axe.min.js").read_text())
    return page.evaluate(
        """async ([where, rules, only]) => (await axe.run(where, {rules, ...only})).violations
          .map((v) => [v.id, v.nodes.slice(0, 3).map((n) => n.html.slice(0, 160) + ' ' + n.failureSummary)])""",
        [selector, {rule: {"enabled": False} for rule in ("region", *off)}, only],
    )


def feed(page, msgs):
    """Give messages to the view."""
    page.evaluate("(ms) => ms.forEach((m) => window.feed(m))", json.loads(json.dumps(msgs)))


def greet(page, *, stop=True):
    """Answer the view's hello, as the kernel does."""
    page.evaluate(
        """(stop) => { const h = window.said.filter((m) => m.t === 'hello').pop();
        window.feed({seq: 1e6, run: 1, ops: [{t: 'hi', nonce: h.nonce, stop}]}); }""",
        stop,
    )
