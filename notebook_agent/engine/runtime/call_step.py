"""CALLING_MODEL: the LLM turn, its row, its tokens, and what "too long" leads to.

Source: Turn FSM, "CallingModel" (B36, M1); LLM turn, "Recording the outcome" (L22, L80, L93,
L94, L120, B18, A03).
"""

from __future__ import annotations

from dataclasses import replace

from notebook_agent.core import agent_events as ev
from notebook_agent.core import outcomes as o
from notebook_agent.core.context import sum_tokens
from notebook_agent.core.response import Usage
from notebook_agent.core.sendable import cleaned, with_call_ids
from notebook_agent.core.verdict import judge_reply
from notebook_agent.engine.calibrating import setup_of
from notebook_agent.engine.context_pipeline import Built
from notebook_agent.engine.runtime.rows import added, served_row
from notebook_agent.engine.runtime.run_context import RunContext
from notebook_agent.engine.runtime.schema_step import options_of_turn
from notebook_agent.engine.turn_values import ServedTurn, TurnContext
from notebook_agent.errors import AgentError, Cancelled, ProviderError

__all__ = ["calling_model"]


async def calling_model(run: RunContext) -> o.TurnOutcome:
    """One LLM turn; any error but a cancel is a ProviderError outcome (M1)."""
    built = run.built
    if built is None:  # a resumed run: the context is built again, the line was judged before
        built = await rebuilt(run)
    if built.route.exhausted is not None:
        # Ruling: L80, no request and no on_turn_start
        return o.ProviderError(built.route.exhausted)
    before = run.llm.last_attempts
    try:
        served = await run.router.route_chat(run.turn, built.transients, _context(run, built))
    except Cancelled as error:
        return o.Cancelled(error)
    except AgentError as error:
        return _failed(run, error, built)
    finally:
        # a request that was refused before it was sent leaves no facts of its own
        run.call = None if run.llm.last_attempts is before else run.llm.last_attempts
    return _served(run, served, built)


async def rebuilt(run: RunContext) -> Built:
    """The context again, with the trigger off."""
    facts = run.frame.facts
    keep, facts.send_anyway = facts.send_anyway, True
    passes, facts.passes = facts.passes, 0
    try:
        built = await run.pipeline.build(run.wanted())
    finally:
        facts.send_anyway, facts.passes = keep, passes
    run.built, run.route = built, built.route
    facts.estimate = built.estimate.total
    return built


def _context(run: RunContext, built: Built) -> TurnContext:
    return TurnContext(
        conversation=built.conversation,
        system=run.system,
        tools=run.tools,
        options=options_of_turn(run, built.route),
        route=built.route,
        query=run.frame.facts.input,
        estimate=built.estimate.total,
        iteration=run.frame.iteration,
        again=run.frame.facts.opened,
    )


def _served(run: RunContext, served: ServedTurn, built: Built) -> o.TurnOutcome:
    frame = run.frame
    response = judge_reply(served.response)
    message = with_call_ids(response.message).with_id(run.surroundings.new_id("message"))
    model = response.model or served.model
    state = message.provider_state
    if state is not None and "model" not in state:
        message = replace(message, provider_state={**state, "model": model})
    response = replace(response, message=cleaned(message), model=model)
    served = replace(served, response=response)
    output = sum_tokens(run.counter, (response.message,))
    run.spend_usage(response.usage, stand_in=lambda: built.estimate.total + output)
    _tell_usage(run, response.usage, built.estimate.total, output)
    _calibrate(run, response.usage, served.model or built.route.model, built)
    if response.tools_not_run:
        run.notice(f"Not run, the reply was cut or stopped: {', '.join(response.tools_not_run)}")
    row = served_row(run, served)
    frame.model_response(response)
    frame.facts.served = True
    run.staged.turn = row
    run.run.turns.append(row)
    return o.ModelResponse(response)


def _failed(run: RunContext, error: AgentError, built: Built) -> o.TurnOutcome:
    """ContextOverBudget once a turn when the provider says too long, else ProviderError (M1)."""
    facts = run.frame.facts
    call = run.llm.last_attempts
    # Ruling: M1, once a turn; a second overflow is an error like any other
    if isinstance(error, ProviderError) and error.overflow and facts.overflows == 0:
        facts.overflows += 1
        facts.failed_attempts += call.attempts
        facts.failed_usage = added(facts.failed_usage, call.failed_usage)
        facts.reserved = built.estimate.reserved
        return o.ContextOverBudget(built.estimate.total, built.window, "provider")
    return o.ProviderError(error)


def _calibrate(run: RunContext, usage: Usage | None, model: str, built: Built) -> None:
    """The provider's count of this request for the next estimate."""
    if usage is None or built.trimmed:
        return  # what was left out is not in the count
    if run.forces_format() or run.options.response_format is not None:
        return  # the tools are counted but were not sent (L18): the next request has them again
    wanted = run.wanted()
    run.pipeline.calibration.note(
        usage.context_tokens,
        built.estimate,
        built.conversation,
        model=model,
        setup=setup_of(run.counter, wanted.system, wanted.tools),
        base=run.base,
        window=run.llm.window_of(model),
    )


def _tell_usage(run: RunContext, usage: Usage | None, estimate: int, output: int) -> None:
    """The turn's tokens for the log, an estimate where none were reported (B18, B65)."""
    told = usage or Usage(input_tokens=estimate, output_tokens=output)
    run.emit(ev.UsageRecorded(usage=told.to_json(), purpose="turn", estimated=usage is None))
