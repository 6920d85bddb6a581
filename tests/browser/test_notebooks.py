"""The shipped notebooks as a reader sees them: opened in JupyterLab, both themes, not run again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.browser.lab import lab_page, set_theme

ROOT = Path(__file__).parents[2]
SHIPPED = sorted(path.name for path in (ROOT / "notebooks").glob("0*.ipynb"))
OUT = ROOT / "out" / "notebooks"
TALL = """() => { const p = document.querySelector('.jp-NotebookPanel .jp-WindowedPanel-outer');
  return Math.ceil(p.scrollHeight); }"""
ERRORS = (
    ".jp-NotebookPanel [data-mime-type='application/vnd.jupyter.error'],"
    " .jp-NotebookPanel [data-mime-type='application/vnd.jupyter.stderr']"
)
WIDE = """() => [...document.querySelectorAll('.jp-NotebookPanel .jp-OutputArea-output')]
  .filter((e) => e.scrollWidth > e.clientWidth + 1)
  .map((e) => [e.scrollWidth, e.clientWidth, e.textContent.slice(0, 60)])"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory, chromium):
    root = tmp_path_factory.mktemp("shipped")
    for name in SHIPPED:
        shutil.copy(ROOT / "notebooks" / name, root / name)
    OUT.mkdir(parents=True, exist_ok=True)
    # all cells are in the page, seen or not
    with lab_page(root, width=1200) as (server, page):
        server.set("notebook-extension", "tracker",
                   windowingMode="none", kernelShutdown=True, autoStartDefaultKernel=False)  # fmt: skip
        page.set_default_timeout(20_000)
        yield server, page


def errors_meant(name: str) -> int:
    """Errors that the notebook shows on purpose: its cells say so."""
    cells = json.loads((ROOT / "notebooks" / name).read_text())["cells"]
    return sum(
        one["output_type"] == "error"
        for cell in cells
        if "raises-exception" in cell["metadata"].get("tags", ())
        for one in cell["outputs"]
    )


@pytest.mark.timeout(300)
def test_shipped_notebooks_read_well_in_both_themes(lab) -> None:
    """Outputs that are there; no error, no dead widget, nothing asked of a foreign host, no
    output wider than the page."""
    server, page = lab
    asked: list[str] = []
    page.on("request", lambda r: asked.append(r.url))
    assert len(SHIPPED) == 10
    trouble: list[object] = []
    planned = {name: errors_meant(name) for name in SHIPPED}
    for name in SHIPPED:
        page.goto(f"{server.base}/lab/tree/{name}?token={server.token}&reset")
        page.wait_for_selector(".jp-NotebookPanel .jp-OutputArea-output", timeout=30_000)
        if "model not found" in page.inner_text(".jp-NotebookPanel").lower():
            trouble.append((name, "model not found"))
        boxes = page.locator(ERRORS).all_inner_texts()
        if len(boxes) != planned[name]:
            trouble.append((name, boxes))
        page.set_viewport_size({"width": 1200, "height": min(11_000, page.evaluate(TALL) + 120)})
        for theme in ("light", "dark"):
            set_theme(page, theme)
            trouble += [(name, theme, wide) for wide in page.evaluate(WIDE)]
            page.screenshot(path=str(OUT / f"{name[:2]}-{theme}.png"))
        page.set_viewport_size({"width": 1200, "height": 900})
    foreign = [u for u in asked if not u.startswith((server.base, "data:", "blob:", "about:"))]
    assert trouble == []
    assert foreign == []
    assert asked
