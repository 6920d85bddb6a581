"""SIGKILL from outside at random moments in every state, then resume (B75; issue 4's crash test)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest

KILLS = 300
EACH = 30  # in each of the six states, and between a tool's start and its record
DRIVERS = 2  # side by side, each with its share: a driver mostly waits for its victim's next mark
ROOT = Path(__file__).parent.parent.parent


@pytest.mark.slow
@pytest.mark.serial
@pytest.mark.timeout(600)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the driver forks its victims")
def test_B75_kill_9_in_every_state_loses_nothing_and_starts_no_tool_twice(capsys) -> None:
    memory = Path("/dev/shm")  # a file system without a disk: the same kills, faster
    folders = [tempfile.mkdtemp(dir=memory if memory.is_dir() else None) for _ in range(DRIVERS)]
    share = (str(KILLS // DRIVERS), str(EACH // DRIVERS))
    drivers = []
    try:
        for seed, folder in enumerate(folders, 7):
            command = [sys.executable, "-m", "tests.engine.crash_worker", folder, *share, str(seed)]
            drivers.append(
                subprocess.Popen(
                    command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
                )
            )
        ends = [driver.communicate(timeout=580) for driver in drivers]
    finally:
        for driver in drivers:
            driver.kill()
            driver.wait()
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
    report: Counter[str] = Counter()
    at: Counter[str] = Counter()
    for driver, (out, err) in zip(drivers, ends, strict=True):
        assert out.strip(), err[-2000:]
        one = json.loads(out.strip().splitlines()[-1])
        assert driver.returncode == 0, one.get("error", err[-2000:])
        at.update(one.pop("at"))
        report.update(one)
    with capsys.disabled():
        print(
            f"\ncrash test: kills {report['kills']}, resumes {report['resumes']}, "
            f"rows lost {report['rows_lost']}, "
            f"tools started twice {report['tools_started_twice']}; at {dict(at)}"
        )
    assert report["kills"] >= KILLS
    assert min(at.values()) >= EACH
    assert len(at) == 7
    assert report["resumes"] >= KILLS
    assert report["rows_lost"] == 0
    assert report["rows_doubled"] == 0
    assert report["calls_unanswered"] == 0
    assert report["tools_started_twice"] == 0
