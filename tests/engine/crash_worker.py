"""The crash test's own process: forks victims, kills them from outside, forks resumers, checks.

Run as ``python -m tests.engine.crash_worker FOLDER KILLS EACH SEED``. It imports once and forks
per kill, so that hundreds of kills take a minute. One JSON line at the end says what happened.

A victim works runs on a SQLite file and marks in shared memory where it stands; the killer waits
for the mark it aims at and a random moment more, then sends SIGKILL. A fresh process then
resumes what is left and checks every promise.
"""

from __future__ import annotations

import asyncio
import json
import mmap
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from functools import partial
from pathlib import Path

from notebook_agent.core.compaction import CompactionPolicy
from notebook_agent.core.messages import Role, ToolCallPart
from notebook_agent.core.replay import replay
from notebook_agent.core.run_state import fold
from notebook_agent.core.session import RunStatus
from notebook_agent.core.turn_fsm import TurnState
from notebook_agent.engine.runtime import STEPS, AgentRuntime, broken_runs
from notebook_agent.engine.store.sqlite import SqliteStore
from notebook_agent.engine.tools import tool
from notebook_agent.engine.tools.validate import schema_faults
from notebook_agent.providers.scripted import Reply, ScriptedModel
from tests.engine.runtime_kit import CharCounter, check_b13, check_legal

STATES = [state.name for state in TurnState]
TOOL = "TOOL"  # between a tool's start and its record
TARGETS = [*STATES, TOOL]
RUNS_PER_FILE = 10  # every resumer reads all of its file again


class Marks:
    """Shared memory: where the victim stands. Byte 0 the state + 1, byte 1 a tool is running,
    byte 2 how many states were entered (mod 256), byte 3 the victim's last run is complete."""

    def __init__(self):
        self.map = mmap.mmap(-1, 16)

    def clear(self):
        self.map[:4] = bytes(4)

    @property
    def state(self):
        at = self.map[0]
        return STATES[at - 1] if at else None

    @property
    def in_tool(self):
        return bool(self.map[1])

    def at(self, target):
        return self.in_tool if target == TOOL else self.state == target


class MarkingStore(SqliteStore):
    """Clears the tool mark when the tool's result is durable."""

    marks = None

    def finish_tool(self, execution):
        super().finish_tool(execution)
        self.marks.map[1] = 0


def reply_to(request):
    """Two turns of tools, then an answer; whatever process asks."""
    at = max(n for n, m in enumerate(request.messages) if m.role is Role.USER and not m.results)
    question = request.messages[at].text_content().split()[0]
    done = sum(1 for m in request.messages[at:] if m.results)
    if done == 2:
        return Reply(text=f"Answer to {question}. " + "word " * 30, delay_s=0.0001, sizes=[40])
    calls = [
        ToolCallPart(f"{question}_{done}_{kind}", kind, {"name": f"{question}_{done}_{kind}"})
        for kind in ("once", "again")
    ]
    return Reply(text="Working.", tool_calls=calls, delay_s=0.0005, sizes=[4])


def make_runtime(folder, marks, file, *, slow):
    def begin(name, nap):
        with (folder / "starts.txt").open("a") as out:  # the tool's own mark that it started
            out.write(f"{name}\n")
        marks.map[1] = 1
        time.sleep(nap)
        return f"{name} done"

    @tool
    def once(name: str) -> str:
        """Not idempotent: must never start twice."""
        return begin(name, slow())

    @tool(idempotent=True)
    async def again(name: str) -> str:
        """May start again."""
        with (folder / "starts.txt").open("a") as out:
            out.write(f"{name}\n")
        marks.map[1] = 1
        await asyncio.sleep(slow())
        return f"{name} done"

    store = MarkingStore(folder / file)
    store.marks = marks
    return AgentRuntime(
        ScriptedModel(reply_to),
        tools=[once, again],
        store=store,
        session="crash",
        counter=CharCounter(),
        compaction=CompactionPolicy(window=6_000, keep_tokens=2_000),
    )


def slow_steps(marks, rng):
    """Every step marks itself and takes a moment before and after its work."""
    for number, (state, step) in enumerate(list(STEPS.items())):

        async def slowly(run, number=number, step=step):
            marks.map[0] = number + 1
            marks.map[2] = (marks.map[2] + 1) % 256
            await asyncio.sleep(rng.uniform(0, 0.0015))
            outcome = await step(run)
            await asyncio.sleep(rng.uniform(0, 0.0015))
            return outcome

        STEPS[state] = slowly


def victim(folder, file, marks, question, seed):
    rng = random.Random(seed)
    slow_steps(marks, rng)
    runtime = make_runtime(folder, marks, file, slow=lambda: rng.uniform(0.001, 0.004))
    runtime.run(f"{question} please " + "x" * 100)
    marks.map[3] = 1
    runtime.store.close()


def resumer(folder, file, marks):
    """Resume what is left, then check everything. Returns facts for the report."""
    runtime = make_runtime(folder, marks, file, slow=lambda: 0.0)
    store = runtime.store
    left = broken_runs(store, runtime.session.id)
    assert len(left) <= 1, f"{len(left)} broken runs"
    resumed = 0
    for snapshot in left:
        result = runtime.resume(snapshot.run_id)
        assert result.status is RunStatus.COMPLETED, result.status
        resumed += 1
    answered = check_all(store, runtime.session.id)
    loaded = make_runtime(folder, marks, file, slow=lambda: 0.0)
    assert loaded.session.history == runtime.session.history
    check_legal(runtime.session.history)
    store.close()
    loaded.store.close()
    return {"resumed": resumed, **answered}


def check_all(store, session_id):
    runs = store.list_runs(session_id)
    lost = doubled = unanswered = 0
    log = store.list_messages(session_id)
    for run in runs:
        assert run.status is RunStatus.COMPLETED, (run.id, run.status)
        turns = [t.turn for t in run.turns]
        lost += len(set(range(3)) - set(turns))
        doubled += len(turns) - len(set(turns))
        mine = [r.message for r in log if r.run_id == run.id and r.kind == "message"]
        ids = [m.id for m in mine]
        doubled += len(ids) - len(set(ids))
        calls = {c.id for m in mine for c in m.tool_calls}
        results = {r.call_id for m in mine for r in m.results}
        unanswered += len(calls - results)
        lost += max(0, 6 - len(set(ids)))  # question, 2 x (calls, results), answer
        records = store.records(run.id)
        report = replay(records)
        assert report.ok, str(report)
        assert report.complete
        check_b13(records)
        assert fold(records) == store.state(run.id)
        events = store.events(run.id)
        assert sum(e.terminal for e in events) == 1
        assert events[-1].terminal
        assert store.get_snapshot(run.id) is None
    return {"runs": len(runs), "lost": lost, "doubled": doubled, "unanswered": unanswered}


def in_child(work):
    """Fork; the child's answer comes back as JSON. Returns (pid, read end)."""
    read, write = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write)
        return pid, read
    os.close(read)
    code = 0
    try:
        answer = work()
        os.write(write, json.dumps(answer).encode())
    except BaseException:
        os.write(write, json.dumps({"error": traceback.format_exc()[-1500:]}).encode())
        code = 1
    os._exit(code)


def kill_at(pid, marks, target, nth, rng):
    """Wait for the nth time the mark is seen, a random moment more, and kill."""
    seen, inside = 0, False
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        done, _ = os.waitpid(pid, os.WNOHANG)
        if done:
            return False
        now = marks.at(target)
        if now and not inside:
            seen += 1
            if seen >= nth:
                break
        inside = now
        time.sleep(0.0001)
    time.sleep(rng.uniform(0, 0.0012))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return True


def main(folder, kills_wanted, each, seed):
    schema_faults({"type": "object"}, {})  # loads its library now, not in every fork
    rng = random.Random(seed)
    folder = Path(folder)
    marks = Marks()
    at = Counter()
    total = Counter()
    n = 0
    while n < kills_wanted * 4 and (
        total["kills"] < kills_wanted or any(at[t] < each for t in TARGETS)
    ):
        file = f"crash_{n // RUNS_PER_FILE}.db"
        target = min(TARGETS, key=lambda t: (at[t], rng.random()))
        marks.clear()
        question = f"q{n}"
        child_seed = rng.random()
        pid, read = in_child(partial(victim, folder, file, marks, question, child_seed))
        killed = kill_at(pid, marks, target, rng.choice([1, 1, 2, 3]), rng)
        os.close(read)
        n += 1
        if killed and marks.map[3] == 0 and marks.state is not None:
            total["kills"] += 1
            at[marks.state] += 1
            at[TOOL] += marks.in_tool
        marks.clear()
        pid, read = in_child(partial(resumer, folder, file, marks))
        with os.fdopen(read) as pipe:
            answer = json.loads(pipe.read() or '{"error": "the resumer died"}')
        os.waitpid(pid, 0)
        if "error" in answer:
            print(json.dumps({"failed_at": n, "target": target, **answer}))
            return 1
        total["resumes"] += answer["resumed"]
        total["unanswered"] = max(total["unanswered"], answer["unanswered"])
        total["lost"] = max(total["lost"], answer["lost"])
        total["doubled"] = max(total["doubled"], answer["doubled"])
    starts = Counter((folder / "starts.txt").read_text().split())
    twice = [name for name, count in starts.items() if count > 1 and name.endswith("_once")]
    print(
        json.dumps(
            {
                "kills": total["kills"],
                "resumes": total["resumes"],
                "rows_lost": total["lost"],
                "rows_doubled": total["doubled"],
                "calls_unanswered": total["unanswered"],
                "tools_started_twice": len(twice),
                "at": dict(at),
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))
