"""The conversation: reset, undo, session, compact, resume.

Source: notebook side, commands (D21); LLM turn, "Compaction" (L97-L106); Turn FSM (B75, B78).
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from typing import Any, Final

from notebook_agent.core.compaction import CompactionPolicy
from notebook_agent.core.result import RunResult
from notebook_agent.errors import SessionBusy
from notebook_agent.notebook.arguments import CellOptions, UsageError, nearest
from notebook_agent.notebook.looking import there
from notebook_agent.notebook.prepare import Plan
from notebook_agent.notebook.report import Report
from notebook_agent.notebook.runs import Prepared, RunVerbs
from notebook_agent.notebook.session_map import kept_name
from notebook_agent.notebook.tables import shorten

__all__ = ["ConversationVerbs"]

_PERCENT: Final = ("threshold", "emergency", "target")
_PREVIEW_TEXT: Final = 44  # characters of a message in a preview: its row fits a notebook


class ConversationVerbs(RunVerbs):
    """Verbs that change what the next run starts from."""

    def reset(self, hard: bool = False, session: str | None = None) -> Report:  # an option's name
        """Clear the conversation; the audit trail stays, unless ``hard``."""
        there(self, session).reset(hard=hard)
        kept = "conversation and audit trail are gone" if hard else "the audit trail stays"
        return Report(f"the conversation is empty; {kept}")

    def undo(self, runs: int = 1, session: str | None = None) -> Report:
        """Drop the last runs from the conversation; log and trail stay."""
        gone = there(self, session).undo(runs)
        if not gone:
            return Report("there is nothing to undo")
        word = "run" if len(gone) == 1 else "runs"
        return Report(f"{len(gone)} {word} left the conversation; log and trail stay", data=gone)

    def session(self, action: str | None = None, name: str | None = None) -> Report:
        """List the sessions, name the current one, take one up, or delete one.

        Args:
            action: list, save, load or delete; None lists.
            name: The session's name or id.
        """
        if action in (None, "list"):
            return self._list_sessions()
        if not name:
            raise UsageError(f"session {action} needs a name.\nType:  %agent session {action} NAME")
        name = kept_name(name)
        if action == "save":
            if name != self.current and name in self._runtimes:
                raise UsageError(
                    f"session {name!r} is open in this kernel already; two would be one.\n"
                    f"Type:  %agent session save {shlex.quote(name + ' 2')}"
                )
            row = self.runtime().rename_session(name)
            self._runtimes[name] = self._runtimes.pop(self.current)
            self.current = name
            where = self.store().location
            note = "; it ends with this kernel" if where == "memory" else f" in {where}"
            return Report(f"session {row.name!r} is kept{note}")
        if action == "load":
            return self._load(name)
        return self._delete(name)

    def _list_sessions(self) -> Report:
        store = self.existing_store()
        rows = [] if store is None else store.list_sessions()
        mine = {r.session.id: n for n, r in self._runtimes.items()}
        table = tuple(
            (
                row.name,
                str(row.run_count),
                str(row.message_count),
                time.strftime("%Y-%m-%d %H:%M", time.gmtime(row.updated_at)),
                row.id,
                ("current" if mine[row.id] == self.current else "open") if row.id in mine else "",
            )
            for row in rows
        )
        if not table:
            return Report("no stored sessions", lines=(f"current: {self.current}, no run yet",))
        header = ("name", "runs", "messages", "changed (UTC)", "id", "")
        here = self._runtimes.get(self.current)
        new = here is None or all(row.id != here.session.id for row in rows)
        line = (f"current: {self.current}, no run yet",) if new else ()
        return Report("", header=header, rows=table, lines=line, data=rows)

    def _load(self, name: str) -> Report:
        here = self._runtimes.get(name)
        store = self.existing_store()
        stored = store is not None and store.find_session(name) is not None
        if here is not None and (here.session.runs or not stored):  # of this kernel: just go there
            self.current = name
            return self._loaded(here)
        runtime = here or self._make_runtime(name)  # one that has no run yet takes the stored one
        session = runtime.load_session(name)
        there = self._runtimes.get(session.name)
        if there is not None and there.active is not None:
            raise SessionBusy(session.name)  # its place is taken by the loaded one
        self._runtimes[session.name] = runtime
        self.current = session.name
        return self._loaded(runtime)

    def _loaded(self, runtime: Any) -> Report:
        session = runtime.session
        line = (
            f"session {session.name!r}: {len(session.runs)} runs, {len(session.history)} messages"
        )
        broken = runtime.status().resumable if runtime.active is None else ()
        hints = [f"A run was broken off. Go on with:  %agent resume {broken[0]}"] if broken else []
        alike = self._alike(session.name, session.id)
        if alike:
            hints.append(
                f"{alike} more stored under that name; load one by its id:  %agent session list"
            )
        return Report(line, lines=tuple(hints))

    def _alike(self, name: str, but: str) -> int:
        """How many other stored sessions have that name: every kernel begins a ``default``."""
        store = self.existing_store()
        rows = () if store is None else store.list_sessions()
        return sum(row.name == name and row.id != but for row in rows)

    def _delete(self, name: str) -> Report:
        from notebook_agent.engine.runtime.session_state import find  # noqa: PLC0415  # with the engine, at use

        store = self.store()
        row = find(store, name)
        alike = self._alike(row.name, row.id)
        rest = f"; {alike} more of that name stay" if alike else ""
        said = Report(f"session {row.name!r} is deleted: {row.id}, {row.run_count} runs{rest}")
        for key, runtime in list(self._runtimes.items()):
            if runtime.session.id == row.id:
                runtime.reset(hard=True)
                del self._runtimes[key]
                if self.current == key:
                    self.current = "default"
                return said
        store.delete_session(row.id)
        return said

    # ---- compaction --------------------------------------------------------------------------

    async def acompact(
        self,
        action: str | None = None,
        changes: Mapping[str, Any] | None = None,
        session: str | None = None,
    ) -> Report:
        """Compact now, preview a pass, or show and change the policy."""
        runtime = there(self, session)
        if action == "policy" or (action is None and changes):
            for name, value in (changes or {}).items():
                if name not in CompactionPolicy.__slots__:
                    close = nearest(name, CompactionPolicy.__slots__) or "threshold"
                    raise UsageError(
                        f"A compaction policy has no {name!r}; its fields:  %agent compact policy\n"
                        f"Type:  %agent compact policy {close}={value}"
                    )
            policy = runtime.set_compaction(**changes) if changes else runtime.compaction
            used = runtime.context_anatomy("").window
            pairs = tuple((f, _policy_cell(policy, f, used)) for f in type(policy).__slots__)
            return Report("compaction policy", pairs, data=policy)
        if changes:
            raise UsageError(
                f"compact {action} takes no changes.\nType:  %agent compact policy threshold=80"
            )
        if action == "now":
            return _pass_report("compacted", await runtime.acompact_now())
        return _preview_report(await runtime.acompact_preview())

    def compact(
        self,
        action: str | None = None,
        changes: Mapping[str, Any] | None = None,
        session: str | None = None,
    ) -> Report:
        """As :meth:`acompact`, waiting for it."""
        return self.block(self.acompact(action, changes, session))

    # ---- resume ------------------------------------------------------------------------------

    def prepare_resume(
        self, run: str | None = None, session: str | None = None, force: bool = False
    ) -> Prepared:
        """A run that was broken off, ready to go on (B75).

        Args:
            run: Its id; None = the last one that did not end.
            session: Whose; None = the current one.
            force: Although another process seems to work on it, or its tools are not here.
        """
        from notebook_agent.engine.runtime.resume import find_broken  # noqa: PLC0415  # with the engine, at use

        runtime = there(self, session)
        find_broken(runtime.state, run, force=force)  # refused before anything is shown
        options = CellOptions()
        name = session or self.current
        plan = Plan(text="", prompt="(resumed)", options=options, session=name)

        async def start() -> RunResult:
            result: RunResult = await runtime.aresume(run, force=force)
            return result

        return self.driven(start, runtime, plan)

    def resume(
        self, run: str | None = None, session: str | None = None, force: bool = False
    ) -> RunResult:
        """Go on with a run that was broken off, and wait for it."""
        return self.prepare_resume(run, session, force).blocking()


def _pass_report(said: str, result: Any) -> Report:
    """What a compaction pass did, before and after measured the same way (P07)."""
    head = said if result.applied else f"not compacted: {result.detail or result.status}"
    pairs = [
        ("tokens before", f"{result.tokens_before:,}"),
        ("tokens after", f"{result.tokens_after:,}"),
        ("strategy", result.strategy),
        ("messages removed", str(result.removed)),
    ]
    if result.applied and result.detail:
        pairs.append(("detail", result.detail))
    summary = result.summary
    lines = () if summary is None else ("", "summary:", summary.text_content())
    return Report(head, tuple(pairs), lines=lines, data=result)


def _policy_cell(policy: CompactionPolicy, field: str, used: int) -> str:
    """A field for people: percent said, and the window that the model really has."""
    value = getattr(policy, field)
    if field in _PERCENT and value:
        return f"{value} %"
    text = f"{value:,}" if type(value) is int else str(value)
    if field == "window" and value and value != used:
        return f"{text}, cut to the model's own {used:,}"
    return text


def _preview_report(preview: Any) -> Report:
    """What a pass would do, message by message; nothing was changed."""
    label = "est. " if preview.estimated else ""
    pairs = (
        (
            "a pass now",
            preview.status.replace("_", " ") + (f": {preview.detail}" if preview.detail else ""),
        ),
        ("tokens before", f"{preview.tokens_before:,}"),
        ("tokens after", f"{label}{preview.tokens_after:,}"),
        ("target", f"{preview.target:,} of {preview.window:,}"),
        ("strategy", preview.strategy),
    )
    rows = tuple(
        (
            str(r.place),
            r.role,
            r.fate,
            f"{r.tokens:,}",
            f"{r.tokens_after:,}",
            shorten(r.text, _PREVIEW_TEXT),
        )
        for r in preview.rows
    )
    header = ("", "role", "fate", "tokens", "then", "text") if rows else ()
    return Report("preview of a compaction; nothing was changed", pairs, header, rows, data=preview)
