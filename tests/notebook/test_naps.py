"""Naps: who rings wakes the driver, and views are still drawn at most 30 times a second."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future

import pytest

from notebook_agent.notebook.naps import NAP_S, TICK_S, LoopNaps, ThreadNaps
from notebook_agent.notebook.road import KernelRoad
from tests.conftest import run_virtual


def slept(ring_at=None, *, at_once=False, seconds=NAP_S, before=False, done_at=None) -> float:
    """Virtual seconds of one nap on a loop."""

    async def story() -> float:
        loop, work = asyncio.get_running_loop(), Future()
        naps = LoopNaps(work)
        if before:
            naps.ring(at_once=at_once)
        if ring_at is not None:
            loop.call_later(ring_at, lambda: naps.ring(at_once=at_once))
        if done_at is not None:
            loop.call_later(done_at, work.set_result, None)
        began = loop.time()
        await naps.nap(seconds)
        return loop.time() - began

    return run_virtual(story())


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({}, NAP_S),
        ({"seconds": TICK_S}, TICK_S),
        ({"ring_at": 0.06}, 0.06),
        ({"ring_at": 0.01}, TICK_S),  # drawn less than a tick ago
        ({"ring_at": 0.01, "at_once": True}, 0.01),  # a tool waits for the kernel's thread
        ({"before": True}, TICK_S),  # rung between the drawing and the nap
        ({"before": True, "at_once": True}, 0.0),
        ({"ring_at": 0.01, "seconds": TICK_S}, TICK_S),
        ({"done_at": 0.005}, 0.005),
        ({"done_at": 0.005, "seconds": TICK_S}, 0.005),
        ({"ring_at": 0.01, "done_at": 0.02}, 0.02),
    ],
)
def test_D2_how_long_a_nap_is(how: dict, expected: float) -> None:
    assert slept(**how) == pytest.approx(expected, abs=1e-6)


def test_a_ring_is_for_the_next_nap_once() -> None:
    async def story() -> list[float]:
        loop, naps, out = asyncio.get_running_loop(), LoopNaps(Future()), []
        naps.ring()
        for _ in range(2):
            began = loop.time()
            await naps.nap(NAP_S)
            out.append(loop.time() - began)
        return out

    assert run_virtual(story()) == pytest.approx([TICK_S, NAP_S], abs=1e-6)


def test_an_interrupted_nap_is_over_and_the_next_one_is_whole() -> None:
    async def story() -> float:
        loop, naps = asyncio.get_running_loop(), LoopNaps(Future())
        napping = asyncio.ensure_future(naps.nap(60))
        await asyncio.sleep(1)
        napping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await napping
        began = loop.time()
        await naps.nap(NAP_S)
        return loop.time() - began

    assert run_virtual(story()) == pytest.approx(NAP_S, abs=1e-6)


def test_ringing_for_a_loop_that_is_closed_is_harmless() -> None:
    async def story() -> LoopNaps:
        naps = LoopNaps(Future())
        naps._deep = True  # left in mid-nap
        return naps

    run_virtual(story()).ring()


@pytest.mark.parametrize("how", ["rung", "done", "rung before", "done before"])
def test_a_thread_is_woken_too(how: str) -> None:
    """An hour, were it not for the bell."""
    work: Future[None] = Future()
    naps = ThreadNaps(work)
    act = {"rung": lambda: naps.ring(at_once=True), "done": lambda: work.set_result(None)}[
        how.split(maxsplit=1)[0]
    ]
    if how.endswith("before"):
        act()
        naps.nap(3600)
        return
    sleeper = threading.Thread(target=naps.nap, args=(3600,), daemon=True)
    sleeper.start()
    while not naps._deep:
        pass
    act()
    sleeper.join(20)
    assert not sleeper.is_alive()


def test_D20_work_for_the_kernels_thread_rings_at_once() -> None:
    rung: list[dict] = []

    async def story() -> int:
        road = KernelRoad()
        with road.served():
            road.rung_by(lambda **how: rung.append(how))
            asking = asyncio.ensure_future(road.run_on_main(lambda: 41))
            await asyncio.sleep(0)
            assert rung == [{"at_once": True}]
            road.serve()
            return await asking

    assert run_virtual(story()) == 41
