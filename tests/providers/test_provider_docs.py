"""docs/providers.md and docs/your-own-client.md: their code runs, their claims have a place."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from notebook_agent.engine.structured import STRATEGIES
from notebook_agent.notebook.verbs.table import APIS
from notebook_agent.providers.services import FORMATS, SERVICES

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGES = ("providers.md", "your-own-client.md")


def blocks(page: str) -> list[str]:
    return re.findall(
        r"^```python\n(.*?)^```", (DOCS / page).read_text("utf-8"), re.MULTILINE | re.DOTALL
    )


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_the_page_runs(page, monkeypatch):
    module = ModuleType("docs_page")  # a dataclass looks its module up
    monkeypatch.setitem(sys.modules, "docs_page", module)
    found = blocks(page)
    assert len(found) == 2
    for block in found:
        exec(compile(block, page, "exec"), module.__dict__)  # our own page


def test_the_client_has_forty_lines_or_so():
    lines = [line for line in blocks("your-own-client.md")[0].splitlines() if line.strip()]
    assert len(lines) <= 42


def test_the_table_names_every_provider_and_the_files_are_there():
    text = (DOCS / "providers.md").read_text("utf-8")
    for name in SERVICES:
        assert re.search(rf"\b{re.escape(name)}\b", text), name
    for path in set(re.findall(r"tests/[\w/]+\.py", text)):
        assert (DOCS.parent / path).exists(), path
    assert [name for name, *_ in STRATEGIES] == ["native", "tool", "json", "words"]
    assert set(APIS) == set(FORMATS)
