"""The documentation: its code runs, its links lead somewhere, the site asks no other host."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import notebook_agent
from tests.play_docs import blocks

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))


def test_code_of_the_pages_runs(tmp_path) -> None:
    with_code = [p for p in PAGES if blocks(p.read_text(encoding="utf-8"))]
    assert len(with_code) > 8
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "play_docs.py"), *map(str, with_code)],
        capture_output=True, text=True, cwd=tmp_path, timeout=110,
        env={**os.environ, "HOME": str(tmp_path), "IPYTHONDIR": str(tmp_path / "ipython")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    failed = [one for one in lines if "error" in one]
    assert failed == []
    expected = sum(len(blocks(p.read_text(encoding="utf-8"))) for p in with_code)
    assert lines[-1] == {"ran": expected}


def test_a_block_that_fails_is_seen(tmp_path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nassert 1 == 2\n```\n\n<!-- not run: x -->\n```python\n1/0\n```\n")
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "play_docs.py"), str(page)],
        capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "IPYTHONDIR": str(tmp_path)},
    )  # fmt: skip
    first, last = map(json.loads, done.stdout.splitlines())
    assert "AssertionError" in first["error"]
    assert last == {"ran": 1}


def test_the_front_door_is_documented() -> None:
    said = "\n".join(p.read_text(encoding="utf-8") for p in (DOCS / "api").glob("*.md"))
    named = {line.rpartition(".")[2] for line in said.splitlines() if line.startswith("::: ")}
    assert set(notebook_agent.__all__) - named == set()


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site, built strictly: a link to nowhere is an error."""
    pytest.importorskip("mkdocs", reason="pip install notebook-agent[docs]")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        capture_output=True, text=True, cwd=ROOT, timeout=110,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "https_proxy": "http://127.0.0.1:9"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_no_page_asks_another_host(site) -> None:
    asked = re.compile(r"""(?:src|srcset|data)=["']?(?:https?:)?//|<link[^>]+href=["']?(?:https?:)?//|@import|url\(["']?(?:https?:)?//""")  # fmt: skip
    for path in [*site.rglob("*.html"), *site.rglob("*.css")]:
        found = asked.search(path.read_text(encoding="utf-8"))
        assert found is None, f"{path.relative_to(site)}: {found.group()}"


def test_every_page_and_notebook_is_there(site) -> None:
    for page in PAGES:
        assert (site / page.relative_to(DOCS).with_suffix(".html")).exists()
    for notebook in (ROOT / "notebooks").glob("[0-9]*.ipynb"):
        page = site / "notebooks" / f"{notebook.stem}.html"
        assert "cell-output" in page.read_text(encoding="utf-8")


def test_references_are_filled(site) -> None:
    text = (site / "api" / "run.html").read_text(encoding="utf-8")
    for words in ("max_iterations", "arun", "seconds before the first retry"):
        assert words in text
    assert ":class:" not in text
    assert "===" not in re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)


def test_the_picture_of_the_states_is_of_the_table(site) -> None:
    from notebook_agent.core.turn_fsm import TRANSITIONS

    text = (site / "architecture.html").read_text(encoding="utf-8")
    drawn = text[
        text.index('<svg class="fsm"') : text.index("</svg>", text.index('<svg class="fsm"'))
    ]
    for state, row in TRANSITIONS.items():
        assert state.name in drawn
        assert all(outcome.__name__ in drawn for outcome in row)
