"""Resume from every possible break: between any two writes of a run (B72-B77, L92)."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from notebook_agent.core.compaction import CompactionPolicy
from notebook_agent.core.messages import Message, ToolCallPart
from notebook_agent.core.run_frame import RunFrame, TurnFacts
from notebook_agent.core.session import RunStatus
from notebook_agent.core.turn_fsm import TurnState
from notebook_agent.engine.runtime import broken_runs
from notebook_agent.engine.store.memory import MemoryStore
from notebook_agent.engine.tools import tool
from notebook_agent.errors import ConfigError, InvalidTransition, SessionBusy, StoreError
from notebook_agent.providers.scripted import Reply
from tests.conftest import fixed_surroundings, run_virtual
from tests.engine.runtime_kit import check_run, make, run, trace

WRITES = ("create_session", "create_run", "save_snapshot", "commit", "start_tool", "finish_tool")


class Killed(BaseException):
    """The process is gone."""


class Mortal(MemoryStore):
    """Dies at its n-th write, before it or right after it."""

    def __init__(self):
        super().__init__()
        self.at = None
        self.after = False
        self.count = 0

    def _write(self, name, *args):
        self.count += 1
        number = self.count
        if number == self.at and not self.after:
            raise Killed
        getattr(MemoryStore, name)(self, *args)
        if number == self.at:
            raise Killed


for _name in WRITES:
    setattr(Mortal, _name, lambda self, *args, _name=_name: self._write(_name, *args))


lives = itertools.count()


def _world(store, starts, **given):
    life, count = next(lives), itertools.count()
    given["surroundings"] = fixed_surroundings(
        new_id=lambda kind: f"{kind}_{life}_{next(count)}"  # no two processes give one id
    )

    @tool
    def once(n: int) -> str:
        """Must not start twice."""
        starts.append(("once", n))
        return f"once {n}"

    @tool(idempotent=True)
    def again(n: int) -> str:
        """May start twice."""
        starts.append(("again", n))
        return f"again {n}"

    def reply(request):
        done = sum(1 for m in request.messages if m.results)
        if done == 2:
            return "All done."
        return Reply(
            text="Working.",
            tool_calls=[
                ToolCallPart(f"o{done}", "once", {"n": done}),
                ToolCallPart(f"a{done}", "again", {"n": done}),
            ],
        )

    return make(reply, tools=[once, again], store=store, session="s", **given)


def _writes_of_a_run():
    store = Mortal()
    run(_world(store, []))
    return store.count


async def _resumable(runtime):
    return runtime.status().resumable


@pytest.mark.parametrize("after", [False, True])
def test_B75_resume_from_every_break_between_two_writes(after) -> None:
    total = _writes_of_a_run()
    assert total > 20
    states = set()
    for at in range(1, total + 1):
        store, starts = Mortal(), []
        store.at, store.after = at, after
        with pytest.raises(Killed):
            run_virtual(_world(store, starts).arun("Hi"))
        store.at = None
        second = _world(store, starts)
        left = broken_runs(store)
        runs = store.list_runs(second.session.id) if store.find_session("s") else []
        if not runs or runs[0].status.terminal:
            continue  # the run did not exist yet, or had ended
        assert [s.run_id for s in left] == [runs[0].id]
        assert run_virtual(_resumable(second)) == (runs[0].id,)
        states |= {s.state for s in left}
        result = run_virtual(second.aresume())
        assert (result.status, result.text) == (RunStatus.COMPLETED, "All done.")
        check_run(second, result)
        assert [t.turn for t in result.turns] == [0, 1, 2]
        assert all(starts.count(("once", n)) <= 1 for n in range(2))
        stored = store.list_runs(second.session.id)[0]
        assert stored.turns == list(result.turns)
        ids = [m.message.id for m in store.list_messages(second.session.id) if m.message]
        assert len(ids) == len(set(ids)) == 6
        assert store.list_snapshots() == []
        loaded = make(store=store, session="s")
        assert loaded.session.history == second.session.history
        assert run(second, "Next").status is RunStatus.COMPLETED
    assert states == {s.value for s in TurnState}


def test_B75_a_run_without_a_snapshot_yet_is_listed_and_resumed() -> None:
    """The kill fell between the run's row and its first snapshot."""
    store, starts = Mortal(), []
    runtime = _world(store, starts)
    run_virtual(runtime.arun("Before"))
    store.at, store.after = store.count + 1, True
    with pytest.raises(Killed):
        run_virtual(_world(store, starts).arun("Hi"))
    store.at = None
    second = _world(store, starts)
    last = store.list_runs(second.session.id)[-1]
    assert (store.list_snapshots(), store.records(last.id), last.input) == ([], [], "Hi")
    (left,) = broken_runs(store)
    assert (left.run_id, left.session_id, left.seq) == (last.id, second.session.id, 0)
    assert broken_runs(store, "another session") == []
    assert run_virtual(_resumable(second)) == (last.id,)
    result = run_virtual(second.aresume())
    assert (result.status, result.run.id, result.run.input) == (
        RunStatus.COMPLETED,
        last.id,
        "Hi",
    )
    check_run(second, result)
    assert broken_runs(store) == []
    assert run_virtual(_resumable(second)) == ()


def test_B75_a_started_call_is_answered_and_not_run_again() -> None:
    store, starts = Mortal(), []
    runtime = _world(store, starts)
    real = store.finish_tool

    def die(execution):
        if execution.status == "started":
            return real(execution)
        raise Killed

    store.finish_tool = die
    with pytest.raises(Killed):
        run_virtual(runtime.arun("Hi"))
    store.finish_tool = real
    second = _world(store, starts)
    result = run_virtual(second.aresume())
    answers = {r.call_id: r for m in second.session.history for r in m.results}
    assert answers["o0"].is_error
    assert starts.count(("once", 0)) <= 1
    assert any(r.is_error and "interrupted; may have run" in r.output for r in answers.values())
    assert not answers["a0"].is_error  # idempotent: run again
    check_run(second, result)


def test_B75_compaction_that_broke_off_is_done_again() -> None:
    def grown(store):
        runtime = make(["x" * 300], store=store, session="s")
        for n in range(9):
            run(runtime, f"question {n} " + "y" * 300)
        return runtime

    count = Mortal()
    runtime = grown(count)
    runtime.set_compaction(window=6_000)
    before = count.count
    run(runtime, "last")
    for at in range(before + 1, count.count + 1):
        store = Mortal()
        first = grown(store)
        first.set_compaction(window=6_000)
        store.at = at
        with pytest.raises(Killed):
            run_virtual(first.arun("last"))
        store.at = None
        policy = CompactionPolicy(window=6_000)
        second = make(["x" * 300], store=store, session="s", compaction=policy)
        if second.session.runs[-1].status.terminal:
            continue
        result = run_virtual(second.aresume())
        check_run(second, result)
        kinds = [r.kind for r in store.list_messages(second.session.id)]
        assert kinds.count("compaction") == 1
        loaded = make(store=store, session="s")
        assert loaded.session.history == second.session.history


def test_L92_restored_at_any_point_the_next_step_is_equal() -> None:
    """The frame of every snapshot survives its own JSON."""
    seen = []

    class Watching(MemoryStore):
        def commit(self, commit):
            if commit.snapshot is not None:
                seen.append(commit.snapshot)
            super().commit(commit)

    store = Watching()
    runtime = _world(store, [])
    run(runtime)
    assert len(seen) > 15
    for snapshot in seen:
        earlier = snapshot.data["logged"]
        log = [r.message for r in store.list_messages(snapshot.session_id) if r.kind == "message"]
        pending = [*log[:earlier], *snapshot.pending]
        frame = RunFrame.from_json(snapshot.data, pending)
        again = frame.to_json()
        assert again == {k: v for k, v in snapshot.data.items() if k != "run"}
        assert frame.state.value == snapshot.state


def test_B76_a_stale_snapshot_is_rebuilt_from_the_records() -> None:
    store, starts = Mortal(), []
    runtime = _world(store, starts)
    real = store.commit
    early = []

    def keep_first(commit):
        if commit.record.sequence == 9:
            raise Killed
        real(commit)
        if commit.record.sequence == 1:
            early.append(commit.snapshot)

    store.commit = keep_first
    with pytest.raises(Killed):
        run_virtual(runtime.arun("Hi"))
    store.commit = real
    store.save_snapshot(early[0])  # older than the last record
    second = _world(store, starts)
    with pytest.raises(StoreError, match="not in the store") as caught:
        run_virtual(second.aresume())
    # the reply was only in the lost snapshot: the run ends, in order, and nothing is doubled
    check_run(second, caught.value.result)
    assert run(second, "Next").status is RunStatus.COMPLETED


def test_B76_without_any_snapshot_a_run_goes_on_where_its_log_allows() -> None:
    """Broken right after a turn was written: all it needs is in the log."""
    store, starts = Mortal(), []
    runtime = _world(store, starts)
    real = store.commit

    def die_at_second_turn(commit):
        if commit.record.sequence == 6:
            raise Killed
        real(commit)

    store.commit = die_at_second_turn
    with pytest.raises(Killed):
        run_virtual(runtime.arun("Hi"))
    store.commit = real
    store.delete_snapshot(store.list_runs(runtime.session.id)[0].id)
    second = _world(store, starts)
    result = run_virtual(second.aresume())
    assert (result.status, result.text) == (RunStatus.COMPLETED, "All done.")
    check_run(second, result)


def test_a_run_that_ended_cannot_be_resumed() -> None:
    store = MemoryStore()
    runtime = _world(store, [])
    done = run(runtime)
    with pytest.raises(ConfigError, match="no run to resume"):
        run_virtual(runtime.aresume())
    with pytest.raises(ConfigError, match="has ended"):
        run_virtual(runtime.aresume(done.run.id))
    with pytest.raises(ConfigError, match="no run 'nosuch'"):
        run_virtual(runtime.aresume("nosuch"))


def broken_off(**owner: object) -> Mortal:
    """A store whose run a kill broke off, as if the process of ``owner`` had made it."""
    store = Mortal()
    store.at = 12
    with pytest.raises(Killed):
        run_virtual(_world(store, []).arun("Hi"))
    store.at = None
    snapshot = broken_runs(store)[0]
    kept = snapshot.data["run"]
    changed = {**kept, "owner": {**kept["owner"], **owner}}
    store.save_snapshot(dataclasses.replace(snapshot, data={**snapshot.data, "run": changed}))
    return store


def test_a_run_of_a_living_process_is_not_resumed() -> None:
    store = broken_off(pid=1, started=None)
    second = _world(store, [])
    with pytest.raises(SessionBusy):
        run_virtual(second.aresume())
    assert run_virtual(second.aresume(force=True)).status is RunStatus.COMPLETED


def test_the_breaker_of_the_earlier_life_goes_on() -> None:
    store = Mortal()
    runtime = make(["x"], script="401,401,ok", store=store, session="s")
    for _ in range(2):
        run(runtime)
    store.at = store.count + 4
    with pytest.raises(Killed):
        run_virtual(runtime.arun("Hi"))
    store.at = None
    second = make(["x"], script="401", store=store, session="s")
    run_virtual_error(second)
    assert second.breaker.state.value == "fallback"  # the third failure in a row


def run_virtual_error(runtime):
    from notebook_agent.errors import AgentError

    with pytest.raises(AgentError):
        run_virtual(runtime.aresume())


def test_L90_a_feed_in_the_wrong_state_is_an_error() -> None:
    frame = RunFrame(run_id="r", session_id="s")
    with pytest.raises(InvalidTransition):
        frame.tool_results(Message.user("x"))
    with pytest.raises(InvalidTransition):
        frame.compaction_result(applied=True)
    frame.state = TurnState.EXECUTING_TOOLS
    with pytest.raises(InvalidTransition):
        frame.accept_input(Message.user("x"), "x")
    with pytest.raises(InvalidTransition):
        frame.begin_turn()


def test_facts_survive_their_json() -> None:
    facts = TurnFacts(passes=1, shrank=True, reserved=7, input="x")
    assert TurnFacts.from_json(facts.to_json()) == facts


def test_a_store_error_on_resume_is_told() -> None:
    store = Mortal()
    store.at = 10
    with pytest.raises(Killed):
        run_virtual(_world(store, []).arun("Hi"))
    store.at = None
    second = _world(store, [])

    def broken(commit):
        raise StoreError("disk full")

    store.commit = broken
    with pytest.raises(StoreError):
        run_virtual(second.aresume())


def test_trace_of_a_resumed_run_is_that_of_an_unbroken_one() -> None:
    whole = _world(MemoryStore(), [])
    expected = trace(whole, run(whole))
    store = Mortal()
    store.at = 14
    with pytest.raises(Killed):
        run_virtual(_world(store, []).arun("Hi"))
    store.at = None
    second = _world(store, [])
    assert trace(second, run_virtual(second.aresume())) == expected
