"""What a kill left behind, made into a run that can go on.

The saved state is executed again, because its snapshot was written before its work (Ruling:
B75). Loop-detector history and the compaction breaker of the broken life are not restored
(B77).

Source: Turn FSM, "Persisting" (B72-B77); LLM turn (L92).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from notebook_agent.core.messages import Message
from notebook_agent.core.policy import RuntimePolicy
from notebook_agent.core.request import TurnMode
from notebook_agent.core.run_frame import RunFrame
from notebook_agent.core.session import Run, RunEventRecord
from notebook_agent.core.turn_fsm import BreakLoop, CompactAndRetry, Continue, Fail, TurnState
from notebook_agent.engine.runtime.gate import GATE
from notebook_agent.engine.runtime.owner import busy_elsewhere, living_elsewhere, owner_of
from notebook_agent.engine.runtime.run_options import RunOptions
from notebook_agent.engine.runtime.session_state import SessionState
from notebook_agent.engine.store.base import MessageRecord, Snapshot, Store, ToolExecution
from notebook_agent.engine.structured import OutputSchema
from notebook_agent.errors import ConfigError, SessionBusy

__all__ = ["Broken", "broken_runs", "find_broken"]


@dataclass(slots=True, kw_only=True)
class Broken:
    """A run that did not end.

    Attributes:
        begin: Nothing of it was recorded yet: it starts from its input.
        executed: Its tool executions, by call id, of the turn it stood in.
        order: Order number for its next event.
        breaker: The breaker as it stood, None when no snapshot tells.
    """

    run: Run
    frame: RunFrame
    begin: bool = False
    executed: Mapping[str, ToolExecution] = field(default_factory=dict)
    order: int = 0
    breaker: Mapping[str, Any] | None = None

    def options(self, *, primary: str, known_tools: Collection[str]) -> RunOptions:
        """The settings the run was started with, as far as they are recorded.

        Request parameters are recorded by name only (X05): the runtime's own are used.

        Args:
            primary: The runtime's model.
            known_tools: Names of its tools; one that is gone is answered as not available.
        """
        config = self.run.config
        policy, mode, tools = config.get("policy"), config.get("mode"), config.get("tools")
        model = config.get("model") or primary
        return RunOptions(
            policy=None if policy is None else RuntimePolicy(**policy),
            fresh=self.frame.fresh,
            system=config.get("system") or "",
            mode=None if mode is None else TurnMode(mode),
            tools=None if tools is None else [name for name in tools if name in known_tools],
            model=None if model == primary else model,
            fallback=config.get("fallback"),
            schema=OutputSchema.from_json(config.get("schema")),
        )


def broken_runs(store: Store, session_id: str | None = None) -> list[Snapshot]:
    """Snapshots of runs that did not end, newest last.

    A kill can fall between a run's row and its first snapshot: such a run has one that says it
    stands at its very beginning.
    """
    kept = {snapshot.run_id: snapshot for snapshot in store.list_snapshots(session_id)}
    found = [
        kept.get(run_id)
        or Snapshot(
            run_id=run_id,
            session_id=of_session,
            state=TurnState.CHECKING_POLICY.value,
            seq=0,
            timestamp=start,
        )
        for run_id, of_session, start in store.unfinished_runs(session_id)
    ]
    return sorted(found, key=lambda s: s.timestamp)


def find_broken(state: SessionState, run_id: str | None, *, force: bool) -> Broken:
    """The run to resume.

    Raises:
        ConfigError: There is none, it ended, or it belongs to another session.
        SessionBusy: A living process works on it.
        StoreError: It cannot be read.
    """
    store, session = state.store, state.session
    if run_id is None:
        runs = store.list_runs(session.id) if state.known() else ()  # a new one is not stored yet
        left = [run for run in runs if not run.status.terminal]
        if not left:
            raise ConfigError(
                "There is no run to resume in this session.\nStored sessions:  %agent session list",
                field="run",
                value=None,
            )
        run_id = left[-1].id
    run = store.get_run(run_id)
    known = {one.id for one in store.list_runs(session.id)} if state.known() else set()
    if run is None or run_id not in known:
        raise ConfigError(
            f"There is no run {run_id!r} in session {session.name!r}.\n"
            "See its runs with:  %agent audit",
            field="run",
            value=run_id,
        )
    if run.status.terminal:
        raise ConfigError(
            f"Run {run_id} has ended ({run.status.value}): there is nothing to resume.\n"
            "Ask again in a new cell.",
            field="run",
            value=run_id,
        )
    snapshot = store.get_snapshot(run_id)
    if snapshot is not None and not force:
        _refuse_if_alive(snapshot, state)
    state.ensure_stored()
    state.catch_up()
    return _broken(state, run, snapshot)


def _refuse_if_alive(snapshot: Snapshot, state: SessionState) -> None:
    """Two kernels must not work on one run: its tools would start twice."""
    if GATE.holder(state.key) == snapshot.run_id:
        raise SessionBusy(state.session.name)
    owner = owner_of(snapshot)
    if living_elsewhere(owner):
        raise busy_elsewhere(state.session.name, snapshot.run_id, owner)


def _broken(state: SessionState, run: Run, snapshot: Snapshot | None) -> Broken:
    store = state.store
    records = store.records(run.id)
    executions = store.tool_executions(run.id)
    events = store.events(run.id)
    order = 1 + max((event.order for event in events), default=-1)
    log = [r for r in store.list_messages(state.session.id) if r.run_id == run.id]
    fresh = snapshot is None or not _is_current(snapshot, records)
    if fresh:
        frame, begin = _rebuilt(state, run, records, log)
    else:
        assert snapshot is not None
        frame = _from_snapshot(snapshot, log)
        begin = frame.seq == 0
    _reconnect(state, run)
    done = {one.call_id: one for one in executions if one.turn == frame.turn}
    kept = None if snapshot is None else (snapshot.data.get("run") or {}).get("breaker")
    return Broken(run=run, frame=frame, begin=begin, executed=done, order=order, breaker=kept)


def _is_current(snapshot: Snapshot, records: Sequence[RunEventRecord]) -> bool:
    """Ruling: B76, a snapshot that the records have passed is stale."""
    last = records[-1].sequence if records else -1
    return snapshot.seq == last + 1


def _from_snapshot(snapshot: Snapshot, log: Sequence[MessageRecord]) -> RunFrame:
    logged = int(snapshot.data["logged"])
    earlier = _since_compaction(log)
    return RunFrame.from_json(
        snapshot.data, [*(earlier[len(earlier) - logged :] if logged else ()), *snapshot.pending]
    )


def _since_compaction(log: Sequence[MessageRecord]) -> list[Message]:
    """The run's logged messages since its last compaction; its commit is its very end."""
    found: list[Message] = []
    for record in log:
        if record.kind == "compaction":
            found = []
        elif record.kind == "message" and record.message is not None:
            found.append(record.message)
    return found


def _rebuilt(
    state: SessionState, run: Run, records: Sequence[RunEventRecord], log: Sequence[MessageRecord]
) -> tuple[RunFrame, bool]:
    """The frame from the records alone (B76): where the last action led, with what is logged."""
    frame = RunFrame(run_id=run.id, session_id=state.session.id, input=run.input)
    frame.fresh = bool(run.config.get("fresh", False))
    pending = _since_compaction(log)
    if not pending and not any(r.kind == "compaction" for r in log):
        pending = [Message.user(run.input, id=f"{run.id}_input")]
    else:
        frame.logged = len(pending)
    frame.pending = pending
    frame.iteration = max((r.turn + 1 for r in records), default=0)
    frame.seq = records[-1].sequence + 1 if records else 0
    action = records[-1].action if records else None
    match action:
        case Continue(state=then):
            frame.state = then
        case CompactAndRetry():
            frame.state = TurnState.BUILDING_CONTEXT
        case BreakLoop():
            frame.ended = {"error": None}
        case Fail(error=error):
            frame.ended = {"error": error.to_json()}
        case _:
            pass
    if records and frame.state is TurnState.CHECKING_POLICY:
        frame.iteration = records[-1].turn + 1
    return frame, not records


def _reconnect(state: SessionState, run: Run) -> None:
    """The trail's own object of the run is the one that goes on."""
    runs = state.session.runs
    for at, known in enumerate(runs):
        if known.id == run.id:
            runs[at] = run
            return
