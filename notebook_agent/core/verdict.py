"""The verdict on a finished reply: does the loop go on, and which calls may run.

Source: LLM turn, "Event routing, exactly" (L34, L35, L41); Turn FSM, "ProcessingResponse"
(B45).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from notebook_agent.core.messages import ToolCallPart
from notebook_agent.core.response import ChatResponse, Ending, StopReason

__all__ = ["REPLY_VERDICTS", "Verdict", "judge_reply"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The stop reason that counts, and whether the reply's calls are run or dropped."""

    stop_reason: StopReason
    run_calls: bool = False


R = StopReason

# Ruling: L35, (stop reason as reported, does the reply hold calls) -> what counts
REPLY_VERDICTS: Final[Mapping[tuple[StopReason, bool], Verdict]] = {
    (R.END_TURN, False): Verdict(R.END_TURN),
    (R.END_TURN, True): Verdict(R.TOOL_CALL, run_calls=True),  # the upgrade (S07)
    (R.TOOL_CALL, False): Verdict(R.END_TURN),
    (R.TOOL_CALL, True): Verdict(R.TOOL_CALL, run_calls=True),
    (R.MAX_TOKENS, False): Verdict(R.MAX_TOKENS),
    (R.MAX_TOKENS, True): Verdict(R.MAX_TOKENS),  # dropped: no unanswered call is committed
    (R.STOP_SEQUENCE, False): Verdict(R.STOP_SEQUENCE),
    (R.STOP_SEQUENCE, True): Verdict(R.STOP_SEQUENCE),
}

# Ruling: L5a, END_TURN with calls is upgraded only when the ending says nothing else
UPGRADABLE: Final = frozenset({None, Ending.END_TURN})
# B45: endings under which calls are never run, whatever the stop reason
NEVER_RUN: Final = frozenset({Ending.CONTENT_FILTER, Ending.REFUSAL, Ending.ERROR})
# endings that a cut call contradicts: the output limit ended the reply (S09)
OVERRULED_BY_CUT: Final = frozenset({None, Ending.END_TURN, Ending.TOOL_CALL, Ending.UNKNOWN})


def judge_reply(response: ChatResponse) -> ChatResponse:
    """The reply as it counts.

    Args:
        response: A complete reply, its end seen, from a stream or a single call.

    Returns:
        The same with the stop reason that steers the loop. Calls that must not run are taken
        out of the message and named in ``tools_not_run``. A call whose arguments do not parse
        makes the reply MAX_TOKENS: parsing decides, not the provider's word (Ruling: L41).
    """
    calls = response.message.tool_calls
    if any(not call.parsed for call in calls):
        cut = replace(response, stop_reason=StopReason.MAX_TOKENS)
        if response.ending in OVERRULED_BY_CUT:
            cut = replace(cut, ending=Ending.MAX_TOKENS)
        return _without_calls(cut)
    verdict = REPLY_VERDICTS[response.stop_reason, bool(calls)]
    run = verdict.run_calls and response.ending not in NEVER_RUN
    if response.stop_reason is StopReason.END_TURN and response.ending not in UPGRADABLE:
        run = False
    if not calls or run:
        if verdict.stop_reason is response.stop_reason:
            return response
        return replace(response, stop_reason=verdict.stop_reason)
    kept = verdict.stop_reason
    if kept is StopReason.TOOL_CALL:  # nothing will be run, so the loop must not go on
        kept = StopReason.END_TURN
    return _without_calls(replace(response, stop_reason=kept))


def _without_calls(response: ChatResponse) -> ChatResponse:
    message = response.message
    names = tuple(call.name for call in message.tool_calls)
    parts = tuple(p for p in message.parts if not isinstance(p, ToolCallPart))
    return replace(
        response,
        message=replace(message, parts=parts),
        tools_not_run=(*response.tools_not_run, *names),
    )
