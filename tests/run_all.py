"""Everything `make test` runs, stage by stage, with one closing line of counts.

    python tests/run_all.py                 all stages
    python tests/run_all.py --only unit     one of: unit, kernel, notebooks, browser, binder, compat

Without a model file, a browser or node, the stages that need them print one loud line; with
CI=true they fail.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
OUT = ROOT / "out"
CI = os.environ.get("CI") == "true"
FAILING = re.compile(r"^(FAILED|ERROR|not ok|!!! ) ?.*", re.MULTILINE)
COUNT = re.compile(r"(\d+) (passed|failed|skipped|error|errors)\b")
NODE_COUNT = re.compile(r"^# (pass|fail|skipped) (\d+)", re.MULTILINE)
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


@dataclass
class Tally:
    """Counts over all stages."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    notes: list[str] = field(default_factory=list)
    stages: list[str] = field(default_factory=list)  # run before this one, in this call

    def add(self, word: str, count: int) -> None:
        if word.startswith(("error", "fail")):
            self.failed += count
        elif word.startswith("pass"):
            self.passed += count
        else:
            self.skipped += count

    def missing(self, what: str, how: str) -> None:
        """A part that cannot run here: loud by hand, a failure in CI."""
        line = f"!!! NOT RUN: {what}. {how}"
        print(line, flush=True)
        self.notes.append(line)
        if CI:
            self.failed += 1
        else:
            self.skipped += 1


def run(
    tally: Tally, command: list[str], *, env: dict[str, str] | None = None, counts: bool = True
) -> bool:
    """One command, its output passed through; counts read from pytest's closing line."""
    print(f"\n$ {' '.join(command)}", flush=True)
    started = time.monotonic()
    process = subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, **(env or {})}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    lines: list[str] = []
    assert process.stdout is not None
    for line in process.stdout:
        print(line, end="", flush=True)
        lines.append(line)
    code = process.wait()
    text = "".join(lines)
    if counts:
        found = [(int(n), word) for n, word in COUNT.findall(lines[-1] if lines else "")]
        found += [(int(n), word) for word, n in NODE_COUNT.findall(text)]
        for n, word in found:
            tally.add(word, n)
        if code != 0 and not any(w.startswith(("fail", "error")) and n for n, w in found):
            tally.failed += 1
    elif code != 0:
        tally.failed += 1
    if code != 0:  # named again at the end, where a reader of a long log looks
        named = [one.group(0)[:300] for one in FAILING.finditer(text)][:40]
        tally.notes += [f"failed: {' '.join(command)[:200]}", *(f"    {line}" for line in named)]
    print(f"  ({time.monotonic() - started:.0f} s, exit {code})", flush=True)
    return code == 0


def pytest(*args: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-q", *args]


def aimock(tally: Tally) -> None:
    """The independent server from npm, installed once beside its tests."""
    folder = ROOT / "tests" / "providers" / "aimock"
    if not shutil.which("npm"):
        tally.missing("the tests against aimock", "Install node and npm.")
    elif not (folder / "node_modules").exists():
        run(tally, ["npm", "install", "--silent", "--prefix", str(folder)], counts=False)


def unit(tally: Tally) -> None:
    """Everything without kernels, browsers and the local model."""
    if not os.environ.get("RECORDED_STREAMS"):
        tally.missing(
            "the conformance test over recorded streams",
            "Set RECORDED_STREAMS to their folder.",
        )
    aimock(tally)
    run(
        tally,
        pytest("-n", "2", "--dist", "worksteal", "-m", "not browser and not kernel and not local_model and not serial",
               "--cov", "--cov-report=json:out/coverage.json"),
    )  # fmt: skip
    run(tally, [sys.executable, "tests/check_coverage.py", "out/coverage.json", "inner"], counts=False)  # fmt: skip
    run(tally, pytest("-m", "serial and not browser and not kernel and not local_model", "-s"))


# Real kernels and browsers answer within times that a shared machine may miss once: such a test is
# run a second time, and the closing line says how many were ("1 rerun").
AGAIN = ("--reruns", "1")
MEASURED = ("--cov", "--cov-append", "--cov-config=tests/measured.toml", "--cov-report=json:out/coverage.json")  # fmt: skip


def kernel(tally: Tally) -> None:
    """Real kernels, the real local model."""
    # What a kernel runs is measured in the kernel's own process, and added to the unit stage's.
    after_unit = "unit" in tally.stages
    run(tally, pytest("-m", "kernel and not browser", *AGAIN, *(MEASURED if after_unit else ())))
    if after_unit:
        run(tally, [sys.executable, "tests/check_coverage.py", "out/coverage.json"], counts=False)
    have = subprocess.run(
        [sys.executable, "-c", "from notebook_agent.providers.local import find_model as f; raise SystemExit(f() is None)"], cwd=ROOT, check=False,
    ).returncode == 0  # fmt: skip
    if have:
        run(tally, pytest("-m", "local_model and not browser"))
    else:
        tally.missing("the local model's tests", "Fetch it with: notebook-agent fetch-model")


def installed_wheel(tally: Tally) -> dict[str, str] | None:
    """Build the wheel and lay it out; the environment that makes kernels use it."""
    wheel_dir = OUT / "wheel"
    shutil.rmtree(wheel_dir, ignore_errors=True)
    shutil.rmtree(OUT / "dist", ignore_errors=True)
    ok = run(tally, [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "out/dist"], counts=False)  # fmt: skip
    wheels = sorted((OUT / "dist").glob("*.whl"))
    if not ok or not wheels:
        return None
    run(tally, [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(wheel_dir), str(wheels[-1])], counts=False)  # fmt: skip
    return {"PYTHONPATH": str(wheel_dir), "NOTEBOOK_AGENT_WHEEL": str(wheel_dir)}


def notebooks(tally: Tally) -> None:
    """The wheel; scripted notebooks under strict nbval, twice; the quick start for real."""
    env = installed_wheel(tally)
    if env is None:
        return
    run(tally, pytest("tests/wheel_check.py"), env=env)
    scripted = [
        str(p.relative_to(ROOT))
        for p in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
        if not p.name.startswith("00_")
    ]
    pinned = {**env, "NOTEBOOK_AGENT_DISPLAY": "static", "NOTEBOOK_AGENT_PINNED": "1"}
    for _ in range(2):
        run(tally, pytest("-p", "no:cacheprovider", "--nbval", *scripted), env=pinned)
    run(tally, pytest("-m", "local_model", "tests/quickstart_check.py"), env=env)


def browser(tally: Tally) -> None:
    """The panel in a real JupyterLab; its JavaScript under node."""
    if shutil.which("node"):
        files = [str(p.relative_to(ROOT)) for p in sorted((ROOT / "tests").rglob("*.test.mjs"))]
        run(tally, ["node", "--test", "--test-reporter=tap", *files])
    else:
        tally.missing("the panel's JavaScript tests", "Install node.")
    if any(shutil.which(name) for name in CHROMIUM):
        run(tally, pytest("-m", "browser", *AGAIN))
    else:
        tally.missing("the browser scenarios", "Install chromium.")


def compat(tally: Tally) -> None:
    """Other Pythons and older Jupyter sets, each in an environment of its own."""
    run(tally, [sys.executable, "tests/compat/matrix.py"])
    run(tally, [sys.executable, "tests/oracles/run.py"])


def binder(tally: Tally) -> None:
    """A Binder build of HEAD in a fresh environment; every notebook without key, names or home."""
    if sys.platform == "linux":
        run(tally, [sys.executable, "binder/emulate.py"])
    else:
        tally.missing("the Binder emulation", "It needs Linux.")


STAGES: dict[str, Callable[[Tally], None]] = {
    "unit": unit,
    "kernel": kernel,
    "notebooks": notebooks,
    "browser": browser,
    "binder": binder,
    "compat": compat,
}
DEFAULT = ("unit", "kernel", "notebooks", "browser", "binder")


def main() -> int:
    # A shell starts a command in the background with interrupts ignored, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=list(STAGES), action="append")
    given = parser.parse_args().only or list(DEFAULT)
    OUT.mkdir(exist_ok=True)
    tally = Tally()
    for name in given:
        print(f"\n=== {name}: {(STAGES[name].__doc__ or '').strip()}", flush=True)
        STAGES[name](tally)
        tally.stages.append(name)
    print("\n" + "\n".join(tally.notes))
    print(f"{tally.passed} passed, {tally.failed} failed, {tally.skipped} skipped")
    return 1 if tally.failed or not tally.passed else 0


if __name__ == "__main__":
    raise SystemExit(main())
