"""The pass that a crossed line asks for, in BUILDING_CONTEXT after CompactAndRetry.

Source: Turn FSM, "BuildingContext" (B8a, B21, B22, B28, B32); LLM turn (L97-L102, L106, L108).
"""

from __future__ import annotations

from functools import partial

from notebook_agent.core import agent_events as ev
from notebook_agent.core import outcomes as o
from notebook_agent.core.compaction import emergency_line, trigger
from notebook_agent.core.route import Route
from notebook_agent.core.sendable import sendable
from notebook_agent.engine.compactor import CompactionResult
from notebook_agent.engine.context_pipeline import exhausted
from notebook_agent.engine.observers import Compaction
from notebook_agent.engine.runtime.run_context import RunContext

__all__ = ["compacting"]


async def compacting(run: RunContext) -> o.TurnOutcome:
    """One pass (L98). Applied: the compacted list is the history and pending is empty (L101).

    Returns:
        CompactionTriggered; PolicyExhausted when the pass changed nothing and the context is
        at or over the emergency line (Ruling: L102).
    """
    facts = run.frame.facts
    over = facts.over
    assert over is not None
    run.emit(ev.CompactionTriggered(reason=over.reason, used=over.used, limit=over.limit))
    wanted = run.wanted()  # with a run's schema, which the trigger counts too (L18, P07)
    overhead = sum(run.pipeline.overhead.parts(run.counter, wanted.system, wanted.tools))
    result = await run.compactor.compact(
        run.base.messages,
        [m for m in map(sendable, run.pending()) if m is not None],
        reason=over.reason,
        window=over.limit,
        reserved=overhead + facts.reserved,
        session_state=run.session_facts,
        passes=facts.passes,
        model="" if run.route is None else run.route.model,
        run_id=run.frame.run_id,
    )
    if result.applied:
        _stage(run, result)
    run.emit(
        ev.CompactionCompleted(
            applied=result.applied,
            tokens_before=result.tokens_before,
            tokens_after=result.tokens_after,
            strategy=result.strategy,
            detail=result.detail,
        )
    )
    if result.circuit_opened is not None:
        run.emit(ev.CompactionCircuitOpened(consecutive_failures=result.circuit_opened))
        run.notice(
            f"Automatic compaction pauses after {result.circuit_opened} failures in a row; "
            "try again with:  %agent compact now"
        )
    facts.reserved = 0  # once (L108)
    run.frame.compaction_result(applied=result.applied)
    if not result.applied:
        run.notice(_words(run, result, over))
        if trigger(run.compaction, over.used, over.limit) == "emergency":
            route = run.route or Route("")
            return o.PolicyExhausted(exhausted(facts.passes, over.used, over.limit, route))
    return o.CompactionTriggered(result.to_json())


def _stage(run: RunContext, result: CompactionResult) -> None:
    """The swap happens when the markers are written, in one step (P06)."""
    messages = list(result.messages)
    if run.frame.fresh:
        # The session's own history is not this run's to rewrite: only its view changes.
        run.base.replace(messages)
        run.skip = len(run.frame.pending)
    else:
        run.rewrote = True
        staged = run.staged
        staged.messages += [
            run.session.entry("message", message, run_id=run.frame.run_id)
            for message in run.frame.unlogged()
        ]
        staged.messages += run.session.marker_entries(result, run_id=run.frame.run_id)
        staged.then.append(partial(run.session.conversation.replace, messages))
    run.staged.then.append(partial(run.compactor.after_rewrite, result))
    saved = result.tokens_before - result.tokens_after
    run.staged.then.append(
        partial(
            run.hub.fire,
            "on_compaction",
            Compaction(result.tokens_before, result.tokens_after, saved, result.strategy),
        )
    )


def _words(run: RunContext, result: CompactionResult, over: o.ContextOverBudget) -> str:
    """P02's three numbers in one line."""
    why = result.detail or "nothing could be dropped"
    return (
        f"Compaction changed nothing ({why}): about {over.used:,} tokens, "
        f"window {over.limit:,}, emergency line {emergency_line(run.compaction, over.limit):,}."
    )
