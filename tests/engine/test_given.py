"""What a runtime is made with: a slip is said by its name, with what to give."""

from __future__ import annotations

import pytest

from notebook_agent import AgentRuntime, ScriptedModel
from notebook_agent.core.policy import RuntimePolicy
from notebook_agent.engine.runtime.given import KINDS, SEVERAL
from notebook_agent.errors import ConfigError, InputRejected


@pytest.mark.parametrize("name", [*KINDS, *SEVERAL, "store"])
def test_another_kind_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match=name) as caught:
        AgentRuntime(ScriptedModel(["x"]), **{name: 5})
    assert caught.value.field == name
    assert "5" in str(caught.value)


def test_a_text_is_no_list_and_no_store() -> None:
    for name in (*SEVERAL, "store"):
        with pytest.raises(ConfigError, match=name):
            AgentRuntime(ScriptedModel(["x"]), **{name: "text"})


def test_none_and_the_right_kind_are_taken() -> None:
    runtime = AgentRuntime(ScriptedModel(["x"]), policy=RuntimePolicy(max_iterations=3), store=None)
    assert runtime.policy.max_iterations == 3
    assert AgentRuntime(ScriptedModel(["x"]), policy=None).run("hi").text == "x"


@pytest.mark.parametrize("prompt", [None, 5, True, 1.5])
def test_a_prompt_that_is_no_text_is_said_as_what_it_is(prompt: object) -> None:
    model = ScriptedModel(["x"])
    with pytest.raises(InputRejected, match=f"The prompt is {prompt}"):
        AgentRuntime(model).run(prompt)
    assert not model.requests
