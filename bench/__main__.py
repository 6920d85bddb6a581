"""Every speed goal in one table.

    python -m bench [--quick] [--write] [NAME...]

NAME is one or more of the benches below; without a name all of them run. ``--quick`` repeats
less. ``--write`` puts the table into README.md and docs/speed.md, between their marks. Exits
non-zero when a goal is missed or a bench breaks.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
import traceback

from bench.kit import ROOT, Row, machine, table, write_into

# name -> module; each has ``rows(quick)``, which gives its rows one by one
BENCHES = {
    "start": "bench.start",
    "wire": "bench.wire",
    "turn": "bench.turn",
    "faults": "bench.faults",
    "streams": "bench.streams",
    "soak": "bench.soak",
    "core": "bench.core",
    "store": "bench.store",
    "crash": "bench.crash",
    "compaction": "bench.compaction",
    "growth": "bench.growth",
    "tuning": "bench.tuning",
    "kernel": "bench.kernel",
    "panel": "bench.panel",
    "browser": "bench.browser",
}
INTO = ("README.md", "docs/speed.md")  # the goals; every row


def run(name: str, quick: bool) -> tuple[list[Row], str]:
    """One bench's rows, and what broke it ("" when nothing did)."""
    print(f"... {name}", file=sys.stderr, flush=True)
    began, found = time.monotonic(), []
    try:
        for row in importlib.import_module(BENCHES[name]).rows(quick):
            found.append(row)
            word = {True: "met", False: "MISSED", None: "-"}[row.met]
            print(f"    {word:6} {row.measure}: {row.figure} {row.yardstick} "
                  f"{'' if row.ratio is None else f'{row.ratio:.2f}x'} {row.goal}", file=sys.stderr, flush=True)  # fmt: skip
    except Exception as error:
        traceback.print_exc()
        return found, f"{name}: {type(error).__name__}: {str(error)[:200]}"
    print(f"    {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return found, ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)  # fmt: skip
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHES))
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--write", action="store_true", help="into " + " and ".join(INTO))
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in BENCHES]
    if unknown:
        parser.error(f"no bench {', '.join(unknown)}; there are {', '.join(BENCHES)}")
    rows: list[Row] = []
    broken: list[str] = []
    where = machine()
    for name in given.names or BENCHES:
        found, trouble = run(name, given.quick)
        rows += found
        broken += [trouble] if trouble else []
    missed = [row for row in rows if row.met is False]
    met = sum(row.met is True for row in rows)
    counts = f"{met} goals met, {len(missed)} missed"
    text = f"{table(rows)}\n\n{where}: {counts}."
    print(text)
    for line in broken:
        print(f"BROKEN {line}")
    if given.write:
        if given.names or broken:
            print("--write needs a whole run without a broken bench; nothing was written")
            return 1
        goals = f"{table([row for row in rows if row.met is not None])}\n\n{where}: {counts}."
        for name, what in zip(INTO, (goals, text), strict=True):
            done = write_into(ROOT / name, what)
            print(f"{name}: {'written' if done else 'no marks, not written'}")
    return 1 if missed or broken else 0


if __name__ == "__main__":
    sys.exit(main())
