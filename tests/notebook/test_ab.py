"""notebook/verbs/ab.py and notebook/progress.py."""

from __future__ import annotations

import io

import pytest

from notebook_agent import ScriptedModel
from notebook_agent.core.compaction import CompactionPolicy
from notebook_agent.errors import AgentError, ConfigError
from notebook_agent.notebook.agent_session import AgentSession
from notebook_agent.notebook.arguments import UsageError
from notebook_agent.notebook.progress import progress
from notebook_agent.notebook.settings import Settings
from notebook_agent.notebook.verbs.ab import changed
from notebook_agent.notebook.verbs.table import read_line
from notebook_agent.tuning.cells import grid
from notebook_agent.tuning.driver import Progress
from notebook_agent.tuning.sweep import Sweep


@pytest.fixture
def agent():
    made = AgentSession(settings=Settings(pinned=True, store="memory"))
    made.model(ScriptedModel([f"Box {n} holds {n * 11} apples. " * 12 for n in range(30)]))
    for n in range(24):
        made.ask(f"What is in box {n}?")
    yield made
    made.close()


def test_the_line_is_read():
    call = read_line("ab threshold=60,target=50 strategy=truncate --answer")
    assert call.arguments == {
        "a": "threshold=60,target=50",
        "b": "strategy=truncate",
        "answer": True,
    }
    assert read_line("ab").arguments == {}


def test_two_policies_side_by_side_and_nothing_changes(agent):
    history = list(agent.runtime().session.history)
    found = agent.ab("window=900", "window=900,strategy=truncate")
    text = str(found)
    assert "window=900,strategy=truncate" in text
    assert "numbers that survive" in text
    assert found.data.report.outcome("window=900").applied
    assert agent.runtime().session.history == history
    assert agent.runtime().compaction == CompactionPolicy()


def test_one_word_is_compared_with_the_current_policy_and_none_with_another_strategy(agent):
    assert [o.name for o in agent.ab("window=900").data.report.outcomes] == [
        "current",
        "window=900",
    ]
    found = agent.ab()
    assert [o.name for o in found.data.report.outcomes] == ["current", "strategy=truncate"]
    assert "Neither policy fired" in str(found)


def test_answers_cost_two_requests_and_only_when_asked_for(agent):
    model = agent.runtime().clients(agent.runtime().primary)
    before = len(model.calls)
    agent.ab("window=900")
    assert len(model.calls) == before
    assert "window=900 answers:" in str(agent.ab("window=900", answer=True))
    assert len(model.calls) == before + 2


def test_changes_are_read_and_bad_ones_said():
    policy = CompactionPolicy()
    assert changed(policy, "threshold=60,auto=false,strategy=truncate").threshold == 60
    assert changed(policy, "summary_model=scripted:x").summary_model == "scripted:x"
    for bad in ("thresholt=60", "threshold", ""):
        with pytest.raises(UsageError, match="changes nothing"):
            changed(policy, bad)
    for bad in ("threshold=600", "strategy=nope", 'keep_tools="a"'):
        with pytest.raises(ConfigError):
            changed(policy, bad)


def test_policies_that_are_equal_or_a_session_without_messages_are_said(agent):
    with pytest.raises(UsageError, match="differ"):
        agent.ab("current", "current")
    empty = AgentSession(settings=Settings(pinned=True, store="memory"))
    empty.model(ScriptedModel("x"))
    with pytest.raises(AgentError, match="no messages"):
        empty.ab()
    empty.close()


# ---- progress ----------------------------------------------------------------------------------


async def work(cell):
    if cell.inputs["n"] == 1:
        raise ValueError("no")
    return 1


def test_the_bar_tells_total_done_and_failed(monkeypatch):
    monkeypatch.delenv("NOTEBOOK_AGENT_PINNED", raising=False)
    out = io.StringIO()
    Sweep(work, grid(inputs=[{"n": n} for n in range(5)])).run(progress=progress("cells", file=out))
    assert "cells" in out.getvalue()
    assert "5/5" in out.getvalue()
    assert "failed=1" in out.getvalue()


def test_a_bar_can_be_used_again():
    out = io.StringIO()
    bar = progress(file=out)
    for _ in range(2):
        bar(Progress(total=2, done=1))
        bar(Progress(total=2, done=2, finished=True))
    assert out.getvalue().count("2/2") >= 2


def test_pinned_notebooks_get_no_bar(monkeypatch):
    monkeypatch.setenv("NOTEBOOK_AGENT_PINNED", "1")
    out = io.StringIO()
    progress(file=out)(Progress(total=1, done=1, finished=True))
    assert out.getvalue() == ""
