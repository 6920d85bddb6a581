"""Driving a run: D2-D6, K03, K04, F7. Fakes for engine work and view; no kernel here."""

from __future__ import annotations

import asyncio
import gc
import threading
import time

import pytest

from notebook_agent.core.result import RunResult
from notebook_agent.core.session import Run, RunStatus
from notebook_agent.engine.cancel import CancelSignal
from notebook_agent.errors import AgentError, Cancelled, ErrorKind, ProviderError
from notebook_agent.notebook.drive import RunDriver
from notebook_agent.notebook.kernel_loop import SameLoop, ThreadLoop, default_driver
from notebook_agent.notebook.road import KernelRoad


def result(text="done", status=RunStatus.COMPLETED) -> RunResult:
    return RunResult(text=text, run=Run(id="run_1", input="x", output=text, status=status))


class SpyView:
    def __init__(self):
        self.calls = []
        self.threads = set()

    placed_at = 1

    def _note(self, what):
        self.calls.append(what)
        self.threads.add(threading.current_thread())

    def open(self):
        self._note("open")

    def tick(self):
        self._note("tick")

    def rung_by(self, ring):
        self.ring = ring

    def placed(self):
        return self.calls.count("tick") >= self.placed_at

    def close(self, outcome):
        self._note(("close", outcome))


@pytest.fixture
def engine():
    loop = ThreadLoop()
    yield loop
    loop.close()


class Machine:
    """A run of 8 s that honours the signal, or not."""

    def __init__(self, *, deaf=False, partial="par", cleanup_s=0.0):
        self.cancel = CancelSignal()
        self.cleanup_s = cleanup_s
        self.deaf = deaf
        self.partial = partial
        self.ended = ""
        self.started = threading.Event()

    async def run(self):
        self.started.set()
        if self.deaf:
            try:
                await asyncio.sleep(8)
            finally:
                self.ended = "killed"
        waiting = asyncio.ensure_future(self.cancel.wait())
        done, _ = await asyncio.wait({waiting}, timeout=8)
        waiting.cancel()
        if done:
            await asyncio.sleep(self.cleanup_s)
            self.ended = "cancelled"
            error = Cancelled("cancelled")
            error.result = result(self.partial, RunStatus.CANCELLED)
            raise error
        self.ended = "finished"
        return result()


def driver(start, engine, cancel=None, view=None, road=None):
    return RunDriver(
        start,
        engine=engine,
        cancel=cancel or CancelSignal(),
        view=view or SpyView(),
        road=road or KernelRoad(),
    )


async def quick():
    return result()


def test_D2_thread_starts_at_the_first_run_only():
    before = set(threading.enumerate())
    loop = ThreadLoop("test-engine")
    assert not loop.started
    assert set(threading.enumerate()) == before
    assert loop.submit(quick()).result(5).text == "done"
    assert loop.started
    [made] = set(threading.enumerate()) - before
    assert made.daemon
    assert loop.submit(quick()).result(5).text == "done"
    assert len(set(threading.enumerate()) - before) == 1
    loop.close()
    assert set(threading.enumerate()) == before
    loop.close()
    assert loop.submit(quick()).result(5).text == "done"  # starts again
    loop.close()


def test_closing_cancels_what_runs():
    loop = ThreadLoop()
    ended = []

    async def forever():
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    loop.submit(forever())
    time.sleep(0.05)
    loop.close()
    assert ended == [True]


def test_F7_default_driver_by_platform(monkeypatch):
    assert isinstance(default_driver(), ThreadLoop)
    monkeypatch.setattr("sys.platform", "emscripten")
    assert isinstance(default_driver(), SameLoop)


async def test_K03_awaited_under_a_running_loop(engine):
    view = SpyView()
    got = await driver(quick, engine, view=view).awaited()
    assert got.text == "done"
    assert view.calls[0] == "open"
    assert view.calls[-1] == ("close", got)
    assert view.threads == {threading.current_thread()}


async def test_K03_blocking_under_a_running_loop(engine):
    assert driver(quick, engine).blocking().text == "done"


def test_K03_blocking_without_a_loop(engine):
    assert driver(quick, engine).blocking().text == "done"


async def test_F7_same_loop():
    assert (await driver(quick, SameLoop()).awaited()).text == "done"
    with pytest.raises(AgentError, match="no threads"):
        driver(quick, SameLoop()).blocking()


async def test_D2_view_ticks_thirty_times_a_second(engine):
    view = SpyView()

    async def slow():
        await asyncio.sleep(0.5)
        return result()

    await driver(slow, engine, view=view).awaited()
    ticks = view.calls.count("tick")
    assert 5 <= ticks <= 16


async def interrupt(task, machine):
    await asyncio.to_thread(machine.started.wait, 5)
    await asyncio.sleep(0.05)
    task.cancel()  # what ipykernel's SIGINT handler does to an awaited cell
    return time.monotonic()


async def test_D4_interrupt_cancels_drains_and_raises(engine):
    machine, view = Machine(), SpyView()
    task = asyncio.ensure_future(driver(machine.run, engine, machine.cancel, view).awaited())
    began = await interrupt(task, machine)
    with pytest.raises(Cancelled) as caught:
        await task
    assert time.monotonic() - began < 0.25
    assert machine.ended == "cancelled"
    assert caught.value.message == "stopped"
    assert caught.value.result.status is RunStatus.CANCELLED
    assert caught.value.partial_text == "par"
    assert isinstance(view.calls[-1][1], Cancelled)


async def test_K04_second_interrupt_changes_nothing(engine):
    machine, view = Machine(), SpyView()
    task = asyncio.ensure_future(driver(machine.run, engine, machine.cancel, view).awaited())
    await interrupt(task, machine)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(Cancelled):
        await task
    assert machine.ended == "cancelled"
    assert [c for c in view.calls if c[0] == "close"].__len__() == 1


async def test_K04_a_second_press_is_taken_by_the_cell_itself(engine):
    """ipykernel loses the reply of a cell when the second SIGINT comes just after its end."""
    import os
    import signal
    import threading

    machine = Machine()
    task = asyncio.ensure_future(driver(machine.run, engine, machine.cancel).awaited())
    await interrupt(task, machine)
    hits: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: hits.append(number))
    press = threading.Timer(0.06, os.kill, (os.getpid(), signal.SIGINT))
    press.start()
    try:
        with pytest.raises(Cancelled):
            await task
        press.join()
        assert hits == []
    finally:
        press.join()
        signal.signal(signal.SIGINT, before)


async def test_D4_deaf_engine_is_left_after_the_drain(engine):
    machine = Machine(deaf=True)
    task = asyncio.ensure_future(driver(machine.run, engine, machine.cancel).awaited())
    began = await interrupt(task, machine)
    with pytest.raises(Cancelled, match="did not answer"):
        await task
    assert 0.7 < time.monotonic() - began < 1.2
    await asyncio.sleep(0.05)
    assert machine.ended == "killed"


async def test_D4_stop_button_ends_the_cell_normally(engine):
    machine = Machine()
    task = asyncio.ensure_future(driver(machine.run, engine, machine.cancel).awaited())
    await asyncio.to_thread(machine.started.wait, 5)
    machine.cancel.cancel()
    got = await task
    assert got.status is RunStatus.CANCELLED
    assert got.text == "par"


def test_D4_interrupt_of_a_blocking_run(engine):
    import _thread

    machine = Machine(cleanup_s=0.2)

    def later():
        machine.started.wait(5)
        time.sleep(0.05)
        _thread.interrupt_main()
        time.sleep(0.02)
        _thread.interrupt_main()

    impatient = threading.Thread(target=later)
    impatient.start()
    with pytest.raises(Cancelled, match="stopped"):
        driver(machine.run, engine, machine.cancel).blocking()
    assert machine.ended == "cancelled"
    impatient.join(5)


async def test_errors_come_without_engine_frames(engine):
    async def bad():
        raise ProviderError(ErrorKind.AUTHENTICATION, "no key")

    with pytest.raises(ProviderError, match="no key") as caught:
        await driver(bad, engine).awaited()
    frames = []
    tb = caught.value.__traceback__
    while tb:
        frames.append(tb.tb_frame.f_code.co_name)
        tb = tb.tb_next
    assert "bad" not in frames


async def test_X05_a_defect_is_said_without_values(engine):
    async def bad():
        key = "sk-secret"  # noqa: F841  # a local that a traceback could show
        return 1 / 0

    with pytest.raises(AgentError, match="ZeroDivisionError in bad") as caught:
        await driver(bad, engine).awaited()
    assert "sk-secret" not in str(caught.value)
    assert caught.value.__cause__ is None


async def test_D20_main_tools_run_in_the_kernel_thread_between_ticks(engine):
    road = KernelRoad()
    seen = []

    async def start():
        value = await road.run_on_main(lambda: seen.append(threading.current_thread()) or 41)
        nothing = [await road.ask("may I?")]
        with pytest.raises(ZeroDivisionError):
            await road.run_on_main(lambda: 1 / 0)

        async def later():
            await asyncio.sleep(0.01)
            return value + 1

        return result(f"{await road.run_on_main(later)} {nothing}")

    got = await driver(start, engine, road=road).awaited()
    assert got.text == "42 [None]"
    assert seen == [threading.current_thread()]


async def test_D20_without_a_driver_the_road_says_so():
    road = KernelRoad()
    assert await road.ask("?") is None
    with pytest.raises(RuntimeError, match="no cell is driving"):
        await road.run_on_main(lambda: 1)


class SlowAsker:
    def __init__(self, answer):
        self.answer, self.polls, self.prompt, self.closed = answer, 0, "", False

    def open(self, prompt):
        self.prompt = prompt
        return True

    def poll(self):
        self.polls += 1
        return self.answer if self.polls > 3 else None

    def close(self):
        self.closed = True


@pytest.mark.parametrize(
    ("answer", "allowed"), [("y", True), (" YES ", True), ("n", False), ("", False)]
)
async def test_D20_approval_is_asked_in_short_waits(engine, answer, allowed):
    asker = SlowAsker(answer)
    road = KernelRoad(asker=lambda: asker)
    view = SpyView()

    async def start():
        return result(str(await road.ask("run f?")))

    got = await driver(start, engine, view=view, road=road).awaited()
    assert got.text == str(allowed)
    assert asker.prompt == "run f?"
    assert view.calls.count("tick") >= 3  # it went on drawing meanwhile


async def test_D20_a_cancelled_question_is_void(engine):
    asker = SlowAsker(None)
    road = KernelRoad(asker=lambda: asker)
    machine = Machine()

    async def start():
        asking = asyncio.ensure_future(road.ask("?"))
        await machine.cancel.wait()
        asking.cancel()
        await asyncio.sleep(0.1)
        return await machine.run()

    task = asyncio.ensure_future(driver(start, engine, machine.cancel, road=road).awaited())
    await asyncio.sleep(0.1)
    machine.cancel.cancel()
    assert (await task).status is RunStatus.CANCELLED
    assert asker.closed


async def test_D5_background_handle(engine):
    machine, view = Machine(), SpyView()
    handle = driver(machine.run, engine, machine.cancel, view).background()
    assert not handle.done
    assert handle.result is None
    assert "running" in repr(handle)
    assert handle.wait(0.05) is None
    await asyncio.sleep(0.1)
    assert view.calls.count("tick") >= 2
    handle.cancel()
    got = await handle
    assert got.status is RunStatus.CANCELLED
    assert handle.result is got
    assert handle.done
    await asyncio.sleep(0.05)
    assert [c for c in view.calls if c[0] == "close"].__len__() == 1


def test_N05_the_cell_of_a_background_run_ends_after_its_first_paint(engine):
    """A front end may drop what a cell shows after its end."""
    machine, view = Machine(), SpyView()
    view.placed_at = 3
    handle = driver(machine.run, engine, machine.cancel, view).background()
    assert handle.placed_blocking() is handle
    assert view.calls == ["open", "tick", "tick", "tick"]
    assert not handle.done
    handle.cancel()
    handle.wait(5)


async def test_N05_an_awaited_cell_waits_without_holding_the_loop(engine):
    machine, view = Machine(), SpyView()
    view.placed_at = 3
    handle = driver(machine.run, engine, machine.cancel, view).background()
    beside = asyncio.ensure_future(asyncio.sleep(0))
    assert await handle.placed() is handle
    assert beside.done()
    assert view.placed()
    assert not handle.done
    handle.cancel()
    await handle


def test_D5_background_without_a_loop(engine):
    handle = driver(quick, engine).background()
    assert handle.wait(5).text == "done"


async def test_D5_background_failure_comes_with_the_result(engine):
    async def bad():
        raise ProviderError(ErrorKind.AUTHENTICATION, "no key")

    handle = driver(bad, engine).background()
    with pytest.raises(ProviderError):
        await handle
    with pytest.raises(ProviderError):
        handle.wait()
    assert "ProviderError" in repr(handle)


@pytest.mark.parametrize("where", ["open", "tick", "close"])
async def test_a_view_that_breaks_leaves_the_run_alone(engine, where, capsys):
    view = SpyView()

    def broken(*_):
        raise OSError("no front end")

    setattr(view, where, broken)

    async def slow():
        await asyncio.sleep(0.1)
        return result()

    assert (await driver(slow, engine, view=view).awaited()).text == "done"
    assert capsys.readouterr().out == "the view failed (OSError); the run goes on\n"


def test_K04_a_run_that_was_left_ends_without_a_word(engine, caplog):
    """Its late failure must not be printed into a later cell by asyncio."""
    said: list[object] = []
    release = threading.Event()

    async def start():
        asyncio.get_running_loop().set_exception_handler(
            lambda _loop, context: said.append(context)
        )
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            while not release.is_set():  # deaf for a while
                try:
                    await asyncio.sleep(0.01)
                except asyncio.CancelledError:
                    continue
            raise Cancelled("late") from None

    async def cell():
        driver = RunDriver(
            start, engine=engine, cancel=CancelSignal(), view=SpyView(), road=KernelRoad()
        )
        task = asyncio.ensure_future(driver.awaited())
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(Cancelled, match="did not answer"):
            await task

    asyncio.run(cell())
    release.set()

    async def settle():
        await asyncio.sleep(0.1)
        gc.collect()

    engine.submit(settle()).result(5)
    assert said == []
