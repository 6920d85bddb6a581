"""Emulates a Binder build of this repository on this machine, and holds it to its limits.

1. A clean clone of HEAD; a fresh environment of the Python in runtime.txt.
2. The base packages that repo2docker installs, then requirements.txt from the clone's root,
   then postBuild.
3. Every notebook executed: no key, an empty home, no name resolves, one core.

    python binder/emulate.py            what was seen is taken again: the environment of the same
                                        lists, the slow notebooks of the same content
    python binder/emulate.py --fresh    all of it anew
    python binder/emulate.py --keep     leave the temporary folder and say where it is

Needs Linux and the network for step 1 and 2. repo2docker takes its Python and base packages from
conda-forge; a virtual environment stands for that here.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
CACHE = ROOT / "out" / "binder"
# What repo2docker puts into every Python image, by its names on PyPI.
BASE = (
    "ipywidgets", "jupyter-offlinenotebook", "jupyter-resource-usage", "jupyterhub", "jupyterlab",
    "nbclassic", "nbconvert", "notebook",
)  # fmt: skip
MEMORY_MB = 2048
FIRST_ANSWER_S = {"00": 30.0, "01": 10.0}  # seconds from opening to the first answer
SLOW_S = 5.0  # a notebook that took longer is not run again while nothing it uses has changed
# In place of a network of our own: a start-up file for every Python below.
NO_NAMES = """\
import socket

_real = socket.getaddrinfo


def _only_here(host, *args, **kwargs):
    if host in (None, "", "localhost", "127.0.0.1", "::1", b"localhost", b"127.0.0.1"):
        return _real(host, *args, **kwargs)
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


socket.getaddrinfo = _only_here
"""


class Stop(Exception):
    """The emulation cannot go on; the text says why."""


@dataclass
class Report:
    """What was measured and what was wrong."""

    build: dict[str, float] = field(default_factory=dict)
    sizes: dict[str, float] = field(default_factory=dict)
    rows: list[dict[str, object]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def table(self) -> str:
        """All of it as Markdown."""
        lines = ["| step | seconds |", "|---|---|"]
        lines += [f"| {name} | {value:.0f} |" for name, value in self.build.items()]
        lines += ["", "| size | MB |", "|---|---|"]
        lines += [f"| {name} | {value:.0f} |" for name, value in self.sizes.items()]
        lines += ["", "| notebook | first answer, s | whole, s | peak memory, MB |", "|---|---|---|---|"]  # fmt: skip
        for row in self.rows:
            first = "-" if row["first_s"] is None else f"{row['first_s']:.1f}"
            seen = " (seen)" if row.get("seen") else ""
            lines.append(f"| {row['notebook']}{seen} | {first} | {row['seconds']:.1f} | {row['peak_mb']} |")  # fmt: skip
        return "\n".join(lines)


def call(command: list[str | Path], *, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Run a step of the build; its output is shown only when it fails."""
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=env, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    if done.returncode != 0:
        raise Stop(f"{command[0]} failed:\n{done.stdout[-4000:]}")
    return done.stdout


def runtime_python(clone: Path) -> str:
    """The interpreter that runtime.txt names."""
    version = (clone / "binder" / "runtime.txt").read_text(encoding="utf-8").strip()
    name = version.replace("-", "")
    if f"python{sys.version_info[0]}.{sys.version_info[1]}" == name:
        return sys.executable
    found = shutil.which(name)
    if found is None:
        raise Stop(f"runtime.txt asks for {version}, and there is no {name} on PATH")
    return found


def build(work: Path, report: Report, *, fresh: bool) -> Path:
    """Clone, environment, base packages, requirements, postBuild; the environment's Python.

    An environment that was built from the same lists is taken again, with the package itself
    installed anew from the clone.
    """
    clone = work / "clone"

    def step(name: str, command: list[str | Path], env: dict[str, str] | None = None) -> None:
        started = time.monotonic()
        print(f"{name} ...", flush=True)
        call(command, cwd=clone if clone.exists() else work, env=env)
        report.build[name] = time.monotonic() - started

    step("clone", ["git", "clone", "--quiet", f"file://{ROOT}", clone])
    base = runtime_python(clone)
    venv = CACHE / f"env-{lists_of(clone, base)}"
    pip = [
        venv / "bin" / "python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]
    if fresh or not (venv / "built").exists():
        for old in CACHE.glob("env-*"):
            shutil.rmtree(old)
        step("environment", [base, "-m", "venv", venv])
        step("base packages", [*pip, *BASE])
        step("requirements.txt", [*pip, "-r", "binder/requirements.txt"])
    else:
        print(f"environment of the same lists: {venv.name}")
        step("the package again", [*pip, "--no-deps", "--force-reinstall", "."])
    paths = f"{venv / 'bin'}{os.pathsep}{os.environ['PATH']}"
    step("postBuild", ["./binder/postBuild"], {**os.environ, "PATH": paths})
    (venv / "built").touch()
    report.sizes["environment with the model"] = megabytes(venv)
    report.sizes["clone"] = megabytes(clone)
    return venv / "bin" / "python"


def lists_of(clone: Path, base: str) -> str:
    """Changes when an environment built from the clone would differ in anything but our code."""
    seen = hashlib.sha256(" ".join((base, sys.version, *BASE)).encode())
    for name in (
        "binder/requirements.txt",
        "binder/runtime.txt",
        "binder/postBuild",
        "pyproject.toml",
    ):
        seen.update((clone / name).read_bytes())
    return seen.hexdigest()[:16]


def megabytes(folder: Path) -> float:
    """Size of all files below a folder."""
    files = (p.stat() for p in folder.rglob("*") if p.is_file() and not p.is_symlink())
    return sum(one.st_size for one in files) / 1e6


def key_of(notebook: Path, clone: Path) -> str:
    """Changes when the notebook or anything it runs on does."""
    tree = call(
        ["git", "ls-tree", "-r", "HEAD", "--", "notebook_agent", "binder", "pyproject.toml"],
        cwd=clone,
    )
    return hashlib.sha256(tree.encode() + notebook.read_bytes()).hexdigest()[:32]


def environment(home: Path, startup: Path | None) -> dict[str, str]:
    """No key, an empty home, nothing of ours."""
    env = {
        "HOME": str(home),
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "TMPDIR": str(home / "tmp"),
    }
    (home / "tmp").mkdir(parents=True)
    if startup is None:
        env["EMULATE_OWN_NETWORK"] = "1"
    else:
        startup.mkdir()
        (startup / "sitecustomize.py").write_text(NO_NAMES, encoding="utf-8")
        env["PYTHONPATH"] = str(startup)
    return env


def own_network() -> list[str]:
    """The command that gives a process a network of its own; empty where that is not allowed."""
    for command in (["unshare", "-n"], ["unshare", "-r", "-n"]):
        if shutil.which(command[0]) and not subprocess.run([*command, "true"], capture_output=True, check=False).returncode:  # fmt: skip
            return command
    return []


def play(python: Path, work: Path, report: Report, *, fresh: bool) -> None:
    """All notebooks, those seen before left out, and the judgement of each."""
    clone = work / "clone"
    wanted: list[Path] = []
    for notebook in sorted((clone / "notebooks").glob("[0-9]*.ipynb")):
        kept = CACHE / f"{key_of(notebook, clone)}.json"
        if kept.exists() and not fresh and notebook.name[:2] not in FIRST_ANSWER_S:
            report.rows.append({**json.loads(kept.read_text(encoding="utf-8")), "seen": True})
        else:
            wanted.append(notebook)
    changed = call(["git", "status", "--porcelain"], cwd=ROOT).count("\n")
    if changed:
        print(f"note: HEAD is emulated; {changed} files of the working tree differ from it")
    network = own_network()
    print("names are cut off by " + (" ".join(network) or "a start-up file"), flush=True)
    env = environment(work / "home", None if network else work / "startup")
    log = work / "inside.log"
    with log.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(
            [*network, str(python), str(clone / "binder" / "inside.py"), str(work / "home"), *map(str, wanted)],
            cwd=work / "home", env=env, text=True, stdout=subprocess.PIPE, stderr=errors,
        )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        row = json.loads(line)
        print(f"  {row['notebook']}: {row['seconds']} s {row['problem']}", flush=True)
        report.rows.append(row)
        if not row["problem"] and row["seconds"] > SLOW_S:
            CACHE.mkdir(parents=True, exist_ok=True)
            name = key_of(clone / "notebooks" / row["notebook"], clone)
            (CACHE / f"{name}.json").write_text(line, encoding="utf-8")
    if process.wait() != 0:
        said = log.read_text(encoding="utf-8")[-2000:]
        report.problems.append(f"the run inside ended with exit code {process.returncode}: {said}")
    report.rows.sort(key=lambda one: str(one["notebook"]))
    played = {str(one["notebook"]) for one in report.rows}
    report.problems += [f"{p.name} was not run" for p in wanted if p.name not in played]


def judge(report: Report) -> None:
    """Hold every row to the limits."""
    for row in report.rows:
        name = str(row["notebook"])
        if row["problem"]:
            report.problems.append(f"{name}: {row['problem']}")
        if int(str(row["peak_mb"])) > MEMORY_MB:
            report.problems.append(f"{name}: {row['peak_mb']} MB, more than {MEMORY_MB}")
        limit, first = FIRST_ANSWER_S.get(name[:2]), row["first_s"]
        if limit is not None and (first is None or float(str(first)) > limit):
            report.problems.append(f"{name}: first answer after {first} s, more than {limit}")
        if name.startswith("00") and not row["local_model"]:
            report.problems.append(f"{name}: the local model did not answer")
    missing = set(FIRST_ANSWER_S) - {str(row["notebook"])[:2] for row in report.rows}
    report.problems += [f"there is no notebook {number}" for number in sorted(missing)]


def main() -> int:
    parser = argparse.ArgumentParser(description="Emulate a Binder build of HEAD.")
    parser.add_argument(
        "--fresh", action="store_true", help="build and run everything, seen or not"
    )
    parser.add_argument("--keep", action="store_true", help="leave the temporary folder")
    given = parser.parse_args()
    report = Report()
    work = Path(tempfile.mkdtemp(prefix="binder-"))
    try:
        python = build(work, report, fresh=given.fresh)
        play(python, work, report, fresh=given.fresh)
        judge(report)
    except Stop as stop:
        report.problems.append(str(stop))
    finally:
        if given.keep:
            print(f"kept: {work}")
        else:
            shutil.rmtree(work, ignore_errors=True)
    print("\n" + report.table())
    print("".join(f"\nFAILED {problem}" for problem in report.problems))
    passed = sum(not row["problem"] for row in report.rows)
    print(f"{passed} passed, {len(report.problems)} failed")
    return 1 if report.problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
