"""``%agent tools add mcp:...``, ``rm``, approval; ``%agent model ... --api``."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from notebook_agent.errors import ConfigError
from notebook_agent.notebook.agent_session import AgentSession
from notebook_agent.notebook.arguments import UsageError
from notebook_agent.notebook.settings import Settings
from notebook_agent.notebook.verbs.table import read_line
from notebook_agent.providers.scripted import ScriptedModel
from notebook_agent.providers.scripted_reply import Reply, call

SERVER = str(Path(__file__).parent.parent / "engine" / "mcp_server.py")


@pytest.fixture
def agent() -> Any:
    made = AgentSession({}, settings=Settings(store="memory"))
    yield made
    made.close()


@pytest.mark.parametrize(
    ("line", "action", "names", "free"),
    [
        ("tools add mcp:python -m x --local-timezone=UTC -s 3", "add",
         ("mcp:python -m x --local-timezone=UTC -s 3",), False),
        ("tools add --no-confirm mcp:uvx mcp-server-git --repository 'a b'", "add",
         ("mcp:uvx mcp-server-git --repository 'a b'",), True),
        ("tools add mcp:http://127.0.0.1:8000/mcp", "add", ("mcp:http://127.0.0.1:8000/mcp",), False),
        ("tools rm time", "rm", ("time",), False),
        ("tools add f,g", "add", ("f", "g"), False),
    ],
)  # fmt: skip
def test_the_line_keeps_the_servers_own_dashes(line, action, names, free):
    given = read_line(line).arguments
    assert (given["action"], given["names"], given.get("no_confirm", False)) == (
        action,
        names,
        free,
    )


@pytest.mark.skipif(find_spec("mcp") is None, reason="the mcp package is not installed")
def test_add_use_and_remove(agent):
    target = f"mcp:{sys.executable} {SERVER}"
    said = repr(agent.tools("add", [target], no_confirm=True))
    assert "test_add" in said
    assert "Add two numbers." in said
    client = ScriptedModel([Reply(tool_calls=(call("test_add", a=1, b=2),)), "done"], name="s")
    agent.model(client)
    agent.ask("add")
    assert client.requests[1].messages[-1].results[0].output == "3"
    (server,) = agent.mcp_servers.values()
    assert agent.tools("add", [target], no_confirm=True)
    assert list(agent.mcp_servers.values()) == [server]  # not started twice
    assert "no tools" in repr(agent.tools("rm", ["test"]))
    assert not server.running
    with pytest.raises(UsageError, match="no tool 'test'"):
        agent.tools("rm", ["test"])


@pytest.mark.skipif(find_spec("mcp") is None, reason="the mcp package is not installed")
def test_D20_a_call_is_denied_where_nobody_can_be_asked(agent):
    agent.tools("add", [f"mcp:{sys.executable} {SERVER}"])
    client = ScriptedModel([Reply(tool_calls=(call("test_add", a=1, b=2),)), "done"], name="s")
    agent.model(client)
    agent.ask("add")
    (result,) = client.requests[1].messages[-1].results
    assert result.is_error
    assert "did not answer" in result.output or "nobody can be asked" in result.output
    (server,) = agent.mcp_servers.values()
    agent.close()
    assert not server.running  # the server ends with the session


@pytest.mark.skipif(find_spec("mcp") is None, reason="the mcp package is not installed")
def test_D20_adding_a_server_again_with_approval_asks_from_then_on(agent):
    target = f"mcp:{sys.executable} {SERVER}"
    agent.tools("add", [target], no_confirm=True)
    (free,) = agent.mcp_servers.values()
    agent.tools("add", [target])
    (asking,) = agent.mcp_servers.values()
    assert not free.running
    assert asking.confirm
    assert {tool.confirm for tool in agent.runtime().registry} == {True}
    with pytest.raises(UsageError, match="no tool 'mcp:another'"):
        agent.tools("rm", ["mcp:another"])
    assert "no tools" in repr(agent.tools("rm", [target]))
    assert not asking.running


def test_a_server_that_is_none_adds_nothing(agent):
    with pytest.raises(ConfigError, match="command or an address"):
        agent.tools("add", ["mcp:"])
    assert not agent.mcp_servers


def test_any_address_with_its_wire_format(agent):
    said = repr(agent.model("http://127.0.0.1:9/v1#small", api="anthropic-messages"))
    assert "at-127.0.0.1-9:small" in said
    assert type(agent.models_book.client(agent.settings.model)).__name__ == "AnthropicMessages"
    assert read_line("model http://h/v1#n --api gemini").arguments["api"] == "gemini"
    with pytest.raises(UsageError, match="openai-chat"):
        read_line("model http://h/v1#n --api openai")
