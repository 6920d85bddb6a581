"""``export``: transcript and audit trail as Markdown, JSON, a notebook or a page.

Source: notebook side, commands (``export``); D14, X02, X06.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from notebook_agent.core.session import Run, Session
from notebook_agent.core.text import visible
from notebook_agent.errors import StoreError
from notebook_agent.notebook.arguments import UsageError
from notebook_agent.notebook.looking import there
from notebook_agent.notebook.place import place
from notebook_agent.notebook.report import Report

if TYPE_CHECKING:
    from notebook_agent.notebook.session_core import SessionCore

__all__ = ["SCHEMA", "export_session"]

SCHEMA: Final = 1
_PLAIN_NAME: Final = re.compile(r"\??|\w[\w .-]*(?::[\w.-]+)*")


def export_session(agent: SessionCore, path: str, *, redact: bool, session: str | None) -> Report:
    """Write a session; the path's ending names the form.

    Args:
        path: Ends in .md, .json, .ipynb or .html.
        redact: Lengths instead of texts; names, numbers and times stay.

    Returns:
        What the file contains.

    Raises:
        UsageError: Another ending, or the file cannot be written.
    """
    from notebook_agent.engine.store.jsonl import write_file  # noqa: PLC0415  # only when asked

    target = place(path, "%agent export talk.md")
    make = FORMS.get(target.suffix.lower())
    if make is None:
        stem = target.name.split(".")[0] or "talk"
        raise UsageError(
            f"export writes {', '.join(FORMS)}; {target.name!r} ends in none of them.\n"
            f"Type:  %agent export {stem}.md"
        )
    found = there(agent, session).session
    hide = _hidden if redact else _kept
    try:
        write_file(target, [make(found, hide).encode()], mode=0o644)  # made to be given away
    except StoreError as error:
        line = error.message.partition("\n")[0]
        raise UsageError(f"{line}\nType:  %agent export talk.md") from None
    turns = sum(len(run.turns) for run in found.runs)
    texts = "lengths instead of texts" if redact else "prompts, replies and tool calls in full"
    return Report(f"{target}: {len(found.runs)} runs, {turns} turns, {texts}, audit rows; no keys")


Hide = Callable[[str], str]


def _kept(text: str) -> str:
    return text


def _hidden(text: str) -> str:
    return f"[redacted, {len(text)} characters]" if text else text


def _rows(session: Session, hide: Hide) -> list[dict[str, Any]]:
    from notebook_agent.notebook.audit import run_rows  # noqa: PLC0415  # pandas-free, but only for exports

    rows = []
    for number, run in enumerate(session.runs):
        for row in run_rows(run, number):
            row = dict(row)
            for name in ("input", "output"):
                row[name] = hide(str(row.get(name) or ""))
            rows.append(row)
    return rows


def _data(session: Session, hide: Hide) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "session": session.name,
        "runs": [
            {
                "id": run.id,
                "status": run.status.value,
                "input": hide(run.input),
                "output": hide(run.output),
                "tool_calls": [
                    {
                        "turn": t.turn,
                        "name": c.name,
                        "arguments": hide(c.raw or json.dumps(c.input)),
                    }
                    for t in run.turns
                    for c in t.tool_calls
                ],
                "error": None if run.error is None else _error(run.error, hide),
            }
            for run in session.runs
        ],
        "audit": _rows(session, hide),
    }


def _error(error: Mapping[str, Any], hide: Hide) -> dict[str, Any]:
    return {
        k: hide(v) if k in ("message", "partial_text") and isinstance(v, str) else v
        for k, v in error.items()
    }


def _as_json(session: Session, hide: Hide) -> str:
    return json.dumps(_data(session, hide), ensure_ascii=False, indent=1, default=str) + "\n"


def _blocks(run: Run, hide: Hide) -> list[tuple[str, str]]:
    """A run as (who, text)."""
    out = [("You", hide(run.input))]
    for turn in run.turns:
        if turn.output:
            out.append((turn.model or "model", hide(turn.output)))
        out += [
            (f"tool {c.name}", hide(c.raw or json.dumps(c.input, ensure_ascii=False)))
            for c in turn.tool_calls
        ]
    if run.status.value != "completed":
        out.append(("run", run.status.value.replace("_", " ")))
    return out


def _table(session: Session, hide: Hide) -> tuple[list[str], list[list[str]]]:
    names = [
        "run",
        "turn",
        "model",
        "outcome",
        "stop_reason",
        "input_tokens",
        "output_tokens",
        "attempts",
        "duration_s",
    ]
    rows = [
        ["?" if row.get(n) is None else _shown(row[n]) for n in names]
        for row in _rows(session, hide)
    ]
    return names, rows


def _shown(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _as_markdown(session: Session, hide: Hide) -> str:
    lines = [f"# Session {_name(session.name)}", ""]
    for number, run in enumerate(session.runs):
        lines += [f"## Run {number}", ""]
        for who, text in _blocks(run, hide):
            lines += [f"**{_name(who)}**", "", visible(text), ""]
    names, rows = _table(session, hide)
    lines += ["## Audit", "", "| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(_name(c).replace("|", "\\|") for c in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _as_html(session: Session, hide: Hide) -> str:
    """Everything escaped: a page that runs nothing and fetches nothing."""

    def safe(text: str) -> str:
        return html.escape(visible(text))

    parts = [
        "<!doctype html>",
        '<meta charset="utf-8">',
        f"<title>{safe(session.name)}</title>",
        f"<h1>Session {safe(session.name)}</h1>",
    ]
    for number, run in enumerate(session.runs):
        parts.append(f"<h2>Run {number}</h2>")
        parts += [
            f"<h3>{safe(who)}</h3><pre>{safe(text)}</pre>" for who, text in _blocks(run, hide)
        ]
    names, rows = _table(session, hide)
    head = "".join(f"<th>{safe(n)}</th>" for n in names)
    body = "".join("<tr>" + "".join(f"<td>{safe(c)}</td>" for c in row) + "</tr>" for row in rows)
    parts.append(f"<h2>Audit</h2><table><tr>{head}</tr>{body}</table>")
    return "\n".join(parts) + "\n"


def _as_notebook(session: Session, hide: Hide) -> str:
    """Prompts as agent cells that can be run again, replies as Markdown in code fences.

    A reply is fenced so that opening the notebook renders nothing of it (D14).
    """
    cells: list[dict[str, Any]] = [_code("%load_ext notebook_agent")]
    for number, run in enumerate(session.runs):
        prompt, *rest = _blocks(run, hide)
        cells.append(_code(f"%%agent --raw\n{prompt[1]}"))
        said = "\n\n".join(f"{_name(who)}:\n\n{_fenced(visible(text))}" for who, text in rest)
        if said:
            cells.append(_markdown(f"Run {number}\n\n{said}"))
    book = {
        "cells": cells,
        "metadata": {"language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    for i, cell in enumerate(cells):
        cell["id"] = f"cell-{i}"
    return json.dumps(book, ensure_ascii=False, indent=1) + "\n"


def _name(text: str) -> str:
    """A name as Markdown: a model chooses the names of its calls, so it is code unless it is plain
    (D14, X01)."""
    line = " ".join(visible(text).split())
    if _PLAIN_NAME.fullmatch(line):
        return line
    fence = "`"
    while fence in line:
        fence += "`"
    return f"{fence} {line} {fence}"


def _fenced(text: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text}\n{fence}"


def _code(source: str) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "metadata": {},
        "execution_count": None,
        "outputs": [],
        "source": source,
    }


def _markdown(source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": source}


FORMS: Final[Mapping[str, Callable[[Session, Hide], str]]] = {
    ".md": _as_markdown,
    ".json": _as_json,
    ".ipynb": _as_notebook,
    ".html": _as_html,
}
