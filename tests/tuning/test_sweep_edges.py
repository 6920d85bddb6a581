"""Sweeps at their edges: what is refused, waited for, lost, run again by dask."""

from __future__ import annotations

import asyncio
import concurrent.futures as cf
import functools
import sqlite3
import threading
from collections import Counter
from types import SimpleNamespace

import pytest

from notebook_agent.errors import Cancelled, ConfigError, StoreError
from notebook_agent.tuning.cells import code_version, grid
from notebook_agent.tuning.executors import AsyncExecutor, Limit
from notebook_agent.tuning.journal import Begun, Journal
from notebook_agent.tuning.sweep import Sweep


def numbers(count):
    return grid(inputs=[{"n": n} for n in range(count)])


def plain(cell):
    return cell.inputs["n"]


def test_a_plain_function_is_refused_on_an_event_loop_executor():
    executor = AsyncExecutor(Limit(concurrency=1))
    with pytest.raises(ConfigError, match="Write it with async def"):
        Sweep(plain, numbers(2)).run(executor)
    with pytest.raises(TypeError, match="by position"):
        executor.submit(asyncio.sleep, delay=1)
    executor.shutdown()
    executor.shutdown()  # a second time is nothing


def test_waiting_has_an_end_and_ctrl_c_there_stops_the_sweep(monkeypatch):
    gate = threading.Event()

    async def work(cell):
        while not gate.is_set():
            await asyncio.sleep(0.005)
        return cell.inputs["n"]

    one = Sweep(work, numbers(3)).start()
    with pytest.raises(TimeoutError, match="0 of 3 cells answered"):
        one.wait(0.0)
    with pytest.raises(ConfigError, match="running already"):
        one.run()
    thread = one._thread
    real = one._over.wait

    def pressed(timeout=None):
        monkeypatch.setattr(one._over, "wait", real)
        raise KeyboardInterrupt

    monkeypatch.setattr(one._over, "wait", pressed)
    with pytest.raises(Cancelled, match="stopped after 0 of 3 cells"):
        one.wait()
    assert not thread.is_alive()
    gate.set()
    assert one.run().progress.done == 3


def test_what_ended_a_sweep_in_a_thread_is_raised_where_it_is_waited_for():
    one = Sweep(plain, numbers(2)).start(AsyncExecutor(Limit(concurrency=1)))
    with pytest.raises(ConfigError, match="plain one"):
        one.wait(20)


def test_cells_that_could_not_be_noted_are_not_sent(tmp_path):
    sent = []

    def work(cell):
        sent.append(cell.inputs["n"])

    with Sweep(work, numbers(4), journal=tmp_path / "j.db") as one:
        one.journal._db.execute("PRAGMA query_only=ON")
        with pytest.raises(StoreError, match="cannot be"):
            one.run()
        assert sent == []
        one.journal._db.execute("PRAGMA query_only=OFF")
        assert one.run().progress.done == 4
    assert sorted(sent) == [0, 1, 2, 3]


class Scheduler:
    """As much of dask's scheduler as a sweep touches; runs a cell again when told to."""

    def __init__(self):
        self.plugins, self.allowed_failures = {}, 3

    def add_plugin(self, plugin, name):
        self.plugins[name] = plugin

    def remove_plugin(self, name):
        del self.plugins[name]


class DaskExecutor(cf.Executor):
    """What ``Client.get_executor()`` gives, by its module's name."""

    __module__ = "distributed.cfexecutor"

    def __init__(self, again=()):
        self.scheduler, self.again, self.given = Scheduler(), Counter(again), []
        self._client = SimpleNamespace(
            run_on_scheduler=lambda f, **k: f(dask_scheduler=self.scheduler, **k),
            nthreads=lambda: {"one": 1, "two": 1},
        )

    def submit(self, fn, /, work, cell, **given):
        self.given.append((given["retries"], self.scheduler.allowed_failures))
        for plugin in list(self.scheduler.plugins.values()):
            plugin.transition(given["key"], "waiting", "processing")
            for _ in range(self.again[cell.inputs["n"]]):
                plugin.transition(given["key"], "processing", "memory")
                plugin.transition(given["key"], "memory", "processing")
        future = cf.Future()
        future.set_result(fn(work, cell))
        for plugin in list(self.scheduler.plugins.values()):
            plugin.transition(given["key"], "memory", "forgotten")
            plugin.transition("somebody else's", "waiting", "processing")
            plugin.transition("somebody else's", "memory", "processing")
        return future


def test_tasks_that_dask_ran_again_are_counted_and_its_setting_is_put_back():
    pytest.importorskip("distributed")
    executor = DaskExecutor({1: 1, 3: 2})
    sweep = Sweep(plain, numbers(5)).run(executor)
    assert sweep.frame()["resent"].tolist() == [0, 1, 0, 2, 0]
    assert (sweep.progress.done, sweep.progress.resent) == (5, 3)
    assert executor.given == [(0, 0)] * 5  # dask is told to run nothing again on its own
    assert (executor.scheduler.allowed_failures, executor.scheduler.plugins) == (3, {})
    quiet = Sweep(plain, numbers(2)).run(DaskExecutor())
    assert quiet.progress.resent == 0


def test_code_without_a_source_has_its_name():
    assert code_version(len) == "len"
    assert code_version(functools.partial(plain)) == code_version(plain)


def test_a_journal_of_many_pages_and_one_that_nobody_signed(tmp_path):
    with Journal(tmp_path / "j.db") as one:
        one.begin([Begun(n.to_bytes(4, "big"), n, {}) for n in range(5_003)])
        assert [row.place for row in one.rows()] == list(range(5_003))
    lock = tmp_path / "k.db.lock"
    holder = sqlite3.connect(lock, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(ConfigError, match="of this or another process"):
        Journal(tmp_path / "k.db")
    holder.close()
