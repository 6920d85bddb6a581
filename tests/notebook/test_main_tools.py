"""Whatever a tool raises in the kernel's thread is the tool's failure: the cell, the session and
the kernel's loop live on (D20, K01)."""

from __future__ import annotations

import asyncio

import pytest

from notebook_agent.engine.cancel import CancelSignal
from notebook_agent.notebook.kernel_loop import ThreadLoop
from notebook_agent.notebook.road import KernelRoad
from tests.notebook.test_drive import driver, result


@pytest.fixture
def engine():
    loop = ThreadLoop("test-engine")
    yield loop
    loop.close()


def raising(error: BaseException):
    def call():
        raise error

    return call


def raising_later(error: BaseException):
    async def call():
        await asyncio.sleep(0)
        raise error

    return call


async def heard(road: KernelRoad, call) -> str:
    """What the engine hears of a main tool."""
    try:
        async with asyncio.timeout(5):
            return f"gave {await road.run_on_main(call)!r}"
    except BaseException as error:  # that is the question
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (SystemExit(3), "SystemExit: 3"),
        (GeneratorExit("x"), "RuntimeError: GeneratorExit"),
        (asyncio.CancelledError("x"), "CancelledError: x"),
        (StopIteration("x"), "RuntimeError: StopIteration"),
    ],
    ids=lambda one: type(one).__name__,
)
@pytest.mark.parametrize("how", ["awaited", "blocking"])
async def test_D20_a_main_tool_may_raise_anything(engine, error, says, how):
    road = KernelRoad()

    async def start():
        return result(await heard(road, raising(error)))

    made = driver(start, engine, road=road)
    got = await made.awaited() if how == "awaited" else made.blocking()
    assert got.text == says


async def test_D20_an_async_main_tool_may_exit(engine):
    road = KernelRoad()

    async def start():
        return result(await heard(road, raising_later(SystemExit(3))))

    assert (await driver(start, engine, road=road).awaited()).text == "SystemExit: 3"


async def stubborn():
    """Swallows what it is told, once."""
    try:
        await asyncio.sleep(0)
    except RuntimeError:
        await asyncio.sleep(0)


REFUSED = "RuntimeError: an async main tool needs an awaited cell: use %%agent"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (raising_later(ValueError("x")), REFUSED),
        (lambda: stubborn(), "RuntimeError: GeneratorExit"),
    ],
)
def test_D20_an_async_main_tool_in_synchronous_code_is_refused_in_words(engine, call, says):
    road = KernelRoad()

    async def start():
        return result(await heard(road, call))

    assert driver(start, engine, road=road).blocking().text == says


@pytest.mark.parametrize("how", ["awaited", "blocking"])
async def test_D20_a_run_that_nobody_drives_on_is_cancelled(engine, how):
    class Broken(KernelRoad):
        def serve(self):
            raise OSError("stdin is gone")

    cancel = CancelSignal()

    async def start():
        await cancel.wait()
        return result()

    made = driver(start, engine, cancel=cancel, road=Broken())
    with pytest.raises(OSError, match="stdin is gone"):
        await made.awaited() if how == "awaited" else made.blocking()
    assert cancel.is_cancelled()
