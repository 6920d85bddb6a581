"""Five sinks over one reducer: Panel, Update, Static, Stream, Null.

Source: notebook side, "The panel" (D19).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from notebook_agent.errors import ConfigError
from notebook_agent.notebook.sinks.base import Display, Outcome, Sink, ipython_display
from notebook_agent.notebook.sinks.plain import NullSink, StaticSink
from notebook_agent.notebook.sinks.stream import StreamSink
from notebook_agent.notebook.sinks.update import UpdateSink

if TYPE_CHECKING:
    from notebook_agent.notebook.panel import AgentPanel

__all__ = [
    "SINKS",
    "Display",
    "NullSink",
    "Outcome",
    "Sink",
    "StaticSink",
    "StreamSink",
    "UpdateSink",
    "ipython_display",
    "make_sink",
]

SINKS: Final = ("panel", "update", "static", "stream", "null")


def make_sink(
    name: str,
    *,
    panel: Callable[[], AgentPanel] | None = None,
    display: Display = ipython_display,
    write: Callable[[str], None] | None = None,
    background: bool = False,
) -> Sink:
    """A fresh sink for one run.

    Args:
        name: One of ``SINKS``.
        panel: Gives the session's one panel, made at the first call; only for ``panel``.
        display: How bundles reach the cell.
        write: Where ``stream`` prints; stdout by default.
        background: The cell has ended when the run goes on, so nothing blocks the clicks.

    Raises:
        ConfigError: There is no sink of this name.
    """
    if name == "panel":
        from notebook_agent.notebook.panel import get_panel  # noqa: PLC0415  # F4: no anywidget before it is wanted
        from notebook_agent.notebook.sinks.panel_sink import PanelSink  # noqa: PLC0415  # as above

        return PanelSink(panel or get_panel, display=display, background=background)
    if name == "update":
        return UpdateSink(display=display)
    if name == "static":
        return StaticSink(display=display)
    if name == "stream":
        return StreamSink() if write is None else StreamSink(write=write)
    if name == "null":
        return NullSink()
    raise ConfigError(field="display", value=name, legal="one of " + ", ".join(SINKS))
