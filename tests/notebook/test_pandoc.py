"""F5: the saved output read by pandoc: what is told survives as gfm, with no style at all."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from notebook_agent.notebook.output import frozen_html
from notebook_agent.notebook.reducer import reduce_all
from tests.notebook.recorded import recorded


def to_gfm(html: str) -> str:
    pandoc = shutil.which("pandoc")
    if pandoc is None:
        assert os.environ.get("CI") != "true", "apt install pandoc"
        pytest.skip("apt install pandoc")
    done = subprocess.run(
        [pandoc, "--from=html", "--to=gfm-raw_html", "--wrap=none"],
        input=html, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return done.stdout


def test_F5_pandoc_gfm_tells_the_whole() -> None:
    state = reduce_all(recorded()["completed"])
    text = to_gfm(frozen_html(state))
    for word in ("completed", "Two stretches look like a stuck sensor", "breaker: primary", "END_TURN",
                 "**3 March, 02:00 to 07:00.**", 'rolling(5).std() < 0.002', "744 rows, hourly, 2 missing"):  # fmt: skip
        assert word in text.replace("\\", ""), word
    head = next(line for line in text.splitlines() if line.startswith("|") and "outcome" in line)
    assert head.count("|") == 12  # the audit table is a real table of eleven columns
    failed = to_gfm(frozen_html(reduce_all(recorded()["failed"])))
    assert "401: the key was refused." in failed
    assert "failed" in failed
