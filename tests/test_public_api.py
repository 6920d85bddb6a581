"""The front door: sorted, true, light, and every name documented."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import notebook_agent


def test_names_are_sorted_and_real() -> None:
    names = notebook_agent.__all__
    assert names == sorted(names)
    assert set(names) == set(notebook_agent._HOME_OF)
    for name in names:
        assert getattr(notebook_agent, name) is not None


def test_every_name_has_a_docstring() -> None:
    for name in notebook_agent.__all__:
        thing = getattr(notebook_agent, name)
        if name == "TurnAction":  # a union of four documented classes
            continue
        assert inspect.getdoc(thing), f"{name} has no docstring"


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        notebook_agent.nonsense  # noqa: B018  # the access is the test


def test_import_is_light() -> None:
    """No pandas, widgets, tokenizer, llama.cpp, IPython or HTTP client at import."""
    code = (
        "import sys, notebook_agent\n"
        "heavy = {'pandas', 'ipywidgets', 'tiktoken', 'xllamacpp', 'IPython', 'httpx', 'pydantic'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
