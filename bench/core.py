"""The pure parts: resolve, replay, fold, and the estimate of a long context."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from bench.kit import Row, cpu, timed_row
from bench.store import records_of
from bench.wire import TEXT
from notebook_agent.core.context import estimate_context
from notebook_agent.core.messages import Message
from notebook_agent.core.replay import replay
from notebook_agent.core.run_state import fold
from notebook_agent.core.session import Session
from notebook_agent.core.turn_fsm import resolve
from notebook_agent.engine.runtime import AgentRuntime
from notebook_agent.engine.tokenizer import default_counter
from notebook_agent.providers.scripted import ScriptedModel

OUTCOMES = 10_000
CALLS = 500


def estimate_row() -> Row:
    """What one estimate of the next request costs, history of 1,000 messages, one more each time."""
    old: list[Message] = []
    for n in range(500):
        old += [Message.user(f"{n}: {TEXT}", id=f"q{n}"), Message.assistant(TEXT, id=f"a{n}")]
    runtime = AgentRuntime(
        ScriptedModel(["ok"]),
        session=Session(id="bench", history=old),
        counter=default_counter(kind="estimate"),
        system="Be brief.",
    )
    talk, counter = runtime.state.conversation, runtime.counter
    pipeline = runtime.pipeline()

    fresh = (Message.user(f"{n}: {TEXT}", id=f"m{n}") for n in itertools.count())
    more = iter([next(fresh) for _ in range(CALLS * 6)])  # each call meets one it has not counted

    def once() -> None:
        talk.append((next(more),))
        talk.tokens(counter)
        pipeline.overhead.parts(counter, "Be brief.", ())
        estimate_context(counter, ())

    return timed_row(
        1, "context estimate at 1,000 messages", cpu(once, times=5, inner=CALLS // 5), "us", 50
    )


def rows(quick: bool) -> Iterator[Row]:
    """The rows of this bench."""
    yield estimate_row()
    records = records_of(OUTCOMES // 6 + 1)[:OUTCOMES]
    assert replay(records).ok
    times = 3 if quick else 5
    one = cpu(lambda: [resolve(r.state, r.outcome) for r in records], times=times) / OUTCOMES
    yield timed_row(3, "resolve", one, "us", 2)
    taken = cpu(lambda: replay(records), times=times)
    yard = ("resolve alone", one * OUTCOMES)
    yield timed_row(3, "replay of 10,000 outcomes", taken, "ms", 50, yard=yard)
    folded = cpu(lambda: fold(records), times=times)
    yield timed_row(3, "projection of 10,000 records", folded, "ms", None, yard=yard)
