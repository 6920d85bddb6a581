"""The command line: parsing, exit codes, doctor, fetch-model, decode, replay, lab."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import notebook_agent
from notebook_agent import cli
from notebook_agent.cli import fetch, folder, lab
from notebook_agent.errors import ConfigError
from notebook_agent.notebook import doctor
from notebook_agent.providers import local_files
from notebook_agent.providers.local_files import SMOLLM2

BODY = (
    b'data: {"id":"1","choices":[{"index":0,"delta":{"role":"assistant","content":"Hi \\u00fc"}}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5}}\n\n'
    b"data: [DONE]\n\n"
)


@pytest.fixture(autouse=True)
def own_places(monkeypatch, tmp_path):
    monkeypatch.setattr(local_files, "cache_folder", lambda: tmp_path / "cache" / "models")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    for name in list(os.environ):
        if name.endswith("_API_KEY"):
            monkeypatch.delenv(name)


def test_version_help_and_wrong_words(capsys):
    for words, code in (["--version"], 0), (["--help"], 0), (["nonsense"], 2), (["demo", "--x"], 2):
        with pytest.raises(SystemExit) as caught:
            cli.main(words)
        assert caught.value.code == code
    assert cli.main([]) == 2
    out = capsys.readouterr().out
    assert notebook_agent.__version__ in out
    for command in cli.COMMANDS:
        assert command in out


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main([command, "--help"])
    assert caught.value.code == 0
    assert cli.COMMANDS[command][1].split(",")[0] in " ".join(capsys.readouterr().out.split())


def test_module_and_script_are_the_same():
    done = subprocess.run(
        [sys.executable, "-m", "notebook_agent", "--version"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.strip() == f"notebook-agent {notebook_agent.__version__}"


def test_interrupt_and_errors_have_codes(monkeypatch, capsys):
    def stop(_words):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_run", stop)
    assert cli.main(["doctor"]) == 130
    monkeypatch.undo()
    assert cli.main(["decode", "/nowhere", "--api", "openai-chat"]) == 1
    err = capsys.readouterr().err
    assert "/nowhere cannot be read" in err
    assert "Traceback" not in err


def test_a_closed_pipe_is_no_traceback(tmp_path):
    done = subprocess.run(
        f"{sys.executable} -m notebook_agent doctor | head -n 1",
        shell=True, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


def test_a_reader_that_has_seen_enough_ends_the_command_quietly(monkeypatch, tmp_path):
    def broken(_words):
        raise BrokenPipeError

    with (tmp_path / "out").open("w") as out:
        monkeypatch.setattr(cli, "_run", broken)
        monkeypatch.setattr(sys, "stdout", out)
        assert cli.main(["doctor"]) == 1
        print("into nowhere", flush=True)
    assert (tmp_path / "out").read_text() == ""


def test_nothing_runs_when_the_module_is_only_imported(capsys):
    import notebook_agent.__main__ as module

    assert module.main is cli.main
    assert capsys.readouterr().out == ""


# ---- decode


@pytest.mark.parametrize("more", [[], ["--json"], ["--chunk", "1"], ["--chunk", "7", "--json"]])
def test_decode_prints_one_json_line_a_file(tmp_path, capsys, more):
    whole, cut = tmp_path / "a.sse", tmp_path / "b.sse"
    whole.write_bytes(BODY)
    cut.write_bytes(BODY[:90])
    assert cli.main(["decode", str(whole), str(cut), "--api", "openai-chat", *more]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["text"], first["stop_reason"], first["complete"]) == ("Hi ü", "stop", True)
    assert first["usage"]["input_tokens"] == 3
    assert second["complete"] is False
    assert set(first) == {
        "text", "thinking", "refusal", "tool_calls", "stop_reason", "stop", "usage", "error", "complete",
    }  # fmt: skip


def test_decode_refuses_bad_words(capsys, tmp_path):
    body = tmp_path / "a.sse"
    body.write_bytes(BODY)
    assert cli.main(["decode", str(body), "--api", "openai-chat", "--chunk", "0"]) == 1
    assert "chunk" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["decode", str(body), "--api", "nonsense"])


def test_decode_reads_standard_input(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(BODY)))
    assert cli.main(["decode", "-", "--api", "openai-chat"]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == "Hi ü"


# ---- replay


@pytest.fixture
def run_file(tmp_path):
    from notebook_agent import AgentRuntime, ScriptedModel
    from notebook_agent.engine.store.jsonl import export_runs

    runtime = AgentRuntime(ScriptedModel("Hello."))
    runtime.run("Hi")
    path = tmp_path / "run.jsonl"
    export_runs(runtime.store, runtime.session.id, path)
    return path


def test_replay_checks_a_run_file(run_file, capsys):
    assert cli.main(["replay", str(run_file), "--check"]) == 0
    assert "differs" not in capsys.readouterr().out
    assert cli.main(["replay", str(run_file), "--check", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] is True
    assert found["complete"] is True
    assert found["status"] == "completed"


def test_replay_tells_a_tampered_file(run_file, capsys):
    text = run_file.read_text()
    assert "calling_model" in text
    run_file.write_text(text.replace("calling_model", "persisting", 1))
    assert cli.main(["replay", str(run_file), "--check", "--json"]) == 1
    (first, *_) = json.loads(capsys.readouterr().out)["mismatches"]
    assert {"sequence", "expected", "actual"} <= set(first)


def test_replay_needs_check_and_a_run_file(tmp_path, capsys):
    with pytest.raises(SystemExit):
        cli.main(["replay", "x.jsonl"])
    (tmp_path / "x.jsonl").write_text("hello")
    assert cli.main(["replay", str(tmp_path / "x.jsonl"), "--check"]) == 1
    assert "Traceback" not in capsys.readouterr().err


# ---- doctor


def test_doctor_json_holds_no_key_and_asks_no_network(monkeypatch, capsys):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-key")
    monkeypatch.setattr("socket.socket", lambda *_a, **_k: pytest.fail("a socket was opened"))
    assert cli.main(["doctor", "--json"]) == 0
    out = capsys.readouterr().out
    found = json.loads(out)
    assert "very-secret" not in out
    assert found["models"]["providers"]["openai"] == "key set (OPENAI_API_KEY)"
    assert found["models"]["providers"]["anthropic"] == "key not set"
    assert found["packages"]["httpx"]
    assert found["local"]["file"] is None
    assert found["local"]["usable"] is False
    assert any("fetch-model" in line for line in found["advice"])
    assert {row["what"] for row in found["paths"]} == {"sessions", "model files", "package"}
    assert all(set(row) == {"what", "path", "size"} for row in found["paths"])
    assert found["counting"]["vocabularies"]["o200k_base"]["size"] > 1_000_000


def test_doctor_for_a_person(monkeypatch, capsys):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-key")
    assert cli.main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "very-secret" not in out
    for word in ("Packages", "Models", "Local model", "Token counts", "Widgets", "Paths", "bytes"):
        assert word in out


def test_doctor_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(doctor, "_version", lambda _name: None)
    advice = "\n".join(doctor.facts()["advice"])
    for word in ("agent[local]", "tiktoken", "anywidget", "agent[demo]", "agent[tuning]"):
        assert word in advice


# ---- fetch-model


def test_fetch_model_remove_says_what_went(tmp_path, capsys):
    assert cli.main(["fetch-model", "--remove"]) == 0
    assert "no fetched model" in capsys.readouterr().out
    (tmp_path / "cache" / "models").mkdir(parents=True)
    (tmp_path / "cache" / "models" / SMOLLM2.file).write_bytes(b"x")
    assert cli.main(["fetch-model", "--remove"]) == 0
    assert f"Removed {tmp_path / 'cache' / 'models' / SMOLLM2.file}" in capsys.readouterr().out
    assert not (tmp_path / "cache").exists()


def test_fetch_model_failure_is_an_exit_code(monkeypatch, capsys):
    monkeypatch.setattr(
        local_files.subprocess, "run",
        lambda command, **_: subprocess.CompletedProcess(command, 1, "", "ERROR: no network"),
    )  # fmt: skip
    assert cli.main(["fetch-model"]) == 1
    captured = capsys.readouterr()
    assert SMOLLM2.licence in captured.out
    assert "no network" in captured.err


def test_fetch_model_tells_each_step(monkeypatch, capsys):
    monkeypatch.setattr(fetch, "fetch_model", lambda say: say("one step"))
    assert cli.main(["fetch-model"]) == 0
    assert capsys.readouterr().out == "one step\n"


def test_fetch_model_remove_leaves_an_installed_packages_file(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(fetch, "find_model", lambda: SimpleNamespace(path=tmp_path / "m.gguf"))
    assert cli.main(["fetch-model", "--remove"]) == 0
    out = capsys.readouterr().out
    assert f"One more lies beside an installed package and stays: {tmp_path / 'm.gguf'}" in out


# ---- lab and the notebooks' folder


def test_notebooks_lie_in_the_checkout_or_in_the_package(monkeypatch, tmp_path):
    assert (folder.notebooks_folder() / folder.QUICKSTART).is_file()
    package = tmp_path / "site" / "notebook_agent"
    (package / "notebooks").mkdir(parents=True)
    (tmp_path / "site" / "notebooks").mkdir()  # somebody else's
    monkeypatch.setattr(folder, "_PACKAGE", package)
    with pytest.raises(ConfigError):
        folder.notebooks_folder()
    (package / "notebooks" / folder.QUICKSTART).write_text("{}")
    assert folder.notebooks_folder() == package / "notebooks"
    assert not folder.in_checkout(folder.notebooks_folder())


def test_lab_copies_missing_notebooks_and_overwrites_none(monkeypatch, tmp_path):
    commands = []
    interrupts = [KeyboardInterrupt]

    class Started:
        def __init__(self, command, env):
            commands.append(command)
            assert env["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)

        def wait(self):
            if interrupts:
                raise interrupts.pop()
            return 0

    monkeypatch.setattr(lab.subprocess, "Popen", Started)
    mine = tmp_path / "work"
    assert cli.main(["lab", str(mine), "--no-browser", "--port", "9999"]) == 0
    (command,) = commands
    assert str(mine / folder.QUICKSTART) in command
    assert "--no-browser" in command
    assert "--port=9999" in command
    (mine / folder.QUICKSTART).write_text("mine")
    cli.main(["lab", str(mine)])
    assert (mine / folder.QUICKSTART).read_text() == "mine"
    cli.main(["lab"])
    assert Path(commands[-1][3]).parent == folder.notebooks_folder()


def test_lab_without_jupyterlab_says_what_to_type(monkeypatch, capsys):
    monkeypatch.setattr(lab, "find_spec", lambda _name: None)
    assert cli.main(["lab"]) == 1
    assert "notebook-agent[demo]" in capsys.readouterr().err


@pytest.mark.parametrize(("user", "given"), [(0, True), (1000, False)])
def test_lab_as_root_says_so_to_jupyterlab(monkeypatch, tmp_path, user, given):
    commands = []
    done = SimpleNamespace(wait=lambda: 0)
    monkeypatch.setattr(
        lab.subprocess, "Popen", lambda command, **_: commands.append(command) or done
    )
    monkeypatch.setattr(os, "geteuid", lambda: user, raising=False)
    assert cli.main(["lab", str(tmp_path)]) == 0
    assert ("--allow-root" in commands[0]) is given


def test_lab_into_a_place_that_cannot_be_made(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert cli.main(["lab", str(tmp_path / "file" / "x")]) == 1
    assert "notebook-agent lab FOLDER" in capsys.readouterr().err
