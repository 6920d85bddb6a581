"""``notebook-agent replay FILE --check [--json]``: a run file's actions recomputed and compared.

Exit code 0 when the replay equals the record, 1 when it does not or the file ends too early.

Source: Turn FSM, "Determinism" (B58, B59).
"""

from __future__ import annotations

import argparse
import json

from notebook_agent.core.text import visible
from notebook_agent.engine.store.jsonl import check_file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``replay``."""
    parser.add_argument("file", metavar="FILE", help="a run file (%%agent record, --record)")
    parser.add_argument(
        "--check", action="store_true", required=True,
        help="recompute every action and compare; no engine, no request",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(args: argparse.Namespace) -> int:
    """Check the file."""
    found = check_file(args.file)
    if args.json:
        print(json.dumps({"file": args.file, **found.to_json()}, ensure_ascii=False))
    else:
        print(visible(f"{args.file}: {found}"))
    return 0 if found.ok and found.complete else 1
