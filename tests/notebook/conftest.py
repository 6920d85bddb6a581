"""What many tests of the notebook side begin with; a file with other needs has its own."""

from __future__ import annotations

import pytest

from notebook_agent.notebook.agent_session import AgentSession
from notebook_agent.notebook.settings import Settings
from notebook_agent.providers.scripted import ScriptedModel


@pytest.fixture
def model():
    return ScriptedModel(["First reply.", "Second reply.", "Third reply."], name="m")


@pytest.fixture
def agent(model):
    """A session object outside IPython, on a scripted model, kept in memory."""
    made = AgentSession({}, settings=Settings(store="memory", model=""))
    made.model(model)
    yield made
    made.close()
