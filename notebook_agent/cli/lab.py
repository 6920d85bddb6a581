"""``notebook-agent lab [FOLDER]``: JupyterLab on the notebooks.

Source: notebook side, front ends.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from notebook_agent.cli.folder import QUICKSTART, in_checkout, notebooks_folder
from notebook_agent.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``lab``."""
    parser.add_argument(
        "folder", nargs="?", type=Path,
        help="where to work: missing notebooks are copied there (default: the checkout's own "
        "folder, else ./notebook_agent_notebooks)",
    )  # fmt: skip
    parser.add_argument("--no-browser", action="store_true", help="do not open a browser")
    parser.add_argument("--port", type=int, help="JupyterLab's port")


def run(args: argparse.Namespace) -> int:
    """Start JupyterLab and wait for it."""
    if find_spec("jupyterlab") is None:
        raise ConfigError(
            "JupyterLab is not installed here.\n"
            'Type:  pip install "notebook-agent[demo]"',
            field="lab",
        )  # fmt: skip
    folder = prepare(args.folder)
    command = [sys.executable, "-m", "jupyterlab", str(folder / QUICKSTART)]
    if args.no_browser:
        command.append("--no-browser")
    if args.port is not None:
        command.append(f"--port={args.port}")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")  # JupyterLab refuses root otherwise
    print(f"JupyterLab on {folder}; stop it with Ctrl-C.", flush=True)
    # So that `!notebook-agent` and `!pip` in a cell are those of this Python, activated or not.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    process = subprocess.Popen(command, env={**os.environ, "PATH": path})  # noqa: S603 - our own interpreter
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue  # JupyterLab got it too: it asks, and ends its kernels


def prepare(folder: Path | None) -> Path:
    """The folder to work in. Notebooks that are not there are copied, none is overwritten."""
    source = notebooks_folder()
    if folder is None and in_checkout(source):
        return source
    target = (folder or Path("notebook_agent_notebooks")).resolve()
    try:
        target.mkdir(parents=True, exist_ok=True)
        for notebook in sorted(source.glob("[0-9]*.ipynb")):
            if not (target / notebook.name).exists():
                shutil.copy(notebook, target / notebook.name)
    except OSError as problem:
        raise ConfigError(
            f"The notebooks cannot be copied to {target}: {problem.strerror}.\n"
            "Name another folder:  notebook-agent lab FOLDER",
            field="folder",
        ) from None
    return target
