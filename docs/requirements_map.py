"""Prints docs/requirements.md from docs/requirements.txt and from what the tree names.

The headings are those of the two source documents, in their order; ids stand under the heading
they come from.

python docs/requirements_map.py            check
python docs/requirements_map.py --write    write
"""

from __future__ import annotations

import ast
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


NAME_ID = re.compile(r"([LBM]\d{1,3}a?)[a-z]?")


@lru_cache(maxsize=1)
def modules() -> dict[str, list[str]]:
    """id -> modules that name it; those that name it by itself before those that name a range."""
    plain: dict[str, list[str]] = defaultdict(list)
    ranges: dict[str, list[str]] = defaultdict(list)
    folder = ROOT / "notebook_agent"
    for path in sorted(folder.rglob("*.py")):
        where = str(path.relative_to(folder))
        ids, within = set(), set()
        for letter, first, last in ID.findall(path.read_text(encoding="utf-8")):
            ids.add(letter + first)
            if last and not first.endswith("a") and 0 < int(last) - int(first) < 60:
                within.update(f"{letter}{n}" for n in range(int(first), int(last) + 1))
        for one in ids:
            plain[one].append(where)
        for one in within - ids:
            ranges[one].append(where)
    return defaultdict(list, {k: plain[k] + ranges[k] for k in {*plain, *ranges}})


def ids_of_name(name: str) -> set[str]:
    """The ids in the name of a test: ``test_B9_and_B12_words`` has B9 and B12."""
    found = (NAME_ID.fullmatch(word) for word in name.split("_")[1:])
    return {match[1] for match in found if match}


@lru_cache(maxsize=1)
def tests() -> dict[str, list[str]]:
    """id -> ``file::function`` of the tests that have it in their name.

    Only functions of files that pytest collects count: no helper, no docstring, no fixture.
    """
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        where = path.relative_to(ROOT / "tests")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            named = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            if named and node.name.startswith("test_"):
                for one in ids_of_name(node.name):
                    found[one].append(f"{where}::{node.name}")
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
        "build it and tests that have its id in their name. Printed by `python docs/requirements_map.py --write`.",
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
        code = ", ".join(f"`{p}`" for p in modules()[one][:3]) if status == "built" else status
        named = ", ".join(f"`{p}`" for p in tests().get(one, [])[:2])
        lines.append(f"| {one} | {words} | {code} | {named} |")
    return "\n".join(lines) + "\n"


def gaps() -> list[str]:
    """Built requirements that no module names or that no test has in its name."""
    out = []
    for item in requirements():
        if isinstance(item, str) or item[1] != "built":
            continue
        out += [f"{item[0]}: no module names it"] * (not modules()[item[0]])
        out += [f"{item[0]}: no test function has it in its name"] * (not tests().get(item[0]))
    return out


def main(argv: list[str]) -> int:
    if "--write" in argv:
        PAGE.write_text(page(), encoding="utf-8")
    if "--gaps" in argv:
        sys.stdout.write("\n".join(gaps()) + "\n")
    return 0 if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page() else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
