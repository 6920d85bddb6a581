"""Takes the pictures of docs/img from a real JupyterLab, light and dark (needs Chromium).

python docs/pictures.py
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.browser.lab import SETUP, Notebook, lab_page, set_theme

OUT = Path(__file__).parent / "img"
REPLY = (
    "Two stretches look like a stuck sensor, and one is a real surge.\n\n"
    "- **3 March, 02:00 to 07:00.** The level stays at 1.42 m for five hours. Water in this "
    "harbour never rests that long, so the float was probably caught.\n"
    "- **11 March, 14:00.** Two readings are missing, then one jumps by 0.9 m and falls straight "
    "back. That is a hole in the record, not a wave.\n"
    "- **19 March, all day.** The level climbs slowly, peaks at 2.71 m and drains over ten "
    "hours. Keep it.\n\nTo blank the first two:\n\n```python\n"
    'still = tides["level_m"].rolling(5).std() < 0.002\ntides.loc[still, "level_m"] = pd.NA\n```\n'
)
MODELS = f"""{SETUP}
import time
from notebook_agent import tool
from notebook_agent.core.messages import ToolCallPart as Call
@tool
def describe(frame: str) -> str:
    "Rows, gaps and range of a frame."
    time.sleep(0.1)
    return "744 rows, hourly, 2 missing"
@tool
def find_gaps(frame: str, window: str) -> str:
    "Flat runs and holes."
    time.sleep(1.2)
    return "flat  03-03 02:00..07:00\\nhole  03-11 14:00"
@tool(confirm=True)
def drop_rows(where: str) -> str:
    "Drop rows."
    return "2 rows dropped"
reply = {REPLY!r}
look = Reply(text="I will look at the record before judging it.", tool_calls=[
    Call("c1", "describe", {{"frame": "tides"}}), Call("c2", "find_gaps", {{"frame": "tides", "window": "5h"}})])
ask = Reply(text="Two readings are certainly wrong.", tool_calls=[Call("c3", "drop_rows", {{"where": "level_m is stuck"}})])
thought = "Flat runs first: a rolling spread near zero cannot be water. Then gaps. " * 2
tutor = ScriptedModel([look, Reply(text=reply, thinking=thought)], delay_s=0.045, name="tutor")
careful = ScriptedModel([ask, "Done."], delay_s=0.02, name="careful")
busy = ScriptedModel([reply], script="503*99", delay_s=0.02, name="busy")
backup = ScriptedModel([reply], delay_s=0.06, name="backup")
spare = ScriptedModel([reply], delay_s=0.06, name="spare")
"""
ASK = "Which hours in the record look like a stuck sensor rather than a storm?"
CELLS = [
    MODELS,
    "%agent model @tutor\n%agent fallback @backup,@spare",
    f"%%agent -t describe,find_gaps\n{ASK}",
    "%agent reset --hard\n%agent model @careful",
    "%%agent -t drop_rows\nClean the record up.",
    "%agent reset --hard\n%agent model @busy\n%agent fallback @backup,@spare",
    f"%%agent\n{ASK}",
]  # fmt: skip
STREAMED = ".jp-NotebookPanel .na-reply"


def shown(page: Any, words: str) -> None:
    """Wait until the reply that streams has these words."""
    page.wait_for_function(
        "([s, w]) => document.querySelector(s)?.textContent.includes(w)",
        arg=[STREAMED, words],
        timeout=30_000,
    )


def picture(notebook: Notebook, cell: int, name: str) -> None:
    """The cell and its output."""
    where = notebook.page.locator(".jp-NotebookPanel .jp-CodeCell").nth(cell)
    where.scroll_into_view_if_needed()
    notebook.page.mouse.move(2, 2)
    where.screenshot(path=str(OUT / f"{name}.png"))
    sys.stdout.write(f"{name}.png {(OUT / f'{name}.png').stat().st_size:,}\n")


def take(notebook: Notebook, theme: str) -> None:
    """All pictures in one theme."""
    page = notebook.page
    notebook.run(1, done=20)
    notebook.run(2)
    shown(page, "not a wave")
    page.locator(".na-foot > summary").click()
    picture(notebook, 2, f"panel-{theme}")
    notebook.wait_done(2, 60)
    page.wait_for_function("!document.querySelector('.jp-NotebookPanel .na')")
    picture(notebook, 2, f"saved-{theme}")
    notebook.run(3, done=20)
    notebook.run(4)
    deny = notebook.panel(4).locator(".na-ask").get_by_role("button", name="Deny")
    deny.wait_for(timeout=20_000)
    picture(notebook, 4, f"approval-{theme}")
    deny.click()
    notebook.wait_done(4, 20)
    notebook.run(5, done=20)
    for _ in range(3):
        notebook.run(6)
        notebook.wait_done(6, 40)
    notebook.run(6)
    page.wait_for_selector(".jp-NotebookPanel .na .na-cool", state="attached", timeout=20_000)
    shown(page, "Water in this")
    picture(notebook, 6, f"fallback-{theme}")
    notebook.wait_done(6, 60)


def main() -> None:
    OUT.mkdir(exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix="na_pictures"))
    with lab_page(root, width=1240, height=1000) as (server, page):
        server.set("notebook-extension", "tracker", windowingMode="none", kernelShutdown=True)
        for theme in ("light", "dark"):
            notebook = Notebook(server, page, f"tides-{theme}.ipynb", CELLS)
            if page.locator("#jp-left-stack:visible").count():
                page.locator(".jp-SideBar.jp-mod-left .lm-TabBar-tab.lm-mod-current").click()
            set_theme(page, theme)
            notebook.run(0, done=40)
            time.sleep(0.5)
            take(notebook, theme)
            server.end_sessions()


if __name__ == "__main__":
    main()
