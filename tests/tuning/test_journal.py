"""tuning/journal.py: rows, locks, versions, a full disk."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import pytest

from notebook_agent.errors import ConfigError, StoreError
from notebook_agent.tuning import journal as module
from notebook_agent.tuning.journal import Answer, Begun, Journal


def begun(n, again=False):
    return Begun(bytes([n]) * 16, n, {"prompt": "p", "inputs": {"n": n}}, again)


def test_rows_come_back_in_order_with_their_answers(tmp_path):
    path = tmp_path / "j.db"
    with Journal(path) as one:
        one.begin([begun(2), begun(0), begun(1)])
        one.finish([Answer(begun(0).key, '{"a": 1}', duration_s=0.5)])
        one.finish([Answer(begun(1).key, error={"error": "E", "message": "no"})])
    with Journal(path) as one:
        rows = list(one.rows())
        assert [(r.place, r.status) for r in rows] == [(0, "done"), (1, "failed"), (2, "started")]
        assert rows[0].value == {"a": 1}
        assert rows[1].error["message"] == "no"
        assert one.counts() == {"done": 1, "failed": 1, "started": 1, "resent": 0}


def test_a_cell_sent_again_is_counted_and_marked():
    with Journal(None) as one:
        one.begin([begun(1)])
        one.begin([begun(1, again=True)])
        (row,) = one.rows()
        assert (row.attempts, row.resent) == (2, 1)
        one.note_resent({begun(1).key: 2})
        assert one.counts()["resent"] == 3


def test_a_failed_transaction_leaves_nothing(tmp_path):
    with Journal(tmp_path / "j.db") as one:
        with pytest.raises(StoreError, match="cannot be written"):
            one.begin([begun(1), Begun(None, None, {})])
        assert list(one.rows()) == []


def test_two_sweeps_on_one_journal_are_refused_with_the_owner(tmp_path):
    path = tmp_path / "j.db"
    with Journal(path), pytest.raises(ConfigError, match=r"in use by another sweep \(process \d+"):
        Journal(path)
    Journal(path).close()  # free again


def test_another_process_is_refused_too_and_a_kill_frees_the_journal(tmp_path):
    path = tmp_path / "j.db"
    code = (
        "import sys, time\nfrom notebook_agent.tuning.journal import Journal\n"
        f"j = Journal({str(path)!r})\nprint('held', flush=True)\ntime.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as held:
        assert held.stdout.readline() == "held\n"
        with pytest.raises(ConfigError, match=f"process {held.pid} on"):
            Journal(path)
        held.kill()
        held.wait()
    until = time.monotonic() + 5
    while True:
        try:
            Journal(path).close()
            break
        except ConfigError:
            assert time.monotonic() < until
            time.sleep(0.05)


def test_a_journal_of_another_name_is_refused(tmp_path):
    path = tmp_path / "j.db"
    Journal(path, "prompts").close()
    with pytest.raises(ConfigError, match="belongs to the sweep 'prompts'"):
        Journal(path, "other")


def test_a_foreign_file_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "j.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("CREATE TABLE mine (x)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="no journal of a sweep"):
        Journal(path)
    assert path.read_bytes() == before
    text = tmp_path / "notes.txt"
    text.write_text("not a database at all, only some words")
    with pytest.raises(StoreError, match="cannot be opened"):
        Journal(text)


def set_schema(path, number):
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(f"PRAGMA user_version={number}")


def test_newer_and_older_versions_are_told_apart(tmp_path):
    path = tmp_path / "j.db"
    with Journal(path) as one:
        one.begin([begun(1)])
    set_schema(path, module.SCHEMA + 1)
    with pytest.raises(StoreError, match=r"newer notebook_agent .*\n.*pip install -U"):
        Journal(path)
    set_schema(path, 0)
    with pytest.raises(StoreError, match="older notebook_agent"):
        Journal(path)
    set_schema(path, module.SCHEMA)
    with Journal(path) as one:
        assert len(list(one.rows())) == 1


def test_an_older_version_with_a_migration_is_brought_up(tmp_path, monkeypatch):
    path = tmp_path / "j.db"
    with Journal(path) as one:
        one.begin([begun(1)])
    monkeypatch.setattr(module, "MIGRATIONS", {module.SCHEMA: ("CREATE TABLE later (x)",)})
    monkeypatch.setattr(module, "SCHEMA", module.SCHEMA + 1)
    with Journal(path) as one:
        assert len(list(one.rows())) == 1
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        assert db.execute("PRAGMA user_version").fetchone()[0] == module.SCHEMA
        assert db.execute("SELECT count(*) FROM later").fetchone() == (0,)


def test_a_full_disk_is_said_and_what_is_there_stays(tmp_path):
    path = tmp_path / "j.db"
    with Journal(path) as one:
        one.begin([begun(1)])
        pages = one._db.execute("PRAGMA page_count").fetchone()[0]
        one._db.execute(f"PRAGMA max_page_count={pages}")
        with pytest.raises(StoreError, match=r"full.*\nFree some space"):
            one.begin([Begun(bytes([9]) * 16, 9, {"text": "x" * 100_000})])
        assert [r.place for r in one.rows()] == [1]


def test_a_folder_that_is_not_there_is_said(tmp_path):
    with pytest.raises(StoreError, match="cannot be opened"):
        Journal(tmp_path / "nowhere" / "j.db")
