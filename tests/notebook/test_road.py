"""notebook/road.py and asking.py where a run, a loop or a person goes away in between (D20)."""

from __future__ import annotations

import asyncio

import pytest

from notebook_agent.core.messages import ToolCallPart
from notebook_agent.notebook.asking import approver
from notebook_agent.notebook.road import KernelRoad
from tests.notebook.test_asking import Shown, Stdin


async def test_D20_a_call_that_was_given_up_is_not_made():
    road, made = KernelRoad(), []
    with road.served():
        asked = asyncio.ensure_future(road.run_on_main(lambda: made.append(1)))
        await asyncio.sleep(0)
        asked.cancel()
        await asyncio.sleep(0)
        assert road.serve() == []
    assert made == []


async def test_D20_what_waits_when_the_driver_ends_is_answered():
    stdin = Stdin([])
    road = KernelRoad(asker=lambda: stdin)
    with road.served():
        first, second = (asyncio.ensure_future(road.ask(f"{n}?")) for n in (1, 2))
        await asyncio.sleep(0)
        road.serve()
        assert road.asking
        third = asyncio.ensure_future(road.ask("3?"))
        await asyncio.sleep(0)  # still in the queue
    assert await asyncio.gather(first, second, third) == [None, None, None]
    assert stdin.log == ["1?", "close"]
    assert not road.asking


async def test_D20_a_front_end_without_stdin_is_no_answer_and_the_next_question_is_asked():
    askers = [Stdin([], there=False), Stdin(["y"])]
    road = KernelRoad(asker=lambda: askers.pop(0))
    with road.served():
        asked = asyncio.gather(road.ask("1?"), road.ask("2?"))
        await asyncio.sleep(0)
        road.serve()
        assert await asked == [None, True]


async def test_K01_an_interrupt_in_a_main_tool_is_told_to_the_run_and_goes_on():
    road = KernelRoad()

    def pressed():
        raise KeyboardInterrupt

    with road.served():
        asked = asyncio.ensure_future(road.run_on_main(pressed))
        await asyncio.sleep(0)
        with pytest.raises(KeyboardInterrupt):
            road.serve()
        with pytest.raises(RuntimeError, match="interrupted"):
            await asked


async def test_K01_an_async_main_tool_that_is_stopped_is_told_to_the_run():
    road = KernelRoad()

    async def long():
        await asyncio.sleep(60)

    with road.served():
        asked = asyncio.ensure_future(road.run_on_main(long))
        await asyncio.sleep(0)
        (later,) = road.serve()
        task = asyncio.ensure_future(later)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(RuntimeError, match="interrupted"):
            await asked


def test_D20_an_answer_for_an_engine_that_is_gone_is_dropped():
    road, made = KernelRoad(), []
    served = road.served()
    served.__enter__()
    loop = asyncio.new_event_loop()
    asked = loop.create_task(road.run_on_main(lambda: made.append(1)))
    loop.run_until_complete(asyncio.sleep(0))
    asked.cancel()
    job = road._jobs.get_nowait()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(asked)
    loop.close()
    job.future = loop.create_future()  # one that nobody cancelled
    road._jobs.put(job)
    assert road.serve() == []
    served.__exit__(None, None, None)
    assert made == [1]


async def test_D20_a_question_that_stdin_was_asked_is_taken_back_there():
    stdin, view = Stdin([None, None]), Shown([False], [])
    road = KernelRoad(asker=lambda: stdin)
    with road.served():
        asked = asyncio.ensure_future(approver(road, lambda: view)(ToolCallPart("c", "f", {})))
        for _ in range(3):
            await asyncio.sleep(0)
            road.serve()
    assert await asked is None
    assert view.log == []
    assert stdin.log[-1] == "close"
