"""The quick start on the real local model, executed headless (run by the notebooks stage)."""

from __future__ import annotations

import os
import subprocess
import sys

import nbformat
import pytest

from notebook_agent.providers.local_files import is_installed


@pytest.mark.local_model
def test_quick_start_runs_on_the_local_model(tmp_path):
    if not is_installed():
        if os.environ.get("CI") == "true":
            pytest.fail("no local model: run notebook-agent fetch-model")
        pytest.skip("NO LOCAL MODEL: run notebook-agent fetch-model")
    done = subprocess.run(
        [sys.executable, "-m", "notebook_agent", "demo", "--out", str(tmp_path)],
        capture_output=True, text=True, timeout=110, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    notebook = nbformat.read(tmp_path / "00_quickstart.ipynb", as_version=4)
    text = str(notebook)
    assert "local:smollm2" in text
    assert "scripted" not in str([c.get("outputs") for c in notebook.cells])
    for cell in notebook.cells:
        if cell.cell_type == "code" and cell.source.startswith("%%agent"):
            reply = "".join(o.get("text", "") for o in cell.outputs)
            assert "completed" in reply
            assert len(reply.split()) > 12
