"""A blocking function in a thread of its own, which ends with it.

The loop's default executor would keep idle threads for as long as the loop lives.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

__all__ = ["in_worker"]

T = TypeVar("T")


async def in_worker(function: Callable[[], T]) -> T:
    """The function's result; its exception is raised here.

    A cancelled wait lets the thread run to its end and drops what it brings.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # no error: a result is there

    def work() -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = function()
        except BaseException as caught:  # noqa: BLE001 - handed to the waiting coroutine
            error = caught
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:
            return  # the loop was closed meanwhile: nobody waits

    thread = threading.Thread(target=work, name="notebook_agent-worker", daemon=True)
    thread.start()
    try:
        await asyncio.wait((done,))
    except asyncio.CancelledError:
        done.cancel()  # nobody asks for it any more, nor for its error
        raise
    thread.join()  # it is at its last instruction
    return done.result()
