"""No telemetry: a whole scripted session with every way to the network closed (section 6)."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

# An audit hook sees every socket call of the process, whoever makes it, and cannot be taken off.
GUARD = """
import sys
tried = []
def guard(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto",
                 "socket.bind", "socket.sendmsg", "urllib.Request", "http.client.connect"):
        tried.append((event, repr(args)))
        raise OSError(f"the network is closed: {event}")
sys.addaudithook(guard)
"""

SCRIPT_SESSION = """
from notebook_agent import AgentRuntime, ScriptedModel, audit_frame
from notebook_agent.core.messages import ToolCallPart
from notebook_agent.engine.tools import tool
from notebook_agent.providers.scripted import Reply

@tool
def add(a: int, b: int) -> int:
    '''Add two numbers.'''
    return a + b

model = ScriptedModel(
    [Reply(tool_calls=[ToolCallPart("c1", "add", {"a": 2, "b": 3})]), "The sum is 5.", "Bye."],
    script="503,drop@1,ok",
)
runtime = AgentRuntime(model, tools=[add], system="Be brief.")
first = runtime.run("What is 2 + 3?")
second = runtime.run("And now?")
frame = audit_frame(runtime.session)
print(first.text, second.text, len(frame), list(frame.model.unique()))
"""

MAGICS_SESSION = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for cell in (
    "%load_ext notebook_agent",
    "%config AgentMagics.store = 'memory'",
    "%agent model scripted",
    "%%agent\\nWhat is a monad?",
    "%%agent -i answer --max-turns 2\\nAgain, please.",
    "%agent status", "%agent count", "%agent history", "%agent audit", "%agent fsm", "%agent why",
    "%agent doctor", "%agent version", "%agent help",
    "%agent demo retry",
    "%agent undo", "%agent reset --hard",
):
    result = shell.run_cell(cell)
    assert result.success, cell
print("answer" in shell.user_ns)
"""


@pytest.mark.parametrize(
    ("session", "expected"),
    [(SCRIPT_SESSION, "The sum is 5. Bye. 3 ['scripted:scripted']"), (MAGICS_SESSION, "True")],
    ids=["runtime", "magics"],
)
def test_a_whole_scripted_session_touches_no_network(session, expected, tmp_path):
    code = f"{GUARD}\n{textwrap.dedent(session)}\nassert not tried, tried\nprint('offline')"
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", code],
        capture_output=True, text=True, timeout=100, cwd=tmp_path,
        env={"HOME": str(tmp_path), "PATH": "", "LANG": "C.UTF-8", "IPYTHONDIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-2000:]
    assert done.stdout.rstrip().endswith(f"{expected}\noffline")


def test_the_guard_closes_the_network(tmp_path):
    code = f"{GUARD}\nimport httpx\nhttpx.get('http://127.0.0.1:9/')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    assert done.returncode != 0
    assert "the network is closed" in done.stderr
