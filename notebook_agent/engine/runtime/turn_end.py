"""``on_turn_end``: once per started turn, however it ends.

Source: LLM turn, "Event routing, exactly" (L94, L113-L115, L125).
"""

from __future__ import annotations

from notebook_agent.engine.observers import TurnEnd
from notebook_agent.engine.runtime.run_context import RunContext
from notebook_agent.errors import AgentError

__all__ = ["end_turn"]


def end_turn(run: RunContext, *, success: bool, error: AgentError | None = None) -> None:
    """Fire ``on_turn_end`` unless the turn never started or has ended already.

    Tokens are as reported, None otherwise (L94); beside them the context's estimate and window
    (L125).
    """
    facts = run.frame.facts
    # Ruling: L114, one end a turn; with tools it is the end of the tool phase
    if not facts.opened or facts.closed:
        return
    facts.closed = True
    response = run.frame.response
    usage = None if response is None else response.usage
    run.hub.fire(
        "on_turn_end",
        TurnEnd(
            run.turn,
            success,
            error,
            max(run.surroundings.now() - run.turn_started_s, 0.0),
            None if usage is None else usage.input_tokens,
            None if usage is None else usage.output_tokens,
            facts.estimate,
            None if run.built is None else run.built.window,
        ),
    )
