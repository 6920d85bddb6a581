"""The part of the emulation that runs inside: no names resolve, one core, an empty home.

Executes notebooks one after the other beside an idle Jupyter server, as on Binder, and prints
one line of JSON for each. Run by emulate.py with the fresh environment's Python.

    python inside.py HOME_FOLDER NOTEBOOK ...
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

LIMIT_S = 150  # for one cell
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 0x1


def loopback_up() -> None:
    """A network of our own begins with loopback down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sH14s", b"lo", 0, b"")
        flags = struct.unpack("16sH14s", fcntl.ioctl(sock, SIOCGIFFLAGS, request))[1]
        if not flags & IFF_UP:
            fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sH14s", b"lo", flags | IFF_UP, b""))


def names_resolve() -> bool:
    """Whether any name but localhost resolves here."""
    try:
        socket.getaddrinfo("pypi.org", 443)
    except OSError:
        return False
    return True


def tree_kilobytes(root: int) -> int:
    """Proportional memory of a process and all below it; a shared page counts once."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    total, waiting = 0, [root]
    while waiting:
        pid = waiting.pop()
        waiting += children.get(pid, [])
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total


class Watch:
    """The highest memory of this process's tree, looked at five times a second."""

    def __init__(self) -> None:
        self.peak = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._end.wait(0.2):
            self.peak = max(self.peak, tree_kilobytes(os.getpid()))

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


def start_server(home: Path) -> subprocess.Popen[bytes]:
    """An idle Jupyter server: its memory is part of what Binder counts."""
    return subprocess.Popen(
        [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", "--port=0",
         "--allow-root", f"--ServerApp.root_dir={home}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def play(path: Path) -> dict[str, object]:
    """Execute one notebook; a cell may fail only where its tag says so."""
    book = nbformat.read(path, as_version=4)
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    first: list[float] = []
    started = time.monotonic()

    def executed(cell: nbformat.NotebookNode, **_: object) -> None:
        if not first and cell.source.startswith("%%agent"):
            first.append(time.monotonic() - started)

    problem = ""
    client = NotebookClient(
        book, timeout=LIMIT_S, kernel_name="python3", on_cell_executed=executed,
        resources={"metadata": {"path": str(path.parent)}},
    )  # fmt: skip
    with Watch() as watch:
        try:
            client.execute()
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"[-1500:]
    texts = json.dumps([c.get("outputs") for c in book.cells])
    return {
        "notebook": path.name,
        "problem": problem,
        "first_s": round(first[0], 2) if first else None,
        "seconds": round(time.monotonic() - started, 2),
        "peak_mb": round(watch.peak / 1024),
        "local_model": "local:smollm2" in texts,
    }


def main() -> int:
    home, *notebooks = map(Path, sys.argv[1:])
    if os.environ.get("EMULATE_OWN_NETWORK"):
        loopback_up()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    if names_resolve():
        print("names still resolve here", file=sys.stderr)
        return 2
    server = start_server(home)
    try:
        for notebook in notebooks:
            print(json.dumps(play(notebook)), flush=True)
    finally:
        server.terminate()
        server.wait(timeout=30)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
