"""Slips at labs and sweeps: each is said with what to write, and nothing was sent."""

from __future__ import annotations

import concurrent.futures as cf

import numpy as np
import pandas as pd
import pytest

from notebook_agent import CompactionPolicy, Message, ScriptedModel, Session
from notebook_agent.errors import ConfigError
from notebook_agent.tuning.cells import grid
from notebook_agent.tuning.compaction_lab import CompactionLab
from notebook_agent.tuning.executors import Limit
from notebook_agent.tuning.lab_work import Price
from notebook_agent.tuning.prompts import PromptLab
from notebook_agent.tuning.scorers import Judge, exact, json_schema, matches
from notebook_agent.tuning.sweep import Sweep

ASKED: list[object] = []
MODEL = ScriptedModel(lambda request: ASKED.append(request) or "x")


def lab(**given):
    variants = given.pop("variants", {"a": "Q {{q}}"})
    inputs = given.pop("inputs", [{"q": "1"}])
    return PromptLab(variants, inputs, **{"models": MODEL, **given})


def compaction(policies, **given):
    return CompactionLab([Message.user("x")], policies, **given)


@pytest.mark.parametrize(
    ("slip", "words"),
    [
        (lambda: lab(variants=["a"]), "a mapping, name -> text or Variant"),
        (lambda: lab(variants={"a": 5}), r"variants\['a'\] = 5"),
        (lambda: lab(inputs=pd.DataFrame({"q": ["1"]})), r'inputs.to_dict\("records"\)'),
        (lambda: lab(inputs={"q": "1"}), "a list of mappings"),
        (lambda: lab(inputs=["x"]), r"inputs\[0\] = 'x'"),
        (lambda: lab(inputs=[{"q": np.int64(3)}]), "JSON values"),
        (lambda: lab(models=None), "clients or names of models"),
        (lambda: lab(models=[]), "one or more"),
        (lambda: lab(models=[MODEL, 5]), "models = 5"),
        (lambda: lab(scorers=["exact"]), "scorers = 'exact'"),
        (lambda: lab(seeds=3), "a list of whole numbers"),
        (lambda: lab(seeds=["a"]), "seeds = 'a'"),
        (lambda: lab(seeds=[True]), "seeds = True"),
        (lambda: lab(seeds=[]), "one or more"),
        (lambda: lab(repeats=1.5), "repeats = 1.5"),
        (lambda: lab(repeats="2"), "a whole number, 1 or more"),
        (lambda: lab(repeats=0), "repeats = 0"),
        (lambda: lab(polcy=1), "did you mean policy"),
        (lambda: lab(quite_another=1), "resolve_client"),
        (lambda: lab(session=Session()), "a session of its own"),
        (lambda: lab(prices={"m": 3}), "full model name -> Price"),
        (lambda: Price(-1, 2), "input = -1"),
        (lambda: Price(1, float("nan")), "output = nan"),
        (lambda: Price(1, 2, cached="1"), "cached = '1'"),
        (lambda: Limit(concurrency=2.5), "a whole number, 1 or more"),
        (lambda: Limit(concurrency=True), "concurrency = True"),
        (lambda: Limit(per_minute="3"), "per_minute = '3'"),
        (lambda: Judge(model=None), "a client, or a model's name"),
        (lambda: Judge(model=MODEL, scale=(1,)), r"\(lowest, highest\)"),
        (lambda: Judge(model=MODEL, scale=("1", "5")), r"\(lowest, highest\)"),
        (lambda: matches(5), "a regular expression's text"),
        (lambda: json_schema("x"), "as a mapping"),
        (lambda: Sweep(None, grid()), "a function of one cell"),
        (lambda: Sweep(len, [{"a": 1}]), r"cells\[0\] = "),
        (lambda: Sweep(len, 5), "cells, e.g. grid"),
        (lambda: Sweep(len, grid(), code=5), "a text, e.g."),
        (lambda: Sweep(len, grid(), journal=5), "a path, or None"),
        (lambda: Sweep(len, grid()).run("threads"), "submit"),
        (lambda: Sweep(len, grid()).run(cf.ThreadPoolExecutor), "submit"),
        (lambda: compaction([CompactionPolicy()]), "a mapping, name -> CompactionPolicy"),
        (lambda: compaction({"a": "truncate"}), r"policies\['a'\] = 'truncate'"),
        (lambda: compaction({"a": CompactionPolicy()}, window="8k"), "window = '8k'"),
        (lambda: compaction({"a": CompactionPolicy()}, window=-5), "0 or more, or None"),
    ],
)
def test_a_slip_is_said_with_what_to_write(slip, words):
    before = len(ASKED)
    with pytest.raises(ConfigError, match=words):
        slip()
    assert len(ASKED) == before


def test_one_scorer_one_metric_and_numbers_of_numpy_do():
    result = lab(scorers=exact("q"), seeds=np.arange(2), repeats=np.int64(2)).run()
    assert len(result.rows) == 4
    assert result.compare("a", "a", metrics="exact")["metric"].tolist() == ["exact"]
    assert len(lab(variants={"a": "Q"}, inputs=None).run().rows) == 1
