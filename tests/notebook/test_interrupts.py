"""Interrupts of code that holds the thread, at every moment (D4, K03, K04, F11, L119)."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from contextlib import contextmanager

import pytest

from notebook_agent.engine.cancel import CancelSignal
from notebook_agent.engine.interrupts import ignored, interruptible, noted
from notebook_agent.engine.runtime.sync import run_sync
from notebook_agent.errors import Cancelled
from notebook_agent.notebook.chore import Chore
from notebook_agent.notebook.kernel_loop import ThreadLoop
from notebook_agent.notebook.road import KernelRoad
from tests.notebook.test_drive import Machine, SpyView, driver, result


@pytest.fixture
def engine():
    loop = ThreadLoop("test-engine")
    yield loop
    loop.close()


@contextmanager
def awaited_cell():
    """As in a cell that IPython awaits: SIGINT cancels a task, and raises nothing."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def press(after_s: float) -> threading.Timer:
    main = threading.get_ident()  # a signal of the kernel's manager comes to the main thread
    timer = threading.Timer(after_s, signal.pthread_kill, (main, signal.SIGINT))
    timer.start()
    return timer


class Pressed(SpyView):
    """The interrupt comes while the view does this, before or while anything runs."""

    def __init__(self, when: str) -> None:
        super().__init__()
        self._when = when

    def _now(self, when: str) -> None:
        if self._when == when:
            self._when = ""
            signal.raise_signal(signal.SIGINT)

    def open(self) -> None:
        self._now("open")
        super().open()

    def rung_by(self, ring) -> None:
        self._now("begun")

    def tick(self):
        self._now("tick")
        return super().tick()


@pytest.mark.parametrize("when", ["open", "begun", "tick"])
def test_K04_an_interrupt_of_a_blocking_run_is_never_lost(engine, when):
    """Wherever it strikes, the run is stopped and nothing goes on unseen."""
    machine = Machine()
    with pytest.raises(Cancelled, match="stopped"):
        driver(machine.run, engine, machine.cancel, Pressed(when)).blocking()
    assert machine.ended == "cancelled"


def test_K04_a_blocking_run_in_an_awaited_cell_can_be_stopped(engine):
    machine = Machine()
    with awaited_cell():
        press(0.1)
        with pytest.raises(Cancelled, match="stopped"):
            driver(machine.run, engine, machine.cancel).blocking()
    assert machine.ended == "cancelled"


def test_D5_waiting_for_a_background_run_can_be_interrupted(engine):
    """The waiting ends, not the run."""
    machine = Machine()
    handle = driver(machine.run, engine, machine.cancel).background()
    with awaited_cell():
        press(0.1)
        with pytest.raises(KeyboardInterrupt):
            handle.wait(5)
    assert not handle.done
    handle.cancel()
    handle.wait(5)
    assert machine.ended == "cancelled"


def test_F11_a_chore_can_be_interrupted(engine):
    async def make():
        await asyncio.sleep(5)

    with awaited_cell():
        press(0.1)
        with pytest.raises(Cancelled):
            Chore(make, engine).blocking()


def test_D20_a_question_in_a_terminal_can_be_interrupted(engine):
    class Holds:
        def open(self, prompt: str) -> bool:
            press(0.1)
            time.sleep(5)
            return True

        def poll(self) -> None: ...
        def close(self) -> None: ...

    machine = Machine()
    road = KernelRoad(asker=Holds)

    async def start():
        asking = asyncio.ensure_future(road.ask("may I?"))
        try:
            return await machine.run()
        finally:
            asking.cancel()

    with pytest.raises(Cancelled, match="stopped"):
        driver(start, engine, machine.cancel, road=road).blocking()
    assert machine.ended == "cancelled"


@pytest.mark.parametrize("presses", [1, 3])
async def test_K03_an_interrupted_ask_under_a_running_loop_ends_the_run(presses):
    """A join that is interrupted may take a running thread for an ended one: so none is."""
    cancel = CancelSignal()
    ended = []

    async def make():
        await cancel.wait()
        ended.append(True)
        return result("partial")

    with awaited_cell():
        timers = [press(0.05 + 0.03 * one) for one in range(presses)]
        assert run_sync(make, cancel).text == "partial"
        for timer in timers:
            timer.join()
    assert ended == [True]


def test_L119_what_handled_interrupts_before_does_so_again():
    with awaited_cell():
        before = signal.getsignal(signal.SIGINT)
        for how in (interruptible, noted, ignored):
            with how():
                assert signal.getsignal(signal.SIGINT) is not before
            assert signal.getsignal(signal.SIGINT) is before


def test_L119_other_threads_leave_the_handlers_alone():
    seen = []

    def work() -> None:
        for how in (interruptible, noted, ignored):
            with how():
                seen.append(signal.getsignal(signal.SIGINT))

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before] * 3
