"""L55: a loop that was held up is not the provider's silence; and what costs nothing."""

from __future__ import annotations

import asyncio
import time

import pytest

from notebook_agent.core import events as e
from notebook_agent.core.retry import RetryPolicy, StreamTimeouts
from notebook_agent.engine.cancel import CancelSignal
from notebook_agent.engine.clock import SYSTEM
from notebook_agent.engine.wait_guard import Interrupt, WaitGuard
from notebook_agent.errors import ProviderError
from tests.conftest import run_virtual
from tests.engine.fakes import HANG, Bench, Fake, text_events


def quick(**kw):
    given = {"initial_event_timeout": 0.2, "per_event_timeout": 0.2, "total_stream_timeout": 5}
    return StreamTimeouts(**{**given, **kw})


class Piped(Fake):
    """Events come through a real socket pair, so that they lie ready while the loop is busy."""

    async def stream_messages_with_options(self, request, options):
        self.opened += 1
        reader, writer = self.pipe
        try:
            for event in text_events("a", "b"):
                if isinstance(event, e.IndexedDelta):
                    await reader.readexactly(1)
                yield event
        finally:
            writer.close()
            self.closed += 1


async def socket_pair():
    ready = asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(lambda r, w: ready.set_result((r, w)), "127.0.0.1", 0)
    client = await asyncio.open_connection(*server.sockets[0].getsockname())
    far = await ready
    return server, client, far


def test_L55_a_loop_that_was_held_up_is_not_the_providers_silence():
    async def main():
        server, client, far = await socket_pair()
        fake = Piped()
        fake.pipe = client
        bench = Bench(fake, surroundings=SYSTEM, timeouts=quick(), retry=RetryPolicy(max_retries=0))

        def hold_up():
            far[1].write(b"xy")  # both bytes are on their way ...
            time.sleep(0.3)  # ... and somebody blocks the loop for longer than the limit

        asyncio.get_running_loop().call_later(0.05, hold_up)
        served = await bench.turn()
        far[1].close()
        server.close()
        return served

    assert asyncio.run(main()).attempts == 1


def test_L55_a_provider_that_is_really_silent_is_not_spared_by_a_held_up_loop():
    async def main():
        bench = Bench(Fake([[HANG]]), surroundings=SYSTEM, retry=RetryPolicy(max_retries=0),
                      timeouts=quick(fallback_to_non_streaming=False))  # fmt: skip
        asyncio.get_running_loop().call_later(0.05, time.sleep, 0.3)
        start = time.monotonic()
        with pytest.raises(ProviderError, match="silent"):
            await bench.turn()
        return time.monotonic() - start

    assert asyncio.run(main()) < 2


def test_the_guard_lets_a_busy_reader_be():
    async def main():
        guard = WaitGuard(CancelSignal(), quick(), asyncio.get_running_loop().time)
        guard.begin_attempt()
        await asyncio.sleep(3)  # not waiting: the reader of the events is busy with one
        assert guard.take() is None
        assert guard.consecutive_timeouts == 0
        guard.since = guard.loop_time()
        guard.waiting = True
        with pytest.raises(asyncio.CancelledError):
            await asyncio.sleep(9)
        assert guard.take() is Interrupt.IDLE
        assert guard.take() is None
        guard.close()
        guard.close()

    run_virtual(main())


def test_a_cancel_outside_a_wait_interrupts_nothing():
    async def main():
        signal = CancelSignal()
        guard = WaitGuard(signal, quick(), asyncio.get_running_loop().time)
        signal.cancel()
        await asyncio.sleep(1)
        assert guard.take() is None
        guard.close()
        assert not signal._listeners

    run_virtual(main())


def test_nothing_is_made_per_delta(monkeypatch):
    """No task and no timer per delta: their number does not grow with the reply."""

    def made(deltas):
        async def main():
            loop = asyncio.get_running_loop()
            counts = {"timers": 0, "tasks": 0}
            later, task, at = loop.call_later, loop.create_task, loop.call_at
            for name, real in (("call_later", later), ("call_at", at)):

                def timer(*a, real=real, **k):
                    counts["timers"] += 1
                    return real(*a, **k)

                setattr(loop, name, timer)

            def create(*a, **k):
                counts["tasks"] += 1
                return task(*a, **k)

            loop.create_task = create
            await Bench(Fake([text_events(*["x"] * deltas)])).turn()
            return dict(counts)

        return run_virtual(main())

    assert made(5) == made(5_000)
    assert made(5)["tasks"] == 0
