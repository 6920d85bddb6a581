"""``--with`` with images, ``--schema`` and its neighbours, through the session's verbs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from notebook_agent.core.response import Usage
from notebook_agent.errors import AgentError, InputRejected, ProviderError, StructuredOutputError
from notebook_agent.notebook.agent_session import AgentSession
from notebook_agent.notebook.arguments import UsageError
from notebook_agent.notebook.settings import Settings
from notebook_agent.notebook.with_values import values_message
from notebook_agent.providers.base import Capabilities
from notebook_agent.providers.scripted import ScriptedModel

PIL = pytest.importorskip("PIL.Image")


class City(BaseModel):
    name: str
    people: int


def session(replies: Any = "ok", **given: Any) -> tuple[AgentSession, ScriptedModel]:
    client = ScriptedModel(replies, name="s", **given)
    agent = AgentSession({}, settings=Settings(store="memory"))
    agent.model(client)
    return agent, client


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    file = tmp_path / "chart.png"
    PIL.new("RGB", (30, 20)).save(file)
    return file


def count(text: str) -> int:
    return len(text) // 4


def test_with_shows_images_beside_values(picture):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    figure = pyplot.figure(figsize=(1, 1), dpi=50)
    names = {
        "n": 3, "fig": figure, "pil": PIL.open(picture), "path": picture, "named": str(picture),
        "Out": {4: PIL.open(picture)}, "text": "no.png",
    }  # fmt: skip
    pyplot.close(figure)
    asked = ["n", "fig", "pil", "path", "named", "Out[4]", "text", str(picture)]
    message = values_message(asked, names, cap=500, count=count)
    assert [p.type for p in message.parts] == ["text"] + ["image"] * 6
    text = message.text_content()
    assert "fig: image 1 below, 50x50 pixels" in text
    assert "Out[4]: image 5 below, 30x20 pixels" in text
    assert "text: str of 6 characters" in text


@pytest.mark.parametrize(
    ("name", "words"),
    [("Out[9]", "KeyError"), ("gone.png", "cannot be read"), ("a b", "names no variable")],
)
def test_what_cannot_be_shown_is_said(name, words):
    with pytest.raises(InputRejected, match=words):
        values_message([name], {"Out": {}}, cap=500, count=count)


def test_an_image_reaches_the_model_for_this_run_only(picture):
    agent, client = session()
    agent.namespace["chart"] = picture
    agent.ask("What is it?", with_=("chart",))
    agent.ask("And now?")
    first, second = client.requests
    assert [p.type for p in first.messages[0].parts] == ["text", "image"]
    assert all(p.type == "text" for m in second.messages for p in m.parts)
    agent.close()


def test_B39_no_image_to_a_model_without_vision(picture):
    agent, client = session(capabilities=Capabilities(vision=False))
    agent.namespace["chart"] = picture
    with pytest.raises(ProviderError, match="images"):
        agent.ask("What is it?", with_=("chart",))
    assert not client.requests
    agent.close()


def find(q: str) -> str:
    """Find something."""
    return q


def test_schema_with_tools_and_repair():
    agent, client = session(["In Riga.", "{}", '{"name": "Riga", "people": 605000}'])
    agent.namespace.update(City=City, find=find, models=SimpleNamespace(City=City))
    result = agent.ask("Where?", schema="City", tools=("find",))
    assert result.parsed == City(name="Riga", people=605000)
    assert [c.options.response_format is None for c in client.calls] == [True, False, False]
    assert len(result.frame) == 3
    dotted = agent.ask("Where?", schema="models.City", tools=(), no_tools=True, format="json")
    assert dotted.parsed == City(name="Riga", people=605000)
    agent.close()


def test_schema_that_fails_binds_what_there_is():
    agent, _ = session("never")
    agent.namespace["City"] = City
    with pytest.raises(StructuredOutputError, match="not a valid City") as caught:
        agent.ask("Where?", schema="City", into="answer")
    assert agent.namespace["answer"].text == "never"
    assert agent.last_error is caught.value
    agent.close()


def test_schema_and_another_format_contradict_each_other():
    agent, client = session()
    agent.namespace["City"] = City
    with pytest.raises(UsageError, match="--schema City"):
        agent.ask("Where?", schema="City", format="code")
    assert not client.requests
    agent.close()


def test_dry_run_names_the_format():
    agent, client = session()
    agent.namespace["City"] = City
    assert "City, forced" in repr(agent.dry_run("Where?", schema="City"))
    assert not client.requests
    agent.close()


def test_a_value_that_is_no_class_is_refused():
    agent, _ = session()
    agent.namespace["City"] = City(name="Riga", people=1)
    with pytest.raises(AgentError, match="Give the class itself"):
        agent.ask("Where?", schema="City")
    agent.close()


def test_D10_cost_only_from_the_users_prices(capsys):
    agent, _ = session("ok", usage=Usage(input_tokens=1_000_000, output_tokens=0))
    agent.ask("hi", show="stream")
    assert "cost" not in capsys.readouterr().out
    assert "cost" not in agent.audit().columns
    agent.apply_setting("prices", {"scripted:s": (2, 8)})
    agent.ask("hi", show="stream")
    assert "cost 2.00" in capsys.readouterr().out
    assert agent.audit()["cost"].tolist() == [2.0, 2.0]
    assert str(agent.audit()["cost"].dtype) == "Float64"
    agent.close()


def test_prompt_cache_setting_reaches_the_request():
    agent, client = session()
    agent.ask("hi")
    agent.apply_setting("prompt_cache", True)
    agent.ask("hi")
    assert [c.options.prompt_cache for c in client.calls] == [None, True]
    agent.close()
