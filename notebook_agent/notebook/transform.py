"""Cell text -> the text IPython runs: ``%%agent`` becomes one ``await`` line.

An ``async def`` magic is not awaited by IPython and an AST transformer comes too late, so the
rewrite happens on the cell's text, first of all clean-ups: a body that looks like a doctest or
ends in ``?`` reaches the engine as it was typed.

Source: notebook side, running a cell (D1, D7, D8, N03).
"""

from __future__ import annotations

import re
import tokenize
from collections.abc import Callable, Iterator
from typing import Any, Final

__all__ = ["Rewriter", "rewrite"]

# The registry survives %reset; a name in the user's namespace would not.
_MAGICS: Final = "get_ipython().magics_manager.registry['AgentMagics']"
_CELL: Final = re.compile(r"^\s*%%agent(?=\s|$)(?P<line>.*)$", re.DOTALL)
_LINE: Final = re.compile(
    r"^(?P<indent>[ \t]*)(?:(?P<target>[^\W\d][\w.\[\]'\", ]*?)[ \t]*=[ \t]*)?%agent(?=\s|$)(?P<line>.*)$",
    re.DOTALL,
)


def rewrite(lines: list[str], *, awaits: bool, cells: bool = True) -> list[str]:
    """Rewrite a cell.

    Args:
        lines: The cell's lines with their ends.
        awaits: The shell awaits top-level coroutines; else calls are synchronous.
        cells: Rewrite ``%%agent`` too; False leaves it to the registered magic.

    Returns:
        The same list where there is nothing to rewrite.
    """
    text = "".join(lines)
    if "%agent" not in text:
        return lines
    first = next((i for i, line in enumerate(lines) if line.strip()), 0)
    at = first if lines[first].lstrip().startswith("%%") else _late(lines)
    if at is None:
        return list(_lines(lines, awaits))
    if any(line.strip() and not line.lstrip().startswith("#") for line in lines[:at]):
        return [f"{_MAGICS}.not_first()\n"]  # an error in any case: a clear one, nothing runs
    match = _CELL.match(lines[at])
    if match is None or not cells:
        return lines if at == first else lines[at:]
    body = "".join(lines[at + 1 :]).removesuffix("\n").removesuffix("\r")
    if not awaits:
        body = body.rstrip("\n")  # in a terminal blank lines end the cell
    call = "run_cell" if awaits else "run_cell_sync"
    return [f"{_await(awaits)}{_MAGICS}.{call}({match['line'].strip()!r}, {body!r})\n"]


def _late(lines: list[str]) -> int | None:
    """Where ``%%agent`` begins a line of a cell that begins otherwise, None if nowhere.

    Comments may stand before it; they are not part of the prompt.
    """
    for at, line in enumerate(lines):
        if line.startswith("%%agent") and _CELL.match(line):
            return None if _inside([_blank(one) for one in lines[:at]]) else at
    return None


def _await(awaits: bool) -> str:
    return "await " if awaits else ""


def _lines(lines: list[str], awaits: bool) -> Iterator[str]:
    done: list[str] = []  # what stands before, with magics blanked out: is a string open?
    i = 0
    while i < len(lines):
        line = lines[i]
        match = _LINE.match(line) if "%agent" in line else None
        if match is None or _inside(done):
            yield line
            done.append(_blank(line))
            i += 1
            continue
        text = match["line"].rstrip("\r\n")
        while text.endswith("\\") and i + 1 < len(lines):
            i += 1
            text = text[:-1] + lines[i].rstrip("\r\n")
        yield _line_call(match, text.strip(), awaits)
        done.append(match["indent"] + "pass\n")
        i += 1


def _line_call(match: re.Match[str], text: str, awaits: bool) -> str:
    """One line: awaited at the top level, synchronous inside a function or loop."""
    indent, target = match["indent"], match["target"]
    top = awaits and not indent
    call = "run_line" if top else "run_line_sync"
    assigned = f", assigned={target is not None}" if target else ""
    left = f"{target} = " if target else ""
    return f"{indent}{left}{_await(top)}{_MAGICS}.{call}({text!r}{assigned})\n"


def _blank(line: str) -> str:
    bare = line.lstrip()
    if bare.startswith(("%", "!", "?")) or bare.rstrip().endswith("?"):
        return line[: len(line) - len(bare)] + "pass\n"
    return line


def _inside(lines: list[str]) -> bool:
    """Whether a string or bracket is open after these lines."""
    source = iter(lines)
    try:
        for _token in tokenize.generate_tokens(lambda: next(source, "")):
            pass
    except tokenize.TokenError as error:
        return "EOF in multi-line" in str(error) or "unterminated triple" in str(error)
    except (SyntaxError, IndentationError):
        return False
    return False


class Rewriter:
    """The clean-up function that IPython holds.

    Args:
        shell: The IPython shell. While its ``autoawait`` is off, ``%%agent`` is left to the
            registered magic (D1).
        awaits: Whether the shell awaits a cell in a way that an interrupt reaches: kernels do;
            the terminal drops the coroutine, so the call is synchronous there.
    """

    # IPython asks "is this cell complete?" without such functions: else a lone first line
    # `%%agent` would count as a finished cell in the terminal.
    has_side_effects = True

    def __init__(self, shell: Any, awaits: Callable[[Any], bool]) -> None:
        self._shell = shell
        self._awaits = awaits

    def __call__(self, lines: list[str]) -> list[str]:
        """The lines to run."""
        auto = bool(getattr(self._shell, "autoawait", False))
        return rewrite(lines, awaits=auto and self._awaits(self._shell), cells=auto)
