"""Update: one HTML display, re-sent while the run goes on. No widget, no comm.

For front ends where the panel cannot be there: at most four times a second, a tail of at most
8 kB while running, the whole frozen output at the end.

Source: notebook side, "The panel" (D19), "Front ends" (F3); N06, N09.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any, Final

from notebook_agent.core.text import unset_maths, visible
from notebook_agent.notebook.footer import breaker_line
from notebook_agent.notebook.output import bundle, metadata, styled_block
from notebook_agent.notebook.panel_state import Note, PanelState, TextBlock, ToolRow
from notebook_agent.notebook.sinks.base import Display, Outcome, ipython_display
from notebook_agent.notebook.tables import escape
from notebook_agent.notebook.words import PLAIN_MARKS, plain

__all__ = ["UpdateSink", "running_bundle"]

EVERY_S: Final = 0.25
ID_WAIT_S: Final = 2.0
TAIL: Final = 6_000  # characters of reply in one update; with its markup below 8 kB


class UpdateSink:
    """One display with a fixed id."""

    name = "update"

    def __init__(
        self,
        *,
        display: Display = ipython_display,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.on_stop: Callable[[], None] | None = None
        self._display = display
        self._now = now
        self._id = uuid.uuid4().hex
        self._sent_at = float("-inf")
        self._sent: Any = None
        self._meta: dict[str, Any] = {}
        self._opened = 0.0

    def open(self, state: PanelState) -> None:
        """The first paint, as soon as the run has its id."""
        self._opened = self._now()
        self.update(state)

    def update(self, state: PanelState) -> None:
        """Re-send what changed, at most four times a second."""
        now = self._now()
        if self._sent is None and not (state.run_id or now - self._opened >= ID_WAIT_S):
            return  # the metadata holds the run's id and must not change later (D15)
        if now - self._sent_at < EVERY_S:
            return
        made = running_bundle(state)
        if made != self._sent:
            self._send(made, state)

    def close(self, state: PanelState, outcome: Outcome) -> None:  # noqa: ARG002  # the state says it all
        """The whole, frozen, in the same place, metadata unchanged (D15)."""
        self._send(bundle(state), state)

    def _send(self, made: dict[str, str], state: PanelState) -> None:
        first = self._sent is None
        if first:
            self._meta = metadata(state)
        self._sent, self._sent_at = made, self._now()
        self._display(made, metadata=self._meta, display_id=self._id, update=not first)


HOW: Final = "live panel, where widgets work: %%agent --show panel"


def running_bundle(state: PanelState) -> dict[str, str]:
    """A run in progress: status, the end of the reply, what is happening."""
    mark = PLAIN_MARKS.get(state.status, "◧")
    head = f"{mark} {state.status} · {state.model} · {int(state.seconds)} s"
    line = plain(state.line)
    plain_tail, html_tail = _tail(state)
    text = "\n\n".join(part for part in (visible(head), plain_tail, visible(line), HOW) if part)
    extra = ""
    if state.breaker.state != "primary":
        extra = f"<br>{escape(breaker_line(state.breaker, state.gauge, at=state.at))}"
    markup = (
        '<div style="padding: 0 16px; font-size: 15px; line-height: 1.6" dir="auto">'
        f'<p style="font-size: 13px; line-height: 40px; margin: 0"><strong>{escape(head)}</strong></p>'
        f'{html_tail}<p style="font-size: 13px">{escape(line)}{extra}</p>'
        f'<p style="font-size: 12px">{escape(HOW)}</p></div>'
    )
    return {"text/plain": text, "text/html": unset_maths(markup)}


def _tail(state: PanelState) -> tuple[str, str]:
    """The last pieces of the flow that fit into ``TAIL`` characters."""
    texts: list[str] = []
    parts: list[str] = []
    room = TAIL
    if state.tail:
        cut = _end_of(state.tail, room)
        room -= len(cut)
        texts.append(visible(cut).strip())
        parts.append(f'<p style="white-space: pre-wrap; margin: 0 0 9px">{escape(cut)}</p>')
    for one in reversed(state.items):
        if room <= 0:
            break
        if isinstance(one, TextBlock):
            if len(one.text) > room:
                cut = _end_of(one.text, room)
                texts.append(visible(cut).strip())
                parts.append(f'<p style="white-space: pre-wrap">…{escape(cut)}</p>')
                room = 0
                break
            texts.append(visible(one.text).strip())
            made = unset_maths(styled_block(one.text))
            if len(made) > 2 * TAIL:
                made = f"<p>{escape(_end_of(one.text, room))}</p>"
            parts.append(made)
            room -= max(len(one.text), len(made) // 2)
        elif isinstance(one, ToolRow):
            line = f"[{one.name} · {one.status}]"[:300]
            texts.append(visible(line))
            parts.append(f'<p style="font-size: 13px">{escape(line)}</p>')
            room -= len(line)
        elif isinstance(one, Note):
            line = plain(one.text)[:300]
            texts.append(visible(line))
            parts.append(f'<p style="font-size: 13px">{escape(line)}</p>')
            room -= len(line)
    return "\n\n".join(reversed(texts)), "".join(reversed(parts))


def _end_of(text: str, room: int) -> str:
    """The end of a text: ``room`` characters, fewer where each becomes many in HTML."""
    cut = text[-room:]
    while len(unset_maths(escape(cut))) > 2 * room:
        cut = cut[len(cut) // 4 + 1 :]
    return cut
