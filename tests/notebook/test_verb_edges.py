"""Verbs of the conversation, of files and of settings at their edges: what each says and refuses."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from types import SimpleNamespace

import pytest

from notebook_agent.errors import AgentError, Cancelled, ConfigError, StoreError
from notebook_agent.notebook.agent_session import AgentSession
from notebook_agent.notebook.arguments import UsageError
from notebook_agent.notebook.internal import internal_error
from notebook_agent.notebook.kernel_loop import SameLoop
from notebook_agent.notebook.settings import Settings
from notebook_agent.notebook.verbs import about, shown
from notebook_agent.providers.scripted import ScriptedModel

# ---- conversation ------------------------------------------------------------------------------


def test_sessions_are_saved_loaded_and_deleted(agent):
    assert "no stored sessions" in repr(agent.session("list"))
    agent.ask("hi")
    with pytest.raises(UsageError, match="session save NAME"):
        agent.session("save")
    assert "'kept' is kept; it ends with this kernel" in repr(agent.session("save", "kept"))
    assert agent.current == "kept"
    agent.ask("again", session="other")
    listed = repr(agent.session())
    assert "current" in listed
    assert "open" in listed
    assert "1 runs, 2 messages" in repr(agent.session("load", "other"))
    assert agent.current == "other"
    assert "'other' is deleted" in repr(agent.session("delete", "other"))
    assert agent.current == "default"
    assert "other" not in repr(agent.session())
    assert "'kept' is deleted" in repr(agent.session("delete", "kept"))


def test_a_stored_session_of_an_earlier_kernel_is_deleted_too(tmp_path, model):
    path = str(tmp_path / "s.db")
    earlier = AgentSession({}, settings=Settings(store=path))
    earlier.model(model)
    earlier.ask("hi")
    assert f"is kept in {path}" in repr(earlier.session("save", "talk"))
    earlier.close()
    later = AgentSession({}, settings=Settings(store=path))
    later.model(model)
    assert "1 runs" in repr(later.session("load", "talk"))
    assert later.undo() is not None
    assert "there is nothing to undo" in repr(later.undo())
    later.close()
    last = AgentSession({}, settings=Settings(store=path))
    last.model(model)
    assert "'talk' is deleted" in repr(last.session("delete", "talk"))
    assert "no stored sessions" in repr(last.session())
    last.close()


def test_reset_says_what_stays(agent):
    agent.ask("hi")
    assert "the audit trail stays" in repr(agent.reset())
    assert repr(agent.history()) == "the conversation is empty"
    assert len(agent.runtime().session.runs) == 1
    assert "audit trail are gone" in repr(agent.reset(hard=True))
    assert agent.runtime().session.runs == []


def test_a_pass_by_hand_says_what_it_did_or_why_not(agent):
    assert "not compacted" in repr(agent.compact("now"))
    for n in range(3):
        agent.ask(f"{n} " + "many words here " * 400)
    agent.compact("policy", {"window": 4_000, "strategy": "truncate"})
    assert "a pass now" in repr(agent.compact("preview"))
    done = repr(agent.compact("now"))
    assert done.startswith("compacted")
    assert "messages removed" in done
    with pytest.raises(UsageError, match="takes no changes"):
        agent.compact("now", {"window": 3})


def test_undo_of_several_runs(agent):
    for _ in range(3):
        agent.ask("hi")
    assert repr(agent.undo()).startswith("1 run left")
    assert repr(agent.undo(2)).startswith("2 runs left")


# ---- run files ---------------------------------------------------------------------------------


def test_verbs_that_need_a_file_say_so(agent):
    agent.ask("hi")
    for call, words in (
        (agent.record, "record needs a file"),
        (agent.prepare_replay, "replay needs a file"),
        (agent.export, "export needs a file"),
    ):
        with pytest.raises(UsageError, match=words):
            call()
    with pytest.raises(UsageError, match=r"talk\.md"):
        agent.export("talk.exe")


def test_an_export_to_a_place_that_takes_none(agent, tmp_path):
    agent.ask("hi")
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(UsageError, match=r"could not be written.*\n.*%agent export talk\.md"):
        agent.export(str(tmp_path / "file" / "talk.md"))


def test_an_export_is_whole_or_what_was_there_stays(agent, tmp_path, monkeypatch):
    agent.ask("hi")
    target = tmp_path / "talk.md"
    agent.export(str(target))
    before = target.read_text()

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    agent.ask("again")
    with pytest.raises(UsageError, match="No space left on device"):
        agent.export(str(target))
    assert target.read_text() == before
    assert [p.name for p in tmp_path.iterdir()] == ["talk.md"]


def test_a_number_that_is_none_is_refused_by_config_too(agent):
    for value in (float("nan"), float("inf"), -1.0):
        with pytest.raises(ConfigError, match="timeout"):
            agent.apply_setting("timeout", value)
    assert agent.settings.timeout == 0.0


def test_a_failed_run_is_exported_with_its_error(agent, tmp_path):
    agent.model(ScriptedModel(["never"], script="400", name="bad"))
    with pytest.raises(AgentError):
        agent.ask("hi")
    agent.export(str(tmp_path / "t.json"))
    assert '"error": {' in (tmp_path / "t.json").read_text()
    agent.export(str(tmp_path / "t.md"))
    assert "failed" in (tmp_path / "t.md").read_text()
    agent.export(str(tmp_path / "t.ipynb"))
    assert "%%agent --raw" in (tmp_path / "t.ipynb").read_text()


def test_replay_checks_steps_and_drives_again(agent, tmp_path):
    agent.ask("hi")
    path = str(tmp_path / "run.jsonl")
    assert "--check" in repr(agent.record(path))
    assert "Continue(" in repr(agent.prepare_replay(path, step=True))
    assert agent.prepare_replay(path, check=True).data.ok
    assert agent.prepare_replay(path).data.ok
    again = agent.prepare_replay(path, speed=50.0)
    assert "the same as recorded" in repr(asyncio.run(again.awaited()))


def test_a_file_that_differs_is_an_error_of_check_and_of_drive(agent, tmp_path):
    agent.ask("hi")
    path = tmp_path / "run.jsonl"
    agent.record(str(path))
    path.write_text(path.read_text().replace("calling_model", "persisting", 1))
    with pytest.raises(AgentError):
        agent.replay(str(path))
    with pytest.raises(AgentError):
        agent.prepare_replay(str(path), speed=50.0).blocking()


def test_a_redacted_file_is_not_driven(agent, tmp_path):
    from notebook_agent.engine.store.jsonl import export_runs

    agent.ask("hi")
    runtime = agent.runtime()
    path = tmp_path / "r.jsonl"
    export_runs(runtime.store, runtime.session.id, path, redact=True)
    with pytest.raises(StoreError, match="is redacted"):
        agent.prepare_replay(str(path), speed=1.0)


# ---- settings and words ------------------------------------------------------------------------


def test_models_show_their_capabilities(agent):
    class Bare:
        def model(self):
            return "scripted:bare"

        async def create_message_with_options(self, request, options):
            raise AssertionError

        def stream_messages_with_options(self, request, options):
            raise AssertionError

    assert "scripted:m" in repr(agent.model())
    said = repr(agent.model(Bare()))
    assert "not known" in said
    assert "window 128,000" in repr(agent.model(ScriptedModel(["x"], name="w", window=128_000)))


def test_models_of_an_endpoint_come_with_what_the_table_knows(agent, monkeypatch):
    from notebook_agent.providers import registry

    async def offered(provider):
        return ["gpt-4.1", "openai:unheard-of"]

    monkeypatch.setattr(registry, "list_models", offered)
    agent.alias("fast", "openai:gpt-4.1-mini")
    said = repr(agent.models("openai:"))
    known, unknown = (next(x for x in said.splitlines() if n in x) for n in ("gpt-4.1 ", "unheard"))
    assert "window 1,0" in known
    assert "tools" in known
    assert "table" not in unknown
    assert "alias of openai:gpt-4.1-mini" in said


def test_aliases_are_shown_and_half_of_one_is_refused(agent):
    assert repr(agent.alias()) == "no aliases"
    with pytest.raises(UsageError, match="alias fast openai"):
        agent.alias("fast")
    agent.namespace["client"] = ScriptedModel(["Hi."], name="own")
    assert repr(agent.alias("mine", "@client")).startswith("mine = ")
    assert "mine" in repr(agent.alias())


def test_a_system_prompt_is_set_shown_and_taken_away(agent):
    assert repr(agent.system()) == "no system prompt"
    agent.namespace["prompt"] = "You count."
    assert repr(agent.system("@prompt")) == "system prompt set"
    assert repr(agent.system()) == "You count."
    agent.ask("hi")
    assert repr(agent.system()) == "You count."
    assert repr(agent.system("none")) == "no system prompt"
    assert agent.runtime().system is None


async def test_pause_takes_a_finite_time_and_an_interrupt_ends_it(agent, monkeypatch):
    for wrong in (-1, float("nan"), float("inf"), "two"):
        with pytest.raises(ConfigError, match="finite number"):
            await agent.pause(wrong)
    await agent.pause(0.01)
    waiting = asyncio.ensure_future(agent.pause(30))
    await asyncio.sleep(0.05)
    waiting.cancel()
    with pytest.raises(Cancelled):
        await waiting
    pinned = AgentSession({}, settings=Settings(pinned=True))
    before = pinned.surroundings.now()
    await pinned.pause(3_600)
    assert pinned.surroundings.now() - before == 3_600
    pinned.close()


def test_request_options_hold_for_open_and_new_sessions(agent, model):
    agent.ask("hi")
    assert "seed" in repr(agent.set_request_options(seed=4))
    agent.ask("again")
    agent.ask("again", session="other")
    assert [call.options.extra.get("seed") for call in model.calls] == [None, 4, 4]
    assert "seed=4" in repr(agent.status())


def test_doctor_of_a_kernel_tells_the_front_end_and_what_to_do(agent, monkeypatch):
    said = repr(agent.doctor())
    for words in ("front end guessed", "no panel has answered", "road for Stop", "abandoned tools"):
        assert words in said, words
    hello = {"versions": {"jupyterlab": "4.4.1"}}
    assert about._hello_line(hello) == "a panel answered (jupyterlab 4.4.1)"
    assert about._hello_line({"theme": "dark"}) == "a panel answered"
    monkeypatch.setattr(about, "proven", lambda: hello)
    monkeypatch.setattr(about, "choose", lambda *_, **__: "panel")
    said = repr(agent.doctor())
    assert "the panel's Stop button, or Kernel > Interrupt" in said
    assert "the live panel is on" in said
    monkeypatch.setattr(about, "choose", lambda *_, **__: "static")
    lab = SimpleNamespace(name="jupyterlab", sign="a sign")
    monkeypatch.setattr(about, "guess", lambda _shell: lab)
    said = repr(agent.doctor())
    assert "Kernel > Interrupt" in said
    assert "to try the live panel here" in said
    monkeypatch.setattr(about, "version", _none_is_there)
    said = repr(agent.doctor())
    assert "for the live panel" in said
    assert "not installed" in repr(agent.version())


def _none_is_there(name):
    raise about.PackageNotFoundError(name)


def test_without_tools_nothing_was_abandoned(monkeypatch):
    monkeypatch.delitem(sys.modules, "notebook_agent.engine.tools", raising=False)
    assert about._abandoned() == 0


def test_a_panel_is_made_shown_and_closed(agent):
    panel = agent.panel()
    assert agent.panel() is panel
    assert "the panel is closed" in repr(agent.panel("close"))
    assert agent.panel() is not panel
    agent.panel("close")


def test_why_it_broke_is_told_by_the_last_frame_only():
    try:
        {}["secret value"]
    except KeyError as error:
        told = str(internal_error(error))
    assert told.startswith("Unexpected KeyError in test_why_it_broke")
    assert "test_verb_edges.py" in told
    assert str(internal_error(KeyError("x"))).startswith("Unexpected KeyError: ")


def test_a_loaded_run_without_turns_is_shown_by_its_output(agent):
    agent.ask("hi")
    run = agent.last_run()
    bare = dataclasses.replace(run, turns=[], output="What it said.")
    made = shown.Shown.of(bare, agent.runtime().session, None)
    assert "What it said." in repr(made)
    assert "First reply." in repr(shown.Shown.of(run, agent.runtime().session, None))


async def test_a_demonstration_is_awaited_too():
    agent = AgentSession({}, settings=Settings(store="memory", pinned=True), engine=SameLoop())
    last = await agent.prepare_demo("fallback").awaited()
    assert last.text.startswith("The backup answers")
    assert len(agent.runtime("demo").session.runs) == 4
    assert "demo" in repr(agent.prepare_demo())
    agent.close()


def test_only_an_exception_that_happened_is_explained(agent, monkeypatch):
    monkeypatch.delattr(sys, "last_value", raising=False)
    with pytest.raises(UsageError, match="No exception has happened"):
        agent.explain()
    history = SimpleNamespace(input_hist_raw=["", "1/0", "%agent status", "%agent explain"])
    agent.shell = SimpleNamespace(user_ns={}, history_manager=history)
    monkeypatch.setattr(sys, "last_value", ZeroDivisionError("division by zero"), raising=False)
    agent.explain()
    asked = agent.last_run().input
    assert "ZeroDivisionError" in asked
    assert "```python\n1/0\n```" in asked
    history.input_hist_raw = ["", "%agent status", "%agent fix"]
    agent.explain()
    assert "The cell:" not in agent.last_run().input
