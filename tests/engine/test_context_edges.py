"""engine/context_pipeline.py and conversation.py: windows, and state of adapters (K06, L2)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from notebook_agent.core.compaction import CompactionPolicy
from notebook_agent.core.messages import Message, Role, TextPart, ToolCallPart, ToolResultPart
from notebook_agent.core.policy import RuntimePolicy
from notebook_agent.engine.context_pipeline import effective_window, pending_view
from notebook_agent.engine.conversation import Conversation


@dataclass
class Served:
    window: int | None


@pytest.mark.parametrize(
    ("model", "configured", "limit", "window"),
    [
        (8_000, None, None, 8_000),
        (None, None, None, CompactionPolicy().window),
        (8_000, 5_000, None, 5_000),
        (5_000, 8_000, None, 5_000),
        (8_000, None, 3_000, 3_000),
        (8_000, 5_000, 9_000, 5_000),
        (8_000, 0, 3_000, 0),  # 0 = never compact
    ],
)
def test_3_3_20_one_window_of_model_settings_and_limit(model, configured, limit, window):
    compaction = CompactionPolicy() if configured is None else CompactionPolicy(window=configured)
    policy = RuntimePolicy(max_input_tokens=limit)
    assert effective_window(Served(model), policy, compaction) == window


def with_state(text, model):
    said = Message(Role.ASSISTANT, (TextPart(text), ToolCallPart("c", "f", {})))
    return replace(said, provider_state={"model": model, "signature": "s"})


RESULT = Message.tool_results((ToolResultPart("c", "f", "out"),))


def test_K06_an_adapters_state_goes_back_only_to_its_model_in_the_open_exchange():
    pending = [Message.user("one"), with_state("a", "m"), RESULT, Message.user("two"), with_state("b", "m"), RESULT]  # fmt: skip
    states = [m.provider_state is not None for m in pending_view(pending, "m")]
    assert states == [False, False, False, False, True, False]
    assert all(m.provider_state is None for m in pending_view(pending, "other"))
    assert all(m.provider_state is not None for m in (pending[1], pending[4]))  # theirs stay


def test_K06_a_message_without_anything_to_send_is_left_out():
    empty = Message(Role.ASSISTANT, ())
    assert [m.role for m in pending_view([Message.user("one"), empty], "m")] == [Role.USER]


def test_L2_when_the_exchange_is_over_no_adapters_state_is_kept():
    talk = Conversation([Message.user("one"), with_state("a", "m"), RESULT])
    talk.close_exchange()
    assert all(m.provider_state is None for m in talk.messages)
    assert [m.text_content() for m in talk.messages][:2] == ["one", "a"]
