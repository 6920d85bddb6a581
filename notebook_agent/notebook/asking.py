"""Asking a person whether a tool may run: the panel's buttons, else stdin, else nobody.

The panel asks only where its clicks arrive while the run goes on, which its ``hello`` has proved
or has not within a second (D5). Elsewhere the question goes to the kernel's stdin.

Source: notebook side, "Whose thread runs notebook code" (D20, approval).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol

from notebook_agent.core.messages import ToolCallPart
from notebook_agent.notebook.calls import call_line
from notebook_agent.notebook.road import Asker, KernelRoad

__all__ = ["Clickable", "PanelFirst", "approver"]


class Clickable(Protocol):
    """A view that may be able to take a click."""

    def clicks(self) -> bool | None:
        """Whether clicks arrive; None while that is not known."""
        ...

    def ask(self, call: str) -> int:
        """Show the question; its number."""
        ...

    def answered(self, number: int) -> bool | None:
        """What was clicked."""
        ...

    def unask(self) -> None:
        """Take the question back."""
        ...


class PanelFirst:
    """One question, asked by the panel where its clicks arrive and by ``then`` elsewhere.

    Args:
        view: The view of the run.
        call: The call on one line.
        then: Who is asked where no click arrives.
    """

    def __init__(self, view: Clickable, call: str, then: Callable[[], Asker]) -> None:
        self._view, self._call, self._then = view, call, then
        self._number: int | None = None
        self._other: Asker | None = None

    def open(self, prompt: str) -> bool | None:
        """Ask, as soon as it is known how."""
        clicks = self._view.clicks()
        if clicks is None:
            return None
        if clicks:
            self._number = self._view.ask(self._call)
            return True
        self._other = self._then()
        return self._other.open(prompt)

    def poll(self) -> str | None:
        """The answer, as stdin would give it."""
        if self._number is None:
            return self._other.poll() if self._other is not None else None
        allowed = self._view.answered(self._number)
        if allowed is None:
            return None
        self._view.unask()
        return "y" if allowed else "n"

    def close(self) -> None:
        """The question is void."""
        if self._number is not None:
            self._view.unask()
        elif self._other is not None:
            self._other.close()


def approver(road: KernelRoad, view: Callable[[], Clickable | None]) -> Callable[[ToolCallPart], Any]:  # fmt: skip
    """The engine's ``approve`` of one session.

    Args:
        road: The way to the kernel's thread.
        view: The session's view of the run in progress, None when nothing is shown.
    """

    async def approve(call: ToolCallPart) -> bool | None:
        line = call_line(call.name, json.dumps(call.input, ensure_ascii=False))

        def asker() -> Asker:
            shown = view()
            return road.asker() if shown is None else PanelFirst(shown, line, road.asker)

        return await road.ask(f"The model wants to run {line}. Allow? [y/N] ", asker=asker)

    return approve
