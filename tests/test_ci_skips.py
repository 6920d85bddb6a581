"""CI=true does not skip in silence: what is not installed is a failure there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.conftest import fails_in_ci

ROOT = Path(__file__).parent.parent
HOOKS = """
import pytest
from tests.conftest import pytest_make_collect_report, pytest_runtest_makereport  # noqa: F401  # a hook by its name
"""
CASES = {
    "module": 'pytest.importorskip("no_such_package_here")\n\ndef test_x(): pass\n',
    "inside": 'def test_x(): pytest.importorskip("no_such_package_here")\n',
    "mark": '@pytest.mark.skipif(True, reason="node is not installed")\ndef test_x(): pass\n',
    "browser": 'def test_x(): pytest.skip("no browser at /x (Debian: apt install chromium)")\n',
    "fixture": (
        '@pytest.fixture\ndef server(): pytest.skip("llmock is not installed")\n\n'
        "def test_x(server): pass\n"
    ),
}
HARMLESS = 'def test_x(): pytest.skip("one line is one document")\n'


def test_a_missing_package_server_or_browser_fails_in_ci_and_other_skips_stay(tmp_path):
    (tmp_path / "conftest.py").write_text(HOOKS, encoding="utf-8")
    for name, source in {**CASES, "harmless": HARMLESS}.items():
        (tmp_path / f"test_{name}.py").write_text(f"import pytest\n\n{source}", encoding="utf-8")
    given = {k: v for k, v in os.environ.items() if k != "NOTEBOOK_AGENT_COMPAT"}
    given |= {"CI": "true", "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rfEs", "-p", "no:cacheprovider",
         "--continue-on-collection-errors", "-c", os.devnull, str(tmp_path)],
        cwd=tmp_path, capture_output=True, text=True, check=False, env=given,
    )  # fmt: skip
    ends = re.findall(r"^(FAILED|ERROR|SKIPPED).*?test_(\w+)\.py", done.stdout, re.MULTILINE)
    bad = sorted(name for word, name in ends if word != "SKIPPED")
    assert bad == sorted(CASES), done.stdout
    assert [name for word, name in ends if word == "SKIPPED"] == ["harmless"]
    assert done.returncode == 1


def test_elsewhere_and_in_the_compatibility_sets_it_is_a_skip(monkeypatch):
    reason = "Skipped: could not import 'x': No module named 'x'"
    for ci, compat, fails in (("true", "", True), ("true", "old", False), ("", "", False)):
        monkeypatch.setenv("CI", ci)
        monkeypatch.setenv("NOTEBOOK_AGENT_COMPAT", compat)
        assert fails_in_ci(reason) is fails
