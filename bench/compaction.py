"""How long a compaction pass takes: CPU milliseconds, median of five, beside a yardstick.

Run:  python -m bench.compaction
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time

from notebook_agent.core.compaction import CompactionPolicy
from notebook_agent.core.messages import Message, Role, ToolCallPart, ToolResultPart
from notebook_agent.engine.compactor import CompactionService

SIZES = (100, 1_000, 10_000)
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


def cpu_ms(work) -> float:
    """Median of five, in CPU milliseconds; the first call warms up and is not counted."""
    work()
    times = []
    for _ in range(5):
        began = time.process_time()
        work()
        times.append((time.process_time() - began) * 1e3)
    return statistics.median(times)


def main() -> None:
    print(f"{'messages':>9} {'strategy':<11} {'ms':>8} {'x yardstick':>12}  applied")
    for count in SIZES:
        messages = history(count)
        yardstick = cpu_ms(lambda given=messages: [json.dumps(m.to_json()) for m in given])
        for strategy in ("truncate", "extractive"):
            policy = CompactionPolicy(strategy=strategy, window=max(count * 10, 2_000))
            results = []

            def one(policy=policy, given=messages, results=results) -> None:
                service = CompactionService(policy, Characters())
                results.append(asyncio.run(service.compact(given, window=policy.window)))

            took = cpu_ms(one)
            note = ""
            if strategy == "truncate" and count == 10_000:
                note = f"  goal {GOAL_MS:g} ms: {'met' if took <= GOAL_MS else 'MISSED'}"
            print(
                f"{count:>9,} {strategy:<11} {took:>8.1f} {took / yardstick:>12.2f}  "
                f"{results[-1].applied}{note}"
            )
    print("yardstick: json.dumps of every message in the same run")


if __name__ == "__main__":
    main()
