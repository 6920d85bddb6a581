"""The SQLite file: modes, schema numbers, a second kernel, SIGKILL, full disks, read-only folders."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from notebook_agent.core.messages import Message
from notebook_agent.core.session import Run
from notebook_agent.engine.store import schema
from notebook_agent.engine.store.base import MessageRecord, StoreBusy
from notebook_agent.engine.store.memory import MemoryStore
from notebook_agent.engine.store.open import default_path, open_store, patiently
from notebook_agent.engine.store.sqlite import SqliteStore
from notebook_agent.engine.store.sqlite_medium import file_system_of
from notebook_agent.errors import AgentError, StoreError, error_from_json
from tests.engine.store_ground import session_row, write_run
from tests.engine.store_writer import fill, transition

posix = pytest.mark.skipif(os.name == "nt", reason="POSIX modes and signals")


def child(*args: object, **over) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.engine.store_writer", *map(str, args)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **over
    )


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "sessions.db"


# -- the file --------------------------------------------------------------------------------


@posix
def test_D21_file_is_private_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        store = SqliteStore(tmp_path / "deep" / "er" / "sessions.db")
        store.create_session(session_row())
    finally:
        os.umask(before)
    for file in (tmp_path / "deep" / "er").iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    assert stat.S_IMODE((tmp_path / "deep" / "er").stat().st_mode) == 0o700
    store.close()


def test_D21_wal_on_a_local_disk_and_a_rollback_journal_on_a_network_one(path, monkeypatch):
    store = SqliteStore(path)
    assert store.journal_mode == "wal"
    store.close()
    monkeypatch.setattr("notebook_agent.engine.store.sqlite_medium.is_network_path", lambda p: True)
    store = SqliteStore(path)
    assert store.journal_mode == "delete"
    store.create_session(session_row())
    write_run(store)
    assert store.get_run("r1").output == "hello"
    store.close()
    assert [p.name for p in path.parent.iterdir()] == ["sessions.db"]


def test_file_system_of_takes_the_innermost_mount():
    mounts = (
        "20 1 0:1 / / rw - ext4 /dev/a rw\n"
        "21 1 0:2 / /home rw - nfs4 host:/home rw\n"
        "22 1 0:3 / /home/me/my\\040disk rw shared:1 - ext4 /dev/b rw\n"
        "garbage\n"
    )
    assert file_system_of(Path("/tmp/x"), mounts) == "ext4"
    assert file_system_of(Path("/home/me/x"), mounts) == "nfs4"
    assert file_system_of(Path("/home/me/my disk/x"), mounts) == "ext4"
    assert file_system_of(Path("/homework/x"), mounts) == "ext4"


def test_reopened_store_has_everything(path):
    store = SqliteStore(path)
    store.create_session(session_row())
    write_run(store)
    runs, log = store.list_runs("s1"), store.list_messages("s1")
    store.close()
    again = SqliteStore(path)
    assert again.list_runs("s1") == runs
    assert again.list_messages("s1") == log
    again.close()


def test_a_closed_store_says_so(path):
    store = SqliteStore(path)
    store.close()
    store.close()
    with pytest.raises(StoreError, match="is closed"):
        store.list_sessions()


def test_X06_a_file_name_with_odd_characters(tmp_path):
    odd = tmp_path / "a?b%20#c&mode=ro"
    store = SqliteStore(odd)
    store.create_session(session_row())
    store.close()
    assert odd.exists()


# -- schema numbers --------------------------------------------------------------------------


def test_a_newer_file_is_refused_untouched_with_the_version_that_wrote_it(path):
    store = SqliteStore(path)
    write_later(store)
    store.close()
    before = path.read_bytes()
    at = path.stat().st_mtime_ns
    with pytest.raises(StoreError) as caught:
        SqliteStore(path)
    text = str(caught.value)
    assert "newer notebook_agent (9.8.7)" in text
    assert "schema 7, this version reads up to 1" in text
    assert "pip install -U" in text
    assert path.read_bytes() == before
    assert path.stat().st_mtime_ns == at
    assert [p.name for p in path.parent.iterdir()] == ["sessions.db"]


def write_later(store: SqliteStore) -> None:
    with store.writing() as db:
        db.execute("INSERT INTO schema_migrations VALUES (7, 0, '9.8.7')")
        db.execute("PRAGMA user_version = 7")


def test_a_newer_schema_that_is_only_in_the_wal_is_refused_too(path, tmp_path):
    store = SqliteStore(path)
    write_later(store)
    copy = tmp_path / "copy.db"
    for suffix in ("", "-wal"):  # as a kill leaves it: the header still says 1
        shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")
    store.close()
    with pytest.raises(StoreError, match="schema 7"):
        SqliteStore(copy)


@pytest.mark.parametrize(
    "content", [b"hello, I am a text", b"x" * 4096, b"SQLite format 3\x00short"]
)
def test_a_foreign_file_is_refused_untouched(path, content):
    path.write_bytes(content)
    with pytest.raises(StoreError, match="is not a session file"):
        SqliteStore(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("version", [0, 3])
def test_another_programs_database_is_refused_untouched(path, version):
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE t (x)")
    other.execute(f"PRAGMA user_version = {version}")
    other.commit()
    other.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="is not a session file"):
        SqliteStore(path)
    assert path.read_bytes() == before


def test_an_empty_file_becomes_a_store(path):
    path.touch()
    SqliteStore(path).close()
    assert path.stat().st_size > 0


def test_migrations_run_in_order_in_one_transaction(path):
    SqliteStore(path).close()
    db = sqlite3.connect(path, isolation_level=None)
    steps = {
        **schema.MIGRATIONS,
        2: ("ALTER TABLE turns ADD COLUMN mood TEXT",),
        3: ("CREATE TABLE extra (x)",),
    }
    db.execute("BEGIN IMMEDIATE")
    assert schema.migrate(db, path, now=5.0, app_version="0.3", steps=steps) == 1
    db.execute("COMMIT")
    assert db.execute("PRAGMA user_version").fetchone() == (3,)
    assert db.execute("SELECT version, app_version FROM schema_migrations").fetchall()[1:] == [
        (2, "0.3"),
        (3, "0.3"),
    ]
    broken = {**steps, 4: ("CREATE TABLE fine (x)", "CREATE TABLE extra (x)")}
    db.execute("BEGIN IMMEDIATE")
    with pytest.raises(sqlite3.OperationalError, match="extra"):
        schema.migrate(db, path, now=6.0, app_version="0.4", steps=broken)
    db.execute("ROLLBACK")
    assert db.execute("PRAGMA user_version").fetchone() == (3,)
    assert db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'fine'").fetchone() == (0,)
    db.close()


def test_schema_1_never_changes():
    """Released: a change of its statements needs a number of its own."""
    text = "\n".join(schema.MIGRATIONS[1])
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == SCHEMA_1


SCHEMA_1 = "13236cdf855b0e99"


def test_every_field_of_turn_has_its_column(path):
    store = SqliteStore(path)
    with store.reading() as db:
        columns = {row[1] for row in db.execute("PRAGMA table_info(turns)")}
    store.close()
    assert set(schema.TURN_COLUMNS) <= columns, "a new field of Turn needs a migration"


# -- a second kernel -------------------------------------------------------------------------


@pytest.mark.parametrize("network", [False, True])
def test_busy_is_said_at_once_and_nothing_is_written(path, monkeypatch, network):
    monkeypatch.setattr(
        "notebook_agent.engine.store.sqlite_medium.is_network_path", lambda p: network
    )
    store = SqliteStore(path)
    store.create_session(session_row())
    store.create_run("s1", Run(id="r1", input="x"))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    start = time.perf_counter()
    with pytest.raises(StoreBusy, match="another kernel"):
        store.commit(transition("r1", 0))
    assert time.perf_counter() - start < 1.0
    assert store.list_messages("s1") == []  # readers do not wait for a writer that only began
    other.execute("COMMIT")
    other.close()
    store.commit(transition("r1", 0))
    assert len(store.records("r1")) == 1
    store.close()


def test_a_reader_in_the_way_of_a_rollback_journal_is_busy_not_half_written(path, monkeypatch):
    monkeypatch.setattr("notebook_agent.engine.store.sqlite_medium.is_network_path", lambda p: True)
    store = SqliteStore(path)
    store.create_session(session_row())
    store.create_run("s1", Run(id="r1", input="x"))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN")
    other.execute("SELECT * FROM runs").fetchall()  # holds a shared lock: COMMIT cannot go on
    with pytest.raises(StoreBusy):
        store.commit(transition("r1", 0))
    other.execute("COMMIT")
    other.close()
    assert store.records("r1") == []
    store.commit(transition("r1", 0))
    store.close()


def test_patiently_tries_again_until_the_other_is_done():
    waits: list[float] = []

    def call():
        if len(waits) < 3:
            raise StoreBusy("busy")
        return "done"

    assert patiently(call, sleep=waits.append) == "done"
    assert len(waits) == 3

    def never():
        raise StoreBusy("busy")

    waits.clear()
    with pytest.raises(StoreBusy):
        patiently(never, limit_s=0.05, sleep=waits.append)
    assert len(waits) == 4


def test_two_processes_write_to_one_session(path):
    store = SqliteStore(path)
    store.create_session(session_row())
    count = 120
    writers = [child("flood", path, f"r{n}", count) for n in range(2)]
    for writer in writers:
        assert writer.wait(60) == 0
        writer.communicate()
    log = store.list_messages("s1")
    assert [m.seq for m in log] == list(range(1, 2 * count + 1))
    for run_id in ("r0", "r1"):
        assert [r.sequence for r in store.records(run_id)] == list(range(count))
        assert [m.message.id for m in log if m.run_id == run_id] == [f"m{n}" for n in range(count)]
        assert store.state(run_id).last_sequence == count - 1
    assert store.get_session("s1").message_count == 2 * count
    store.close()


def test_kernels_that_make_the_file_at_the_same_moment_share_it(path):
    openers = [child("opening", path) for _ in range(4)]
    for opener in openers:
        opener.stdin.write("go\n")
        opener.stdin.flush()
    assert [opener.communicate(timeout=60)[0] for opener in openers] == ["wal\n"] * 4
    store = SqliteStore(path)
    with store.reading() as db:
        assert db.execute("SELECT count(*) FROM schema_migrations").fetchone() == (1,)
    store.close()


def test_two_kernels_on_one_run_one_is_refused(path):
    first, second = SqliteStore(path), SqliteStore(path)
    first.create_session(session_row())
    first.create_run("s1", Run(id="r1", input="x"))
    first.commit(transition("r1", 0))
    with pytest.raises(StoreError, match="Another kernel"):
        second.commit(transition("r1", 0))
    second.commit(transition("r1", 1))
    with pytest.raises(StoreError, match="the next one is 2"):
        first.commit(transition("r1", 1))
    assert len(first.records("r1")) == 2
    first.close()
    second.close()


# -- SIGKILL ---------------------------------------------------------------------------------


@posix
def test_B58_killed_at_random_moments_leaves_whole_transitions(path, tmp_path):
    """40 kills of a writer; after each, everything up to some record is there and nothing else."""
    acks = tmp_path / "acks"
    acks.touch()
    store = SqliteStore(path)
    store.create_session(session_row())
    store.create_run("s1", Run(id="r1", input="x"))
    store.close()
    random_moment = random.Random(7)
    nursery = child("nursery", path, acks)
    assert nursery.stdin
    assert nursery.stdout
    wanted = 0
    for _ in range(40):
        nursery.stdin.write("go\n")
        nursery.stdin.flush()
        pid = int(nursery.stdout.readline())
        said, more = acks.stat().st_size, random_moment.randint(0, 6)
        wanted += more
        deadline = time.monotonic() + 20
        while acks.read_bytes()[said:].count(b"\n") < more and time.monotonic() < deadline:
            time.sleep(0.0002)
        time.sleep(random_moment.uniform(0, 0.003))  # anywhere in the next transitions
        os.kill(pid, signal.SIGKILL)
        assert nursery.stdout.readline() == "gone\n"
        check_whole(path, acks)
    nursery.communicate(timeout=30)
    assert check_whole(path, acks) >= wanted > 100  # it was writing, not dying at its start


def check_whole(path: Path, acks: Path) -> int:
    store = SqliteStore(path)
    try:
        sequences = [r.sequence for r in store.records("r1")]
        count = len(sequences)
        assert sequences == list(range(count))
        log = store.list_messages("s1")
        assert [m.message.id for m in log] == [f"m{n}" for n in range(count)]
        assert [m.seq for m in log] == list(range(1, count + 1))
        assert [t.turn for t in store.get_run("r1").turns] == list(range(count))
        assert store.state("r1").last_sequence == count - 1
        snapshot = store.get_snapshot("r1")
        assert (None if snapshot is None else snapshot.data["n"]) == (count - 1 if count else None)
        said = acks.read_text().split()
        assert len(said) <= count, "a transition that was durable is lost"
        with store.reading() as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return count
    finally:
        store.close()


# -- full disks ------------------------------------------------------------------------------


def check_full(path: Path, said: str) -> None:
    """What was committed before the disk was full is whole; the rest is not there at all."""
    name, count, text = said.split(" ", 2)
    assert name == "StoreError", said
    assert str(path) in text
    assert "full" in text, said
    assert int(count) > 0
    store = SqliteStore(path)
    assert len(store.records("r1")) == int(count)
    assert len(store.list_messages("s1")) == int(count)
    assert len(store.get_run("r1").turns) == int(count)
    assert store.get_snapshot("r1").data == {"n": int(count) - 1}
    store.close()


def test_a_full_database_writes_nothing_and_goes_on_when_there_is_room(path, capsys):
    store = SqliteStore(path)
    with store._lock:
        store._open_db().execute("PRAGMA max_page_count = 60")
    fill(store)
    said = capsys.readouterr().out
    check_full(path, said)
    store._open_db().execute("PRAGMA max_page_count = 100000")
    store.commit(transition("r1", int(said.split()[1])))
    store.close()


@posix
def test_a_file_size_limit_stops_the_writer_with_a_clear_error(path):
    writer = child("limited", path, 200_000)
    said, _ = writer.communicate(timeout=60)
    assert writer.returncode == 0
    check_full(path, said)


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0 or not shutil.which("mount"),
    reason="needs root to mount a small tmpfs",
)
def test_a_full_file_system_stops_the_writer_with_a_clear_error(tmp_path, capsys):
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(small)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("may not mount here")
    try:
        store = SqliteStore(small / "sessions.db")
        fill(store)
        said = capsys.readouterr().out
        copy = tmp_path / "sessions.db"
        for suffix in ("", "-wal"):
            shutil.copy(f"{small}/sessions.db{suffix}", f"{copy}{suffix}")
        store.close()
        check_full(copy, said.replace(str(small / "sessions.db"), str(copy)))
    finally:
        subprocess.run(["umount", str(small)], check=True)


# -- read-only -------------------------------------------------------------------------------


@posix
def test_D21_read_only_folder_is_an_error_and_a_read_only_home_falls_back(path):
    """As a user who may not write there; root may write everywhere, so root becomes nobody."""
    folder = Path(tempfile.mkdtemp(prefix="read-only-"))
    try:
        folder.chmod(0o555)
        if os.geteuid() == 0:
            writer = child("nobody", folder / "sessions.db")
            said, _ = writer.communicate(timeout=60)
            assert writer.returncode == 0
            first, second, third = said.splitlines()
            assert f"{folder}/sessions.db cannot be written (Permission denied)" in first
            assert "AgentMagics.store" in second
            assert third.startswith("memory ['")
            assert "kept in memory" in third
        else:
            with pytest.raises(StoreError, match="cannot be written"):
                SqliteStore(folder / "sessions.db")
        assert list(folder.iterdir()) == []
    finally:
        folder.chmod(0o755)
        folder.rmdir()


def test_a_folder_in_the_place_of_the_file_is_an_error(path):
    path.mkdir()
    with pytest.raises(StoreError, match="cannot be written"):
        SqliteStore(path)


def test_D21_open_store_reads_the_setting(tmp_path, monkeypatch):
    assert isinstance(open_store("memory"), MemoryStore)
    home = tmp_path / "data"
    monkeypatch.setattr("platformdirs.user_data_dir", lambda *a, **k: str(home))
    assert default_path() == home / "sessions.db"
    assert not home.exists()
    for spec in (None, "", "default"):
        store = open_store(spec)
        assert store.location == str(home / "sessions.db")
        store.close()
    named = open_store(tmp_path / "mine.db")
    assert named.location == str(tmp_path / "mine.db")
    named.close()


def test_D21_read_only_home_falls_back_with_one_line_but_a_newer_file_does_not(
    tmp_path, monkeypatch
):
    home = tmp_path / "data"
    home.write_text("a file where the folder should be")
    monkeypatch.setattr("platformdirs.user_data_dir", lambda *a, **k: str(home))
    lines: list[str] = []
    assert open_store(notify=lines.append).location == "memory"
    assert len(lines) == 1
    assert "\n" not in lines[0]
    with pytest.raises(StoreError):  # a place the user named is never passed over
        open_store(home / "x.db", notify=lines.append)
    home.unlink()
    store = open_store(None)
    write_later(store)
    store.close()
    with pytest.raises(StoreError, match="newer"):
        open_store(None, notify=lines.append)
    assert len(lines) == 1


# -- damage ----------------------------------------------------------------------------------


def test_a_damaged_file_is_an_error_that_says_what_to_do(path):
    store = SqliteStore(path)
    store.create_session(session_row())
    for n in range(40):
        store.append_messages(
            [
                MessageRecord(
                    session_id="s1",
                    run_id="r",
                    kind="message",
                    message=Message.user("x" * 2000, id=str(n)),
                )
            ]
        )
    store.close()
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(data)
    with pytest.raises(StoreError, match=r"damaged[\s\S]*Move it away"):
        SqliteStore(path).list_messages("s1")


def test_store_errors_are_StoreError_in_records(path):
    store = SqliteStore(path)
    with pytest.raises(StoreError) as caught:
        store._open_db().execute("PRAGMA query_only = 1")
        store.create_session(session_row())
    store.close()
    back = error_from_json(caught.value.to_json())
    assert type(back) is StoreError
    assert isinstance(error_from_json(StoreBusy("b").to_json()), StoreError)
    assert isinstance(back, AgentError)
