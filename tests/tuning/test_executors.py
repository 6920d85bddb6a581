"""tuning/executors.py: limits, rates, cancelling."""

from __future__ import annotations

import asyncio
import concurrent.futures as cf
import itertools
import time
from collections import Counter

import pytest

from notebook_agent.errors import ConfigError
from notebook_agent.tuning.cells import Cell
from notebook_agent.tuning.executors import AsyncExecutor, Limit, acall, call


def cells(provider, count):
    return [Cell(inputs={"n": n}, provider=provider) for n in range(count)]


def test_each_provider_has_its_own_concurrency():
    now, most = Counter(), Counter()

    async def work(cell):
        now[cell.provider] += 1
        most[cell.provider] = max(most[cell.provider], now[cell.provider])
        await asyncio.sleep(0.01)
        now[cell.provider] -= 1

    with AsyncExecutor(Limit(concurrency=3), {"slow": Limit(concurrency=1)}) as executor:
        futures = [executor.submit(work, c) for c in cells("slow", 4) + cells("fast", 9)]
        cf.wait(futures)
    assert most == {"slow": 1, "fast": 3}
    assert all(f.exception() is None for f in futures)


def test_a_rate_spreads_the_beginnings():
    began = []

    async def work(cell):
        began.append(time.monotonic())

    with AsyncExecutor(Limit(concurrency=50, per_minute=60 / 0.02)) as executor:
        cf.wait([executor.submit(work, c) for c in cells("p", 6)])
    gaps = [b - a for a, b in itertools.pairwise(began)]
    assert min(gaps) > 0.015, gaps


def test_shutdown_can_cancel_what_runs_and_what_waits():
    async def work(cell):
        await asyncio.sleep(60)

    executor = AsyncExecutor(Limit(concurrency=1))
    futures = [executor.submit(work, c) for c in cells("p", 3)]
    while not futures[0].running():
        time.sleep(0.001)
    executor.shutdown(cancel_futures=True)
    assert isinstance(futures[0].exception(), cf.CancelledError)
    assert futures[1].cancelled()
    with pytest.raises(RuntimeError):
        executor.submit(work, cells("p", 1)[0])
    executor.shutdown()  # twice is fine


def test_shutdown_waits_for_what_runs_and_waits():
    async def work(cell):
        await asyncio.sleep(0.01)
        return cell.inputs["n"]

    with AsyncExecutor(Limit(concurrency=2)) as executor:
        futures = [executor.submit(work, c) for c in cells("p", 5)]
    assert [f.result() for f in futures] == [0, 1, 2, 3, 4]


def test_an_error_of_the_work_is_an_answer():
    async def bad(cell):
        raise KeyError("x")

    def worse(cell):
        raise KeyError("x")

    assert asyncio.run(acall(bad, None)).error["error"] == "KeyError"
    assert call(worse, None).error["error"] == "KeyError"
    assert call(bad, None).error["error"] == "KeyError"


@pytest.mark.parametrize("bad", [{"concurrency": 0}, {"per_minute": 0}, {"per_minute": -1.0}])
def test_limits_that_make_no_sense_are_refused(bad):
    with pytest.raises(ConfigError):
        Limit(**bad)
