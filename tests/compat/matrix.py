"""Kernel-level tests under other Pythons and older Jupyter sets, each in its own environment.

The floors of pyproject.toml are tested here. Each set is installed first; installing the package
over it must change none of its pinned versions.

    python tests/compat/matrix.py [NAME ...]
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
TOOLS = ("pytest", "pytest-asyncio", "pytest-timeout", "hypothesis", "nbclient", "nbformat", "jupyter_client")  # fmt: skip


@dataclass(frozen=True)
class Set:
    """One environment: its Python, the versions it pins, the tests that run in it."""

    name: str
    python: str
    pins: tuple[str, ...]
    tests: tuple[str, ...]


COLAB = (
    "ipython==7.34.0", "ipykernel==6.17.1", "ipywidgets==7.7.1", "traitlets==5.7.1",
    "pandas==2.2.3", "httpx==0.28.1", "tiktoken==0.14.0", "nh3==0.3.6", "markdown-it-py==4.2.0",
)  # fmt: skip
KERNEL = ("-m", "kernel and not browser and not local_model", "tests/notebook")
UNIT = ("-m", "not browser and not kernel and not local_model and not serial", "tests")
SETS = (
    Set("py313", "3.13", (), UNIT),
    Set("ipykernel629", "3.11", ("ipython>=8,<9", "ipykernel==6.29.5"), KERNEL),
    Set("ipykernel72", "3.13", ("ipykernel==7.2.0",), KERNEL),
    Set("colab", "3.13", COLAB, KERNEL),
)


def find_python(version: str) -> str | None:
    """An interpreter of that version: on PATH, or among pyenv's."""
    names = [f"python{version}", sys.executable]
    pyenv = shutil.which("pyenv")
    if pyenv:
        root = subprocess.run([pyenv, "root"], capture_output=True, text=True, check=False)
        versions = Path(root.stdout.strip() or ".") / "versions"
        names += [str(p / "bin" / "python") for p in sorted(versions.glob(f"{version}*"))]
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


def run_set(one: Set) -> int:
    """Build the environment, check that nothing pinned moved, run its tests."""
    base = find_python(one.python)
    if base is None:
        print(f"!!! NOT RUN: {one.name}: no Python {one.python} on this machine")
        return 1 if os.environ.get("CI") == "true" else 0
    home = ROOT / f".venv-{one.name}"
    python = home / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    if not python.exists():
        subprocess.run([base, "-m", "venv", str(home)], check=True)
    subprocess.run([*pip, *one.pins, *TOOLS], check=True)
    before = installed(python)
    subprocess.run([*pip, "-e", "."], check=True, cwd=ROOT)
    after = installed(python)
    moved = {
        name: (before[name], after[name])
        for name in (pin.split("=")[0].split(">")[0] for pin in one.pins)
        if before[name] != after[name]
    }
    print(f"--- {one.name}: Python {one.python}, pins {', '.join(one.pins) or 'none'}", flush=True)
    if moved:
        print(f"installing the package moved {moved}")
        return 1
    env = {**os.environ, "NOTEBOOK_AGENT_COMPAT": one.name}
    return subprocess.run(
        [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *one.tests], cwd=ROOT, env=env, check=False
    ).returncode  # fmt: skip


def main(names: list[str]) -> int:
    chosen = [s for s in SETS if not names or s.name in names]
    results = {s.name: run_set(s) for s in chosen}
    failed = sum(code != 0 for code in results.values())
    print("; ".join(f"{name}: {'ok' if code == 0 else 'FAILED'}" for name, code in results.items()))
    print(f"{len(results) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
