"""Child processes of the store tests: ``python -m tests.engine.store_writer ROLE ...``.

nursery PATH ACKS   forks a writer at every line on stdin and prints its pid; the test kills it
flood PATH RUN N    commits N transitions of one run, waiting while another process writes
limited PATH BYTES  writes until the file-size limit stops it, then says what happened
opening PATH        opens a store that may not be there yet, at a line on stdin
nobody PATH         opens a store as a user who may not write there
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from pathlib import Path

import platformdirs  # noqa: F401  # here: ``nobody`` may not be able to read it any more

from notebook_agent.core import outcomes as o
from notebook_agent.core.messages import Message
from notebook_agent.core.session import Run, RunEventRecord, Turn
from notebook_agent.core.turn_fsm import TurnState, resolve
from notebook_agent.engine.store.base import Commit, MessageRecord, Snapshot
from notebook_agent.engine.store.open import open_store, patiently
from notebook_agent.engine.store.sqlite import SqliteStore
from notebook_agent.errors import StoreError
from tests.engine.store_ground import T0, session_row

STATE = TurnState.BUILDING_CONTEXT
OUTCOME = o.CompactionTriggered()  # leads back to its own state, as often as one likes


def transition(run_id: str, n: int, *, text: str = "x" * 300) -> Commit:
    """Everything a transition can write, all of it numbered ``n``."""
    message = Message.user(text, id=f"m{n}")
    return Commit(
        run_id=run_id,
        session_id="s1",
        record=RunEventRecord(run_id=run_id, sequence=n, turn=0, state=STATE, outcome=OUTCOME, action=resolve(STATE, OUTCOME), timestamp=T0 + n),
        messages=[MessageRecord(session_id="s1", run_id=run_id, kind="message", message=message, created_at=T0)],
        turn=Turn(turn=n, input="", output=text),
        snapshot=Snapshot(run_id=run_id, session_id="s1", state=STATE.value, seq=n, pending=(message,), data={"n": n}, timestamp=T0 + n),
    )  # fmt: skip


def write_on(store: SqliteStore, acks: int, run_id: str = "r1") -> None:
    n = len(store.records(run_id))
    while True:
        store.commit(transition(run_id, n))
        os.write(acks, f"{n}\n".encode())  # only what is durable is said to be
        n += 1


def nursery(path: str, acks: str) -> None:
    for _ in sys.stdin:
        pid = os.fork()
        if pid == 0:
            signal.alarm(20)
            store = SqliteStore(path)
            write_on(store, os.open(acks, os.O_WRONLY | os.O_APPEND | os.O_CREAT))
        print(pid, flush=True)
        os.waitpid(pid, 0)
        print("gone", flush=True)


def flood(path: str, run_id: str, count: str) -> None:
    store = SqliteStore(path)
    patiently(lambda: store.create_run("s1", Run(id=run_id, input="x")), limit_s=20)
    for n in range(int(count)):
        patiently(lambda n=n: store.commit(transition(run_id, n)), limit_s=20)
    store.close()


def limited(path: str, size: str) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    store = SqliteStore(path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), int(size)))
    fill(store)


def fill(store: SqliteStore) -> None:
    """Commit until the medium is full, then say what the store says and how far it came."""
    store.create_session(session_row())
    store.create_run("s1", Run(id="r1", input="x"))
    n = 0
    try:
        while n < 5000:
            store.commit(transition("r1", n, text="x" * 3000))
            n += 1
    except StoreError as problem:
        print(type(problem).__name__, n, problem.message.splitlines()[0])


def opening(path: str) -> None:
    sys.stdin.readline()  # all at once
    store = SqliteStore(path)
    print(store.journal_mode)
    store.close()


def nobody(path: str) -> None:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    try:
        SqliteStore(path)
    except StoreError as problem:
        print(problem.message)
    notices: list[str] = []
    os.environ["HOME"] = str(Path(path).parent)
    os.environ.pop("XDG_DATA_HOME", None)
    print(open_store(notify=notices.append).location, notices)


if __name__ == "__main__":
    role = {f.__name__: f for f in (nursery, flood, limited, opening, nobody)}[sys.argv[1]]
    role(*sys.argv[2:])
