"""A sweep whose executor loses workers: the cell goes out once more, marked; then it is said."""

from __future__ import annotations

import concurrent.futures as cf
import multiprocessing
import pickle
from collections import Counter

import pytest

from notebook_agent import ScriptedModel
from notebook_agent.errors import AgentError
from notebook_agent.tuning.cells import grid
from notebook_agent.tuning.compaction_lab import CompactionLab
from notebook_agent.tuning.lab_work import LabWork
from notebook_agent.tuning.prompts import PromptLab
from notebook_agent.tuning.sweep import Sweep


class KilledWorker(Exception):
    """Dask's word, by its name."""


class Losing(cf.Executor):
    """Loses a cell as often as it is told, then works it at once."""

    def __init__(self, losses, error=KilledWorker):
        self.losses, self.error, self.sent = Counter(losses), error, Counter()

    def submit(self, fn, /, work, cell):
        future = cf.Future()
        number = cell.inputs["n"]
        self.sent[number] += 1
        if self.losses[number] > 0:
            self.losses[number] -= 1
            future.set_exception(self.error())
        else:
            future.set_result(fn(work, cell))
        return future


def work(cell):
    return cell.inputs["n"]


def cells(count=6):
    return grid(inputs=[{"n": n} for n in range(count)])


@pytest.mark.parametrize("error", [KilledWorker, cf.CancelledError])
def test_a_cell_that_was_lost_is_sent_once_more_and_marked(error):
    executor = Losing({2: 1, 4: 1}, error)
    sweep = Sweep(work, cells())
    frame = sweep.run(executor).frame()
    assert frame["status"].tolist() == ["done"] * 6
    assert frame["resent"].tolist() == [0, 0, 1, 0, 1, 0]
    assert sweep.progress.resent == 2
    assert executor.sent == Counter({0: 1, 1: 1, 2: 2, 3: 1, 4: 2, 5: 1})


def test_a_cell_that_was_lost_twice_failed_and_can_be_sent_again():
    executor = Losing({3: 2})
    sweep = Sweep(work, cells())
    frame = sweep.run(executor).frame()
    assert frame["status"].tolist() == ["done"] * 3 + ["failed"] + ["done"] * 2
    assert frame["error"][3].startswith("WorkerLost: the worker died twice")
    assert executor.sent[3] == 2
    assert sweep.run(executor, retry_failed=True).frame()["status"].tolist() == ["done"] * 6


class Broken(cf.Executor):
    """Takes three cells, then is broken."""

    def __init__(self):
        self.left = 3

    def submit(self, fn, /, work, cell):
        if not self.left:
            raise cf.BrokenExecutor("gone")
        self.left -= 1
        future = cf.Future()
        future.set_result(fn(work, cell))
        return future


def test_an_executor_that_refuses_ends_the_sweep_with_what_is_done():
    sweep = Sweep(work, cells())
    with pytest.raises(AgentError, match=r"executor broke \(gone\); 3 answers are kept"):
        sweep.run(Broken())
    assert sweep.progress.done == 3
    assert sweep.run().progress.done == 6


def test_no_client_that_was_made_by_name_leaves_the_process():
    made = LabWork({}, {"retry": None})
    made.client("scripted:teacher")
    assert made.made
    copy = pickle.loads(pickle.dumps(made))
    assert (copy.made, copy.settings) == ({}, {"retry": None})


def test_a_lab_works_in_other_processes_by_the_models_name():
    lab = PromptLab({"a": "Say {{word}}."}, [{"word": w} for w in "xyz"], models="scripted:teacher")
    spawn = multiprocessing.get_context("spawn")
    with cf.ProcessPoolExecutor(1, mp_context=spawn) as pool:
        frame = lab.run(pool).frame()
    assert frame["status"].tolist() == ["done"] * 3
    assert frame["output_tokens"].notna().all()


def test_reports_and_labs_say_what_they_are():
    from tests.tuning.test_compaction_lab import SMALL, talk

    lab = CompactionLab(talk(3), {"small": SMALL}, model=ScriptedModel("x"))
    assert "1 policies" in repr(lab)
    assert "small" in repr(lab.run())
    assert "cells answered" in repr(Sweep(work, cells()))
    assert "1 variants x 1 inputs" in repr(PromptLab({"a": "b"}, [{}], models=ScriptedModel("x")))
