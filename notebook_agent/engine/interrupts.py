"""Ctrl-C and Kernel > Interrupt while this thread is held by synchronous code.

In an awaited cell SIGINT only cancels the cell's task, which code that blocks the thread never
hears of. And a KeyboardInterrupt may be raised between any two lines: right after a run was
started, say, which nobody would then stop.

Source: LLM turn, "Python notes for the races" (L119); notebook side, running a cell (D4, F11).
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["ignored", "interruptible", "noted"]


@contextmanager
def _handled(handler: Callable[..., Any] | signal.Handlers) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # signals go to the main thread
        return
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        if before is not None:  # None: a handler that Python did not install
            signal.signal(signal.SIGINT, before)


@contextmanager
def interruptible() -> Iterator[None]:
    """Inside, an interrupt raises KeyboardInterrupt, whoever handled it outside."""
    with _handled(signal.default_int_handler):
        yield


@contextmanager
def noted() -> Iterator[list[bool]]:
    """Inside, an interrupt raises nothing: it is put on the list, which is looked at in time."""
    pressed: list[bool] = []
    with _handled(lambda *_: pressed.append(True)):
        yield pressed


@contextmanager
def ignored() -> Iterator[None]:
    """Inside, an interrupt does nothing."""
    with _handled(signal.SIG_IGN):
        yield
