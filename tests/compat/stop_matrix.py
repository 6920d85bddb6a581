"""The Stop rule over a real kernel: Stop is shown only where a click arrives in time (D5).

Plays the panel's front end over the kernel's own channels: runs a cell that streams slowly, says
``hello`` as soon as the view stands, and waits one second for the answer, as ``panel.js`` does.
Answered: the button would be shown, so a click must end the run at once. Not answered: the line
"stop with Kernel > Interrupt" would be shown, so an interrupt must do it; a click that still gets
through later must do nothing, not even to the next run. ``EXPECTED`` says what each kernel does.
A tool that needs approval is asked about by the same rule: on the panel where Stop is shown, else by
the kernel's stdin (D20).

    python -m tests.compat.stop_matrix          (this interpreter's ipykernel)
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from queue import Empty
from typing import Any

from jupyter_client import KernelManager

SETUP = r"""
%load_ext notebook_agent
%config AgentMagics.store = "memory"
from notebook_agent import ScriptedModel
m = ScriptedModel([" ".join(f"word{i}" for i in range(120))], delay_s=0.02, name="slow")
quick = ScriptedModel(["A quick reply."])
_ = %agent model @m
from notebook_agent import tool
from notebook_agent.providers.scripted import Reply
from notebook_agent.core.messages import ToolCallPart
ran = []
@tool(confirm=True)
def delete(path: str) -> str:
    "Delete a file."
    ran.append(path)
    return "gone"
make = lambda: ScriptedModel([Reply(tool_calls=[ToolCallPart("c1", "delete", {"path": "a.txt"})]), "Done."], name="asks")
magics = get_ipython().magics_manager.registry["AgentMagics"]
"""
CELLS = {
    "awaited": "%%agent --fresh\ntell me",
    "blocking": "x = get_ipython().run_cell_magic('agent', '--fresh', 'tell me')",
    "background": "h = await magics.run_cell('--background --fresh', 'tell me')",
}
HELLO_S = 1.0  # HELLO_MS of panel.js
STOPPED_S = 0.6  # 0.25 s by itself; machines are shared
# (cell, road of the browser's messages) -> the first ipykernel, and the first one after, in which
# a click arrives while the cell runs. A front end uses subshells where the kernel offers them.
EXPECTED: dict[tuple[str, str], tuple[tuple[int, ...], tuple[int, ...]]] = {
    ("awaited", "main"): ((7, 4), (99,)),
    ("awaited", "subshell"): ((7, 0), (99,)),
    ("blocking", "main"): ((99,), (99,)),
    ("blocking", "subshell"): ((7, 0), (7, 4)),
    ("background", "main"): ((0,), (99,)),
    ("background", "subshell"): ((0,), (99,)),
}


@dataclass
class FrontEnd:
    """One kernel, and a front end that has drawn nothing yet."""

    env: dict[str, str]
    comm: str = ""
    ops: list[tuple[float, int, dict[str, Any]]] = field(default_factory=list)
    replies: dict[str, tuple[float, dict[str, Any]]] = field(default_factory=dict)
    idle: dict[str, float] = field(default_factory=dict)
    out: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)  # prompts of stdin
    subshell: str = ""

    def __post_init__(self) -> None:
        self.manager = KernelManager(kernel_name="python3")
        self.manager.start_kernel(env={**os.environ, **self.env}, stderr=None)
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)

    def open_subshell(self) -> bool:
        """Ask for a subshell, as JupyterLab does; False where the kernel has none."""
        self.client.kernel_info()
        info = self.client.get_shell_msg(timeout=20)["content"]
        if "kernel subshells" not in info.get("supported_features", []):
            return False
        self.client.control_channel.send(self.client.session.msg("create_subshell_request"))
        answer = self.client.get_control_msg(timeout=20)
        self.subshell = answer["content"]["subshell_id"]
        return True

    # ---- what comes ----

    def pump(self, until: Callable[[], Any], seconds: float) -> bool:
        """Take messages until something is true; whether it became so."""
        end = time.monotonic() + seconds
        while not until():
            if time.monotonic() >= end:
                return False
            for get, take in (
                (self.client.get_iopub_msg, self._iopub),
                (self.client.get_shell_msg, self._shell),
                (self.client.get_stdin_msg, lambda m: self.asked.append(m["content"]["prompt"])),
            ):
                try:
                    take(get(timeout=0.005))
                except Empty:
                    continue
        return True

    def _shell(self, message: dict[str, Any]) -> None:
        parent = message["parent_header"].get("msg_id", "")
        self.replies[parent] = (time.monotonic(), message["content"])

    def _iopub(self, message: dict[str, Any]) -> None:
        kind, content = message["msg_type"], message["content"]
        parent = message["parent_header"].get("msg_id", "")
        if kind == "comm_open":
            self.comm = content["comm_id"]
        elif kind == "comm_msg" and content["data"].get("method") == "custom":
            said = content["data"]["content"]
            self.ops += [(time.monotonic(), said["run"], op) for op in said.get("ops", ())]
        elif kind == "stream":
            self.out[parent] = self.out.get(parent, "") + content["text"]
        elif kind in ("display_data", "update_display_data"):
            self.out[parent] = self.out.get(parent, "") + content["data"].get("text/plain", "")
        elif kind == "status" and content["execution_state"] == "idle":
            self.idle[parent] = time.monotonic()

    # ---- what goes ----

    def send(self, code: str) -> str:
        return self.client.execute(code, allow_stdin=True, store_history=True)

    def run(self, code: str, seconds: float = 30.0) -> str:
        """Run a cell; what it printed and showed."""
        sent = self.send(code)
        if not self.pump(lambda: sent in self.replies and sent in self.idle, seconds):
            raise AssertionError(f"no end of {code[:60]!r} within {seconds} s")
        status = self.replies[sent][1]
        assert status["status"] == "ok", status
        return self.out.get(sent, "")

    def say(self, content: dict[str, Any], road: str) -> None:
        """A message of the panel's view."""
        message = self.client.session.msg(
            "comm_msg", {"comm_id": self.comm, "data": {"method": "custom", "content": content}}
        )
        if road == "subshell":
            message["header"]["subshell_id"] = self.subshell
        self.client.shell_channel.send(message)

    def answered(self, nonce: str) -> dict[str, Any] | None:
        return next((op for _, _, op in self.ops if op["t"] == "hi" and op.get("nonce") == nonce), None)  # fmt: skip

    def newest_run(self) -> int:
        return max((run for _, run, _ in self.ops), default=0)

    def text(self, run: int) -> str:
        """The reply as the view of this run shows it."""
        tail = ""
        for _, which, op in self.ops:
            if which == run and op["t"] == "d" and op["lane"] == "text":
                tail += op["text"]
            elif which == run and op["t"] in ("full", "end"):
                tail = "".join(one.get("html", "") for one in op["full"]["items"]) + op["full"]["tail"]  # fmt: skip
        return tail


@dataclass(frozen=True)
class Found:
    """What one cell on one road came to."""

    cell: str
    road: str
    shown: bool
    hello_s: float | None
    stop_s: float
    deltas: int
    by: str
    trouble: tuple[str, ...]


def try_stop(front: FrontEnd, cell: str, road: str) -> Found:
    """Run, greet, stop the way that the panel would offer."""
    trouble: list[str] = []
    front.ops.clear()
    sent, began = front.send(CELLS[cell]), time.monotonic()
    queued = front.send("1 + 1")  # as Run All does
    if not front.pump(lambda: len(front.ops) and front.comm, 10):
        return Found(cell, road, False, None, 0.0, 0, "", ("no panel message came",))
    run, nonce = front.newest_run(), f"{cell}-{road}-{began}"
    said = time.monotonic()
    front.say({"t": "hello", "nonce": nonce, "schema": 1}, road)
    front.pump(lambda: front.answered(nonce), HELLO_S)
    hi = front.answered(nonce)
    hello_s = time.monotonic() - said if hi else None
    shown = bool(hi and hi["stop"])
    front.pump(lambda: time.monotonic() - said > HELLO_S, HELLO_S + 0.2)  # text goes on meanwhile
    deltas = sum(op["t"] == "d" for _, which, op in front.ops if which == run)
    if deltas < 10:
        trouble.append(f"only {deltas} flushes of text in {time.monotonic() - began:.1f} s")
    if "word1" not in front.text(run):
        trouble.append("the text does not grow while the cell runs")
    if cell != "background" and sent in front.replies:
        trouble.append("the cell was over before it was stopped")

    ended = lambda: any(op["t"] == "end" for _, which, op in front.ops if which == run)  # noqa: E731  # one line, one use
    front.say({"t": "stop", "run": run}, road)  # a click; nobody can click where there is no button
    clicked = time.monotonic()
    came = front.pump(ended, STOPPED_S)
    stop_s, by = time.monotonic() - clicked, "click"
    if came != shown:
        trouble.append(
            "Stop is shown, but the click did nothing" if shown else "the click arrives, but no Stop is shown"
        )  # fmt: skip
    if not came:
        front.manager.interrupt_kernel()
        clicked, by = time.monotonic(), "interrupt"
        front.pump(ended, 3.0)
        stop_s = time.monotonic() - clicked
    front.pump(lambda: sent in front.idle and {sent, queued} <= set(front.replies), 5)
    if stop_s > STOPPED_S:
        trouble.append(f"{by} to the end took {stop_s:.2f} s")
    content = front.replies.get(sent, (0.0, {"status": "no reply"}))[1]
    want = "ok" if by == "click" or cell == "background" else "error"
    if content["status"] != want:
        trouble.append(f"the cell ended {content['status']}, not {want}")
    went = front.replies.get(queued, (0.0, {"status": "no reply"}))[1]["status"]
    if went != ("ok" if want == "ok" else "aborted"):
        trouble.append(f"the next cell of Run All: {went} after a {by}")
    if by == "interrupt" and content.get("traceback") != ["Cancelled: stopped"]:
        trouble.append(f"traceback {str(content.get('traceback'))[:300]}")
    trouble += after(front, cell)
    return Found(cell, road, shown, hello_s, stop_s, deltas, by, tuple(trouble))


def approval(front: FrontEnd, road: str) -> Iterator[str]:
    """A tool asks: on the panel where its clicks arrive, else by stdin; allowed, it runs (D20)."""
    front.ops.clear()
    front.asked.clear()
    front.run("ran.clear()\nasks = make()")
    sent = front.send("%%agent --fresh -m @asks -t delete\ndelete it")
    front.pump(lambda: len(front.ops), 10)
    run, nonce = front.newest_run(), f"approval-{road}-{sent}"
    front.say({"t": "hello", "nonce": nonce}, road)

    def question() -> dict[str, Any] | None:
        states = (op.get("state") or op.get("full", {}).get("state") for _, _, op in front.ops)
        return next((s["ask"] for s in states if s and s.get("ask")), None)

    if not front.pump(lambda: question() or front.asked, 5):
        yield f"approval by {road}: nobody was asked"
    shown = bool((front.answered(nonce) or {}).get("stop"))
    ask = question()
    if (ask is not None) != shown or bool(front.asked) == shown:
        yield f"approval by {road}: Stop {shown}, panel asked {ask}, stdin asked {front.asked}"
    if ask is not None:
        front.say({"t": "answer", "run": run, "n": ask["n"], "allow": True}, road)
    else:
        front.client.input("y")
    front.pump(lambda: sent in front.replies and sent in front.idle, 5)
    said = front.run("print(ran, _.status.value)").strip()
    if said != "['a.txt'] completed":
        yield f"approval by {road}: {said}"


def after(front: FrontEnd, cell: str) -> Iterator[str]:
    """The run is cancelled, nothing is left running, and a late click is forgotten."""
    front.pump(lambda: False, 0.3)  # older kernels abort for a while what comes after an error
    status = "h.result.status.value" if cell == "background" else "_.status.value"
    said = front.run(f"print({status}, m.open_streams)").split()
    if said != ["cancelled", "0"]:
        yield f"after the stop: {said}"
    kept = front.run("%%agent --fresh -m @quick\nand now?")
    if "A quick reply." not in kept or "completed" not in kept:
        yield f"a late click stopped the next run: {kept[-200:]!r}"


def background_cancel(front: FrontEnd) -> list[str]:
    """``--background`` gives its handle at once and ``cancel()`` works on every kernel."""
    began = time.monotonic()
    front.run(CELLS["background"])
    trouble = [] if time.monotonic() - began < 1.0 else ["the handle did not come at once"]
    front.run("import time\ntime.sleep(0.3)\nh.cancel()\nr = await h")
    said = front.run("print(r.status.value, h.result is r, m.open_streams)").split()
    return trouble if said == ["cancelled", "True", "0"] else [*trouble, f"cancel(): {said}"]


def matrix() -> tuple[str, list[Found], int, list[str]]:
    """Every cell on every road of this interpreter's kernel.

    Returns:
        Versions, what was found, how many checks there were, and everything that is wrong.
    """
    import ipykernel
    import IPython

    version = tuple(int(n) for n in ipykernel.__version__.split(".")[:2])
    names = f"ipykernel {ipykernel.__version__}, IPython {IPython.__version__}, Python {sys.version.split()[0]}"
    found: list[Found] = []
    with tempfile.TemporaryDirectory() as home:
        env = {"HOME": home, "XDG_DATA_HOME": home, "IPYTHONDIR": home, "NOTEBOOK_AGENT_DISPLAY": "panel"}  # fmt: skip
        front = FrontEnd(env)
        try:
            roads = ("main", "subshell") if front.open_subshell() else ("main",)
            front.run(SETUP)
            front.run("%%agent --fresh -m @quick\nthe engine loads")
            found = [try_stop(front, cell, road) for road in roads for cell in CELLS]
            wrong = background_cancel(front)
            wrong += [line for road in roads for line in approval(front, road)]
            checks = len(found) + 1 + len(roads)
        finally:
            front.close()
    for one in found:
        first, past = EXPECTED[one.cell, one.road]
        if one.shown != (first <= version < past):
            wrong.append(f"{one.cell} by {one.road}: Stop {'is' if one.shown else 'is not'} shown")
        wrong += [f"{one.cell} by {one.road}: {words}" for words in one.trouble]
    return names, found, checks, wrong


def main() -> int:
    names, found, checks, wrong = matrix()
    print(f"Stop, {names}")
    for one in found:
        hello = "no answer" if one.hello_s is None else f"hello {one.hello_s * 1e3:4.0f} ms"
        offer = "Stop" if one.shown else "line"
        print(f"  {one.cell:10} {one.road:8} {hello:13} -> {offer}, stopped by {one.by:9} in {one.stop_s * 1e3:4.0f} ms, {one.deltas} flushes")  # fmt: skip
    for line in wrong:
        print(f"  WRONG: {line}")
    print(json.dumps({"kernel": names, "checks": checks, "wrong": len(wrong)}))
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
