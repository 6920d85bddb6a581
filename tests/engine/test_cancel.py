"""L24-L28, L116, L126: the signal and the biased race."""

from __future__ import annotations

import asyncio
import threading

import pytest

from notebook_agent.engine.cancel import CancelSignal, DeadlineReached, race
from notebook_agent.errors import Cancelled
from tests.conftest import run_virtual


def signal(*, fired=False):
    one = CancelSignal()
    if fired:
        one.cancel()
    return one


async def after(seconds, value="reply"):
    await asyncio.sleep(seconds)
    return value


async def boom():
    raise ValueError("boom")


def test_L116_cancel_is_idempotent_and_reset_re_arms():
    one = signal()
    one.raise_if_cancelled()
    for _ in range(3):
        one.cancel()
        assert one.is_cancelled()
    with pytest.raises(Cancelled):
        one.raise_if_cancelled()
    one.reset()
    assert not one.is_cancelled()


def test_L116_wakes_every_waiter_on_every_loop_from_any_thread():
    one, done = signal(), []
    ready = threading.Barrier(4)

    def loop():
        async def main():
            task = asyncio.create_task(one.wait())
            await asyncio.sleep(0)
            ready.wait(5)
            await task
            done.append(True)

        asyncio.run(main())

    threads = [threading.Thread(target=loop) for _ in range(3)]
    for thread in threads:
        thread.start()
    ready.wait(5)
    one.cancel()
    for thread in threads:
        thread.join(5)
    assert done == [True] * 3
    assert not one._listeners


def test_L116_a_signal_fired_before_is_seen():
    async def main():
        one = signal(fired=True)
        await asyncio.wait_for(one.wait(), 1)
        heard = []
        one.listen(lambda: heard.append(1))
        await asyncio.sleep(0)
        return heard

    assert run_virtual(main()) == [1]


def test_a_listener_of_a_dead_loop_is_skipped():
    one, heard = signal(), []

    async def forget():
        one.listen(lambda: heard.append("dead"))

    asyncio.run(forget())
    one.cancel()
    assert (one.is_cancelled(), heard) == (True, [])


def test_L24_the_reply():
    assert run_virtual(race(signal(), 5, lambda: after(1))) == "reply"
    assert run_virtual(race(signal(), None, lambda: after(1e4))) == "reply"  # L25


def test_L24_fired_before_means_the_call_is_never_made():
    made = []
    with pytest.raises(Cancelled):
        run_virtual(race(signal(fired=True), None, lambda: made.append(1)))
    assert made == []


@pytest.mark.parametrize("timeout", [3, 0, -1])
def test_L24_the_deadline(timeout):
    with pytest.raises(DeadlineReached):
        run_virtual(race(signal(), timeout, lambda: after(9)))


def test_an_error_of_the_call_passes():
    with pytest.raises(ValueError, match="boom"):
        run_virtual(race(signal(), 5, boom))


# --- everything at once, in every order: priority decides, not luck (L28, L61)


def at_once(*, cancel, deadline, reply, reply_first):
    """All given arms come due in the same tick."""

    async def main():
        one = signal()
        work_done = asyncio.get_running_loop().create_future()

        async def work():
            return await work_done

        def fire():
            if reply:
                work_done.set_result("reply")
            if cancel:
                one.cancel()

        asyncio.get_running_loop().call_later(2, fire)
        try:
            return await race(one, 2 if deadline else None, work, reply_first=reply_first)
        except (Cancelled, DeadlineReached) as end:
            return type(end)

    return run_virtual(main())


@pytest.mark.parametrize("reply_first", [False, True])
@pytest.mark.parametrize("deadline", [False, True])
@pytest.mark.parametrize("reply", [False, True])
def test_L28_cancel_beats_everything(reply, deadline, reply_first):
    end = at_once(cancel=True, deadline=deadline, reply=reply, reply_first=reply_first)
    assert end is Cancelled


@pytest.mark.parametrize(("reply_first", "end"), [(False, DeadlineReached), (True, "reply")])
def test_L28_reply_against_deadline(reply_first, end):
    assert at_once(cancel=False, deadline=True, reply=True, reply_first=reply_first) == end


@pytest.mark.parametrize("seconds", [1.0, 2.0])
def test_L61_a_reply_in_the_deadlines_own_tick_counts_in_the_rescue(seconds):
    assert run_virtual(race(signal(), 2, lambda: after(seconds), reply_first=True)) == "reply"


# --- L126 (d): nothing outlives the race


@pytest.mark.parametrize("how", ["cancel", "deadline", "outside"])
def test_L126_the_loser_is_cancelled_and_awaited(how):
    log = []

    async def work():
        try:
            await asyncio.sleep(1e6)
        finally:
            await asyncio.sleep(0.5)  # clean-up that takes time is waited for
            log.append("cleaned")

    async def main():
        one = signal()
        task = asyncio.ensure_future(race(one, 3 if how == "deadline" else None, work))
        await asyncio.sleep(1)
        if how == "cancel":
            one.cancel()
        if how == "outside":
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert log == ["cleaned"]
        assert not one._listeners
        expected = {"cancel": Cancelled, "deadline": DeadlineReached}
        if how == "outside":
            assert task.cancelled()
        else:
            assert type(task.exception()) is expected[how]

    run_virtual(main())


def test_a_loser_that_failed_leaves_no_complaint():
    async def main():
        one = signal()

        async def work():
            one.cancel()
            raise ValueError("too late")

        with pytest.raises(Cancelled):
            await race(one, None, work)

    run_virtual(main())


def test_a_waiter_that_is_cancelled_stops_listening():
    async def main():
        one = signal()
        task = asyncio.create_task(one.wait())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        one.cancel()
        return one._listeners

    assert run_virtual(main()) == {}
