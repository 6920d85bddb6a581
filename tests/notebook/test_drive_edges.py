"""Runs that are left by exit(), and interrupts that come late (D4, D20)."""

from __future__ import annotations

import asyncio

import pytest

from notebook_agent.engine.cancel import CancelSignal
from notebook_agent.errors import Cancelled, ErrorKind, ProviderError
from notebook_agent.notebook.kernel_loop import ThreadLoop
from notebook_agent.notebook.road import KernelRoad
from tests.notebook.test_drive import Machine, SpyView, driver, result


@pytest.fixture
def engine():
    loop = ThreadLoop("test-engine")
    yield loop
    loop.close()


class Leaving(SpyView):
    """The kernel is told to end while it draws."""

    def tick(self):
        super().tick()
        raise SystemExit(3)


@pytest.mark.parametrize("how", ["awaited", "blocking"])
def test_a_cell_that_is_left_by_exit_stops_its_run(engine, how):
    machine = Machine()
    drive = driver(machine.run, engine, machine.cancel, Leaving())
    with pytest.raises(SystemExit):
        if how == "blocking":
            drive.blocking()
        else:
            asyncio.run(drive.awaited())
    assert machine.cancel.is_cancelled()  # its session does not stay busy


async def test_a_background_run_refuses_an_async_main_tool_in_words(engine):
    road = KernelRoad()
    heard = []

    async def waits():
        await asyncio.sleep(60)

    async def at_once():
        return 7

    async def start():
        heard.append(await road.run_on_main(at_once))
        try:
            await road.run_on_main(waits)
        except RuntimeError as error:
            heard.append(str(error))
        return result()

    with road.served():
        handle = driver(start, engine, road=road).background()
        while not handle.done:
            await asyncio.sleep(0.01)
    assert handle.wait(5).text == "done"
    assert heard[0] == 7
    assert "needs an awaited cell" in heard[1]


async def test_D4_an_interrupt_after_the_reply_is_complete_says_so(engine):
    cancel = CancelSignal()

    async def start():
        await cancel.wait()
        return result("all of it")

    task = asyncio.ensure_future(driver(start, engine, cancel).awaited())
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(Cancelled, match="already complete") as caught:
        await task
    assert caught.value.partial_text == "all of it"


async def test_D4_an_interrupt_of_a_run_that_fails_meanwhile_tells_both(engine):
    cancel = CancelSignal()

    async def start():
        await cancel.wait()
        raise ProviderError(ErrorKind.AUTHENTICATION, "no key")

    task = asyncio.ensure_future(driver(start, engine, cancel).awaited())
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(Cancelled, match=r"stopped; .*no key"):
        await task
