"""Recorded UiEvent lists: one for every state of the panel's design, and for hostile text.

All sinks are tested with the same lists (D19).
"""

from __future__ import annotations

from notebook_agent.core import agent_events as ev
from notebook_agent.core.session import RunStatus
from notebook_agent.core.turn_fsm import TurnState as S
from notebook_agent.notebook.live import breaker_view
from notebook_agent.notebook.panel_state import (
    Appended,
    Ask,
    Asked,
    Ended,
    Gauge,
    Happened,
    Moved,
    Opened,
    Printed,
    Replied,
    RowAdded,
    Ticked,
    UiEvent,
    Voided,
)

A, B, C = "openai:gpt-mini", "mistral:small", "local:smollm"
GAUGE = Gauge(system=212, tools=438, transients=480, history=290, window=8000)
LOOK = "I will look at the record before judging it.\n\n"
P1 = "Two stretches look like a stuck sensor, and one is a real surge.\n\n"
L1 = (
    "- **3 March, 02:00 to 07:00.** The level stays at 1.42 m for five hours. Water in this "
    "harbour never rests that long, so the float was probably caught.\n"
)
L2 = (
    "- **11 March, 14:00.** Two readings are missing, then one jumps by 0.9 m and falls straight "
    "back. That is a hole in the record, not a wave.\n"
)
L3 = (
    "- **19 March, all day.** The level climbs slowly, peaks at 2.71 m and drains over ten hours. "
    "Keep it.\n"
)
CODE = (
    "\nTo blank the first two:\n\n```python\n"
    'still = tides["level_m"].rolling(5).std() < 0.002\ntides.loc[still, "level_m"] = pd.NA\n```\n'
)
FULL = P1 + L1 + L2 + L3 + CODE
THOUGHT = (
    "Flat runs first: a rolling spread near zero cannot be water. Then gaps. A surge should have "
    "slopes on both sides, so compare the rise with the fall before calling it a fault."
)


def breaker(state="primary", *, failures=0, strikes=0, probes=0, chain=True, since=None):
    """A breaker as ``to_json`` gives it."""
    return {
        "state": state,
        "consecutive_failures": failures,
        "primary_success_count": probes,
        "original_model": A,
        "chain": [
            {"name": B, "available": True, "attempt_count": strikes, "max_fail_count": 2},
            {"name": C, "available": True, "attempt_count": 0, "max_fail_count": 2},
        ]
        if chain
        else [],
        "active_fallback": B if chain else None,
        "routed_model": B if state == "fallback" and chain else A,
        "fallback_activated": state != "primary",
        "cooldown_left_s": since,
        "last_cause": "",
        "config": {
            "trip_threshold": 3,
            "recovery_timeout": 60.0,
            "recovery_successes_needed": 2,
            "max_fail_count": 2,
        },
    }


def row(turn=0, model=A, outcome="served", stop="end_turn", tin=1376, tout=231, **over):
    """An audit row as ``audit.turn_row`` gives it."""
    return {
        "run": 0,
        "run_id": "run_0",
        "turn": turn,
        "provider": model.partition(":")[0],
        "model": model,
        "outcome": outcome,
        "ending": stop,
        "stop_reason": stop if outcome == "served" else None,
        "input_tokens": tin,
        "output_tokens": tout,
        "cached_input_tokens": None,
        "reasoning_tokens": None,
        "context_estimate": 1420 + 1282 * turn,
        "failed_input_tokens": None,
        "failed_output_tokens": None,
        "budget_tokens": (tin or 0) + (tout or 0),
        "budget_estimated": False,
        "input_includes_cached": True,
        "attempts": 1,
        "rescued": False,
        "breaker": "primary",
        "compacted": False,
        "tool_calls": 0,
        "tools_not_run": "",
        "ttft_s": 0.6,
        "duration_s": 1.9,
        "started_at": 1_767_225_600.0,
        "input": "Which hours in `tides` look like a stuck sensor rather than a storm?",
        "output": "",
        **over,
    }


def opened(model=A, *, view=None, at=0.0, **over):
    return Opened(
        at=at, run_id="run_0", prompt="Which hours look stuck?", model=model,
        breaker=breaker_view(view or breaker(), at), gauge=GAUGE, **over,
    )  # fmt: skip


def happened(at, event):
    view = breaker_view(event.breaker, at) if isinstance(event, ev.BreakerChanged) else None
    return Happened(at=at, event=event, breaker=view)


def move(at, state, to, outcome="Ok", *, turn=0, action=None, **over):
    return Moved(at=at, turn=turn, state=state, outcome=outcome, to=to,
                 action=action or ("Continue" if to else "BreakLoop"), **over)  # fmt: skip


def to_model(at, *, turn=0, model=A, of=4, history=290):
    """A turn from its start to the request."""
    parts = {"system": 212, "tools": 438, "transients": 480, "history": history}
    return [
        happened(at, ev.TurnStarted(turn=turn, iteration=turn + 1)),
        move(at, S.CHECKING_POLICY, S.BUILDING_CONTEXT, turn=turn),
        happened(at, ev.ContextBuilt(message_count=2, estimate=sum(parts.values()), parts=parts)),
        move(at, S.BUILDING_CONTEXT, S.CALLING_MODEL, "ContextReady", turn=turn, window=8000),
        happened(at, ev.ModelStarted(provider="", model=model, iteration=turn + 1)),
        happened(at, ev.AttemptStarted(turn=turn, attempt=1, max_attempts=of, model=model)),
    ]


def words(at, text, *, turn=0, lane="text", step=17, rate=0.01):
    """Deltas of ``step`` characters."""
    return [
        Appended(at=at + i * rate / step, lane=lane, text=text[i : i + step], turn=turn)
        for i in range(0, len(text), step)
    ]


def tool_turn(*, running=False):
    """Turn 0: a sentence, then two tools."""
    calls = [
        ("c1", "describe", '{"frame": "tides"}', "744 rows, hourly, 2 missing", 0.1),
        ("c2", "find_gaps", '{"frame": "tides", "window": "5h"}', "flat  03-03 02:00..07:00", 1.6),
    ]
    out = [*to_model(0.0), *words(0.6, LOOK)]
    for id_, name, args, _, _ in calls:
        out.append(happened(1.0, ev.ToolCallStarted(call_id=id_, tool_name=name)))
        out.append(happened(1.2, ev.ToolCallCompleted(call_id=id_, tool_name=name, arguments=args)))
    out += [
        move(1.9, S.CALLING_MODEL, S.PROCESSING_RESPONSE, "ModelResponse"),
        move(1.9, S.PROCESSING_RESPONSE, S.EXECUTING_TOOLS, "ToolCallsPresent"),
        *[happened(1.9, ev.ToolExecutionStarted(call_id=c[0], tool_name=c[1])) for c in calls],
        happened(2.0, ev.ToolExecutionFinished(
            call_id="c1", tool_name="describe", result=calls[0][3], duration_s=0.1)),
        Printed(at=2.0, call_id="c1", text="level_m  min 0.31  mean 1.48  max 2.71\n"),
    ]  # fmt: skip
    if running:
        return [*out, Ticked(at=3.1)]
    return [
        *out,
        happened(3.5, ev.ToolExecutionFinished(
            call_id="c2", tool_name="find_gaps", result=calls[1][3], duration_s=1.6)),
        move(3.5, S.EXECUTING_TOOLS, S.PERSISTING, "ToolResultsRecorded"),
        RowAdded(at=3.5, row=row(0, stop="tool_call", tin=1376, tout=58, tool_calls=2)),
        happened(3.5, ev.TurnCompleted(turn=0, iteration=1, finish_reason="tool_calls")),
        move(3.5, S.PERSISTING, S.CHECKING_POLICY, "Persisted"),
    ]  # fmt: skip


def end(at, status=RunStatus.COMPLETED, *, turn=0, error=None):
    out = []
    if status is RunStatus.COMPLETED:
        out = [
            move(at, S.CALLING_MODEL, S.PROCESSING_RESPONSE, "ModelResponse", turn=turn),
            move(at, S.PROCESSING_RESPONSE, S.PERSISTING, "NoMoreTurns", turn=turn),
            move(at, S.PERSISTING, None, "NoMoreTurns", turn=turn),
        ]
    return [*out, Ended(at=at, status=status, error=error)]


def recorded() -> dict[str, list[UiEvent]]:
    """Name of the design's state -> the events that lead there."""
    retry = ev.AttemptFailed(turn=0, attempt=2, cause="503", next_step="retry", delay_s=0.2)
    cut = ev.AttemptFailed(
        turn=0, attempt=1, cause="stream cut after 31 words", next_step="retry", delay_s=0.5
    )
    turn1 = [
        *tool_turn(),
        *to_model(3.6, turn=1, history=1572),
        *words(4.0, THOUGHT, lane="thinking", turn=1),
    ]
    voided = [
        opened(),
        *to_model(0.0),
        *words(0.5, P1 + L1[:90]),
        happened(2.4, cut),
        happened(2.9, ev.AttemptStarted(turn=0, attempt=2, max_attempts=4, model=A)),
        Voided(at=2.9, attempt=2, cause="stream cut after 31 words"),
    ]
    refused = {"error": "ProviderError", "kind": "authentication", "status": 401,
               "message": "401: the key was refused.\nRun  %agent key openai  then this cell again."}  # fmt: skip
    fb = breaker("fallback", strikes=1, since=60.0)  # tripping sets the failures back to 0
    return {
        "connecting": [opened(), *to_model(0.0), Ticked(at=1.4)],
        "streaming": [opened(), *turn1, *words(4.1, P1 + L1 + L2[:70], turn=1)],
        "tool running": [opened(), *tool_turn(running=True)],
        "tool finished": [opened(), *tool_turn(), *to_model(3.6, turn=1, history=1572)],
        "approval": [
            opened(),
            *to_model(0.0),
            *words(0.6, LOOK),
            happened(1.0, ev.ToolCallStarted(call_id="c1", tool_name="drop_rows")),
            happened(1.2, ev.ToolCallCompleted(
                call_id="c1", tool_name="drop_rows", arguments='{"where": "level_m is stuck"}')),
            move(1.9, S.CALLING_MODEL, S.PROCESSING_RESPONSE, "ModelResponse"),
            move(1.9, S.PROCESSING_RESPONSE, S.EXECUTING_TOOLS, "ToolCallsPresent"),
            Asked(at=1.9, ask=Ask(1, 'drop_rows(where="level_m is stuck")')),
        ],
        "retry waiting": [
            opened(),
            *to_model(0.0),
            happened(0.3, ev.AttemptStarted(turn=0, attempt=2, max_attempts=4, model=A)),
            happened(1.1, retry),
        ],
        "attempt reset": [*voided, *words(3.0, "Two stretches look like")],
        "fallback": [
            opened(),
            *to_model(0.0, of=1),
            happened(0.4, ev.BreakerChanged(breaker=fb)),
            *to_model(0.5, model=B),
            happened(0.6, ev.ModelSwitched(from_model=A, to_model=B)),
            *words(0.7, LOOK + P1 + L1[:80]),
            RowAdded(at=2.2, row=row(0, B, tin=None, tout=None, stop="tool_call")),
            Ticked(at=22.0),
        ],
        "recovering": [
            opened(view=fb),
            happened(0.2, ev.BreakerChanged(breaker=breaker("recovering", probes=1))),
            *to_model(0.3),
            *words(0.6, P1 + L1[:60]),
        ],
        "compacting": [
            opened(),
            *tool_turn(),
            happened(3.6, ev.TurnStarted(turn=1, iteration=2)),
            move(3.6, S.CHECKING_POLICY, S.BUILDING_CONTEXT, turn=1),
            move(3.6, S.BUILDING_CONTEXT, None, "ContextOverBudget", turn=1,
                 action="CompactAndRetry"),
            happened(3.7, ev.CompactionTriggered(reason="threshold", used=6476, limit=6400)),
        ],
        "cancelled": [
            opened(),
            *tool_turn(),
            *to_model(3.6, turn=1, history=1572),
            *words(3.65, P1 + L1[:90], turn=1),
            move(3.7, S.CALLING_MODEL, None, "Cancelled", turn=1, action="Fail"),
            RowAdded(at=3.7, row=row(1, outcome="cancelled", tin=None, tout=None)),
            *end(3.7, RunStatus.CANCELLED, error={"error": "Cancelled", "message": "cancelled"}),
        ],
        "failed": [
            opened(),
            *to_model(0.0, of=1),
            happened(0.4, ev.AttemptFailed(turn=0, attempt=1, cause="401", next_step="fail")),
            RowAdded(at=0.4, row=row(0, outcome="failed", tin=None, tout=None, ttft_s=None)),
            move(0.4, S.CALLING_MODEL, None, "ProviderError", action="Fail"),
            *end(0.4, RunStatus.FAILED, error=refused),
        ],
        "rescued": [
            *voided,
            happened(6.0, ev.RescueStarted(turn=0, deadline_s=60.0)),
            Replied(at=9.0, text=FULL),
            RowAdded(at=9.3, row=row(0, rescued=True, attempts=4, ttft_s=None, duration_s=9.3)),
            *end(9.3),
        ],
        "completed": [
            opened(),
            *turn1,
            *words(4.1, FULL, turn=1),
            Replied(at=6.3, text=FULL, turn=1),
            RowAdded(at=6.4, row=row(1, tin=2486, tout=214, duration_s=4.5)),
            *end(6.4, turn=1),
        ],
        "scripted": [
            opened("scripted", view=breaker(chain=False)),
            *to_model(0.0, model="scripted"),
            *words(0.2, "This sentence was written in advance."),
            RowAdded(at=0.8, row=row(0, "scripted", tin=None, tout=None)),
            *end(0.8),
        ],
        "max tokens": [
            opened(),
            *to_model(0.0),
            *words(0.2, "A reply that is cut in the mid"),
            RowAdded(at=0.8, row=row(0, stop="max_tokens")),
            *end(0.8),
        ],
        "limit reached": [
            opened(),
            *tool_turn(),
            *end(4.0, RunStatus.LIMIT_REACHED, error={"error": "LimitReached", "message": "x"}),
        ],
    }  # fmt: skip
