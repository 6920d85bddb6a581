"""A subscriber reads at its own pace; a slow one loses events and never holds up a run (B71)."""

from __future__ import annotations

import asyncio
import threading

import pytest

from notebook_agent.core import agent_events as ev
from notebook_agent.engine.observers import Observer, ObserverHub
from notebook_agent.engine.subscription import EVENT_BUFFER, Subscription
from notebook_agent.errors import ConfigError
from tests.conftest import run_virtual
from tests.engine.runtime_kit import make, run


def fire(hub, count, start=0):
    for n in range(start, start + count):
        hub.fire("on_event", ev.TurnStarted(turn=n, iteration=n + 1))


def turns(events):
    return [event.turn for event in events]


def test_B71_a_slow_subscriber_loses_the_oldest_events_and_is_told_how_many():
    hub = ObserverHub()
    slow, quick = Subscription(hub, buffer=5), Subscription(hub)
    for n in range(40):
        fire(hub, 1, n)
        if n % 3 == 0:
            assert quick.take()[-1].turn == n
    assert turns(slow.take()) == [35, 36, 37, 38, 39]
    assert (slow.dropped, quick.dropped) == (35, 0)
    fire(hub, 2, 40)
    assert turns(slow.take()) == [40, 41]
    assert slow.take() == []


def test_B71_the_buffer_holds_1024_events():
    hub = ObserverHub()
    subscription = Subscription(hub)
    fire(hub, EVENT_BUFFER + 3)
    assert EVENT_BUFFER == 1_024
    assert (len(subscription.take()), subscription.dropped) == (1_024, 3)


@pytest.mark.parametrize("buffer", [0, -1, True, 2.5, None])
def test_a_buffer_is_a_whole_number(buffer):
    with pytest.raises(ConfigError, match="at least 1"):
        Subscription(ObserverHub(), buffer=buffer)


def test_B71_a_run_is_not_held_up_by_one_who_never_reads():
    runtime = make(["word " * 400])
    never = runtime.subscribe(buffer=1, deltas=True)
    result = run(runtime)
    assert result.text == "word " * 400
    assert never.dropped > 400
    assert never.take()[0].terminal  # the newest is kept
    assert runtime.store.events(result.run.id)[-1].terminal  # the log is the truth


def test_B71_the_same_events_as_the_log_and_text_only_when_asked_for():
    runtime = make(["one two three"])
    plain, whole = runtime.subscribe(), runtime.subscribe(deltas=True)
    result = run(runtime)
    events = plain.take()
    kinds = [type(event).__name__ for event in events]
    assert (kinds[0], kinds[-1]) == ("RunStarted", "RunCompleted")
    assert [e for e in events if not isinstance(e, ev.ToolCallDelta)] == sorted(
        runtime.store.events(result.run.id), key=lambda e: e.order
    )
    text = "".join(e.delta for e in whole.take() if isinstance(e, ev.TextDelta))
    assert text == "one two three"
    assert "TextDelta" not in kinds


def test_closed_it_hears_no_more_and_iteration_ends_with_what_was_heard():
    hub = ObserverHub()
    with Subscription(hub) as subscription:
        fire(hub, 3)
    fire(hub, 2, 3)
    subscription.close()
    assert turns(subscription) == [0, 1, 2]
    assert list(subscription) == []


def test_a_thread_waits_for_events():
    hub, seen = ObserverHub(), []
    subscription = Subscription(hub)

    def read():
        for event in subscription:
            seen.append(event.turn)

    reader = threading.Thread(target=read)
    reader.start()
    fire(hub, 50)
    subscription.close()
    reader.join(5)
    assert not reader.is_alive()
    assert seen == list(range(50))


async def test_a_loop_waits_for_events_of_another_thread():
    hub = ObserverHub()
    subscription = Subscription(hub)

    async def read():
        return [event.turn async for event in subscription]

    reader = asyncio.create_task(read())
    await asyncio.sleep(0)

    def work():
        fire(hub, 50)
        subscription.close()

    await asyncio.to_thread(work)
    assert await asyncio.wait_for(reader, 5) == list(range(50))


async def test_a_reader_that_is_cancelled_leaves_nothing_behind():
    hub = ObserverHub()
    subscription = Subscription(hub)

    async def read():
        async for _ in subscription:
            pass

    reader = asyncio.create_task(read())
    await asyncio.sleep(0.01)
    assert len(subscription._waiting) == 1
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert subscription._waiting == []
    fire(hub, 1)
    assert turns(subscription.take()) == [0]


def test_beside_a_run_on_the_same_loop():
    runtime = make(["Hello."])

    async def main():
        seen = []
        with runtime.subscribe() as events:
            working = asyncio.ensure_future(runtime.arun("Hi"))
            async for event in events:
                seen.append(event)
                if event.terminal:
                    break
            await working
        return seen

    seen = run_virtual(main())
    assert [e.terminal for e in seen] == [False] * (len(seen) - 1) + [True]


def test_removing_an_observer_never_silences_the_others():
    hub, heard = ObserverHub(), []

    class Ear(Observer):
        def on_event(self, event):
            heard.append(event.turn)

    hub.add(Ear())
    stop = threading.Event()

    def churn():
        while not stop.is_set():
            Subscription(hub).close()

    worker = threading.Thread(target=churn)
    worker.start()
    fire(hub, 20_000)
    stop.set()
    worker.join(5)
    assert heard == list(range(20_000))
