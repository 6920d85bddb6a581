"""Runs the code blocks of pages, in order, each page in an IPython shell of its own.

    python tests/play_docs.py PAGE ...     prints one line of JSON per block that failed

Blocks marked ``python`` or ``ipython`` run; one after ``<!-- not run: reason -->`` does not.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
from pathlib import Path

BLOCK = re.compile(
    r"(?P<skip><!-- not run: [^\n]+ -->\n)?^```(?:python|ipython)\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


def blocks(text: str) -> list[str]:
    """The blocks of a page that are meant to run."""
    return [m["code"] for m in BLOCK.finditer(text) if not m["skip"]]


def play(page: Path) -> int:
    """Run a page's blocks; the number of those that ran."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    config = Config({"HistoryManager": {"enabled": False}})
    shell = InteractiveShell(config=config)
    shell.user_ns["get_ipython"] = lambda: shell
    ready = ["%load_ext notebook_agent", "%agent model scripted"]
    ran = 0
    for code in [*ready, *blocks(page.read_text(encoding="utf-8"))]:
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            result = shell.run_cell(code, store_history=False)
        ran += 1
        if not result.success:
            error = result.error_in_exec or result.error_before_exec
            print(json.dumps({"page": page.name, "code": code, "error": repr(error), "out": said.getvalue()[-1500:]}))  # fmt: skip
    return ran - len(ready)


if __name__ == "__main__":
    os.environ.update(NOTEBOOK_AGENT_STORE="memory", NOTEBOOK_AGENT_DISPLAY="", NO_COLOR="1")
    total = sum(play(Path(name)) for name in sys.argv[1:])
    print(json.dumps({"ran": total}))
