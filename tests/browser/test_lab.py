"""Real people's paths in a real JupyterLab: run, stop, interrupt, retry, re-run, save, reopen,
export, dark theme, a run in the background (N05, N07, N10, N12, K04)."""

from __future__ import annotations

import json
import re
import time

import pytest

from tests.browser.lab import SETUP, Notebook, lab_page

REPLY = (
    "Two stretches look like a stuck sensor.\n\n- **3 March.** The level stays at 1.42 m.\n"
    "- **11 March.** Two readings are missing.\n\nTo blank them:\n\n```python\nx = 1\n```\n\n"
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory, chromium):
    with lab_page(tmp_path_factory.mktemp("notebooks")) as (server, page):
        yield server, page


def open_new(lab, name: str, setup: str, cells: list[str]) -> Notebook:
    server, page = lab
    server.end_sessions()
    notebook = Notebook(server, page, f"{name}.ipynb", [SETUP + setup, *cells])
    notebook.run(0, done=30)
    return notebook


def wait_for(check, seconds: float = 10.0):
    """Wait until ``check`` is true; its value."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = check()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError("it did not happen")


def slow(text: str = REPLY * 4, delay: float = 0.02) -> str:
    return f"m = ScriptedModel([Reply(text={text!r}, thinking='I look at it. ' * 5)], delay_s={delay})\n%agent model @m\n"


def test_K04_run_stop_and_interrupt(lab) -> None:
    """Deltas arrive; Stop ends the cell normally; an interrupt ends it with one line (D4, K04)."""
    notebook = open_new(
        lab, "stop", slow(), ["%%agent\nhello", "print('next', 1 + 1)", "%agent audit"]
    )
    page = notebook.page
    notebook.run(1)
    notebook.panel(1).wait_for(timeout=10_000)
    first = wait_for(lambda: len(notebook.panel(1).locator(".na-reply").inner_text()))
    wait_for(lambda: len(notebook.panel(1).locator(".na-reply").inner_text()) > first + 60)
    assert notebook.panel(1).locator(".na-status").inner_text() == "streaming"
    notebook.panel(1).locator(".na-stop button").wait_for(timeout=3000)
    start = time.monotonic()
    notebook.panel(1).locator(".na-stop button").click()
    page.wait_for_function("!document.querySelector('.jp-NotebookPanel .na')")
    assert time.monotonic() - start < 1.0  # 0.25 s by itself; the machine is shared
    notebook.wait_done(1, 5)
    text = notebook.text(1)
    assert "■ cancelled" in text
    assert "stopped by you; the text above is partial" in text
    assert "Two stretches look like a stuck sensor." in text
    assert "1 turn cancelled" in text
    assert "Traceback" not in text

    notebook.run(1)  # the same panel again, now interrupted, twice
    wait_for(lambda: notebook.panel(1).count() and "3 March" in notebook.panel(1).inner_text())
    notebook.interrupt()
    time.sleep(0.05)
    notebook.interrupt()
    notebook.wait_done(1, 3)
    text = notebook.text(1)
    assert re.search(r"Cancelled: stopped", text)
    assert "■ cancelled" in text
    assert "Traceback" not in text
    notebook.run(2, done=10)
    assert "next 2" in notebook.text(2)
    notebook.run(3, done=10)
    assert notebook.text(3).count("cancelled") >= 2


def test_retry_reset_fallback_and_recovery_are_shown(lab) -> None:
    """A bad day of a provider: waits, void text, the trip, the backup, in words."""
    notebook = open_new(
        lab,
        "bad_day",
        f"m = ScriptedModel([{REPLY!r}], script='503,drop@12,ok,503*99', delay_s=0.03, name='first')\n"
        f"b = ScriptedModel([{REPLY!r}], delay_s=0.04, name='backup')\n"
        "%agent model @m\n%agent fallback @b\n",
        ["%%agent\nhello", "%%agent\nhello again"],
    )
    page = notebook.page
    notebook.run(1)
    notebook.panel(1).wait_for(timeout=10_000)
    wait_for(lambda: "attempt 2 void" in page.inner_text(".jp-NotebookPanel"), 15)
    notebook.wait_done(1, 20)
    text = notebook.text(1)
    assert "attempt" in text
    assert "void" in text
    assert text.count("Two stretches look like a stuck sensor.") == 1
    assert re.search(r"served\s+END_TURN\s.*\s3\s", text)
    for _ in range(3):  # three failed turns trip the breaker
        notebook.run(2)
        notebook.wait_done(2, 30)
        assert "✗ failed" in notebook.text(2)
    notebook.run(2)
    wait_for(
        lambda: notebook.panel(2).count() and "a backup serves" in notebook.panel(2).text_content(),
        15,
    )
    panel = notebook.panel(2).text_content()
    assert "breaker: fallback" in panel
    assert "cooldown: next probe of" in panel
    notebook.wait_done(2, 20)
    text = notebook.text(2)
    assert "breaker: fallback, failures 3 of 3, scripted:backup serves" in text
    assert "✓ completed" in text


def test_N10_fifty_reruns_leave_no_comms(lab) -> None:
    notebook = open_new(
        lab, "rerun",
        "m = ScriptedModel(['Fine.'])\n%agent model @m\n"
        "import comm\ndef comms(): return len(comm.get_comm_manager().comms)\n",
        ["%%agent\nhello", "print('COMMS', comms())"],
    )  # fmt: skip
    for _ in range(2):
        notebook.run(1, done=10)
    notebook.run(2, done=10)
    before = re.search(r"COMMS (\d+)", notebook.text(2)).group(1)
    for _ in range(48):
        notebook.run(1, done=10)
    notebook.run(2, done=10)
    assert re.search(r"COMMS (\d+)", notebook.text(2)).group(1) == before
    assert notebook.page.locator(".jp-NotebookPanel .na").count() == 0
    assert "✓ completed" in notebook.text(1)


def test_N07_save_restart_reopen_export(lab, tmp_path) -> None:
    """A reopened notebook shows its text, never "model not found", trusted or not; exports too."""
    server, page = lab
    notebook = open_new(lab, "saved", slow(REPLY, 0.0), ["%%agent\nhello"])
    notebook.run(1, done=20)
    saved = notebook.save()
    (output,) = saved["cells"][1]["outputs"]
    assert sorted(output["data"]) == ["text/html", "text/plain"]
    run = output["metadata"]["notebook_agent"]
    assert run["schema"] == 1
    assert run["run"].startswith("run_")
    assert "widgets" not in saved["metadata"]
    assert "widget-view" not in json.dumps(saved)
    assert "0x" not in "".join(output["data"]["text/plain"])
    assert "I look at it" not in json.dumps(output)  # thinking is not saved
    server.end_sessions()
    for trusted in (True, False):
        if not trusted:  # a copy that nobody signed: another text, so another signature
            saved["cells"][0]["source"] = "# a copy"
            (server.root / "untrusted.ipynb").write_text(json.dumps(saved))
        reopened = Notebook(server, page, "saved.ipynb" if trusted else "untrusted.ipynb")
        text = wait_for(lambda: reopened.text(1))  # noqa: B023  # waited for inside the loop
        for word in ("✓ completed", "Two stretches look like a stuck sensor.", "breaker: primary",
                     "stop reason", "END_TURN", "thinking ·", "not saved"):  # fmt: skip
            assert word in text, (trusted, word)
        assert "model not found" not in page.inner_text("body").lower()
        server.end_sessions()

    from nbconvert import HTMLExporter, MarkdownExporter

    body, _ = HTMLExporter(sanitize_html=True).from_filename(str(server.root / "saved.ipynb"))
    plain = re.sub(r"<[^>]*>", "", body)
    for word in ("✓ completed", "Two stretches look like a stuck sensor.", "breaker: primary"):
        assert word in plain
    body, _ = MarkdownExporter().from_filename(str(server.root / "saved.ipynb"))
    assert "Two stretches look like a stuck sensor." in body


def test_N05_background_run_shows_in_its_own_cell(lab) -> None:
    notebook = open_new(
        lab, "background", slow(REPLY * 2, 0.02),
        ["%%agent --background\nhello", "import time\nfor i in range(5):\n    print('two', i)\n    time.sleep(0.1)"],
    )  # fmt: skip
    notebook.run(1)
    notebook.panel(1).wait_for(timeout=10_000)
    notebook.wait_done(1, 5)
    notebook.run(2, done=10)
    assert notebook.text(2).split() == ["two", "0", "two", "1", "two", "2", "two", "3", "two", "4"]
    wait_for(lambda: "✓ completed" in notebook.text(1), 20)
    assert "Two stretches" in notebook.text(1)
    assert "Two stretches" not in notebook.text(2)


def test_reload_in_mid_run_and_the_live_panel_comes_back(lab) -> None:
    """D18: after a reload of the page the view shows what it showed, and goes on."""
    notebook = open_new(lab, "reload", slow(REPLY * 6, 0.03), ["%%agent\nhello"])
    page = notebook.page
    notebook.run(1)
    wait_for(lambda: notebook.panel(1).count() and "3 March" in notebook.panel(1).inner_text())
    notebook.save()
    page.reload()
    page.wait_for_selector(".jp-NotebookPanel .na", timeout=20_000)
    text = wait_for(lambda: "3 March" in page.inner_text(".jp-NotebookPanel .na") and page.inner_text(".jp-NotebookPanel .na"))  # fmt: skip
    assert "Two stretches look like a stuck sensor." in text
    notebook.interrupt()


def test_a_kernel_restarted_in_mid_run_leaves_no_panel_that_seems_to_run(lab) -> None:
    """The text that came stays; no clock goes on, no Stop is offered that nobody hears."""
    notebook = open_new(lab, "restart", slow(REPLY * 6, 0.03), ["%%agent\nhello"])
    page = notebook.page
    notebook.run(1)
    wait_for(lambda: notebook.panel(1).count() and "3 March" in notebook.panel(1).inner_text())
    page.keyboard.press("Escape")
    page.click(".lm-MenuBar-item:has-text('Kernel')")
    page.click(".lm-Menu-item:has-text('Restart Kernel…') >> nth=0")
    page.click(".jp-Dialog button.jp-mod-accept")
    wait_for(lambda: "the kernel was restarted" in notebook.panel(1).inner_text(), 20)
    assert "3 March" in notebook.panel(1).inner_text()
    assert notebook.panel(1).locator(".na-status").inner_text() == "cancelled"
    assert not notebook.panel(1).get_by_role("button", name="Stop").is_visible()


def test_N07_saved_in_mid_run_and_the_kernel_dies(lab) -> None:
    """A view is never all that a saved notebook has of a run: text stands beside it.

    Opened untrusted, that text is shown. In a trusted notebook JupyterLab itself prefers the
    view's mime type and says that its model is gone; the text is in the file and in exports.
    """
    server, page = lab
    notebook = open_new(lab, "dies", slow(REPLY * 6, 0.03), ["%%agent\nhello"])
    notebook.run(1)
    wait_for(lambda: notebook.panel(1).count() and "3 March" in notebook.panel(1).inner_text())
    saved = notebook.save()
    (output,) = saved["cells"][1]["outputs"]
    assert "application/vnd.jupyter.widget-view+json" in output["data"]
    assert "its text is not here" in "".join(output["data"]["text/html"])
    plain = "".join(output["data"]["text/plain"])
    assert re.search(r"%agent show run_\w+\n.*%agent session load default", plain)
    assert "0x" not in plain
    server.end_sessions()
    saved["cells"][0]["source"] = "# a copy"  # that nobody signed
    (server.root / "dies_untrusted.ipynb").write_text(json.dumps(saved))
    reopened = Notebook(server, page, "dies_untrusted.ipynb")
    text = wait_for(lambda: reopened.text(1))
    assert "its text is not here" in text
    assert "%agent resume run_" in text
    assert "model not found" not in page.inner_text("body").lower()
    server.end_sessions()

    from nbconvert import HTMLExporter

    body, _ = HTMLExporter().from_filename(str(server.root / "dies.ipynb"))
    assert "its text is not here" in body


def test_D20_a_tool_is_allowed_by_a_click(lab) -> None:
    """The question stands in the panel, not in stdin; Allow runs the tool, Deny does not."""
    notebook = open_new(
        lab, "approval",
        "from notebook_agent import tool\nfrom notebook_agent.core.messages import ToolCallPart\nran = []\n"
        "@tool(confirm=True)\ndef delete(path: str) -> str:\n    'Delete a file.'\n    ran.append(path)\n    return 'gone'\n"
        "call = lambda n: Reply(text='I tidy up.', tool_calls=[ToolCallPart(n, 'delete', {'path': n + '.txt'})])\n"
        "m = ScriptedModel([call('a'), 'Done.', call('b'), 'As you like.'], delay_s=0.01)\n%agent model @m\n",
        ["%%agent -t delete\ntidy up", "%%agent -t delete\nagain", "print(ran)"],
    )  # fmt: skip
    for cell, name, word in ((1, "Allow", "Done."), (2, "Deny", "As you like.")):
        notebook.run(cell)
        notebook.panel(cell).locator(".na-ask").get_by_role("button", name=name).click(
            timeout=15_000
        )
        notebook.wait_done(cell, 10)
        assert word in notebook.text(cell)
        assert notebook.output(cell).locator("input").count() == 0  # stdin was not asked
    notebook.run(3, done=10)
    assert notebook.text(3).strip() == "['a.txt']"


def test_N12_dark_theme(lab) -> None:
    """Colours come from the theme: text and background change together, contrast stays."""
    notebook = open_new(lab, "dark", slow(REPLY * 2, 0.02), ["%%agent\nhello"])
    page = notebook.page
    page.click("text=Settings")
    page.click(".lm-Menu-item:has-text('Theme')")
    page.click(".lm-Menu-item:has-text('JupyterLab Dark')")
    page.wait_for_function("document.body.dataset.jpThemeLight === 'false'")
    notebook.run(1)
    notebook.panel(1).wait_for(timeout=10_000)
    wait_for(lambda: "3 March" in notebook.panel(1).inner_text())
    ink, paper = page.evaluate(
        "() => { const e = document.querySelector('.na-reply'); const p = document.querySelector('.na-p');"
        " return [getComputedStyle(e).color, getComputedStyle(p).backgroundColor]; }"
    )
    assert luminance(ink) > 0.6
    assert luminance(paper) < 0.1
    notebook.wait_done(1, 20)
    page.click("text=Settings")
    page.click(".lm-Menu-item:has-text('Theme')")
    page.click(".lm-Menu-item:has-text('JupyterLab Light')")


LINES = """(selector) => { const root = document.querySelector(selector); if (!root) return [];
  const top = root.getBoundingClientRect().top, out = [];
  const walk = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let n; (n = walk.nextNode());) { if (!n.data.trim()) continue;
    const range = document.createRange(); range.selectNodeContents(n);
    const box = range.getClientRects()[0]; if (box) out.push([n.data.trim().slice(0, 24), box.top - top, box.left]); }
  return out; }"""


def test_the_freeze_moves_no_line_of_the_reply(lab) -> None:
    """Live and saved, each line of the reply stands at the same height within a pixel."""
    text = (
        REPLY
        + "## Head\n\n1. one\n2. two\n\n> quote\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```python\nvalues = ["
        + "17.25, " * 40
        + "]\n```\n\nThe end of it.\n"
    )
    notebook = open_new(lab, "freeze", slow(text + "\n" + "word " * 120, 0.01), ["%%agent\nhello"])
    page = notebook.page
    notebook.run(1)
    page.wait_for_function(
        "document.querySelector('.na-reply')?.textContent.includes('The end of it.')",
        timeout=20_000,
    )
    reply = {t for t, _, _ in page.evaluate(LINES, ".jp-NotebookPanel .na-reply")}
    live = {t: (y, x) for t, y, x in page.evaluate(LINES, ".jp-NotebookPanel .na-p") if t in reply}
    notebook.wait_done(1, 20)
    wait_for(lambda: "✓ completed" in notebook.text(1))
    frozen = page.evaluate(LINES, ".jp-NotebookPanel .jp-RenderedHTMLCommon > div")
    moved = {
        t: (y - live[t][0], x - live[t][1]) for t, y, x in frozen if t in live and t not in "12"
    }
    assert len(moved) >= 9
    for name, (dy, dx) in moved.items():
        if name != "scripted":
            assert abs(dy) <= 1.0, (name, dy)
            # the thinking row has lost its arrow; all text stays where it was
            assert abs(dx) <= 1.0 or name.startswith("thinking"), (name, dx)


def luminance(color: str) -> float:
    """Relative luminance of a computed colour, rgb() or color(srgb)."""
    numbers = [float(n) for n in re.findall(r"[\d.]+", color)[:3]]
    if not color.startswith("color("):
        numbers = [n / 255 for n in numbers]
    return sum(w * n**2.2 for w, n in zip((0.2126, 0.7152, 0.0722), numbers, strict=True))
