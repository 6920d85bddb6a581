"""Shown: the frozen output of a run, displayed again.

Source: notebook side, front ends (F10); the panel (D15).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from notebook_agent.core.session import Run, Session
from notebook_agent.notebook.audit import run_rows
from notebook_agent.notebook.output import bundle, frozen_text, metadata
from notebook_agent.notebook.panel_state import PanelState, TextBlock

__all__ = ["Shown"]


@dataclass(frozen=True, slots=True, repr=False)
class Shown:
    """What a cell showed at its end."""

    state: PanelState

    @classmethod
    def of(cls, run: Run, session: Session, state: PanelState | None) -> Shown:
        """The kept state of a run; of a run that was loaded, one made from its trail."""
        if state is not None:
            return cls(state)
        number = next((i for i, r in enumerate(session.runs) if r.id == run.id), 0)
        rows = tuple(run_rows(run, number))
        blocks = tuple(TextBlock(t.output, t.turn) for t in run.turns if t.output)
        if not blocks and run.output:
            blocks = (TextBlock(run.output),)
        model = run.turns[-1].model if run.turns else ""
        return cls(
            PanelState(
                run_id=run.id,
                session=session.name,
                prompt=run.input,
                model=model,
                scripted=model.startswith("scripted:"),
                status=run.status.value.replace("_", " "),
                done=True,
                run_status=run.status,
                started=0.0,
                at=max((run.end or run.start) - run.start, 0.0),
                items=blocks,
                rows=rows,
                error=run.error,
            )
        )

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, str], dict[str, Any]]:
        return bundle(self.state), metadata(self.state)

    def __repr__(self) -> str:
        return frozen_text(self.state)
