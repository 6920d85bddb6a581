"""Tests under other Pythons and older Jupyter sets, each in its own environment.

The floors of pyproject.toml are tested here. Each set is installed first; installing the package
over it must change none of its pinned versions. Every set runs the Stop rule over its own kernel
(``stop_matrix.py``) and then the tests that a Python or a kernel can break; what is the same
everywhere is left to the newest set.

    python tests/compat/matrix.py [NAME ...]
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
TOOLS = (
    "pytest", "pytest-asyncio", "pytest-timeout", "pytest-xdist", "pytest-rerunfailures", "hypothesis", "nbclient", "nbformat", "nbconvert",
    "jupyter_client", "pybreaker",
)  # fmt: skip


@dataclass(frozen=True)
class Set:
    """One environment: its Python, the versions it pins, the tests that run in it."""

    name: str
    python: str
    pins: tuple[str, ...]
    tests: tuple[tuple[str, ...], ...]


COLAB = (
    "ipython==7.34.0", "ipykernel==6.17.1", "ipywidgets==7.7.1", "traitlets==5.7.1",
    "pandas==2.2.3", "httpx==0.28.1", "tiktoken==0.14.0", "nh3==0.3.6", "markdown-it-py==4.2.0",
)  # fmt: skip
# Real kernels answer within times that a shared machine may miss once: one second try, as in
# run_all.py.
KERNEL = ("--reruns", "1", "-m", "kernel and not browser and not local_model", "tests/notebook")
# What a kernel's own version can break: how cells are awaited, interrupted, asked and loaded.
BOUND = (
    *KERNEL,
    "-k",
    "D1 or D4 or D5 or D6 or D20 or K03 or K04 or N03 or N04 or load or autoawait or completion or around",
)
# What is drawn, transformed and typed, without a kernel; what another IPython can break.
SHOWN = (
    "-n",
    "2",
    "-m",
    "not browser and not kernel and not local_model and not serial",
    "tests/notebook",
)
# The engine under another Python. Providers, tuning and command line need packages that are not
# installed here; nothing in them depends on a kernel.
UNIT = (
    "-n", "2", "-m", "not browser and not kernel and not local_model and not serial and not slow",
    "tests/core", "tests/engine", "tests/notebook",
)  # fmt: skip
SETS = (
    Set("colab", "3.13", COLAB, (KERNEL, SHOWN)),
    Set("ipykernel629", "3.11", ("ipython>=8,<9", "ipykernel==6.29.5"), (BOUND,)),
    Set("ipykernel72", "3.13", ("ipykernel==7.2.0",), (BOUND,)),
    Set("newest", "3.13", (), (BOUND, UNIT)),
)  # fmt: skip
# With old packages under a newer Python, deprecations of others are no faults of ours.
OLD = ("-W", "ignore::DeprecationWarning", "-W", "ignore::PendingDeprecationWarning", "-W", "ignore::SyntaxWarning")  # fmt: skip


def find_python(version: str) -> str | None:
    """An interpreter of that version: this one, on PATH, or among pyenv's."""
    names = [sys.executable, f"python{version}"]
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    names += [str(p / "bin" / "python") for p in sorted((root / "versions").glob(f"{version}*"))]
    for name in names:
        found = shutil.which(name)
        if found and _version(found) == version:
            return found
    return None


def _version(python: str) -> str:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def installed(python: Path) -> dict[str, str]:
    """name -> version of everything in an environment."""
    done = subprocess.run(
        [str(python), "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    pairs = (line.split("==") for line in done.stdout.splitlines() if "==" in line)
    return {name.lower().replace("_", "-"): version for name, version in pairs}


def environment(one: Set, base: str) -> tuple[Path, dict[str, tuple[str, str]]]:
    """Build it: the pins first, the package over them.

    Returns:
        Its Python, and the pinned versions that installing the package changed.
    """
    home = ROOT / f".venv-{one.name}"
    python = home / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    if not python.exists():
        subprocess.run([base, "-m", "venv", str(home)], check=True)
    subprocess.run([*pip, *one.pins, *TOOLS], check=True)
    before = installed(python)
    subprocess.run([*pip, "-e", "."], check=True, cwd=ROOT)
    after = installed(python)
    names = [pin.split("=")[0].split(">")[0] for pin in one.pins]
    return python, {n: (before[n], after[n]) for n in names if before[n] != after[n]}


def run_set(one: Set) -> int:
    """Build the environment, check that nothing pinned moved, run its tests."""
    base = find_python(one.python)
    if base is None:
        print(f"!!! NOT RUN: {one.name}: no Python {one.python} on this machine")
        return 1 if os.environ.get("CI") == "true" else 0
    began = time.monotonic()
    python, moved = environment(one, base)
    pins = ", ".join(one.pins) or "none"
    print(f"--- {one.name}: Python {one.python}, pins {pins}; installed in {time.monotonic() - began:.0f} s", flush=True)  # fmt: skip
    if moved:
        print(f"installing the package moved {moved}")
        return 1
    env = {**os.environ, "NOTEBOOK_AGENT_COMPAT": one.name}
    env.pop("PYTHONPATH", None)
    pytest = [
        str(python),
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        *(OLD if one.pins else ()),
    ]
    stop = [str(python), "-m", "tests.compat.stop_matrix"]
    codes = [subprocess.run(stop, cwd=ROOT, env=env, check=False).returncode]
    if codes[0]:
        print("    the Stop rule is tried a second time", flush=True)
        codes = [subprocess.run(stop, cwd=ROOT, env=env, check=False).returncode]
    for tests in one.tests:
        codes.append(subprocess.run([*pytest, *tests], cwd=ROOT, env=env, check=False).returncode)
    print(f"    {one.name}: {time.monotonic() - began:.0f} s, exit codes {codes}", flush=True)
    return max(codes)


def main(names: list[str]) -> int:
    # A shell starts a command in the background with interrupts ignored, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    unknown = set(names) - {s.name for s in SETS}
    if unknown:
        print(f"no set {', '.join(unknown)}; there are {', '.join(s.name for s in SETS)}")
        return 2
    chosen = [s for s in SETS if not names or s.name in names]
    began = time.monotonic()
    results = {s.name: run_set(s) for s in chosen}
    failed = sum(code != 0 for code in results.values())
    print("; ".join(f"{name}: {'ok' if code == 0 else 'FAILED'}" for name, code in results.items()))
    print(f"{len(results) - failed} passed, {failed} failed in {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
