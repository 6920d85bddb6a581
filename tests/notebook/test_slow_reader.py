"""The stored notebooks show what their text says however long a reader thinks between two cells."""

from __future__ import annotations

import os
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def test_the_backup_of_notebook_03_serves_a_reader_who_takes_longer_than_the_cooldown(tmp_path):
    book = nbformat.read(NOTEBOOKS / "03_breaker.ipynb", as_version=4)
    wanted = [cell.source for cell in book.cells]
    last = wanted.index("## The backup serves") + 1
    for cell in book.cells:  # any reader is slower than this cooldown
        cell.source = re.sub(r"(cooldown = |pause\()[\d.]+", r"\g<1>0.001", cell.source)
    assert [cell.source for cell in book.cells] != wanted
    book.cells = book.cells[: last + 1]
    env = {**os.environ, "HOME": str(tmp_path), "NOTEBOOK_AGENT_DISPLAY": "static"}
    env.pop("NOTEBOOK_AGENT_PINNED", None)
    client = NotebookClient(book, timeout=60, resources={"metadata": {"path": str(tmp_path)}})
    client.execute(env=env)
    shown = "".join(one.get("data", {}).get("text/plain", "") for one in book.cells[last].outputs)
    assert "The *backup* answers." in shown
    assert "scripted:backup" in shown
