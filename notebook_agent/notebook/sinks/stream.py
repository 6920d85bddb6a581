"""Stream: the reply on stdout as it comes, one status line per change, the footer at the end.

For the terminal. Control characters are made visible, so no reply can move the cursor or write
to the clipboard (X03).

Source: notebook side, "Running a cell" (D6), "The panel" (D19).
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable

from notebook_agent.core.text import visible
from notebook_agent.notebook.footer import footer
from notebook_agent.notebook.output import call_text, error_lines, tool_word
from notebook_agent.notebook.panel_state import Note, PanelState, Rich, TextBlock, ToolRow, Void
from notebook_agent.notebook.sinks.base import Outcome
from notebook_agent.notebook.words import PLAIN_MARKS, plain

__all__ = ["StreamSink"]


def _stdout(text: str) -> None:
    try:
        sys.stdout.write(text)
    except UnicodeEncodeError:  # a terminal that knows no UTF-8
        coding = sys.stdout.encoding or "ascii"
        sys.stdout.write(text.encode(coding, "replace").decode(coding))
    sys.stdout.flush()


class StreamSink:
    """Prints what is new since the last state."""

    name = "stream"

    def __init__(self, *, write: Callable[[str], None] = _stdout) -> None:
        self.on_stop: Callable[[], None] | None = None
        self._write = write
        self._items = 0  # items printed whole
        self._chars = 0  # characters of the text after them that are printed already
        self._voids: tuple[int, int] = (0, 0)
        self._tools: dict[tuple[int, str, int], str] = {}
        self._line: Rich = ()
        self._fresh = True  # the cursor stands at the start of a line
        self._held = ""  # a CR at the end of a piece waits for what follows it

    def open(self, state: PanelState) -> None:
        """The first line: what is being asked."""
        self.update(state)

    def update(self, state: PanelState) -> None:
        """Print the news."""
        self._check_void(state)
        for one in state.items[self._items :]:
            self._items += 1
            if isinstance(one, TextBlock):
                self._text(one.text[self._chars :])
                self._chars = max(0, self._chars - len(one.text))
                continue
            self._chars = 0
            if isinstance(one, Note):
                self._status(plain(one.text))
        if len(state.tail) > self._chars:
            self._text(state.tail[self._chars :])
            self._chars = len(state.tail)
        self._calls(state)
        if state.line != self._line and not state.done:
            self._line = state.line
            if state.line and state.status != "running tools":
                self._status(f"{state.status}: {plain(state.line)}")

    def _calls(self, state: PanelState) -> None:
        """A line for each call that goes on; an id may come twice in a turn, and in each turn."""
        met: Counter[tuple[int, str]] = Counter()
        for one in state.items:
            if not isinstance(one, ToolRow):
                continue
            call = (one.turn, one.call_id)
            met[call] += 1
            key = (*call, met[call])
            if self._tools.get(key) != one.status:
                self._tools[key] = one.status
                if one.status not in ("writing", "queued"):
                    self._status(f"{call_text(one)} · {tool_word(one)}")

    def close(self, state: PanelState, outcome: Outcome) -> None:  # noqa: ARG002  # the state says it all
        """The rest, how it ended, and the footer."""
        self.update(state)
        if state.line:
            self._status(plain(state.line))
        for line in error_lines(state):
            self._status(line)
        mark = PLAIN_MARKS.get(state.status, "◧")
        self._newline()
        self._write(visible(f"{mark} {state.status} · {footer(state)}") + "\n")
        for notice in state.notices:
            self._write(visible(notice) + "\n")
        self._fresh = True

    def _check_void(self, state: PanelState) -> None:
        voids = [one for one in state.items if isinstance(one, Void)]
        now = (len(voids), sum(one.last for one in voids))
        if now != self._voids:
            self._voids = now
            at = max(i for i, one in enumerate(state.items) if isinstance(one, Void))
            self._items, self._chars = at + 1, 0
            self._status("attempt reset: the answer starts over, the text above is void")
        self._items = min(self._items, len(state.items))

    def _text(self, text: str) -> None:
        text = self._held + text
        self._held = "\r" if text.endswith("\r") else ""
        text = text[:-1] if self._held else text
        if text:
            self._write(visible(text))
            self._fresh = text.endswith("\n")

    def _status(self, words: str) -> None:
        self._newline()
        self._write(f"[{visible(words)}]\n")
        self._fresh = True

    def _newline(self) -> None:
        if not self._fresh:
            self._write("\n")
            self._fresh = True
