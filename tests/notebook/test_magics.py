"""notebook/magics.py, completion.py in IPython's own shell: configuration, cells, lines, errors."""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from notebook_agent import load_ipython_extension, unload_ipython_extension
from notebook_agent.core.result import RunResult
from notebook_agent.errors import AgentError, Cancelled, ConfigError
from notebook_agent.notebook import agent_session
from notebook_agent.notebook.arguments import UsageError
from notebook_agent.notebook.completion import Completer
from notebook_agent.notebook.report import Report
from notebook_agent.providers.scripted import ScriptedModel


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """A shell of its own with our extension, and a session of its own."""
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setattr(agent_session, "_HOLDER", agent_session._Holder())
    config = Config()
    config.HistoryManager.enabled = False
    config.AgentMagics.store = "memory"
    config.AgentMagics.max_turns = 3
    config.AgentMagics.show = "null"
    made = InteractiveShell(config=config)
    load_ipython_extension(made)
    agent_session.current().model(ScriptedModel(["A reply."], name="m"))
    yield made
    agent_session.current().close()
    unload_ipython_extension(made)
    made.restore_sys_module_state()


@pytest.fixture
def magics(shell):
    return shell.magics_manager.registry["AgentMagics"]


# ---- configuration ---------------------------------------------------------------------------


def test_the_persons_ipython_configuration_is_taken_over_once(shell, magics):
    agent = magics.agent
    assert agent is agent_session.current()
    assert (agent.settings.max_turns, agent.settings.store) == (3, "memory")
    agent.configure(max_turns=5)
    assert magics.max_turns == 5  # %config shows what a verb changed
    load_ipython_extension(shell)  # a reload keeps what holds now
    again = shell.magics_manager.registry["AgentMagics"]
    assert (again.max_turns, again.agent.settings.max_turns) == (5, 5)
    assert again.agent is agent


def test_a_setting_that_cannot_be_used_keeps_its_old_value(shell, magics):
    assert magics.model == "scripted:m"  # as a twin left it
    with pytest.raises(ConfigError, match="nosuch"):
        magics.model = "nosuch:model"
    assert magics.model == magics.agent.settings.model == "scripted:m"
    assert isinstance(magics.agent.last_error, ConfigError)
    magics.max_turns = 7
    assert magics.agent.settings.max_turns == 7
    magics.model = ""  # the default again
    assert magics.agent.settings.model == ""


def test_config_shows_what_a_twin_changed(magics):
    magics.agent.system("Be brief.")
    magics.agent.fallback("scripted:teacher")
    assert (magics.system, magics.fallback) == ("Be brief.", "scripted:teacher")


# ---- cells and lines ---------------------------------------------------------------------------


async def test_cells_that_are_awaited(magics):
    shown = await magics.run_cell("--dry-run", "What is it?")
    assert isinstance(shown, Report)
    assert "What is it?" in repr(shown)
    assert await magics.run_cell("--into x", "Hi") is None
    assert magics.agent.namespace["x"].text == "A reply."
    handle = await magics.run_cell("--background", "Hi")
    assert (await handle).text == "A reply."


def test_cells_of_synchronous_code(shell, magics):
    assert "What is it?" in repr(shell.run_cell_magic("agent", "--dry-run", "What is it?\n"))
    assert shell.run_cell_magic("agent", "--into x", "Hi\n") is None
    assert shell.user_ns["x"].text == "A reply."
    assert shell.user_ns["x"].run.input == "Hi"
    handle = shell.run_cell_magic("agent", "--background", "Hi\n")
    assert handle.wait(20).text == "A reply."


async def test_lines_that_are_awaited(magics):
    assert await magics.run_line("ask Hi") is None
    result = await magics.run_line("ask Hi", True)
    assert isinstance(result, RunResult)
    assert "A reply." in repr(await magics.run_line("history"))
    assert "scripted:m" in repr(await magics.run_line("models ollama"))


def test_lines_of_synchronous_code(shell):
    assert shell.run_line_magic("agent", "ask Hi") is None
    assert "1, last completed" in repr(shell.run_line_magic("agent", "status"))


def test_a_cell_below_other_code_is_refused(magics):
    with pytest.raises(UsageError, match="must begin its cell"):
        magics.not_first()
    assert isinstance(magics.agent.last_error, UsageError)


# ---- errors ------------------------------------------------------------------------------------


def raising(error):
    def prepare(*_):
        raise error

    return prepare


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (KeyboardInterrupt(), Cancelled, "stopped"),
        (ZeroDivisionError("a defect"), AgentError, "Unexpected ZeroDivisionError in prepare"),
        (UsageError("told in words"), UsageError, "told in words"),
    ],
)
def test_X05_whatever_a_cell_raises_is_short_and_without_frames(magics, monkeypatch, error, kind, words):  # fmt: skip
    monkeypatch.setattr(magics.agent, "prepare", raising(error))
    with pytest.raises(kind, match=re.escape(words)) as blocked:
        magics.run_cell_sync("", "Hi")
    with pytest.raises(kind, match=re.escape(words)) as awaited:
        asyncio.run(magics.run_cell("", "Hi"))
    for caught in (blocked, awaited):
        assert caught.value.__suppress_context__
    kept = magics.agent.last_error
    assert (kept is None) == (kind is Cancelled)  # the person's own stop is no error


# ---- completion --------------------------------------------------------------------------------


def event(line, symbol=None):
    return SimpleNamespace(line=line, symbol=line.split(" ")[-1] if symbol is None else symbol)


def test_completion_as_ipython_asks_for_it(shell, magics, tmp_path, monkeypatch):
    complete = Completer(magics.agent)
    assert complete(shell, event("%agent sta")) == ["status"]
    assert "--model" in complete(shell, event("%%agent --mo"))
    assert complete(shell, event("%agent breaker t")) == ["trip"]
    assert complete(shell, event("%agent help sta")) == ["status"]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "talk.jsonl").write_text("")
    (tmp_path / "talk.txt").write_text("")
    assert complete(shell, event("%agent replay t")) == ["talk.jsonl"]
    assert "openai" in complete(shell, event("%agent key open"))


def test_completion_knows_sessions_runs_and_functions(magics):
    agent, complete = magics.agent, Completer(magics.agent)
    assert list(complete.names("runs")) == []  # looking makes no session
    assert list(complete.names("sessions")) == ["default"]
    assert list(complete.names("stored")) == []
    agent.ask("Hi")
    agent.ask("Hi", session="work")
    assert set(complete.names("sessions")) == {"default", "work"}
    assert set(complete.names("stored")) == {"default", "work"}
    assert list(complete.names("runs")) == [agent.last_run().id]
    agent.namespace.update(look=len, _own=len, n=1)
    assert "look" in complete.names("functions")
    assert not {"_own", "n"} & set(complete.names("functions"))
    assert "n" in complete.names("names")
    assert "status" in complete.names("verbs")
    assert "openai" in complete.names("providers")
    assert list(complete.names("no such source")) == []
