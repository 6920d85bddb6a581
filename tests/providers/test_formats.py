"""Every hand-written body of every wire format: whole, byte by byte, in any pieces, cut anywhere."""

from __future__ import annotations

import json

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from notebook_agent.core import events as e
from notebook_agent.core.accumulator import StreamAccumulator
from notebook_agent.core.messages import ToolCallPart
from notebook_agent.errors import ConfigError, ErrorKind
from notebook_agent.providers import decode
from notebook_agent.providers.decode import decode_body
from tests.providers.bodies import BODIES, CHAT, WHOLE

ALL = [(api, name, body, want) for api, rows in BODIES.items() for name, body, want in rows]
EMPTY = decode_body(b"", "openai-chat")
each_body = pytest.mark.parametrize(
    ("api", "name", "body", "want"), ALL, ids=[f"{api}: {name}" for api, name, _, _ in ALL]
)


def decoder_of(api: str):
    import importlib

    module, name = decode.APIS[api]
    return getattr(importlib.import_module(module), name)(full_name="test:m")


@each_body
@pytest.mark.parametrize("chunk", [None, 1, 7])
def test_body(api, name, body, want, chunk):
    assert decode_body(body, api, chunk) == {**EMPTY, **want}


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(ALL), st.data())
def test_any_split(row, data):
    api, _, body, want = row
    cuts = data.draw(st.lists(st.integers(0, len(body)), max_size=10))
    decoder, events, at = decoder_of(api), [], 0
    for cut in [*sorted(cuts), len(body)]:
        events += decoder.feed(body[at:cut])
        at = cut
    events += decoder.finish()
    assert decode._result(events, decoder, api) == {**EMPTY, **want}


@each_body
def test_a_body_cut_anywhere_is_never_a_mixed_up_reply(api, name, body, want):
    """At every byte: the text is a prefix, an incomplete body fails as a transient cut, and once
    complete it stays complete."""
    complete = False
    for length in range(len(body) + 1):
        decoder = decoder_of(api)
        events = decoder.feed(body[:length])
        events += decoder.finish()
        got = decode._result(events, decoder, api)
        # Bytes of a character that is cut in two are not looked at.
        assert {**EMPTY, **want}["text"].startswith(got["text"].rstrip("\ufffd"))
        assert got["complete"] == (decoder.failure is None)
        if decoder.failure is not None and got["error"] is None:
            assert decoder.failure.kind is ErrorKind.TRANSPORT
            assert decoder.failure.is_retryable
        assert type(events[-1]) is e.MessageStop if got["complete"] else True
        assert sum(type(v) is e.MessageStop for v in events) == got["complete"]
        assert not (complete and not got["complete"]) or want.get("error") or "array" in name
        complete = got["complete"]
    assert complete == bool(want.get("complete"))


@each_body
def test_the_order_of_events(api, name, body, want):
    """L38: a start, lanes that are opened before their deltas and closed, the stop last."""
    decoder = decoder_of(api)
    events = [v for v in decoder.feed(body) + decoder.finish() if type(v) is not e.Ping]
    if events:
        assert type(events[0]) is e.MessageStart
    opened: dict[int, object] = {}
    for event in events:
        match event:
            case e.PartStart(index=index, part=part):
                assert index not in opened
                opened[index] = part
            case e.IndexedDelta(delta=e.ProviderState()):
                pass
            case e.IndexedDelta(index=index, delta=delta):
                assert index in opened
                tool = isinstance(opened[index], ToolCallPart)
                assert isinstance(delta, e.InputJson) == tool
            case e.PartStop(index=index):
                assert index in opened
    if decoder.ended:
        closed = {v.index for v in events if isinstance(v, e.PartStop)}
        assert closed == set(opened)


@pytest.mark.parametrize(("api", "document", "want"), WHOLE, ids=[row[0] for row in WHOLE])
@pytest.mark.parametrize("indent", [None, 2])
def test_whole_replies(api, document, want, indent):
    if api == "ollama" and indent:
        pytest.skip("one line is one document")
    body = json.dumps(document, indent=indent).encode()
    got = decode_body(body, api)
    assert {**got, "tool_calls": [c | {"arguments_raw": None} for c in got["tool_calls"]]} == {
        **EMPTY,
        **want,
        "tool_calls": [c | {"arguments_raw": None} for c in want.get("tool_calls", [])],
    }


@pytest.mark.parametrize("api", list(BODIES))
def test_a_refusal_is_no_reply(api):
    got = decode_body(b'{"error": {"type": "t", "message": "m"}}', api)
    assert got["error"] == {"type": "t", "message": "m"}
    assert not got["complete"]


@pytest.mark.parametrize("api", list(BODIES))
@given(body=st.binary(max_size=80))
@settings(max_examples=60, deadline=None)
def test_junk_never_raises_and_is_never_complete(api, body):
    assume(b"[DONE]" not in body)  # the end mark alone is an end, whatever came before it
    got = decode_body(body, api)
    assert not got["complete"]


@pytest.mark.parametrize(("api", "chunk"), [("nope", None), ("gemini", 0)])
def test_decode_says_what_is_legal(api, chunk):
    with pytest.raises(ConfigError, match="give"):
        decode_body(b"", api, chunk)


def test_S06_S08_what_the_accumulator_makes_of_calls():
    rows = {name: body for name, body, _ in CHAT}
    for name, inputs in (
        ("S06 all index 0", [{"q": "Riga"}, {"q": "Oslo"}]),
        ("S08 arguments null", [{}]),
        ("S09 a truncated call", [None]),
    ):
        decoder, accumulator = decoder_of("openai-chat"), StreamAccumulator()
        for event in decoder.feed(rows[name]) + decoder.finish():
            accumulator.apply(event)
        calls = accumulator.build().tool_calls
        assert [c.input for c in calls] == inputs
        assert len({c.id for c in calls}) == len(calls)


def test_S12_thinking_never_enters_the_message():
    rows = {name: body for name, body, _ in CHAT}
    accumulator = StreamAccumulator()
    for event in decoder_of("openai-chat").feed(rows["S12 two names of reasoning"]):
        accumulator.apply(event)
    assert accumulator.build().text_content() == "42"
    assert len(accumulator.build().parts) == 1
    assert accumulator.build().provider_state is None


def test_T06_cached_tokens_are_counted_once():
    rows = {name: body for name, body, _ in CHAT}
    accumulator = StreamAccumulator()
    for event in decoder_of("openai-chat").feed(rows["T06 cached tokens"]):
        accumulator.apply(event)
    usage = accumulator.usage
    assert usage is not None
    assert usage.context_tokens == 184_704
    assert usage.cached_input_tokens == 183_936
    assert usage.input_includes_cached


def test_S13_each_figure_counts_once():
    rows = {name: body for name, body, _ in BODIES["anthropic-messages"]}
    accumulator = StreamAccumulator()
    for event in decoder_of("anthropic-messages").feed(rows["S13 running totals"]):
        accumulator.apply(event)
    usage = accumulator.usage
    assert usage is not None
    assert (usage.input_tokens, usage.cached_input_tokens, usage.output_tokens) == (25, 900, 15)
    assert usage.context_tokens == 925


def test_reasoning_that_is_not_part_of_the_output():
    from notebook_agent.providers.openai_chat_stream import chat_usage

    apart = chat_usage({"prompt_tokens": 12, "completion_tokens": 1, "total_tokens": 303, "completion_tokens_details": {"reasoning_tokens": 290}})  # fmt: skip
    assert apart.total == 303
    within = chat_usage({"prompt_tokens": 12, "completion_tokens": 300, "total_tokens": 312, "completion_tokens_details": {"reasoning_tokens": 290}})  # fmt: skip
    assert within.total == 312


def test_S03_pings_come_through():
    rows = {name: body for name, body, _ in CHAT}
    events = decoder_of("openai-chat").feed(rows["S03 keep-alives"])
    assert [type(v) for v in events[:6]] == [e.Ping] * 6
