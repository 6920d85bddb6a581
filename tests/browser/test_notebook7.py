"""Notebook 7: run, see the text grow, Stop, read what stays (F3, D4, D5)."""

from __future__ import annotations

import json

import pytest

from tests.browser.lab import SETUP, Notebook, lab_page
from tests.browser.test_lab import slow, wait_for


@pytest.fixture(scope="module")
def notebook7(tmp_path_factory, chromium):
    with lab_page(tmp_path_factory.mktemp("notebooks"), app="notebook") as (server, page):
        yield server, page


def test_run_deltas_stop_and_save(notebook7) -> None:
    server, page = notebook7
    cells = [SETUP + slow(), "%%agent\nhello", "print('next', 1 + 1)"]
    notebook = Notebook(server, page, "seven.ipynb", cells)
    assert page.evaluate("document.body.dataset.notebook") == "notebooks"  # this is not JupyterLab
    notebook.run(0, done=40)
    notebook.run(1)
    notebook.panel(1).wait_for(timeout=15_000)
    reply = notebook.panel(1).locator(".na-reply")
    first = wait_for(lambda: len(reply.inner_text()))
    wait_for(lambda: len(reply.inner_text()) > first + 60)
    notebook.panel(1).locator(".na-stop button").click(timeout=5_000)
    notebook.wait_done(1, 5)
    text = wait_for(lambda: "cancelled" in notebook.text(1) and notebook.text(1))
    assert "stopped by you; the text above is partial" in text
    assert "Two stretches look like a stuck sensor." in text
    assert "Traceback" not in text
    notebook.run(2, done=10)
    assert "next 2" in notebook.text(2)
    (output,) = notebook.save()["cells"][1]["outputs"]
    assert sorted(output["data"]) == ["text/html", "text/plain"]
    assert "widget-view" not in json.dumps(output)
