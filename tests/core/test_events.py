"""L36-L38: the vocabulary of a stream."""

from __future__ import annotations

import typing

from notebook_agent.core import events as e
from notebook_agent.core.accumulator import StreamAccumulator
from notebook_agent.core.messages import Message, TextPart
from notebook_agent.core.response import ChatResponse


def test_L36_the_stream_events_are_seven():
    names = {kind.__name__ for kind in typing.get_args(e.StreamEvent)}
    assert names == {
        "MessageStart", "PartStart", "IndexedDelta", "PartStop", "MessageDelta", "MessageStop", "Ping",
    }  # fmt: skip


def test_L37_the_delta_kinds():
    names = {kind.__name__ for kind in typing.get_args(e.Delta)}
    assert names == {"Text", "InputJson", "ToolCall", "Thinking", "ProviderState"}


def test_L29_a_handler_event_is_a_stream_event_a_reset_or_a_rescued_reply():
    kinds = set(typing.get_args(e.HandlerEvent))
    assert kinds - set(typing.get_args(e.StreamEvent)) == {e.AttemptReset, e.StreamFallback}
    rescued = e.StreamFallback(ChatResponse(Message.assistant("hi")))
    assert rescued.response.message.text_content() == "hi"
    assert e.AttemptReset().attempt == 2  # the first attempt never has one (L52)


def test_events_have_no_dict_so_a_delta_stays_cheap():
    for kind in (*typing.get_args(e.StreamEvent), *typing.get_args(e.Delta)):
        assert "__dict__" not in dir(kind), kind


def test_L38_a_whole_reply_in_contract_order_with_pings_anywhere():
    reply = [
        e.MessageStart("m1"),
        e.PartStart(0, TextPart("")),
        e.IndexedDelta(0, e.Text("hi")),
        e.PartStop(0),
        e.MessageDelta("stop"),
        e.MessageStop(),
    ]
    for at in range(len(reply) + 1):
        acc = StreamAccumulator()
        for event in [*reply[:at], e.Ping(), *reply[at:]]:
            acc.apply(event)
        assert (acc.build().text_content(), acc.ended) == ("hi", True)
