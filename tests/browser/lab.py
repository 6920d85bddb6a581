"""A real JupyterLab on loopback, one headless Chromium, and the few moves a person makes.

Settings live in a throw-away folder, so nothing of the user's leaks in and nothing is left.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from tests.browser.harness import browser

SETUP = """
%load_ext notebook_agent
%config AgentMagics.store = "memory"
from notebook_agent.providers.scripted import ScriptedModel, Reply
"""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Lab:
    """A running server; ``root`` is its notebook folder."""

    def __init__(self, root: Path, app: str = "lab", env: dict[str, str] | None = None) -> None:
        self.root, self.app = root, app
        self.port, self.token = free_port(), secrets.token_hex(8)
        self.home = Path(tempfile.mkdtemp(prefix="na_lab"))
        self.set("apputils-extension", "notification",
                 fetchNews="false", checkForUpdates=False, doNotDisturbMode=True)  # fmt: skip
        full = {
            **os.environ,
            "JUPYTER_CONFIG_DIR": str(self.home),
            "JUPYTERLAB_SETTINGS_DIR": str(self.home / "lab"),
            "JUPYTERLAB_WORKSPACES_DIR": str(self.home / "ws"),
            "JUPYTER_RUNTIME_DIR": str(self.home / "rt"),
            "IPYTHONDIR": str(self.home / "ipy"),
            "XDG_DATA_HOME": str(self.home / "data"),
            **(env or {}),
        }
        full.pop("NOTEBOOK_AGENT_DISPLAY", None)
        command = [
            sys.executable, "-m", "jupyter", app, "--allow-root", "--no-browser",
            "--ServerApp.ip=127.0.0.1", f"--ServerApp.port={self.port}",
            f"--IdentityProvider.token={self.token}", f"--ServerApp.root_dir={root}",
        ]  # fmt: skip
        self.log = (self.home / "log").open("w")
        self.process = subprocess.Popen(command, env=full, stdout=self.log, stderr=self.log)
        for _ in range(150):
            try:
                self.api("")
                return
            except OSError:
                if self.process.poll() is not None:
                    raise RuntimeError((self.home / "log").read_text()[-2000:]) from None
                time.sleep(0.2)
        raise RuntimeError("the Jupyter server did not start")

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def set(self, extension: str, plugin: str, **values: Any) -> None:
        """Write settings of one of JupyterLab's plugins; a page that is loaded later has them."""
        folder = self.home / "lab/@jupyterlab" / extension
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{plugin}.jupyterlab-settings").write_text(json.dumps(values))

    def api(self, path: str, method: str = "GET") -> Any:
        """Call the server's API."""
        request = urllib.request.Request(
            f"{self.base}/api/{path}?token={self.token}", method=method
        )
        with urllib.request.urlopen(request, timeout=5) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def end_sessions(self) -> None:
        """End every kernel."""
        for session in self.api("sessions"):
            with contextlib.suppress(OSError):
                self.api(f"sessions/{session['id']}", "DELETE")

    def kernel(self, name: str) -> str:
        """The kernel's id of a notebook."""
        return next(s["kernel"]["id"] for s in self.api("sessions") if s["path"] == name)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.end_sessions()
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        if self.process.poll() is None:
            self.process.kill()
        self.log.close()
        shutil.rmtree(self.home, ignore_errors=True)


def write_notebook(path: Path, cells: list[str]) -> None:
    """A notebook of code cells without outputs."""
    made = [
        {"cell_type": "code", "id": f"c{i}", "metadata": {}, "outputs": [],
         "execution_count": None, "source": source}
        for i, source in enumerate(cells)
    ]  # fmt: skip
    spec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    path.write_text(
        json.dumps({"cells": made, "metadata": {"kernelspec": spec}, "nbformat": 4,
                    "nbformat_minor": 5})
    )  # fmt: skip


def set_theme(page: Any, theme: str) -> None:
    """Through the settings menu, as a reader does; JupyterLab hides the page under its splash
    while the style sheet of the theme is loaded."""
    page.click("text=Settings")
    page.click(".lm-Menu-item:has-text('Theme')")
    page.click(f".lm-Menu-item:has-text('JupyterLab {theme.title()}') >> nth=0")
    page.wait_for_function(f"document.body.dataset.jpThemeLight === '{str(theme == 'light').lower()}'")  # fmt: skip
    page.wait_for_function("!document.querySelector('#jupyterlab-splash, .jp-Splash, #galaxy')")


class Notebook:
    """One notebook open in the page."""

    def __init__(self, lab: Lab, page: Any, name: str, cells: list[str] | None = None) -> None:
        self.lab, self.page, self.name = lab, page, name
        if cells is not None:
            write_notebook(lab.root / name, cells)
        self.open()

    def open(self) -> None:
        """Open it, or open it again, and wait for an idle kernel."""
        where = "notebooks" if self.lab.app == "notebook" else "lab/tree"
        self.page.goto(f"{self.lab.base}/{where}/{self.name}?token={self.lab.token}&reset")
        self.page.wait_for_selector(".jp-NotebookPanel .jp-CodeCell", timeout=60_000)
        self.wait_idle()

    def wait_idle(self) -> None:
        self.page.wait_for_function(
            "document.querySelector('.jp-NotebookPanel [data-status=idle],"
            " .jp-Notebook-ExecutionIndicator[data-status=idle]')",
            timeout=60_000,
        )

    def prompt(self, i: int) -> str:
        return self.page.evaluate(
            "i => document.querySelectorAll('.jp-NotebookPanel .jp-CodeCell .jp-InputPrompt')[i]"
            "?.textContent || ''",
            i,
        )

    def run(self, i: int, *, done: float = 0) -> None:
        """Run a cell with Ctrl+Enter; wait up to ``done`` seconds for its end."""
        before = self.prompt(i)
        for _ in range(8):  # the first key press after load can be lost while focus is restored
            for button in self.page.locator(".jp-Dialog button.jp-mod-accept").all():
                with contextlib.suppress(Exception):
                    button.click(timeout=500)
            try:
                self.page.locator(".jp-NotebookPanel .jp-CodeCell .jp-InputArea-editor").nth(
                    i
                ).click(timeout=3000)
            except Exception:
                continue
            self.page.keyboard.press("Control+Enter")
            end = time.monotonic() + 2
            while time.monotonic() < end and self.prompt(i) == before:
                time.sleep(0.02)
            if self.prompt(i) != before:
                break
        if done:
            self.wait_done(i, done)

    def wait_done(self, i: int, seconds: float) -> None:
        """``[3]:`` is finished, ``[*]:`` runs."""
        self.page.wait_for_function(
            "i => /\\[\\d+\\]/.test(document.querySelectorAll("
            "'.jp-NotebookPanel .jp-CodeCell .jp-InputPrompt')[i].textContent)",
            arg=i,
            timeout=seconds * 1000,
        )

    def output(self, i: int) -> Any:
        """The output area of a cell."""
        return (
            self.page.locator(".jp-NotebookPanel .jp-CodeCell")
            .nth(i)
            .locator(".jp-Cell-outputWrapper")
        )

    def panel(self, i: int) -> Any:
        """The live panel in a cell."""
        return self.output(i).locator(".na")

    def shown(self, i: int) -> str:
        """Text of a cell even while it runs, for messages."""
        return self.output(i).inner_text()

    def text(self, i: int) -> str:
        return self.output(i).inner_text()

    def save(self) -> dict:
        """Save and read back the file."""
        path = self.lab.root / self.name
        before = path.stat().st_mtime_ns
        self.page.keyboard.press("Escape")
        self.page.keyboard.press("Control+s")
        end = time.monotonic() + 10
        while time.monotonic() < end and path.stat().st_mtime_ns == before:
            time.sleep(0.05)
        for _ in range(40):  # the file may be half written
            with contextlib.suppress(ValueError):
                return json.loads(path.read_text())
            time.sleep(0.05)
        raise RuntimeError("the notebook was not saved")

    def interrupt(self) -> None:
        """The kernel interrupt of the toolbar's stop button, by the server's API."""
        self.lab.api(f"kernels/{self.lab.kernel(self.name)}/interrupt", "POST")


@contextlib.contextmanager
def lab_page(root: Path, *, app: str = "lab", width: int = 1240, height: int = 900):
    """A server and a page; ``app`` is lab or notebook."""
    lab = Lab(root, app)
    try:
        with browser(width, height) as page:
            yield lab, page
    finally:
        lab.close()
