"""core/context.py (L17, L18, L20)."""

from __future__ import annotations

from notebook_agent.core.context import ContextEstimate, estimate_context, sum_tokens
from notebook_agent.core.messages import Message


class Words:
    """Counts words, and how often it was asked."""

    name = "words"
    exact = True

    def __init__(self) -> None:
        self.asked = 0

    def count_text(self, text: str) -> int:
        return len(text.split())

    def count_message(self, message: Message) -> int:
        self.asked += 1
        return self.count_text(message.text_content()) + 1

    def count_overhead(self, system, tools) -> int:
        return 0


def test_L17_the_estimate_is_the_sum_of_its_parts() -> None:
    counter = Words()
    history = [Message.user("one two"), Message.assistant("three")]
    estimate = estimate_context(counter, history, [Message.user("extra")], system=7, tools=20)
    assert estimate == ContextEstimate(system=7, tools=20, transients=2, history=5, exact=True)
    assert estimate.overhead == 27
    assert estimate.total == 34
    assert estimate.parts() == {"system": 7, "tools": 20, "transients": 2, "history": 5}


def test_L20_each_message_is_counted_once_per_counter() -> None:
    counter, other = Words(), Words()
    other.name = "other"
    messages = [Message.user("a b"), Message.user("c")]
    assert sum_tokens(counter, messages) == sum_tokens(counter, messages) == 5
    assert counter.asked == 2
    sum_tokens(other, messages)
    assert other.asked == 2
