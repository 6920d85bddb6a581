"""Runs the scripted notebooks again and stores their outputs, pinned, as the tests compare them.

    python docs/refresh_notebooks.py            all but 00, which runs on the local model
    python docs/refresh_notebooks.py 02 05      some

Needed after a change of what a cell shows; look at the difference before you commit it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent.parent / "notebooks"
PINNED = {"NOTEBOOK_AGENT_DISPLAY": "static", "NOTEBOOK_AGENT_PINNED": "1"}


def refresh(path: Path) -> None:
    """Execute one notebook in place; what differs from run to run is left out of it."""
    book = nbformat.read(path, as_version=4)
    NotebookClient(
        book, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}}
    ).execute()
    for cell in book.cells:
        cell.metadata.pop("execution", None)
    book.metadata = {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
        "language_info": {"name": "python"},
    }
    nbformat.write(book, path)
    sys.stdout.write(f"{path.name}\n")


def main(wanted: list[str]) -> None:
    os.environ.update(PINNED)
    for path in sorted(FOLDER.glob("[0-9]*.ipynb")):
        number = path.name[:2]
        if number != "00" and (not wanted or number in wanted):
            refresh(path)


if __name__ == "__main__":
    main(sys.argv[1:])
