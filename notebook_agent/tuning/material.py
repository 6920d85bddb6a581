"""Material: the conversation that a lab replays, read from wherever it is kept.

What is wanted is the conversation as it was said. A store's log and a run file have it; a Session
object has the working view only, which an earlier compaction may have shortened already.

Source: tune by experiment, compaction lab (a recorded run or session).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from notebook_agent.core.log_view import conversation, paired
from notebook_agent.core.messages import Message, Role, TextPart, ToolCallPart, ToolResultPart
from notebook_agent.core.sendable import sendable
from notebook_agent.core.session import Run, Session, Turn
from notebook_agent.core.shorten import PRUNED
from notebook_agent.core.trim import is_summary
from notebook_agent.engine.store.base import MessageRecord
from notebook_agent.engine.store.run_file import RunFile, read_run_file
from notebook_agent.errors import ConfigError

__all__ = ["Material", "material"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """A conversation to replay.

    Attributes:
        messages: As it was said, oldest first; every message has an id of its own.
        answer: The reply that the recorded model gave last, None when a question is open; it is
            not in ``messages``.
        reserved: Tokens of system prompt, tools and transients as they were recorded.
        window: The window that the record knows of, in tokens.
        runs: The audit trail, for charts.
        name: What it is called in words.
    """

    messages: tuple[Message, ...]
    answer: str | None = None
    reserved: int | None = None
    window: int | None = None
    runs: tuple[Run, ...] = ()
    name: str = ""


def material(source: Any) -> Material:
    """Read a conversation.

    Args:
        source: A Session, an AgentRuntime, ``(store, session id or name)``, a run file (path or
            RunFile), or messages.

    Raises:
        ConfigError: It is none of these, or holds no messages.
        StoreError: The file or store cannot be read.
    """
    match source:
        case Material():
            return source
        case Session():
            found = _made(source.history, source.runs, f"session {source.name!r}")
        case str() | Path():
            found = _of_file(read_run_file(source))
        case RunFile():
            found = _of_file(source)
        case (store, str() as which) if hasattr(store, "list_messages"):
            found = _of_store(store, which)
        case _ if hasattr(source, "store") and hasattr(source, "session"):
            session = source.session
            if source.store.get_session(session.id) is None:  # no run yet
                found = _made(session.history, session.runs, f"session {session.name!r}")
            else:
                found = _of_store(source.store, session.id)
        case _ if isinstance(source, Iterable):
            messages = list(source)
            if not all(isinstance(one, Message) for one in messages):
                raise _refused(source)
            found = _made(messages, (), f"{len(messages)} messages")
        case _:
            raise _refused(source)
    if not found.messages:
        raise ConfigError(f"There is nothing to replay: {found.name} holds no messages.")
    return found


def _refused(source: Any) -> ConfigError:
    return ConfigError(
        f"{type(source).__name__} is nothing that can be replayed.\n"
        "Give a session, a runtime, (store, session name), a run file's path, or messages.",
        field="source",
    )


def _of_file(file: RunFile) -> Material:
    log = [record for bundle in file.runs for record in (*bundle.before, *bundle.messages)]
    messages = [*file.history, *original(log)]
    return _made(messages, [b.run for b in file.runs], f"run file {file.path.name}")


def _of_store(store: Any, which: str) -> Material:
    row = store.get_session(which) or store.find_session(which)
    if row is None:
        raise ConfigError(f"There is no session {which!r} in {store.location}.", field="source")
    log = store.list_messages(row.id)
    return _made(original(log), store.list_runs(row.id), f"session {row.name!r}")


def original(log: Sequence[MessageRecord]) -> list[Message]:
    """The messages of a log as they were said: no summary, no shortened copy, no undone run."""
    gone: set[str] = set()
    for record in log:
        if record.kind == "undo":
            gone.update(map(str, record.meta.get("run_ids", ())))
    begin = max((at for at, r in enumerate(log) if r.kind == "reset"), default=-1) + 1
    said: list[Message] = []
    block: list[Message] = []  # messages since the last entry of another kind
    for record in log[begin:]:
        if record.kind == "message" and record.message is not None:
            if record.run_id not in gone or not record.run_id:
                block.append(record.message)
            continue
        if record.kind == "compaction":
            block = [m for m in block if not _is_copy(m, (*said, *block))]
        said += block
        block = []
    said += block
    clean = (m for m in map(sendable, said) if m is not None)
    return list(paired(clean)) or list(conversation(log))


def _is_copy(message: Message, before: Sequence[Message]) -> bool:
    """Whether a message is a shortened version of another one of the log."""
    return any(
        other is not message
        and other.role is message.role
        and len(other.parts) == len(message.parts)
        and all(_cut_of(a, b) for a, b in zip(message.parts, other.parts, strict=True))
        and message.parts != other.parts
        for other in before
    )


_MARK: Final = re.compile(r"\[\.\.\. [\d,]+ of [\d,]+ characters left out here \.\.\.\]")


def _cut_of(part: Any, whole: Any) -> bool:
    """Whether a part is the same, or carries the mark of having been cut or blanked."""
    match part, whole:
        case TextPart(), TextPart():
            return part.text == whole.text or _marked(part.text, whole.text)
        case ToolResultPart(), ToolResultPart():
            return part.call_id == whole.call_id and (
                part.output in (whole.output, PRUNED) or _marked(part.output, whole.output)
            )
        case ToolCallPart(), ToolCallPart():
            return part.id == whole.id
        case _:
            return type(part) is type(whole)


def _marked(text: str, whole: str) -> bool:
    return _MARK.search(text) is not None and text[:8] == whole[:8] and len(text) < len(whole)


def _made(messages: Sequence[Message], runs: Sequence[Run], name: str) -> Material:
    own: list[Message] = []
    seen: set[str] = set()
    for place, message in enumerate(messages):
        if not message.id or message.id in seen:
            # an earlier summary keeps its mark: it is told by its first line too
            message = message.with_id(f"said_{place}")
        seen.add(message.id)
        own.append(replace(message, provider_state=None) if message.provider_state else message)
    answer = None
    if own and own[-1].role is Role.ASSISTANT and not own[-1].tool_calls:
        answer = own.pop().text_content()
    turns = [turn for run in runs for turn in run.turns]
    ref = next((turn.context_ref for turn in reversed(turns) if turn.context_ref), None)
    return Material(
        messages=tuple(own),
        answer=answer,
        reserved=_reserved(turns),
        window=None if ref is None else ref.window,
        runs=tuple(runs),
        name=name + (" (compacted before)" if any(is_summary(m) for m in own) else ""),
    )


def _reserved(turns: Sequence[Turn]) -> int | None:
    """Tokens beside the conversation, as the newest turn that tells counted them."""
    for turn in reversed(turns):
        if turn.context_ref is not None and turn.context_ref.parts:
            parts = turn.context_ref.parts
            return sum(parts.get(name, 0) for name in ("system", "tools", "transients"))
    return None
