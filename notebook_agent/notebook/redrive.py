"""``replay FILE --speed X``: the real engine driven again by what a run file holds.

The recorded replies are played by a scripted model, faults of attempts included, and the
recorded tool results by stand-ins: no provider is asked and no tool of the notebook runs.

Source: notebook side, commands (``replay``); Turn FSM, "Determinism" (B59).
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from notebook_agent.core import agent_events as ev
from notebook_agent.core import outcomes as o
from notebook_agent.core.policy import RuntimePolicy
from notebook_agent.core.response import Ending
from notebook_agent.core.result import RunResult
from notebook_agent.core.session import Session, Turn
from notebook_agent.engine.runtime import AgentRuntime
from notebook_agent.engine.store.run_file import RunBundle, RunFile, read_run_file
from notebook_agent.engine.tools import Tool
from notebook_agent.errors import AgentError, Cancelled, StoreError
from notebook_agent.notebook.arguments import CellOptions
from notebook_agent.notebook.prepare import Plan
from notebook_agent.providers.scripted import Reply, ScriptedModel

if TYPE_CHECKING:
    from notebook_agent.notebook.runs import Prepared, RunVerbs

__all__ = ["Redrive"]

SESSION: Final = "replay"
_STATUS: Final = re.compile(r"\b([45]\d\d)\b")
_WORDS: Final = re.compile(r"\S+\s*|\s+")


@dataclass(slots=True)
class Script:
    """What the model does: replies, and one fault word per request."""

    replies: list[Reply] = field(default_factory=list)
    words: list[str] = field(default_factory=list)


class Redrive:
    """The runs of a file, driven one after the other; each is shown as any run is.

    Args:
        agent: Whose engine and views are used.
        path: The run file.
        speed: 2 plays twice as fast as it was.

    Raises:
        StoreError: It is no run file, or its words were taken out.
    """

    def __init__(self, agent: RunVerbs, path: str, speed: float) -> None:
        self._file = read_run_file(path)
        if self._file.redacted:
            raise StoreError(
                f"{path} is redacted: there are no replies to play.\n"
                f"Type:  %agent replay {path} --check"
            )
        self._agent = agent
        self._speed = speed
        self._runtime = _runtime(agent, self._file, speed)

    async def awaited(self) -> RunResult | None:
        """From an awaited cell."""
        last: RunResult | None = None
        for bundle in self._file.runs:
            try:
                last = await self._run(bundle).awaited()
            except AgentError as error:
                last = _shown(error)
        return last

    def blocking(self) -> RunResult | None:
        """From synchronous code."""
        last: RunResult | None = None
        for bundle in self._file.runs:
            try:
                last = self._run(bundle).blocking()
            except AgentError as error:
                last = _shown(error)
        return last

    def _run(self, bundle: RunBundle) -> Prepared:
        run, runtime = bundle.run, self._runtime
        notice = f"replayed from {self._file.path.name}; it ended as {run.status.value} then"
        plan = Plan(
            text=run.input,
            prompt=run.input,
            options=CellOptions(),
            session=SESSION,
            notices=(notice,),
        )

        async def start() -> RunResult:
            policy = run.config.get("policy")
            result: RunResult = await runtime.arun(
                run.input,
                policy=None if policy is None else RuntimePolicy(**policy),
                system=run.config.get("system") or "",
            )
            return result

        return self._agent.driven(start, runtime, plan)


def _shown(error: AgentError) -> RunResult | None:
    """A run that failed then fails now; the user's own stop ends the replay."""
    if isinstance(error, Cancelled):
        raise error
    result = getattr(error, "result", None)
    return result if isinstance(result, RunResult) else None


def _runtime(agent: RunVerbs, file: RunFile, speed: float) -> AgentRuntime:
    script = Script()
    for bundle in file.runs:
        _add(script, bundle, speed)
    name = next((t.model for b in file.runs for t in b.run.turns if t.model), "recorded")
    client = ScriptedModel(
        script.replies or [Reply("")],
        script=",".join(script.words) or "ok",
        name=name.partition(":")[2] or name,
        sleep=agent.surroundings.sleep,
    )
    runtime = AgentRuntime(
        client,
        tools=_stand_ins(file.runs),
        session=Session(
            id=agent.surroundings.new_id("session"), name=SESSION, history=list(file.history)
        ),
        surroundings=agent.surroundings,
        counter=agent.counter,
    )
    agent.adopt(SESSION, runtime)
    return runtime


def _add(script: Script, bundle: RunBundle, speed: float) -> None:
    """The requests of one run in order: failed attempts, then the reply that served."""
    failed = deque(e for e in bundle.events if isinstance(e, ev.AttemptFailed))
    turns = {turn.turn: turn for turn in bundle.run.turns}
    for record in bundle.records:
        served = isinstance(record.outcome, o.ModelResponse)
        if not served and not isinstance(record.outcome, o.ProviderError):
            continue
        while failed and failed[0].turn <= record.turn:
            script.words.append(_fault(failed.popleft()))
        if isinstance(record.outcome, o.ModelResponse):
            script.words.append("ok")
            script.replies.append(_reply(record.outcome, turns.get(record.turn), speed))


def _fault(event: ev.AttemptFailed) -> str:
    """The fault word of a failed attempt: its status, or a connection lost where it was."""
    status = _STATUS.search(event.cause)
    if status is not None and not event.partial_text:
        return status[1]
    return f"drop@{len(_WORDS.findall(event.partial_text))}" if event.partial_text else "drop"


def _reply(outcome: o.ModelResponse, turn: Turn | None, speed: float) -> Reply:
    """A recorded reply; its words stand in the trail, the record names them by id (B58)."""
    response = outcome.response
    text = "" if turn is None else turn.output
    seconds = 0.0 if turn is None else (turn.duration_s or 0.0)
    return Reply(
        text,
        tool_calls=() if turn is None else turn.tool_calls,
        usage=response.usage,
        stop_reason=response.stop_reason,
        refusal=response.ending is Ending.REFUSAL,
        delay_s=seconds / speed / max(len(_WORDS.findall(text)), 1),
    )


def _stand_ins(bundles: Sequence[RunBundle]) -> list[Tool]:
    """A tool for each name that was run; it gives the recorded results in order."""
    results: dict[str, deque[tuple[str, bool]]] = defaultdict(deque)
    for bundle in bundles:
        for one in bundle.executions:
            results[one.tool_name].append((one.result, one.is_error))
    return [
        Tool(name, _stand_in(given), description="plays recorded results")
        for name, given in results.items()
    ]


def _stand_in(given: deque[tuple[str, bool]]) -> Callable[..., Any]:
    def play(**_arguments: Any) -> str:
        if not given:
            raise RuntimeError("the run file holds no further result of this tool")
        text, bad = given.popleft()
        if bad:
            raise RuntimeError(text)
        return text

    return play
