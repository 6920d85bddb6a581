"""A real ipykernel: D1-D6, D8, K03, K04, N01-N04, N08, N11, D12, X05."""

from __future__ import annotations

import json
import socket
import threading
import time

import pytest

from tests.notebook.kernel_driver import Kernel

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.timeout(300),
    # jupyter_client's own sockets and loop, closed when its objects are collected
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SETUP = r"""
%load_ext notebook_agent
from notebook_agent import ScriptedModel
LONG = " ".join(f"word{i}" for i in range(200))
quick = ScriptedModel(["A quick reply."], name="quick")
slow = ScriptedModel([LONG], delay_s=0.02, name="slow")
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    made = Kernel(
        {
            "HOME": str(home),
            "XDG_DATA_HOME": str(home / "data"),
            "IPYTHONDIR": str(home / "ipython"),
            "NOTEBOOK_AGENT_DISPLAY": "update",
        }
    )
    try:
        cell = made.run(SETUP)
        assert cell.status == "ok", cell.everything
        assert cell.outputs == []
        yield made
    finally:
        made.close()


@pytest.fixture(autouse=True)
def fresh(kernel):
    assert kernel.run("_ = %agent model @quick\n_ = %agent reset --hard\n").status == "ok"


def runs(kernel) -> int:
    return int(
        kernel.run(
            "print(len(get_ipython().magics_manager.registry['AgentMagics'].agent.runtime().session.runs))"
        ).stdout
    )


def test_load_opens_nothing_and_is_quick(kernel, tmp_path):
    """Loading: no thread, no socket, no file, no print, and no heavy module."""
    made = Kernel(
        {
            "HOME": str(tmp_path),
            "XDG_DATA_HOME": str(tmp_path / "data"),
            "IPYTHONDIR": str(tmp_path / "ip"),
        }
    )
    try:
        made.run(
            "import sys, threading, time, os\nbefore = set(threading.enumerate()); fds = set(os.listdir('/proc/self/fd')); names = set(sys.modules)"
        )
        cell = made.run("%load_ext notebook_agent")
        assert cell.status == "ok"
        assert cell.outputs == []
        out = made.run(
            "print(len(set(threading.enumerate()) - before), len(set(os.listdir('/proc/self/fd')) - fds), "
            "[m for m in ('pandas', 'tiktoken', 'ipywidgets', 'anywidget', 'httpx', 'xllamacpp') if m in set(sys.modules) - names])"
        ).stdout
        assert out.split(None, 2)[0] == "0"
        assert out.split(None, 2)[2].strip() == "[]"
        assert not (tmp_path / "data").exists()
    finally:
        made.close()


def test_D1_N08_awaited_cell_streams_and_ends_inside_itself(kernel):
    kernel.run("_ = %agent model @slow")
    cell = kernel.run("%%agent\ntell me")
    assert cell.status == "ok", cell.everything
    kinds = [o["output_type"] for o in cell.outputs]
    assert kinds[0] == "display_data"
    assert kinds.count("update_display_data") >= 3  # it grew while it ran
    assert "word199" in cell.outputs[-1]["data"]["text/plain"]
    assert 3 < cell.seconds < 12
    assert kernel.run("print(_.text == LONG, _.status.value)").stdout.strip() == "True completed"


def test_result_is_bound_and_nothing_more_is_displayed(kernel):
    cell = kernel.run("%%agent -i answer\nhello")
    assert not [o for o in cell.outputs if o["output_type"] == "execute_result"]
    assert kernel.run("print(_ is answer, answer.text)").stdout.strip() == "True A quick reply."
    assert kernel.run("answer").outputs[-1]["data"]["text/plain"] == "A quick reply."
    got = kernel.run("r = %agent ask what now?\nprint(r.text)")
    assert got.stdout.strip() == "A quick reply."


def test_K03_ask_aask_and_magic_in_cells(kernel):
    cell = kernel.run(
        "from notebook_agent import ask, aask\nprint(ask('hi', model=quick).text)\nprint((await aask('hi', model=quick)).text)"
    )
    assert cell.status == "ok", cell.everything
    assert cell.stdout.split("\n")[:2] == ["A quick reply."] * 2
    assert (
        kernel.run("print(get_ipython().run_cell_magic('agent', '', 'hi'), _.text)")
        .stdout.strip()
        .endswith("None A quick reply.")
    )
    agent = "get_ipython().magics_manager.registry['AgentMagics'].agent"
    cell = kernel.run(
        f"agent = {agent}\nprint(agent.ask('hi').text, (await agent.aask('hi')).text)"
    )
    assert cell.stdout.strip() == "A quick reply. A quick reply."


@pytest.mark.parametrize(
    "body",
    ["{v: k for k, v in d.items()}", "print({'a': 'b'})", "for (const {a, b} of xs) {}", "{}", "{0}",
     "{x!r:>10}", '"$HOME ${PATH}"', "100% of {", ">>> 1 + 1\n... 2", "what is this?", "!ls\n%time x"],
)  # fmt: skip
def test_N01_body_reaches_the_model_as_typed(kernel, body):
    kernel.run(f"%%agent --fresh\n{body}\n")
    got = kernel.run("print(ascii(quick.requests[-1].messages[-1].text_content()))").stdout.strip()
    assert got == ascii(body)


def test_N02_insertion_of_results_and_frames(kernel):
    kernel.run(
        "import pandas as pd\nframe = pd.DataFrame({'n': [1, 2]})\nsnippet = \"d = {'k': {{n}}}\""
    )
    kernel.run("'the value'")
    number = int(kernel.run("print(max(Out))").stdout)
    cell = kernel.run(
        f"%%agent --fresh\n{{{{snippet}}}} {{{{Out[{number}]}}}} {{{{In[{number}]}}}} {{{{frame}}}}"
    )
    assert cell.status == "ok", cell.everything
    text = kernel.run("print(quick.requests[-1].messages[-1].text_content())").stdout
    assert text.startswith("d = {'k': {{n}}} the value 'the value'")
    assert "n\n0  1\n1  2" in text
    before = int(kernel.run("print(len(quick.requests))").stdout)
    cell = kernel.run("big = 'word ' * 1_000_000\n")
    cell = kernel.run("%%agent\n{{big}}")
    assert cell.status == "error"
    assert cell.ename == "ContextExceeded"
    assert "1,000,0" in cell.evalue
    assert int(kernel.run("print(len(quick.requests))").stdout) == before


def test_N03_question_mark_reaches_the_engine(kernel):
    cell = kernel.run("%agent what is a monad?")
    assert cell.status == "ok"
    assert "A quick reply." in cell.outputs[-1]["data"]["text/plain"]
    assert (
        kernel.run("print(quick.requests[-1].messages[-1].text_content())").stdout.strip()
        == "what is a monad?"
    )
    assert "%agent audit" in kernel.run("%agent audit?").plain


def test_D7_note_once_per_session(kernel):
    kernel.run("x = 5")
    first = kernel.run("%%agent\nthe price is {x}")
    again = kernel.run("%%agent\nthe price is {x}")
    assert "{x} was sent literally" in first.plain
    assert "{x} was sent literally" not in again.plain


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("%%agent --temprature 1\nhi", "%%agent -p temperature=1"),
        ("%%agent -m nosuch:thing\nhi", "nosuch"),
        ("%%agent\n{{undefined_name}}", "%%agent --raw"),
        ("%%agent\n   \n", "%agent ask TEXT"),
        ("%%agent -w nothing_here\nhi", "nothing_here"),
        ("%%agent -t nothing_here\nhi", "nothing_here"),
        ("%%agent --system @nothing_here\nhi", "nothing_here"),
        ("%%agent --schema NoSuchClass\nhi", "%%agent --schema"),
        ("%agent staus", "%agent status"),
        ("%agent stop the war", "%agent ask stop the war"),
        ("%agent alias a", "%agent alias a openai"),
    ],
)  # fmt: skip
def test_N11_two_or_three_lines_marked_as_error(kernel, code, says):
    before = kernel.run("print(len(quick.requests))").stdout
    first, after = kernel.send(code), kernel.send("1 + 1")
    cell, queued = kernel.collect(first, after)
    assert cell.status == "error"
    assert queued.status == "aborted"  # Run All stops
    assert says in "\n".join(cell.traceback)
    assert 1 <= len(cell.traceback) <= 3
    assert "Traceback" not in cell.everything
    assert not [o for o in cell.outputs if o["output_type"] != "error"]
    assert kernel.run("print(len(quick.requests))").stdout == before


def test_N11_missing_key_names_what_to_type(kernel):
    cell = kernel.run("import os\nos.environ.pop('OPENAI_API_KEY', None)\n")
    cell = kernel.run("%%agent -m openai:gpt-4.1-mini\nhi")
    assert cell.status == "error"
    assert len(cell.traceback) <= 3
    assert "OPENAI_API_KEY" in cell.evalue or "%agent key openai" in cell.evalue


def interrupted(kernel, code, *, twice=False, wait=0.8):
    first, after = kernel.send(code), kernel.send("1 + 1")
    at: list[float] = []

    def press() -> None:
        time.sleep(wait)
        at.append(kernel.interrupt())
        if twice:
            time.sleep(0.05)
            kernel.interrupt()

    thread = threading.Thread(target=press)
    thread.start()
    cell, queued = kernel.collect(first, after)
    thread.join()
    return cell, queued, cell.idle_at - at[0]


@pytest.mark.parametrize("twice", [False, True])
def test_D4_K04_interrupt(kernel, twice):
    kernel.run("_ = %agent model @slow")
    before = runs(kernel)
    cell, queued, took = interrupted(kernel, "%%agent\ntell me", twice=twice)
    assert cell.status == "error"
    assert cell.ename == "Cancelled"
    assert cell.traceback == ["Cancelled: stopped"]
    assert queued.status == "aborted"
    assert took < 0.6  # 0.25 s on an idle core; the bench has the figure
    shown = [o for o in cell.outputs if o["output_type"] != "error"][-1]["data"]["text/plain"]
    assert "word1" in shown
    assert "stopped" in shown
    assert runs(kernel) == before + 1
    assert kernel.run(
        "f = %agent audit\nprint(f.outcome.iloc[-1], _.status.value, _.text.split()[0])"
    ).stdout.split() == ["cancelled", "cancelled", "word0"]
    assert (
        kernel.run(
            "print(slow.open_streams, [t.name for t in __import__('threading').enumerate() if 'notebook-agent' in t.name])"
        ).stdout.strip()
        == "0 ['notebook-agent-engine']"
    )
    kernel.run("_ = %agent model @quick")
    assert "A quick reply." in kernel.run("%%agent\nstill there?").plain


def test_D4_interrupt_of_a_synchronous_run(kernel):
    kernel.run("_ = %agent model @slow")
    cell, queued, took = interrupted(
        kernel, "get_ipython().run_cell_magic('agent', '', 'tell me')", twice=True
    )
    assert cell.traceback == ["Cancelled: stopped"]
    assert queued.status == "aborted"
    assert took < 0.6
    assert kernel.run("print(slow.open_streams)").stdout.strip() == "0"


def test_D5_background_and_N05_output_stays_in_its_cell(kernel):
    kernel.run("_ = %agent model @slow")
    first = kernel.send(
        "h = await get_ipython().magics_manager.registry['AgentMagics'].run_cell('--background', 'tell me')\nprint(h)"
    )
    [cell] = kernel.collect(first)
    assert cell.seconds < 2
    assert "running" in cell.stdout
    assert "display_data" in own_output(cell)
    try:
        other = kernel.run(
            "import asyncio\nfor i in range(5):\n    print('two')\n    await asyncio.sleep(0.1)"
        )
        assert other.stdout == "two\n" * 5
        assert own_output(other) == ["stream"] * len(own_output(other))
        busy = kernel.run("%%agent\nand this?")
        assert busy.ename == "SessionBusy"
        assert own_output(busy) == ["error"]
    finally:
        got = kernel.run("h.cancel()\nr = await h\nprint(r.status.value, h.result is r)")
    assert got.stdout.strip() == "cancelled True"


def own_output(cell) -> list[str]:
    """Kinds of output that stay in a cell; an update goes to the display that it names, whichever
    cell runs now (ipykernel 6 gives it the running cell's parent)."""
    return [o["output_type"] for o in cell.outputs if o["output_type"] != "update_display_data"]


def test_D6_headless_background_runs_in_front(kernel):
    cell = kernel.run("%%agent --background\nhi", allow_stdin=False)
    assert "stays in its cell" in cell.stdout
    assert "A quick reply." in cell.plain


def test_D20_approval_by_stdin_while_the_cell_goes_on(kernel):
    kernel.run(
        "from notebook_agent import tool\nfrom notebook_agent.providers.scripted import Reply\nfrom notebook_agent.core.messages import ToolCallPart\n"
        "ran = []\n@tool(confirm=True)\ndef delete(path: str) -> str:\n    'Delete a file.'\n    ran.append(path)\n    return 'gone'\n"
        "@tool(main=True)\ndef where() -> str:\n    'Which thread.'\n    import threading\n    return str(threading.current_thread() is threading.main_thread())\n"
        "asks = lambda name, args: ScriptedModel([Reply(tool_calls=[ToolCallPart('c1', name, args)]), 'ok'], name='asks')"
    )
    for answer, ran in (("n", "[]"), ("y", "['a.txt']")):
        kernel.run("m = asks('delete', {'path': 'a.txt'})\n_ = %agent model @m")
        kernel.answers = [answer]
        cell = kernel.run("%%agent --fresh -t delete\ndelete it")
        assert cell.status == "ok", cell.everything
        assert any(
            "delete" in o.get("text", "")
            for o in cell.outputs
            if o["output_type"] == "input_request"
        )
        assert kernel.run("print(ran)").stdout.strip() == ran
    kernel.run("m = asks('where', {})\n_ = %agent model @m")
    cell = kernel.run("%%agent --fresh -t where\nwhere?")
    assert cell.status == "ok", cell.everything
    assert (
        kernel.run("print(m.requests[-1].messages[-1].results[0].output)").stdout.strip() == "True"
    )


def test_N04_load_reload_unload_reset_never_stack(kernel):
    def once():
        before = runs(kernel)
        cell = kernel.run("%%agent\nhi")
        assert cell.status == "ok", cell.everything
        assert len([o for o in cell.outputs if o["output_type"] == "display_data"]) == 1
        assert runs(kernel) == before + 1

    counted = "ip = get_ipython()\nprint([type(t).__name__ for t in ip.input_transformers_cleanup].count('Rewriter'), len(ip.events.callbacks['pre_run_cell']), len([c for c in ip.configurables if type(c).__name__ == 'AgentMagics']))"
    state = kernel.run(counted).stdout
    assert state.split()[0] == "1"
    once()
    kernel.run("%load_ext notebook_agent")
    once()
    kernel.run("%reload_ext notebook_agent")
    assert kernel.run(counted).stdout == state
    once()
    before = runs(kernel)
    assert kernel.run("%reset -f").status == "ok"
    assert runs(kernel) == before
    once()
    kernel.run("%reload_ext notebook_agent")
    once()
    assert runs(kernel) >= 5
    kernel.run("%unload_ext notebook_agent")
    left = kernel.run(
        "ip = get_ipython()\nprint('agent' in ip.magics_manager.magics['cell'], [type(t).__name__ for t in ip.input_transformers_cleanup].count('Rewriter'), hasattr(__import__('notebook_agent').AgentError, '_render_traceback_'))"
    )
    assert left.stdout.strip() == "False 0 False"
    assert kernel.run("%%agent\nhi").status == "error"
    kernel.run(SETUP)
    assert kernel.run(counted).stdout == state
    once()


def test_format_code_proposes_a_cell_and_json_must_be_valid(kernel):
    kernel.run("coder = ScriptedModel(['Use:\\n```python\\nprint(1)\\n```'], name='coder')")
    cell = kernel.run("%%agent -m @coder -f code\nwrite it")
    assert cell.status == "ok", cell.everything
    [payload] = [p for p in cell.payload if p["source"] == "set_next_input"]
    assert payload["text"] == "print(1)"
    assert payload["replace"] is False
    cell = kernel.run("%%agent -m @coder -f json -i kept\nwrite it")
    assert cell.ename == "FormatError"
    assert "not valid JSON" in cell.evalue
    assert kernel.run("print(kept.text[:4])").stdout.strip() == "Use:"


def test_limit_is_a_result_and_not_an_error(kernel):
    kernel.run(
        "from notebook_agent.providers.scripted import Reply\nfrom notebook_agent.core.messages import ToolCallPart\ndef again(n: int) -> str:\n    'Again.'\n    return str(n)\nloop = ScriptedModel([Reply(tool_calls=[ToolCallPart('c1', 'again', {'n': 1})])], name='loop')"
    )
    cell = kernel.run("%%agent -m @loop -t again --max-turns 2\ngo")
    assert cell.status == "ok", cell.everything
    assert kernel.run("print(_.status.value, len(_.turns))").stdout.strip() == "limit_reached 2"


def test_autoawait_off_still_answers(kernel):
    kernel.run("%autoawait False")
    try:
        assert "A quick reply." in kernel.run("%%agent\nhi").plain
        assert "A quick reply." in kernel.run("%agent what is a monad?").plain
    finally:
        kernel.run("%autoawait True")


def test_X05_no_local_values_under_xmode_verbose(kernel):
    kernel.run(
        "%xmode Verbose\nbad = ScriptedModel(script='401', name='bad')\nsecret_text = 'sk-very-secret'"
    )
    try:
        cell = kernel.run("%%agent -m @bad\nhi {{secret_text}}")
        assert cell.status == "error"
        assert len(cell.traceback) <= 3
        assert "sk-very-secret" not in cell.everything.replace("hi sk-very-secret", "")
    finally:
        kernel.run("%xmode Context")


def test_other_magics_around_ours(kernel):
    cell = kernel.run("%%time\n%%agent\nhi")
    assert cell.status == "ok", cell.everything
    assert "A quick reply." in cell.plain
    cell = kernel.run("for i in range(2):\n    %agent tell me {i} now\n")
    assert len({o["transient"]["display_id"] for o in cell.outputs}) == 2
    assert "--model" in repr(kernel.run("%%agent?").payload)
    assert "fallback" in repr(kernel.run("%agent?").payload)


def test_D1_every_cell_inside_a_cell_is_answered(kernel, tmp_path):
    """The second one too: nothing is awaited below a cell that runs."""
    inner = tmp_path / "inner.ipynb"
    cell = '{{"cell_type": "code", "metadata": {{}}, "outputs": [], "execution_count": null, "source": {}}}'
    cells = [json.dumps(f"%%agent -i {name}\n{name}?") for name in ("first", "second")]
    inner.write_text(
        '{"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": ['
        + ", ".join(cell.format(one) for one in cells)
        + "]}"
    )
    before = runs(kernel)
    for code in (
        f"%run -i {inner}\nassert first.text == second.text == 'A quick reply.'",
        "for _ in range(2): assert get_ipython().run_cell('%%agent\\nhi').success",
        "for _ in range(2): get_ipython().run_cell_magic('capture', 'out', '%%agent\\nhi')\nassert len(out.outputs)",
        "get_ipython().run_cell('x = 1')\nget_ipython().run_cell_magic('time', '', '%%agent\\nhi')",
    ):
        ran = kernel.run(code)
        assert ran.status == "ok", ran.everything
        assert "already running" not in ran.everything
    assert runs(kernel) == before + 7


def test_config_and_verbs_agree(kernel):
    assert kernel.run("%config AgentMagics.max_turns = 3").status == "ok"
    assert (
        "'max_turns': 3" in kernel.run("print(agent.settings.pairs())").stdout
        or "max_turns          3" in kernel.run("%agent config").plain
    )
    kernel.run("%agent system be brief")
    assert "be brief" in kernel.run("%config AgentMagics").stdout
    kernel.run("%agent system none\n%config AgentMagics.max_turns = 0")


def test_completion(kernel):
    def complete(code):
        kernel.client.complete(code, len(code))
        while True:
            message = kernel.client.get_shell_msg(timeout=60)  # jedi loads
            if message["msg_type"] == "complete_reply":
                return message["content"]["matches"]

    assert "status" in complete("%agent sta")
    assert "--model" in complete("%%agent --mo")
    assert "quick" in " ".join(complete("%%agent -m "))


def test_verbs_in_a_kernel(kernel):
    kernel.run("%%agent\nhi")
    for line in ("status", "history", "fsm", "events", "count hi", "why", "config", "doctor", "help", "help model", "version",
                 "tools", "breaker", "fallback", "system", "alias", "session list", "show", "compact", "panel close", "stop", "models"):  # fmt: skip
        cell = kernel.run(f"%agent {line}")
        assert cell.status == "ok", (line, cell.everything)
        assert cell.plain.strip(), line
        assert " at 0x" not in cell.plain, line
    shown = kernel.run("import pandas\nf = %agent audit\nprint(isinstance(f, pandas.DataFrame))")
    assert shown.stdout == "True\n"


class SlowServer:
    """A chat-completions server that streams a word every 50 ms and notes who hangs up."""

    def __init__(self) -> None:
        self.requests = 0
        self.keys: list[str] = []
        self.closed = threading.Event()
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(peer,), daemon=True).start()

    def _talk(self, peer: socket.socket) -> None:
        with peer:
            head = b""
            while b"\r\n\r\n" not in head:
                got = peer.recv(65536)
                if not got:
                    return
                head += got
            self.requests += 1
            self.keys += [
                line
                for line in head.decode("latin-1").splitlines()
                if "authorization" in line.lower()
            ]
            peer.sendall(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
            )
            try:
                for i in range(400):
                    data = {"choices": [{"index": 0, "delta": {"content": f"word{i} "}}]}
                    peer.sendall(f"data: {json.dumps(data)}\n\n".encode())
                    time.sleep(0.05)
            except OSError:
                self.closed.set()

    def close(self) -> None:
        self.socket.close()


def test_K04_X05_the_server_sees_the_connection_close_and_no_key_shows(kernel):
    server = SlowServer()
    key = "sk-kernel-test-0123456789abcdef"
    try:
        kernel.run(
            f"import os\nos.environ.update(OPENAI_API_KEY={key!r}, OPENAI_BASE_URL='http://127.0.0.1:{server.port}/v1')\n%xmode Verbose"
        )
        cell, queued, took = interrupted(
            kernel, "%%agent -m openai:gpt-slow\ntell me", twice=True, wait=1.5
        )
        assert cell.ename == "Cancelled", cell.everything
        assert queued.status == "aborted"
        assert took < 0.8
        assert server.closed.wait(3)
        assert server.requests == 1
        assert any(key in line for line in server.keys)  # the key was used ...
        seen = cell.everything
        server.close()
        refused = kernel.run("%%agent -m openai:gpt-slow --timeout 3\nhi")
        assert refused.status == "error"
        assert len(refused.traceback) <= 3
        for code in (
            "%tb",
            "%agent why",
            "%agent events",
            "%agent status",
            "%agent doctor",
            "repr(get_ipython().magics_manager.registry['AgentMagics'].agent.models_book.client('openai:gpt-slow'))",
        ):
            seen += kernel.run(code).everything
        seen += refused.everything
        assert "word1" in seen
        for part in (key, key[3:20], key[-12:]):  # ... and is shown nowhere
            assert part not in seen
    finally:
        server.close()
        kernel.run(
            "del os.environ['OPENAI_API_KEY'], os.environ['OPENAI_BASE_URL']\n%xmode Context"
        )


def test_cells_and_fix_see_the_sources_as_typed(kernel):
    kernel.run("alpha = 1  # the first")
    kernel.run("%%agent --fresh\nnot this one?")
    kernel.run("%%agent --fresh --cells 2\nwhat did I do?")
    shown = kernel.run("print(quick.requests[-1].messages[0].text_content())").stdout
    assert "alpha = 1  # the first" in shown
    assert "%%agent --fresh\nnot this one?" in shown
    assert "what did I do?" not in shown
    kernel.run(
        "fixer = ScriptedModel(['A typo.\\n```python\\nprint(1)\\n```'], name='fixer')\n_ = %agent model @fixer"
    )
    assert kernel.run("pritn(alpha)").status == "error"
    cell = kernel.run("%agent fix")
    assert cell.status == "ok", cell.everything
    sent = kernel.run("print(fixer.requests[-1].messages[-1].text_content())").stdout
    assert "pritn(alpha)" in sent
    assert "NameError" in sent
    [payload] = [p for p in cell.payload if p["source"] == "set_next_input"]
    assert payload["text"] == "print(1)"
    cell = kernel.run("%agent explain")
    assert not [p for p in cell.payload if p["source"] == "set_next_input"]


def test_line_form_inserts_and_expands_nothing_else(kernel):
    kernel.run("who = 'Ada'")
    kernel.run("%agent ask greet {{who}} and {who} and $who")
    assert (
        kernel.run("print(quick.requests[-1].messages[-1].text_content())").stdout.strip()
        == "greet Ada and {who} and $who"
    )
