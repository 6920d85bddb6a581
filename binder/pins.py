"""Writes requirements.txt: the package with its extras, and a pin for everything they bring.

    python binder/pins.py            print
    python binder/pins.py --write    write binder/requirements.txt

The pins are what is installed in the environment that runs this: run it in the one that the
tests passed in.
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HERE = Path(__file__).parent
PACKAGE = "notebook-agent"
EXTRAS = ("local", "lab", "tuning")
HEAD = """\
# Written by binder/pins.py. `.` is the repository: repo2docker installs from its root.
.[{extras}]
"""


def closure() -> dict[str, str]:
    """name -> version of everything that the package with its extras brings."""
    found: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(PACKAGE, extra) for extra in ("", *EXTRAS)]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            continue  # a choice that this platform does without
        if name != PACKAGE:
            found[name] = installed.version
        for line in installed.requires or ():
            need = Requirement(line)
            if need.marker is None or need.marker.evaluate({"extra": extra}):
                waiting += [(canonicalize_name(need.name), e) for e in ("", *need.extras)]
    return found


def text() -> str:
    """The whole file."""
    pins = [f"{name}=={version}" for name, version in sorted(closure().items())]
    return HEAD.format(extras=",".join(EXTRAS)) + "\n".join(pins) + "\n"


if __name__ == "__main__":
    if "--write" in sys.argv:
        (HERE / "requirements.txt").write_text(text(), encoding="utf-8")
    else:
        sys.stdout.write(text())
