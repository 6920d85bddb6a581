"""Working one run from its admission to its result, and going on with one that broke off.

Source: Turn FSM, "Relationship to other components" (B70, B75-B80); LLM turn (L95, L127).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from notebook_agent.core import agent_events as ev
from notebook_agent.core.context import TokenCounter
from notebook_agent.core.messages import Message, Role
from notebook_agent.core.result import RunResult
from notebook_agent.core.run_state import status_of_error
from notebook_agent.core.sendable import cleaned
from notebook_agent.core.session import Run, RunStatus
from notebook_agent.engine.calibrating import setup_of
from notebook_agent.engine.images import as_message
from notebook_agent.engine.observers import RunStart
from notebook_agent.engine.runtime.finalize import LIMITS, finalize
from notebook_agent.engine.runtime.gate import GATE, AdmissionState
from notebook_agent.engine.runtime.loop import breaker_kept, drive, snapshot_of
from notebook_agent.engine.runtime.recorder import broken_store, patiently
from notebook_agent.engine.runtime.resume import Broken, find_broken
from notebook_agent.engine.runtime.run_context import RunContext
from notebook_agent.engine.runtime.run_options import Prompt, RunOptions
from notebook_agent.engine.runtime.schema_step import with_parsed
from notebook_agent.engine.runtime.setup import Setup
from notebook_agent.errors import AgentError, Cancelled, InputRejected

if TYPE_CHECKING:
    from notebook_agent.engine.runtime.agent import AgentRuntime

__all__ = ["resume_run", "work"]

log = logging.getLogger("notebook_agent.runtime")

T = TypeVar("T")


async def work(
    runtime: AgentRuntime, prompt: Prompt, options: RunOptions, *, wait_s: float
) -> RunResult:
    """One prompt, from admission to result. Cancellation from outside becomes the run's own."""
    return await _uncancellable(runtime, _work(runtime, prompt, options, wait_s))


async def resume_run(runtime: AgentRuntime, run_id: str | None, *, force: bool) -> RunResult:
    """Re-execute the saved state of a run that broke off, and go on from there (B75)."""
    return await _uncancellable(runtime, _resume(runtime, run_id, force))


async def _uncancellable(runtime: AgentRuntime, coro: Coroutine[Any, Any, T]) -> T:
    """Await in a task of its own. A cancellation of the caller fires the run's signal, and the
    run ends itself: rows, events and stores in order (Ruling: L127)."""
    task = asyncio.get_running_loop().create_task(coro)
    while True:
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.done():
                raise
            runtime.cancel_signal.cancel()
            caller = asyncio.current_task()
            while caller is not None and caller.cancelling():
                caller.uncancel()


async def _work(
    runtime: AgentRuntime, prompt: Prompt, options: RunOptions, wait_s: float
) -> RunResult:
    message = _entering(prompt)
    try:
        runtime.admission.admit(message, runtime.surroundings.now())
    except InputRejected as refused:
        raise _rejected(runtime, message, refused) from None
    state = runtime.state
    with contextlib.suppress(Exception):  # the run itself says what is wrong with its store
        await patiently(state.settle, runtime.surroundings, runtime.cancel_signal)
    run_id = runtime.surroundings.new_id("run")
    try:
        await _enter(runtime, run_id, wait_s)
    except AgentError:
        runtime.admission.forget(message)  # it never ran, so asking again is no duplicate
        raise
    setup = None
    try:
        runtime.admission.state = AdmissionState.PROCESSING
        setup = Setup(runtime, options)
        run = setup.new_run(run_id, message)
        return await _live(runtime, run, begin=True)
    finally:
        if setup is not None:
            setup.undo()
        runtime.admission.state = AdmissionState.COMPLETED
        GATE.leave(state.key)


async def _resume(runtime: AgentRuntime, run_id: str | None, force: bool) -> RunResult:
    state = runtime.state
    await _enter(runtime, "resume", 0.0)
    setup = None
    try:
        broken: Broken = find_broken(state, run_id, force=force)
        runtime.restore_breaker(broken.breaker)
        options = broken.options(primary=runtime.primary, known_tools=runtime.registry.names())
        setup = Setup(runtime, options)
        run = setup.broken_run(broken)
        return await _live(runtime, run, begin=broken.begin)
    finally:
        if setup is not None:
            setup.undo()
        GATE.leave(state.key)


async def _enter(runtime: AgentRuntime, run_id: str, wait_s: float) -> None:
    """Take the session. A cancel of the wait is used up by it: one cancel, one run (L116)."""
    state = runtime.state
    try:
        await GATE.enter(
            state.key,
            state.session.name,
            run_id,
            wait_s=wait_s,
            surroundings=runtime.surroundings,
            cancel=runtime.cancel_signal,
        )
    except Cancelled:
        if runtime.active is None:
            runtime.cancel_signal.reset()
        raise


def _calibration(run: RunContext) -> dict[str, Any]:
    """What the run's first estimate starts from, where estimates are calibrated."""
    known = run.pipeline.calibration
    if not known.on or run.counter.exact:
        return {}
    wanted = run.wanted()
    setup = setup_of(run.counter, wanted.system, wanted.tools)
    return {"calibration": known.to_json(run.base, setup) or {}}


async def _live(runtime: AgentRuntime, run: RunContext, *, begin: bool) -> RunResult:
    """Start, drive, finalize. Every way out of here has a status and a terminal event (B70)."""
    runtime.active = run
    try:
        await _prepare(run.counter)
        if begin and not run.resumed:  # its name is known once it is prepared
            known = {"counter": run.counter.name, **_calibration(run), **breaker_kept(run)}
            run.run.config = {**run.run.config, **known}
        why = getattr(run.counter, "reason", None)
        if why and not runtime.told_estimate:
            runtime.told_estimate = True  # T03: one short warning per session
            run.notice(why)
        run.started_s = run.turn_started_s = runtime.surroundings.now()
        await _begin(runtime, run, begin)
        await drive(run)
        result, error = await finalize(run)
        if error is None:
            result, error = with_parsed(run, result)
        if error is None and run.compact_after:
            result = await _compacted(runtime, result)
    finally:
        runtime.active = None
    if error is None or result.status in LIMITS:
        return result
    error.result = result
    runtime.last_error = error
    raise error


async def _compacted(runtime: AgentRuntime, result: RunResult) -> RunResult:
    """The pass after a run that repeats itself (L124). The run is complete whatever it does."""
    try:
        await runtime.compact_unheld("convergence")
    except Cancelled:
        runtime.cancel_signal.reset()
    except AgentError as error:
        log.warning("compaction after a repeated answer failed: %s", error)
        notices = (*result.notices, f"Compaction failed, nothing is lost: {error}")
        return replace(result, notices=notices)
    return result


async def _prepare(counter: TokenCounter) -> None:
    """Let a vocabulary load off the event loop; without one the counter estimates (T03)."""
    prepare = getattr(counter, "prepare", None)
    if prepare is None:
        return
    try:
        await prepare()
    except Exception:
        log.exception("the token counter could not prepare; counting goes on without")


async def _begin(runtime: AgentRuntime, run: RunContext, begin: bool) -> None:
    """The run's row and first snapshot; then it exists, whatever happens (B72)."""
    state, hub = run.session, run.hub
    if not runtime.greeted:
        runtime.greeted = True
        hub.fire("reset", None)
    hub.fire(
        "on_run_start",
        RunStart(state.session.id, run.frame.run_id, runtime.llm.breaker.original_model),
    )
    if not run.resumed:
        state.session.runs.append(run.run)
    if not begin:
        return
    provider, _, model = runtime.llm.breaker.original_model.partition(":")
    run.emit(ev.RunStarted(session_id=state.session.id, provider=provider, model=model))

    def write() -> None:
        state.ensure_stored()
        state.catch_up()
        if state.store.get_run(run.run.id) is None:
            state.store.create_run(state.session.id, run.run)
        state.store.save_snapshot(snapshot_of(run))

    try:
        await patiently(write, runtime.surroundings, run.cancel)
    except Cancelled:
        return  # the loop sees the signal first of all
    except Exception as bug:  # noqa: BLE001  # whatever a store raises ends the run in order
        error = bug if isinstance(bug, AgentError) else broken_store(bug)
        run.error = error
        run.frame.ended = {"error": error.to_json()}


def _entering(prompt: Prompt) -> Message:
    """The prompt as a user message without lone surrogates and NUL (D9)."""
    return cleaned(Message(Role.USER, as_message(prompt).parts))


def _rejected(runtime: AgentRuntime, message: Message, refused: InputRejected) -> InputRejected:
    """A refused input takes no run resource; the observers hear of it once (B65, B79)."""
    now = runtime.surroundings.wall()
    run = Run(
        id="",
        input=message.text_content(),
        start=now,
        end=now,
        status=status_of_error(type(refused).__name__),
        error=refused.to_json(),
    )
    assert run.status is RunStatus.REJECTED
    runtime.hub.fire("on_event", ev.InputRejected(timestamp=now, reason=refused.message))
    error: AgentError = refused
    error.result = RunResult(text="", run=run)
    runtime.last_error = refused
    return refused
