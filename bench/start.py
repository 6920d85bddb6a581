"""What it costs to start: import, %load_ext, memory after 100 turns, the first tool call.

Each figure is taken in fresh processes, median of five, CPU time. Yardstick of the import:
``import httpx, pydantic`` in processes of their own, in turn with ours.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from bench.kit import Row, fresh, plain_row, ratio_row, timed_row

IMPORT = """
import json, sys, time
t = time.process_time()
{statement}
t = time.process_time() - t
heavy = [m for m in ("pandas", "ipywidgets", "tiktoken", "xllamacpp", "IPython") if m in sys.modules]
print(json.dumps([t, heavy]))
"""
LOAD_EXT = """
import builtins, json, os, socket, sys, threading, time
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
ip = InteractiveShell.instance()
opened, watching = [], False
def watch(event, args):
    if not watching:
        return
    if event.startswith("socket."):
        opened.append(event)
    if event == "open" and isinstance(args[0], str) and args[1] not in ("r", "rb", None):
        opened.append(args[0])
sys.addaudithook(watch)
threads = threading.active_count()
with capture_output() as said:
    watching = not os.environ.get("COMPILING")
    t = time.process_time()
    ip.run_line_magic("load_ext", "notebook_agent")
    t = time.process_time() - t
    watching = False
print(json.dumps([t, opened, threading.active_count() - threads, said.stdout + said.stderr]))
"""
# The peak of this program: ru_maxrss is handed on by exec, and would be the bench's own.
PEAK = """
import json, resource, sys
def peak_mb():
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024
    except OSError:
        unit = 1024 * 1024 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
"""
MEMORY = (
    PEAK
    + """
import asyncio
from notebook_agent import AgentRuntime, ScriptedModel
from notebook_agent.engine.tokenizer import default_counter
runtime = AgentRuntime(ScriptedModel(["word " * 50]), counter=default_counter(kind="estimate"))
async def main():
    for _ in range(100):
        await runtime.arun("Say something.")
asyncio.run(main())
print(json.dumps(peak_mb()))
"""
)
TOOL = """
import asyncio, json, time
from notebook_agent import AgentRuntime, ScriptedModel, tool
from notebook_agent.core.messages import ToolCallPart
from notebook_agent.engine.tokenizer import default_counter
from notebook_agent.providers.scripted import Reply

@tool
def look(x: int) -> str:
    "Look."
    return "seen"

def reply(request):
    if request.messages[-1].results:
        return "Done."
    return Reply(tool_calls=[ToolCallPart(f"c{len(request.messages)}", "look", {"x": 1})])

runtime = AgentRuntime(ScriptedModel(reply), tools=[look], counter=default_counter(kind="estimate"))
async def main():
    taken = []
    for _ in range(7):
        began = time.process_time()
        await runtime.arun("Look, please.")
        taken.append(time.process_time() - began)
    return taken
print(json.dumps(asyncio.run(main())))
"""


def rows(quick: bool) -> Iterator[Row]:
    """The rows of this bench."""
    times = 3 if quick else 5
    ours, theirs, names, heavy = [], [], [], []
    fresh(IMPORT.format(statement="import notebook_agent, httpx, pydantic"))  # compiles
    public = "AgentRuntime, ScriptedModel, model, tool"
    for _ in range(times):
        taken, loaded = fresh(IMPORT.format(statement="import notebook_agent"))
        ours.append(taken)
        heavy += loaded
        theirs.append(fresh(IMPORT.format(statement="import httpx, pydantic"))[0])
        taken, loaded = fresh(IMPORT.format(statement=f"from notebook_agent import {public}"))
        names.append(taken)
        heavy += loaded
    base = statistics.median(theirs)
    yard = "import httpx, pydantic"
    yield ratio_row(1, "import notebook_agent", statistics.median(ours), base, 1.3, yard=yard)
    yield ratio_row(1, f"from notebook_agent import {public}", statistics.median(names), base, None, yard=yard)  # fmt: skip
    yield plain_row(
        1, "heavy packages loaded by import (pandas, ipywidgets, tiktoken, xllamacpp)",
        ", ".join(sorted(set(heavy))) or "none", "none", not heavy,
    )  # fmt: skip
    fresh(LOAD_EXT, COMPILING="1")
    loads = [fresh(LOAD_EXT) for _ in range(times)]
    load = statistics.median(one[0] for one in loads)
    yield timed_row(1, "%load_ext notebook_agent", load, "ms", 300, yard=(yard, base))
    touched = [one for load_ in loads for one in load_[1]]
    said, threads = "".join(one[3] for one in loads), sum(one[2] for one in loads)
    yield plain_row(
        1, "sockets, files written, threads, characters printed by %load_ext",
        f"{len(touched)}, {threads}, {len(said)}" if touched or said or threads else "none",
        "none", not (touched or said or threads),
    )  # fmt: skip
    peak = statistics.median(fresh(MEMORY) for _ in range(times))
    bare = fresh(PEAK + "import httpx, pydantic\nprint(json.dumps(peak_mb()))")
    yield plain_row(
        1, "peak memory after 100 turns, no tokenizer", f"{peak:.1f} MB", "<= 60 MB", peak <= 60,
        yardstick=f"httpx and pydantic {bare:.1f} MB", ratio=peak / bare,
    )  # fmt: skip
    firsts, laters = [], []
    for _ in range(times):
        taken = fresh(TOOL)
        firsts.append(taken[0])
        laters.append(statistics.median(taken[2:]))
    yield timed_row(
        3, "first run with a tool call, beside later ones", statistics.median(firsts), "ms", None,
        yard=("later run", statistics.median(laters)),
    )  # fmt: skip
