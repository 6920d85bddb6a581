"""Coverage of lines and branches: 100 % for core, 95 % for every other package.

    python tests/check_coverage.py out/coverage.json inner    core, providers and engine
    python tests/check_coverage.py out/coverage.json          all

The packages under the notebook are measured whole by the unit stage. The others run in part inside
kernels and other processes: their floors are checked once the kernel stage has added those.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

PACKAGE = "notebook_agent/"
INNER = {"core": 100.0, "engine": 95.0, "providers": 95.0}
OUTER = {"tuning": 95.0, "notebook": 95.0, "cli": 95.0, "": 95.0}  # "" = the package's own files


def package_of(name: str) -> str:
    """``notebook_agent/core/text.py`` -> ``core``; a file of the package itself -> ``""``."""
    inside = name.removeprefix(PACKAGE)
    return inside.partition("/")[0] if "/" in inside else ""


def main(path: str, which: str = "all") -> int:
    floors = INNER if which == "inner" else INNER | OUTER
    covered, total = dict.fromkeys(INNER | OUTER, 0), dict.fromkeys(INNER | OUTER, 0)
    bad = 0
    for name, data in json.loads(Path(path).read_text())["files"].items():
        package, s = package_of(name), data["summary"]
        covered[package] += s["covered_lines"] + s.get("covered_branches", 0)
        total[package] += s["num_statements"] + s.get("num_branches", 0)
        if floors.get(package) == 100.0 and s["percent_covered"] < 100.0:
            print(f"{name}: {s['percent_covered']:.1f} %, lines {data['missing_lines'][:12]}")
    for package, floor in floors.items():
        percent = 100.0 * covered[package] / max(total[package], 1)
        verdict = "ok" if percent >= floor else "TOO LOW"
        label = f"{PACKAGE}{package or '*.py'}"
        print(f"{label}: {percent:.1f} % of lines and branches, floor {floor:g} %: {verdict}")
        bad += percent < floor
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
