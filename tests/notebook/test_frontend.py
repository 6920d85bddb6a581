"""Which sink by default (F3): cheap signs, the switch, what a panel proved."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from notebook_agent.errors import ConfigError
from notebook_agent.notebook import frontend
from notebook_agent.notebook.frontend import choose, guess, note_hello

KERNEL = SimpleNamespace(_allow_stdin=True)


def shell(**user_ns):
    return SimpleNamespace(kernel=KERNEL, user_ns=user_ns)


@pytest.fixture(autouse=True)
def no_proof():
    frontend._HELLO.clear()
    yield
    frontend._HELLO.clear()


@pytest.mark.parametrize(
    ("who", "env", "modules", "platform", "name", "sink"),
    [
        (None, {}, {}, "linux", "script", "stream"),
        (SimpleNamespace(user_ns={}), {}, {}, "linux", "terminal", "stream"),
        (shell(), {"JPY_SESSION_NAME": "a.ipynb"}, {}, "linux", "jupyter", "panel"),
        (shell(), {"JUPYTERHUB_SERVICE_PREFIX": "/user/x"}, {}, "linux", "jupyter", "panel"),
        (shell(__vsc_ipynb_file__="x"), {}, {}, "linux", "vscode", "panel"),
        (shell(__vsc_ipynb_file__="x"), {"CODESPACES": "true"}, {}, "linux", "vscode-remote", "update"),
        (shell(), {}, {"google.colab": 1}, "linux", "colab", "update"),
        (shell(), {"KAGGLE_KERNEL_RUN_TYPE": "i"}, {}, "linux", "kaggle", "update"),
        (shell(), {"DATABRICKS_RUNTIME_VERSION": "1"}, {}, "linux", "databricks", "update"),
        (shell(), {"PYCHARM_HOSTED": "1"}, {}, "linux", "jetbrains", "update"),
        (shell(), {}, {}, "emscripten", "jupyterlite", "update"),
        (shell(), {}, {}, "linux", "unknown", "update"),
    ],
)  # fmt: skip
def test_guess(who, env, modules, platform, name, sink) -> None:
    front = guess(who, environ=env, modules=modules, platform=platform)
    assert (front.name, front.sink) == (name, sink)
    assert choose(front=front, environ=env) == sink


def test_headless_is_static() -> None:
    who = SimpleNamespace(kernel=SimpleNamespace(_allow_stdin=False), user_ns={})
    front = guess(who, environ={"JPY_SESSION_NAME": "x"}, modules={}, platform="linux")
    assert (front.name, front.sink) == ("headless", "static")
    assert choose("footer", front=front, environ={}) == "static"


LAB = guess(shell(), environ={"JPY_SESSION_NAME": "a"}, modules={})
COLAB = guess(shell(), environ={}, modules={"google.colab": 1})
TERMINAL = guess(SimpleNamespace(user_ns={}), environ={}, modules={})


@pytest.mark.parametrize(
    ("front", "show", "env", "setting", "sink"),
    [
        (LAB, "footer", "", "auto", "update"),
        (LAB, "quiet", "", "auto", "null"),
        (LAB, "panel", "", "static", "panel"),
        (LAB, None, "static", "auto", "static"),
        (LAB, "panel", "static", "auto", "static"),
        (LAB, "footer", "static", "auto", "static"),
        (LAB, "quiet", "static", "auto", "null"),
        (LAB, None, "", "update", "update"),
        (LAB, None, "auto", "auto", "panel"),
        (LAB, None, "stream", "update", "stream"),
        (COLAB, "panel", "", "auto", "panel"),
        (COLAB, None, "", "panel", "panel"),
        (TERMINAL, "panel", "", "auto", "stream"),
        (TERMINAL, "footer", "", "auto", "stream"),
    ],
)
def test_choose(front, show, env, setting, sink) -> None:
    environ = {"NOTEBOOK_AGENT_DISPLAY": env} if env else {}
    assert choose(show, setting=setting, front=front, environ=environ) == sink


def test_a_hello_wins_over_the_guess() -> None:
    assert choose(front=COLAB, environ={}) == "update"
    note_hello({"t": "hello", "versions": {"lab": "4"}})
    assert choose(front=COLAB, environ={}) == "panel"
    assert choose(front=TERMINAL, environ={}) == "stream"


def test_wrong_words_say_what_is_legal() -> None:
    with pytest.raises(ConfigError, match="NOTEBOOK_AGENT_DISPLAY"):
        choose(front=LAB, environ={"NOTEBOOK_AGENT_DISPLAY": "html"})
    with pytest.raises(ConfigError, match="auto, panel"):
        choose(front=LAB, environ={}, setting="html")
