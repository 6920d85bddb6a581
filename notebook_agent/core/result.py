"""RunResult: what a person holds after a run.

Source: spec of the notebook side, options ``--into`` and ``_``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from notebook_agent.core.response import Usage
from notebook_agent.core.session import Run, RunStatus, Turn, UnservedTurn
from notebook_agent.core.text import visible

__all__ = ["RunResult"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The outcome of one run; ``str(result)`` is the reply.

    Attributes:
        text: The last reply's text, refusals left out (L5a); partial text when not complete.
        run: The run of the audit trail.
        parsed: The validated object of ``--schema``, else None.
    """

    text: str
    run: Run = field(repr=False)
    parsed: Any = None
    notices: tuple[str, ...] = ()

    @property
    def status(self) -> RunStatus:
        """How the run ended."""
        return self.run.status

    @property
    def usage(self) -> Usage | None:
        """Reported tokens, None when the provider reported none."""
        return self.run.usage

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Served turns."""
        return tuple(self.run.turns)

    @property
    def unserved(self) -> tuple[UnservedTurn, ...]:
        """Failed and cancelled turns."""
        return tuple(self.run.unserved)

    @property
    def frame(self) -> Any:
        """The run's rows of the audit frame: a pandas.DataFrame."""
        from notebook_agent.notebook.audit import run_frame  # noqa: PLC0415  # pandas is slow to import

        return run_frame(self.run)

    def __str__(self) -> str:
        return self.text

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: ARG002  # IPython's signature
        """A cell's last value shows the reply itself, control characters made visible."""
        printer.text(visible(self.text))
