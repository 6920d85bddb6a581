"""``notebook-agent demo``: a real kernel, the quick start on the scripted model."""

from __future__ import annotations

import os
import subprocess
import sys

import nbformat
import pytest

from notebook_agent import cli
from notebook_agent.cli import demo
from notebook_agent.providers import local_files


def run_demo(tmp_path, *words, **environment):
    return subprocess.run(
        [sys.executable, "-m", "notebook_agent", "demo", *words],
        capture_output=True, text=True, timeout=110, cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path / "home"), **environment},
    )  # fmt: skip


@pytest.mark.kernel
def test_demo_on_the_scripted_model_shows_and_writes_everything(tmp_path):
    done = run_demo(tmp_path, "--model", "scripted")
    assert done.returncode == 0, done.stderr
    for word in (
        "scripted:teacher",  # who answered, in the footer and in the audit frame
        "understands nothing",  # the reply
        "1 turn",  # the footer
        "CALLING_MODEL",  # the FSM trace
        "input_tokens",  # the audit frame
    ):
        assert word in done.stdout, word
    notebook = nbformat.read(tmp_path / "out" / "00_quickstart.ipynb", as_version=4)
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")
    assert "CALLING_MODEL" in (tmp_path / "out" / "00_quickstart.html").read_text()
    assert not (tmp_path / "home").exists() or not list((tmp_path / "home").rglob("sessions.db"))


@pytest.mark.kernel
def test_a_failing_cell_fails_the_demo_and_is_still_written(tmp_path):
    done = run_demo(tmp_path, "--model", "nonsense:model", "--out", "there")
    assert done.returncode == 1
    assert "The demo failed" in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "there" / "00_quickstart.ipynb").is_file()


def test_demo_without_model_file_says_what_to_type(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(local_files, "cache_folder", lambda: tmp_path)
    assert cli.main(["demo"]) == 1
    err = capsys.readouterr().err
    assert "fetch-model" in err
    assert "--model scripted" in err


def test_demo_without_its_packages_says_what_to_type(monkeypatch, capsys):
    monkeypatch.setattr(demo.importlib.util, "find_spec", lambda _name: None)
    assert cli.main(["demo"]) == 1
    assert "notebook-agent[demo]" in capsys.readouterr().err


def test_demo_into_a_place_that_cannot_be_made(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert cli.main(["demo", "--model", "scripted", "--out", str(tmp_path / "file" / "x")]) == 1
    assert "--out FOLDER" in capsys.readouterr().err
