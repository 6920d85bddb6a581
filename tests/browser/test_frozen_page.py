"""The saved output of every kind of run, as JupyterLab draws it from a file nobody signed.

Widths, contrast and roles, in both themes; what the front end's cleaner takes away is not relied on.
"""

from __future__ import annotations

import json
import re

import pytest

from notebook_agent.notebook.output import frozen_html
from tests.browser.frozen import frozen_states, write_frozen
from tests.browser.harness import axe_found
from tests.browser.lab import lab_page, set_theme

OUTPUTS = ".jp-NotebookPanel .jp-RenderedHTMLCommon.jp-OutputArea-output"
WIDE = f"""() => [...document.querySelectorAll('{OUTPUTS}')].map((out) => {{
  const right = out.getBoundingClientRect().right, inside = (e) => {{  // text cut by a box that scrolls is not out
    for (let up = e.parentElement; up !== out; up = up.parentElement)
      if (getComputedStyle(up).overflowX !== 'visible') return true; }};
  const over = [...out.querySelectorAll('*')].filter((e) => !inside(e) && e.getBoundingClientRect().right > right + 1);
  return [out.scrollWidth - out.clientWidth, ...over.map((e) => e.outerHTML.slice(0, 80))]; }})"""
CROWDED = f"""() => [...document.querySelectorAll('{OUTPUTS} :is(td, th)')]
  .filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => e.textContent)"""
SCROLLS = f"""() => [...document.querySelectorAll('{OUTPUTS}')].map((out) => [...out.querySelectorAll('*')]
  .filter((e) => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX === 'auto').map((e) => e.localName))"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory, chromium):
    """The page, with a notebook of all saved outputs open; and their names."""
    root = tmp_path_factory.mktemp("frozen")
    names = write_frozen(root / "frozen.ipynb")
    with lab_page(root, width=1400) as (server, page):
        server.set("notebook-extension", "tracker", windowingMode="none", autoStartDefaultKernel=False)  # fmt: skip
        page.goto(f"{server.base}/lab/tree/frozen.ipynb?token={server.token}&reset")
        page.wait_for_selector(OUTPUTS, timeout=60_000)
        assert page.locator(OUTPUTS).count() == len(names)
        yield page, names


def widen(page, width: int) -> None:
    """A window in which an output is ``width`` wide."""
    page.set_viewport_size({"width": 1400, "height": 900})
    now = f"document.querySelector('{OUTPUTS}').clientWidth"
    page.wait_for_function(f"{now} > 900")
    page.set_viewport_size({"width": 1400 + width - page.evaluate(now), "height": 900})
    page.wait_for_function(f"{now} === {width}")


@pytest.mark.parametrize("width", [560, 600, 800, 1200])
def test_no_saved_output_scrolls_sideways(saved, width) -> None:
    """Long words are broken, long code and wide tables scroll in themselves, all else fits."""
    page, names = saved
    widen(page, width)
    assert dict(zip(names, page.evaluate(WIDE), strict=True)) == {name: [0] for name in names}
    assert page.evaluate(CROWDED) == []
    scrolls = dict(zip(names, page.evaluate(SCROLLS), strict=True))
    assert "pre" in scrolls["long words"]
    if width >= 600:  # the audit table of an ordinary run fits
        assert {name: found for name, found in scrolls.items() if found and name != "long words"} == {}  # fmt: skip


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_N12_saved_contrast_and_accessibility(saved, theme) -> None:
    """axe-core: contrast at least 4.5 in both themes, roles and names in order."""
    page, _ = saved
    set_theme(page, theme)
    widen(page, 800)
    if theme == "dark":  # colours, and only they, differ
        assert axe_found(page, OUTPUTS, runOnly=["color-contrast"]) == []
    else:  # the cleaner takes `tabindex` away; the browser itself lets Tab reach what scrolls
        assert axe_found(page, OUTPUTS, off=["scrollable-region-focusable"]) == []


def test_F5_an_untrusted_notebook_keeps_every_declaration(saved) -> None:
    """JupyterLab's cleaner drops what it does not know ("inherit", "anywhere"): none is used."""
    page, names = saved
    kept = page.evaluate(
        f"[...document.querySelectorAll('{OUTPUTS}')].map((o) => [...o.querySelectorAll('[style]')].map((e) => e.getAttribute('style')))"
    )
    for (name, state), styles in zip(frozen_states().items(), kept, strict=True):
        ours = re.findall(r'style="([^"]*)"', frozen_html(state))
        squeezed = [re.sub(r"\s*([:;])\s*", r"\1", style) for style in ours]
        assert styles == squeezed, name
    assert names
    assert json.dumps(kept).count("overflow-wrap") > len(names)
