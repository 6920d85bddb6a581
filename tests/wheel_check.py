"""The built wheel, opened and imported (run by the notebooks stage)."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_wheel_holds_what_it_must() -> None:
    wheel = max((ROOT / "out" / "dist").glob("*.whl"))
    names = set(zipfile.ZipFile(wheel).namelist())
    for name in (
        "notebook_agent/py.typed",
        "notebook_agent/notebook/static/panel.js",
        "notebook_agent/notebook/static/panel.css",
        "notebook_agent/engine/tokenizer/known_pieces.txt.gz",
    ):
        assert name in names
    shipped = {f"notebook_agent/notebooks/{p.name}" for p in (ROOT / "notebooks").glob("*.ipynb")}
    assert len(shipped) >= 8
    assert shipped <= names
    assert any(n.endswith("/licenses/LICENSE") for n in names)
    assert any(n.endswith("/licenses/NOTICE") for n in names)
    assert not [n for n in names if n.startswith(("tests/", "bench/", "shared"))]


def test_kernels_use_the_wheel() -> None:
    out = subprocess.run(
        [sys.executable, "-c", "import notebook_agent; print(notebook_agent.__file__)"],
        capture_output=True, text=True, check=True, cwd="/",
    )  # fmt: skip
    assert out.stdout.startswith(os.environ["NOTEBOOK_AGENT_WHEEL"])
