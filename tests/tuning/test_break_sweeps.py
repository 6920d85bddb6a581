"""Sweeps, journals and frames under odd use: what is asked again, what is mixed up, what breaks."""

from __future__ import annotations

import concurrent.futures as cf
import functools
import os
import sqlite3
import subprocess
import sys
import threading

import pytest

from notebook_agent.errors import AgentError, ConfigError, StoreError
from notebook_agent.tuning.cells import Cell, grid
from notebook_agent.tuning.journal import Journal
from notebook_agent.tuning.sweep import Sweep
from notebook_agent.tuning.versions import code_version, settings_version


def plain(cell):
    return cell.inputs["n"]


def numbers(count):
    return grid(inputs=[{"n": n} for n in range(count)])


def values(work, journal, **given):
    with Sweep(work, numbers(1), journal=journal, **given) as sweep:
        return [row.value for row in sweep.run().rows()]


def made(k):
    def work(_cell):
        return k

    return work


def nested(inner):
    def work(cell):
        return inner(cell)

    return work


def add(_cell, k, extra=0):
    return k + extra


# ---- the key ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        made,
        lambda k: functools.partial(add, k=k),
        lambda k: functools.partial(functools.partial(add, extra=0), k=k),
        lambda k: lambda _cell, k=k: k,
        lambda k: nested(made(k)),
    ],
    ids=["closure", "partial", "partial of a partial", "default", "closure of a closure"],
)
def test_work_that_differs_by_what_it_holds_is_other_work(tmp_path, make):
    """One source, two values: the first one's answers are not the second one's."""
    journal = tmp_path / "j.db"
    assert values(make(1), journal) == [1]
    assert values(make(2), journal) == [2]
    assert code_version(make(1)) == code_version(make(1))


def test_what_work_changes_itself_is_no_part_of_its_version():
    """A counter or a list of calls would make every run another experiment."""

    def counting():
        count, calls = 0, []

        def work(_cell):
            nonlocal count
            count += 1
            calls.append(count)
            return 1

        return work

    work = counting()
    before = code_version(work)
    work(None)
    assert code_version(work) == before

    def again(n):
        return again(n - 1) if n else 0

    assert code_version(again) == code_version(again)


def test_functions_without_a_source_file_differ_by_their_code():
    """Typed at a prompt or in a program on stdin: the name alone is not the work."""
    made = []
    for number in (1, 2, 1):
        space = {}
        exec(f"def work(cell):\n    return [x + {number} for x in (cell,)]", space)
        made.append(code_version(space["work"]))
    assert made[0] == made[2] != made[1]
    program = (
        "from notebook_agent.tuning.versions import code_version\n"
        "def work(cell):\n    return cell in {'a', 'b', 'c', 'd'}\n"
        "print(code_version(work))"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True, text=True, check=True, env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2", "3")
    }  # fmt: skip
    assert len(said) == 1


class Nothing:
    def contribute(self, _turn, _conversation):
        return None


def test_settings_are_told_without_addresses():
    one, two = (settings_version({"contributors": [Nothing()], "mode": {"b", "a"}}) for _ in "ab")
    assert one == two
    assert " at 0x" not in one
    assert settings_version({"policy": 1}) != settings_version({"policy": 2})
    assert settings_version({"store": object(), "cancel": object()}) == ""


# ---- answers that are no clean JSON ------------------------------------------------------------


def test_D9_half_a_surrogate_pair_does_not_stop_a_sweep():
    def work(cell):
        if cell.inputs["n"] == 1:
            raise ValueError("no \ud800")
        return {"text": "half \ud800", "key \udc00": 1}

    cells = grid(inputs=[{"n": 0, "given": "\ud83d"}, {"n": 1}])
    frame = Sweep(work, cells, name="name \ud800").run().frame()
    assert frame["text"][0] == "half \ufffd"
    assert frame["given"][0] == "\ufffd"
    assert frame["error"][1] == "ValueError: no \ufffd"


def test_an_answer_nested_too_deeply_costs_its_cell_only():
    def work(cell):
        value: list = []
        for _ in range(100_000 * cell.inputs["n"]):
            value = [value]
        return value

    frame = Sweep(work, numbers(2)).run().frame()
    assert frame["status"].tolist() == ["done", "failed"]
    assert "no JSON value" in frame["error"][1]


# ---- the frame -------------------------------------------------------------------------------


def test_an_input_called_like_a_column_keeps_its_values():
    cells = grid(inputs=[{"value": 3, "status": "x", "seed": 9, "error": "e"}])
    row = Sweep(lambda _: 5, cells).run().frame().iloc[0]
    assert (row["value"], row["status"]) == (5, "done")
    given = [row[f"inputs.{name}"] for name in ("value", "status", "seed", "error")]
    assert given == [3, "x", 9, "e"]


def test_an_empty_frame_has_the_dtypes_of_a_full_one():
    full, empty = Sweep(plain, numbers(2)).run().frame(), Sweep(plain, []).run().frame()
    shared = [name for name in empty.columns if name != "prompt"]
    assert len(empty) == 0
    assert empty[shared].dtypes.to_dict() == full[shared].dtypes.to_dict()
    assert empty.index.dtype == full.index.dtype


def test_a_seed_beyond_64_bits_is_shown_as_it_is():
    frame = Sweep(lambda _: 1, grid(seeds=[2**70, None])).run().frame()
    assert frame["seed"].tolist() == [2**70, None]


# ---- the journal's file ------------------------------------------------------------------------


def test_two_sweeps_on_one_journal_by_two_names_of_it(tmp_path):
    journal, link = tmp_path / "j.db", tmp_path / "k.db"
    with Sweep(plain, numbers(1), journal=journal) as sweep:
        sweep.run()
        link.symlink_to(journal)
        with pytest.raises(ConfigError, match="in use by another sweep"):
            Sweep(plain, numbers(1), journal=link)
    assert values(plain, link) == [0]


@pytest.mark.parametrize("answer", ["'{oops'", "cast(x'22ff22' as text)"])
def test_a_garbled_answer_is_said_in_words(tmp_path, answer):
    journal = tmp_path / "j.db"
    values(plain, journal)
    db = sqlite3.connect(journal)
    db.execute(f"UPDATE cells SET answer = {answer}")
    db.commit()
    db.close()
    with Sweep(plain, numbers(1), journal=journal) as sweep, pytest.raises(StoreError):
        sweep.run().frame()


@pytest.mark.parametrize("harm", ["cut", "zeros", "text"])
def test_a_damaged_journal_is_refused_and_left_as_it_is(tmp_path, harm):
    journal = tmp_path / "j.db"
    with Sweep(plain, grid(inputs=[{"n": n, "x": "y" * 200} for n in range(200)]), journal=journal) as one:  # fmt: skip
        one.run()
    data = bytearray(journal.read_bytes())
    if harm == "cut":
        data = data[: len(data) // 2]
    elif harm == "zeros":
        data[8192:20_000] = bytes(20_000 - 8192)
    else:
        data = bytearray(b"hello world\n" * 1_000)
    journal.write_bytes(data)
    with pytest.raises(StoreError, match="give another journal"):
        Sweep(plain, numbers(1), journal=journal)
    assert journal.read_bytes() == data


def test_a_journal_in_memory_makes_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert values(plain, ":memory:") == [0]
    assert list(tmp_path.iterdir()) == []
    with Journal(os.fsencode(tmp_path / "b.db")) as journal:
        assert journal.counts()["done"] == 0


# ---- running again, executors ------------------------------------------------------------------


def test_a_sweep_that_was_started_and_is_over_can_be_run():
    sweep = Sweep(plain, numbers(3)).start()
    sweep._over.wait(30)
    assert sweep.run().progress.done == 3
    sweep.start().wait(30)
    held = threading.Event()
    busy = Sweep(lambda _: held.wait(30), numbers(1)).start()
    for again in (busy.run, busy.start):
        with pytest.raises(ConfigError, match="running already"):
            again()
    held.set()
    busy.wait(30)


class Wire(cf.Executor):
    """An executor of the user's: what it gives back, or raises."""

    def __init__(self, give):
        self.give = give

    def submit(self, function, /, *arguments):
        return self.give(function, arguments)


def done(value):
    future: cf.Future = cf.Future()
    future.set_result(value)
    return future


def test_an_executor_that_is_none_is_said_in_words():
    with pytest.raises(AgentError, match="its submit gave int, not a Future"):
        Sweep(plain, numbers(3)).run(Wire(lambda *_: 5))
    rows = list(Sweep(plain, numbers(2)).run(Wire(lambda *_: done("odd"))).rows())
    assert [row.status for row in rows] == ["failed", "failed"]
    assert "gave back str" in rows[0].error["message"]


def test_an_executor_whose_submit_raises_keeps_what_came():
    left = [2]

    def give(function, arguments):
        if not left[0]:
            raise OSError("the cluster is gone")
        left[0] -= 1
        return done(function(*arguments))

    sweep = Sweep(plain, numbers(5))
    with pytest.raises(AgentError, match="the cluster is gone"):
        sweep.run(Wire(give))
    assert sweep.progress.done == 2
    assert sweep.run().progress.done == 5


def test_a_progress_function_that_raises_loses_no_answer():
    calls = []

    def work(cell):
        calls.append(cell.inputs["n"])
        return 1

    def tell(_state):
        raise ValueError("no bar")

    sweep = Sweep(work, numbers(40))
    with pytest.raises(ValueError, match="no bar"):
        sweep.run(progress=tell)
    assert sweep.progress.answered == len(calls)
    assert sweep.run().progress.done == 40
    assert sorted(calls) == list(range(40))


def test_work_that_changes_its_cell_does_not_change_the_frame():
    def work(cell):
        cell.inputs["n"] = "changed"
        return 1

    assert Sweep(work, numbers(3)).run().frame()["n"].tolist() == [0, 1, 2]


def test_cells_from_a_generator_that_raises_leave_the_journal_free(tmp_path):
    def cells():
        yield Cell("a")
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        Sweep(plain, cells(), journal=tmp_path / "j.db")
    assert values(plain, tmp_path / "j.db") == [0]


def test_answers_that_could_not_be_written_are_written_by_the_next_run(tmp_path, monkeypatch):
    """The disk was full when they came: they are paid for, and asked no second time."""
    calls = []

    def work(cell):
        calls.append(cell.inputs["n"])
        return cell.inputs["n"]

    real, full = Journal.finish, [True]

    def finish(self, answers):
        if full[0] and len(calls) > 5:
            raise StoreError("database or disk is full")
        real(self, answers)

    monkeypatch.setattr(Journal, "finish", finish)
    with Sweep(work, numbers(40), journal=tmp_path / "j.db") as sweep:
        with pytest.raises(StoreError):
            sweep.run()
        came = len(calls)
        assert (sweep.frame()["status"] == "done").sum() == came < 40
        with pytest.raises(StoreError):  # still full: nothing is asked
            sweep.run()
        assert len(calls) == came
        full[0] = False
        assert sweep.run().progress.done == 40
    assert sorted(calls) == list(range(40))
