"""What every sink does with a run, and the one place that calls IPython's display.

Source: notebook side, "The panel" (D19).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from notebook_agent.core.result import RunResult
from notebook_agent.errors import AgentError
from notebook_agent.notebook.panel_state import PanelState

__all__ = ["Display", "Outcome", "Sink", "ipython_display"]

Outcome = RunResult | AgentError | None


class Sink(Protocol):
    """Shows one run. Every call comes from the kernel's thread, at most 30 times a second.

    Attributes:
        name: panel, update, static, stream or null.
        on_stop: Called (from any thread) when a person asks to stop; set by who drives the run.
    """

    name: str
    on_stop: Callable[[], None] | None

    def open(self, state: PanelState) -> None:
        """First paint, before the first event."""
        ...

    def update(self, state: PanelState) -> None:
        """A newer state; the same one again when only time has passed."""
        ...

    def close(self, state: PanelState, outcome: Outcome) -> None:
        """The last state, and what came of it."""
        ...


class Display(Protocol):
    """Puts a mime bundle into the cell's output, or replaces one put there before."""

    def __call__(
        self,
        data: Mapping[str, Any],
        *,
        metadata: Mapping[str, Any],
        display_id: str | None = None,
        update: bool = False,
    ) -> None: ...


def ipython_display(
    data: Mapping[str, Any],
    *,
    metadata: Mapping[str, Any],
    display_id: str | None = None,
    update: bool = False,
) -> None:
    """``Display`` by IPython."""
    from IPython.display import display  # noqa: PLC0415  # importing the package must not load IPython

    more: dict[str, Any] = {} if display_id is None else {"display_id": display_id}
    if update:
        more["update"] = True
    show: Any = display  # IPython has no types
    show(dict(data), raw=True, metadata=dict(metadata), **more)
