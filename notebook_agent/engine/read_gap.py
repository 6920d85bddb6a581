"""The read gap of passthrough: without the handler's deadlines a dead line would never end.

Source: LLM turn, "StreamHandler" (L50, L70).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from notebook_agent.core.retry import StreamTimeouts
from notebook_agent.providers import base

__all__ = ["read_gap"]


@contextmanager
def read_gap(timeouts: StreamTimeouts) -> Iterator[None]:
    """In passthrough, requests sent inside give up after ``PASSTHROUGH_GAP_S`` of silence.

    Otherwise nothing is set: the handler's deadlines rule (L70).
    """
    if not timeouts.passthrough:
        yield
        return
    token = base.READ_GAP_S.set(base.PASSTHROUGH_GAP_S)
    try:
        yield
    finally:
        base.READ_GAP_S.reset(token)
