"""L39-L44: lanes, routing by (kind, index), arguments as text until the stop."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from notebook_agent.core import events as e
from notebook_agent.core.accumulator import StreamAccumulator, parse_arguments
from notebook_agent.core.messages import ImagePart, Role, TextPart, ToolCallPart
from notebook_agent.core.response import Ending, StopReason, Usage
from notebook_agent.core.text import clean_json


def fold(*events):
    acc = StreamAccumulator()
    for event in events:
        acc.apply(event)
    return acc


def text(index, *fragments):
    return [e.IndexedDelta(index, e.Text(f)) for f in fragments]


def args(index, *fragments):
    return [e.IndexedDelta(index, e.InputJson(f)) for f in fragments]


def tool(index, call_id="c1", name="find"):
    return e.PartStart(index, ToolCallPart(call_id, name))


TEXT = e.PartStart(0, TextPart(""))


def test_L40_text_and_tool_share_an_index():
    acc = fold(TEXT, tool(0), *text(0, "Let "), *args(0, '{"q":'), *text(0, "me"), *args(0, '"ice"}'),
               e.PartStop(0), e.PartStop(0))  # fmt: skip
    assert acc.build().parts == (
        TextPart("Let me"),
        ToolCallPart("c1", "find", {"q": "ice"}, '{"q":"ice"}'),
    )


def test_L41_two_tools_with_alternating_fragments():
    acc = fold(tool(0, "a"), tool(1, "b", "get"), *args(0, '{"q"'), *args(1, '{"n"'), *args(0, ':1}'),
               *args(1, ":2}"), e.PartStop(1), e.PartStop(0))  # fmt: skip
    assert acc.build().tool_calls == (
        ToolCallPart("b", "get", {"n": 2}, '{"n":2}'),
        ToolCallPart("a", "find", {"q": 1}, '{"q":1}'),
    )  # order of closing


def test_L39_thinking_lane_then_two_tools():
    think = [e.PartStart(0, None), e.IndexedDelta(0, e.Thinking("hm"))]
    acc = fold(
        *think,
        tool(0, "a"),
        *args(0, "{}"),
        e.PartStop(0),
        e.PartStop(0),
        tool(0, "b"),
        e.PartStop(0),
    )
    assert [c.id for c in acc.build().tool_calls] == ["a", "b"]
    assert acc.text() == ""


def test_L43_stop_without_an_index_closes_the_oldest_open_lane():
    acc = fold(TEXT, tool(5), *text(0, "a"), *args(5, "{}"), e.PartStop(None))
    assert acc.build().parts == (TextPart("a"),)
    acc.apply(e.PartStop(None))
    assert [p.type for p in acc.build().parts] == ["text", "tool_call"]


def test_L43_two_kinds_share_an_index_and_the_older_closes_first():
    acc = fold(tool(0), TEXT, *text(0, "a"), e.PartStop(0))
    assert [p.type for p in acc.parts] == ["tool_call"]


@pytest.mark.parametrize(
    "delta", [e.Text("x"), e.InputJson("{}"), e.ToolCall("{}"), e.Thinking("x")]
)
def test_L40_a_delta_before_any_start_is_dropped(delta):
    acc = fold(e.IndexedDelta(0, delta))
    assert acc.build().parts == ()
    assert acc.text() == ""


@pytest.mark.parametrize("part", [TextPart(""), ToolCallPart("c", "f"), None])
def test_L40_deltas_of_other_kinds_or_indexes_are_dropped(part):
    acc = fold(e.PartStart(1, part))
    kinds = {e.Text: "text", e.InputJson: "tool", e.ToolCall: "tool", e.Thinking: "thinking"}
    own = "thinking" if part is None else {"text": "text", "tool_call": "tool"}[part.type]
    for kind, name in kinds.items():
        acc.apply(e.IndexedDelta(0, kind('{"a":1}')))
        if name != own:
            acc.apply(e.IndexedDelta(1, kind('{"a":1}')))
    acc.apply(e.PartStop(1))
    assert acc.build().parts == ((ToolCallPart("c", "f", {}, ""),) if own == "tool" else ())


def test_L40_a_delta_after_the_stop_is_dropped():
    acc = fold(TEXT, *text(0, "a"), e.PartStop(0), *text(0, "b"))
    assert acc.build().parts == (TextPart("a"),)


@pytest.mark.parametrize("stop", [e.PartStop(7), e.PartStop(None), e.PartStop(0)])
def test_L43_a_stop_for_an_unknown_index_does_nothing(stop):
    assert fold(stop).build().parts == ()


def test_L37_the_legacy_twin_of_input_json():
    acc = fold(tool(0), e.IndexedDelta(0, e.ToolCall('{"a":')), *args(0, "1}"), e.PartStop(0))
    assert acc.build().tool_calls[0].input == {"a": 1}


def test_L42_input_in_the_opening_part_is_ignored():
    acc = fold(e.PartStart(0, ToolCallPart("c", "f", {"a": 1}, '{"a":1}')), e.PartStop(0))
    assert acc.build().tool_calls == (ToolCallPart("c", "f", {}, ""),)


@pytest.mark.parametrize("raw", ["", "  \n", "null", "{}"])
def test_S08_arguments_that_mean_nothing_are_an_empty_object(raw):
    acc = fold(tool(0), *([*args(0, raw)] if raw else []), e.PartStop(0))
    assert acc.build().tool_calls[0].input == {}


@pytest.mark.parametrize(
    "raw", ['{"a":', '{"a":1}}', "{'a':1}", '{"a":NaN}', "Infinity", '{"a":1', "[" * 100_000, "x"]
)
def test_L41_arguments_that_do_not_parse_close_as_unparsed(raw):
    acc = fold(tool(0), *args(0, raw), e.PartStop(0))
    call = acc.build().tool_calls[0]
    assert (call.input, call.raw, call.parsed) == (None, raw, False)


@pytest.mark.parametrize(("raw", "value"), [("[1]", [1]), ('"x"', "x"), ("3", 3), ("false", False)])
def test_L41_json_that_is_no_object_is_kept(raw, value):
    assert parse_arguments(raw) == (True, value)


def test_L43_empty_text_nameless_tool_and_thinking_flush_nothing():
    acc = fold(TEXT, e.PartStop(0), e.PartStart(0, ToolCallPart("c", "")), *args(0, "{}"), e.PartStop(0),
               e.PartStart(0, None), e.IndexedDelta(0, e.Thinking("x")), e.PartStop(0))  # fmt: skip
    assert acc.build().parts == ()
    assert not acc.has_closed_part


def test_L44_open_lanes_are_left_out_of_the_message():
    acc = fold(
        TEXT,
        *text(0, "done"),
        e.PartStop(0),
        e.PartStart(1, TextPart("")),
        *text(1, " half"),
        tool(2),
    )
    assert acc.build().parts == (TextPart("done"),)
    assert acc.text() == "done half"  # but a failing turn can show it


def test_a_lane_opened_twice_ends_where_the_second_begins():
    acc = fold(TEXT, *text(0, "a"), TEXT, *text(0, "b"), e.PartStop(0))
    assert acc.build().parts == (TextPart("a"), TextPart("b"))


def test_an_image_part_opens_a_lane_that_flushes_nothing():
    acc = fold(e.PartStart(0, ImagePart("data:x")), e.PartStop(0))
    assert acc.build().parts == ()


def test_L5a_refusal_text_is_marked_by_its_lane():
    acc = fold(e.PartStart(0, TextPart("", refusal=True)), *text(0, "no"), e.PartStop(0))
    assert acc.build().parts == (TextPart("no", refusal=True),)
    assert acc.build().text_content() == ""


def test_L32_an_unknown_word_keeps_the_stop_reason():
    acc = fold(e.MessageDelta("max_tokens"), e.MessageDelta("because"), e.MessageDelta(None))
    assert acc.stop_reason is StopReason.MAX_TOKENS
    assert fold().stop_reason is StopReason.END_TURN


def test_S13_usage_is_merged_field_by_field():
    acc = fold(
        e.MessageDelta(usage=Usage(25, 1, 900)),
        e.MessageDelta(usage=Usage(25, 9, 900)),
        e.MessageDelta(usage=Usage(output_tokens=15)),
    )
    assert acc.usage == Usage(25, 15, 900)
    assert fold(e.MessageDelta("stop")).usage is None


def test_L5a_the_ending_and_the_providers_word_are_kept():
    acc = fold(e.MessageDelta(ending=Ending.REFUSAL, ending_raw="refusal"), e.MessageDelta())
    assert (acc.ending, acc.ending_raw) == (Ending.REFUSAL, "refusal")


def test_start_stop_and_ping():
    acc = fold(e.MessageStart("m", model="x"), e.Ping())
    assert (acc.message_id, acc.model, acc.ended) == ("m", "x", False)
    acc.apply(e.MessageStop())
    assert acc.ended
    assert acc.build().role is Role.ASSISTANT


def test_L2_provider_state_is_merged_and_lists_grow():
    state = [
        e.IndexedDelta(0, e.ProviderState(d))
        for d in ({"a": 1, "s": [1]}, {"a": 2, "s": [2]}, {"s": "x"})
    ]
    assert fold(*state[:2]).build().provider_state == {"a": 2, "s": [1, 2]}
    assert fold(*state).build().provider_state == {"a": 2, "s": "x"}
    assert fold().build().provider_state is None


# --- properties: how a reply is cut into events never changes what it says


def cuts(draw, whole: str) -> list[str]:
    at = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    return [whole[a:b] for a, b in zip([0, *at], [*at, len(whole)], strict=True)]


@st.composite
def lanes(draw):
    """Up to four lanes, each its start, its fragments and its stop; distinct (kind, index)."""
    out = []
    keys = draw(
        st.lists(st.tuples(st.sampled_from("xtk"), st.integers(0, 3)), unique=True, max_size=4)
    )
    for n, (kind, index) in enumerate(keys):
        if kind == "x":
            whole = draw(st.text(min_size=1))
            part, delta, done = TextPart(""), e.Text, TextPart(whole)
        elif kind == "t":
            value = draw(
                st.dictionaries(
                    st.text(max_size=3), st.integers() | st.text(max_size=5), max_size=3
                )
            )
            whole = json.dumps(value, ensure_ascii=draw(st.booleans()))
            part, delta = ToolCallPart(f"c{n}", "f"), e.InputJson
            done = ToolCallPart(f"c{n}", "f", clean_json(value), whole)
        else:
            whole, part, delta, done = draw(st.text()), None, e.Thinking, None
        deltas = [e.IndexedDelta(index, delta(f)) for f in cuts(draw, whole)]
        out.append((index, e.PartStart(index, part), deltas, done))
    return out


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(lanes())
def test_any_split_of_the_fragments_gives_the_same_parts(given_lanes):
    acc = StreamAccumulator()
    for index, start, deltas, _done in given_lanes:
        for event in (start, *deltas, e.PartStop(index)):
            acc.apply(event)
    assert list(acc.build().parts) == [done for *_, done in given_lanes if done is not None]


@given(lanes(), st.randoms(use_true_random=False))
def test_any_interleaving_gives_the_same_lanes(given_lanes, rnd):
    acc = StreamAccumulator()
    for _, start, _, _ in given_lanes:
        acc.apply(start)
    queues = [list(deltas) for _, _, deltas, _ in given_lanes]
    while any(queues):
        acc.apply(rnd.choice([q for q in queues if q]).pop(0))
        if rnd.random() < 0.2:
            acc.apply(e.Ping())
    for index, *_ in given_lanes:  # oldest first, so a shared index closes in order of opening
        acc.apply(e.PartStop(index))
    assert list(acc.build().parts) == [done for *_, done in given_lanes if done is not None]


EVENTS = st.one_of(
    st.builds(e.PartStart, st.integers(0, 2), st.sampled_from([TextPart(""), ToolCallPart("c", "f"), None])),
    st.builds(e.IndexedDelta, st.integers(0, 2), st.sampled_from([e.Text("a"), e.InputJson("{"), e.ToolCall("}"), e.Thinking("t")])),
    st.builds(e.PartStop, st.sampled_from([0, 1, 2, None])),
    st.builds(e.MessageDelta, st.sampled_from(["stop", "tool_calls", "odd", None])),
    st.sampled_from([e.Ping(), e.MessageStop(), e.MessageStart("m")]),
)  # fmt: skip


@given(st.lists(EVENTS, max_size=40))
def test_no_sequence_of_events_raises_and_closed_parts_never_change(events):
    acc, before = StreamAccumulator(), ()
    for event in events:
        acc.apply(event)
        now = acc.build().parts
        assert now[: len(before)] == before
        assert all("t" not in p.text for p in now if isinstance(p, TextPart))
        before = now
