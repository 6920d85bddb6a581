"""A verb that looks at a session begins none: a misspelt name is said, with the nearest."""

from __future__ import annotations

import pytest

from notebook_agent.notebook.agent_session import AgentSession
from notebook_agent.notebook.arguments import UsageError
from notebook_agent.notebook.settings import Settings
from notebook_agent.providers.scripted import ScriptedModel


def agent_of(path) -> AgentSession:
    made = AgentSession({}, settings=Settings(store=str(path), model=""))
    made.model(ScriptedModel(["Fine."], name="m"))
    return made


@pytest.fixture
def agent(tmp_path):
    made = agent_of(tmp_path / "s.db")
    made.ask("hi", session="tides")
    yield made
    made.close()


LOOKS = {
    "audit": lambda a, s: a.audit(session=s),
    "history": lambda a, s: a.history(session=s),
    "events": lambda a, s: a.events(session=s),
    "fsm": lambda a, s: a.fsm(session=s),
    "show": lambda a, s: a.show(session=s),
    "undo": lambda a, s: a.undo(session=s),
    "reset": lambda a, s: a.reset(session=s),
    "export": lambda a, s: a.export("talk.md", session=s),
    "compact": lambda a, s: a.compact(session=s),
}


@pytest.mark.parametrize("verb", LOOKS)
def test_a_misspelt_session_is_said_and_not_begun(agent, verb, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = agent.sessions
    with pytest.raises(UsageError, match=r"no session 'tidse'\. Did you mean 'tides'\?"):
        LOOKS[verb](agent, "tidse")
    assert agent.sessions == before
    assert [r.name for r in agent.store().list_sessions()] == ["tides"]
    assert not (tmp_path / "talk.md").exists()
    with pytest.raises(UsageError, match="There are: default, tides"):
        LOOKS[verb](agent, "zzz")


def test_D21_a_stored_session_is_loaded_first_and_an_empty_one_of_this_kernel_is_there(
    agent, tmp_path
) -> None:
    assert agent.audit(session="default").empty
    assert len(agent.audit(session="tides")) == 1
    assert len(agent.audit()) == 0
    other = agent_of(tmp_path / "s.db")
    try:
        with pytest.raises(UsageError, match="%agent session load tides"):
            other.audit(session="tides")
        other.session("load", "tides")
        assert len(other.audit(session="tides")) == 1
    finally:
        other.close()
