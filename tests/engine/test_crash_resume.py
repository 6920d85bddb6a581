"""SIGKILL from outside at random moments in every state, then resume (B75; issue 4's crash test)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

KILLS = 300
EACH = 30  # in each of the six states, and between a tool's start and its record
ROOT = Path(__file__).parent.parent.parent


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the driver forks its victims")
def test_B75_kill_9_in_every_state_loses_nothing_and_starts_no_tool_twice(capsys) -> None:
    memory = Path("/dev/shm")  # a file system without a disk: the same kills, faster
    folder = tempfile.mkdtemp(dir=memory if memory.is_dir() else None)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tests.engine.crash_worker", folder, str(KILLS), str(EACH), "7"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=580,
            check=False,
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    assert done.stdout.strip(), done.stderr[-2000:]
    report = json.loads(done.stdout.strip().splitlines()[-1])
    with capsys.disabled():
        print(
            f"\ncrash test: kills {report.get('kills')}, resumes {report.get('resumes')}, "
            f"rows lost {report.get('rows_lost')}, "
            f"tools started twice {report.get('tools_started_twice')}; at {report.get('at')}"
        )
    assert done.returncode == 0, report.get("error", done.stderr[-2000:])
    assert report["kills"] >= KILLS
    assert min(report["at"].values()) >= EACH
    assert len(report["at"]) == 7
    assert report["resumes"] >= KILLS
    assert report["rows_lost"] == 0
    assert report["rows_doubled"] == 0
    assert report["calls_unanswered"] == 0
    assert report["tools_started_twice"] == 0
