"""Panel: the session's widget while the run goes on, the frozen bundle after it.

Source: notebook side, "The panel" (D5, D13, D15, D18), "Front ends" (F2, F6).
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from notebook_agent.notebook.output import bundle, metadata, standing_bundle
from notebook_agent.notebook.panel_state import PanelState
from notebook_agent.notebook.sinks.base import Display, Outcome, ipython_display

if TYPE_CHECKING:
    from notebook_agent.notebook.panel import AgentPanel

__all__ = ["KEYFRAMES_S", "PanelSink"]

KEYFRAMES_S: Final = (0.25, 1.0, 3.0)  # then every EVERY_S, until hello is answered
EVERY_S: Final = 5.0
ID_WAIT_S: Final = 2.0
HELLO_S: Final = 1.2  # the second that a view waits for its answer, and the way

log = logging.getLogger("notebook_agent.notebook")


class PanelSink:
    """One run in the session's panel.

    Args:
        panel: Gives the session's panel.
        display: How bundles reach the cell.
        background: The cell ends at once and the run goes on.
        now: Real monotonic seconds, for the keyframes.
    """

    name = "panel"

    def __init__(
        self,
        panel: Callable[[], AgentPanel],
        *,
        display: Display = ipython_display,
        background: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.on_stop: Callable[[], None] | None = None
        self._get = panel
        self._panel: AgentPanel | None = None
        self._display = display
        self._background = background
        self._now = now
        self._id = uuid.uuid4().hex
        self._meta: dict[str, Any] = {}
        self._opened = 0.0
        self._shown_at = 0.0
        self._shown = False
        self._frames = 0
        self._greeted = False

    def open(self, state: PanelState) -> None:
        """Get the panel ready; its view stands in this cell as soon as the run has its id."""
        self._panel = self._get()
        self._panel.begin(state, self._stop)
        self._opened = self._now()
        self._show_view(state)

    def _show_view(self, state: PanelState) -> None:
        """The metadata must never change after the first display and holds the run's id (D15);
        the engine gives the id within one tick, and the view does not wait for it longer than
        ``ID_WAIT_S``."""
        if self._shown or not (state.run_id or self._now() - self._opened >= ID_WAIT_S):
            return
        assert self._panel is not None  # opened
        self._shown = True
        self._shown_at = self._now()
        self._meta = metadata(state)
        self._display(self._view(state), metadata=self._meta, display_id=self._id)

    def _view(self, state: PanelState) -> dict[str, Any]:
        """The view, and what is read in its place when it cannot be there (N07)."""
        assert self._panel is not None  # opened
        return {**self._panel.view_bundle(), **standing_bundle(state)}

    def update(self, state: PanelState) -> None:
        """Send the news; answer the view; keyframes until a view has answered (F2)."""
        panel = self._panel
        if panel is None:
            return
        self._show_view(state)
        if panel.lost:  # closed in mid-run: a new one takes its place in the cell
            panel = self._replace(state)
        panel.show(state)
        if panel.answer():
            self._greeted = True
        if not self._greeted and self._now() - self._opened >= self._next_frame():
            self._frames += 1
            panel.keyframe()

    def close(self, state: PanelState, outcome: Outcome) -> None:  # noqa: ARG002  # the state says it all
        """Final state to the views, then the cell keeps the frozen bundle only (D15)."""
        panel = self._panel
        if panel is not None and panel.alive:
            try:
                panel.finish(state)
            except Exception:
                log.exception("the panel could not be told the end; the output is frozen anyway")
        made = bundle(state)
        if self._shown:
            self._display(made, metadata=self._meta, display_id=self._id, update=True)
        else:  # over before there was a view
            self._display(made, metadata=metadata(state))

    def clicks(self) -> bool | None:
        """Whether a click arrives while the run goes on: the view's ``hello`` was answered.

        None until the view has had its second for that (D5).
        """
        if self._panel is None or self._greeted:
            return self._greeted
        waited = self._now() - (self._shown_at or self._opened)
        return None if waited < HELLO_S else False

    def answered(self, number: int) -> bool | None:
        """What was clicked for a question of the run."""
        return None if self._panel is None else self._panel.answered(number)

    def _replace(self, state: PanelState) -> AgentPanel:
        panel = self._panel = self._get()
        self._greeted, self._frames, self._opened = False, 0, self._now()
        panel.begin(state, self._stop)
        self._display(self._view(state), metadata=self._meta, display_id=self._id, update=True)
        return panel

    def _stop(self) -> None:
        if self.on_stop is not None:
            self.on_stop()

    def _next_frame(self) -> float:
        if self._frames < len(KEYFRAMES_S):
            return KEYFRAMES_S[self._frames]
        return KEYFRAMES_S[-1] + EVERY_S * (self._frames - len(KEYFRAMES_S) + 1)
