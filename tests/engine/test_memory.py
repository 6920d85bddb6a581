"""LoopMemory: scoring, gists, consolidation, the message."""

from __future__ import annotations

import asyncio

import pytest

from notebook_agent.core.messages import Role, ToolCallPart, ToolResultPart
from notebook_agent.engine.memory import (
    InMemoryLoopMemory,
    LoopMemory,
    MemoryEntry,
    gists_of,
    memory_message,
)
from notebook_agent.errors import ConfigError


def test_L111_the_score():
    memory = InMemoryLoopMemory()
    entry = MemoryEntry(text="The red box is in Riga", tags=("box finder",), relevance=0.8)
    assert memory.score(entry, "red box") == pytest.approx(0.5 * 0.8 + 0.4 + 0.1)
    assert memory.score(entry, "red door") == pytest.approx(0.5 * 0.8 + 0.2 + 0.1)
    assert memory.score(entry, "box") == pytest.approx(0.5 * 0.8 + 0.4 + 0.3 + 0.1)
    assert memory.score(entry, "") == pytest.approx(0.5 * 0.8 + 0.1)


def test_L111_only_successful_calls_and_500_characters_each():
    calls = [
        ToolCallPart("a", "find", {"q": "x" * 900}),
        ToolCallPart("b", "find", {"q": "bad"}),
        ToolCallPart("c", "find", {}),
    ]
    results = [
        ToolResultPart("a", "find", "y" * 900),
        ToolResultPart("b", "find", "boom", is_error=True),
    ]
    (entry,) = gists_of(calls, results)
    assert entry.tags == ("find",)
    assert entry.text.count("x") == 500 - len('{"q": "')
    assert entry.text.count("y") == 500


def test_L111_recall_gives_one_reference_message_of_the_best():
    memory = InMemoryLoopMemory()
    assert asyncio.run(memory.recall("red", 3)) is None
    for n in range(6):
        memory.add(MemoryEntry(text=f"note {n} {'red ' if n % 2 else 'blue'}"))
    message = asyncio.run(memory.recall("red", 2))
    assert message.role is Role.USER
    text = message.text_content()
    assert "not instruction" in text
    assert text.endswith("- note 5 red \n- note 3 red ")
    assert asyncio.run(memory.recall("red", 0)) is None
    assert memory_message([]) is None


def test_consolidation_raises_what_is_used_and_drops_what_is_not():
    memory = InMemoryLoopMemory(fade=0.5)
    memory.add(MemoryEntry(text="used apple"))
    memory.add(MemoryEntry(text="idle pear", relevance=0.3))

    async def work():
        for _ in range(3):
            await memory.recall("used apple", 1)
            await memory.consolidate("q", "a")

    asyncio.run(work())
    (left,) = memory.entries
    assert (left.text, left.relevance, left.uses) == ("used apple", 1.0, 3)
    assert memory.to_json() == [{"text": "used apple", "tags": [], "relevance": 1.0, "uses": 3}]


def test_known_texts_are_kept_once_and_the_size_is_bounded():
    memory = InMemoryLoopMemory(most=3)
    memory.add(MemoryEntry(text="a", tags=("t",)))
    memory.add(MemoryEntry(text="a", tags=("u",), relevance=0.9))
    assert memory.entries == [MemoryEntry(text="a", tags=("t", "u"), relevance=0.9)]
    for n in range(5):
        memory.add(MemoryEntry(text=f"n{n}", relevance=0.1 * (n + 1)))
    assert [e.text for e in memory.entries] == ["a", "n3", "n4"]


def test_it_is_a_loop_memory_and_notes_a_turn():
    memory = InMemoryLoopMemory()
    assert isinstance(memory, LoopMemory)
    call, result = ToolCallPart("a", "now", {}), ToolResultPart("a", "now", "noon")
    asyncio.run(memory.note(0, [call], [result]))
    assert [e.text for e in memory.entries] == ["now({}) gave: noon"]


@pytest.mark.parametrize(("field", "value"), [("most", 0), ("fade", 1), ("fade", -0.1)])
def test_invalid_settings(field, value):
    with pytest.raises(ConfigError):
        InMemoryLoopMemory(**{field: value})
