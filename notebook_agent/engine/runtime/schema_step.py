"""A run with a schema: which of its requests force the format, and what follows a wrong reply.

Without tools every request forces it. With tools they are offered until the model answers; an
answer that fits already is taken, else one more request forces the format. A reply that does not
fit is sent back with what is wrong, at most twice; each is a turn like any other, in the trail.

Source: notebook, option ``--schema``; LLM turn (L18, L34); Turn FSM, "ProcessingResponse" (B46).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from notebook_agent.core.messages import Message
from notebook_agent.core.request import RequestOptions
from notebook_agent.core.response import ChatResponse, Ending, StopReason
from notebook_agent.core.result import RunResult
from notebook_agent.core.route import Route
from notebook_agent.core.session import RunStatus
from notebook_agent.engine.routing import capabilities_of
from notebook_agent.engine.runtime.run_context import RunContext
from notebook_agent.engine.structured import MAX_REPAIRS, format_for
from notebook_agent.errors import AgentError, StructuredOutputError

__all__ = ["follow_up", "options_of_turn", "with_parsed"]

# Endings after which asking again would only give the same.
_FINAL: Final = {
    Ending.REFUSAL: "The model refused to answer.",
    Ending.CONTENT_FILTER: "The provider's content filter stopped the reply.",
    Ending.ERROR: "The provider reported an error in the reply.",
}


def options_of_turn(run: RunContext, route: Route) -> RequestOptions:
    """The run's options, with the format that the routed model can be forced to."""
    schema = run.schema
    if schema is None or not run.forces_format():
        return run.options
    names = [route.model]
    if run.policy.router_retries > 0:  # a retry may be routed to any of them
        names += [entry.name for entry in run.llm.breaker.chain]
    found = None
    for name in names:
        client = run.llm.resolve_client(name)
        strategy, wanted, _ = format_for(client, capabilities_of(client), schema)
        if found is None or _rank(strategy) > _rank(found[0]):
            found = (strategy, wanted)
    assert found is not None
    return replace(run.options, response_format=found[1])


def _rank(strategy: str) -> int:
    return ("native", "tool", "json", "words").index(strategy)


def follow_up(run: RunContext, response: ChatResponse) -> Message | None:
    """The message that asks again, None when the reply stands as it is."""
    schema, frame = run.schema, run.frame
    if schema is None or why_final(response) or frame.iteration >= run.policy.max_iterations:
        return None
    try:
        schema.read(response.message.text_content())
    except StructuredOutputError as error:
        if run.tools and not frame.forced:
            frame.forced = True
            return schema.final_request()
        if frame.repairs >= MAX_REPAIRS:
            return None
        frame.repairs += 1
        return schema.repair_request(error)
    return None


def why_final(response: ChatResponse) -> str:
    """Why a reply is not sent back for repair, "" when it may be."""
    if response.ending in _FINAL:
        return _FINAL[response.ending]
    if any(p.type == "text" and p.refusal for p in response.message.parts):
        return _FINAL[Ending.REFUSAL]
    if response.stop_reason is StopReason.MAX_TOKENS:
        return "The reply was cut at its output limit."
    return ""


def with_parsed(run: RunContext, result: RunResult) -> tuple[RunResult, AgentError | None]:
    """The result of a completed run with ``parsed``, or the error that says why there is none."""
    schema, frame = run.schema, run.frame
    if schema is None or result.status is not RunStatus.COMPLETED:
        return result, None
    reason = "" if frame.response is None else why_final(frame.response)
    if not reason and frame.repairs:
        times = "once" if frame.repairs == 1 else f"{frame.repairs} times"
        reason = f"It was sent back {times} for repair."
    if frame.iteration >= run.policy.max_iterations and frame.repairs < MAX_REPAIRS and not reason:
        reason = f"No turn was left for a repair (--max-turns {run.policy.max_iterations})."
    try:
        return replace(result, parsed=schema.read(result.text, reason=reason)), None
    except StructuredOutputError as error:
        return result, error
