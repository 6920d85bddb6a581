"""``notebook-agent decode FILE... --api NAME [--chunk N] [--json]``: recorded bodies decoded.

One JSON line per file, in the order given: text, thinking, refusal, tool_calls (id, name,
arguments_raw, arguments), stop_reason (the provider's word), stop, usage, error, complete. An
incomplete body is no failure of this command.

Source: LLM turn, "Event routing, exactly" (L5a, L57).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from notebook_agent.errors import ConfigError
from notebook_agent.providers.decode import APIS, decode_body


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``decode``."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="a recorded body; - = stdin")
    parser.add_argument("--api", required=True, choices=sorted(APIS), help="its wire format")
    parser.add_argument("--chunk", type=int, metavar="N", help="feed it in pieces of N bytes")
    parser.add_argument("--json", action="store_true", help="the default, accepted for likeness")


def run(args: argparse.Namespace) -> int:
    """Decode each file."""
    for name in args.files:
        result = decode_body(_read(name), args.api, args.chunk)
        # ASCII: no terminal's encoding and no lone surrogate can stop the line.
        print(json.dumps(result))
    return 0


def _read(name: str) -> bytes:
    if name == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except OSError as problem:
        raise ConfigError(f"{name} cannot be read: {problem.strerror}.", field="file") from None
