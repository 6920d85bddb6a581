"""One option of a table, and how a line is read by a table of them.

The errors are two lines: what is wrong, and the line to type (N11).

Source: notebook side, commands (N11).
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from notebook_agent.core.interpolate import insert
from notebook_agent.errors import ConfigError

__all__ = ["LINE_HINT", "Option", "UsageError", "nearest", "own_names", "parse_options"]

_PYTHON: Final = {"True": True, "False": False, "None": None}  # whoever types them means them
LINE_HINT: Final = "For braces as they are, type a backslash before them:  \\{{"
# What IPython puts into every namespace: no suggestion for anything.
_NOT_OWN: Final = frozenset({"In", "Out", "exit", "quit", "open", "get_ipython"})


class UsageError(ConfigError):
    """A magic line that cannot be read: two lines, the second is what to type (N11)."""


@dataclass(frozen=True, slots=True)
class Option:
    """One row of an option table.

    Attributes:
        flags: Spellings, () for a positional argument.
        dest: Field it fills.
        help: What it does, one line.
        kind: ``text``, ``flag``, ``names`` (comma list), ``count`` (whole number), ``number``,
            ``pair`` (key=value, JSON values), ``choice`` or ``choices`` (comma list).
        metavar: The value's name in the help.
        choices: Legal words of choice and choices.
        complete: Source of completions: models, sessions, names, runs, verbs, files.
        least: Smallest legal count or number.
        example: A value for the line to type when one is missing or wrong.
        optional: A positional that may be left out.
        empty: An empty text is a value too.
    """

    flags: tuple[str, ...]
    dest: str
    help: str
    kind: str = "text"
    metavar: str = ""
    choices: tuple[str, ...] = ()
    complete: str = ""
    least: float = 0
    example: str = ""
    optional: bool = True
    empty: bool = False

    @property
    def name(self) -> str:
        """The long spelling, the metavar for a positional."""
        return self.flags[-1] if self.flags else (self.metavar or self.dest)


# Words that people type as options and that are request parameters.
PARAMETERS: Final = (
    "temperature", "top_p", "top_k", "max_completion_tokens", "max_output_tokens", "seed", "stop",
    "frequency_penalty", "presence_penalty", "reasoning_effort", "n", "logprobs", "user",
    "thinking", "verbosity",
)  # fmt: skip


def nearest(word: str, words: Iterable[str]) -> str | None:
    """The word of ``words`` most like ``word``, None when none is like it."""
    by_lower = {one.lower(): one for one in words}
    close = difflib.get_close_matches(word.lower(), list(by_lower), n=1, cutoff=0.6)
    return by_lower[close[0]] if close else None


def own_names(namespace: Mapping[str, Any]) -> list[str]:
    """The names that a person has given: candidates for a suggestion."""
    return [n for n in namespace if not n.startswith("_") and n not in _NOT_OWN]


def parse_options(
    command: str,
    line: str,
    table: Sequence[Option],
    names: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], list[str]]:
    """Read a line by a table.

    Args:
        command: ``%%agent`` or ``%agent verb``, for the messages.
        line: What follows the command.
        table: Options and positionals.
        names: Variables for ``{{name}}`` in the line; None inserts nothing. A value is one
            piece of a word, whatever blanks and quotes it has (D7).

    Returns:
        The values given, by ``dest``, and the words left over.

    Raises:
        UsageError: An unknown option, a missing or wrong value, an open quote.
        InsertionError: A ``{{name}}`` that is not there.
    """
    words = _words(command, line, names)
    for word in words[: words.index("--")] if "--" in words else words:
        if _one_dash_short(word, table):
            raise _no_option(command, words, table, word)
    parser = _Parser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for option in table:
        _add(parser, option)
    try:
        found, rest = parser.parse_known_args(words)
    except (argparse.ArgumentError, _Unread) as error:
        raise _unread(command, words, table, error) from None
    unknown = next((w for w in rest if re.match(r"--?[A-Za-z]", w)), None)
    if unknown is not None:
        raise _no_option(command, words, table, unknown)
    values: dict[str, Any] = {}
    for option in table:
        given = getattr(found, option.dest, None)
        if given not in (None, False, []):
            values[option.dest] = _value(command, words, option, given)
    return values, [w for w in rest if w != "--"]


def _words(command: str, line: str, names: Mapping[str, Any] | None) -> list[str]:
    """The words of a line with its values in place: split first, so that no value is split."""
    if names is None or "--raw" in line.split():
        return _split(command, line)
    values: list[str] = []

    def place(text: str) -> str:
        values.append(text)
        return f"\ue0f0{len(values) - 1}\ue0f1"

    marked = insert(line, names, hint=LINE_HINT, place=place).text
    return [
        re.sub("\ue0f0(\\d+)\ue0f1", lambda m: values[int(m[1])], word)
        for word in _split(command, marked)
    ]


def _shell_words(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=False)
    lexer.whitespace_split, lexer.commenters = True, ""
    if os.name == "nt":
        lexer.escape = ""  # a backslash parts folders there
    return list(lexer)


def _split(command: str, line: str) -> list[str]:
    try:
        return _shell_words(line)
    except ValueError:
        try:  # an apostrophe in plain words is no quote
            return _shell_words(re.sub(r"(?<=\w)'(?=\w)", "\\'", line))
        except ValueError:
            raise UsageError(
                f"A quote is left open in:  {command} {line.strip()}\n"
                f'Type:  {command} --system "two words"'
                if command == "%%agent"
                else f"A quote is left open in:  {command} {line.strip()}\nType:  {command}?"
            ) from None


def _one_dash_short(word: str, table: Sequence[Option]) -> bool:
    """``-session=x`` is no ``-s ession=x``: it would be taken, and a request sent."""
    bare = word.partition("=")[0][1:].replace("_", "-")
    if len(bare) < 3 or word[0] != "-" or word[1] == "-":
        return False
    known = {f[2:] for option in table for f in option.flags if f.startswith("--")}
    pairs = any(option.kind == "pair" for option in table)
    return bare in known or (pairs and bare.replace("-", "_") in PARAMETERS)


class _Unread(Exception):
    """argparse could not read the line."""


class _Parser(argparse.ArgumentParser):
    """argparse without its exits."""

    def error(self, message: str) -> NoReturn:
        raise _Unread(message)


def _add(parser: argparse.ArgumentParser, option: Option) -> None:
    if not option.flags:
        many = option.kind in ("pair", "names")
        parser.add_argument(option.dest, nargs="*" if many else "?", metavar=option.name)
    elif option.kind == "flag":
        parser.add_argument(*option.flags, dest=option.dest, action="store_true")
    else:
        parser.add_argument(
            *option.flags, dest=option.dest, metavar=option.metavar or "VALUE",
            action="append" if option.kind in ("pair", "names", "choices") else "store",
        )  # fmt: skip


def _value(command: str, words: Sequence[str], option: Option, given: Any) -> Any:
    """One option's value by its kind, or the error that says what it must be."""
    bad: Callable[[str], UsageError] = lambda legal: UsageError(  # noqa: E731  # short, used below
        f"{option.name} needs {legal}; {_shown(given)} is none.\n"
        f"Type:  {_repaired(command, words, option, given)}"
    )
    match option.kind:
        case "flag":
            return True
        case "count" | "number":
            whole = option.kind == "count"
            kind = "a whole number" if whole else "a number of seconds"
            try:
                number = int(given) if whole else float(given)
            except ValueError:
                raise bad(f"{kind} of at least {option.least:g}") from None
            if not option.least <= number < float("inf"):
                raise bad(f"{kind} of at least {option.least:g}")
            return number
        case "names" | "choices":
            names = tuple(n.strip() for one in given for n in one.split(",") if n.strip())
            wrong = [n for n in names if option.choices and n not in option.choices]
            if not names or wrong:
                raise bad("names parted by commas" if not wrong else f"{_one_of(option)}")
            return names
        case "choice":
            if given not in option.choices and not option.flags:
                raise UsageError(
                    f"{command} takes {_either(option.choices)}; {_shown(given)} is none.\n"
                    f"Type:  {_repaired(command, words, option, given)}"
                )
            if given not in option.choices:
                raise bad(_one_of(option))
            return given
        case "pair":
            return dict(_pair(text, bad) for text in given)
        case _:
            if not given.strip() and not option.empty:
                raise bad("a value that is not empty")
            return given


def _one_of(option: Option) -> str:
    return f"one of {', '.join(option.choices)}"


def _either(choices: Sequence[str]) -> str:
    """``a``, ``a or b``, ``a, b or c``."""
    *others, last = choices
    return f"{', '.join(others)} or {last}" if others else last


def _pair(text: str, bad: Callable[[str], UsageError]) -> tuple[str, Any]:
    """``key=value``; the value is JSON or True, False, None as in Python, else the text itself."""
    key, eq, value = text.partition("=")
    if not eq or not key.strip():
        raise bad("key=value")
    try:
        read = json.loads(value)
        json.dumps(read, allow_nan=False)  # NaN is no JSON: it would be sent as null
    except ValueError:
        return key.strip(), _PYTHON.get(value, value)
    return key.strip(), read


def _shown(given: Any) -> str:
    return repr(given if isinstance(given, str) else ",".join(given))


def _repaired(command: str, words: Sequence[str], option: Option, given: Any) -> str:
    """The user's own line with a legal value in place of the wrong one."""
    example = option.example or option.metavar or "VALUE"
    if option.choices and isinstance(given, str):
        example = nearest(given, option.choices) or option.example or option.choices[0]
    wrong = {given} if isinstance(given, str) else set(given)
    fixed = [example if w in wrong else w for w in words]
    if fixed == list(words):  # written as --option=value
        fixed = [*option.flags[-1:], example]
    return _line(command, fixed)


def _line(command: str, words: Sequence[str]) -> str:
    return " ".join(
        [command, *(w if re.fullmatch(r"[\w@%+=:,./-]+", w) else shlex.quote(w) for w in words)]
    )


def _no_option(
    command: str, words: Sequence[str], table: Sequence[Option], unknown: str
) -> UsageError:
    flag, eq, attached = unknown.partition("=")
    bare = flag.lstrip("-").replace("-", "_")
    spelled = {f.lstrip("-"): f for option in table for f in option.flags}
    at = list(words).index(unknown)
    follow = words[at + 1 : at + 2]
    value = attached if eq else (follow[0] if follow and not follow[0].startswith("-") else "")
    takes_pairs = any(o.kind == "pair" for o in table)
    parameter = _meant(bare, PARAMETERS) if takes_pairs else None
    close = _meant(bare.replace("_", "-"), spelled)
    if parameter and not (close and _alike(close, bare) >= _alike(parameter, bare)):
        rest = words[at + (1 if eq or not value else 2) :]
        fixed = [*words[:at], "-p", f"{parameter}={value or '1'}", *rest]
        to_type = _line(command, fixed)
    elif close:
        to_type = _line(command, [*words[:at], spelled[close] + eq + attached, *words[at + 1 :]])
    else:
        to_type = f"{command}?"
    return UsageError(f"{command} has no option {flag}.\nType:  {to_type}")


def _meant(word: str, words: Iterable[str]) -> str | None:
    """The one word that this is the beginning of, else the nearest."""
    known = list(words)
    begun = [one for one in known if len(word) > 2 and one.startswith(word)]
    return begun[0] if len(begun) == 1 else nearest(word, known)


def _alike(one: str, other: str) -> float:
    """How like two words are, letters only; one that begins with the other is the likest."""
    first, second = (re.sub("[-_]", "", word).lower() for word in (one, other))
    return difflib.SequenceMatcher(None, first, second).ratio() + one.startswith(other)


def _unread(
    command: str, words: Sequence[str], table: Sequence[Option], error: Exception
) -> UsageError:
    name = (getattr(error, "argument_name", None) or "").split("/")[-1]
    for option in table:
        if name in option.flags:
            example = option.example or option.metavar
            at = next((i for i, w in enumerate(words) if w in option.flags), len(words))
            fixed = [*words[:at], option.flags[-1], example, *words[at + 1 :]]
            if option.kind == "flag":
                return UsageError(
                    f"{option.name} takes no value.\nType:  {command} {option.flags[-1]}"
                )
            return UsageError(
                f"{option.name} needs a value: {option.metavar or 'VALUE'}.\n"
                f"Type:  {_line(command, fixed)}"
            )
    return UsageError(f"Cannot read:  {_line(command, words)}\nType:  {command}?")
