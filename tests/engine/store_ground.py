"""What the store tests share: both stores, and a run written transition by transition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from notebook_agent.core import agent_events as ev
from notebook_agent.core import outcomes as o
from notebook_agent.core.messages import Message, Role, TextPart, ToolCallPart, ToolResultPart
from notebook_agent.core.response import ChatResponse, StopReason, Usage
from notebook_agent.core.session import Run, RunEventRecord, RunStatus, Turn
from notebook_agent.core.turn_fsm import Continue, Fail, TurnAction, TurnState, resolve
from notebook_agent.engine.store.base import Commit, MessageRecord, SessionRow, Snapshot, Store
from notebook_agent.engine.store.memory import MemoryStore
from notebook_agent.engine.store.sqlite import SqliteStore

S = TurnState
T0 = 1_767_225_600.0
REPORTED = Usage(7, 3)


def make_store(kind: str, folder: Path) -> Store:
    return MemoryStore() if kind == "memory" else SqliteStore(folder / "sessions.db")


def session_row(
    key: str = "s1", name: str = "default", *, at: float = T0, **over: Any
) -> SessionRow:
    return SessionRow(id=key, name=name, created_at=at, updated_at=at, **over)


def steps_to_records(
    run_id: str, outcomes: list[o.TurnOutcome], *, session_id: str = "s1"
) -> list[RunEventRecord]:
    """A run's records as the machine makes them, the final one with its terminal event last."""
    state, turn = S.CHECKING_POLICY, 0
    records: list[RunEventRecord] = []
    action: TurnAction | None = None
    for n, outcome in enumerate(outcomes):
        action = resolve(state, outcome)
        events: tuple[ev.AgentEvent, ...] = ()
        if n == 0:
            events = (
                ev.RunStarted(
                    run_id=run_id,
                    timestamp=T0,
                    session_id=session_id,
                    provider="scripted",
                    model="scripted:m",
                ),
            )
        if isinstance(outcome, o.ModelResponse):
            usage = outcome.response.usage
            events = (
                ev.ModelStarted(
                    run_id=run_id,
                    timestamp=T0 + n,
                    provider="scripted",
                    model="m",
                    iteration=turn + 1,
                ),
            )
            if usage is not None:
                events += (
                    ev.UsageRecorded(run_id=run_id, timestamp=T0 + n, usage=usage.to_json()),
                )
        records.append(
            RunEventRecord(
                run_id=run_id,
                sequence=n,
                turn=turn,
                state=state,
                outcome=outcome,
                action=action,
                events=events,
                timestamp=T0 + n,
            )
        )
        if isinstance(action, Continue):
            if action.state is S.CHECKING_POLICY:
                turn += 1
            state = action.state
        elif type(action).__name__ == "CompactAndRetry":
            state = S.BUILDING_CONTEXT
    records.append(final_record(run_id, len(outcomes), turn, state, action))
    return records


def final_record(run_id, sequence, turn, state, action) -> RunEventRecord:
    at = T0 + sequence
    if isinstance(action, Fail):
        name = type(action.error).__name__
        status = {
            "Cancelled": RunStatus.CANCELLED,
            "LimitReached": RunStatus.LIMIT_REACHED,
            "TokenBudgetExhausted": RunStatus.TOKEN_BUDGET_EXHAUSTED,
        }.get(name, RunStatus.FAILED)
        end: ev.AgentEvent = (
            ev.RunCancelled(run_id=run_id, timestamp=at)
            if name == "Cancelled"
            else ev.RunFailed(run_id=run_id, timestamp=at, error=action.error.to_json())
        )
    else:
        status = RunStatus.COMPLETED
        end = ev.RunCompleted(
            run_id=run_id, timestamp=at, finish_reason="stop", iterations=turn + 1
        )
    return RunEventRecord(
        run_id=run_id, sequence=sequence, turn=turn, state=state, outcome=None, action=None,
        events=(end,), status=status, timestamp=at,
    )  # fmt: skip


def reply(text: str = "hello", *, id: str = "a1", calls=(), usage=REPORTED) -> ChatResponse:
    parts = (TextPart(text), *calls) if text else tuple(calls)
    stop = StopReason.TOOL_CALL if calls else StopReason.END_TURN
    return ChatResponse(Message(Role.ASSISTANT, parts, id=id), stop, usage, "scripted:m")


def plain_turn(id: str = "a1") -> list[o.TurnOutcome]:
    """Reference trace 1."""
    return [
        o.Ok(),
        o.ContextReady(ref=o.ContextRef(ids=("u1",), digest="d", estimate=12, route="scripted:m")),
        o.ModelResponse(reply(id=id)),
        o.NoMoreTurns(),
        o.NoMoreTurns(),
    ]


def tool_turn(call_id: str = "c1", id: str = "a0") -> list[o.TurnOutcome]:
    """Reference trace 2's first turn."""
    call = ToolCallPart(call_id, "add", {"a": 1, "b": 2})
    return [
        o.Ok(),
        o.ContextReady(),
        o.ModelResponse(reply("", id=id, calls=(call,))),
        o.ToolCallsPresent((call_id,)),
        o.ToolResultsRecorded((call_id,)),
        o.Persisted(),
    ]


def write_run(
    store: Store,
    run_id: str = "r1",
    *,
    session_id: str = "s1",
    prompt: str = "hi",
    answer: str = "hello",
) -> Run:
    """A completed run with one tool turn, written through the store as the runtime does."""
    call = ToolCallPart("c1", "add", {"a": 1, "b": 2}, '{"a": 1, "b": 2}')
    outcomes = [*tool_turn(), *plain_turn()]
    records = steps_to_records(run_id, outcomes, session_id=session_id)
    asked = Message(Role.ASSISTANT, (call,), id=f"{run_id}_a0")
    log = {
        5: [
            Message.user(prompt, id=f"{run_id}_u1"),
            asked,
            Message.tool_results((ToolResultPart("c1", "add", "3"),), id=f"{run_id}_t1"),
        ],
        10: [Message.assistant(answer, id=f"{run_id}_a1")],
    }
    run = Run(
        id=run_id, input=prompt, start=T0, status=RunStatus.RUNNING, config={"model": "scripted:m"}
    )
    store.create_run(session_id, run)
    turns = {
        2: Turn(
            turn=0,
            input=prompt,
            output="",
            tool_calls=(call,),
            input_tokens=7,
            output_tokens=3,
            model="scripted:m",
            stop_reason=StopReason.TOOL_CALL,
            started_at=T0,
        ),
        8: Turn(
            turn=1,
            input="3",
            output=answer,
            input_tokens=7,
            output_tokens=3,
            model="scripted:m",
            ttft_s=0.25,
            duration_s=0.5,
            started_at=T0 + 8,
        ),
    }
    for record in records:
        messages = [
            MessageRecord(
                session_id=session_id,
                run_id=run_id,
                kind="message",
                message=m,
                created_at=record.timestamp,
            )
            for m in log.get(record.sequence, ())
        ]
        if record.sequence == 10:
            messages.append(
                MessageRecord(
                    session_id=session_id, run_id=run_id, kind="commit", created_at=record.timestamp
                )
            )
        last = record.outcome is None
        if last:
            run.status, run.end, run.output, run.stop_reason = (
                RunStatus.COMPLETED,
                record.timestamp,
                answer,
                StopReason.END_TURN,
            )
        store.commit(
            Commit(
                run_id=run_id,
                session_id=session_id,
                record=record,
                messages=messages,
                turn=turns.get(record.sequence),
                snapshot=None
                if last
                else Snapshot(
                    run_id=run_id,
                    session_id=session_id,
                    state=record.state.value,
                    seq=record.sequence,
                    data={"budget": record.sequence},
                    timestamp=record.timestamp,
                ),
                drop_snapshot=last,
                run=run if last else None,
            )
        )
    return run
