"""Turn FSM requirements that had no test of their own name, over the real runtime and stores."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from notebook_agent.core import agent_events as ev
from notebook_agent.core import outcomes as o
from notebook_agent.core.breaker import FailureKind
from notebook_agent.core.compaction import CompactionPolicy
from notebook_agent.core.messages import ToolCallPart
from notebook_agent.core.policy import MaxIterations, RuntimePolicy
from notebook_agent.core.run_state import fold
from notebook_agent.core.session import RunStatus
from notebook_agent.core.turn_fsm import (
    TRANSITIONS,
    BreakLoop,
    CompactAndRetry,
    Continue,
    Fail,
    TurnState,
    resolve,
)
from notebook_agent.engine.runtime import STEPS
from notebook_agent.engine.store.base import StoreBusy
from notebook_agent.engine.store.memory import MemoryStore
from notebook_agent.engine.store.sqlite import SqliteStore
from notebook_agent.engine.tools import LoopPolicy, tool
from notebook_agent.errors import AgentError, LoopDetected, StoreError
from notebook_agent.providers.scripted import Reply
from tests.conftest import fixed_surroundings, run_virtual
from tests.engine.runtime_kit import Log, check_run, failing, make, run, trace

CALL = Reply(text="Looking.", tool_calls=[ToolCallPart("c1", "look", {"at": "sky"})])
STATES = {
    "CheckingPolicy", "BuildingContext", "CallingModel", "ProcessingResponse", "ExecutingTools",
    "Persisting",
}  # fmt: skip
SEEDS_OUTCOMES = [
    "Ok", "PolicyExhausted", "ContextReady", "ContextOverBudget", "CompactionTriggered",
    "ModelResponse", "ProviderError", "ToolCallsPresent", "NoMoreTurns", "ToolResultsRecorded",
    "Persisted",
]  # fmt: skip


def look(at: str) -> str:
    """Look at something."""
    return f"{at} is blue"


def _long(window=6_000, **given):
    """A runtime whose history does not fit ``window``."""
    runtime = make(["x" * 300], compaction=CompactionPolicy(window=200_000), **given)
    for n in range(9):
        run(runtime, f"question {n} " + "y" * 300)
    runtime.set_compaction(window=window)
    return runtime


# --- the machine (B1, B2, B10-B12)


def test_B1_six_states_and_each_has_its_step() -> None:
    assert {s.name.title().replace("_", "") for s in TurnState} == STATES
    assert {s.value for s in TurnState} == {s.name.lower() for s in TurnState}
    assert set(STEPS) == set(TRANSITIONS) == set(TurnState)


def test_B2_the_seeds_eleven_outcomes_then_cancelled_and_two_more() -> None:
    names = [kind.__name__ for kind in o.OUTCOMES]
    assert names[:11] == SEEDS_OUTCOMES
    assert set(names[11:]) == {"Cancelled", "ToolFailure", "StorageError"}
    reason = MaxIterations(1, 2)
    assert o.PolicyExhausted(reason).reason is reason
    assert o.ProviderError(AgentError("x")).error == AgentError("x")


S = TurnState
# The seed's sentences: in this state, this outcome leads there.
SENTENCES = [
    (S.CHECKING_POLICY, "Ok", Continue(S.BUILDING_CONTEXT)),
    (S.CHECKING_POLICY, "PolicyExhausted", Fail),
    (S.BUILDING_CONTEXT, "ContextReady", Continue(S.CALLING_MODEL)),
    (S.BUILDING_CONTEXT, "ContextOverBudget", CompactAndRetry()),
    (S.BUILDING_CONTEXT, "CompactionTriggered", Continue(S.BUILDING_CONTEXT)),
    (S.CALLING_MODEL, "ModelResponse", Continue(S.PROCESSING_RESPONSE)),
    (S.CALLING_MODEL, "ProviderError", Fail),
    (S.PROCESSING_RESPONSE, "ToolCallsPresent", Continue(S.EXECUTING_TOOLS)),
    (S.PROCESSING_RESPONSE, "NoMoreTurns", Continue(S.PERSISTING)),
    (S.EXECUTING_TOOLS, "ToolResultsRecorded", Continue(S.PERSISTING)),
    (S.PERSISTING, "Persisted", Continue(S.CHECKING_POLICY)),
    (S.PERSISTING, "NoMoreTurns", BreakLoop()),
]


def test_B10_every_sentence_of_the_seed_is_a_cell_and_happens_in_a_run() -> None:
    seen = set()

    def take(runtime, result):
        for r in runtime.store.records(result.run.id):
            if r.outcome is not None:
                seen.add((r.state, type(r.outcome).__name__))
                _holds(r.state, r.outcome, r.action)

    tools = make([CALL, "Blue."], tools=[look])
    take(tools, run(tools))
    limited = make([CALL], tools=[look], policy=RuntimePolicy(max_iterations=1))
    take(limited, run(limited))
    refused = make(["x"], script="401")
    take(refused, failing(refused).result)
    compacted = _long()
    take(compacted, run(compacted, "last question"))
    assert {(state, name) for state, name, _ in SENTENCES} <= seen


def _holds(state, outcome, action) -> None:
    expected = {(s, name): a for s, name, a in SENTENCES}[state, type(outcome).__name__]
    if expected is Fail:
        assert action == Fail(outcome.error)
    else:
        assert action == expected
    assert resolve(state, outcome) == action


def test_B11_whether_more_follows_is_said_only_after_the_writes() -> None:
    """At every record of Persisting, the turn's messages are in the log already."""

    class Watching(MemoryStore):
        seen = ()

        def commit(self, commit):
            super().commit(commit)
            record = commit.record
            if record.state is S.PERSISTING and record.outcome is not None:
                logged = [e.kind for e in self.list_messages(commit.session_id)]
                self.seen += ((type(record.outcome).__name__, record.turn, logged),)

    store = Watching()
    result = run(make([CALL, "Blue."], tools=[look], store=store))
    assert result.status is RunStatus.COMPLETED
    assert store.seen == (
        ("Persisted", 0, ["message"] * 3),
        ("NoMoreTurns", 1, ["message"] * 4 + ["commit"]),
    )


@pytest.mark.parametrize("at", [0, 1])
def test_B11_a_write_that_fails_says_neither(at) -> None:
    class Full(MemoryStore):
        left = at

        def commit(self, commit):
            if commit.record.state is S.PERSISTING and commit.messages:
                if self.left == 0:
                    raise StoreError("disk full")
                self.left -= 1
            super().commit(commit)

    runtime = make([CALL, "Blue."], tools=[look], store=Full())
    result = failing(runtime).result
    said = [line.split(": ")[1] for line in trace(runtime, result) if "PERSISTING: " in line]
    ends = [line for line in said if line.startswith(("Persisted", "NoMoreTurns"))]
    # the cells of PROCESSING_RESPONSE name PERSISTING only as a target
    assert ends == ["Persisted => ->CHECKING_POLICY"] * at
    assert said[-1] == "StorageError => Fail(StoreError)"


def test_B12_tools_are_a_state_only_when_there_are_calls() -> None:
    plain = make(["Hello."])
    states = {r.state for r in plain.store.records(run(plain).run.id) if r.outcome is not None}
    assert states == set(S) - {S.EXECUTING_TOOLS}
    edges = {
        (state, action.state)
        for state, row in TRANSITIONS.items()
        for action in row.values()
        if isinstance(action, Continue)
    }
    assert {a for a, b in edges if b is S.EXECUTING_TOOLS} == {S.PROCESSING_RESPONSE}
    assert (S.PROCESSING_RESPONSE, S.PERSISTING) in edges


# --- policy and budget (B15, L19)


def test_B15_every_turn_begins_with_the_policy_and_counts_on_entry_from_1() -> None:
    runtime = make([CALL, "Blue."], tools=[look], observers=[log := Log()])
    result = run(runtime)
    records = [r for r in runtime.store.records(result.run.id) if r.outcome is not None]
    firsts = [next(iter(group)) for _, group in itertools.groupby(records, lambda r: r.turn)]
    assert [(r.turn, r.state) for r in firsts] == [(0, S.CHECKING_POLICY), (1, S.CHECKING_POLICY)]
    started = [e for e in log.of("on_event") if type(e) is ev.TurnStarted]
    assert [(e.turn, e.iteration) for e in started] == [(0, 1), (1, 2)]
    # counted before the check: the refused turn is number max + 1
    limited = make([CALL], tools=[look], policy=RuntimePolicy(max_iterations=1))
    assert run(limited).run.error["used"] == 2


def test_L19_a_giant_tool_result_is_measured_before_the_next_request() -> None:
    def giant() -> str:
        """Gives very much."""
        return "\n".join("z" * 90 for _ in range(200))

    call = Reply(text="Looking.", tool_calls=[ToolCallPart("c1", "giant", {})])
    runtime = make([call, "Seen."], tools=[giant], compaction=CompactionPolicy(window=20_000))
    result = run(runtime, "question")
    first, second = (t.context_estimate for t in result.turns)
    assert second > 5_000 > first  # after the batch, not only after the next reply
    lines = trace(runtime, result)
    assert lines.count("BUILDING_CONTEXT: ContextOverBudget => CompactAndRetry") == 1
    assert lines.index("BUILDING_CONTEXT: ContextOverBudget => CompactAndRetry") > 5


# --- tools (B48)


def test_B48_validates_times_out_groups_dispatches_then_records_all() -> None:
    order = []

    @tool(concurrent=True, timeout_s=0.5)
    async def slow(n: int) -> str:
        """Slow."""
        order.append(("slow", n))
        await asyncio.sleep(n)
        return "late"

    @tool
    def alone(n: int) -> str:
        """Exclusive."""
        order.append(("alone", n))
        return f"alone {n}"

    asked = [
        ToolCallPart("a", "alone", {"n": 1}),
        ToolCallPart("b", "slow", {"n": 9}),
        ToolCallPart("c", "slow", {"n": "no number"}),
        ToolCallPart("d", "slow", {"n": 0}),
    ]
    runtime = make([Reply(text="", tool_calls=asked), "Done."], tools=[slow, alone])
    result = run(runtime)
    assert order == [("slow", 9), ("slow", 0), ("alone", 1)]  # c was refused, alone comes last
    (message,) = [m for m in runtime.session.history if m.results]
    assert [r.call_id for r in message.results] == ["a", "b", "c", "d"]
    assert [r.is_error for r in message.results] == [False, True, True, False]
    rows = {x.call_id: x.status for x in runtime.store.tool_executions(result.run.id)}
    assert rows == {"a": "ok", "b": "timeout", "c": "invalid", "d": "ok"}
    recorded = trace(runtime, result)
    assert recorded.count("EXECUTING_TOOLS: ToolResultsRecorded => ->PERSISTING") == 1


# --- persisting and its stores (B32, B56, B60, B61, B63, B69)


def test_B56_messages_record_and_an_event_task_that_is_awaited() -> None:
    """The events are a task of their own: the loop goes on beside it, the run's end waits."""
    at_model, held = [], []

    class Slow(MemoryStore):
        left = 40

        def append_events(self, run_id, events):
            if self.left:  # busy over the whole run: only a task beside the loop can wait for it
                self.left -= 1
                held.append(len(events))
                raise StoreBusy("busy")
            super().append_events(run_id, events)

    store = Slow()

    def reply(request):
        at_model.append([type(e).__name__ for e in store.events(store.list_runs(key)[0].id)])
        return CALL if len(at_model) == 1 else "Blue."

    runtime = make(reply, tools=[look], store=store)
    key = runtime.session.id

    async def story():
        result = await runtime.arun("Hi")
        return result, [t for t in asyncio.all_tasks() if "_write" in repr(t.get_coro())]

    result, left = run_virtual(story())
    assert left == []  # awaited before the run returned
    assert held
    assert "ToolExecutionFinished" not in at_model[1]  # the second turn did not wait for it
    names = [type(e).__name__ for e in store.events(result.run.id)]
    assert names.count("ToolExecutionFinished") == 1
    kinds = [e.kind for e in store.list_messages(key)]
    assert kinds == ["message"] * 4 + ["commit"]
    written = [r for r in store.records(result.run.id) if r.state is S.PERSISTING and r.outcome]
    assert len(written) == 2
    check_run(runtime, result)


def test_B63_the_projection_is_a_pure_fold_of_the_records() -> None:
    runtime = make([CALL, "Blue."], tools=[look])
    result = run(runtime)
    records = runtime.store.records(result.run.id)
    before = repr(records)
    assert fold(records) == fold(list(records)) == runtime.store.state(result.run.id)
    assert repr(records) == before
    for at in range(len(records)):  # the same from any prefix, whoever folds it
        assert fold(records[:at]) == fold(tuple(records[:at]))
    assert fold([]).status is RunStatus.PENDING


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_B32_marker_and_summary_are_appended_and_nothing_is_deleted(kind, tmp_path) -> None:
    store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "s.db")
    runtime = _long(store=store)
    key = runtime.session.id
    before = store.list_messages(key)
    run(runtime, "last question")
    after = store.list_messages(key)
    assert after[: len(before)] == before
    marker, summary = store.latest_compaction(key)
    assert after[len(before) + 1 :][:2] == [marker, summary]
    assert (marker.kind, summary.kind) == ("compaction", "summary")
    assert marker.meta["summary_id"] == summary.message.id
    known = {e.message.id for e in after if e.message is not None}
    assert set(marker.meta["kept_ids"]) <= known
    assert summary.message.text_content().strip()
    store.close()


def test_B69_turn_and_compaction_events_come_in_their_order() -> None:
    runtime = _long()
    result = run(runtime, "last question")
    names = [type(e).__name__ for e in runtime.store.events(result.run.id)]
    told = [n for n in names if n.startswith(("Turn", "Compaction"))]
    assert told == ["TurnStarted", "CompactionTriggered", "CompactionCompleted", "TurnCompleted"]
    done = next(e for e in runtime.store.events(result.run.id) if type(e) is ev.TurnCompleted)
    assert (done.turn, done.iteration, done.finish_reason) == (0, 1, "stop")
    rejected = make(["x"], observers=[log := Log()])
    failing(rejected, "   ")
    assert [type(e).__name__ for e in log.of("on_event")] == ["InputRejected"]


def test_L105_compaction_never_touches_the_audit_trail() -> None:
    runtime = _long()
    key = runtime.session.id
    held = [t for r in runtime.session.runs for t in r.turns]
    stored = [r.turns for r in runtime.store.list_runs(key)]
    result = run(runtime, "last question")
    assert result.turns[0].compacted
    assert len(runtime.session.history) < 2 * len(held)  # the conversation was rewritten
    assert [t for r in runtime.session.runs[:-1] for t in r.turns] == held
    assert [r.turns for r in runtime.store.list_runs(key)[:-1]] == stored
    assert [t.input for t in held] == [f"question {n} " + "y" * 300 for n in range(9)]
    assert {t.output for t in held} == {"x" * 300}
    # and the new row shows what its turn saw: the ids of the compacted context
    assert len(result.turns[0].context_ref.ids) < 2 * len(held)


# --- snapshots (B72, B74, B77)


def test_B72_a_snapshot_is_durable_before_each_states_work() -> None:
    """When a state's step starts, the stored snapshot names that state."""
    runtime = make([CALL, "Blue."], tools=[look])
    store, seen, before = runtime.store, [], dict(STEPS)

    def watched(state, step):
        async def work(active):
            snapshot = store.get_snapshot(active.frame.run_id)
            seen.append((state.value, snapshot.state, snapshot.seq == active.frame.seq))
            return await step(active)

        return work

    STEPS.update({state: watched(state, step) for state, step in before.items()})
    try:
        result = run(runtime)
    finally:
        STEPS.update(before)
    assert len(seen) == 11
    assert all(state == saved and current for state, saved, current in seen)
    assert store.get_snapshot(result.run.id) is None


class Full(MemoryStore):
    """Cannot write the n-th snapshot, nor any after it."""

    def __init__(self, at):
        super().__init__()
        self.at = at
        self.count = 0

    def _due(self, snapshot):
        if snapshot is not None:
            self.count += 1
            if self.count >= self.at:
                raise StoreError("disk full")

    def save_snapshot(self, snapshot):
        self._due(snapshot)
        super().save_snapshot(snapshot)

    def commit(self, commit):
        self._due(commit.snapshot)
        super().commit(commit)


@pytest.mark.parametrize("at", range(1, 12))
def test_B74_a_snapshot_that_cannot_be_written_stops_the_run(at) -> None:
    """No transition without its write: the next state's work never starts."""
    store, before, worked = Full(at), dict(STEPS), []
    runtime = make([CALL, "Blue."], tools=[look], store=store)

    def watched(state, step):
        async def work(active):
            worked.append(state)
            return await step(active)

        return work

    STEPS.update({state: watched(state, step) for state, step in before.items()})
    try:
        error = failing(runtime)
    finally:
        STEPS.update(before)
    assert isinstance(error, StoreError)
    assert error.result.status is RunStatus.FAILED
    order = [*list(S)[:4], S.EXECUTING_TOOLS, S.PERSISTING, *list(S)[:4], S.PERSISTING]
    assert worked == order[: at - 1]  # the state whose snapshot failed did no work
    done = runtime.store.records(error.result.run.id)
    assert len([r for r in done if isinstance(r.action, Continue)]) <= max(at - 2, 0)


def test_B77_what_a_resume_restores_and_what_not() -> None:
    """The model's breaker goes on; loop history and the compaction circuit start anew."""

    class Killed(BaseException):
        pass

    class Mortal(MemoryStore):
        left = 2  # dies after the second batch of tools

        def commit(self, commit):
            super().commit(commit)
            if commit.record.state is S.EXECUTING_TOOLS:
                self.left -= 1
                if self.left == 0:
                    raise Killed

    count, seen = itertools.count(), []

    def life(store):
        def reply(request):
            seen.append(runtime.breaker.state.value)
            done = sum(1 for m in request.messages if m.results)
            asked = ToolCallPart(f"c{done}", "look", {"at": "sky"})
            return "Blue." if done == 4 else Reply(text="Looking.", tool_calls=[asked])

        runtime = make(
            reply,
            tools=[look],
            store=store,
            session="s",
            loops=LoopPolicy(strict=True),
            surroundings=fixed_surroundings(new_id=lambda kind: f"{kind}_{next(count)}"),
        )
        return runtime

    store = Mortal()
    first = life(store)

    async def broken():
        now = asyncio.get_running_loop().time()
        for _ in range(3):
            first.breaker.record_failure(FailureKind.TRANSIENT, now, cause="503")
        first.compaction_facts.failures = 3
        first.compaction_facts.paused = True
        await first.arun("Hi")

    with pytest.raises(Killed):
        run_virtual(broken())
    second = life(store)
    assert (second.compaction_facts.failures, second.compaction_facts.paused) == (0, False)
    assert second.breaker.state.value == "primary"  # nothing is restored before the resume
    seen.clear()
    result = run_virtual(second.aresume())
    assert seen == ["fallback"] * 3
    # two equal calls before the kill and two after it: three in one history are a loop
    assert result.status is RunStatus.COMPLETED
    assert [len(t.tool_calls) for t in result.turns] == [1, 1, 1, 1, 0]
    check_run(second, result)
    assert isinstance(failing(life(MemoryStore())), LoopDetected)


# --- calling the model (B41)


@pytest.mark.parametrize("fault", ["401", "400"])
def test_B41_a_stream_that_fails_for_good_is_no_complete_call(fault) -> None:
    runtime = make(["one two"], script=f"{fault},ok")
    error = failing(runtime)
    assert isinstance(error, AgentError)
    assert len(runtime.client.requests) == 1  # nothing was asked again in another way


def test_B41_the_one_complete_call_is_the_rescue_and_it_is_told() -> None:
    """Retries first, then a complete call that events and row name: never in silence."""
    runtime = make(["one two three"], script="drop@1,drop@1,drop@1,drop@1,ok")
    result = run(runtime)
    assert (result.turns[0].attempts, result.turns[0].rescued) == (4, True)
    names = [type(e).__name__ for e in runtime.store.events(result.run.id)]
    assert names.count("AttemptFailed") == 4
    assert [n for n in names if "Rescue" in n or "Fallback" in n]
