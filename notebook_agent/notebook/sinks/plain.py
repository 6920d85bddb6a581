"""Null shows nothing; Static shows one frozen output when the run is over.

Source: notebook side, "The panel" (D16, D19).
"""

from __future__ import annotations

from collections.abc import Callable

from notebook_agent.notebook.output import bundle, metadata
from notebook_agent.notebook.panel_state import PanelState
from notebook_agent.notebook.sinks.base import Display, Outcome, ipython_display

__all__ = ["NullSink", "StaticSink"]


class NullSink:
    """Nothing is shown (``--show quiet``)."""

    name = "null"

    def __init__(self) -> None:
        self.on_stop: Callable[[], None] | None = None

    def open(self, state: PanelState) -> None: ...
    def update(self, state: PanelState) -> None: ...
    def close(self, state: PanelState, outcome: Outcome) -> None: ...


class StaticSink(NullSink):
    """Exactly one display per cell, at the end: what nbval and headless runs can follow (D16)."""

    name = "static"

    def __init__(self, *, display: Display = ipython_display) -> None:
        super().__init__()
        self._display = display

    def close(self, state: PanelState, outcome: Outcome) -> None:  # noqa: ARG002  # the state says it all
        """Show the frozen bundle."""
        self._display(bundle(state), metadata=metadata(state))
