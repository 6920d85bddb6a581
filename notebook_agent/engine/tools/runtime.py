"""ToolRuntime: a turn's calls, checked, grouped, run, and answered in the model's order.

Source: Turn FSM, "ExecutingTools" (B48-B55, B75, D20); LLM turn (L91, L114, L118, L122-L124).
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from notebook_agent.core import agent_events as events
from notebook_agent.core.messages import ToolCallPart, ToolResultPart
from notebook_agent.core.policy import RuntimePolicy
from notebook_agent.engine.cancel import CancelSignal
from notebook_agent.engine.clock import SYSTEM, Surroundings
from notebook_agent.engine.observers import LoopSeen, ObserverHub, ToolCallReceived
from notebook_agent.engine.store.base import RunStore, ToolExecution
from notebook_agent.engine.tools.calls import (
    INTERRUPTED,
    Approve,
    Batch,
    CallRunner,
    Finished,
    RunOnMain,
)
from notebook_agent.engine.tools.loops import DoomLoopDetector, LoopDetector, LoopPolicy, Repeat
from notebook_agent.engine.tools.registry import ToolRegistry
from notebook_agent.engine.tools.tool import Tool
from notebook_agent.errors import LoopDetected, ToolFailed

__all__ = ["INTERRUPTED", "ToolRuntime"]

# Statuses of an execution whose end is not known: its tool may have run (B75).
_UNKNOWN_END: Final = frozenset({"started", "cancelled", "interrupted"})
# Statuses that are failures of a tool for ``continue_on_tool_failure`` (B52). A call the user
# denied is none: the answer was given.
_FAILURES: Final = frozenset({"error", "timeout", "invalid", "not_found"})
_NONE_DONE: Final[Mapping[str, ToolExecution]] = {}


class ToolRuntime:
    """Runs the calls of a turn (B48).

    Args:
        registry: The tools.
        policy: Time-out, concurrency, what a failure does.
        hub: Observers; ``on_tool_call_received`` once per call, ``on_tool_pre`` and
            ``on_tool_post`` for each one that is dispatched.
        emit: Gets the AgentEvents.
        cancel: The run's signal.
        store: Gets a row before each dispatch and one after; None keeps none.
        surroundings: Clock and ids.
        run_on_main: ``await run_on_main(fn)`` calls ``fn`` in the notebook's thread, between
            ticks, awaits what it returns when that is awaitable, and gives the result back;
            None = a script.
        approve: ``await approve(call)`` -> True, False, or None for no answer; None denies
            every call of a ``confirm`` tool.
        loops: When repeated calls are noticed.
    """

    def __init__(
        self,
        registry: ToolRegistry,
        *,
        policy: RuntimePolicy | None = None,
        hub: ObserverHub | None = None,
        emit: Callable[[events.AgentEvent], None] | None = None,
        cancel: CancelSignal | None = None,
        store: RunStore | None = None,
        surroundings: Surroundings = SYSTEM,
        run_on_main: RunOnMain | None = None,
        approve: Approve | None = None,
        loops: LoopPolicy | None = None,
    ) -> None:
        self.registry = registry
        self.policy = policy or RuntimePolicy()
        self.loops = loops or LoopPolicy()
        self._runner = CallRunner(
            hub=hub or ObserverHub(),
            emit=emit or (lambda _event: None),
            cancel=cancel or CancelSignal(),
            store=store,
            surroundings=surroundings,
            run_on_main=run_on_main,
            approve=approve,
        )
        self._run_id: str | None = None
        self._detector = LoopDetector(self.loops)
        self._doom = DoomLoopDetector(self.loops)
        self._asking = asyncio.Lock()

    async def execute(
        self,
        calls: Sequence[ToolCallPart],
        *,
        turn: int,
        run_id: str,
        session_id: str,
        done: Mapping[str, ToolExecution] = _NONE_DONE,
        policy: RuntimePolicy | None = None,
    ) -> tuple[ToolResultPart, ...]:
        """Answer every call.

        The concurrent group runs first, together; then the others one at a time, in order
        (B49). Tool failures are soft: an error result (L123).

        Args:
            calls: The turn's calls, in the model's order.
            done: Executions of this turn that an earlier life of the run left, by call id
                (B75): one with a result is reused, one whose end is unknown is not run again
                unless its tool is idempotent.
            policy: This run's, instead of the one given at the start.

        Returns:
            One result per call, in the calls' order.

        Raises:
            Cancelled: The run's signal fired.
            ToolFailed: A tool failed and ``continue_on_tool_failure`` is False.
            LoopDetected: The detector says stop.
            StoreError: A row could not be written.
        """
        policy = policy or self.policy
        self._begin(run_id)
        self._runner.cancel.raise_if_cancelled()
        batch = Batch(
            run_id=run_id, session_id=session_id, turn=turn, timeout_s=policy.tool_timeout_s
        )
        for call in calls:
            self._runner.hub.fire(
                "on_tool_call_received",
                ToolCallReceived(turn, call.name, call.id, copy.deepcopy(call.input)),
            )
        earlier = {key: one for key, one in done.items() if one.turn == turn}
        if self.loops.strict:
            self._check_doom([call for call in calls if call.id not in earlier], batch)
        work = _Work(self, batch, policy, calls, earlier)
        return await work.run()

    def _begin(self, run_id: str) -> None:
        """Loop history is per run; it is not restored by a resume (B77)."""
        if run_id != self._run_id:
            self._run_id = run_id
            self._detector = LoopDetector(self.loops)
            self._doom = DoomLoopDetector(self.loops)
        self._asking = asyncio.Lock()  # a lock belongs to one loop; runs may use several

    def _check_doom(self, calls: Sequence[ToolCallPart], batch: Batch) -> None:
        for call in calls:
            seen = self._doom.check(call.name, call.input)
            if seen is not None:
                self._stop(seen, batch)

    def _stop(self, seen: Repeat, batch: Batch) -> None:
        self._runner.hub.fire("on_loop_detected", LoopSeen(seen.pattern, seen.repetitions))
        self._runner.emit(
            events.DoomLoopDetected(
                run_id=batch.run_id,
                timestamp=self._runner.surroundings.wall(),
                description=f"{seen.pattern} ({seen.repetitions} times)",
            )
        )
        raise LoopDetected(seen.pattern, seen.repetitions, seen.words)

    def _look(
        self, tool: Tool | None, call: ToolCallPart, mark: str, batch: Batch
    ) -> Repeat | None:
        """Tell the loop detector of a finished call; observers hear a warning."""
        primary = None if tool is None else tool.primary
        given = call.raw if call.input is None else call.input
        seen = self._detector.observe(call.name, given, mark, primary=primary)
        if seen is not None and not seen.stop:
            self._runner.hub.fire("on_loop_detected", LoopSeen(seen.pattern, seen.repetitions))
            self._runner.emit(
                events.LoopWarning(
                    run_id=batch.run_id,
                    timestamp=self._runner.surroundings.wall(),
                    pattern=seen.pattern,
                    repetitions=seen.repetitions,
                )
            )
        return seen


class _Work:
    """One batch of calls on its way."""

    def __init__(
        self,
        owner: ToolRuntime,
        batch: Batch,
        policy: RuntimePolicy,
        calls: Sequence[ToolCallPart],
        earlier: Mapping[str, ToolExecution],
    ) -> None:
        self._owner = owner
        self._runner = owner._runner
        self._batch = batch
        self._policy = policy
        self._calls = calls
        self._earlier = earlier
        self._results: dict[int, ToolResultPart] = {}

    async def run(self) -> tuple[ToolResultPart, ...]:
        registry = self._owner.registry
        together: list[int] = []
        alone: list[int] = []
        for at, call in enumerate(self._calls):
            tool = registry.get(call.name)
            (together if tool is not None and tool.concurrent else alone).append(at)
        await self._group(together)
        for at in alone:
            self._runner.cancel.raise_if_cancelled()
            await self._one(at)
        return tuple(self._results[at] for at in range(len(self._calls)))

    async def _group(self, places: Sequence[int]) -> None:
        """All at once, at most ``max_tool_concurrency``; one hard error cancels the rest."""
        if not places:
            return
        free = asyncio.Semaphore(self._policy.max_tool_concurrency)

        async def held(at: int) -> None:
            async with free:
                await self._one(at)

        tasks = [asyncio.ensure_future(held(at)) for at in places]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            if not self._runner.cancel.is_cancelled():  # else each of them ends by itself
                for task in tasks:
                    task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        # the first hard error in the model's order; a cancelled sibling is none
        for end in ended:
            if isinstance(end, BaseException) and not isinstance(end, asyncio.CancelledError):
                raise end

    async def _one(self, at: int) -> None:
        call = self._calls[at]
        tool = self._owner.registry.get(call.name)
        end = await self._reused(call, tool) or await self._fresh(call, tool)
        self._results[at] = end.result
        if end.status in _FAILURES and not self._policy.continue_on_tool_failure:
            raise ToolFailed(call.name, end.result.output)

    async def _reused(self, call: ToolCallPart, tool: Tool | None) -> Finished | None:
        """The answer that an earlier life of the run left, None to run the call (B75)."""
        old = self._earlier.get(call.id)
        if old is None:
            return None
        if old.status not in _UNKNOWN_END:
            part = ToolResultPart(call.id, call.name, old.result, old.is_error, old.images)
            return Finished(part, old.status, "")
        end = await self._runner.interrupted(old)
        return None if tool is not None and tool.idempotent else end

    async def _fresh(self, call: ToolCallPart, tool: Tool | None) -> Finished:
        runner = self._runner
        if tool is None:
            names = ", ".join(self._owner.registry.names()) or "none"
            text = f"Tool {call.name!r} is not available. Available tools: {names}."
            return await self._refused(tool, call, "not_found", text)
        if not isinstance(call.input, dict):
            text = f"Invalid arguments for {call.name!r}: {_not_object(call)}"
            return await self._refused(tool, call, "invalid", text)
        args, kwargs, faults = tool.prepare(copy.deepcopy(call.input))
        if faults:
            text = f"Invalid arguments for {call.name!r}: {'; '.join(faults)}"
            return await self._refused(tool, call, "invalid", text)
        if tool.confirm:
            async with self._owner._asking:  # one question at a time
                refusal = await runner.allowed(call)
            if refusal is not None:
                text = f"Tool {call.name!r} was not run: {refusal}."
                return await self._refused(tool, call, "denied", text)
        return await self._dispatched(tool, call, args, kwargs)

    async def _refused(
        self, tool: Tool | None, call: ToolCallPart, status: str, text: str
    ) -> Finished:
        """A call that is answered without being run. The same one again and again is a loop like
        any other: to the model its answer is a result (L124)."""
        end = await self._runner.answer(call, self._batch, status, text)
        seen = self._owner._look(tool, call, end.result_hash, self._batch)
        if seen is not None and seen.stop:
            self._owner._stop(seen, self._batch)
        return end

    async def _dispatched(
        self, tool: Tool, call: ToolCallPart, args: list[Any], kwargs: dict[str, Any]
    ) -> Finished:
        seen: list[Repeat] = []

        def hint(mark: str) -> str:
            found = self._owner._look(tool, call, mark, self._batch)
            if found is None:
                return ""
            seen.append(found)
            return f"{found.pattern}: the same result {found.repetitions} times"

        end = await self._runner.run(tool, call, self._batch, args, kwargs, hint)
        if seen and seen[0].stop:
            self._owner._stop(seen[0], self._batch)
        return end


def _not_object(call: ToolCallPart) -> str:
    if call.input is None:
        return "they are no valid JSON."
    return f"they must be a JSON object, not {type(call.input).__name__}."
