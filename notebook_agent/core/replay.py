"""Replay: a run's records fed to ``resolve`` again, and every action compared. No I/O.

Source: Turn FSM, "Determinism", "Relationship to other components" (B58, B59, B82).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

from notebook_agent.core import agent_events as ev
from notebook_agent.core import turn_fsm as fsm
from notebook_agent.core.run_state import RunState, apply, fold, status_of_action
from notebook_agent.core.session import RunEventRecord, RunStatus

__all__ = ["Mismatch", "ReplayReport", "replay"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """Where a log and the machine part ways: at which record, about what, and both sides.

    ``what`` is one of sequence, run, turn, state, action, end, status, event, projection, file.
    """

    sequence: int
    what: str
    expected: str
    actual: str
    run_id: str = ""

    def __str__(self) -> str:
        where = f"record {self.sequence}" + (f" of {self.run_id}" if self.run_id else "")
        return f"{where}: {self.what}: expected {self.expected}, found {self.actual}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """What a replay found (B59).

    Attributes:
        records: How many records were read.
        status: How the run ended by the replayed actions; None when it did not end.
        state: Where the machine stood after the last record.
        complete: Whether the log reaches the run's end. A log that a crash cut off is not
            complete and may still be right as far as it goes.
        mismatches: The first place where the log and the machine part ways; of several runs
            one each. Empty = the replay equals the record.
        run_id: The run, "" when there were several or none.
        cut: Whether the records come from a file whose end is missing.
    """

    records: int
    status: RunStatus | None
    state: fsm.TurnState | None
    complete: bool
    mismatches: tuple[Mismatch, ...] = ()
    run_id: str = ""
    cut: bool = False

    @property
    def ok(self) -> bool:
        """Whether every action and the status came out as recorded."""
        return not self.mismatches

    def to_json(self) -> dict[str, Any]:
        """JSON form, for ``replay --check --json``."""
        return {
            "ok": self.ok,
            "complete": self.complete,
            "cut": self.cut,
            "run_id": self.run_id,
            "records": self.records,
            "status": None if self.status is None else self.status.value,
            "state": None if self.state is None else self.state.value,
            "mismatches": [
                {f.name: getattr(m, f.name) for f in fields(Mismatch)} for m in self.mismatches
            ],
        }

    def __str__(self) -> str:
        if not self.ok:
            return "\n".join(["Replay differs from the record:", *map(str, self.mismatches)])
        end = "complete" if self.complete else "not ended"
        if self.status is not None:
            end = self.status.value
        stops = (
            "" if self.complete or self.state is None else f"; the log stops in {self.state.name}"
        )
        cut = "; the file was cut off here, and what follows is missing" if self.cut else ""
        return f"Replay equals the record: {self.records} records, {end}{stops}{cut}"


def replay(
    records: Iterable[RunEventRecord], *, projection: RunState | None = None
) -> ReplayReport:
    """Feed a run's recorded outcomes through ``resolve`` and compare (B59). No I/O.

    The machine starts in CHECKING_POLICY; each record's state, action and place in the
    sequence must be what the machine says; the final record's status and terminal event must
    be those of the last action.

    Args:
        records: One run's records in the order they were written.
        projection: The stored RunState, compared with the fold of the records when given.

    Returns:
        A report that names the first record that differs. After it nothing is compared.

    Example:
        >>> replay(()).complete
        False

    Source: Turn FSM, "Determinism" (B58, B59, B82).
    """
    log = list(records)
    machine = _Machine(log[0].run_id if log else "")
    found: Mismatch | None = None
    for expected_sequence, record in enumerate(log):
        found = machine.feed(expected_sequence, record)
        if found is not None:
            break
    if found is None and projection is not None:
        found = _compare_projection(log, projection)
    return ReplayReport(
        records=len(log),
        status=machine.status,
        state=machine.state if log else None,
        complete=machine.closed,
        mismatches=() if found is None else (found,),
        run_id=machine.run_id,
    )


class _Machine:
    """Walks a log: where the turn is, and how the run ended."""

    __slots__ = ("closed", "run_id", "state", "status", "turn")

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.state = fsm.TurnState.CHECKING_POLICY
        self.turn = 0
        self.status: RunStatus | None = None
        self.closed = False

    def feed(self, sequence: int, record: RunEventRecord) -> Mismatch | None:
        """Take one record; what is wrong with it, None when it is as it must be."""
        if record.sequence != sequence:
            return self.wrong(record.sequence, "sequence", sequence, record.sequence)
        if record.run_id != self.run_id:
            return self.wrong(sequence, "run", self.run_id, record.run_id)
        if self.closed:
            return self.wrong(sequence, "end", "nothing after the final record", _say(record))
        if record.outcome is None:
            return self.close(sequence, record)
        if self.status is not None:
            wanted = f"the final record, {self.status.value}"
            return self.wrong(sequence, "end", wanted, _say(record))
        if record.state is not self.state:
            return self.wrong(sequence, "state", self.state.name, record.state.name)
        # a turn's number moves only where a turn begins, and by one
        ahead = record.turn - self.turn
        if ahead and not (ahead == 1 and self.state is fsm.TurnState.CHECKING_POLICY and sequence):
            return self.wrong(sequence, "turn", self.turn, record.turn)
        action = fsm.resolve(self.state, record.outcome)
        if action != record.action:
            return self.wrong(sequence, "action", _action(action), _action(record.action))
        for event in record.events:
            if event.terminal:
                return self.wrong(sequence, "event", "no terminal event yet", _name(event))
        self.turn = record.turn
        if type(action) is fsm.Continue:
            self.state = action.state
        elif type(action) is fsm.CompactAndRetry:
            self.state = fsm.TurnState.BUILDING_CONTEXT  # B8a
        else:
            self.status = status_of_action(action)
        return None

    def close(self, sequence: int, record: RunEventRecord) -> Mismatch | None:
        """The final record: status and terminal event (B58, B70)."""
        if record.action is not None:
            return self.wrong(
                sequence, "action", "none in the final record", _action(record.action)
            )
        # a refused input has no transition at all (B79)
        refused = sequence == 0 and record.status is RunStatus.REJECTED
        wanted = RunStatus.REJECTED if refused else self.status
        if wanted is None or record.status is not wanted:
            goes_on = f"the run to go on in {self.state.name}"
            actual = "none" if record.status is None else record.status.value
            return self.wrong(
                sequence, "status", goes_on if wanted is None else wanted.value, actual
            )
        ends = [e for e in record.events if e.terminal]
        if len(ends) != 1 or record.events[-1] is not ends[0]:
            names = ", ".join(map(_name, record.events)) or "none"
            return self.wrong(sequence, "event", "one terminal event, the last", names)
        told = apply(RunState(), replace(record, sequence=0, status=None)).status
        if told is not wanted:
            return self.wrong(sequence, "event", f"one that says {wanted.value}", _name(ends[0]))
        self.status = wanted
        self.closed = True
        return None

    def wrong(self, sequence: int, what: str, expected: object, actual: object) -> Mismatch:
        return Mismatch(
            sequence=sequence,
            what=what,
            expected=str(expected),
            actual=str(actual),
            run_id=self.run_id,
        )


def _compare_projection(log: list[RunEventRecord], stored: RunState) -> Mismatch | None:
    folded = fold(log)
    for f in fields(RunState):
        mine, theirs = getattr(folded, f.name), getattr(stored, f.name)
        if mine != theirs:
            return Mismatch(
                sequence=folded.last_sequence,
                what="projection",
                expected=f"{f.name} = {mine}",
                actual=f"{f.name} = {theirs}",
                run_id=folded.run_id,
            )
    return None


def _name(event: ev.AgentEvent) -> str:
    return type(event).__name__


def _say(record: RunEventRecord) -> str:
    outcome = "the final record" if record.outcome is None else type(record.outcome).__name__
    return f"{outcome} in {record.state.name}"


def _action(action: fsm.TurnAction | None) -> str:
    match action:
        case None:
            return "no action"
        case fsm.Continue(state=state):
            return f"Continue({state.name})"
        case fsm.Fail(error=error):
            return f"Fail({type(error).__name__}: {error.message})"
        case _:
            return type(action).__name__
