"""L34, L35, L41, B45: which calls run, and does the loop go on."""

from __future__ import annotations

import itertools

import pytest

from notebook_agent.core.messages import Message, Role, TextPart, ToolCallPart
from notebook_agent.core.response import ChatResponse, Ending, StopReason
from notebook_agent.core.verdict import REPLY_VERDICTS, judge_reply

R = StopReason
TEXT = TextPart("hm")
GOOD = ToolCallPart("a", "find", {"q": 1}, '{"q":1}')
LIST = ToolCallPart("l", "find", [1], "[1]")
CUT = ToolCallPart("b", "save", None, '{"path":"no')


def reply(*parts, stop=R.END_TURN, ending=None):
    return ChatResponse(Message(Role.ASSISTANT, parts, id="m"), stop_reason=stop, ending=ending)


def test_the_table_is_total():
    assert set(REPLY_VERDICTS) == set(itertools.product(R, (False, True)))


@pytest.mark.parametrize(
    ("stop", "counts"),
    [(R.END_TURN, R.END_TURN), (R.TOOL_CALL, R.END_TURN), (R.MAX_TOKENS, R.MAX_TOKENS),
     (R.STOP_SEQUENCE, R.STOP_SEQUENCE)],
)  # fmt: skip
def test_L35_without_calls_nothing_goes_on(stop, counts):
    judged = judge_reply(reply(TEXT, stop=stop))
    assert judged.stop_reason is counts
    assert judged.message.parts == (TEXT,)
    assert judged.tools_not_run == ()


@pytest.mark.parametrize("ending", [None, Ending.END_TURN])
def test_S07_end_turn_with_calls_is_upgraded(ending):
    judged = judge_reply(reply(TEXT, GOOD, stop=R.END_TURN, ending=ending))
    assert judged.stop_reason is R.TOOL_CALL
    assert judged.message.parts == (TEXT, GOOD)
    assert judged.ending is ending  # shown as the provider said it


@pytest.mark.parametrize(
    "ending", [Ending.CONTENT_FILTER, Ending.REFUSAL, Ending.ERROR, Ending.PAUSE, Ending.UNKNOWN]
)
def test_S07_no_upgrade_when_the_ending_says_something_else(ending):
    judged = judge_reply(reply(TEXT, GOOD, stop=R.END_TURN, ending=ending))
    assert judged.stop_reason is R.END_TURN
    assert judged.message.parts == (TEXT,)
    assert judged.tools_not_run == ("find",)


@pytest.mark.parametrize("stop", [R.MAX_TOKENS, R.STOP_SEQUENCE])
def test_L35_calls_under_a_limit_are_dropped(stop):
    judged = judge_reply(reply(TEXT, GOOD, GOOD, stop=stop))
    assert judged.stop_reason is stop
    assert judged.message == Message(Role.ASSISTANT, (TEXT,), id="m")
    assert judged.tools_not_run == ("find", "find")


def test_L34_tool_call_goes_on():
    whole = reply(TEXT, GOOD, LIST, stop=R.TOOL_CALL, ending=Ending.TOOL_CALL)
    assert judge_reply(whole) is whole


@pytest.mark.parametrize("ending", [Ending.CONTENT_FILTER, Ending.REFUSAL, Ending.ERROR])
def test_B45_endings_under_which_calls_never_run(ending):
    judged = judge_reply(reply(GOOD, stop=R.TOOL_CALL, ending=ending))
    assert judged.stop_reason is R.END_TURN
    assert judged.tools_not_run == ("find",)
    assert judged.message.parts == ()


@pytest.mark.parametrize("stop", list(R))
@pytest.mark.parametrize("ending", [None, Ending.TOOL_CALL, Ending.END_TURN, Ending.MAX_TOKENS])
def test_S09_a_call_that_does_not_parse_makes_the_reply_max_tokens(stop, ending):
    judged = judge_reply(reply(TEXT, GOOD, CUT, stop=stop, ending=ending))
    assert judged.stop_reason is R.MAX_TOKENS
    assert judged.ending is Ending.MAX_TOKENS
    assert judged.message.parts == (TEXT,)
    assert judged.tools_not_run == ("find", "save")


def test_S09_a_filter_stays_named():
    judged = judge_reply(reply(CUT, stop=R.END_TURN, ending=Ending.CONTENT_FILTER))
    assert (judged.stop_reason, judged.ending) == (R.MAX_TOKENS, Ending.CONTENT_FILTER)
