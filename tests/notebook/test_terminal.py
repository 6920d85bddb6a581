"""IPython in a terminal and headless notebooks: D6, N08, K04."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SETUP = """%load_ext notebook_agent
from notebook_agent import ScriptedModel
quick = ScriptedModel(["A quick \\x1b]52;c;reply."], name="quick")
slow = ScriptedModel([" ".join(f"word{i}" for i in range(400))], delay_s=0.02, name="slow")
_ = %agent model @quick
"""


@pytest.fixture
def home(tmp_path):
    return {**os.environ, "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data"), "IPYTHONDIR": str(tmp_path / "ipython"),
            "NOTEBOOK_AGENT_DISPLAY": "", "NO_COLOR": "1", "TERM": "dumb"}  # fmt: skip


def ipython(env):
    return subprocess.Popen(
        [sys.executable, "-m", "IPython", "--simple-prompt", "--no-banner", "--no-confirm-exit", "--quick"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env,
    )  # fmt: skip


def test_D6_terminal_streams_plain_text(home):
    shell = ipython(home)
    out, _ = shell.communicate(
        SETUP
        + "%agent what is a monad?\n%%agent\n{x} and >>> this\n\n\nprint(ascii(quick.requests[-1].messages[-1].text_content()))\n%agent staus\nexit\n",
        timeout=90,
    )
    assert out.count("A quick ␛]52;c;reply.") == 2, out
    assert "\x1b" not in out
    assert "'{x} and >>> this'" in out
    assert "completed" in out
    assert "Type:  %agent status" in out
    assert "Traceback" not in out


def test_D4_interrupt_in_the_terminal(home):
    shell = ipython(home)
    shell.stdin.write(SETUP + "_ = %agent model @slow\n%agent tell me a story\n")
    shell.stdin.flush()
    seen = ""
    began = time.monotonic()
    while "word3" not in seen and time.monotonic() - began < 60:
        seen += os.read(shell.stdout.fileno(), 4096).decode()
    shell.send_signal(signal.SIGINT)
    out, _ = shell.communicate(
        "print('alive', _.status.value, slow.open_streams)\nexit\n", timeout=60
    )
    assert "Cancelled: stopped" in out
    assert "alive cancelled 0" in out
    assert "Traceback" not in out
    assert "word399" not in out


def notebook(*cells):
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])


def execute(book, env, **more):
    client = NotebookClient(book, timeout=90, kernel_name="python3", **more)
    client.execute(env=env)
    return book


def texts(cell):
    return "\n".join(
        o.get("text", "") or o.get("data", {}).get("text/plain", "") for o in cell.outputs
    )


def test_N08_headless_run_holds_every_reply(home):
    book = notebook(
        SETUP,
        "%%agent\nfirst question",
        "%agent and a second one?",
        "%%agent --background\nthird",
        "%agent demo retry",
        "print([r.status.value for r in get_ipython().magics_manager.registry['AgentMagics'].agent.runtime().session.runs])",
    )
    execute(book, home)
    assert "A quick ␛]52;c;reply." in texts(book.cells[1])
    assert "A quick ␛]52;c;reply." in texts(book.cells[2])
    assert "stays in its cell" in texts(book.cells[3])
    assert "A quick ␛]52;c;reply." in texts(book.cells[3])
    assert "The sky is blue" in texts(book.cells[4])
    assert texts(book.cells[5]).strip() == str(["completed"] * 3)
    # exactly one display per cell and no widget in the file (D16, F12)
    assert [
        len([o for o in c.outputs if o.output_type == "display_data"]) for c in book.cells[1:4]
    ] == [1, 1, 1]
    assert "widget" not in nbformat.writes(book)
    from nbconvert import HTMLExporter

    page, _ = HTMLExporter().from_notebook_node(book)
    assert page.count("52;c;reply.") >= 3


def test_N11_headless_run_stops_at_the_first_error(home):
    book = notebook(SETUP, "%%agent --temprature 1\nhi", "print('not reached')")
    with pytest.raises(CellExecutionError, match="temperature=1"):
        execute(book, home)
    assert book.cells[2].outputs == []


def test_D20_what_observers_print_lands_in_its_cell(home):
    book = notebook(
        SETUP,
        "from notebook_agent import Observer\nclass Loud(Observer):\n    def on_turn_end(self, ctx):\n        print('turn ended')\n"
        "agent = get_ipython().magics_manager.registry['AgentMagics'].agent\nagent.runtime().hub.add(Loud())",
        "%%agent\nhi",
    )
    execute(book, home)
    assert "turn ended" in texts(book.cells[2])


def test_D16_pinned_static_notebooks_repeat_exactly(home):
    env = {**home, "NOTEBOOK_AGENT_DISPLAY": "static", "NOTEBOOK_AGENT_PINNED": "1"}
    cells = (
        "%load_ext notebook_agent\nfrom notebook_agent import ScriptedModel\nm = ScriptedModel(['One.', 'Two.'], script='ok,503,ok', name='m')\n%agent model @m",
        "%%agent\nfirst",
        "%agent ask second",
        "%agent fsm",
        "%agent events",
        "%agent status",
        "%agent demo recover",
        "_ = %agent audit\nprint(_.to_csv())",
    )
    first, second = (execute(notebook(*cells), env) for _ in range(2))
    for one, two in zip(first.cells, second.cells, strict=True):
        assert one.outputs == two.outputs
