"""The frame of a run, and small values beside it: JSON and back, texts, pixels (L92, B72, T05)."""

from __future__ import annotations

import pytest

from notebook_agent.core import outcomes as o
from notebook_agent.core.messages import ImagePart, Message, TextPart, ToolCallPart, ToolResultPart
from notebook_agent.core.pixels import pixel_size
from notebook_agent.core.response import ChatResponse, Ending, StopReason, Usage
from notebook_agent.core.result import RunResult
from notebook_agent.core.run_frame import RunFrame
from notebook_agent.core.sendable import cleaned
from notebook_agent.core.session import Run, RunStatus
from notebook_agent.core.turn_fsm import TurnState


def frame() -> RunFrame:
    one = RunFrame(run_id="r", session_id="s")
    one.accept_input(Message.user("q", id="m1"), "q")
    one.begin_turn()
    one.state = TurnState.CALLING_MODEL
    one.facts.failed_usage = Usage(input_tokens=9)
    one.facts.over = o.ContextOverBudget(9, 8, "provider")
    reply = Message.assistant("a", id="m2")
    one.model_response(
        ChatResponse(reply, StopReason.MAX_TOKENS, Usage(1, 2), "p:m", Ending.PAUSE, "pause_turn")
    )
    one.spend(12, estimated=True)
    one.add_usage(Usage(1, 2))
    return one


def test_L92_a_frame_comes_back_equal_at_any_point() -> None:
    for state in TurnState:
        one = frame()
        one.state = state
        assert RunFrame.from_json(one.to_json(), list(one.pending)) == one


def test_a_frame_without_its_reply_is_refused() -> None:
    one = frame()
    with pytest.raises(ValueError, match="m2"):
        RunFrame.from_json(one.to_json(), one.pending[:1])


def test_T02_arguments_are_cleaned_where_they_enter() -> None:
    call = ToolCallPart("c", "f", {"a\x00": "\ud83d"}, '{"a\x00": 1}')
    (part,) = cleaned(Message.user("x").__class__(Message.assistant("").role, (call,))).parts
    assert isinstance(part, ToolCallPart)
    assert part.input == {"a\ufffd": "\ufffd"}
    assert part.raw == '{"a\ufffd": 1}'


def test_every_part_shows_and_comes_back() -> None:
    image = ImagePart("data:image/png;base64,AAAA", 3, 4)
    parts = (
        TextPart("t"), TextPart("no", refusal=True), image, ImagePart("https://h/x.png"),
        ToolCallPart("c", "f", {"a": 1}, '{"a":1}'), ToolCallPart("d", "f", None, '{"a'),
        ToolResultPart("c", "f", "out"), ToolResultPart("d", "f", "bad", True, (image,)),
    )  # fmt: skip
    one = Message(Message.user("").role, parts, id="m", provider_state={"model": "p:m"})
    assert Message.from_json(one.to_json()) == one
    shown = one.display_text().splitlines()
    assert shown[1] == "[refusal: no]"
    assert shown[-2:] == ["[result of f: out]", "[error of f: bad]"]
    assert one.text_content() == "t"


def test_X03_a_result_prints_its_text_and_shows_control_codes() -> None:
    run = Run(id="r", input="q", start=0.0, status=RunStatus.COMPLETED)
    result = RunResult(text="a\x1b[2J", run=run)
    printed: list[str] = []

    class Printer:
        text = staticmethod(printed.append)

    result._repr_pretty_(Printer(), cycle=False)
    assert str(result) == "a\x1b[2J"
    assert printed == ["a␛[2J"]
    assert len(result.frame) == 0


def test_T05_a_jpeg_with_fill_bytes_has_a_size() -> None:
    size = (640).to_bytes(2, "big") + (480).to_bytes(2, "big")
    frame_head = b"\xff\xff\xff\xc0\x00\x11\x08" + size + b"\x03"
    raw = b"\xff\xd8\xff\xe0\x00\x04ab" + frame_head + b"\x00" * 20
    assert pixel_size(raw) == (480, 640)
    assert pixel_size(raw[:12]) is None
