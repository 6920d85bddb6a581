"""Files of released schemas: this version opens every one, and all of it is there."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from notebook_agent.core.replay import replay
from notebook_agent.core.session import RunStatus
from notebook_agent.engine.replay_drive import redrive
from notebook_agent.engine.runtime import AgentRuntime
from notebook_agent.engine.store.jsonl import check_file, import_runs
from notebook_agent.engine.store.memory import MemoryStore
from notebook_agent.engine.store.open import load_session
from notebook_agent.engine.store.run_file import RUN_FILE_SCHEMA, read_run_file
from notebook_agent.engine.store.schema import SCHEMA_VERSION
from notebook_agent.engine.store.sqlite import SqliteStore
from notebook_agent.providers.scripted import ScriptedModel
from tests.conftest import fixed_surroundings, run_virtual
from tests.engine.runtime_kit import CharCounter

RELEASED = Path(__file__).parent / "released"
DUMPS = sorted(RELEASED.glob("sessions_*.sql"))
RUN_FILES = sorted(RELEASED.glob("run_*.jsonl"))

STATUSES = [*[RunStatus.COMPLETED] * 5, RunStatus.FAILED, RunStatus.COMPLETED]


@pytest.fixture(params=DUMPS, ids=lambda p: p.stem)
def opened(request, tmp_path):
    file = tmp_path / "sessions.db"
    db = sqlite3.connect(file)
    db.executescript(request.param.read_text())
    db.close()
    store = SqliteStore(file)
    yield store
    store.close()


def test_there_is_a_file_of_every_schema():
    assert [p.stem for p in DUMPS] == [f"sessions_{n}" for n in range(1, SCHEMA_VERSION + 1)]
    assert [p.stem for p in RUN_FILES] == [f"run_{n}" for n in range(1, RUN_FILE_SCHEMA + 1)]


def test_a_released_database_opens_with_all_of_it(opened):
    (row,) = opened.list_sessions()
    assert row.name == "résumé 100%_"
    assert opened.find_session("re\u0301sume\u0301 100%_") == row
    session = load_session(opened, row.id)
    assert [run.status for run in session.runs] == STATUSES
    assert session.runs[0].turns[0].tool_calls[0].input == {"a": 1, "b": 2}
    assert session.runs[5].unserved[0].error["status"] == 401
    assert [m.text_content()[:10] for m in session.history[1:]] == [
        "question 4",
        "3 word wor",
        "question 5",
    ]
    for run in session.runs:
        report = replay(opened.records(run.id), projection=opened.state(run.id))
        assert report.ok, str(report)
        assert report.complete
        assert report.status is run.status
        assert opened.events(run.id)[-1].terminal
    (execution,) = opened.tool_executions(session.runs[0].id)
    assert (execution.tool_name, execution.result, execution.status) == ("add", "3", "ok")
    assert [s.run_id for s in opened.list_snapshots()] == [session.runs[5].id]
    marker, summary = opened.latest_compaction(row.id)
    assert marker.meta["summary_id"] == summary.message.id
    with opened.reading() as db:
        assert db.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)


def test_a_released_session_goes_on(opened):
    runtime = AgentRuntime(
        ScriptedModel(["and on"]), store=opened, session="résumé 100%_", counter=CharCounter(),
        surroundings=fixed_surroundings(new_id=lambda kind: f"new_{kind}_{next(numbers)}"),
    )  # fmt: skip
    numbers = iter(range(100))
    assert run_virtual(runtime.arun("go on")).text == "and on"
    assert len(opened.list_runs(runtime.session.id)) == len(STATUSES) + 1


@pytest.mark.parametrize("file", RUN_FILES, ids=lambda p: p.stem)
def test_a_released_run_file_is_read_checked_imported_and_driven(file):
    report = check_file(file)
    assert report.ok, str(report)
    assert report.complete
    read = read_run_file(file)
    assert [b.run.status for b in read.runs] == STATUSES
    store = MemoryStore()
    assert len(import_runs(store, file)) == len(STATUSES)

    async def drive():
        return await redrive(file, surroundings=fixed_surroundings(), counter=CharCounter())

    driven = run_virtual(drive())
    assert driven.ok, str(driven)
    assert [r.status for r in driven.results] == STATUSES
