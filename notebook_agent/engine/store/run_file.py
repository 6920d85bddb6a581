"""RunFile: what a run file holds, read back and checked line by line.

One JSON object a line: a ``header`` with the schema number, the ``history`` the first run
stands on, then for every run its ``run``, ``turn``, ``between``, ``message``, ``record``,
``execution``, ``event`` and ``state`` lines, ``after`` and an ``end``. Each record carries a
``sum`` over itself and the sum before it, so that an edited record is found by its sequence
number. A file that was cut off is read up to the cut.

Source: Turn FSM, "Determinism" (B58, B59).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from notebook_agent.core.agent_events import AgentEvent, event_from_json
from notebook_agent.core.log_view import conversation
from notebook_agent.core.messages import ImagePart, Message
from notebook_agent.core.replay import Mismatch
from notebook_agent.core.run_state import RunState
from notebook_agent.core.session import Run, RunEventRecord, Turn, UnservedTurn
from notebook_agent.engine.store.base import MessageRecord, ToolExecution
from notebook_agent.errors import StoreError

__all__ = [
    "FORMAT",
    "RUN_FILE_SCHEMA",
    "RunBundle",
    "RunFile",
    "chain",
    "conversation_before",
    "read_run_file",
]

FORMAT: Final = "notebook_agent.run"
RUN_FILE_SCHEMA: Final = 1

_EXECUTION_FIELDS: Final = tuple(f.name for f in fields(ToolExecution))


@dataclass(slots=True, kw_only=True)
class RunBundle:
    """One run of a file: its audit run with turns, and everything that hangs on it.

    ``before``: entries of the session's log since the run before that belong to no run of the
    file: undo, reset, a compaction by hand. ``broken``: a record could not be read; ``records``
    ends before it.
    """

    run: Run
    before: list[MessageRecord] = field(default_factory=list)
    messages: list[MessageRecord] = field(default_factory=list)
    records: list[RunEventRecord] = field(default_factory=list)
    executions: list[ToolExecution] = field(default_factory=list)
    events: list[AgentEvent] = field(default_factory=list)
    state: RunState | None = None
    last_sum: str = ""
    broken: bool = False


@dataclass(slots=True, kw_only=True)
class RunFile:
    """A run file as read.

    Attributes:
        history: The conversation the first run stands on.
        after: What was undone, reset or compacted after the last run.
        cut: The file ends before its ``end`` line: what is there is whole, the rest is missing.
        problems: Lines that are not what was written: an edited record by its sequence number.
    """

    path: Path
    schema: int
    app_version: str
    session_id: str
    session_name: str
    redacted: bool
    history: list[Message] = field(default_factory=list)
    after: list[MessageRecord] = field(default_factory=list)
    runs: list[RunBundle] = field(default_factory=list)
    cut: bool = True
    problems: list[Mismatch] = field(default_factory=list)


def conversation_before(file: RunFile, number: int) -> tuple[Message, ...]:
    """The conversation that a run of the file began with, by the log that is in the file."""
    begin = "the file's history"
    log = [
        MessageRecord(session_id=file.session_id, run_id=begin, kind="message", message=message)
        for message in file.history
    ]
    log.append(MessageRecord(session_id=file.session_id, run_id=begin, kind="commit"))
    for bundle in file.runs[:number]:
        log += [*bundle.before, *bundle.messages]
    return conversation([*log, *file.runs[number].before])


def chain(before: str, record: Mapping[str, Any]) -> str:
    """The sum of a record line: over its own JSON and the sum of the line before."""
    body = {k: v for k, v in record.items() if k not in ("sum", "type")}
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(f"{before}{text}".encode()).hexdigest()[:16]


def read_run_file(path: str | Path) -> RunFile:
    """Read a run file; a last line that was cut off is left out.

    Args:
        path: The file.

    Returns:
        Its content; ``problems`` names what was edited, ``cut`` says that the end is missing.

    Raises:
        StoreError: It cannot be read, is no run file, has a newer schema, or a line in its
            middle is damaged: the error names the line.

    Source: Turn FSM, "Determinism" (B59).
    """
    try:
        path = Path(path).expanduser()
        data = path.read_bytes()
    except (OSError, RuntimeError, ValueError) as problem:  # no such home, a NUL
        why = getattr(problem, "strerror", None) or str(problem).rstrip(".")
        raise StoreError(
            f"{path} cannot be read: {why}.\n"
            "Give the path of a run file, written by:  %%agent --record FILE"
        ) from problem
    lines = data.split(b"\n")
    whole = lines[-1] == b""  # the last line was finished
    if whole:
        lines.pop()
    file = _header(path, lines)
    digest = hashlib.sha256(lines[0] + b"\n")
    for number, text in enumerate(lines[1:], start=2):
        last = number == len(lines)
        line = _parse(path, number, text, tolerate=last)
        if line is None or (last and not whole and line.get("type") != "end"):
            break
        if line.get("type") == "end":
            _end(file, line, digest.hexdigest())
            break
        digest.update(text + b"\n")
        _take(file, number, line)
    return file


def _header(path: Path, lines: list[bytes]) -> RunFile:
    refused = StoreError(
        f"{path} is not a run file of notebook_agent.\n"
        "Run files are written by:  %%agent --record FILE"
    )
    line = _parse(path, 1, lines[0], tolerate=True) if lines else None
    if line is None or line.get("format") != FORMAT:
        raise refused
    schema, app = line.get("schema"), str(line.get("app_version", ""))
    if not isinstance(schema, int) or schema < 1:
        raise refused
    if schema > RUN_FILE_SCHEMA:
        raise StoreError(
            f"{path} was written by a newer notebook_agent ({app}): it has schema {schema}, this "
            f"version reads up to {RUN_FILE_SCHEMA}.\n"
            "Upgrade with:  pip install -U notebook-agent"
        )
    told = line.get("session")
    session = told if isinstance(told, dict) else {}
    return RunFile(
        path=path,
        schema=schema,
        app_version=app,
        session_id=str(session.get("id", "")),
        session_name=str(session.get("name", "")),
        redacted=bool(line.get("redacted", False)),
    )


def _parse(path: Path, number: int, text: bytes, *, tolerate: bool) -> dict[str, Any] | None:
    try:
        line = json.loads(text.decode("utf-8"))
        if isinstance(line, dict):
            return line
        problem = "it is not a JSON object"
    except (ValueError, RecursionError) as error:
        problem = str(error)
    if tolerate:
        return None
    raise StoreError(f"{path}, line {number} is damaged: {problem}.\nExport the run again.")


def _end(file: RunFile, line: Mapping[str, Any], digest: str) -> None:
    file.cut = False
    if line.get("sha256") != digest and not file.problems:
        last = file.runs[-1].records if file.runs else []
        file.problems.append(
            Mismatch(
                sequence=last[-1].sequence if last else 0,
                what="file",
                expected=f"sha256 {line.get('sha256')}",
                actual=f"sha256 {digest}",
            )
        )


def _take(file: RunFile, number: int, line: dict[str, Any]) -> None:
    try:
        _take_line(file, line)
    except (KeyError, ValueError, TypeError, AttributeError, IndexError) as problem:
        if line.get("type") == "record" and file.runs:
            bundle = file.runs[-1]
            bundle.broken = True
            expected = len(bundle.records)
            file.problems.append(
                Mismatch(
                    sequence=line["sequence"] if type(line.get("sequence")) is int else expected,
                    what="record",
                    expected="a record of this schema",
                    actual=f"{type(problem).__name__}: {problem}",
                    run_id=bundle.run.id,
                )
            )
            return
        raise StoreError(
            f"{file.path}, line {number} is damaged: {type(problem).__name__}: {problem}.\n"
            "Export the run again."
        ) from problem


def _take_line(file: RunFile, line: dict[str, Any]) -> None:
    match line["type"]:
        case "history":
            file.history.append(Message.from_json(line["message"]))
        case "run":
            file.runs.append(RunBundle(run=Run.from_json(line)))
        case "turn":
            bundle = file.runs[-1]
            if line.get("outcome") is None:
                bundle.run.turns.append(Turn.from_json(line["turn"]))
            else:
                bundle.run.unserved.append(UnservedTurn.from_json(line))
        case "between":
            file.runs[-1].before.append(_message(file.session_id, line))
        case "after":
            file.after.append(_message(file.session_id, line))
        case "message":
            file.runs[-1].messages.append(_message(file.session_id, line))
        case "record":
            _record(file, file.runs[-1], line)
        case "execution":
            known = {k: line[k] for k in _EXECUTION_FIELDS if k in line}
            known["images"] = tuple(ImagePart(**one) for one in known.get("images", ()))
            file.runs[-1].executions.append(ToolExecution(**known))
        case "event":
            file.runs[-1].events.append(event_from_json(line["event"]))
        case "state":
            file.runs[-1].state = RunState.from_json(line)
        case _:
            return  # a later version of schema 1 may add lines; what they say is extra


def _message(session_id: str, line: Mapping[str, Any]) -> MessageRecord:
    message = line.get("message")
    return MessageRecord(
        session_id=session_id,
        run_id=line["run_id"],
        kind=line["kind"],
        message=None if message is None else Message.from_json(message),
        meta=line.get("meta", {}),
        created_at=line.get("created_at", 0.0),
        seq=line.get("seq", 0),
    )


def _record(file: RunFile, bundle: RunBundle, line: dict[str, Any]) -> None:
    if bundle.broken:
        return  # what follows a hole cannot be replayed
    expected, actual = line.get("sum"), chain(bundle.last_sum, line)
    # the chain goes on from what was written, so that one edit is one problem
    bundle.last_sum = str(expected)
    record = RunEventRecord.from_json(line)
    bundle.records.append(record)
    if expected != actual:
        file.problems.append(
            Mismatch(
                sequence=record.sequence,
                what="record",
                expected=f"the sum {expected} that was written with it",
                actual=f"{actual}: the record was changed",
                run_id=bundle.run.id,
            )
        )
