"""Odd input of labs and sweeps: clear words, partial results kept."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from notebook_agent import ScriptedModel
from notebook_agent.engine.store.run_file import read_run_file
from notebook_agent.errors import Cancelled, ConfigError, StoreError
from notebook_agent.tuning.cells import Cell
from notebook_agent.tuning.scorers import scorer
from notebook_agent.tuning.sweep import Sweep
from tests.tuning.test_prompts import lab


def exits(*_given):
    raise SystemExit(2)


def test_a_scorer_that_exits_costs_its_column_only():
    frame = lab(scorers=[scorer(exits, "gone"), scorer(len, "length")]).run().frame()
    assert frame["gone"].isna().all()
    assert frame["gone_error"].tolist() == ["SystemExit: 2"] * 8
    assert (frame["length"] > 0).all()


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_a_score_that_is_no_finite_number_is_none(value):
    frame = lab(scorers=[scorer(lambda _reply: value, "s")]).run().frame()
    assert frame["s"].isna().all()
    assert frame["s_error"].str.startswith("no number").all()


def test_an_async_scorer_is_refused():
    async def later(reply):
        return 1.0

    with pytest.raises(ConfigError, match="'later' is async"):
        lab(scorers=[later])


def test_a_model_that_exits_fails_its_cells_only():
    frame = lab(models=ScriptedModel(exits)).run().frame()
    assert frame["status"].tolist() == ["failed"] * 8


@pytest.mark.parametrize(
    ("typed", "given"),
    [("e\u0301tat", "\u00e9tat"), ("\u0939\u093f\u0928\u094d\u0926\u0940",) * 2],
)
def test_D7_a_placeholder_of_any_script_finds_its_input(typed, given):
    variants = {"v": f"Capital of {{{{{typed}}}}}? Answer with one word."}
    frame = lab(variants=variants, inputs=[{given: "Malta", "expected": "Valletta"}]).run().frame()
    assert frame["exact"].tolist() == [1.0]


@pytest.mark.parametrize("path", ["a\0b.db", "~no-such-user-here/j.db"])
def test_a_journal_or_run_file_at_no_place_is_refused_in_words(path):
    with pytest.raises(StoreError, match="is no place for a journal"):
        lab(journal=path)
    with pytest.raises(StoreError, match="cannot be read"):
        read_run_file(path)


@pytest.mark.parametrize("started", [False, True])
def test_F11_a_sweep_in_an_awaited_cell_can_be_interrupted(started):
    """There SIGINT raises nothing by itself; what was answered is kept."""
    begun, let_go = threading.Event(), threading.Event()

    def work(cell):
        if cell.inputs["n"] == 0:
            return "first"
        begun.set()
        let_go.wait(5)
        return "late"

    cells = [Cell("p", {}, {"n": n}) for n in range(200)]
    sweep = Sweep(work, cells)
    before = signal.signal(signal.SIGINT, lambda *_: None)

    def press() -> None:
        begun.wait(5)
        os.kill(os.getpid(), signal.SIGINT)
        threading.Timer(0.2, let_go.set).start()

    threading.Thread(target=press).start()
    try:
        with pytest.raises(Cancelled):
            if started:
                sweep.start().wait(10)
            else:
                sweep.run()
    finally:
        let_go.set()
        signal.signal(signal.SIGINT, before)
    assert "first" in sweep.frame()["value"].tolist()
