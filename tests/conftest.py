"""Shared test ground: no real requests, fixed surroundings, an event loop with virtual time."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import selectors

import pytest
from hypothesis import HealthCheck, settings

from notebook_agent.engine.clock import Surroundings
from notebook_agent.providers import base

# No example has a deadline: the machines that run this are shared, and speed is a bench's business.
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")


class _SkippingSelector(selectors.DefaultSelector):
    """Never sleeps: when nothing is ready, virtual time jumps to the next timer."""

    def __init__(self, loop_time: list[float]) -> None:
        super().__init__()
        self._time = loop_time

    def select(self, timeout=None):
        ready = super().select(0)
        if not ready and timeout is None:
            ready = super().select(1.0)  # waiting for a thread: give it real time
        elif not ready and timeout:
            self._time[0] += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is virtual: ``await sleep(300)`` takes no time at all.

    For engine tests without sockets and threads. ``loop.time()`` is the clock to inject.
    """

    def __init__(self) -> None:
        self._virtual = [1000.0]
        super().__init__(_SkippingSelector(self._virtual))

    def time(self) -> float:
        return self._virtual[0]


def run_virtual(coro):
    """Run a coroutine to its end in virtual time and return its result."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(asyncio.wait_for(coro, 100_000))
    finally:
        pending = asyncio.all_tasks(loop)
        assert not pending, f"tasks outlive the run: {pending}"
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def fixed_surroundings(**over) -> Surroundings:
    """Clock of the running loop, ids ``run_0, message_1, ...``, no jitter, wall at 2026-01-01."""
    count = itertools.count()

    def now() -> float:
        return asyncio.get_running_loop().time()

    base_wall = 1_767_225_600.0
    given = dict(
        now=now,
        wall=lambda: base_wall,
        sleep=asyncio.sleep,
        uniform=lambda low, high: (low + high) / 2,
        new_id=lambda kind: f"{kind}_{next(count)}",
    )
    return Surroundings(**{**given, **over})


@pytest.fixture(autouse=True)
def no_real_requests(request):
    """Real model requests are impossible unless a test asks (loopback servers)."""
    marker = request.node.get_closest_marker("allow_requests")
    before = base.ALLOW_MODEL_REQUESTS.allowed
    base.ALLOW_MODEL_REQUESTS.allowed = marker is not None
    yield
    base.ALLOW_MODEL_REQUESTS.allowed = before


# A skip for the want of something that CI installs: by hand it is a skip, in CI a failure.
MISSING = re.compile(
    r"could not import|no module named|not installed|pip install|no browser|no local model"
    r"|cannot be started|did not start|is not running",
    re.IGNORECASE,
)


def fails_in_ci(reason: str) -> bool:
    """Whether a skip with this reason is a failure here.

    Only with CI=true, and not in the compatibility sets (NOTEBOOK_AGENT_COMPAT), whose
    environments leave packages out on purpose.
    """
    in_ci = os.environ.get("CI") == "true" and not os.environ.get("NOTEBOOK_AGENT_COMPAT")
    return in_ci and MISSING.search(reason) is not None


def _failed_if_missing(report) -> None:
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if fails_in_ci(reason):
        report.outcome = "failed"
        report.longrepr = f"CI must not skip this: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    _failed_if_missing(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    _failed_if_missing(report)
    return report
