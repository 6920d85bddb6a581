"""Run files: runs out of a store as JSON lines, back into one, and checked without one.

Source: Turn FSM, "Determinism" (B58, B59). Case X06.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from notebook_agent import __version__
from notebook_agent.core.agent_events import event_to_json
from notebook_agent.core.log_view import conversation
from notebook_agent.core.messages import Message
from notebook_agent.core.replay import Mismatch, ReplayReport, replay
from notebook_agent.core.run_state import fold
from notebook_agent.core.session import Run, RunEventRecord
from notebook_agent.engine.store.base import MessageRecord, SessionRow, Store
from notebook_agent.engine.store.names import safe_file_stem
from notebook_agent.engine.store.redact import hide, redact_line
from notebook_agent.engine.store.run_file import (
    FORMAT,
    RUN_FILE_SCHEMA,
    RunBundle,
    RunFile,
    chain,
    read_run_file,
)
from notebook_agent.errors import StoreError

__all__ = ["check_file", "export_runs", "import_runs", "run_file_path", "write_file"]

SUFFIX: Final = ".jsonl"


def run_file_path(folder: str | Path, name: str, *, suffix: str = SUFFIX) -> Path:
    """Where a file for this session name or id goes: inside ``folder``, whatever the name (X06)."""
    return Path(folder).expanduser() / f"{safe_file_stem(name)}{suffix}"


def export_runs(
    store: Store,
    session_id: str,
    path: str | Path,
    *,
    run_ids: Sequence[str] | None = None,
    redact: bool | Callable[[str], str] = False,
    exported_at: float | None = None,
) -> Path:
    """Write runs of a session to a run file.

    Args:
        store: Where they are.
        session_id: The session.
        path: The file, replaced in one step; for a folder the name comes from the session's.
        run_ids: Which runs, in the order of the session; None = all.
        redact: True leaves lengths, names, numbers and times and takes the words out; a
            function gives what replaces each text.
        exported_at: Seconds since the epoch, None = now.

    Returns:
        The file's path.

    Raises:
        StoreError: No such session or run, or the file cannot be written.
    """
    runs = store.list_runs(session_id)
    row = store.get_session(session_id)
    assert row is not None  # list_runs has refused an unknown one
    if run_ids is not None:
        unknown = set(run_ids) - {run.id for run in runs}
        if unknown:
            raise StoreError(
                f"Session {row.name!r} has no run {', '.join(sorted(unknown))}.\n"
                "See them with:  %agent audit"
            )
        runs = [run for run in runs if run.id in set(run_ids)]
    target = Path(path).expanduser()
    if target.is_dir():
        target = run_file_path(target, row.name)
    at = time.time() if exported_at is None else exported_at
    lines = _lines(store, row, runs, at)
    if redact:
        lines = _redacted(lines, hide if redact is True else redact)
    write_file(target, _sealed(lines))
    return target


def import_runs(store: Store, path: str | Path, *, session_id: str | None = None) -> list[str]:
    """Take the runs of a file into a store, each in one transaction.

    Args:
        store: Where to.
        path: A run file.
        session_id: The session that gets them; None = the one of the file. It is created when
            it is not there, and then begins with the file's history.

    Returns:
        Ids of the runs.

    Raises:
        StoreError: The file cannot be read, was changed, or a run of it is in the store already.
    """
    file = read_run_file(path)
    if file.problems:
        raise StoreError(f"{file.path} was changed after it was written: {file.problems[0]}")
    for bundle in file.runs:
        if store.get_run(bundle.run.id) is not None:
            raise StoreError(f"Run {bundle.run.id!r} of {file.path} is in the store already.")
    key = session_id or file.session_id
    new = store.get_session(key) is None
    if new:
        _create_session(store, key, file)
    for bundle in file.runs:
        if new:  # in a session that was there they would undo or reset what is its own
            store.append_messages([replace(entry, session_id=key) for entry in bundle.before])
        store.import_run(
            key,
            bundle.run,
            records=bundle.records,
            messages=bundle.messages,
            executions=[replace(x, session_id=key) for x in bundle.executions],
            events=bundle.events,
        )
    if new:
        store.append_messages([replace(entry, session_id=key) for entry in file.after])
    return [bundle.run.id for bundle in file.runs]


def check_file(path: str | Path) -> ReplayReport:
    """Replay every run of a file against its records; no store, no provider (B59).

    Args:
        path: A run file.

    Returns:
        A report for the file: ``ok`` when every action, status, projection and line is as
        recorded; a file that was cut off is not ``complete``.

    Raises:
        StoreError: It is no run file, is newer, or is damaged in its middle.

    Source: Turn FSM, "Determinism" (B59).
    """
    file = read_run_file(path)
    try:
        return _report(file)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise StoreError(
            f"{file.path} is damaged: a value in it is of another type than was written "
            f"({type(error).__name__}: {error}).\nExport the run again."
        ) from error


def _report(file: RunFile) -> ReplayReport:
    reports = [_check(bundle) for bundle in file.runs]
    found = [m for report in reports for m in report.mismatches]
    known = {(m.run_id, m.sequence) for m in found}
    found += [m for m in file.problems if (m.run_id, m.sequence) not in known]
    single = reports[0] if len(reports) == 1 else None
    return ReplayReport(
        records=sum(report.records for report in reports),
        status=None if single is None else single.status,
        state=None if single is None else single.state,
        complete=not file.cut and bool(reports) and all(r.complete for r in reports),
        mismatches=tuple(found),
        run_id="" if single is None else single.run_id,
        cut=file.cut,
    )


def _check(bundle: RunBundle) -> ReplayReport:
    report = replay(bundle.records, projection=None if bundle.broken else bundle.state)
    if report.ok and report.complete and report.status is not bundle.run.status:
        assert report.status is not None
        wrong = Mismatch(
            sequence=report.records - 1,
            what="status",
            expected=report.status.value,
            actual=f"{bundle.run.status.value} in the run's own line",
            run_id=bundle.run.id,
        )
        return replace(report, mismatches=(wrong,))
    return report


def _create_session(store: Store, key: str, file: RunFile) -> None:
    first = file.runs[0].run if file.runs else None
    at = 0.0 if first is None else first.start
    name = file.session_name or key
    store.create_session(SessionRow(id=key, name=name, created_at=at, updated_at=at))
    if file.history:
        before = f"before_{'' if first is None else first.id}"
        entries = [
            MessageRecord(session_id=key, run_id=before, kind="message", message=m, created_at=at)
            for m in file.history
        ]
        commit = MessageRecord(session_id=key, run_id=before, kind="commit", created_at=at)
        store.append_messages([*entries, commit])


def _lines(
    store: Store, row: SessionRow, runs: Sequence[Run], at: float
) -> Iterator[dict[str, Any]]:
    log = store.list_messages(row.id)
    yield {
        "type": "header",
        "format": FORMAT,
        "schema": RUN_FILE_SCHEMA,
        "app_version": __version__,
        "exported_at": at,
        "session": {"id": row.id, "name": row.name},
        "redacted": False,
        "runs": [run.id for run in runs],
    }
    if runs:
        for message in _history(log, runs[0]):
            yield {"type": "history", "message": message.to_json()}
    between, after = _between(log, [run.id for run in runs])
    for run in runs:
        yield {"type": "run", **run.to_json()}
        for entry in between.get(run.id, ()):
            yield {**_entry(entry), "type": "between"}
        for turn in run.turns:
            yield {"type": "turn", "turn": turn.to_json()}
        for unserved in run.unserved:
            yield {"type": "turn", **unserved.to_json()}
        for entry in log:
            if entry.run_id == run.id:
                yield _entry(entry)
        records = store.records(run.id)
        for record in records:
            yield {"type": "record", **record.to_json()}
        for execution in store.tool_executions(run.id):
            line = {"type": "execution", **asdict(execution)}
            yield line if execution.images else {k: v for k, v in line.items() if k != "images"}
        told = {event for record in records for event in map(_key, record.events)}
        for event in store.events(run.id):
            if _key(event) not in told:
                yield {"type": "event", "event": event_to_json(event)}
        yield {"type": "state", **store.state(run.id).to_json()}
    for entry in after:
        yield {**_entry(entry), "type": "after"}


def _key(event: Any) -> str:
    return json.dumps(event_to_json(event), sort_keys=True)


def _entry(entry: MessageRecord) -> dict[str, Any]:
    return {
        "type": "message",
        "run_id": entry.run_id,
        "kind": entry.kind,
        "seq": entry.seq,
        "created_at": entry.created_at,
        "message": None if entry.message is None else entry.message.to_json(),
        "meta": dict(entry.meta),
    }


def _between(
    log: Sequence[MessageRecord], run_ids: Sequence[str]
) -> tuple[dict[str, list[MessageRecord]], list[MessageRecord]]:
    """Run -> what the log has before it, since the run before, of no run of the file: undo, reset,
    a compaction by hand, runs that are left out. The conversation rests on it. And what comes
    after them all."""
    found: dict[str, list[MessageRecord]] = {}
    waiting: list[MessageRecord] = []
    begun: set[str] = set()
    for entry in log:
        if entry.run_id not in run_ids:
            waiting += [entry] if begun else []  # before the first run it is in the history
        elif entry.run_id not in begun:
            begun.add(entry.run_id)
            found[entry.run_id], waiting = waiting, []
    return found, waiting


def _history(log: Sequence[MessageRecord], run: Run) -> tuple[Message, ...]:
    """The conversation before the run: the log up to its first entry."""
    for position, entry in enumerate(log):
        if entry.run_id == run.id:
            return conversation(log[:position])
    return conversation(e for e in log if e.created_at <= run.start)  # it has written none


def _redacted(
    lines: Iterable[dict[str, Any]], put: Callable[[str], str]
) -> Iterator[dict[str, Any]]:
    records: list[RunEventRecord] = []
    for line in lines:
        edited = redact_line(line, hide=put)
        if line["type"] == "run":
            records = []
        elif line["type"] == "record":
            records.append(RunEventRecord.from_json(edited))
        elif line["type"] == "state":  # its last error is a word too: fold what is left
            edited = {"type": "state", **fold(records).to_json()}
        yield edited


def _sealed(lines: Iterable[dict[str, Any]]) -> Iterator[bytes]:
    """The lines as bytes, records chained, the end line last."""
    digest = hashlib.sha256()
    before, count = "", 0
    for line in lines:
        if line["type"] == "run":
            before = ""
        elif line["type"] == "record":
            before = chain(before, line)
            line = {**line, "sum": before}
        data = json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        digest.update(data)
        count += 1
        yield data
    end = {"type": "end", "lines": count, "sha256": digest.hexdigest()}
    yield json.dumps(end).encode() + b"\n"


def write_file(path: Path, chunks: Iterable[bytes], *, mode: int = 0o600) -> None:
    """Write a file whole or not at all, over what was there.

    A link at ``path`` is replaced, never followed (X06).

    Raises:
        StoreError: It cannot be written; what was there is untouched.
    """
    part: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".run-", suffix=".part")
        part = Path(name)
        with os.fdopen(handle, "wb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        part.chmod(mode)
        part.replace(path)
    except OSError as problem:
        raise StoreError(
            f"{path} could not be written: {problem.strerror or problem}; nothing was saved.\n"
            "Name a place that can be written, with space left."
        ) from problem
    finally:
        if part is not None:
            with contextlib.suppress(OSError):
                part.unlink()
