"""The working history, derived from the append-only log. Pure: the log is never changed.

Source: LLM turn, "The turn's paper trail" (L95, L96); Turn FSM, "BuildingContext",
"Persisting" (B25, B32). Case K06.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from notebook_agent.core.messages import Message, MessagePart, ToolCallPart, ToolResultPart
from notebook_agent.core.sendable import sendable

__all__ = ["LOG_KINDS", "LogEntry", "conversation", "paired"]

# What an entry of the log can be; the store's MessageRecord says what each means.
LOG_KINDS: Final = ("message", "commit", "compaction", "summary", "undo", "reset")


class LogEntry(Protocol):
    """An entry as this module reads it: the store's MessageRecord."""

    @property
    def kind(self) -> str: ...
    @property
    def run_id(self) -> str: ...
    @property
    def message(self) -> Message | None: ...
    @property
    def meta(self) -> Mapping[str, Any]: ...


def conversation(log: Iterable[LogEntry]) -> tuple[Message, ...]:
    """The messages that the next request starts from, oldest first.

    Messages of a run count once the run has its ``commit`` marker, or once a compaction kept
    them (L96). The latest valid compaction replaces everything before it by its summary, when
    it has one, and the messages it kept. An ``undo`` takes runs out with the compactions they
    made, so that the view is again what it was before them. A compaction whose summary is not
    in the log, or without a list of kept ids, changes nothing (B25).

    Args:
        log: Entries in the order of their ``seq``.

    Returns:
        A legal conversation: every result follows its call, every call has its result, no
        assistant message is blank (K06).

    Source: Turn FSM, "BuildingContext" (B25).
    """
    entries = _without_undone(list(log))
    by_id = {e.message.id: e.message for e in entries if e.message is not None and e.message.id}
    view: list[Message] = []
    waiting: dict[str, list[Message]] = {}  # run -> messages that nothing has committed yet
    for position, entry in enumerate(entries):
        match entry.kind:
            case "message" if entry.message is not None:
                waiting.setdefault(entry.run_id, []).append(entry.message)
            case "commit":
                view += waiting.pop(entry.run_id, ())
            case "reset":
                view = []
            case "compaction":
                compacted = _compacted(entry, entries[position + 1 : position + 2], by_id)
                if compacted is not None:
                    view = compacted
                    _settle(waiting, entry.run_id, compacted)
            case _:  # summary belongs to its marker; undo is done already
                continue
    return paired(m for m in map(sendable, view) if m is not None)


def _without_undone(entries: list[LogEntry]) -> list[LogEntry]:
    """The log without what its ``undo`` markers took back: entries before each marker."""
    undone: set[str] = set()
    kept: list[LogEntry] = []
    for entry in reversed(entries):
        if entry.kind == "undo":
            given = entry.meta.get("run_ids", ())
            undone.update(map(str, given if isinstance(given, (list, tuple)) else ()))
        elif not entry.run_id or entry.run_id not in undone:
            kept.append(entry)
    kept.reverse()
    return kept


def _compacted(
    marker: LogEntry, after: Sequence[LogEntry], by_id: Mapping[str, Message]
) -> list[Message] | None:
    """The view that a marker makes, None when the pair is not valid."""
    # Ruling: B25, the marker lists what stays; truncate has no summary
    ids = marker.meta.get("kept_ids")
    if not isinstance(ids, (list, tuple)):
        return None
    summary = after[0].message if after and after[0].kind == "summary" else None
    wanted = marker.meta.get("summary_id")
    if wanted is not None and (summary is None or summary.id != wanted):
        return None
    head = [] if summary is None else [summary]
    return head + [by_id[key] for key in ids if key in by_id]


def _settle(waiting: dict[str, list[Message]], run_id: str, kept: Sequence[Message]) -> None:
    """A compaction is a commit point for its own run: what it left out is in the summary."""
    waiting.pop(run_id, None)
    ids = {m.id for m in kept}
    for other, messages in waiting.items():
        waiting[other] = [m for m in messages if m.id not in ids]


def paired(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages without results that have no call before them and calls without a result.

    A result belongs to the latest call of its id before it that has none yet (L104); a message
    that is left with no part goes too.

    Example:
        >>> from notebook_agent.core.messages import Role
        >>> lonely = Message(Role.ASSISTANT, (ToolCallPart("c1", "f", {}),))
        >>> paired([Message.user("hi"), lonely]) == (Message.user("hi"),)
        True
    """
    given = list(messages)
    calls: dict[str, list[tuple[int, int]]] = {}  # id -> open calls: (message, part)
    good: set[tuple[int, int]] = set()
    touched = False
    for at, message in enumerate(given):
        for n, part in enumerate(message.parts):
            if isinstance(part, ToolCallPart):
                calls.setdefault(part.id, []).append((at, n))
                touched = True
            elif isinstance(part, ToolResultPart):
                touched = True
                if calls.get(part.call_id):
                    good |= {calls[part.call_id].pop(), (at, n)}
    if not touched:
        return tuple(given)
    out: list[Message] = []
    for at, message in enumerate(given):
        parts = tuple(
            part for n, part in enumerate(message.parts) if not _tool(part) or (at, n) in good
        )
        if len(parts) == len(message.parts):
            out.append(message)
        else:
            rest = sendable(replace(message, parts=parts, provider_state=None))
            if rest is not None:
                out.append(rest)
    return tuple(out)


def _tool(part: MessagePart) -> bool:
    return isinstance(part, (ToolCallPart, ToolResultPart))
