"""Both stores do the same, whatever is asked of them in whatever order (hypothesis, stateful)."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from notebook_agent.core import agent_events as ev
from notebook_agent.core import outcomes as o
from notebook_agent.core.messages import Message, Role, TextPart, ToolCallPart, ToolResultPart
from notebook_agent.core.response import Usage
from notebook_agent.core.run_state import fold
from notebook_agent.core.session import Run, RunEventRecord, RunStatus, Turn, UnservedTurn
from notebook_agent.core.turn_fsm import TurnState, resolve
from notebook_agent.engine.store.base import Commit, MessageRecord, Snapshot, Store, ToolExecution
from notebook_agent.engine.store.memory import MemoryStore
from notebook_agent.engine.store.sqlite import SqliteStore
from notebook_agent.errors import AgentError
from tests.engine.store_ground import session_row

# any text at all: NUL, lone surrogates, quotes, wildcards
texts = st.one_of(
    st.text(max_size=12),
    st.text(alphabet="aA%_\\'\"\x00\ud800\ndrop;", max_size=8),
)
names = st.one_of(texts, st.just("x" * 201), st.just("e\u0301"))
keys = st.sampled_from(["s1", "s2", "x'); DROP TABLE turns;--", "a\x00"])
run_ids = st.sampled_from(["r1", "r2", "' OR 1=1 --"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
metas = st.dictionaries(texts, json_values, max_size=2)
times = st.floats(0, 1e6)
parts = st.one_of(
    texts.map(TextPart),
    st.builds(ToolCallPart, texts, texts, json_values, texts),
    st.builds(ToolResultPart, texts, texts, texts, st.booleans()),
)
messages = st.builds(
    lambda role, given, key: Message(role, tuple(given), id=key),
    st.sampled_from(Role),
    st.lists(parts, max_size=3),
    texts,
)
tokens = st.none() | st.integers(0, 10**6)
turns = st.builds(
    Turn, turn=st.integers(0, 3), input=texts, output=texts, input_tokens=tokens,
    output_tokens=tokens, model=texts, rescued=st.booleans(), input_includes_cached=st.none() | st.booleans(),
    tool_calls=st.lists(st.builds(ToolCallPart, texts, texts, json_values, texts), max_size=2).map(tuple),
    ttft_s=st.none() | st.floats(0, 10),
)  # fmt: skip
usages = st.builds(Usage, tokens, tokens, tokens)
events = st.one_of(
    usages.map(lambda u: ev.UsageRecorded(usage=u.to_json())),
    texts.map(lambda t: ev.InputRejected(reason=t)),
    texts.map(lambda t: ev.RunStarted(session_id="s1", provider=t, model=t)),
)


class BothStores(RuleBasedStateMachine):
    """Every call goes to both; results, refusals and everything readable must be equal."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.memory: Store = MemoryStore()
        self.sqlite: Store = SqliteStore(Path(self.folder.name) / "s.db")
        self.sequences: dict[str, int] = {}

    def teardown(self) -> None:
        self.sqlite.close()
        self.folder.cleanup()

    def both(self, act):
        results = []
        for store in (self.memory, self.sqlite):
            try:
                results.append(("value", act(store)))
            except AgentError as problem:
                results.append((type(problem).__name__, problem.message))
        assert results[0] == results[1]
        return results[0]

    @rule(key=keys, name=names, at=times, config=metas)
    def create_session(self, key, name, at, config):
        self.both(lambda s: s.create_session(session_row(key, name, at=at, config=config)))

    @rule(key=keys, name=names)
    def rename(self, key, name):
        self.both(lambda s: s.rename_session(key, name))

    @rule(key=keys, config=metas, at=times)
    def update(self, key, config, at):
        self.both(lambda s: s.update_session(key, config=config, at=at))

    @rule(key=keys, usage=usages)
    def usage(self, key, usage):
        self.both(lambda s: s.update_usage(key, usage))

    @rule(key=keys)
    def delete_session(self, key):
        self.both(lambda s: s.delete_session(key))
        self.forget()

    @rule(
        key=keys,
        run=run_ids,
        kind=st.sampled_from(["message", "commit", "compaction", "summary", "undo"]),
        message=st.none() | messages,
        meta=metas,
        at=times,
    )
    def append(self, key, run, kind, message, meta, at):
        record = MessageRecord(
            session_id=key, run_id=run, kind=kind, message=message, meta=meta, created_at=at
        )
        self.both(lambda s: s.append_messages([record, replace(record, kind="message")]))

    @rule(key=keys, run=run_ids, text=texts, config=metas, start=times)
    def create_run(self, key, run, text, config, start):
        kind, _ = self.both(
            lambda s: s.create_run(key, Run(id=run, input=text, config=config, start=start))
        )
        if kind == "value":
            self.sequences[run] = 0

    @rule(
        key=keys, run=run_ids, off=st.sampled_from([0, 0, 0, 0, 1]), given=st.lists(events, max_size=2),
        log=st.lists(messages, max_size=2), turn=st.none() | turns, failed=st.none() | turns,
        snapshot=st.none() | metas, drop=st.booleans(), end=st.none() | texts, at=times,
    )  # fmt: skip
    def commit(self, key, run, off, given, log, turn, failed, snapshot, drop, end, at):
        state, outcome = TurnState.BUILDING_CONTEXT, o.CompactionTriggered({"t": "x"})
        sequence = self.sequences.get(run, 0) + off
        whole = Commit(
            run_id=run, session_id=key,
            record=RunEventRecord(run_id=run, sequence=sequence, turn=0, state=state, outcome=outcome, action=resolve(state, outcome), events=tuple(given), timestamp=at),
            messages=[MessageRecord(session_id=key, run_id=run, kind="message", message=m, created_at=at) for m in log],
            turn=turn,
            unserved=None if failed is None else UnservedTurn(turn=failed, outcome="failed", error={"m": "x"}),
            snapshot=None if snapshot is None else Snapshot(run_id=run, session_id=key, state="s", seq=sequence, pending=tuple(log), data=snapshot, timestamp=at),
            drop_snapshot=drop,
            run=None if end is None else Run(id=run, input="i", output=end, status=RunStatus.FAILED, error={"e": end}, end=at),
        )  # fmt: skip
        kind, _ = self.both(lambda s: s.commit(whole))
        if kind == "value":
            self.sequences[run] = sequence + 1

    @rule(
        run=run_ids,
        key=st.sampled_from(["x1", "x2"]),
        status=st.sampled_from(["started", "ok"]),
        text=texts,
    )
    def tool(self, run, key, status, text):
        row = ToolExecution(
            id=key,
            session_id="s1",
            run_id=run,
            turn=0,
            call_id=text,
            tool_name="f",
            arguments=text,
            status=status,
            result=text,
        )
        self.both(lambda s: s.start_tool(row) if status == "started" else s.finish_tool(row))

    @rule(run=run_ids, given=st.lists(events, max_size=2))
    def append_events(self, run, given):
        self.both(lambda s: s.append_events(run, given))

    @rule(run=run_ids, status=st.sampled_from(RunStatus))
    def set_status(self, run, status):
        self.both(lambda s: s.set_status(run, status))

    @rule(run=run_ids)
    def delete_snapshot(self, run):
        self.both(lambda s: s.delete_snapshot(run))

    @precondition(lambda self: self.sequences)
    @rule(run=run_ids)
    def delete_run(self, run):
        self.both(lambda s: s.delete_run(run))
        self.forget()

    @rule()
    def reopen(self):
        """A new kernel on the same file sees the same."""
        path = self.sqlite.location
        self.sqlite.close()
        self.sqlite = SqliteStore(path)

    @rule(text=texts, key=st.none() | keys, limit=st.integers(1, 3))
    def search(self, text, key, limit):
        self.both(lambda s: s.search(text, session_id=key, limit=limit))

    def forget(self) -> None:
        self.sequences = {k: n for k, n in self.sequences.items() if self.memory.get_run(k)}

    @invariant()
    def all_that_can_be_read_is_equal(self):
        _, rows = self.both(lambda s: s.list_sessions())
        self.both(lambda s: s.list_snapshots())
        for row in rows:
            self.both(lambda s, row=row: (s.get_session(row.id), s.find_session(row.name)))
            self.both(lambda s, key=row.id: s.list_messages(key))
            self.both(lambda s, key=row.id: s.latest_compaction(key))
            self.both(lambda s, key=row.id: s.list_runs(key))
        for run in self.sequences:
            _, records = self.both(lambda s, key=run: s.records(key))
            assert [r.sequence for r in records] == list(range(self.sequences[run]))
            _, state = self.both(lambda s, key=run: s.state(key))
            assert state == fold(records)  # B61: the projection is never behind
            self.both(lambda s, key=run: s.events(key))
            self.both(lambda s, key=run: s.tool_executions(key))
            self.both(lambda s, key=run: s.get_snapshot(key))


BothStores.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestBothStores = BothStores.TestCase
