"""Whose run is it? A run of a living process is not taken up by another (B75, B78)."""

from __future__ import annotations

import dataclasses
import os

import pytest

from notebook_agent.core.session import RunStatus
from notebook_agent.engine.runtime import broken_runs
from notebook_agent.errors import SessionBusy
from tests.conftest import run_virtual
from tests.engine.test_runtime_resume import Killed, Mortal, _world


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
    store = Mortal()
    store.at = 12
    with pytest.raises(Killed):
        run_virtual(_world(store, []).arun("Hi"))
    store.at = None
    snapshot = broken_runs(store)[0]
    kept = snapshot.data["run"]
    changed = {**kept, "owner": {**kept["owner"], **owner}}
    store.save_snapshot(dataclasses.replace(snapshot, data={**snapshot.data, "run": changed}))
    second = _world(store, [])
    if refused:
        with pytest.raises(SessionBusy):
            run_virtual(second.aresume())
    else:
        assert run_virtual(second.aresume()).status is RunStatus.COMPLETED


def test_a_process_that_may_not_be_asked_is_alive(monkeypatch) -> None:
    store = Mortal()
    store.at = 12
    with pytest.raises(Killed):
        run_virtual(_world(store, []).arun("Hi"))
    store.at = None
    snapshot = broken_runs(store)[0]
    kept = snapshot.data["run"]
    changed = {**kept, "owner": {**kept["owner"], "pid": 1}}
    store.save_snapshot(dataclasses.replace(snapshot, data={**snapshot.data, "run": changed}))

    def forbidden(_pid, _signal):
        raise PermissionError

    monkeypatch.setattr(os, "kill", forbidden)
    with pytest.raises(SessionBusy):
        run_virtual(_world(store, []).aresume())
