"""``notebook-agent fetch-model [--remove]``.

Source: notebook side, section 6 (cleaning up), D11.
"""

from __future__ import annotations

import argparse

from notebook_agent.providers.local_files import fetch_model, find_model, remove_model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``fetch-model``."""
    parser.add_argument("--remove", action="store_true", help="delete the file again")


def run(args: argparse.Namespace) -> int:
    """Fetch or remove."""
    if not args.remove:
        fetch_model(lambda line: print(line, flush=True))
        return 0
    removed = remove_model()
    for path in removed:
        print(f"Removed {path}")
    if not removed:
        print("There is no fetched model file.")
    left = find_model()
    if left is not None:
        print(f"One more lies beside an installed package and stays: {left.path}")
    return 0
