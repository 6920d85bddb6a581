"""F4: in Colab no AnyWidget is constructed unless it is asked for: its constructor switches on
loading of foreign scripts for the whole page."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# A stand-in for Colab's module, in a process of its own: it records what anywidget calls.
STAND_IN = """
import sys, types
calls = []
google, colab, output = (types.ModuleType(n) for n in ("google", "google.colab", "google.colab.output"))
output.enable_custom_widget_manager = lambda *a, **k: calls.append("manager")
colab.output, google.colab = output, colab
sys.modules.update({"google": google, "google.colab": colab, "google.colab.output": output})
from ipykernel.zmqshell import ZMQInteractiveShell
from types import SimpleNamespace
import anywidget
made = []
first = anywidget.AnyWidget.__init__
def counted(self, *a, **k):
    made.append(type(self).__name__); first(self, *a, **k)
anywidget.AnyWidget.__init__ = counted
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.kernel = SimpleNamespace(_allow_stdin=True)
import notebook_agent
assert not made and not calls
shell.run_line_magic("load_ext", "notebook_agent")
assert not made and not calls
shell.run_line_magic("config", 'AgentMagics.store = "memory"')
shell.run_cell("from notebook_agent.providers.scripted import ScriptedModel; m = ScriptedModel(['Fine.'] * 4)")
shell.run_line_magic("agent", "model @m")
from notebook_agent.notebook.frontend import guess
assert guess(shell).name == "colab", guess(shell)
shell.run_cell_magic("agent", LINE, "hello")
print("MADE", made, calls)
"""


def run(line: str) -> str:
    env = {k: v for k, v in os.environ.items() if k != "NOTEBOOK_AGENT_DISPLAY"}
    done = subprocess.run(
        [sys.executable, "-c", STAND_IN.replace("LINE", repr(line))],
        capture_output=True, text=True, timeout=90, env=env, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return next(one for one in done.stdout.splitlines() if one.startswith("MADE"))


@pytest.mark.parametrize("line", ["", "--show footer"])
def test_F4_no_widget_in_colab_unless_asked_for(line) -> None:
    assert run(line) == "MADE [] []"


def test_F4_a_panel_that_is_asked_for_is_made() -> None:
    """The stand-in sees it: so the test above can fail."""
    assert run("--show panel") == "MADE ['AgentPanel'] ['manager']"
