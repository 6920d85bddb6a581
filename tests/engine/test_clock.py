"""engine/clock.py: pinned surroundings repeat themselves (L128)."""

from __future__ import annotations

import asyncio

from notebook_agent.engine.clock import PinnedClock, pinned


def test_L128_pinned_time_passes_only_by_sleep() -> None:
    clock = PinnedClock()
    around = pinned(clock)

    async def main() -> list[float]:
        seen = [around.now(), around.wall()]
        await around.sleep(2.5)
        await around.sleep(-1)
        return [*seen, around.now(), around.wall()]

    assert asyncio.run(main()) == [0.0, 1_767_225_600.0, 2.5, 1_767_225_602.5]


def test_pinned_ids_count_per_kind() -> None:
    around = pinned()
    assert [around.new_id("run"), around.new_id("message"), around.new_id("run")] == [
        "run_1",
        "message_1",
        "run_2",
    ]
    assert around.uniform(-1, 1) == 0
