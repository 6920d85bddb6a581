"""LiveObserver: thread-safe, merging, nothing lost; with the real engine."""

from __future__ import annotations

import threading
import time
from itertools import pairwise

import pytest

from notebook_agent.core import agent_events as ev
from notebook_agent.core.session import Run, RunStatus, Session, Turn, UnservedTurn
from notebook_agent.engine import observers as ob
from notebook_agent.notebook.live import LiveObserver, breaker_view, reduce_all
from notebook_agent.notebook.naps import NAP_S, TICK_S
from notebook_agent.notebook.panel_state import Appended, Ask, Ended, Opened, RowAdded, Ticked
from notebook_agent.notebook.view import LiveView
from tests.notebook.recorded import A, B, breaker


def texts(events, lane="text") -> str:
    return "".join(e.text for e in events if isinstance(e, Appended) and e.lane == lane)


def test_a_thousand_deltas_are_one_event() -> None:
    live = LiveObserver(now=lambda: 5.0)
    for i in range(1000):
        live.on_text_delta(ob.TextDelta(0, f"{i} "))
    events = live.drain()
    assert [type(e) for e in events] == [Opened, Appended]
    assert texts(events) == "".join(f"{i} " for i in range(1000))
    assert live.drain() == [Ticked(at=5.0)]


def test_lanes_and_turns_are_not_mixed() -> None:
    live = LiveObserver()
    live.on_thinking_delta(ob.ThinkingDelta(0, "hm "))
    live.on_thinking_delta(ob.ThinkingDelta(0, "ok"))
    live.on_text_delta(ob.TextDelta(0, "a"))
    live.on_text_delta(ob.TextDelta(1, "b"))
    got = [(e.lane, e.turn, e.text) for e in live.drain() if isinstance(e, Appended)]
    assert got == [("thinking", 0, "hm ok"), ("text", 0, "a"), ("text", 1, "b")]


def test_order_is_kept_across_other_events() -> None:
    live = LiveObserver()
    live.on_text_delta(ob.TextDelta(0, "a"))
    live.on_attempt_reset(ob.AttemptResetInfo(0, 2, "cut"))
    live.on_text_delta(ob.TextDelta(0, "b"))
    kinds = [type(e).__name__ for e in live.drain()]
    assert kinds == ["Opened", "Appended", "Voided", "Appended"]


def test_threads_lose_nothing() -> None:
    live = LiveObserver()
    stop = threading.Event()
    seen: list = []

    def engine() -> None:
        for i in range(20_000):
            live.on_text_delta(ob.TextDelta(0, f"{i},"))
        stop.set()

    thread = threading.Thread(target=engine)
    thread.start()
    while not stop.is_set():
        seen += live.drain()
    thread.join()
    seen += live.drain()
    assert texts(seen) == "".join(f"{i}," for i in range(20_000))


def test_a_delta_costs_a_few_microseconds() -> None:
    live = LiveObserver()
    delta = ob.TextDelta(0, "word ")
    best = float("inf")
    for _ in range(5):
        start = time.process_time()
        for _ in range(20_000):
            live.on_text_delta(delta)
        best = min(best, (time.process_time() - start) / 20_000)
        live.drain()
    assert best < 6e-6


def test_rows_of_this_run_only() -> None:
    old = Run(id="old", input="x", turns=[Turn(turn=0, input="x", output="y")])
    session = Session(runs=[old])
    live = LiveObserver(session)
    live.on_turn_end(ob.TurnEnd(0, True))
    assert not [e for e in live.drain() if isinstance(e, RowAdded)]
    run = Run(id="new", input="q")
    session.runs.append(run)
    run.turns.append(Turn(turn=0, input="q", output="a", model=A))
    live.on_event(ev.TurnCompleted(turn=0, iteration=1, finish_reason="stop"))
    run.unserved.append(UnservedTurn(turn=Turn(turn=1, input="q", output="p"), outcome="failed"))
    live.end(RunStatus.FAILED, {"error": "AgentError", "message": "x"})
    events = live.drain()
    rows = [e.row for e in events if isinstance(e, RowAdded)]
    assert [(r["run"], r["run_id"], r["turn"], r["outcome"]) for r in rows] == [
        (1, "new", 0, "served"), (1, "new", 1, "failed"),
    ]  # fmt: skip
    assert isinstance(events[-1], Ended)


def test_refusal_is_not_replaced_by_the_reply_without_it() -> None:
    live = LiveObserver()
    live.on_turn_start(ob.TurnStart(0, "q"))
    live.on_text_delta(ob.TextDelta(0, "I cannot help.", refusal=True))
    live.on_response(ob.Response(0, "", None))
    assert reduce_all(live.drain()).reply() == "I cannot help."


def test_breaker_view() -> None:
    view = breaker_view(breaker("fallback", failures=3, strikes=1, since=38.0), now=100.0)
    assert (view.state, view.primary, view.serves, view.cooldown_until) == ("fallback", A, B, 138.0)
    assert (view.chain[0].strikes, view.trip_at, view.probes_needed) == (1, 3, 2)
    assert breaker_view(breaker(), 0.0).serves == A


def test_the_real_breaker_is_understood() -> None:
    from notebook_agent.core.breaker import Breaker, BreakerConfig

    real = Breaker(BreakerConfig(), A, (B,))
    assert breaker_view(real.to_json(0.0), 0.0).state == "primary"
    real.trip(10.0)
    view = breaker_view(real.to_json(20.0), 20.0)
    assert (view.state, view.serves, view.cooldown_until) == ("fallback", B, 70.0)


def test_a_real_run_from_the_engine() -> None:
    """Faults, resets and rows of the real engine give the state that people see."""
    from notebook_agent.core.settings import RetryPolicy
    from notebook_agent.engine.runtime import AgentRuntime
    from notebook_agent.providers.scripted import ScriptedModel

    runtime = AgentRuntime(
        ScriptedModel(["Hello **there**.\n\nBye."], script="503,drop@2,ok"),
        retry=RetryPolicy(base_delay=0.01),
    )
    live = LiveObserver(runtime.session, model="scripted:scripted")
    runtime.hub.add(live)
    result = runtime.run("hi")
    live.end(result.status)
    state = reduce_all(live.drain())
    assert state.status == "completed"
    assert state.reply().strip() == result.text
    assert state.run_id == result.run.id
    assert [type(i).__name__ for i in state.items] == ["Void", "TextBlock", "TextBlock"]
    assert state.rows[0]["attempts"] == 3
    assert state.gauge.window == 128_000


class Kept:
    """A sink that keeps the states it is given."""

    name = "kept"
    on_stop = None

    def __init__(self) -> None:
        self.states: list = []

    def update(self, state) -> None:
        self.states.append(state)

    open = update

    def close(self, state, outcome) -> None:
        self.states.append(state)


def driven(rate: int, *, seconds: float = 2.0, stop_at: float = 1e9) -> tuple[list[float], float]:
    """A driver in steps of a millisecond: when it flushed text, and the longest that any waited.

    It draws when it is rung, at most each ``TICK_S``, and after the nap it was told to take.
    """
    clock, rung = [0.0], []
    observer, sink = LiveObserver(now=lambda: clock[0]), Kept()
    view = LiveView(observer, sink)
    view.rung_by(lambda: rung.append(clock[0]))
    view.open()
    put: list[float] = []  # when each delta came
    shown, worst, flushes = 0, 0.0, []
    drawn, nap = 0.0, 0.0
    for step in range(1, int(seconds * 1000)):
        clock[0] = now = step / 1000
        while len(put) < min(now, stop_at) * rate:
            put.append(now)
            observer.on_text_delta(ob.TextDelta(0, "x"))
        if now - drawn >= (TICK_S if rung else nap):
            rung.clear()
            drawn, nap = now, view.tick()
            told = len(sink.states[-1].reply())
            if told > shown:
                worst = max(worst, now - put[shown])
                flushes.append(now)
            shown = told
    assert shown == sum(at <= drawn for at in put)  # none is lost
    return flushes, worst


@pytest.mark.parametrize(
    ("rate", "least", "most"), [(5, 5, 5), (20, 19, 20), (100, 20, 30), (400, 9, 12), (5000, 9, 12)]
)
def test_D13_fast_text_is_flushed_ten_times_a_second_slow_text_as_it_comes(
    rate: int, least: int, most: int
) -> None:
    flushes, worst = driven(rate)
    assert 2 * least - 1 <= len(flushes) <= 2 * most + 1
    assert worst <= NAP_S + 0.002


@pytest.mark.parametrize("rate", [5, 100, 400, 5000])
def test_D13_the_last_text_before_a_pause_is_shown_within_a_nap(rate: int) -> None:
    flushes, worst = driven(rate, stop_at=1.0)
    assert worst <= NAP_S + 0.002
    assert flushes[-1] <= 1.0 + NAP_S + 0.002


def test_the_first_word_after_a_silence_is_shown_at_once() -> None:
    rung: list[str] = []
    clock = [0.0]
    observer = LiveObserver(now=lambda: clock[0])
    view = LiveView(observer, Kept())
    view.rung_by(lambda: rung.append("rung"))
    view.open()
    view.tick()
    clock[0] = 0.05
    observer.on_thinking_delta(ob.ThinkingDelta(0, "hm"))
    observer.on_thinking_delta(ob.ThinkingDelta(0, "hm"))
    assert rung == ["rung"]


def test_anything_but_text_is_shown_at_once() -> None:
    clock = [0.0]
    observer, sink = LiveObserver(now=lambda: clock[0]), Kept()
    view = LiveView(observer, sink)
    rung: list[int] = []
    view.rung_by(lambda: rung.append(1))
    view.open()
    for n in range(3):
        clock[0] += TICK_S
        for _ in range(50):
            observer.on_text_delta(ob.TextDelta(turn=0, delta="x "))
        rung.clear()
        observer.asked(Ask(n, "f()"))
        assert rung
        view.tick()
        assert sink.states[-1].ask == Ask(n, "f()")


def test_D13_a_driver_woken_for_other_work_does_not_draw_more_often() -> None:
    """A tool called a thousand times a second on the kernel's thread makes no more messages."""
    clock = [0.0]
    observer, sink = LiveObserver(now=lambda: clock[0]), Kept()
    view = LiveView(observer, sink)
    view.open()
    observer.on_event(ev.RunStarted(run_id="r", session_id="s"))
    for _ in range(3):
        view.tick()  # the first paint waits for the run's id, and nothing waits for its turn then
    assert [state.run_id for state in sink.states] == ["", "r"]
    sink.states.clear()
    naps = []
    for step in range(1000):
        clock[0] = step / 1000
        observer.tool_printed("c", f"{step}\n")
        naps.append(view.tick())
    assert 20 <= len(sink.states) <= 34
    assert all(0 < nap <= NAP_S for nap in naps)
    assert max(b - a for a, b in pairwise(s.at for s in sink.states)) <= TICK_S
