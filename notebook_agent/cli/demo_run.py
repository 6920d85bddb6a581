"""Executes a notebook and shows its outputs in the terminal while they come.

Source: notebook side, "Running a cell" (D6).
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbconvert import HTMLExporter

from notebook_agent.core.text import visible

__all__ = ["execute", "write"]

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class _Shown(NotebookClient):
    """Prints each cell's source and outputs as they arrive."""

    def show(self, text: str) -> None:
        # Outputs hold a model's words: nothing in them may move the cursor (X03).
        sys.stdout.write(visible(_ANSI.sub("", text)))
        sys.stdout.flush()

    def output(
        self, outs: list[Any], msg: dict[str, Any], display_id: str | None, cell_index: int
    ) -> Any:
        """One output message of a running cell."""
        content = msg["content"]
        match msg["msg_type"]:
            case "stream":
                self.show(content["text"])
            case "display_data" | "execute_result":
                plain = content["data"].get("text/plain", "")
                self.show(f"{plain}\n")
            case "error":
                self.show("\n".join(content["traceback"]) + "\n")
        return super().output(outs, msg, display_id, cell_index)

    def show_source(self, cell: Any, cell_index: int) -> None:  # noqa: ARG002 - nbclient's hook
        """A cell is about to run."""
        body = "\n".join(f"    {line}" for line in cell.source.splitlines())
        self.show(f"\n{body}\n\n")


def execute(
    source: Path, folder: Path, environment: Mapping[str, str], timeout_s: int
) -> tuple[Any, str]:
    """Run every cell in a kernel of this Python.

    Args:
        source: The notebook.
        folder: The kernel's working folder.
        environment: The kernel's environment.
        timeout_s: Longest cell in seconds.

    Returns:
        The executed notebook, and what went wrong in one line, "" when nothing did.
    """
    notebook = nbformat.reads(source.read_text("utf-8"), as_version=4)  # type: ignore[no-untyped-call]  # nbformat has no types
    manager = AsyncKernelManager()
    # This Python's kernel, whatever kernels of that name are installed for the user.
    manager._kernel_spec = KernelSpec(
        argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        display_name="Python 3",
        language="python",
    )
    client = _Shown(
        notebook,
        km=manager,
        timeout=timeout_s,
        resources={"metadata": {"path": str(folder)}},
        allow_errors=False,
    )
    client.on_cell_execute = client.show_source
    problem = ""
    with tempfile.TemporaryFile("w+", errors="replace") as words:
        try:
            client.execute(env=dict(environment), cleanup_kc=True, stderr=words)
        except CellExecutionError as failed:
            problem = f"{failed.ename}: {failed.evalue}"
        except (CellTimeoutError, DeadKernelError, RuntimeError) as failed:
            words.seek(0)
            last = words.read().strip().splitlines()[-1:]  # of a kernel that died
            problem = "; ".join([str(failed).strip() or type(failed).__name__, *last])
    return notebook, visible(problem.strip())


def write(notebook: Any, path: Path) -> tuple[Path, Path]:
    """Write the executed notebook and its HTML beside it."""
    path.write_text(nbformat.writes(notebook) + "\n", "utf-8")  # type: ignore[no-untyped-call]  # nbformat has no types
    page, _ = HTMLExporter().from_notebook_node(notebook)  # type: ignore[no-untyped-call]  # nor nbconvert
    html = path.with_suffix(".html")
    html.write_text(page, "utf-8")
    return path, html
