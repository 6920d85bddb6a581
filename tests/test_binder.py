"""The Binder folder says what the package says; the emulation itself is a stage of run_all."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "binder"
LINES = (FOLDER / "requirements.txt").read_text(encoding="utf-8").splitlines()
PINS = dict(line.split("==") for line in LINES if "==" in line)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def needed() -> list[str]:
    extras = re.search(r"^\.\[(.+)\]$", "\n".join(LINES), re.MULTILINE)
    assert extras is not None, "requirements.txt must install the repository itself"
    more = [PROJECT["optional-dependencies"][name] for name in extras[1].split(",")]
    return [*PROJECT["dependencies"], *(line for lines in more for line in lines)]


@pytest.mark.parametrize("line", needed())
def test_every_dependency_is_pinned_within_its_range(line: str) -> None:
    need = Requirement(line)
    assert need.name in PINS, "run: python binder/pins.py --write"
    assert need.specifier.contains(PINS[need.name]), f"{need} but {PINS[need.name]} is pinned"


def test_runtime_is_a_python_that_the_package_allows() -> None:
    version = (FOLDER / "runtime.txt").read_text(encoding="utf-8").strip().removeprefix("python-")
    assert Requirement(f"python{PROJECT['requires-python']}").specifier.contains(version)


def test_postbuild_can_be_executed() -> None:
    assert os.access(FOLDER / "postBuild", os.X_OK)
    assert (FOLDER / "postBuild").read_text(encoding="utf-8").startswith("#!")


def test_pins_name_no_address() -> None:
    assert not [line for line in LINES if "://" in line or line.startswith("-")]
