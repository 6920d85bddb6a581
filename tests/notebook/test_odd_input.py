"""Odd input of cells and verbs: names of every script, objects that raise, places that are none,
background runs with options (D5, D7, N11, X06)."""

from __future__ import annotations

import json

import pytest
from pydantic import BaseModel, field_validator

from notebook_agent import AgentRuntime, Observer, ScriptedModel
from notebook_agent.core.session import RunStatus
from notebook_agent.errors import (
    AgentError,
    Cancelled,
    ConfigError,
    InputRejected,
    ProviderError,
    StoreError,
    StructuredOutputError,
)
from notebook_agent.notebook.agent_session import AgentSession
from notebook_agent.notebook.arguments import CellOptions, UsageError, parse_cell
from notebook_agent.notebook.formats import FormatError

TYPED, KEPT = "e\u0301te\u0301", "\u00e9t\u00e9"


class Exits:
    def __repr__(self) -> str:
        raise SystemExit(3)


class Sulks:
    def __str__(self) -> str:
        raise RuntimeError("not today")


@pytest.fixture
def names():
    return {}


@pytest.fixture
def model():
    return ScriptedModel(['{"a": 1}', "words"], name="m")


@pytest.fixture
def agent(names, model):
    made = AgentSession(names)
    made.configure(store="memory")
    made.model(model)
    yield made
    made.close()


def sent(model) -> str:
    request = model.requests[-1]
    return "\n".join(m.text_content() for m in request.messages)


def test_D7_a_name_is_found_however_it_is_typed(agent, names, model):
    def tool() -> str:
        """Say."""
        return "said"

    names.update({KEPT: "summer", "t": tool})
    agent.ask(f"{{{{{TYPED}}}}}", with_=(TYPED,), system=f"@{TYPED}")
    assert sent(model).count("summer") >= 2
    names[KEPT] = tool
    assert agent.function(TYPED) is tool
    names[KEPT] = model
    assert agent.models_book.client(f"@{TYPED}") is model


@pytest.mark.parametrize("value", [Exits(), Sulks()])
@pytest.mark.parametrize("how", [{"with_": ("x",)}, {"system": "@x"}])
def test_N11_an_object_without_text_is_refused_by_name(agent, names, model, value, how):
    names["x"] = value
    if isinstance(value, Sulks) and "with_" in how:
        return  # --with asks for the repr, which it has
    with pytest.raises((UsageError, InputRejected), match=r"x.*cannot be written as text"):
        agent.ask("hi", **how)
    assert model.requests == []


def test_D10_a_frame_as_system_prompt_is_whole(agent, names, model):
    import pandas as pd

    names["df"] = pd.DataFrame({"n": range(100)})
    agent.ask("hi", system="@df")
    assert "..." not in (model.requests[-1].system or "")


BAD_PLACES = ["a\0b.jsonl", "n" * 300 + ".jsonl", "~no-such-user-here/run.jsonl"]


@pytest.mark.parametrize("path", BAD_PLACES)
def test_X06_a_path_that_is_none_is_said_in_two_lines(agent, path):
    agent.ask("hi")
    for call in (
        lambda: agent.record(path),
        lambda: agent.prepare_replay(path),
        lambda: agent.prepare_replay(path, step=True),
        lambda: agent.prepare_replay(path, speed=2.0),
        lambda: agent.export(path.removesuffix(".jsonl") + ".md"),
    ):
        with pytest.raises(UsageError) as caught:
            call()
        assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize("path", [*BAD_PLACES, "{file}/run.jsonl"])
def test_N11_record_is_refused_before_the_request(agent, model, tmp_path, path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"Type:  %%agent --record run\.jsonl"):
        agent.ask("hi", record=path.format(file=tmp_path / "file"))
    assert model.requests == []


def test_record_says_how_to_check_the_file_it_wrote(agent, tmp_path):
    folder = tmp_path / "two words"
    folder.mkdir()
    agent.ask("hi")
    said = str(agent.record(str(folder)))
    (written,) = folder.iterdir()
    assert f"%agent replay '{written}' --check" in said


# ---- background ------------------------------------------------------------------------------


def background(agent, text="hi", **options):
    return agent.prepare(text, CellOptions(background=True, show="null", **options)).background()


def test_D5_a_background_run_does_what_its_options_ask(agent, names, tmp_path):
    file = tmp_path / "run.jsonl"
    result = background(agent, into="answer", record=str(file), format="json").wait(5)
    assert names["answer"] is result
    assert result.parsed == {"a": 1}
    assert json.loads(file.read_text().splitlines()[0])["type"] == "header"
    assert "_" not in names  # that belongs to the cells


def test_D5_a_background_reply_that_is_no_json_is_an_error_with_its_text(agent, names):
    agent.ask("first")
    handle = background(agent, into="answer", format="json")
    with pytest.raises(FormatError):
        handle.wait(5)
    assert names["answer"].text == "words"
    assert isinstance(agent.last_error, FormatError)


def test_D5_a_stopped_background_run_is_bound_too(agent, names):
    agent.model(ScriptedModel(["never"], script="hang", name="slow"))
    handle = background(agent, into="answer")
    agent.stop()
    assert handle.wait(5).status is RunStatus.CANCELLED
    assert names["answer"].status is RunStatus.CANCELLED
    assert not isinstance(agent.last_error, Cancelled)


def test_N11_a_background_run_proposes_no_cell(agent, model):
    with pytest.raises(UsageError, match="Type:  %%agent -f code"):
        background(agent, format="code")
    assert model.requests == []


def test_D5_stop_of_one_session_leaves_the_others(agent):
    agent.model(ScriptedModel(["never"], script="hang", name="slow"))
    one, two = background(agent, session="one"), background(agent, session="two")
    agent.stop("one")
    assert one.wait(5).status is RunStatus.CANCELLED
    assert not two.done
    agent.stop()
    assert two.wait(5).status is RunStatus.CANCELLED


def test_stop_of_a_session_that_is_not_there(agent):
    assert str(agent.stop("nobody")) == "nothing is running"
    with pytest.raises(AgentError):
        agent.find_run(None)


# ---- exit() in a person's own code -----------------------------------------------------------


class Quits(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def quits(cls, value: int) -> int:
        raise SystemExit(2)


def quits(_request) -> str:
    raise SystemExit(3)


class Watcher(Observer):
    def on_turn_start(self, ctx) -> None:
        raise SystemExit(4)


class Adds:
    def contribute(self, turn, conversation):
        raise SystemExit(5)


def alive(agent) -> None:
    """Nothing is left of it: the session is free, the engine answers."""
    agent.model(ScriptedModel(["fine"], name="fine"))
    assert agent.ask("and now?").text == "fine"


def test_D20_a_validator_that_exits_is_a_reply_that_does_not_fit(agent, names):
    names["Quits"] = Quits
    agent.model(ScriptedModel(['{"n": 1}'], name="m"))
    with pytest.raises(StructuredOutputError, match="SystemExit: 2"):
        agent.ask("hi", schema="Quits")
    alive(agent)


@pytest.mark.parametrize("stream", [True, False])
def test_D20_a_client_that_exits_fails_its_run_only(agent, stream):
    agent.model(ScriptedModel(quits, name="quits"))
    with pytest.raises(AgentError, match="SystemExit"):
        agent.ask("hi", no_stream=not stream)
    alive(agent)


async def test_D20_observers_and_contributors_that_exit_are_left_out(model):
    runtime = AgentRuntime(model, observers=[Watcher()], contributors=[Adds()])
    assert (await runtime.arun("hi")).status is RunStatus.COMPLETED


def test_L12_a_schema_that_refers_to_itself_without_end_is_refused(agent, names, model):
    names["Loop"] = {"$ref": "#"}
    with pytest.raises(ConfigError, match="no JSON Schema"):
        agent.ask("hi", schema="Loop")
    assert model.requests == []


def test_the_disk_is_full_is_said_although_the_run_file_cannot_be_written_either(
    agent, tmp_path, monkeypatch
):
    """What went wrong first is what the cell says."""

    def full(*_args, **_more):
        raise StoreError("this run is not in the store")

    monkeypatch.setattr(type(agent), "write_record", full)
    agent.model(ScriptedModel(["x"], script="401", name="bad"))
    with pytest.raises(ProviderError):
        agent.ask("hi", record=str(tmp_path / "run.jsonl"))


# ---- names of sessions -----------------------------------------------------------------------


def test_X06_two_forms_of_one_name_are_one_session(agent):
    agent.ask("one", session=TYPED)
    agent.ask("two", session=KEPT)
    assert len(agent.runtime(TYPED).session.runs) == 2
    assert agent.sessions == ["default", KEPT]
    agent.session("load", TYPED)
    assert agent.current == KEPT
    agent.ask("three", session="a\0b")
    assert "a\ufffdb" in agent.sessions


def test_X06_a_name_that_is_open_is_not_taken_twice(agent):
    agent.ask("one", session="work")
    agent.ask("two")
    with pytest.raises(UsageError, match="is open in this kernel already"):
        agent.session("save", "work")
    assert len(agent.runtime("work").session.runs) == 1
    assert agent.current == "default"
    agent.session("save", "other")
    agent.session("save", "other")  # its own name again


# ---- request parameters ----------------------------------------------------------------------


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "1e400", "[NaN]"])
def test_L13_a_number_that_json_has_not_is_sent_as_typed(value):
    """The provider refuses it; as null it would be dropped silently."""
    assert parse_cell(f"-p x={value}").params == {"x": value}


@pytest.mark.parametrize("field", ["model=x", "messages=[]", "contents=[]"])
def test_L13_fields_of_the_run_are_no_parameters(field):
    with pytest.raises(UsageError, match="audit trail") as caught:
        parse_cell(f"-p {field}")
    assert len(str(caught.value).splitlines()) == 2
