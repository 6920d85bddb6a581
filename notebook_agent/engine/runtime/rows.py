"""Rows of the audit trail: a Turn for what was served, an UnservedTurn for what was not.

Source: LLM turn, "The turn's paper trail" (L94, L105, L112, L120, L121, A03).
"""

from __future__ import annotations

from collections.abc import Sequence

from notebook_agent.core import outcomes as o
from notebook_agent.core.messages import Message
from notebook_agent.core.response import Usage
from notebook_agent.core.session import Turn, UnservedTurn
from notebook_agent.engine.runtime.run_context import RunContext
from notebook_agent.engine.turn_values import AttemptFacts, ServedTurn
from notebook_agent.errors import AgentError, Cancelled

__all__ = ["added", "served_row", "turn_input", "unserved_row"]


def turn_input(pending: Sequence[Message]) -> str:
    """What a later turn was asked: the last message's text, or its tool outputs (L112)."""
    if not pending:
        return ""
    last = pending[-1]
    if last.results:
        return "\n".join(result.output for result in last.results)
    return last.text_content()


def served_row(run: RunContext, served: ServedTurn) -> Turn:
    """The row of a served turn. Unknown tokens stay None (Ruling: L120)."""
    facts = run.frame.facts
    response = served.response
    usage = response.usage or Usage()
    failed = added(facts.failed_usage, served.failed_usage)
    said = "".join(p.text for p in response.message.parts if p.type == "text")
    return Turn(
        turn=run.turn,
        input=facts.input,
        output=said,  # with refusals: the trail keeps what was said (L5a)
        tool_calls=response.message.tool_calls,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        model=response.model or served.model,
        stop_reason=response.stop_reason,
        ending=response.ending,
        ending_raw=response.ending_raw,
        attempts=facts.failed_attempts + served.attempts,
        rescued=served.rescued or response.rescued,
        breaker=served.breaker,
        compacted=facts.compacted,
        tools_not_run=response.tools_not_run,
        cached_input_tokens=usage.cached_input_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        input_includes_cached=None if response.usage is None else usage.input_includes_cached,
        failed_input_tokens=None if failed is None else failed.input_tokens,
        failed_output_tokens=None if failed is None else failed.output_tokens,
        budget_tokens=facts.budget,
        budget_estimated=facts.budget_estimated,
        context_estimate=facts.estimate,
        context_ref=_ref(run),
        ttft_s=served.ttft_s,
        duration_s=served.duration_s,
        started_at=served.started_at,
    )


def unserved_row(run: RunContext, error: AgentError, facts: AttemptFacts | None) -> UnservedTurn:
    """The row of a turn that failed or was cancelled before it was served.

    Args:
        facts: What the LLM turn knows of its call, None when there was none.
    """
    frame = run.frame
    turn = frame.facts
    call = facts or AttemptFacts()
    failed = added(turn.failed_usage, call.failed_usage)
    route = run.route.model if run.route is not None else ""
    row = Turn(
        turn=frame.turn,
        input=turn.input or frame.input,
        output=call.partial_text or error.partial_text,
        model=call.model or route,
        attempts=turn.failed_attempts + call.attempts,
        rescued=call.rescued,
        breaker=call.breaker,
        compacted=turn.compacted,
        failed_input_tokens=None if failed is None else failed.input_tokens,
        failed_output_tokens=None if failed is None else failed.output_tokens,
        budget_tokens=turn.budget,
        budget_estimated=turn.budget_estimated,
        context_estimate=turn.estimate or None,
        context_ref=_ref(run),
        ttft_s=call.ttft_s,
        duration_s=call.duration_s if facts is not None else None,
        started_at=call.started_at or run.surroundings.wall(),
    )
    word = "cancelled" if isinstance(error, Cancelled) else "failed"
    return UnservedTurn(turn=row, outcome=word, error=error.to_json())


def _ref(run: RunContext) -> o.ContextRef | None:
    built = run.built
    if built is None or not isinstance(built.outcome, o.ContextReady):
        return None
    return built.outcome.ref


def added(a: Usage | None, b: Usage | None) -> Usage | None:
    """Tokens of both, None when neither was reported."""
    if a is None or b is None:
        return a if b is None else b
    return a.plus(b)
