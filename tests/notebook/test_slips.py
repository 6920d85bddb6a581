"""A newcomer's slips at the verbs: each answer says what happened, the values, and what to do."""

from __future__ import annotations

import dataclasses
import re

import pytest

from notebook_agent.errors import ConfigError, ErrorKind, ProviderError
from notebook_agent.notebook import request_view, short_errors
from notebook_agent.notebook.agent_session import AgentSession
from notebook_agent.notebook.arguments import UsageError
from notebook_agent.notebook.settings import Settings
from notebook_agent.notebook.verbs.table import read_line
from notebook_agent.providers.scripted import ScriptedModel


def made(store, **names):
    return AgentSession(names, settings=Settings(store=str(store), model=""))


@pytest.fixture
def agent():
    one = made("memory", tutor=ScriptedModel(["Yes."], name="tutor"), count=3)
    yield one
    one.close()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "breaker rset",
            "%agent breaker takes reset or trip; 'rset' is none.\nType:  %agent breaker reset",
        ),
        ("panel cloze", "%agent panel takes close; 'cloze' is none.\nType:  %agent panel close"),
        (
            "compact polic",
            "%agent compact takes now, preview or policy; 'polic' is none.\nType:  %agent compact",
        ),
    ],
)
def test_a_misspelt_choice_of_a_verb_gets_the_choices(line, said):
    with pytest.raises(UsageError) as slip:
        read_line(line)
    assert str(slip.value).startswith(said)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "@tutr",
            "@tutr: there is no variable 'tutr' in this notebook.\nType:  %agent model @tutor",
        ),
        ("@count", "@count: the variable holds int, no model.\nType:  %agent model @tutor"),
    ],
)
def test_a_variable_that_is_no_model_names_one_that_is(agent, name, said):
    with pytest.raises(ConfigError) as slip:
        agent.model(name)
    assert str(slip.value) == said


def test_a_notebook_without_models_is_sent_to_the_local_one():
    bare = made("memory")
    with pytest.raises(ConfigError, match=r"Type:  %agent model local$"):
        bare.model("@nothing")
    bare.close()


def test_a_misspelt_field_of_the_policy_gets_the_nearest(agent):
    with pytest.raises(UsageError, match=r"no 'treshold'(.|\n)*policy threshold=70$"):
        agent.compact("policy", {"treshold": 70})


def test_B75_nothing_to_resume_in_a_session_that_is_not_stored_yet(tmp_path):
    new = made(tmp_path / "sessions.db")
    new.model(ScriptedModel(["Yes."]))
    with pytest.raises(ConfigError, match="There is no run to resume in this session"):
        new.resume()
    with pytest.raises(ConfigError, match="There is no run 'run_x' in session 'default'"):
        new.resume("run_x")
    new.close()


def test_D21_after_a_restart_the_last_default_comes_back_though_a_new_one_was_looked_at(tmp_path):
    for said in ("One.", "Two."):
        earlier = made(tmp_path / "sessions.db")
        earlier.model(ScriptedModel([said]))
        earlier.ask("Which?")
        earlier.close()
    later = made(tmp_path / "sessions.db")
    later.model(ScriptedModel(["Three."]))
    with pytest.raises(ConfigError):
        later.resume()  # makes the new session's runtime, which has no run
    assert "current: default, no run yet" in repr(later.session("list"))
    loaded = repr(later.session("load", "default"))
    assert "1 runs, 2 messages" in loaded
    assert "1 more stored under that name; load one by its id" in loaded
    assert "Two." in repr(later.history())
    assert "no run yet" not in repr(later.session("list"))
    later.ask("And now?")
    assert "2 runs, 4 messages" in repr(later.session("load", "default")), "its own: nothing lost"
    gone = repr(later.session("delete", "default"))
    assert "is deleted: session_" in gone
    assert "2 runs; 1 more of that name stay" in gone
    later.close()


def test_status_and_config_tell_a_newcomer_where_to_look(agent):
    assert "%agent help" in repr(agent.status())
    assert "turns a run may take; 0 = 16" in repr(agent.config())


@pytest.mark.parametrize(
    ("error", "lines"),
    [
        (ProviderError(ErrorKind.TRANSPORT, "cut"), ["cut", "Every attempt:  %agent why"]),
        (
            ProviderError(ErrorKind.TRANSPORT, "cut\nGave up.", hint="Is it on?"),
            ["cut", "Gave up.", "Is it on?"],
        ),
        (
            ProviderError(ErrorKind.TIMEOUT, "late\nGave up."),
            [
                "late",
                "Gave up.",
                "More time:  %%agent --timeout 600     every attempt:  %agent why",
            ],
        ),
    ],
)
def test_D12_every_failure_of_a_provider_says_what_to_do(error, lines):
    assert short_errors.render(error) == [f"ProviderError: {lines[0]}", *lines[1:]]


def test_an_export_rounds_seconds(agent, tmp_path):
    agent.model(ScriptedModel(["Yes."], name="one"))
    agent.ask("Well?")
    agent.export(str(tmp_path / "talk.md"))
    last = (tmp_path / "talk.md").read_text().splitlines()[-1]
    assert re.search(r"\| \d+\.\d{3} \|$", last), last


def test_a_dry_run_without_system_prompt_says_whose_its_tokens_are(agent, monkeypatch):
    agent.model(ScriptedModel(["Yes."], name="one"))
    assert "system: (none)\n" in repr(agent.dry_run("Well?"))
    real = request_view.anatomy
    templated = lambda *given: dataclasses.replace(real(*given), system=30)  # noqa: E731  # a stand-in of one expression
    monkeypatch.setattr(request_view, "anatomy", templated)
    shown = repr(agent.dry_run("Well?"))
    assert "system 30" in shown
    assert "system: (none of yours; the model's template adds its own)\n" in shown
