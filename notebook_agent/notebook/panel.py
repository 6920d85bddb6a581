"""AgentPanel: the live panel, one per session. Front end: static/panel.js, static/panel.css.

Python writes, JavaScript draws. Live data goes by the messages of ``wire``; the synced traits
hold a schema number, the status word and a final redacted snapshot. No imports and no build step
on the JavaScript side, nothing is fetched.

Source: notebook side, "The panel" (D5, D13, D15, D17), "Front ends" (F2, F4, F12).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import anywidget
import traitlets as t

from notebook_agent.notebook.channel import Channel, channel_name, open_channel
from notebook_agent.notebook.frontend import note_hello
from notebook_agent.notebook.output import SCHEMA
from notebook_agent.notebook.panel_state import PanelState
from notebook_agent.notebook.wire import FROM_VIEW, PanelWire, redacted

__all__ = ["AgentPanel", "close_panels", "get_panel"]

STATIC: Final = Path(__file__).parent / "static"


class AgentPanel(anywidget.AnyWidget):
    """The view of a session's newest run; made once, reused by every run (N10)."""

    _esm = STATIC / "panel.js"
    _css = STATIC / "panel.css"

    schema = t.Int(SCHEMA).tag(sync=True)
    status = t.Unicode("ready").tag(sync=True)
    final = t.Dict().tag(sync=True)
    channel = t.Unicode("").tag(sync=True)  # a road beside the comm, where there is one (F6)

    _channel: Channel | None = None

    def __init__(self, session: str = "default", **kwargs: Any) -> None:
        super().__init__(**{"channel": channel_name(), **kwargs})
        self.session = session
        self._wire = PanelWire()
        self._state = PanelState()
        self._seq = 0
        self._running = False
        self._inbox: deque[Mapping[str, Any]] = deque(maxlen=1_000)
        self._on_stop: Callable[[], None] | None = None
        self._answers: dict[int, bool] = {}
        self.on_msg(self._heard)
        self._opened = self.alive
        self._channel = open_channel(self.channel, lambda said: self._heard(self, said, None))

    # ---- a run: called in the kernel's thread ----

    def begin(self, state: PanelState, on_stop: Callable[[], None] | None) -> None:
        """A run starts: views are cleared and show its first state."""
        self._inbox.clear()
        self._answers.clear()
        self._wire = PanelWire(self._wire.run + 1)
        self._state = state
        self._running = True
        self._on_stop = on_stop
        self.set_trait("final", {})
        self.status = state.status
        self.keyframe()

    def show(self, state: PanelState) -> None:
        """Send what changed since the last state."""
        self._state = state
        self._tell(self._wire.diff(state))

    def keyframe(self) -> None:
        """Send everything: views that missed something are right again (F2)."""
        self._tell([{"t": "full", "full": self._wire.full(self._state)}])

    def finish(self, state: PanelState) -> None:
        """The final state; also kept, redacted, for a page that is loaded again."""
        self._state = state
        self._running = False
        self._on_stop = None
        full = self._wire.full(state)
        self._tell([{"t": "end", "full": full}])
        self.set_trait("final", redacted(full))
        self.status = state.status

    def answer(self) -> bool:
        """Answer what the views said since the last call; whether a ``hello`` was among it."""
        greeted = lost = False
        while self._inbox:
            said = self._inbox.popleft()
            if said.get("t") == "hello":
                greeted = True
                self._tell([{"t": "hi", "nonce": said.get("nonce"), "stop": self._running}])
            lost = True
        if lost:
            self.keyframe()
        return greeted

    def answered(self, number: int) -> bool | None:
        """What was clicked for this question of the run, None while nothing was."""
        return self._answers.get(number)

    def close(self) -> None:
        """Close the comm and the channel."""
        if self._channel is not None:
            self._channel.close()
        super().close()

    @property
    def alive(self) -> bool:
        """Whether the comm is open on our side; the browser may have closed it."""
        return self.comm is not None and not getattr(self.comm, "_closed", False)

    @property
    def lost(self) -> bool:
        """Whether the comm was closed after it had been open; outside a kernel there is none."""
        return self._opened and not self.alive

    # ---- the browser's side ----

    def _heard(self, _widget: Any, said: Any, _buffers: Any) -> None:
        """May run on a subshell's thread (D5): while a run goes on, only flags are set."""
        if not isinstance(said, Mapping) or said.get("t") not in FROM_VIEW:
            return
        if said["t"] == "hello":
            note_hello(said)
        if said["t"] == "stop":
            stop = self._on_stop
            if stop is not None and said.get("run") in (None, self._wire.run):
                stop()
            return
        if said["t"] == "answer":  # the first click counts
            number = said.get("n")
            if said.get("run") == self._wire.run and isinstance(number, int):
                self._answers.setdefault(number, said.get("allow") is True)
            return
        self._inbox.append(said)
        if not self._running:
            self.answer()

    def _tell(self, ops: list[dict[str, Any]]) -> None:
        if ops and self.alive:
            self._seq += 1
            self.send({"seq": self._seq, "run": self._wire.run, "ops": ops})

    def _should_send_property(self, key: str, value: Any) -> bool:
        # The snapshot is for a page loaded later, which asks for it; views have it by ``end``.
        return key != "final" and bool(super()._should_send_property(key, value))

    # ---- as an output ----

    def view_bundle(self) -> dict[str, Any]:
        """Mime bundle of a view, with a ``text/plain`` that holds no address (D15, F12)."""
        made = super()._repr_mimebundle_()
        data = dict((made[0] if isinstance(made, tuple) else made) or {})
        data["text/plain"] = repr(self)
        return data

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return self.view_bundle(), {}

    def __repr__(self) -> str:
        return f"agent panel of session {self.session!r}: {self._state.status}"


_PANELS: dict[str, AgentPanel] = {}


def get_panel(session: str = "default") -> AgentPanel:
    """The session's panel, made at the first call and again after it was closed."""
    panel = _PANELS.get(session)
    if panel is None or panel.lost:
        panel = _PANELS[session] = AgentPanel(session)
    return panel


def close_panels(session: str | None = None) -> int:
    """Close one session's panel or all; how many were open."""
    names = [session] if session is not None else list(_PANELS)
    closed = 0
    for name in names:
        panel = _PANELS.pop(name, None)
        if panel is not None:
            panel.close()
            closed += 1
    return closed
