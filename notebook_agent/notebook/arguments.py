"""The option tables of ``%%agent`` and of the verbs: parsing, help, completion.

Every option is one row; the parser, the help text, the completion and the two-line errors are
made from the rows.

Source: notebook side, commands (D6, D8, N11).
"""

from __future__ import annotations

import builtins
import keyword
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from notebook_agent.notebook.option import (
    LINE_HINT,
    Option,
    UsageError,
    nearest,
    own_names,
    parse_options,
)

__all__ = [
    "CELL_OPTIONS",
    "LINE_HINT",
    "CellOptions",
    "Option",
    "UsageError",
    "cell_help",
    "complete_options",
    "nearest",
    "option_lines",
    "own_names",
    "parse_cell",
    "parse_options",
]

# Fields of a request that a run fills itself, and what to type instead.
OWN_FIELDS: Final[Mapping[str, str]] = {
    "model": "Type:  %%agent --model ID",
    "messages": "Type the prompt below the line; more of it with:  %%agent --with NAME",
    "contents": "Type the prompt below the line; more of it with:  %%agent --with NAME",
}
FORMATS: Final = ("md", "text", "json", "code")
TAKEN: Final = frozenset(dir(builtins)) | {"In", "Out", "get_ipython"}
SHOWS: Final = ("panel", "footer", "quiet")

CELL_OPTIONS: Final[tuple[Option, ...]] = (
    Option(("-m", "--model"), "model", "this run only: provider:name or an alias",
           metavar="ID", complete="models", example="scripted"),
    Option(("--fallback",), "fallback", "chain of backups for this run", "names",
           metavar="A,B", complete="models", example="scripted:backup"),
    Option(("-s", "--session"), "session", "session to talk in, made on first use",
           metavar="NAME", complete="sessions", example="default"),
    Option(("--fresh",), "fresh", "send no earlier history (it is not erased)", "flag"),
    Option(("--system",), "system", "system prompt of this run, or @variable",
           metavar="TEXT", example="@prompt", empty=True),
    Option(("-t", "--tools"), "tools", "functions of this notebook as tools", "names",
           metavar="f,g", complete="functions", example="my_function"),
    Option(("--no-tools",), "no_tools", "offer no tools in this run", "flag"),
    Option(("-w", "--with"), "with_", "variables shown to the model for this run", "names",
           metavar="a,b", complete="names", example="df"),
    Option(("--cells",), "cells", "show the model the last N cell sources (0)", "count",
           metavar="N", example="3"),
    Option(("-i", "--into"), "into", "bind the RunResult to this name too (_ always is)",
           metavar="NAME", example="answer"),
    Option(("-f", "--format"), "format", "md, text, json (must be valid) or code (proposes a cell)",
           "choice", metavar="F", choices=FORMATS, example="md"),
    Option(("--schema",), "schema", "a pydantic class: the reply as .parsed",
           metavar="Model", complete="names", example="Model"),
    Option(("--max-turns",), "max_turns", "turns this run may take (16)", "count",
           metavar="N", least=1, example="16"),
    Option(("--max-tokens",), "max_tokens", "tokens this run may use, all attempts (256000)",
           "count", metavar="N", least=1, example="256000"),
    Option(("--timeout",), "timeout", "seconds a reply may take (300); a rescue, as many again", "number",
           metavar="S", least=0.001, example="300"),
    Option(("--no-stream",), "no_stream", "one unstreamed request, no retries", "flag"),
    Option(("-p",), "params", "request parameter, sent as given; may be repeated", "pair",
           metavar="key=value", example="temperature=0.2"),
    Option(("--raw",), "raw", "insert no {{variables}}", "flag"),
    Option(("--dry-run",), "dry_run", "show the exact request and its tokens, send nothing", "flag"),
    Option(("--background",), "background", "return a handle at once", "flag"),
    Option(("--show",), "show", "how to show the run: panel, footer or quiet", "choice",
           metavar="HOW", choices=SHOWS, example="footer"),
    Option(("--record",), "record", "write a run file for %agent replay",
           metavar="FILE", complete="files", example="run.jsonl"),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class CellOptions:
    """What the first line of ``%%agent`` says; one field per row of ``CELL_OPTIONS``."""

    model: str | None = None
    fallback: tuple[str, ...] | None = None
    session: str | None = None
    fresh: bool = False
    system: str | None = None
    tools: tuple[str, ...] | None = None
    no_tools: bool = False
    with_: tuple[str, ...] = ()
    cells: int = 0
    into: str | None = None
    format: str = "md"
    schema: str | None = None
    max_turns: int | None = None
    max_tokens: int | None = None
    timeout: float | None = None
    no_stream: bool = False
    params: Mapping[str, Any] = field(default_factory=dict)
    raw: bool = False
    dry_run: bool = False
    background: bool = False
    show: str | None = None
    record: str | None = None


def parse_cell(line: str, names: Mapping[str, Any] | None = None) -> CellOptions:
    """The options of a ``%%agent`` line.

    Args:
        names: Variables for ``{{name}}`` in the line; ``--raw`` switches that off here too.

    Raises:
        UsageError: The line cannot be read; its text ends with the line to type.
        InsertionError: A ``{{name}}`` that is not there.
    """
    values, rest = parse_options("%%agent", line, CELL_OPTIONS, names)
    if rest:
        text = " ".join(rest)
        raise UsageError(
            f"%%agent takes options only, the prompt stands below it; {text!r} is no option.\n"
            f"Type:  %agent ask {text}"
        )
    options = CellOptions(**values)
    ours = next((key for key in options.params if key in OWN_FIELDS), None)
    if ours is not None:
        raise UsageError(f"-p {ours} would change what the audit trail tells.\n{OWN_FIELDS[ours]}")
    if options.no_tools and options.tools:
        raise UsageError(
            "--tools and --no-tools contradict each other.\n"
            f"Type:  %%agent --tools {','.join(options.tools)}"
        )
    if options.into is not None:  # as Python keeps a name
        options = replace(options, into=unicodedata.normalize("NFKC", options.into))
    if options.into is not None and (
        not options.into.isidentifier() or keyword.iskeyword(options.into)
    ):
        raise UsageError(
            f"--into needs the name of a variable; {options.into!r} is none.\n"
            "Type:  %%agent --into answer"
        )
    if options.into in TAKEN or re.fullmatch("__.+__", options.into or ""):
        raise UsageError(
            f"--into {options.into} would hide a name that Python or the notebook needs.\n"
            "Type:  %%agent --into answer"
        )
    return options


def option_lines(table: Sequence[Option]) -> list[str]:
    """The help lines of a table, aligned."""
    left = []
    for option in table:
        head = ", ".join(option.flags) or option.name
        value = option.metavar if option.flags and option.kind != "flag" else ""
        left.append(f"{head} {value}".rstrip())
    width = max((len(one) for one in left), default=0)
    return [f"  {a:<{width}}  {o.help}" for a, o in zip(left, table, strict=True)]


def cell_help() -> str:
    """The help of ``%%agent``."""
    return "\n".join(
        [
            "%%agent [options]",
            "prompt",
            "",
            "Sends the cell's body to a model, exactly as typed, and shows the reply as it comes.",
            "{{name}}, {{name.attr}}, {{name[0]}} and {{name['key']}} insert a variable's text;",
            "\\{{ is a literal {{.",
            "",
            "Options:",
            *option_lines(CELL_OPTIONS),
            "",
            "The result is bound to _ (and to --into NAME): .text .parsed .usage .turns .frame",
            ".status. One line instead of a cell:  %agent ask TEXT.  All verbs:  %agent help",
        ]
    )


def complete_options(
    words: Sequence[str], text: str, table: Sequence[Option], names: Callable[[str], Iterable[str]]
) -> list[str]:
    """Completions of the word ``text`` after ``words`` (the words before it).

    Args:
        names: Gives the words of a source: models, sessions, names, functions, runs, verbs.
    """
    before = words[-1] if words else ""
    option = next((o for o in table if before in o.flags and o.kind != "flag"), None)
    if option is None and text.startswith("-"):
        return [f for o in table for f in o.flags if f.startswith(text)]
    positional = [o for o in table if not o.flags]
    if option is None and positional:
        taken = sum(1 for w in words if not w.startswith("-"))
        option = positional[min(taken, len(positional) - 1)]
    if option is None:
        return [f for o in table for f in o.flags if f.startswith("--") and f.startswith(text)]
    head, comma, last = text.rpartition(",")
    source = (
        option.choices or tuple(names(option.complete)) if option.complete or option.choices else ()
    )
    return [f"{head}{comma}{n}" for n in source if n.startswith(last)]
