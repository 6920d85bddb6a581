"""``--format``: what a reply must be, and what is done with it.

Source: notebook side, commands (the table of options: ``-f, --format``).
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any, Final

from notebook_agent.core.result import RunResult
from notebook_agent.core.session import RunStatus
from notebook_agent.errors import ErrorKind, ProviderError

__all__ = ["INSTRUCTIONS", "FormatError", "code_of", "json_of", "with_format"]

# Said to the model as a transient: shown for this run, never stored.
INSTRUCTIONS: Final = {
    "text": "Answer in plain text without Markdown.",
    "json": "Answer with one JSON value and nothing else: no words around it, no code fence.",
    "code": "Answer with one fenced Python code block that could be the notebook's next cell.",
}

_FENCE: Final = re.compile(
    r"^(?P<fence>`{3,}|~{3,})[ \t]*(?P<lang>[\w+-]*)[^\n]*\n(?P<code>.*?)^(?P=fence)[`~]*[ \t]*$",
    re.DOTALL | re.MULTILINE,
)


class FormatError(ProviderError):
    """The reply is not what ``--format`` asked for; ``partial_text`` is the raw reply."""

    def __init__(self, message: str, raw: str) -> None:
        super().__init__(ErrorKind.DECODE, message)
        self.partial_text = raw


def json_of(text: str) -> Any:
    """The JSON value of a reply; one fence around the whole reply is taken off.

    Raises:
        FormatError: It is none.
    """
    bare = text.strip()
    match = _FENCE.fullmatch(bare)
    if match is not None:
        bare = match["code"].strip()
    try:
        return json.loads(bare)
    except ValueError as error:
        reason = "the reply is empty" if not bare else str(error)
        raise FormatError(
            f"The reply is not valid JSON: {reason}.\n"
            "The raw text is kept; see:  %agent show     or ask again with:  %%agent -f text",
            text,
        ) from None


def code_of(text: str) -> str | None:
    """The code that a reply proposes: its fenced blocks, joined; None when it has none.

    Blocks that name another language than Python are left out when there is a Python one.
    """
    blocks = [(m["lang"].lower(), m["code"].rstrip("\n")) for m in _FENCE.finditer(text)]
    python = [code for lang, code in blocks if lang in ("python", "py", "python3", "ipython", "")]
    chosen = python or [code for _, code in blocks]
    return "\n\n".join(chosen) if chosen else None


def with_format(result: RunResult, kind: str) -> RunResult:
    """The result with ``parsed`` set for ``json``; other formats and partial replies as they are.

    Raises:
        FormatError: A complete reply that had to be JSON is none.
    """
    if kind != "json" or result.status is not RunStatus.COMPLETED:
        return result
    try:
        return replace(result, parsed=json_of(result.text))
    except FormatError as error:
        error.result = result
        raise
