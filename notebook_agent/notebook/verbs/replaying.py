"""Run files: record, replay, export.

Source: notebook side, commands; Turn FSM, "Determinism" (B58, B59).
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from notebook_agent.errors import AgentError
from notebook_agent.notebook.arguments import UsageError
from notebook_agent.notebook.place import place
from notebook_agent.notebook.report import Report
from notebook_agent.notebook.runs import RunVerbs

__all__ = ["ReplayVerbs", "write_run_file"]


def write_run_file(agent: RunVerbs, run_id: str, path: str, session: str | None = None) -> Path:
    """Write one run of a session to a run file."""
    from notebook_agent.engine.store.jsonl import export_runs  # noqa: PLC0415  # only when asked

    runtime = agent.runtime(session)
    target = place(path, "%agent record run.jsonl")
    return export_runs(runtime.store, runtime.session.id, target, run_ids=[run_id])


class ReplayVerbs(RunVerbs):
    """Verbs that write and read files of runs."""

    def record(self, path: str | None = None, run: str | None = None) -> Report:
        """Write a run to a run file; the newest when none is named."""
        if path is None:
            raise UsageError("record needs a file.\nType:  %agent record run.jsonl")
        found = self.find_run(run)
        written = write_run_file(self, found.id, path)
        typed = shlex.quote(str(written))
        return Report(
            f"run {found.id} is in {written}; check it with:  %agent replay {typed} --check"
        )

    def prepare_replay(
        self,
        path: str | None = None,
        check: bool = False,  # an option's name
        step: bool = False,  # an option's name
        speed: float | None = None,
    ) -> Any:
        """``--check`` and ``--step`` read the file; else the run is driven again."""
        if path is None:
            raise UsageError("replay needs a file.\nType:  %agent replay run.jsonl --check")
        place(path, "%agent replay run.jsonl --check")
        if step:
            return self.replay_steps(path)
        if check or speed is None:
            return self.replay(path)
        from notebook_agent.notebook.redrive import Redrive  # noqa: PLC0415  # only when asked

        return Redrive(self, path, speed)

    def replay(self, path: str) -> Report:
        """Recompute every action of a run file and compare; no engine, no provider.

        Raises:
            AgentError: An action differs from the record: sequence number, expected, actual.
        """
        from notebook_agent.engine.store.jsonl import check_file  # noqa: PLC0415  # only when asked

        found = check_file(path)
        if not found.ok:
            raise AgentError(str(found))
        return Report(str(found), data=found)

    def replay_steps(self, path: str) -> Report:
        """One transition after the other, as the machine decides them again."""
        from notebook_agent.engine.store.run_file import read_run_file  # noqa: PLC0415  # only when asked

        rows = []
        for bundle in read_run_file(path).runs:
            for record in bundle.records:
                outcome = "-" if record.outcome is None else type(record.outcome).__name__
                action = type(record.action).__name__
                state = getattr(record.action, "state", None)
                arrow = action if state is None else f"{action}({state.name})"
                rows.append(
                    (str(record.sequence), str(record.turn), record.state.name, outcome, arrow)
                )
        return Report(
            str(path), header=("seq", "turn", "state", "outcome", "action"), rows=tuple(rows)
        )

    def export(
        self,
        path: str | None = None,
        redact: bool = False,  # an option's name
        session: str | None = None,
    ) -> Report:
        """Write transcript and audit trail; the ending names the form."""
        from notebook_agent.notebook.export import export_session  # noqa: PLC0415  # only when asked

        if path is None:
            raise UsageError("export needs a file.\nType:  %agent export talk.md")
        place(path, "%agent export talk.md")
        return export_session(self, path, redact=redact, session=session)
