"""What the stores cost: CPU time, median of five, beside a yardstick timed in the same run.

The yardstick is the same number of SQLite inserts of one JSON text each, in one transaction per
insert: what any store on this disk pays.

``python -m bench.store --kills N`` kills a writer N times instead.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.kit import Row, timed_row
from notebook_agent.core import outcomes as o
from notebook_agent.core.messages import Message
from notebook_agent.core.response import ChatResponse, Usage
from notebook_agent.core.session import Run, RunEventRecord, Turn
from notebook_agent.core.turn_fsm import Continue, TurnState, resolve
from notebook_agent.engine.store.base import Commit, MessageRecord, SessionRow, Snapshot, Store
from notebook_agent.engine.store.memory import MemoryStore
from notebook_agent.engine.store.open import load_session
from notebook_agent.engine.store.sqlite import SqliteStore
from notebook_agent.notebook.audit import audit_frame

TEXT = "A reply of ordinary length, as a model gives it, with a few sentences in it. " * 4


def median(work: Callable[[], object], *, times: int = 5, clock=time.process_time) -> float:
    """Seconds, median; the first call warms up and is not counted."""
    work()
    taken = []
    for _ in range(times):
        began = clock()
        work()
        taken.append(clock() - began)
    return statistics.median(taken)


def outcomes_of_a_turn(n: int) -> list[o.TurnOutcome]:
    ref = o.ContextRef(
        ids=(f"u{n}",), digest="d" * 64, estimate=1000, route="scripted:m", window=8000
    )
    reply = ChatResponse(
        Message.assistant(TEXT, id=f"a{n}"), usage=Usage(100, 50), model="scripted:m"
    )
    return [
        o.Ok(), o.ContextReady(ref=ref), o.ModelResponse(reply), o.ToolCallsPresent(("c",)),
        o.ToolResultsRecorded(("c",)), o.Persisted(),
    ]  # fmt: skip


def records_of(turns: int) -> list[RunEventRecord]:
    state, records = TurnState.CHECKING_POLICY, []
    for turn in range(turns):
        for outcome in outcomes_of_a_turn(turn):
            action = resolve(state, outcome)
            records.append(
                RunEventRecord(
                    run_id="r",
                    sequence=len(records),
                    turn=turn,
                    state=state,
                    outcome=outcome,
                    action=action,
                    timestamp=1.0,
                )
            )
            assert isinstance(action, Continue)
            state = action.state
    return records


def persisting(n: int, sequence: int) -> Commit:
    """The transition that writes a turn: record, two messages, row, snapshot."""
    state, outcome = TurnState.PERSISTING, o.Persisted()
    messages = [Message.user(TEXT, id=f"u{n}"), Message.assistant(TEXT, id=f"a{n}")]
    return Commit(
        run_id="r", session_id="s",
        record=RunEventRecord(run_id="r", sequence=sequence, turn=n, state=state, outcome=outcome, action=resolve(state, outcome), timestamp=1.0),
        messages=[MessageRecord(session_id="s", run_id="r", kind="message", message=m, created_at=1.0) for m in messages],
        turn=Turn(turn=n, input=TEXT, output=TEXT, input_tokens=100, output_tokens=50, model="scripted:m"),
        snapshot=Snapshot(run_id="r", session_id="s", state=state.value, seq=sequence, data={"budget": n, "breaker": {"state": "primary"}}, timestamp=1.0),
    )  # fmt: skip


def fresh(store: Store) -> Store:
    store.create_session(SessionRow(id="s", name="bench", created_at=1.0, updated_at=1.0))
    store.create_run("s", Run(id="r", input="x", start=1.0))
    return store


def yardstick(folder: Path) -> float:
    """CPU seconds of one bare insert in one transaction."""
    db = sqlite3.connect(folder / "yardstick.db", isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, body TEXT)")
    body = json.dumps({"text": TEXT * 4})

    def work() -> None:
        for _ in range(200):
            db.execute("BEGIN IMMEDIATE")
            db.execute("INSERT INTO t (body) VALUES (?)", (body,))
            db.execute("COMMIT")

    taken = median(work) / 200
    db.close()
    return taken


def commits(folder: Path, unit: float, quick: bool) -> Iterator[Row]:
    goals = (10, 1_000) if quick else (10, 100, 1_000, 10_000)
    for name, store in (("memory", MemoryStore()), ("SQLite", SqliteStore(folder / "commit.db"))):
        fresh(store)
        count = 0
        for goal in goals:
            while count < goal:
                store.commit(persisting(count, count))
                count += 1
            cpu, wall = [], []
            for _ in range(200):
                commit = persisting(count, count)
                began, began_cpu = time.perf_counter(), time.process_time()
                store.commit(commit)
                wall.append(time.perf_counter() - began)
                cpu.append(time.process_time() - began_cpu)
                count += 1
            yield timed_row(
                3, f"Persisting on {name} after {goal:,} turns", statistics.median(cpu), "ms", 1.0,
                yard=("a bare insert", unit), note=f"wall {statistics.median(wall) * 1e3:.2f} ms",
            )  # fmt: skip
        store.close()


def loading(folder: Path, unit: float) -> Iterator[Row]:
    store = fresh(SqliteStore(folder / "load.db"))
    turns = 10_000
    for n in range(turns):
        store.commit(persisting(n, n))
    store.append_messages([MessageRecord(session_id="s", run_id="r", kind="commit")])
    taken = median(lambda: load_session(store, "s"))
    session = load_session(store, "s")
    assert len(session.runs[0].turns) == turns
    assert len(session.history) == 2 * turns
    yard = ("10,000 bare inserts", unit * turns)
    yield timed_row(3, "loading a session of 10,000 turns", taken, "s", 0.5, yard=yard)
    framed = median(lambda: audit_frame(session))
    assert len(audit_frame(session)) == turns
    yield timed_row(3, "audit frame of 10,000 turns", framed, "s", 0.2, yard=yard)
    store.close()


def kills(folder: Path, count: int) -> None:
    """A writer killed ``count`` times; prints what was lost."""
    from tests.engine.store_ground import session_row
    from tests.engine.test_store_sqlite import check_whole

    path, acks = folder / "kill.db", folder / "acks"
    acks.touch()
    store = SqliteStore(path)
    store.create_session(session_row())
    store.create_run("s1", Run(id="r1", input="x"))
    store.close()
    command = [sys.executable, "-m", "tests.engine.store_writer", "nursery", str(path), str(acks)]
    nursery = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert nursery.stdin
    assert nursery.stdout
    moment = random.Random(0)
    for n in range(count):
        nursery.stdin.write("go\n")
        nursery.stdin.flush()
        pid = int(nursery.stdout.readline())
        time.sleep(moment.uniform(0.0005, 0.03))
        os.kill(pid, signal.SIGKILL)
        nursery.stdout.readline()
        if n % 50 == 49:
            check_whole(path, acks)
    nursery.communicate()
    print(
        f"store kills: {count}, transitions kept: {check_whole(path, acks)}, lost: 0, doubled: 0, gaps: 0"
    )


def rows(quick: bool) -> Iterator[Row]:
    """The rows of this bench."""
    with tempfile.TemporaryDirectory() as name:
        unit = yardstick(Path(name))
        yield from commits(Path(name), unit, quick)
        yield from loading(Path(name), unit)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1_000, help="kill a writer this many times")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        kills(Path(name), given.kills)


if __name__ == "__main__":
    main()
