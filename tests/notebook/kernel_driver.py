"""A real kernel, driven as a front end drives it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from queue import Empty
from typing import Any

from jupyter_client import KernelManager


def _waiting(get: Callable[..., dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """What waits on a channel. All of it: a kernel drops what a slow reader leaves there."""
    wait = 0.01
    for _ in range(1_000):
        try:
            yield get(timeout=wait)
        except Empty:
            return
        wait = 0


@dataclass
class Cell:
    """What one execute request came to."""

    status: str = ""
    ename: str = ""
    evalue: str = ""
    traceback: list[str] = field(default_factory=list)
    outputs: list[dict[str, Any]] = field(default_factory=list)
    payload: list[dict[str, Any]] = field(default_factory=list)
    comms: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0
    idle_at: float = 0.0

    @property
    def stdout(self) -> str:
        return "".join(
            o["text"]
            for o in self.outputs
            if o["output_type"] == "stream" and o["name"] == "stdout"
        )

    @property
    def stderr(self) -> str:
        return "".join(
            o["text"]
            for o in self.outputs
            if o["output_type"] == "stream" and o["name"] == "stderr"
        )

    @property
    def plain(self) -> str:
        """All text/plain of displays and results, in order."""
        return "\n".join(o["data"].get("text/plain", "") for o in self.outputs if "data" in o)

    @property
    def everything(self) -> str:
        return repr(self.outputs) + repr(self.traceback) + self.evalue


class Kernel:
    def __init__(self, env: dict[str, str]) -> None:
        self.manager = KernelManager(kernel_name="python3")
        self.manager.start_kernel(env={**os.environ, **env}, stderr=None)
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)
        self.answers: list[str] = []
        self.opened: list[str] = []  # comms that the kernel has opened

    def send(self, code: str, *, allow_stdin: bool = True) -> str:
        return self.client.execute(code, allow_stdin=allow_stdin, store_history=True)

    def collect(self, *ids: str, timeout: float = 40.0) -> list[Cell]:
        """Wait until these requests are answered and their outputs are in."""
        cells = {one: Cell() for one in ids}
        replied, idle = set(), set()
        began = time.monotonic()
        while (
            len(replied) < len(ids) or len(idle) < len(ids)
        ) and time.monotonic() - began < timeout:
            for get, take in (
                (self.client.get_shell_msg, self._shell),
                (self.client.get_iopub_msg, self._iopub),
                (self.client.get_stdin_msg, self._stdin),
            ):
                for message in _waiting(get):
                    parent = message["parent_header"].get("msg_id")
                    if parent in cells:
                        take(message, parent, cells[parent], replied, idle, began)
        assert len(replied) == len(ids), f"no answer within {timeout} s"
        return [cells[one] for one in ids]

    def _shell(self, message, parent, cell, replied, idle, began) -> None:
        content = message["content"]
        cell.status = content["status"]
        cell.ename = content.get("ename", "")
        cell.evalue = content.get("evalue", "")
        cell.traceback = content.get("traceback", [])
        cell.payload = content.get("payload", [])
        cell.seconds = time.monotonic() - began
        replied.add(parent)
        if content["status"] == "aborted":
            idle.add(parent)

    def _iopub(self, message, parent, cell, replied, idle, began) -> None:
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            cell.outputs.append({"output_type": "stream", **content})
        elif kind in ("display_data", "execute_result", "update_display_data", "error"):
            cell.outputs.append({"output_type": kind, **content})
        elif kind.startswith("comm_"):
            cell.comms.append({"type": kind, **content})
            if kind == "comm_open":
                self.opened.append(content["comm_id"])
        elif kind == "status" and content["execution_state"] == "idle":
            cell.idle_at = time.monotonic()
            idle.add(parent)

    def _stdin(self, message, parent, cell, replied, idle, began) -> None:
        cell.outputs.append(
            {"output_type": "input_request", "text": message["content"]["prompt"], "name": "stdin"}
        )
        if self.answers:
            self.client.input(self.answers.pop(0))

    def run(self, code: str, **more: Any) -> Cell:
        return self.collect(self.send(code, **more))[0]

    def interrupt(self) -> float:
        self.manager.interrupt_kernel()
        return time.monotonic()

    def close(self) -> None:
        """End it as a front end does, so that what runs at exit runs."""
        self.manager.shutdown_kernel()
        self.client.stop_channels()
