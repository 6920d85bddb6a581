"""What every bench shares: a row, CPU medians, fresh processes, the server, the table.

An absolute figure is CPU time, median of five, and has a yardstick timed in the same run: unless
a row names its own, that is ``json``, the time of one JSON round trip of a 1 kB document.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
SHOWN = {"us": "µs"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One goal: what was measured, beside what, and whether it was met.

    Attributes:
        part: The goal's part of the project.
        met: None where there is a figure and no goal.
    """

    part: int
    measure: str
    figure: str
    yardstick: str = ""
    ratio: float | None = None
    goal: str = ""
    met: bool | None = None


def amount(value: float, unit: str) -> str:
    """A number with three figures and its unit."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f} {SHOWN.get(unit, unit)}"


def timed_row(
    part: int, measure: str, seconds: float, unit: str, limit: float | None,
    *, yard: tuple[str, float] | None = None, wall: bool = False, note: str = "",
) -> Row:  # fmt: skip
    """A time with an absolute goal.

    Args:
        seconds: Measured.
        unit: s, ms or us, for figure and limit.
        limit: In ``unit``; None = no goal.
        yard: Name and seconds of the yardstick; default ``json``.
        wall: It is wall time, and says so.
    """
    name, base = yard or ("json", json_yardstick())
    value = seconds / UNITS[unit]
    figure = amount(value, unit) + (" wall" if wall else "")
    base_unit = next(u for u in UNITS if base >= UNITS[u] or u == "us")
    return Row(
        part=part,
        measure=measure,
        figure=figure + (f", {note}" if note else ""),
        yardstick=f"{name} {amount(base / UNITS[base_unit], base_unit)}",
        ratio=seconds / base,
        goal="" if limit is None else f"<= {limit:g} {SHOWN.get(unit, unit)}",
        met=None if limit is None else value <= limit,
    )


def ratio_row(
    part: int, measure: str, ours: float, theirs: float, limit: float | None, *, yard: str
) -> Row:
    """A time compared with another one of the same run."""
    return Row(
        part=part,
        measure=measure,
        figure=amount(ours * 1e3, "ms"),
        yardstick=f"{yard} {amount(theirs * 1e3, 'ms')}",
        ratio=ours / theirs,
        goal="" if limit is None else f"<= {limit:g}x",
        met=None if limit is None else ours / theirs <= limit,
    )


def plain_row(part: int, measure: str, figure: str, goal: str, met: bool | None, **more: Any) -> Row:  # fmt: skip
    """A row of counts."""
    return Row(part=part, measure=measure, figure=figure, goal=goal, met=met, **more)


def cpu(work: Callable[[], object], *, times: int = 5, inner: int = 1) -> float:
    """CPU seconds of one call: median of ``times``, each over ``inner`` calls; warmed up once."""
    work()
    taken = []
    for _ in range(times):
        began = time.process_time()
        for _ in range(inner):
            work()
        taken.append((time.process_time() - began) / inner)
    return statistics.median(taken)


@functools.cache
def _document() -> str:
    return json.dumps({f"field {n}": ["some text", n, n / 7, None, True] for n in range(18)})


def json_yardstick() -> float:
    """CPU seconds of a JSON round trip of a 1 kB document, now."""
    text = _document()
    return cpu(lambda: json.dumps(json.loads(text)), inner=100)


def fresh(code: str, **env: str) -> Any:
    """What a fresh interpreter prints last for the code, as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT,
        env={**os.environ, **env},
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(done.stdout.strip().splitlines()[-1])


@contextlib.contextmanager
def server() -> Iterator[str]:
    """The bench server in a process of its own; gives ``http://127.0.0.1:PORT``."""
    process = subprocess.Popen(
        [sys.executable, os.fspath(Path(__file__).with_name("server.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.stdin.close()
        process.wait(10)


def table(rows: Sequence[Row]) -> str:
    """The rows as markdown, in order of their parts."""
    out = [
        "| part | measure | figure | yardstick | ratio | goal | |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda one: one.part):
        ratio = "" if row.ratio is None else f"{row.ratio:.3g}x"
        word = {True: "met", False: "**missed**", None: ""}[row.met]
        cells = (str(row.part), row.measure, row.figure, row.yardstick, ratio, row.goal, word)
        out.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return "\n".join(out)


def machine() -> str:
    """Where the figures come from."""
    name = ""
    with contextlib.suppress(OSError):
        found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
        name = f", {found.group(1).strip()}" if found else ""
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return (
        f"Python {platform.python_version()}, {platform.system()}, "
        f"{os.cpu_count()} cores{name}{load}, {time.strftime('%Y-%m-%d')}"
    )


MARKED = re.compile(r"(<!-- bench: -->\n).*?(<!-- end -->)", re.DOTALL)


def write_into(path: Path, text: str) -> bool:
    """Put the text between ``<!-- bench: -->`` and ``<!-- end -->``.

    Returns:
        Whether the marks are there.
    """
    if not path.exists():
        return False
    old = path.read_text()
    new, count = MARKED.subn(lambda m: f"{m.group(1)}{text}\n{m.group(2)}", old)
    if count and new != old:
        path.write_text(new)
    return bool(count)
