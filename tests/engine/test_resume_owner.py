"""Whose run is it? A run of a living process is not taken up by another (B75, B78)."""

from __future__ import annotations

import os

import pytest

from notebook_agent.core.session import RunStatus
from notebook_agent.errors import SessionBusy
from tests.conftest import run_virtual
from tests.engine.test_runtime_resume import _world, broken_off


@pytest.mark.parametrize(
    ("owner", "refused"),
    [
        ({"pid": os.getpid()}, False),  # this process, and nothing runs in it
        ({"pid": 2**22 + 1}, False),  # no such process
        ({"host": "elsewhere"}, False),  # nobody can ask there: the user decides
        ({"pid": "none"}, False),
        ({"pid": 1}, True),
    ],
)
def test_who_owns_a_broken_run_is_asked_of_the_system(owner, refused) -> None:
    store = broken_off(**owner)
    second = _world(store, [])
    if refused:
        with pytest.raises(SessionBusy):
            run_virtual(second.aresume())
    else:
        assert run_virtual(second.aresume()).status is RunStatus.COMPLETED


def test_a_process_that_may_not_be_asked_is_alive(monkeypatch) -> None:
    store = broken_off(pid=1)

    def forbidden(_pid, _signal):
        raise PermissionError

    monkeypatch.setattr(os, "kill", forbidden)
    with pytest.raises(SessionBusy):
        run_virtual(_world(store, []).aresume())
