"""How long a compaction pass takes: CPU milliseconds, median of five, beside a yardstick."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

from bench.kit import Row, cpu, timed_row
from notebook_agent.core.compaction import CompactionPolicy
from notebook_agent.core.messages import Message, Role, ToolCallPart, ToolResultPart
from notebook_agent.engine.compactor import CompactionService

SIZES = (1_000, 10_000)
GOAL_MS = 50.0  # truncating 10,000 messages


class Characters:
    """Four characters a token: the pass is measured, not a tokenizer."""

    name = "characters"
    exact = False

    def count_text(self, text: str) -> int:
        return len(text) // 4 + 1

    def count_message(self, message: Message) -> int:
        return 4 + sum(len(str(part)) for part in message.parts) // 4

    def count_overhead(self, system, tools) -> int:
        return 0


def history(count: int) -> list[Message]:
    """Questions, calls, results and answers, ``count`` messages in all."""
    out: list[Message] = []
    for n in range(count // 4):
        call = ToolCallPart(f"c{n}", "look", {"box": n})
        out += [
            Message.user(f"What is in box {n}? Please tell me shortly. It is for Marija."),
            Message(Role.ASSISTANT, (call,)),
            Message.tool_results((ToolResultPart(f"c{n}", "look", f"{n * 3} apples and a map"),)),
            Message.assistant(f"Box {n} holds {n * 3} apples and a map. Anything else?"),
        ]
    return [m.with_id(f"m{at}") for at, m in enumerate(out)]


def rows(quick: bool) -> Iterator[Row]:
    """The rows of this bench."""
    for count in SIZES[1:] if quick else SIZES:
        messages = history(count)
        base = cpu(lambda given=messages: [json.dumps(m.to_json()) for m in given])
        for strategy in ("truncate", "extractive"):
            policy = CompactionPolicy(strategy=strategy, window=max(count * 10, 2_000))

            def one(policy=policy, given=messages) -> None:
                service = CompactionService(policy, Characters())
                result = asyncio.run(service.compact(given, window=policy.window))
                assert result.applied, result

            goal = GOAL_MS if (strategy, count) == ("truncate", 10_000) else None
            yield timed_row(
                3, f"compaction of {count:,} messages, {strategy}", cpu(one), "ms", goal,
                yard=("json.dumps of each", base),
            )  # fmt: skip
