"""L7, L10-L13: what is sent, and what rides beside it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_agent.core.messages import Message
from notebook_agent.core.request import (
    RequestOptions,
    ToolConstraint,
    ToolSchema,
    TurnMode,
    build_turn_request,
)

A, B, C = (Message.user(x) for x in "abc")


def test_L10_transients_first_then_history_and_pending():
    assert build_turn_request([C], [A, B]).messages == (C, A, B)


@given(st.lists(st.text(), max_size=5), st.lists(st.text(), max_size=5))
def test_L10_order_is_kept_and_nothing_is_lost(transients, history):
    request = build_turn_request(
        [Message.user(t) for t in transients], [Message.user(t) for t in history]
    )
    assert [m.text_content() for m in request.messages] == transients + history


@pytest.mark.parametrize("system", [None, ""])
def test_L11_an_absent_system_prompt_is_an_absent_field(system):
    assert build_turn_request([], [A], system=system).system is None


def test_L11_the_system_prompt_is_no_message():
    request = build_turn_request([], [A], system="Be brief")
    assert (request.system, request.messages) == ("Be brief", (A,))


def test_L12_no_tools_is_none_never_an_empty_list():
    assert build_turn_request([], [A], tools=[]).tools is None
    assert build_turn_request([], [A], tools=[ToolSchema("f")]).tools == (ToolSchema("f"),)


@pytest.mark.parametrize("model", ["", "   ", "\n"])
def test_L7_a_blank_model_is_ignored(model):
    assert RequestOptions(model=model).model is None


def test_L13_a_cells_options_beat_the_runtimes_field_by_field():
    base = RequestOptions(model="a", tool_constraint=ToolConstraint.STRICT, extra={"x": 1, "y": 1})
    cell = RequestOptions(response_format={"type": "json_object"}, extra={"y": 2})
    assert base.merged(cell) == RequestOptions(
        "a", {"type": "json_object"}, ToolConstraint.STRICT, {"x": 1, "y": 2}
    )
    assert base.merged(RequestOptions()) == base
    assert RequestOptions().merged(base) == base


def test_enums_are_stable_words():
    assert [m.value for m in TurnMode] == ["streaming", "non_streaming"]
    assert [c.value for c in ToolConstraint] == ["strict", "grammar"]
