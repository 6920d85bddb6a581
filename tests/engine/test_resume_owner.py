"""Whose run is it? A run of a living process is not taken up by another (B75, B78)."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from notebook_agent.core.session import RunStatus
from notebook_agent.engine.runtime import owner as owners
from notebook_agent.errors import SessionBusy
from tests.conftest import run_virtual
from tests.engine.test_runtime_resume import _world, broken_off

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc tells the start")


@pytest.fixture
def living():
    """Another process that lives as long as the test."""
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as child:
        yield child
        child.kill()


def mark(pid):
    """The owner that this process would have written."""
    return {**owners.owner_mark(), "pid": pid, "started": owners._started(owners._stat(pid))}


@pytest.mark.parametrize(
    ("owner", "refused"),
    [
        ({"pid": os.getpid()}, False),  # this process, and nothing runs in it
        ({"pid": 2**22 + 1}, False),  # no such process
        ({"pid": 2**70}, False),  # no number of a process at all
        ({"pid": 0}, False),
        ({"host": "elsewhere"}, False),  # nobody can ask there: the user decides
        ({"pid": "none"}, False),
        ({"pid": 1}, True),
    ],
)
def test_who_owns_a_broken_run_is_asked_of_the_system(owner, refused) -> None:
    store = broken_off(**{"started": None, **owner})  # as before the start was written down
    second = _world(store, [])
    if refused:
        with pytest.raises(SessionBusy):
            run_virtual(second.aresume())
    else:
        assert run_virtual(second.aresume()).status is RunStatus.COMPLETED


def test_a_process_that_may_not_be_asked_is_alive(monkeypatch) -> None:
    store = broken_off(pid=1, started=None)

    def forbidden(_pid, _signal):
        raise PermissionError

    monkeypatch.setattr(os, "kill", forbidden)
    with pytest.raises(SessionBusy):
        run_virtual(_world(store, []).aresume())


@LINUX
def test_B75_the_number_of_a_dead_kernel_that_another_process_has_now(living) -> None:
    store = broken_off(**mark(living.pid))
    with pytest.raises(SessionBusy):
        run_virtual(_world(store, []).aresume())
    boot, _, ticks = mark(living.pid)["started"].partition("/")
    earlier = broken_off(pid=living.pid, started=f"{boot}/{int(ticks) - 1}")
    assert run_virtual(_world(earlier, []).aresume()).status is RunStatus.COMPLETED
    other_boot = broken_off(pid=living.pid, started=f"another/{ticks}")
    assert run_virtual(_world(other_boot, []).aresume()).status is RunStatus.COMPLETED


@LINUX
@pytest.mark.parametrize("with_start", [True, False])
def test_B75_a_killed_kernel_that_nobody_reaped_is_dead(living, with_start) -> None:
    kept = mark(living.pid)
    living.kill()
    os.waitid(os.P_PID, living.pid, os.WEXITED | os.WNOWAIT)  # dead, and still in the table
    os.kill(living.pid, 0)
    store = broken_off(**{**kept, "started": kept["started"] if with_start else None})
    assert run_virtual(_world(store, []).aresume()).status is RunStatus.COMPLETED


def test_where_no_start_is_told_the_number_decides(living, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(owners, "PROC", tmp_path)
    assert owners.owner_mark()["started"] is None
    assert owners.living_elsewhere(mark(living.pid))
    (tmp_path / str(living.pid)).mkdir()
    (tmp_path / str(living.pid) / "stat").write_text("7 (odd) name) S 1")
    assert owners.living_elsewhere(mark(living.pid)), "a line that is cut short says nothing"


def test_B75_a_refused_resume_says_what_to_type() -> None:
    store = broken_off(pid=1, started=None)
    second = _world(store, [])
    with pytest.raises(SessionBusy) as refused:
        run_virtual(second.aresume())
    run_id = store.unfinished_runs()[0][0]
    assert f"%agent resume {run_id} --force" in str(refused.value)
    assert "process 1" in str(refused.value)
    assert run_virtual(second.aresume(run_id, force=True)).status is RunStatus.COMPLETED
