"""Running a coroutine from synchronous code, under a running loop too (K02, K03).

Source: LLM turn, "Python notes for the races" (L119, L127).
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from notebook_agent.engine.cancel import CancelSignal
from notebook_agent.engine.interrupts import noted

__all__ = ["run_sync"]

T = TypeVar("T")
JOIN_STEP_S = 0.05  # a wait without a time-out cannot be interrupted on every platform


def run_sync(make: Callable[[], Coroutine[Any, Any, T]], cancel: CancelSignal) -> T:
    """Make the coroutine on a loop of its own and wait for its result.

    No running loop is patched or nested: when this thread has one, the coroutine gets a thread
    of its own while this one waits. Interrupting the wait fires ``cancel`` and waits on.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(make())
    results: list[T] = []
    errors: list[BaseException] = []
    context = contextvars.copy_context()

    def body() -> None:
        try:
            results.append(context.run(asyncio.run, make()))
        except BaseException as error:  # noqa: BLE001  # raised again in the waiting thread
            errors.append(error)
        finally:
            over.set()

    over = threading.Event()  # an interrupted join may take a running thread for an ended one
    thread = threading.Thread(target=body, name="notebook-agent-run", daemon=True)
    with noted() as pressed:
        thread.start()
        while not over.wait(JOIN_STEP_S):
            if pressed:  # Ruling: L119, the run ends itself
                pressed.clear()
                cancel.cancel()
    if errors:
        raise errors[0]
    return results[0]
