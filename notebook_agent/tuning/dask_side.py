"""What a sweep tells ``dask.distributed``: do not run a cell again on your own, or say so.

A scheduler runs a task again when its worker died with it, three times by default, and a finished
task when the worker dies before its result was fetched. Both are calls that cost money, so the
first is switched off and the second is counted.

Source: tune by experiment, sweeps (dask tasks run with retries 0; ``resent`` is counted).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["CountRuns", "is_dask", "strict"]

_NAME = "notebook-agent-sweep"


def is_dask(executor: Any) -> bool:
    """Whether it is what ``Client.get_executor()`` gives."""
    return type(executor).__module__.startswith("distributed.") and hasattr(executor, "_client")


class CountRuns:
    """A scheduler plugin: how often each task of ours was sent to a worker, when more than once."""

    name = _NAME

    def __init__(self) -> None:
        self.once: set[str] = set()
        self.more: dict[str, int] = {}

    def transition(self, key: Any, start: str, finish: str, *_: Any, **__: Any) -> None:
        """Told of every change of a task's state."""
        if finish == "forgotten":
            self.once.discard(key)
        if finish != "processing" or start == "processing":
            return
        if key in self.once:
            self.more[key] = self.more.get(key, 0) + 1
        else:
            self.once.add(key)


def _install(dask_scheduler: Any) -> int:
    from distributed.diagnostics.plugin import SchedulerPlugin  # noqa: PLC0415  # extra: dask

    kind = type("CountRuns", (CountRuns, SchedulerPlugin), {})
    if _NAME not in dask_scheduler.plugins:
        dask_scheduler.add_plugin(kind(), name=_NAME)
    before = int(dask_scheduler.allowed_failures)
    dask_scheduler.allowed_failures = 0
    return before


def _remove(dask_scheduler: Any, before: int) -> None:
    dask_scheduler.allowed_failures = before
    if _NAME in dask_scheduler.plugins:
        dask_scheduler.remove_plugin(name=_NAME)


def _read(dask_scheduler: Any) -> dict[str, int]:
    plugin = dask_scheduler.plugins.get(_NAME)
    return {} if plugin is None else dict(plugin.more)


@contextlib.contextmanager
def strict(executor: Any) -> Iterator[Callable[[], dict[str, int]]]:
    """While it holds: a task whose worker died is not run again by the scheduler.

    Returns:
        A function: task key -> how often it was run again all the same.
    """
    client = executor._client
    before = client.run_on_scheduler(_install)
    try:
        yield lambda: dict(client.run_on_scheduler(_read))
    finally:
        with contextlib.suppress(Exception):  # the cluster may be gone
            client.run_on_scheduler(_remove, before=before)
