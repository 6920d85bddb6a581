"""``notebook-agent demo``: the quick start, executed headless, seen in the terminal.

The reply is printed as it comes, then the footer, the FSM trace and the audit frame; the executed
notebook and its HTML are written. The exit code is not 0 when anything failed.

Source: notebook side, "Running a cell" (D6), "Front ends" (F5).
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any, Final

from notebook_agent.cli.folder import QUICKSTART, in_checkout, notebooks_folder
from notebook_agent.errors import AgentError, ConfigError
from notebook_agent.providers import local_files

# Words of the command line that stand for a whole name.
_SHORT: Final = {"local": "local:smollm2", "scripted": "scripted:teacher"}
_CELL_S: Final = 600  # longest cell
_NEEDED: Final = ("nbclient", "nbconvert", "nbformat", "ipykernel")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``demo``."""
    parser.add_argument(
        "--model", default="local", metavar="ID",
        help="local (default), scripted (needs no model file), or provider:name",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, default=Path("out"), metavar="FOLDER",
        help="where the executed notebook and its HTML go (default: ./out)",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Execute the quick start."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"The demo needs packages that are not installed: {', '.join(missing)}.\n"
            'Type:  pip install "notebook-agent[demo]"',
            field="demo",
        )
    model = _SHORT.get(args.model, args.model)
    if model == _SHORT["local"]:
        _need_local()
    from notebook_agent.cli import demo_run  # noqa: PLC0415 - needs the packages just checked

    source = notebooks_folder() / QUICKSTART
    out: Path = args.out.resolve()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as refused:
        raise ConfigError(
            f"{out} cannot be made: {refused.strerror}.\nType:  notebook-agent demo --out FOLDER",
            field="out",
        ) from None
    print(f"{QUICKSTART} on {model}", flush=True)
    # A fresh session in memory: the demo leaves nothing in the user's store.
    environment = {
        **os.environ,
        "NOTEBOOK_AGENT_MODEL": model,
        "NOTEBOOK_AGENT_DISPLAY": "stream",
        "NOTEBOOK_AGENT_STORE": "memory",
    }
    notebook, problem = demo_run.execute(source, out, environment, _CELL_S)
    written = demo_run.write(notebook, out / QUICKSTART)
    for path in written:
        print(f"wrote {path}")
    return _verdict(notebook, problem)


def _need_local() -> None:
    if importlib.util.find_spec("xllamacpp") is None:
        raise ConfigError(
            "The local model needs a package that is not installed.\n"
            'Type:  pip install "notebook-agent[demo]"     or: notebook-agent demo --model scripted',
            field="model",
        )
    if local_files.find_model() is None:
        raise ConfigError(
            "The local model's file is not on this machine.\n"
            "Type:  notebook-agent fetch-model     or: notebook-agent demo --model scripted",
            field="model",
        )


def _verdict(notebook: Any, problem: str) -> int:
    """0 when every cell ran and the agent's cells show something."""
    if problem:
        raise AgentError(f"The demo failed: {problem}")
    for cell in notebook.cells:
        asked = cell.cell_type == "code" and cell.source.startswith(("%%agent", "%agent"))
        if asked and not cell.outputs:
            first = cell.source.splitlines()[0]
            raise AgentError(f"The demo failed: the cell {first!r} shows nothing.")
    print("demo: all cells ran", file=sys.stderr)
    lab = "make lab" if in_checkout(notebooks_folder()) else "notebook-agent lab"
    print(f"Next, JupyterLab on the notebooks:  {lab}")
    return 0
