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
        "Next, JupyterLab on the notebooks:  make lab",
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


def test_demo_without_the_local_models_package_says_what_to_type(monkeypatch, capsys):
    real = demo.importlib.util.find_spec
    monkeypatch.setattr(
        demo.importlib.util, "find_spec", lambda name: None if name == "xllamacpp" else real(name)
    )
    assert cli.main(["demo"]) == 1
    err = capsys.readouterr().err
    assert "The local model needs a package" in err
    assert "--model scripted" in err


def notebook_of(*sources):
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(one) for one in sources])


def test_a_demo_whose_agent_shows_nothing_failed(monkeypatch, tmp_path, capsys):
    """The kernel is left out: what counts is what the executed notebook holds."""
    from notebook_agent.cli import demo_run

    given = {}

    def executed(source, folder, environment, timeout_s):
        given.update(environment)
        return notebook_of("x = 1", "%%agent --fresh\nHi"), ""

    monkeypatch.setattr(demo_run, "execute", executed)
    monkeypatch.setattr(local_files, "find_model", lambda: local_files)
    assert cli.main(["demo", "--out", str(tmp_path)]) == 1
    captured = capsys.readouterr()
    assert "the cell '%%agent --fresh' shows nothing" in captured.err
    assert f"wrote {tmp_path / '00_quickstart.html'}" in captured.out
    assert given["NOTEBOOK_AGENT_MODEL"] == "local:smollm2"
    assert given["NOTEBOOK_AGENT_STORE"] == "memory"


@pytest.mark.kernel
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # jupyter_client's own sockets
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_outputs_are_printed_as_they_come_and_a_kernel_that_dies_is_said(tmp_path, capsys):
    from notebook_agent.cli import demo_run

    source = tmp_path / "talk.ipynb"
    talk = notebook_of(
        "print('one\\x1b[31m\\x1b]0;title\\x07 two')",
        "from IPython.display import display, update_display\n"
        "_ = display('first', display_id='d'); update_display('second', display_id='d')",
        "40 + 2",
        "import os, sys; print('last words', file=sys.__stderr__, flush=True); os._exit(3)",
    )
    source.write_text(nbformat.writes(talk))
    notebook, problem = demo_run.execute(source, tmp_path, dict(os.environ), 60)
    out = capsys.readouterr().out
    assert "    40 + 2\n\n42" in out
    assert "'first'" in out
    assert "one" in out
    assert "\x1b" not in out  # no word of a model moves the cursor
    assert "died" in problem
    assert "\n" not in problem
    assert notebook.cells[2].outputs[0]["data"]["text/plain"] == "42"
