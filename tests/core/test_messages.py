"""core/messages.py (L1-L3)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_agent.core.messages import (
    ImagePart,
    Message,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
IMAGES = st.builds(ImagePart, TEXT) | st.builds(
    ImagePart, TEXT, st.integers(1, 9), st.integers(1, 9)
)
PARTS = (
    st.builds(TextPart, TEXT, st.booleans())
    | IMAGES
    | st.builds(ToolCallPart, TEXT, TEXT, st.none() | st.dictionaries(TEXT, TEXT), TEXT)
    | st.builds(ToolResultPart, TEXT, TEXT, TEXT, st.booleans(), st.lists(IMAGES).map(tuple))
)
MESSAGES = st.builds(
    Message, st.sampled_from(Role), st.lists(PARTS, max_size=4).map(tuple), TEXT,
    st.none() | st.dictionaries(TEXT, TEXT),
)  # fmt: skip


@given(MESSAGES)
def test_L1_json_round_trip(message: Message) -> None:
    assert Message.from_json(json.loads(json.dumps(message.to_json()))) == message


def test_unknown_part_and_role_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown part type 'video'"):
        Message.from_json({"role": "user", "parts": [{"type": "video"}]})
    with pytest.raises(ValueError, match="robot"):
        Message.from_json({"role": "robot", "parts": []})


def test_L3_text_content_and_display_differ_by_design() -> None:
    message = Message(
        Role.ASSISTANT,
        (
            TextPart("a"),
            TextPart("no", refusal=True),
            ToolCallPart("c", "find", {"q": 1}),
            ToolCallPart("d", "find", None, '{"q'),
            TextPart("b"),
            ImagePart("data:image/png;base64,AAAA"),
            ToolResultPart("c", "find", "ok"),
            ToolResultPart("d", "find", "bad", is_error=True),
        ),
    )
    assert message.text_content() == "ab"
    assert message.display_text().splitlines() == [
        "a",
        "[refusal: no]",
        "[call find {'q': 1}]",
        '[call find {"q]',
        "b",
        "[image data:image/png;base64,AAAA]",
        "[result of find: ok]",
        "[error of find: bad]",
    ]
    assert [c.parsed for c in message.tool_calls] == [True, False]
    assert [r.is_error for r in message.results] == [False, True]


def test_constructors_and_memo() -> None:
    result = ToolResultPart("c", "f", "x")
    assert Message.tool_results((result,)).role is Role.USER
    message = Message.assistant("hi", id="m1")
    message.memo["k"] = 1
    assert message == Message.assistant("hi", id="m1")
    assert message.with_id("m2").id == "m2"
    assert message.with_id("m2").memo == {}
    assert Message.user("q").text_content() == "q"
