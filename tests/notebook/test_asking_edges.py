"""The session object and runs at their edges: what is found, refused, stopped, kept."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace

import pytest
from pydantic import BaseModel

from notebook_agent.core.session import RunStatus
from notebook_agent.errors import AgentError, ConfigError, SessionBusy
from notebook_agent.notebook import runs as runs_module
from notebook_agent.notebook.agent_session import AgentSession, _Holder
from notebook_agent.notebook.arguments import CellOptions, UsageError
from notebook_agent.notebook.model_book import LiveNames
from notebook_agent.notebook.settings import Settings
from notebook_agent.providers.scripted import ScriptedModel

# ---- the session object ------------------------------------------------------------------------


def test_the_session_of_the_process_takes_in_the_shell_that_comes_later():
    holder = _Holder()
    first = holder.get()
    shell = SimpleNamespace(user_ns={"x": 1})
    assert holder.get(shell) is first
    assert first.namespace is shell.user_ns
    assert holder.get() is first
    assert repr(first) == "<AgentSession 'default', 0 open; .help() lists the verbs>"
    first.close()


def test_names_follow_the_namespace_that_the_shell_holds():
    now = {"a": 1}
    names = LiveNames(lambda: now)
    now = {"b": 2, "c": 3}
    assert (dict(names), len(names), list(names), names["c"]) == (now, 2, ["b", "c"], 3)


def test_a_run_is_found_by_number_id_and_the_start_of_an_id(agent):
    with pytest.raises(UsageError, match="no runs yet"):
        agent.find_run(None)
    one, two = agent.ask("hi").run, agent.ask("again").run
    assert agent.find_run(None).id == two.id
    assert agent.find_run("0").id == agent.find_run("-2").id == one.id
    assert agent.find_run(two.id).id == two.id
    assert agent.find_run(two.id[:-1]).id == two.id
    for wrong in ("2", "nosuch", "run_"):  # the last one fits both
        with pytest.raises(UsageError, match="give 0 to 1"):
            agent.find_run(wrong)


def test_a_window_is_the_smallest_of_model_policy_and_compaction(agent):
    agent.model(ScriptedModel(["x"], name="small", window=8_000))
    assert agent.window() == agent.effective_window("default") == 8_000
    agent.ask("hi")
    agent.runtime().set_compaction(window=5_000)
    assert agent.effective_window("default") == 5_000
    agent.runtime().set_compaction(window=0)
    assert agent.effective_window("default") == 8_000


def test_a_store_that_cannot_be_used_leaves_the_open_one(agent, tmp_path):
    agent.ask("hi")
    before = agent.store()
    (tmp_path / "no.db").write_text("this is no database, and it is long enough to be seen as such")
    with pytest.raises(ConfigError):
        agent.configure(store=str(tmp_path / "no.db"))
    assert agent.store() is before
    assert agent.settings.store == "memory"
    assert agent.ask("again").text == "Second reply."


def test_looking_at_a_store_that_is_not_there_makes_no_file(tmp_path, model):
    path = tmp_path / "sessions.db"
    looking = AgentSession({}, settings=Settings(store=str(path)))
    assert looking.existing_store() is None
    assert "no stored sessions" in repr(looking.session())
    assert not path.exists()
    assert AgentSession({}, settings=Settings(pinned=True)).existing_store() is None
    looking.model(model)
    looking.ask("hi")
    looking.close()
    later = AgentSession({}, settings=Settings(store=str(path)))
    assert [row.name for row in later.existing_store().list_sessions()] == ["default"]
    later.close()


def test_a_backup_and_a_system_prompt_of_the_settings_reach_open_sessions(agent):
    agent.ask("hi")
    agent.namespace["spare"] = ScriptedModel(["x"], name="spare")
    agent.configure(system="Be brief.", fallback="@spare", model="scripted:teacher")
    runtime = agent.runtime()
    assert runtime.system == "Be brief."
    assert [e.name for e in runtime.breaker.chain] == ["scripted:spare"]
    assert runtime.primary == "scripted:teacher"
    with pytest.raises(ConfigError, match="nearest: max_turns"):
        agent.configure(max_turn=3)


# ---- asking ------------------------------------------------------------------------------------


def test_the_panel_without_its_package_says_what_to_type(agent, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(runs_module, "find_spec", lambda n: None if n == "anywidget" else real(n))
    monkeypatch.setattr(runs_module, "choose", lambda *_, **__: "panel")
    with pytest.raises(UsageError, match="pip install anywidget"):
        agent.ask("hi", show="panel")
    assert agent.ask("hi", show="null").text == "First reply."


def test_background_code_is_refused_and_a_headless_background_runs_in_front(agent, monkeypatch, capsys):  # fmt: skip
    with pytest.raises(UsageError, match="no next cell can be proposed"):
        agent.ask("hi", background=True, format="code")
    headless = SimpleNamespace(name="headless", sink="static", sign="nobody is there")
    monkeypatch.setattr(runs_module, "guess", lambda _shell: headless)
    assert agent.in_front(CellOptions(background=True)).background is False
    assert "stays in its cell" in capsys.readouterr().out


def test_a_background_run_in_a_terminal_writes_nothing_over_the_prompt(agent, capsys):
    handle = agent.prepare("hi", CellOptions(background=True, show="stream", into="x")).background()
    assert handle.wait(20).text == "First reply."
    assert agent.namespace["x"].text == "First reply."
    assert "First reply." not in capsys.readouterr().out


def test_a_background_run_that_fails_keeps_what_its_options_asked_for(agent, tmp_path):
    agent.model(ScriptedModel(["never"], script="400", name="bad"))
    where = tmp_path / "gone"
    where.mkdir()
    options = CellOptions(background=True, show="null", into="x", record=str(where / "r.jsonl"))
    prepared = agent.prepare("hi", options)
    where.rmdir()
    where.write_text("")
    handle = prepared.background()
    with pytest.raises(AgentError, match="400"):
        handle.wait(20)
    assert agent.namespace["x"].status is RunStatus.FAILED
    assert agent.last_error is not None
    assert where.read_text() == ""  # no record, and the run's own error is the one that is told


def test_stop_ends_what_runs_and_says_when_nothing_does(agent):
    assert repr(agent.stop()) == "nothing is running"
    agent.model(ScriptedModel(["a long reply"], script="hang@1", name="slow"))
    handle = agent.prepare("hi", CellOptions(background=True, show="null")).background()
    with pytest.raises(SessionBusy):
        agent.ask("meanwhile")
    assert "1 running" in repr(agent.status())
    assert repr(agent.stop()) == "stopping"
    assert handle.wait(20).status is RunStatus.CANCELLED
    assert repr(agent.stop()) == "nothing is running"


def test_code_goes_to_the_next_cell_and_a_function_called_underscore_is_left(agent):
    proposed = []
    agent.shell = SimpleNamespace(
        user_ns={"_": str.upper}, set_next_input=lambda code, replace: proposed.append(code)
    )
    agent.model(ScriptedModel(["Take this:\n```python\nx = 1\n```\n", "no fence"], name="coder"))
    agent.ask("write", format="code")
    agent.ask("write", format="code")
    assert proposed == ["x = 1", "no fence"]
    assert agent.namespace["_"] is str.upper


def test_a_dry_run_tells_model_parameters_schema_chain_and_tools(agent):
    def look(box: int) -> str:
        """Look into a box."""
        return "apples"

    class Answer(BaseModel):
        n: int

    agent.namespace.update(look=look, Answer=Answer, df=[1, 2])
    report = agent.dry_run(
        "What is in it?", tools=("look",), schema="Answer", fallback=("scripted:teacher",),
        params={"seed": 3}, with_=("df",), system="Be brief.", model="scripted:teacher",
    )  # fmt: skip
    said = repr(report)
    for words in (
        "nothing was sent", "system: Be brief.", "tools: look", "[transient, user]", "seed=3",
        "Answer, forced", "scripted:teacher", "What is in it?",
    ):  # fmt: skip
        assert words in said, words
    assert agent.existing_store().list_sessions() == []


def test_a_prompt_that_is_empty_or_at_no_place_is_refused_before_anything_is_sent(agent, model, tmp_path):  # fmt: skip
    for options, words in (
        ({"system": "@nosuch"}, "no variable 'nosuch'"),
        ({"tools": ("n",)}, "is no function"),
        ({"schema": "Nosuch"}, "is not defined"),
        ({"schema": "n", "format": "code"}, "asks for something else"),
        ({"record": str(tmp_path / "f" / "x.jsonl")}, "is no place for a file"),
        ({"record": "no\0place"}, "it holds a NUL"),
        ({"record": "x" * 5_000}, "is no place for a file"),
    ):
        (tmp_path / "f").write_text("")
        agent.namespace["n"] = 3
        with pytest.raises(AgentError, match=words):
            agent.ask("hi", **options)
    assert model.calls == []


def test_limits_and_timeouts_of_one_cell_are_its_own(agent, model):
    agent.ask("hi", max_turns=1, max_tokens=5_000, timeout=7.0, no_stream=True)
    config = agent.last_run().config
    assert (config["policy"]["max_iterations"], config["policy"]["max_total_tokens"]) == (1, 5_000)
    agent.ask("again")
    assert agent.last_run().config["policy"]["max_iterations"] != 1
