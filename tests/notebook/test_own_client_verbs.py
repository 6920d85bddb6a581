"""Clients of one's own in a notebook: chosen by a variable, listed by their own word."""

from __future__ import annotations

from typing import Any

import pytest

from notebook_agent.errors import ConfigError, ProviderError
from notebook_agent.notebook.agent_session import AgentSession
from notebook_agent.notebook.settings import Settings
from notebook_agent.providers.scripted import ScriptedModel


class Own(ScriptedModel):
    provider = "mine"


@pytest.fixture
def session():
    made: list[AgentSession] = []

    def make(**namespace: Any) -> AgentSession:
        made.append(AgentSession(namespace, settings=Settings(store="memory", model="")))
        made[-1].model(ScriptedModel(["x"]))
        return made[-1]

    yield make
    for one in made:
        one.close()


async def _two(self: Any) -> list[str]:
    return ["small", "mine:big"]


async def _fails(self: Any) -> list[str]:
    raise RuntimeError("not now")


def test_L8_a_clients_own_list_is_shown(session):
    """A provider that nobody else knows was called unknown, with a line to type for another."""
    own = type("Listed", (Own,), {"list_models": _two})(["x"], name="small")
    agent = session(own=own)
    agent.model("@own")
    shown = repr(agent.models())
    assert "mine:small" in shown
    assert "mine:big" in shown
    assert "no provider" not in shown


def test_a_client_without_a_list_has_none(session):
    agent = session(own=Own(["x"], name="small"))
    agent.model("@own")
    shown = repr(agent.models())
    assert "mine:small" in shown
    assert "no provider" not in shown


@pytest.mark.parametrize(
    ("given", "words"),
    [(_fails, "not now"), (lambda s: None, "no list"), (lambda s: [5], "no list")],
)
def test_a_list_that_fails_is_the_clients_fault(session, given, words):
    own = type("Listed", (Own,), {"list_models": given})(["x"])
    agent = session(own=own)
    agent.model("@own")
    with pytest.raises(ProviderError, match=words):
        agent.models()


def test_what_is_no_client_is_not_in_use_afterwards(session):
    bad = type("Bad", (Own,), {"capabilities": lambda s: {"vision": True}})(["x"], name="bad")
    agent = session(bad=bad, kind=Own)
    for name, words in (("@bad", "gave a dict"), ("@kind", "is a class"), ("@none", "no variable")):
        with pytest.raises(ConfigError, match=words) as caught:
            agent.model(name)
        assert "@kind" not in str(caught.value)  # a class is no model to type
    assert "mine" not in repr(agent.models())
