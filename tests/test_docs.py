"""The docs are true: generated tables, the README's blocks, the requirement map."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


def _script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"docs_{name}", ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tables = _script("tables")
requirements_map = _script("requirements_map")


@pytest.mark.parametrize("page", tables.pages(), ids=lambda p: p.name)
def test_generated_tables_are_current(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert tables.refreshed(text) == text, "run: python docs/tables.py --write"


# The headings of the two source documents, in their order.
LLM_TURN = (
    "Building the request", "Counting the context", "Two paths, one entry point",
    "The non-streaming path", "The streaming path", "Event routing, exactly",
    "Recording the outcome, exactly", "After the reply: recording success and failure",
    "The turn's paper trail", "Gotchas collected here", "Related pages",
)  # fmt: skip
TURN_FSM = (
    "The 6 states", "CheckingPolicy", "BuildingContext", "CallingModel", "ProcessingResponse",
    "ExecutingTools", "Persisting", "The transition function", "Determinism", "Edge cases",
    "Relationship to other components", "See also",
)  # fmt: skip


def test_every_heading_of_both_documents_has_its_section() -> None:
    headings = [h for h in requirements_map.requirements() if isinstance(h, str)]
    expected = [f"LLM turn: {h}" for h in LLM_TURN] + [f"Turn FSM: {h}" for h in TURN_FSM]
    # the last two of each document say in brackets what stands under them
    assert [re.sub(r" \(.*\)$", "", h) for h in headings] == [*expected, "Where the two meet"]
    page = requirements_map.PAGE.read_text(encoding="utf-8")
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == headings
    empty = re.findall(r"^(## .*)\n\n\|.*\n\|[-|]*\n\n?(?!\|)", page, re.MULTILINE)
    assert empty == []


def test_every_id_is_there_once() -> None:
    found = [r[0] for r in requirements_map.requirements() if not isinstance(r, str)]
    expected = {
        f"{x}{n}" for x, last in (("L", 129), ("B", 84), ("M", 4)) for n in range(1, last + 1)
    }
    assert sorted(found) == sorted(expected | {"L5a", "B8a"})


def test_what_is_not_built_has_its_reason() -> None:
    for item in requirements_map.requirements():
        if not isinstance(item, str):
            assert item[1] == "built" or len(item[1]) > len("not built: "), item


def test_every_built_requirement_is_named_by_a_module_and_a_test() -> None:
    assert requirements_map.gaps() == []


def test_only_names_of_collected_tests_count() -> None:
    ids = requirements_map.ids_of_name
    assert ids("test_B9_and_B12_words") == {"B9", "B12"}
    assert ids("test_B13c_each") == {"B13"}
    assert ids("test_L5a_and_B8a_x") == {"L5a", "B8a"}
    assert ids("test_words_of_B") == set()
    files = {place.split("::")[0] for named in requirements_map.tests().values() for place in named}
    assert all(Path(name).name.startswith("test_") for name in files)
    assert "notebook/recorded.py" not in files


def test_the_requirements_page_is_current() -> None:
    page = requirements_map.PAGE.read_text(encoding="utf-8")
    assert page == requirements_map.page(), "run: python docs/requirements_map.py --write"


def test_architecture_holds_the_diagram() -> None:
    assert "stateDiagram-v2" in (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "path", sorted((ROOT / "notebook_agent").rglob("*.py")), ids=lambda p: p.name
)
def test_modules_have_docstrings(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), f"{path} has no docstring"


FORBIDDEN = re.compile(r"\b(loopctl|behest)\b|/work/|\.\./shared", re.IGNORECASE)


def test_the_project_speaks_of_itself_alone() -> None:
    for pattern in (
        "*.md",
        "notebook_agent/**/*.py",
        "docs/**/*",
        "notebooks/*.ipynb",
        "tests/**/*.py",
    ):
        for path in ROOT.glob(pattern):
            if path.name == "test_docs.py" or not path.is_file() or path.suffix in {".png", ".pyc"}:
                continue
            found = FORBIDDEN.search(path.read_text(encoding="utf-8"))
            assert found is None, f"{path.name}: {found.group()}"


# What changes from run to run, or needs a widget manager, has no place in a stored output (F12).
ADDRESS = re.compile(
    r"\bat 0x[0-9a-fA-F]{6,}|<[^<>\n]{1,200} 0x[0-9a-fA-F]{6,}>|\b0x[0-9a-f]{10,16}\b"
)
NOTEBOOKS = sorted(
    path
    for path in ROOT.rglob("*.ipynb")
    if not {"out", "node_modules"} & set(path.relative_to(ROOT).parts)
    and not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
)


def stored_faults(notebook: dict) -> list[str]:
    """What a shipped notebook must not hold: widgets, their state, memory addresses."""
    faults = ["metadata.widgets"] if "widgets" in notebook.get("metadata", {}) else []
    for number, cell in enumerate(notebook["cells"]):
        if "widgets" in cell.get("metadata", {}):
            faults.append(f"cell {number}: metadata.widgets")
        for output in cell.get("outputs", ()):
            kinds = [kind for kind in output.get("data", {}) if "widget" in kind]
            faults += [f"cell {number}: {kind}" for kind in kinds]
            found = ADDRESS.search(json.dumps(output, ensure_ascii=False))
            if found is not None:
                faults.append(f"cell {number}: {found.group()}")
    return faults


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.name)
def test_F12_shipped_notebooks_hold_no_widgets_and_no_addresses(path: Path) -> None:
    assert stored_faults(json.loads(path.read_text(encoding="utf-8"))) == []


def test_F12_the_scan_finds_what_it_looks_for() -> None:
    assert len(NOTEBOOKS) >= 8
    kinds = (
        "application/vnd.jupyter.widget-view+json",
        "application/vnd.jupyter.widget-state+json",
    )
    for data in (*({kind: {"model_id": "a"}} for kind in kinds), {"text/plain": repr(object())}):
        cell = {"outputs": [{"output_type": "display_data", "data": data}]}
        assert len(stored_faults({"cells": [cell]})) == 1
    stream = {"outputs": [{"output_type": "stream", "text": ["<function f at 0x7f1234567890>"]}]}
    assert len(stored_faults({"cells": [stream], "metadata": {"widgets": {}}})) == 2
    assert stored_faults({"cells": [{"outputs": [{"text": "0x1F, #0x00ff00"}]}]}) == []
