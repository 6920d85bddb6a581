"""Tab completion after ``%agent`` and ``%%agent``: verbs, options, models, sessions, names.

Source: notebook side, commands (section 3).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from notebook_agent.notebook.agent_session import AgentSession
from notebook_agent.notebook.arguments import CELL_OPTIONS, complete_options
from notebook_agent.notebook.verbs.table import VERBS

__all__ = ["Completer"]


class Completer:
    """IPython's completer hook for our two magics; never raises, never asks an endpoint."""

    def __init__(self, agent: AgentSession) -> None:
        self._agent = agent

    def __call__(self, _shell: Any, event: Any) -> list[str]:
        """Completions of the word under the cursor."""
        line = str(event.line)
        cell = line.startswith("%%")
        before = line[: len(line) - len(event.symbol)] if line.endswith(event.symbol) else line
        return self.complete(before.split()[1:], str(event.symbol), cell=cell)

    def complete(self, words: list[str], text: str, *, cell: bool) -> list[str]:
        """Completions of ``text`` after ``words``."""
        if cell:
            return complete_options(words, text, CELL_OPTIONS, self.names)
        if not words:
            return [v for v in VERBS if v.startswith(text)]
        verb = VERBS.get(words[0])
        return [] if verb is None else complete_options(words[1:], text, verb.options, self.names)

    def names(self, source: str) -> Iterable[str]:
        """The words of a source."""
        agent = self._agent
        match source:
            case "models":
                return [*agent.models_book.known(), *(f"{p}:" for p in _providers())]
            case "sessions":
                return agent.sessions
            case "stored":
                store = agent.existing_store()
                return (
                    agent.sessions
                    if store is None
                    else sorted({r.name for r in store.list_sessions()})
                )
            case "names":
                return [n for n in agent.namespace if not n.startswith("_")]
            case "functions":
                return [
                    n for n, v in agent.namespace.items() if callable(v) and not n.startswith("_")
                ]
            case "runs":
                run = agent.current in agent.sessions and agent.last_run()
                return [run.id] if run else []
            case "verbs":
                return list(VERBS)
            case "providers":
                return _providers()
            case "files":
                return [p.name for p in Path().glob("*.jsonl")]
            case _:
                return []


def _providers() -> tuple[str, ...]:
    from notebook_agent.providers import registry  # noqa: PLC0415  # reads entry points: not at load

    return registry.providers()
