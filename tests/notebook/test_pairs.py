"""panel.py and static/panel.js say the same names; size and safety of the front end."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from notebook_agent.core.turn_fsm import TurnState
from notebook_agent.notebook.footer import AUDIT_COLUMNS
from notebook_agent.notebook.output import SCHEMA
from notebook_agent.notebook.panel_state import PanelState
from notebook_agent.notebook.render import TAGS
from notebook_agent.notebook.wire import FROM_VIEW, OPS, PanelWire
from notebook_agent.notebook.words import PLAIN_MARKS

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "notebook_agent/notebook/static"
JS = (STATIC / "panel.js").read_text()
CSS = (STATIC / "panel.css").read_text()


def constant(name: str):
    """A literal of the JavaScript file."""
    text = re.search(rf"const {name} = (\[.*?\]);", JS, re.DOTALL).group(1)
    return json.loads(re.sub(r"\s+", " ", text))


def test_messages_have_the_same_names() -> None:
    assert tuple(constant("OPS")) == OPS
    assert tuple(constant("SAYS")) == FROM_VIEW
    handled = set(re.findall(r"^\t(\w+)\(store, op, dirty\)", JS, re.MULTILINE)) | {
        "full",
        "end",
        "hi",
    }
    assert handled == set(OPS)
    assert set(re.findall(r'say\(\{\s*t: "(\w+)"', JS)) == set(FROM_VIEW)  # fmt: skip


def test_traits_have_the_same_names() -> None:
    from notebook_agent.notebook.panel import AgentPanel

    theirs = {"_esm", "_css", "_anywidget_id"} | set(AgentPanel.__mro__[1]().keys)
    ours = {name for name in AgentPanel().keys if name not in theirs}
    assert ours == set(constant("TRAITS"))


def test_schema_and_columns() -> None:
    assert int(re.search(r"SCHEMA = (\d+)", JS).group(1)) == SCHEMA
    heads = [(name, cls) for name, cls in constant("COLUMNS")]
    want = [
        (head, f"{'r' if right else ''}{f' w{rank}' if rank else ''}".strip())
        for head, _, right, rank in AUDIT_COLUMNS
    ]
    assert heads == want
    names = [long.upper() for _, long, _ in constant("STATES")]
    assert names == [state.value.replace("_", "").upper() for state in TurnState]


def test_state_fields_are_sent() -> None:
    """Every field that the JavaScript reads of a state is one that Python sends."""
    sent = set(PanelWire().full(PanelState())["state"])
    read = set(re.findall(r"\bs\.([a-z]+)\b", JS)) - {"length", "map", "scripted"}
    assert read <= sent, read - sent


def test_shapes_for_every_word() -> None:
    shapes = set(re.findall(r'^\t?"?([a-z ]+)"?: \[\[', JS, re.MULTILINE)) | set(
        re.findall(r', "?([a-z ]+)"?: \[\[', JS)
    )
    assert {"connecting", "streaming", "running tools", "waiting", "attempt reset", "compacting",
            "completed", "rescued", "cancelled", "failed"} <= shapes  # fmt: skip
    assert set(PLAIN_MARKS) >= shapes - {"half", "primary", "fallback", "recovering", "serves"}


def test_the_allow_list_is_the_same_on_both_sides() -> None:
    pattern = re.search(r"const ALLOWED = /\^\((.*)\)\$/", JS).group(1)
    words = pattern.replace("h[3-6]", "h3|h4|h5|h6").split("|")
    assert set(words) == TAGS


def test_nothing_is_imported_or_fetched() -> None:
    for text in (JS, CSS):
        assert not re.search(
            r"https?://(?!www\.w3\.org/2000/svg)", text.replace("(https?:|mailto:)", "")
        )
        assert "@import" not in text
        assert "url(" not in text
    assert not re.search(
        r"^\s*import\b|\bimport\(|\bfetch\(|XMLHttpRequest|WebSocket|eval\(", JS, re.MULTILINE
    )
    assert JS.count("DOMParser") == 1
    assert "innerHTML" not in JS
    assert "outerHTML" not in JS
    assert "insertAdjacentHTML" not in JS


def test_size() -> None:
    assert len(JS.encode()) + len(CSS.encode()) <= 40_000


def test_css_is_scoped() -> None:
    """Nothing leaks out: class names of ours only, no bare element selector."""
    bare = re.sub(r"@[a-z-]+[^{]*\{|/\*.*?\*/", "", CSS, flags=re.DOTALL)
    for selector in re.findall(r"([^{}]+)\{", bare):
        for one in re.sub(r"\([^)]*\)", "", selector).split(","):
            assert "." in one or one.strip() == "50%", one


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_javascript_by_nodes_own_runner() -> None:
    done = subprocess.run(
        ["node", "--test", str(ROOT / "tests/js/panel.test.mjs")],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]


def test_panel_is_light() -> None:
    """One panel of a session, one text/plain without an address (D15, F12)."""
    from notebook_agent.notebook.panel import AgentPanel, close_panels, get_panel

    one = get_panel("test")
    assert isinstance(one, AgentPanel)
    assert get_panel("test") is one
    data = one.view_bundle()
    assert data["text/plain"] == "agent panel of session 'test': connecting"
    assert "application/vnd.jupyter.widget-view+json" in data
    assert close_panels("test") == 1
    assert get_panel("test") is not one
    close_panels()


def test_F4_nothing_is_constructed_before_it_is_wanted() -> None:
    code = (
        "import sys, notebook_agent.notebook.sinks, notebook_agent.notebook.view, "
        "notebook_agent.notebook.live, notebook_agent.notebook.frontend\n"
        "from notebook_agent.notebook.sinks import make_sink\n"
        "[make_sink(n) for n in ('update', 'static', 'stream', 'null')]\n"
        "print([m for m in ('anywidget', 'ipywidgets', 'pandas', 'IPython') if m in sys.modules])"
    )
    import sys

    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
