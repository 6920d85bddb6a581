"""The house plan's layers, over ast: who may import whom, file and function sizes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "notebook_agent"
FILES = sorted(PACKAGE.rglob("*.py"))

# layer -> (our layers it may import, third-party and stdlib modules it must not import)
LAYERS: dict[str, tuple[set[str], set[str]]] = {
    "errors": ({"core.text"}, {"pydantic", "httpx", "asyncio"}),
    "core": (
        {"errors", "core"},
        {"asyncio", "httpx", "time", "random", "tiktoken", "pandas", "IPython", "ipywidgets", "msgspec", "threading", "socket", "os"},
    ),
    "providers": ({"errors", "core", "providers"}, {"IPython", "ipywidgets", "anywidget", "pandas"}),
    "engine": (
        {"errors", "core", "engine", "providers.base"},
        {"IPython", "ipywidgets", "anywidget", "pandas", "httpx"},
    ),
    "tuning": (
        {"errors", "core", "providers", "engine", "tuning"},
        {"IPython", "ipywidgets", "anywidget", "httpx"},
    ),
    "notebook": (
        {"errors", "core", "providers", "engine", "tuning", "notebook"},
        {"httpx"},
    ),
}  # fmt: skip


def layer_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(tree: ast.AST) -> list[tuple[str, int]]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import on line {node.lineno}"
            found += [(f"{node.module}.{alias.name}", node.lineno) for alias in node.names]
    return found


def allowed(name: str, ours: set[str]) -> bool:
    rest = name.removeprefix("notebook_agent.").removeprefix("notebook_agent")
    if rest in ("", "__version__"):
        return name.endswith("__version__")
    return any(rest == one or rest.startswith(one + ".") for one in ours)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_layer(path: Path) -> None:
    layer = layer_of(path)
    tree = ast.parse(path.read_text())
    if layer not in LAYERS:
        return  # __init__, __main__, cli: everything, no logic
    ours, forbidden = LAYERS[layer]
    for name, line in imports_of(tree):
        if name.split(".")[0] == "notebook_agent":
            if name.startswith("notebook_agent.notebook.audit") and path.name == "result.py":
                continue  # RunResult.frame: a lazy convenience, inside its property
            assert allowed(name, ours), f"{path.name}:{line} imports {name}"
        else:
            assert name.split(".")[0] not in forbidden, f"{path.name}:{line} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_sizes(path: Path) -> None:
    """At most 400 lines a file, 60 a function."""
    text = path.read_text()
    lines = text.count("\n")
    assert lines <= 400, f"{path.name} has {lines} lines: split it by topic"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            size = (node.end_lineno or 0) - node.lineno + 1
            assert size <= 60, f"{path.name}: {node.name} has {size} lines"
