"""fix, explain, demo: runs that are made for a purpose.

Source: notebook side, commands (``fix``, ``explain``, ``demo``); LLM turn (L76-L80).
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from dataclasses import dataclass
from typing import Any, Final

from notebook_agent.core.result import RunResult
from notebook_agent.errors import AgentError, Cancelled
from notebook_agent.notebook.arguments import CellOptions, UsageError
from notebook_agent.notebook.prepare import Plan
from notebook_agent.notebook.report import Report
from notebook_agent.notebook.runs import Prepared, RunVerbs

__all__ = ["DEMOS", "TeachVerbs"]

TRACE_LINES: Final = 40
QUESTION: Final = "Why is the sky blue?"


@dataclass(frozen=True, slots=True)
class Demo:
    """One demonstration on scripted models.

    Attributes:
        says: What to look at.
        script: Faults of the primary, one word per request.
        runs: How many runs.
        chain: Whether a backup stands behind it.
        pause: (run, seconds) before a run: a cooldown passes.
        stop_after_s: Fires the stop of the first run.
    """

    says: str
    script: str
    runs: int = 1
    chain: bool = False
    pause: tuple[int, float] = (-1, 0.0)
    stop_after_s: float | None = None


DEMOS: Final = {
    "retry": Demo(
        "two attempts fail, the third is served: the text starts over, nothing is mixed",
        "503,drop@12,ok",
    ),
    "fallback": Demo(
        "three failed turns trip the breaker; the backup serves from the fourth on",
        "400*3,ok", runs=4, chain=True,
    ),
    "recover": Demo(
        "the breaker has tripped; after the cooldown two probes of the primary bring it back",
        "400*3,ok", runs=6, chain=True, pause=(4, 1.1),
    ),
    "cancel": Demo(
        "a slow reply is stopped: the partial text stays, and the next run works",
        "ok", runs=2, stop_after_s=0.25,
    ),
}  # fmt: skip


class Demonstration:
    """The runs of a demonstration, one after the other; each is shown as any run is."""

    def __init__(self, agent: TeachVerbs, demo: Demo) -> None:
        self._agent = agent
        self._demo = demo
        self._runtime = agent.demo_runtime(demo)

    async def awaited(self) -> RunResult | None:
        """From an awaited cell."""
        last: RunResult | None = None
        for number in range(self._demo.runs):
            try:
                last = await self._run(number).awaited()
            except AgentError as error:
                last = self._shown(error)
        return last

    def blocking(self) -> RunResult | None:
        """From synchronous code."""
        last: RunResult | None = None
        for number in range(self._demo.runs):
            try:
                last = self._run(number).blocking()
            except AgentError as error:
                last = self._shown(error)
        return last

    def _run(self, number: int) -> Prepared:
        demo, runtime = self._demo, self._runtime
        notices = (demo.says,) if number == demo.runs - 1 else ()
        plan = Plan(
            text=QUESTION, prompt=QUESTION, options=CellOptions(), session="demo", notices=notices
        )

        async def start() -> RunResult:
            at, seconds = demo.pause
            if number == at:
                await runtime.surroundings.sleep(seconds)
            stopper = None
            if number == 0 and demo.stop_after_s is not None:
                stopper = asyncio.ensure_future(_stop_later(runtime, demo.stop_after_s))
            try:
                result: RunResult = await runtime.arun(QUESTION)
                return result
            finally:
                if stopper is not None:
                    stopper.cancel()

        return self._agent.driven(start, runtime, plan)

    def _shown(self, error: AgentError) -> RunResult | None:
        """A failed run is part of the show; the user's own stop ends it."""
        if isinstance(error, Cancelled):
            raise error
        result = getattr(error, "result", None)
        return result if isinstance(result, RunResult) else None


async def _stop_later(runtime: Any, seconds: float) -> None:
    await runtime.surroundings.sleep(seconds)
    runtime.cancel_signal.cancel()


class TeachVerbs(RunVerbs):
    """Verbs that send a prompt of their own."""

    # ---- the last exception --------------------------------------------------------------------

    def prepare_fix(self) -> Prepared:
        """The last exception and its cell; the reply's code is put into the next cell."""
        ask = "Give the whole corrected cell as one Python code block, and one sentence on what was wrong."
        return self.prepare(
            f"{self._last_exception()}\n\n{ask}", CellOptions(raw=True, format="code")
        )

    def prepare_explain(self) -> Prepared:
        """The last exception and its cell; the reply is words."""
        ask = "Explain in a few sentences what went wrong and why."
        return self.prepare(f"{self._last_exception()}\n\n{ask}", CellOptions(raw=True))

    def fix(self) -> RunResult:
        """As ``%agent fix``, waiting for it."""
        return self.prepare_fix().blocking()

    def explain(self) -> RunResult:
        """As ``%agent explain``, waiting for it."""
        return self.prepare_explain().blocking()

    def _last_exception(self) -> str:
        """The exception, where it happened, and the source of the cell; no local values (X05)."""
        error = getattr(sys, "last_value", None)
        if error is None:
            raise UsageError("No exception has happened yet.\nType:  %agent ask TEXT")
        trace = traceback.format_exception(type(error), error, getattr(sys, "last_traceback", None))
        lines = "".join(trace).splitlines()[-TRACE_LINES:]
        parts = ["A cell of my notebook failed.", "", "```", *lines, "```"]
        source = self._failed_cell()
        if source:
            parts = [*parts, "", "The cell:", "", "```python", source.rstrip(), "```"]
        return "\n".join(parts)

    def _failed_cell(self) -> str:
        """The cell that raised: the newest one as typed that is no call of ours."""
        for source in reversed(self.cell_sources(20)):
            if not source.lstrip().startswith(("%agent", "%%agent")):
                return source
        return ""

    # ---- demonstrations ------------------------------------------------------------------------

    def prepare_demo(self, name: str | None = None) -> Any:
        """A demonstration, ready to be driven; the list when none is named."""
        if name is None:
            rows = tuple((n, d.says) for n, d in DEMOS.items())
            return Report("", header=("demo", "what to see"), rows=rows)
        return Demonstration(self, DEMOS[name])

    def demo(self, name: str) -> RunResult | None:
        """As ``%agent demo NAME``, waiting for it."""
        result: RunResult | None = self.prepare_demo(name).blocking()
        return result

    def demo_runtime(self, demo: Demo) -> Any:
        """A runtime of its own with a short cooldown; it becomes the session ``demo``."""
        from notebook_agent.core.route import BreakerConfig  # noqa: PLC0415  # the engine loads at the first run
        from notebook_agent.core.session import Session  # noqa: PLC0415  # as above
        from notebook_agent.core.settings import RetryPolicy, StreamTimeouts  # noqa: PLC0415  # as above
        from notebook_agent.engine.runtime import AgentRuntime  # noqa: PLC0415  # as above
        from notebook_agent.providers.scripted import ScriptedModel  # noqa: PLC0415  # as above

        reply = "The sky is blue because air scatters short waves of light more than long ones."
        sleep = self.surroundings.sleep
        primary = ScriptedModel(
            reply, script=demo.script, delay_s=0.03, name="primary", sleep=sleep
        )
        backup = ScriptedModel(
            f"The backup answers: {reply}", delay_s=0.03, name="backup", sleep=sleep
        )
        runtime = AgentRuntime(
            primary,
            fallback=(backup,) if demo.chain else (),
            breaker=BreakerConfig(recovery_timeout=1.0),
            retry=RetryPolicy(base_delay=0.4, max_delay=0.8),
            timeouts=StreamTimeouts(fallback_to_non_streaming=False),
            session=Session(id=self.surroundings.new_id("session"), name="demo"),
            surroundings=self.surroundings,
        )
        self.adopt("demo", runtime)
        return runtime
