"""What a turn and a whole run through AgentRuntime cost.

CPU time, medians: a turn (``LlmTurn.do_turn``: request, ladder, lanes, breaker, observers) and a
whole run of one turn (admission, policy, context, seven records, memory store), over our client,
against reading the same stream with plain httpx lines, taken in one process against one server
on loopback.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from bench.kit import Row, ratio_row, server
from bench.wire import FORMATS, Lines, history, plain, ratio
from notebook_agent.core.messages import Message
from notebook_agent.core.request import RequestOptions
from notebook_agent.engine.runtime import AgentRuntime
from notebook_agent.engine.turn_values import TurnContext
from notebook_agent.providers.openai_chat import OpenAIChat


class Runs:
    """One run each time, on a session with a history of ``k`` messages that is not kept."""

    def __init__(self, base: str) -> None:
        self.client = OpenAIChat("bench-1", base_url=base + "/v1", key="test-key-0123456789")
        self.runtime = AgentRuntime(self.client)

    async def turn(self, n: int, messages: tuple[Message, ...]) -> int:
        options = RequestOptions(model=f"bench-{n}")
        await self.runtime.arun(messages[-1].text_content(), options=options, fresh=True)
        return n


class Turns(Runs):
    """One LLM turn each time, without the loop around it."""

    async def turn(self, n: int, messages: tuple[Message, ...]) -> int:
        llm = self.runtime.llm
        options = RequestOptions(model=f"bench-{n}")
        await llm.do_turn(
            0, (), TurnContext(conversation=messages, route=llm.route(0), options=options)
        )
        return n


async def against_httpx(base: str, quick: bool) -> list[Row]:
    few, many = (10, 3) if quick else (60, 9)
    lines, one = Lines(base, FORMATS["openai-chat"][3]), history(1)
    out = []
    for name, kind in (("turn through the engine", Turns), ("whole run with its records", Runs)):
        ours = kind(base)
        for label, n, reps, goal in (("one delta", 1, few, 1.3), ("1,000 deltas", 1000, many, 1.0)):
            _, a, b = await ratio(lines, plain(one), ours, one, n, reps)
            limit = goal if kind is Turns else None
            out.append(ratio_row(1, f"{name}, {label}", b, a, limit, yard="httpx lines"))
        await ours.client.aclose()
    await lines.aclose()
    return out


def rows(quick: bool) -> Iterator[Row]:
    """The rows of this bench."""
    with server() as base:
        yield from asyncio.run(against_httpx(base, quick))
