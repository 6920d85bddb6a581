"""The docs are true: generated tables, the README's blocks, the requirement map."""

from __future__ import annotations

import ast
import importlib.util
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


def test_every_built_requirement_is_named_by_a_module_and_a_test() -> None:
    assert requirements_map.gaps() == []


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
