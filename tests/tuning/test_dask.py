"""A sweep on a real dask cluster whose workers are killed in mid-sweep (extra dask)."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections import Counter

import pytest

from notebook_agent.tuning.cells import grid
from notebook_agent.tuning.sweep import Sweep

distributed = pytest.importorskip("distributed")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.serial,
    pytest.mark.filterwarnings("ignore"),  # dask's own, on its way down
]


class Logged:
    """Work that writes each call to a file before it answers; picklable."""

    code_version = "logged 1"

    def __init__(self, log, seconds=0.02):
        self.log, self.seconds = str(log), seconds

    def __call__(self, cell):
        out = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(out, f"{cell.inputs['n']} {os.getpid()}\n".encode())
        os.close(out)
        time.sleep(self.seconds)
        return {"n": cell.inputs["n"], "pid": os.getpid()}


@pytest.fixture
def client():
    with (
        warnings.catch_warnings(),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None,
            host="127.0.0.1", memory_limit=0,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):  # fmt: skip
        warnings.simplefilter("ignore")
        yield client


def calls(log):
    return Counter(line.split()[0] for line in log.read_text().splitlines())


def test_workers_killed_in_mid_sweep_cost_at_most_one_call_each_and_each_is_marked(
    client, tmp_path
):
    log, count = tmp_path / "log", 150
    cells = grid(inputs=[{"n": n} for n in range(count)])
    killed = []

    def kill():
        for wanted in (15, 60, 100):
            until = time.monotonic() + 40
            while not log.exists() or log.read_text().count("\n") < wanted:
                if time.monotonic() > until:
                    return
                time.sleep(0.01)
            pid = int(log.read_text().splitlines()[-1].split()[1])
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with Sweep(Logged(log), cells, journal=tmp_path / "j.db") as sweep:
        sweep.run(client.get_executor())
        killer.join()
        frame = sweep.frame()
        progress = sweep.progress
    assert len(killed) == 3
    assert len(set(killed)) == 3
    done = frame[frame["status"] == "done"]
    lost = frame[frame["status"] == "failed"]  # died twice with the same cell: said, not hidden
    assert len(done) + len(lost) == count
    assert {str(words).partition(":")[0] for words in lost["error"]} <= {"WorkerLost"}
    seen = calls(log)
    assert set(seen) == {str(n) for n in range(count)}
    resent = {str(frame["n"][place]): frame["resent"][place] for place in done.index}
    for number, times in seen.items():
        assert times - 1 <= resent.get(number, times), f"cell {number}: {times} calls unmarked"
    assert progress.resent == frame["resent"].sum()
    assert progress.resent >= 1
    # the same sweep again sends only what was lost
    with Sweep(Logged(log), grid(inputs=[{"n": n} for n in range(count)]), journal=tmp_path / "j.db") as sweep:  # fmt: skip
        sweep.run(client.get_executor(), retry_failed=True)
        assert sweep.progress.done == count
    assert sum(calls(log).values()) == sum(seen.values()) + len(lost)


def test_the_schedulers_own_setting_is_put_back(client, tmp_path):
    before = client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.allowed_failures)
    cells = grid(inputs=[{"n": n} for n in range(4)])
    assert Sweep(Logged(tmp_path / "log", 0.0), cells).run(client.get_executor()).progress.done == 4
    after = client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.allowed_failures)
    assert after == before > 0
