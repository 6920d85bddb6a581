"""``replay FILE --speed X``: the real engine driven again by a run file, shown as it runs.

The engine plays the recorded replies and tool results and compares what it records now with the
file; here its events get a view and its report a cell. No provider is asked, no tool runs.

Source: notebook side, commands (``replay``); Turn FSM, "Determinism" (B59).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from notebook_agent.core.result import RunResult
from notebook_agent.core.session import Session
from notebook_agent.engine.cancel import CancelSignal
from notebook_agent.engine.observers import ObserverHub
from notebook_agent.engine.replay_drive import DriveReport, redrive
from notebook_agent.engine.store.run_file import read_run_file
from notebook_agent.errors import AgentError, StoreError
from notebook_agent.notebook.attached import AttachedView
from notebook_agent.notebook.drive import RunDriver
from notebook_agent.notebook.frontend import choose, guess
from notebook_agent.notebook.live import LiveObserver
from notebook_agent.notebook.report import Report
from notebook_agent.notebook.sinks import make_sink

if TYPE_CHECKING:
    from notebook_agent.notebook.runs import RunVerbs

__all__ = ["Redrive"]


class Redrive:
    """The runs of a file, driven again in one view.

    Args:
        agent: Whose engine and views are used.
        path: The run file.
        speed: 2 plays twice as fast as it was.

    Raises:
        StoreError: It is no run file, holds no run, or its words were taken out.
    """

    def __init__(self, agent: RunVerbs, path: str, speed: float) -> None:
        self._agent = agent
        self._speed = speed
        self._file = read_run_file(path)
        self._cancel = CancelSignal()
        self._report: DriveReport | None = None
        if self._file.redacted or not self._file.runs:
            what = (
                "is redacted: there are no replies to play" if self._file.runs else "holds no run"
            )
            raise StoreError(f"{path} {what}.\nType:  %agent replay {path} --check")

    async def awaited(self) -> Report:
        """From an awaited cell.

        Raises:
            AgentError: The engine did something else than the file says, or was stopped.
        """
        await self._driver().awaited()
        return self._said()

    def blocking(self) -> Report:
        """From synchronous code.

        Raises:
            AgentError: As for :meth:`awaited`.
        """
        self._driver().blocking()
        return self._said()

    def _said(self) -> Report:
        report = self._report
        if report is None:
            raise AgentError("The replay was stopped before its end.")
        if not report.ok:
            raise AgentError(str(report))
        return Report(str(report), data=report)

    def _driver(self) -> RunDriver:
        agent, file = self._agent, self._file
        trail = Session(name="replay")
        live = LiveObserver(
            trail,
            now=agent.surroundings.now,
            model=next((t.model for b in file.runs for t in b.run.turns if t.model), "recorded"),
            prompt=file.runs[0].run.input,
        )

        async def start() -> RunResult:
            report = await redrive(
                file,
                observers=[live],
                speed=self._speed,
                cancel=self._cancel,
                surroundings=agent.surroundings,
            )
            if report.session is not None:
                trail.runs.extend(report.session.runs)  # the view reads its rows there
            if not report.results:
                raise AgentError("The replay made no run.")
            self._report = report
            return report.results[-1]

        name = choose(None, setting=agent.settings.show, front=guess(agent.shell))
        sink = make_sink(name, panel=lambda: _panel("replay"))
        sink.on_stop = self._cancel.cancel
        notice = f"replayed from {file.path.name}: recorded replies, no model was asked"
        # The engine tells the observer itself; the view's own hub stays empty.
        view = AttachedView(live, sink, hub=ObserverHub(), shown=agent.shown, notices=(notice,))
        return RunDriver(
            start, engine=agent.engine, cancel=self._cancel, view=view, road=agent.road
        )


def _panel(session: str) -> Any:
    from notebook_agent.notebook.panel import get_panel  # noqa: PLC0415  # F4: no anywidget before it is wanted

    return get_panel(session)
