"""RunVerbs: everything that asks a model: prepare, drive, bind the result.

Source: notebook side, running a cell and commands (D1-D6, D12, K03).
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from notebook_agent.core.result import RunResult
from notebook_agent.core.session import RunStatus
from notebook_agent.errors import AgentError, SessionBusy
from notebook_agent.notebook.arguments import CellOptions, UsageError
from notebook_agent.notebook.background import BackgroundRun
from notebook_agent.notebook.drive import Outcome, RunDriver, View
from notebook_agent.notebook.formats import code_of, with_format
from notebook_agent.notebook.frontend import choose, guess
from notebook_agent.notebook.naps import NAP_S
from notebook_agent.notebook.prepare import Plan, plan_run
from notebook_agent.notebook.report import Report
from notebook_agent.notebook.request_view import dry_run
from notebook_agent.notebook.session_core import SessionCore
from notebook_agent.notebook.session_map import kept_name

__all__ = ["Prepared", "RunVerbs"]

log = logging.getLogger("notebook_agent.notebook")

Start = Callable[[], Coroutine[Any, Any, RunResult]]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run that is ready: drive it in the way that suits the caller."""

    agent: RunVerbs
    driver: RunDriver
    options: CellOptions
    session: str

    async def awaited(self) -> RunResult:
        """From an awaited cell."""
        try:
            return self.agent.finish(await self.driver.awaited(), self)
        except AgentError as error:
            self.agent.failed(error, self)
            raise

    def blocking(self) -> RunResult:
        """From synchronous code."""
        try:
            return self.agent.finish(self.driver.blocking(), self)
        except AgentError as error:
            self.agent.failed(error, self)
            raise

    def background(self) -> BackgroundRun:
        """Start and go on."""
        handle = self.driver.background()
        alive = {h: name for h, name in self.agent.background.items() if not h.done}
        self.agent.background = {**alive, handle: self.session}
        return handle


def _load_validator() -> None:
    """Load the schema validator beside the first request: it takes seconds in some
    environments, and at the first tool call it would stand in the engine's loop."""
    if "jsonschema" not in sys.modules:
        name = "notebook-agent-import"
        threading.Thread(target=import_module, args=("jsonschema",), name=name, daemon=True).start()


class NullView:
    """Shows nothing: the Python twins."""

    def open(self) -> None: ...
    def tick(self) -> float:
        return NAP_S

    def rung_by(self, ring: Callable[[], None]) -> None: ...
    def placed(self) -> bool:
        return True

    def close(self, outcome: Outcome) -> None: ...


class RunVerbs(SessionCore):
    """ask and what is built on it."""

    # ---- twins -------------------------------------------------------------------------------

    def ask(self, text: str, **options: Any) -> RunResult:
        """Ask and wait. Shows nothing unless ``show`` says so.

        Args:
            text: The prompt; ``{{name}}`` inserts.
            options: Fields of :class:`CellOptions`.

        Raises:
            AgentError: The run failed, was refused, or was stopped.
        """
        return self.prepare(text, CellOptions(**{"show": "null", **options})).blocking()

    async def aask(self, text: str, **options: Any) -> RunResult:
        """Ask and await: the twin for a running loop."""
        return await self.prepare(text, CellOptions(**{"show": "null", **options})).awaited()

    def dry_run(self, text: str, **options: Any) -> Report:
        """The exact request and its tokens; nothing is sent."""
        return self.dry_run_of(text, CellOptions(**options))

    def dry_run_of(self, text: str, options: CellOptions) -> Report:
        """As :meth:`dry_run`, from a cell's options."""
        return dry_run(self, plan_run(self, text, options))

    def stop(self, session: str | None = None) -> Report:
        """Stop what runs: background runs, or a run of another thread.

        Args:
            session: Only what runs in this one; None = all background runs.
        """
        session = session if session is None else kept_name(session)
        runtime = self._runtimes.get(session or self.current)
        running = [h for h, s in self.background.items() if not h.done and session in (None, s)]
        for handle in running:
            handle.cancel()
        if runtime is not None and runtime.active is not None:
            runtime.cancel_signal.cancel()
            return Report("stopping")
        return Report("stopping" if running else "nothing is running")

    # ---- preparing ---------------------------------------------------------------------------

    def prepare(self, body: str, options: CellOptions) -> Prepared:
        """Check everything and make the run's driver; nothing is sent yet.

        Raises:
            AgentError: Refused; two or three lines.
        """
        if options.background and options.format == "code":
            raise UsageError(
                "--background ends its cell at once, so no next cell can be proposed.\n"
                "Type:  %%agent -f code"
            )
        plan = plan_run(self, body, options)
        runtime = self.runtime(plan.session)
        if runtime.active is not None:
            raise SessionBusy(plan.session)  # said before anything is shown

        async def start() -> RunResult:
            if plan.tools or (plan.tools is None and len(runtime.registry)):
                _load_validator()
            result: RunResult = await runtime.arun(plan.text, **plan.arguments())
            return result

        async def alone() -> RunResult:
            """Nobody comes after a background run: what its options ask for is done here."""
            try:
                result = self._formatted(await start(), options)
            except AgentError as error:
                self.note_error(error)
                self._keep_of_failed(getattr(error, "result", None), options, plan.session)
                raise
            self._keep(result, options, plan.session)
            return result

        return self.driven(alone if options.background else start, runtime, plan)

    def driven(self, start: Start, runtime: Any, plan: Plan) -> Prepared:
        """The driver and the view of a run."""
        driver = RunDriver(
            start,
            engine=self.engine,
            cancel=runtime.cancel_signal,
            view=self._view(runtime, plan),
            road=self.road,
        )
        return Prepared(self, driver, plan.options, plan.session)

    def _view(self, runtime: Any, plan: Plan) -> View:
        options = plan.options
        self.views.pop(plan.session, None)
        if options.show == "null":
            return NullView()
        from notebook_agent.notebook.attached import attached_view  # noqa: PLC0415  # rendering loads at the first run

        name = choose(options.show, setting=self.settings.show, front=guess(self.shell))
        if name == "panel" and find_spec("anywidget") is None:
            raise UsageError(
                "The live panel needs the package anywidget, which is not installed here.\n"
                "Type:  %pip install anywidget     or:  %%agent --show footer"
            )
        if options.background and name == "stream":
            name = "null"  # a terminal's prompt belongs to the person; the trail has it all
        view = self.views[plan.session] = attached_view(
            name,
            runtime,
            session=plan.session,
            model=plan.model_name or runtime.primary,
            prompt=plan.prompt,
            background=options.background,
            shown=self.shown,
            notices=plan.notices,
            prices=self.settings.prices,
        )
        return view

    def in_front(self, options: CellOptions) -> CellOptions:
        """``--background`` where nobody is there after the cell: run it in the cell (D6)."""
        if options.background and guess(self.shell).name == "headless":
            print("--background: nobody is watching, so the run stays in its cell")  # noqa: T201  # D6: it says so
            return replace(options, background=False)
        return options

    # ---- afterwards --------------------------------------------------------------------------

    def finish(self, result: RunResult, run: Prepared) -> RunResult:
        """Check the format, bind the names, propose the next cell.

        Raises:
            FormatError: The reply had to be JSON and is none.
        """
        self.last_error = None
        result = self._formatted(result, run.options)
        self.bind(result)
        if run.options.format == "code" and result.status is RunStatus.COMPLETED:
            self.propose(code_of(result.text) or result.text)
        self._keep(result, run.options, run.session)
        return result

    def _formatted(self, result: RunResult, options: CellOptions) -> RunResult:
        # With a schema the engine has judged the reply.
        return with_format(result, options.format) if options.schema is None else result

    def failed(self, error: AgentError, run: Prepared) -> None:
        """Keep the error for ``why`` and bind what there is of a result."""
        self.note_error(error)
        result = getattr(error, "result", None)
        if isinstance(result, RunResult):
            self.bind(result)
            self._keep_of_failed(result, run.options, run.session)

    def _keep_of_failed(self, result: Any, options: CellOptions, session: str) -> None:
        """As :meth:`_keep`; a file that cannot be written hides no error that came before."""
        try:
            self._keep(result, options, session)
        except AgentError as error:
            log.warning("--record: %s", error.message.splitlines()[0])

    def _keep(self, result: Any, options: CellOptions, session: str) -> None:
        """``--into`` and ``--record``, of whatever end."""
        if not isinstance(result, RunResult):
            return
        if options.into:
            self.namespace[options.into] = result
        if options.record:
            self.write_record(result, options.record, session)

    def bind(self, result: RunResult) -> None:
        """``_`` and ``Out[n]``: the same object as of ``--into``, nothing displayed."""
        hook = getattr(self.shell, "displayhook", None)
        if hook is not None and hasattr(hook, "update_user_ns"):
            hook.update_user_ns(result)  # Out[n] too; leaves a `_` of the user's own alone
        # A loop's `for _ in ...` is no reason to lose the result; a function called _ is.
        if self.namespace.get("_") is not result and not callable(self.namespace.get("_")):
            self.namespace["_"] = result

    def propose(self, code: str) -> None:
        """Put code into the next cell; it is never run."""
        if self.shell is not None:
            self.shell.set_next_input(code, replace=False)

    def write_record(self, result: RunResult, path: str, session: str) -> None:
        """Write the run file of ``--record``."""
        from notebook_agent.notebook.verbs.replaying import write_run_file  # noqa: PLC0415  # only when asked

        if result.run.id:  # a refused run has none
            write_run_file(self, result.run.id, path, session)
