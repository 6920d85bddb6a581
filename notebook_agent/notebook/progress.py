"""progress: a bar for long work, drawn from the callbacks of tuning.

    lab.run(progress=progress("prompts"))

Source: tune by experiment (progress bars drawn by the notebook layer); D16 (pinned notebooks).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from notebook_agent.tuning.driver import Progress

__all__ = ["progress"]

_STEP_S = 0.1  # seconds between two drawings


def progress(title: str = "", *, file: Any = None) -> Callable[[Progress], None]:
    """A callback that draws: done of total, failed, resent, cells a second, time left.

    In a notebook the bar is a widget where one can be drawn, else a line of text. In notebooks
    whose stored outputs are compared (``NOTEBOOK_AGENT_PINNED``) nothing is drawn: a bar is
    never twice the same.

    Args:
        title: Stands before the bar.
        file: Where a line of text goes; default standard error.
    """
    return _Bar(title, file)


class _Bar:
    """One bar; a new one for each piece of work that is reported from its start."""

    def __init__(self, title: str, file: Any) -> None:
        self._title, self._file = title, file
        self._bar: Any = None
        self._quiet = os.environ.get("NOTEBOOK_AGENT_PINNED", "") not in ("", "0")

    def __call__(self, state: Progress) -> None:
        """Draw where the work stands."""
        if self._quiet:
            return
        if self._bar is None:
            self._bar = self._made(state)
        bar = self._bar
        bar.set_postfix(_facts(state), refresh=False)
        bar.update(state.answered - bar.n)
        if state.finished:
            bar.close()
            self._bar = None

    def _made(self, state: Progress) -> Any:
        if self._file is not None or os.environ.get("NOTEBOOK_AGENT_DISPLAY") == "static":
            from tqdm import tqdm  # noqa: PLC0415  # only when something is drawn
        else:
            from tqdm.auto import tqdm  # noqa: PLC0415  # as above; looks for widgets
        return tqdm(
            total=state.total, desc=self._title or None, unit="cell", mininterval=_STEP_S,
            initial=0, file=self._file, dynamic_ncols=self._file is None,
        )  # fmt: skip


def _facts(state: Progress) -> dict[str, int]:
    """What is worth saying: only what is not nought."""
    facts = {"failed": state.failed, "resent": state.resent}
    return {name: value for name, value in facts.items() if value}
