"""Where the notebooks are: beside the checkout, else inside the installed package."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import notebook_agent
from notebook_agent.errors import ConfigError

__all__ = ["QUICKSTART", "in_checkout", "notebooks_folder"]

QUICKSTART: Final = "00_quickstart.ipynb"
_PACKAGE: Final = Path(notebook_agent.__file__).parent


def in_checkout(folder: Path) -> bool:
    """Whether these are a checkout's own notebooks, to be worked on where they lie."""
    return folder == _PACKAGE.parent / "notebooks"


def notebooks_folder() -> Path:
    """The folder with the numbered notebooks.

    Raises:
        ConfigError: This installation has none.
    """
    for folder in (_PACKAGE.parent / "notebooks", _PACKAGE / "notebooks"):
        if (folder / QUICKSTART).is_file():
            return folder
    raise ConfigError(
        "This installation has no notebooks.\nType:  pip install --force-reinstall notebook-agent",
        field="notebooks",
    )
