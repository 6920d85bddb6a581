"""Prints docs/requirements.md from docs/requirements.txt and from what the tree names.

python docs/requirements_map.py            check
python docs/requirements_map.py --write    write
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "requirements.md"
WORDS = ROOT / "docs" / "requirements.txt"
ID = re.compile(
    r"(?<![A-Za-z0-9])([LBM])(\d{1,3}a?)(?:\s?[-\N{EN DASH}]\s?\1(\d{1,3}))?(?![A-Za-z0-9%])"
)


@lru_cache(maxsize=1)
def named() -> dict[str, dict[str, list[str]]]:
    """id -> {"code": files, "tests": files} that name it; ranges are spelt out."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: {"code": [], "tests": []})
    for place, folder in (("code", "notebook_agent"), ("tests", "tests")):
        for path in sorted((ROOT / folder).rglob("*.py")):
            ids = set()
            for letter, first, last in ID.findall(path.read_text(encoding="utf-8")):
                ids.add(letter + first)
                if last and not first.endswith("a") and 0 < int(last) - int(first) < 60:
                    ids.update(f"{letter}{n}" for n in range(int(first), int(last) + 1))
            for one in ids:
                found[one][place].append(str(path.relative_to(ROOT / folder)))
    return found


def requirements() -> list[tuple[str, str, str] | str]:
    """Headings as strings, requirements as (id, status, words)."""
    out: list[tuple[str, str, str] | str] = []
    for line in WORDS.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            out.append(line[3:])
        elif line and not line.startswith("#"):
            one, status, words = (part.strip() for part in line.split("|"))
            out.append((one, status, words))
    return out


def page() -> str:
    """The whole page."""
    lines = [
        "# Requirements",
        "",
        "Every requirement of the two source documents in our own words, with the modules that",
        "build it and the tests that name it. Printed by `python docs/requirements_map.py --write`.",
    ]
    for item in requirements():
        if isinstance(item, str):
            lines += [
                "",
                f"## {item}",
                "",
                "| id | requirement | built in | tests |",
                "|---|---|---|---|",
            ]
            continue
        one, status, words = item
        where = named()[one]
        code = ", ".join(f"`{p}`" for p in where["code"][:3]) if status == "built" else status
        tests = ", ".join(f"`{p}`" for p in where["tests"][:3])
        lines.append(f"| {one} | {words} | {code} | {tests} |")
    return "\n".join(lines) + "\n"


def gaps() -> list[str]:
    """Built requirements that no module or no test names."""
    out = []
    for item in requirements():
        if isinstance(item, str) or item[1] != "built":
            continue
        where = named()[item[0]]
        out += [f"{item[0]}: no module names it"] * (not where["code"])
        out += [f"{item[0]}: no test names it"] * (not where["tests"])
    return out


def main(argv: list[str]) -> int:
    if "--write" in argv:
        PAGE.write_text(page(), encoding="utf-8")
    if "--gaps" in argv:
        sys.stdout.write("\n".join(gaps()) + "\n")
    return 0 if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page() else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
