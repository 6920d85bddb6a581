"""The command line: ``notebook-agent demo | lab | doctor | fetch-model | decode | replay``.

Exit codes: 0 = done, 1 = it failed (the reason is on standard error), 2 = wrong arguments,
130 = interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Final

from notebook_agent import __version__
from notebook_agent.errors import AgentError

__all__ = ["main"]

# Command -> (module with add_arguments(parser) and run(args) -> int, one line of help). A
# module is imported only when its command, or help, is asked for.
COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "demo": ("demo", "run the quick start on the local model, in the terminal"),
    "lab": ("lab", "open JupyterLab on the notebooks"),
    "doctor": ("doctor", "what is installed, usable and where; no network"),
    "fetch-model": ("fetch", "get the local model's file, or remove it"),
    "decode": ("decode", "recorded response bodies as JSON lines"),
    "replay": ("replay", "check a run file by replaying it"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: Words of the command line, None for the process's own.

    Returns:
        The exit code.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run(words)
    except AgentError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _run(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="notebook-agent",
        description="Agent cells for Jupyter. Start with:  notebook-agent demo",
    )
    parser.add_argument("--version", action="version", version=f"notebook-agent {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (module, summary) in COMMANDS.items():
        sub = commands.add_parser(name, help=summary, description=summary)
        if name in words:  # only the wanted command's module is imported
            found = importlib.import_module(f"notebook_agent.cli.{module}")
            found.add_arguments(sub)
            sub.set_defaults(run=found.run)
    if not words:
        parser.print_help()
        return 2
    args = parser.parse_args(words)
    code: int = args.run(args)
    return code
