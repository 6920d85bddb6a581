"""Thousands of kills: SIGKILL from outside in every state, then a fresh process resumes.

The driver is the crash test's own (tests/engine/crash_worker.py): it kills, resumes, and checks
every promise after each; here it runs ten times as long. Two drivers side by side, on a file
system without a disk where there is one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bench.kit import ROOT, Row, plain_row

KILLS, QUICK_KILLS = 3_000, 150
DRIVERS = 2
LIMIT_S = 3_600.0


def crashes(kills: int) -> tuple[Counter[str], Counter[str], float]:
    """Counts of all drivers together, kills by state, and seconds.

    Raises:
        RuntimeError: A driver found a broken promise.
    """
    memory = Path("/dev/shm")
    folders = [tempfile.mkdtemp(dir=memory if memory.is_dir() else None) for _ in range(DRIVERS)]
    each = max(1, kills // DRIVERS // 15)  # at least so many in each state, and inside a tool
    drivers: list[subprocess.Popen[str]] = []
    began = time.monotonic()
    try:
        for seed, folder in enumerate(folders, 70):
            command = [sys.executable, "-m", "tests.engine.crash_worker", folder]
            command += [str(kills // DRIVERS), str(each), str(seed)]
            drivers.append(
                subprocess.Popen(
                    command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
                )
            )
        ends = [driver.communicate(timeout=LIMIT_S) for driver in drivers]
    finally:
        for driver in drivers:
            driver.kill()
            driver.wait()
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
    report: Counter[str] = Counter()
    at: Counter[str] = Counter()
    for driver, (out, err) in zip(drivers, ends, strict=True):
        last = json.loads(out.strip().splitlines()[-1]) if out.strip() else {}
        if driver.returncode != 0:
            raise RuntimeError(str(last.get("error", err))[-2000:])
        at.update(last.pop("at"))
        report.update(last)
    return report, at, time.monotonic() - began


def rows(quick: bool) -> Iterator[Row]:
    """The row of this bench."""
    kills = QUICK_KILLS if quick else KILLS
    if not hasattr(os, "fork"):
        yield plain_row(3, "kill -9 in every state, then resume", "no fork here", "", None)
        return
    found, at, took = crashes(kills)
    bad = [name for name in ("rows_lost", "rows_doubled", "calls_unanswered", "tools_started_twice") if found[name]]  # fmt: skip
    where = ", ".join(f"{count} {name}" for name, count in sorted(at.items()))
    yield plain_row(
        3, "kill -9 in every state, then resume",
        f"{found['kills']:,} kills ({where}), {found['resumes']:,} resumes; "
        f"{found['rows_lost']} rows lost, {found['rows_doubled']} doubled, "
        f"{found['calls_unanswered']} calls unanswered, "
        f"{found['tools_started_twice']} tools started twice; {took:.0f} s",
        f"{kills:,} kills, nothing lost, doubled or started twice",
        found["kills"] >= kills and not bad,
    )  # fmt: skip
