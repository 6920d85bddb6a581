"""``notebook-agent doctor [--json]``: what is installed, usable, and where. No network.

Source: notebook side, front ends (F10).
"""

from __future__ import annotations

import argparse
import json

from notebook_agent.notebook import doctor


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``doctor``."""
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(args: argparse.Namespace) -> int:
    """Print it."""
    if args.json:
        print(json.dumps(doctor.facts(), indent=2))
    else:
        print("\n".join(doctor.lines()))
    return 0
