"""Stores under odd use: one name asked for at once, sessions deleted and files moved under an open
kernel, damaged values, a clock set back."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace

import pytest

from notebook_agent.core.messages import ToolCallPart
from notebook_agent.core.session import RunStatus
from notebook_agent.engine.replay_drive import redrive
from notebook_agent.engine.runtime import AgentRuntime
from notebook_agent.engine.store.base import SessionRow
from notebook_agent.engine.store.jsonl import check_file, export_runs
from notebook_agent.engine.store.memory import MemoryStore
from notebook_agent.engine.store.sqlite import SqliteStore
from notebook_agent.errors import AgentError, ConfigError, StoreError
from notebook_agent.providers.scripted import Reply, ScriptedModel
from tests.conftest import fixed_surroundings, run_virtual
from tests.engine.runtime_kit import CharCounter


def runtime(store, *replies, session="watch", **over):
    return AgentRuntime(
        ScriptedModel(list(replies) or ["a"] * 9), store=store, session=session,
        counter=CharCounter(), **over,
    )  # fmt: skip


def said(one):
    return [message.text_content() for message in one.session.history]


# ---- one name, one session -------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_D21_two_runtimes_that_ask_for_a_new_name_share_one_session(tmp_path, kind):
    store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "s.db")
    second = store if kind == "memory" else SqliteStore(tmp_path / "s.db")
    one, two = runtime(store, "a1", "a2"), runtime(second, "b1", "b2")
    assert one.session.id != two.session.id  # looked at, and nothing is written yet
    assert store.list_sessions() == []
    one.run("x")
    two.run("y")
    one.run("z")
    assert one.session.id == two.session.id
    assert len(store.list_sessions()) == 1
    assert said(one) == ["x", "a1", "y", "b1", "z", "a2"]
    assert len(two.session.runs) == 2


def test_D21_many_at_the_same_moment(tmp_path):
    """Threads with connections of their own, and processes."""
    path = tmp_path / "s.db"
    many = [runtime(SqliteStore(path)) for _ in range(6)]
    assert len({one.session.id for one in many}) == 6
    failed = []

    def ask(one):
        try:
            one.run("x", wait_s=30)
        except AgentError as error:
            failed.append(error)

    threads = [threading.Thread(target=ask, args=(one,)) for one in many]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    program = (
        "import sys\n"
        "from notebook_agent import AgentRuntime, ScriptedModel\n"
        "from notebook_agent.engine.store.sqlite import SqliteStore\n"
        "one = AgentRuntime(ScriptedModel(['a']), store=SqliteStore(sys.argv[1]), session='other')\n"
        "one.session\n"
        "print('ready', flush=True)\n"
        "input()\n"
        "one.run('x')\n"
    )
    others = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(3)
    ]  # fmt: skip
    for other in others:
        assert other.stdout.readline() == "ready\n"
    for other in others:
        other.stdin.write("\n")
        other.stdin.flush()
    assert [other.communicate()[0] or other.returncode for other in others] == [0, 0, 0]
    assert failed == []
    kept = {row.name: row.run_count for row in SqliteStore(path).list_sessions()}
    assert kept == {"watch": 6, "other": 3}


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_X06_a_claimed_name_is_judged_like_any_other(tmp_path, kind):
    store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "s.db")
    row = SessionRow(id="s1", name="re\u0301sume\u0301", created_at=1.0, updated_at=1.0)
    assert store.claim_session(row).name == "r\u00e9sum\u00e9"
    assert store.claim_session(replace(row, id="s2", name="r\u00e9sum\u00e9")).id == "s1"
    with pytest.raises(ConfigError):
        store.claim_session(replace(row, id="s3", name=""))
    with pytest.raises(StoreError, match="already"):
        store.claim_session(replace(row, name="new"))
    assert [one.id for one in store.list_sessions()] == ["s1"]


# ---- what somebody else did --------------------------------------------------------------------


def test_D21_a_session_deleted_by_another_kernel_says_how_to_go_on(tmp_path):
    path = tmp_path / "s.db"
    one, other = runtime(SqliteStore(path)), SqliteStore(path)
    one.run("x")
    other.delete_session(one.session.id)
    for again in (lambda: one.run("y"), one.undo, one.resume):
        with pytest.raises(StoreError, match="session save NAME") as raised:
            again()
        assert "was deleted in the store while it was open here" in str(raised.value)
    assert said(one) == ["x", "a"]
    one.rename_session("kept")
    one.run("y")
    assert said(one) == ["x", "a", "y", "a"]
    there = runtime(SqliteStore(path), session="kept")
    assert said(there) == said(one)
    other.delete_session(one.session.id)
    one.reset(hard=True)
    one.run("z")
    assert said(one) == ["z", "a"]


def test_B74_a_session_deleted_in_mid_run_ends_the_run_in_words(tmp_path):
    other = SqliteStore(tmp_path / "s.db")
    one = runtime(SqliteStore(tmp_path / "s.db"))

    def late(_request):
        other.delete_session(one.session.id)
        return "late"

    one.clients.add(ScriptedModel(late, name="late"))
    with pytest.raises(StoreError, match="may have been deleted"):
        one.run("x", model="scripted:late")
    assert one.session.runs[-1].status is RunStatus.FAILED


@pytest.mark.parametrize("how", ["moved", "deleted", "replaced"])
def test_B74_nothing_is_written_to_a_file_that_is_gone(tmp_path, how):
    """SQLite would go on writing into the old file, and say nothing."""
    path = tmp_path / "s.db"
    one = runtime(SqliteStore(path))
    one.run("x")
    away = path.with_name("away.db")
    path.rename(away)
    if how == "deleted":
        away.unlink()
    elif how == "replaced":
        path.write_bytes(away.read_bytes())
    with pytest.raises(StoreError, match="moved, deleted or replaced") as raised:
        one.run("y")
    assert "AgentMagics.store" in str(raised.value)
    if how == "moved":
        away.rename(path)
        one.run("z")
        assert said(one)[-2:] == ["z", "a"]
    else:
        one.use_store(SqliteStore(tmp_path / "new.db"))
        one.run("z")
        assert said(runtime(SqliteStore(tmp_path / "new.db"))) == ["x", "a", "z", "a"]


@pytest.mark.parametrize("table", ["messages.body", "records.body", "runs.config", "events.body"])
def test_B74_a_damaged_value_is_a_store_error(tmp_path, table):
    path = tmp_path / "s.db"
    one = runtime(SqliteStore(path))
    one.run("x")
    run_id = one.session.runs[0].id
    one.store.close()
    name, column = table.split(".")
    db = sqlite3.connect(path)
    db.execute(f"UPDATE {name} SET {column} = '{{oops'")
    db.commit()
    db.close()

    def read():
        again = runtime(SqliteStore(path))
        again.run("y")
        return again.store.records(run_id), again.store.events(run_id)

    with pytest.raises(StoreError, match="damaged value"):
        read()


# ---- time --------------------------------------------------------------------------------------


def test_B57_a_clock_that_is_set_back_turns_no_event_round(tmp_path):
    async def add(a: int) -> int:
        """Add."""
        return a

    now = [2e9]

    def wall():
        now[0] -= 3_600
        return now[0]

    calls = Reply(tool_calls=[ToolCallPart("c1", "add", {"a": 1})])
    model = ScriptedModel([calls, "done", "two"], script="503,ok")

    async def work():
        one = AgentRuntime(
            model, store=SqliteStore(tmp_path / "s.db"), counter=CharCounter(), session="watch",
            surroundings=replace(fixed_surroundings(), wall=wall), tools=[add],
        )  # fmt: skip
        await one.arun("x")
        await asyncio.sleep(0)
        await one.arun("y")
        return one

    one = run_virtual(work())
    for run in one.session.runs:
        orders = [event.order for event in one.store.events(run.id)]
        assert orders == sorted(orders)
    file = export_runs(one.store, one.session.id, tmp_path / "run.jsonl")
    assert check_file(file).ok
    report = run_virtual(redrive(file, surroundings=fixed_surroundings(), counter=CharCounter()))
    assert report.ok, str(report)
    assert said(runtime(SqliteStore(tmp_path / "s.db"))) == ["x", "", "", "done", "y", "two"]
