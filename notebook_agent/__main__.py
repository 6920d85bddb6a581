"""``python -m notebook_agent``: the same as ``notebook-agent``."""

from __future__ import annotations

import sys

from notebook_agent.cli import main

if __name__ == "__main__":
    sys.exit(main())
