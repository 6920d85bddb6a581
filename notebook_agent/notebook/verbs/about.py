"""What this is: help, version, doctor, panel.

Source: notebook side, commands and front ends (F3, F10).
"""

from __future__ import annotations

import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from notebook_agent.notebook.arguments import cell_help
from notebook_agent.notebook.frontend import choose, guess, proven
from notebook_agent.notebook.report import Report
from notebook_agent.notebook.runs import RunVerbs
from notebook_agent.notebook.verbs.table import verb_help

__all__ = ["AboutVerbs"]

PACKAGES: Final = (
    "notebook-agent",
    "ipython",
    "ipykernel",
    "ipywidgets",
    "anywidget",
    "pandas",
    "tiktoken",
)


def installed(name: str) -> str:
    """The version of a distribution, "not installed" without it."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


class AboutVerbs(RunVerbs):
    """Verbs about the tool itself."""

    def help(self, verb: str | None = None) -> Report:
        """All verbs, one verb, or ``cell`` for the options of ``%%agent``."""
        return Report(lines=((cell_help() if verb == "cell" else verb_help(verb)),))

    def version(self) -> Report:
        """Versions of what matters here."""
        pairs = [(name, installed(name)) for name in PACKAGES]
        pairs.append(("python", platform.python_version()))
        return Report("versions", tuple(pairs))

    def doctor(self) -> Report:
        """The command line's doctor, and what only a kernel knows; no network (F10)."""
        from notebook_agent.notebook import doctor  # noqa: PLC0415  # looks at files: only when asked

        front, hello = guess(self.shell), proven()
        sink = choose(None, setting=self.settings.show, front=front)
        pairs = [
            ("front end guessed", f"{front.name} ({front.sign})"),
            ("front end proven", _hello_line(hello)),
            ("sink in use", sink),
            ("road for Stop", _stop_road(sink, bool(hello))),
            ("ipykernel", installed("ipykernel")),
            ("abandoned tools", str(_abandoned())),
            ("what to do", _advice(front.name, sink)),
        ]
        return Report("doctor", tuple(pairs), lines=("", *doctor.lines()))

    def panel(self, action: str | None = None) -> Any:
        """The session's live panel as a value to display, or close it."""
        from notebook_agent.notebook import panel as panels  # noqa: PLC0415  # F4: no anywidget before it is wanted

        if action == "close":
            panels.close_panels(self.current)
            return Report("the panel is closed; the next run makes a new one if it wants one")
        return panels.get_panel(self.current)


def _hello_line(hello: dict[str, Any]) -> str:
    if not hello:
        return "no panel has answered"
    versions = ", ".join(f"{k} {v}" for k, v in (hello.get("versions") or {}).items())
    return f"a panel answered{f' ({versions})' if versions else ''}"


def _stop_road(sink: str, heard: bool) -> str:  # a fact, not a switch
    if sink == "panel" and heard:
        return "the panel's Stop button, or Kernel > Interrupt"
    return "Ctrl-C" if sink == "stream" else "Kernel > Interrupt"


def _abandoned() -> int:
    if "notebook_agent.engine.tools" not in sys.modules:
        return 0
    from notebook_agent.engine.tools import workers  # noqa: PLC0415  # only when tools ran

    return workers.abandoned_tools()


def _advice(name: str, sink: str) -> str:
    if installed("anywidget") == "not installed":
        return "pip install anywidget     for the live panel"
    if sink == "panel":
        return "nothing: the live panel is on"
    if name in ("terminal", "script", "headless"):
        return "nothing: this is how it looks here"
    return '%config AgentMagics.show = "panel"     to try the live panel here'
