"""A forced tool's call as the text of the reply: any order of lanes (L39-L44)."""

from __future__ import annotations

import pytest

from notebook_agent.core import events as e
from notebook_agent.core.accumulator import StreamAccumulator
from notebook_agent.core.messages import TextPart, ToolCallPart
from notebook_agent.core.response import Ending, StopReason
from notebook_agent.providers.forced_tool import ToolAsText


def text(index: int, words: str) -> list[e.StreamEvent]:
    return [
        e.PartStart(index, TextPart("")),
        e.IndexedDelta(index, e.Text(words)),
        e.PartStop(index),
    ]


def thought(index: int, words: str) -> list[e.StreamEvent]:
    return [e.PartStart(index, None), e.IndexedDelta(index, e.Thinking(words)), e.PartStop(index)]


def call(index: int, name: str, *pieces: str) -> list[e.StreamEvent]:
    deltas = [e.IndexedDelta(index, e.InputJson(p)) for p in pieces]
    return [e.PartStart(index, ToolCallPart(f"c{index}", name)), *deltas, e.PartStop(index)]


def end(word: str = "tool_use") -> list[e.StreamEvent]:
    return [e.MessageDelta(word, None, Ending.TOOL_CALL, word), e.MessageStop()]


def folded(*events: e.StreamEvent):
    turner, reply = ToolAsText("answer"), StreamAccumulator()
    out = turner.turned([e.MessageStart("m"), e.Ping(), *events])
    for event in out:
        reply.apply(event)
    return reply, out


def test_L40_the_calls_arguments_are_the_text_whatever_stands_beside_it():
    for before, after in (
        ([], []),
        (text(0, "Here it is:"), text(2, "Done.")),
        (thought(0, "hm"), thought(2, "so")),
        (text(0, "a"), call(2, "answer", '{"second":1}')),
        ([], call(2, "other", "{}")),
    ):
        reply, _ = folded(*before, *call(1, "answer", '{"a":', "1}"), *after, *end())
        assert reply.build().text_content() == '{"a":1}'
        assert reply.ended


def test_L41_interleaved_fragments_of_another_call_stay_out():
    one, two = call(0, "answer", '{"a":', "1}"), call(1, "answer", '{"b":', "2}")
    mixed = [event for pair in zip(one, two, strict=True) for event in pair]
    reply, _ = folded(*mixed, *end())
    assert reply.build().text_content() == '{"a":1}'


def test_L43_a_stop_without_an_index_ends_the_open_call():
    reply, _ = folded(*call(0, "answer", '{"a":1}')[:-1], e.PartStop(None), *end())
    assert reply.build().text_content() == '{"a":1}'


def test_a_reply_without_the_call_keeps_what_the_model_said():
    reply, out = folded(*text(0, "I cannot."), *end("end_turn"))
    assert reply.build().text_content() == "I cannot."
    assert any(isinstance(event, e.Ping) for event in out)
    other, _ = folded(*call(0, "other", '{"x":1}'), *text(1, "t"), *end())
    assert [c.name for c in other.build().tool_calls] == ["other"]
    assert other.build().text_content() == "t"


@pytest.mark.parametrize("word", ["tool_use", "end_turn", None])
def test_S09_cut_arguments_end_the_reply_at_its_length(word):
    ending = {"tool_use": Ending.TOOL_CALL, "end_turn": Ending.END_TURN, None: None}[word]
    last = [e.MessageDelta(word, None, ending, word)] if word else []
    reply, _ = folded(*call(0, "answer", '{"a":"lor'), *last, e.MessageStop())
    assert reply.build().text_content() == '{"a":"lor'
    assert reply.stop_reason is StopReason.MAX_TOKENS
    assert reply.ending is Ending.MAX_TOKENS
    assert reply.ended


def test_S09_another_ending_keeps_its_word():
    filtered = e.MessageDelta(None, None, Ending.CONTENT_FILTER, "content_filter")
    reply, _ = folded(*call(0, "answer", '{"a":"lor'), filtered, e.MessageStop())
    assert reply.ending is Ending.CONTENT_FILTER
    assert reply.stop_reason is StopReason.END_TURN


def test_S08_a_call_without_arguments_is_an_empty_object():
    for pieces in ((), ("",), (" ",)):
        reply, _ = folded(*call(0, "answer", *pieces), *end())
        assert reply.build().text_content().strip() == "{}"
        assert reply.ending is Ending.END_TURN


def test_S11_a_cut_reply_gets_no_end():
    reply, _ = folded(*call(0, "answer", '{"a":')[:-1])
    assert not reply.ended
    assert reply.text() == '{"a":'
