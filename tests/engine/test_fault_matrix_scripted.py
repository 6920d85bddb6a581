"""The scripted model's own faults, every kind at every delta, alone, in pairs and without end:
the reply is exact, or the error is one of ours. Virtual time: waits cost nothing (D11, L54-L64).
"""

from __future__ import annotations

from collections import Counter

from notebook_agent.core.agent_events import AttemptFailed
from notebook_agent.core.breaker import Breaker, BreakerConfig
from notebook_agent.core.messages import Message, ToolCallPart
from notebook_agent.core.request import TurnMode
from notebook_agent.core.response import StopReason, Usage
from notebook_agent.core.route import Route
from notebook_agent.engine.cancel import CancelSignal
from notebook_agent.engine.llm_turn import LlmTurn
from notebook_agent.engine.observers import Observer, ObserverHub
from notebook_agent.engine.turn_values import TurnContext
from notebook_agent.errors import AgentError, ProviderError, RateLimitEscalation
from notebook_agent.providers.scripted import Reply, ScriptedModel
from tests.conftest import fixed_surroundings, run_virtual

THOUGHT = "The tide turns"
DELTAS = ("Žag", "arė ", "🦉", " hi")
TEXT = "".join(DELTAS)
CALLS = (
    ToolCallPart("c1", "find", {"q": "ice"}, '{"q": "ice"}'),
    ToolCallPart("c2", "find", {"q": "sun"}, '{"q": "sun"}'),
)
REPLY = Reply(deltas=DELTAS, thinking=THOUGHT, tool_calls=CALLS, usage=Usage(9, 7), interleave=True)
COUNT = len(DELTAS) + 3 + 2 * 2  # deltas of the whole reply: text, thinking, arguments
PLACED = ("drop", "hang", "trunc", "malformed", "error")
STATUSES = ("500", "503", "529", "408", "429:2", "429")
PERMANENT = ("400", "401", "403", "404", "quota", "overflow")
SLOW = "slow@30"


class View(Observer):
    """What a reader sees; never a mixture."""

    def __init__(self) -> None:
        self.text, self.thought = "", ""
        self.resets = self.failures = 0

    def on_text_delta(self, ctx) -> None:
        self.text += ctx.delta
        assert TEXT.startswith(self.text), self.text

    def on_thinking_delta(self, ctx) -> None:
        self.thought += ctx.delta
        assert THOUGHT.startswith(self.thought), self.thought

    def on_attempt_reset(self, _ctx) -> None:
        self.text, self.thought = "", ""
        self.resets += 1

    def on_stream_failure(self, _ctx) -> None:
        self.failures += 1


async def turn(script: str, mode: TurnMode = TurnMode.STREAMING):
    """One turn against a script: ``(served or None, view, error or None, events, model)``."""
    model, view, events = ScriptedModel([REPLY], script=script), View(), []
    llm = LlmTurn(
        resolve_client=lambda _: model,
        breaker=Breaker(BreakerConfig(), "scripted:scripted"),
        hub=ObserverHub([view]),
        emit=events.append,
        cancel=CancelSignal(),
        surroundings=fixed_surroundings(),
        mode=mode,
    )
    context = TurnContext(conversation=(Message.user("hi"),), route=Route("scripted:scripted"))
    served = failure = None
    try:
        served = await llm.do_turn(0, (), context)
    except AgentError as error:
        failure = error
    assert model.open_streams == 0
    return served, view, failure, events, model


def check_whole(served, view, mode: TurnMode = TurnMode.STREAMING) -> None:
    reply = served.response
    assert reply.message.text_content() == TEXT
    assert reply.message.tool_calls == CALLS
    assert (reply.stop_reason, reply.usage) == (StopReason.TOOL_CALL, Usage(9, 7))
    assert view.failures == 0
    if mode is TurnMode.STREAMING:
        assert view.text == TEXT
        assert view.thought in (THOUGHT, "")  # a rescued reply brings no reasoning
        assert view.resets >= served.attempts - 1


def check_failed(view, error) -> None:
    assert isinstance(error, (ProviderError, RateLimitEscalation)), error
    assert TEXT.startswith(error.partial_text)
    assert view.failures == 1


def words() -> list[str]:
    """Every transient fault at every place: before the first event, after n deltas, at the end."""
    placed = [f"{kind}@{at}" for kind in PLACED for at in range(COUNT + 2)]
    return [*PLACED, *placed, *STATUSES]


def kind_of(word: str) -> str:
    return word.partition("@")[0]


def test_one_scripted_fault_anywhere_then_the_exact_reply(capsys) -> None:
    runs, retried = Counter(), Counter()

    async def all_of_them() -> None:
        for word in (*words(), SLOW):
            served, view, error, events, model = await turn(f"{word},ok")
            assert error is None, (word, error)
            check_whole(served, view)
            failed = [e for e in events if type(e) is AttemptFailed]
            assert len(failed) == served.attempts - 1 == len(model.calls) - 1, word
            runs[kind_of(word)] += 1
            retried[kind_of(word)] += served.attempts > 1

    run_virtual(all_of_them())
    assert all(retried[kind] == n for kind, n in runs.items() if kind != "slow")
    assert retried["slow"] == 0
    with capsys.disabled():
        print(f"\nfault matrix, scripted: {sum(runs.values())} runs, {dict(runs)}")


def test_every_pair_of_scripted_faults_then_the_exact_reply(capsys) -> None:
    runs = Counter()
    firsts = [w for w in words() if not w.startswith("429")]

    async def pairs_with(first: str) -> None:
        for second in [*words()[::3], *STATUSES]:
            served, view, error, _events, model = await turn(f"{first},{second},ok")
            assert error is None, (first, second, error)
            both_hang = kind_of(first) == kind_of(second) == "hang"  # then the total is spent
            assert served.attempts == 3 or (both_hang and served.rescued), (first, second)
            assert len(model.calls) == 3
            check_whole(served, view)
            runs[kind_of(first), kind_of(second)] += 1

    for first in firsts:  # a loop each: hanging takes days of virtual time
        run_virtual(pairs_with(first))
    assert len(runs) >= 9 * 10
    with capsys.disabled():
        print(f"\nfault matrix, scripted pairs: {sum(runs.values())} runs of {len(runs)} pairs")


def test_a_scripted_model_that_always_fails_gives_a_typed_error(capsys) -> None:
    runs, ends = Counter(), Counter()

    async def all_of_them() -> None:
        for word in words():
            served, view, error, _events, model = await turn(word)
            assert served is None, word
            check_failed(view, error)
            limit = 4 if word.startswith("429") else 5  # the ladder, and the rescue
            assert len(model.calls) <= limit, (word, len(model.calls))
            runs[kind_of(word)] += 1
            ends[type(error).__name__] += 1
        for word in PERMANENT:
            served, view, error, _events, model = await turn(word)
            check_failed(view, error)
            assert len(model.calls) == 1, word  # one attempt, no rescue (L58.2)
            runs[word] += 1

    run_virtual(all_of_them())
    with capsys.disabled():
        print(f"\nfault matrix, scripted, always: {sum(runs.values())} runs, {dict(ends)}")


def test_the_rescue_after_a_ladder_of_scripted_faults_is_the_exact_reply(capsys) -> None:
    runs = 0

    async def all_of_them() -> None:
        nonlocal runs
        for word in words():
            if word.startswith("429"):
                continue  # a rate limit is never rescued (L59)
            # hanging, the total of 300 s ends the ladder before its fourth attempt
            tries = 3 if word == "hang" else 2 if word.startswith("hang") else 4
            served, view, error, _events, model = await turn(f"{word}*{tries},ok")
            assert error is None, (word, error)
            check_whole(served, view)
            assert served.rescued, word
            assert len(model.calls) == tries + 1
            runs += 1

    run_virtual(all_of_them())
    with capsys.disabled():
        print(f"\nfault matrix, scripted, rescued: {runs} runs")


def test_unstreamed_scripted_faults_are_one_request_exact_or_typed(capsys) -> None:
    ends = Counter()

    async def all_of_them() -> None:
        for word in (*words(), *PERMANENT, SLOW, "ok"):
            served, view, error, _events, model = await turn(word, TurnMode.NON_STREAMING)
            assert len(model.calls) == 1, word  # L26
            if error is None:
                assert word in (SLOW, "ok")
                check_whole(served, view, TurnMode.NON_STREAMING)
                ends["whole"] += 1
            else:
                assert isinstance(error, ProviderError), error
                assert view.failures == 1
                ends[error.kind.value] += 1

    run_virtual(all_of_them())
    with capsys.disabled():
        print(f"\nfault matrix, scripted, unstreamed: {sum(ends.values())} runs, {dict(ends)}")
