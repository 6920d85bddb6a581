"""One suite over every store: memory and SQLite keep the same rules (B56-B62, X06, X07, A02)."""

from __future__ import annotations

import csv
import io
import json
import threading
from dataclasses import replace

import pytest

from notebook_agent.core import agent_events as ev
from notebook_agent.core import outcomes as o
from notebook_agent.core.log_view import conversation
from notebook_agent.core.messages import (
    ImagePart,
    Message,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from notebook_agent.core.replay import replay
from notebook_agent.core.request import StreamRequest
from notebook_agent.core.response import Ending, StopReason, Usage
from notebook_agent.core.run_state import fold
from notebook_agent.core.session import Run, RunStatus, Turn, UnservedTurn
from notebook_agent.core.turn_fsm import Continue, TurnState
from notebook_agent.engine.store.base import Commit, MessageRecord, Snapshot, ToolExecution
from notebook_agent.engine.store.open import load_session
from notebook_agent.errors import ConfigError, ErrorKind, ProviderError, StoreError
from tests.engine.store_ground import (
    T0,
    make_store,
    plain_turn,
    session_row,
    steps_to_records,
    write_run,
)

STORES = ("memory", "sqlite")


@pytest.fixture(params=STORES)
def store(request, tmp_path):
    made = make_store(request.param, tmp_path)
    yield made
    made.close()


@pytest.fixture
def session(store):
    store.create_session(session_row())
    return store


def entry(
    text: str, *, id: str = "m", run_id: str = "r1", kind: str = "message", **over
) -> MessageRecord:
    return MessageRecord(
        session_id="s1", run_id=run_id, kind=kind, message=Message.user(text, id=id), **over
    )


# -- sessions -------------------------------------------------------------------------------


def test_B60_session_round_trip(store):
    store.create_session(session_row(config={"system": "be brief", "n": (1, 2)}))
    row = store.get_session("s1")
    assert (row.name, row.created_at, row.run_count, row.message_count, row.usage) == (
        "default",
        T0,
        0,
        0,
        None,
    )
    assert row.config == {"system": "be brief", "n": [1, 2]}
    store.update_session("s1", config={"a": None}, at=T0 + 5)
    assert store.get_session("s1").config == {"a": None}
    assert store.get_session("s1").updated_at == T0 + 5
    assert store.get_session("nobody") is None


def test_sessions_are_listed_oldest_first_and_found_by_newest(store):
    for n, at in enumerate((3.0, 1.0, 2.0)):
        store.create_session(session_row(f"s{n}", "same", at=at))
    assert [r.id for r in store.list_sessions()] == ["s1", "s2", "s0"]
    assert store.find_session("same").id == "s0"
    assert store.find_session("other") is None


def test_a_taken_id_is_refused(session):
    with pytest.raises(StoreError, match="'s1' is in the store already"):
        session.create_session(session_row())
    assert len(session.list_sessions()) == 1


@pytest.mark.parametrize("act", [
    lambda s: s.list_messages("no"),
    lambda s: s.list_runs("no"),
    lambda s: s.rename_session("no", "x"),
    lambda s: s.delete_session("no"),
    lambda s: s.update_session("no", config={}, at=0.0),
    lambda s: s.update_usage("no", Usage(1)),
    lambda s: s.latest_compaction("no"),
    lambda s: s.create_run("no", Run(id="r", input="")),
    lambda s: s.append_messages([replace(entry("x"), session_id="no")]),
])  # fmt: skip
def test_unknown_session_is_an_error_with_a_way_out(store, act):
    with pytest.raises(StoreError, match=r"no session with the id 'no'[\s\S]*session list"):
        act(store)


@pytest.mark.parametrize("act", [
    lambda s: s.records("no"),
    lambda s: s.events("no"),
    lambda s: s.state("no"),
    lambda s: s.set_status("no", RunStatus.FAILED),
    lambda s: s.append_events("no", []),
    lambda s: s.tool_executions("no"),
    lambda s: s.delete_run("no"),
    lambda s: s.save_snapshot(Snapshot(run_id="no", session_id="s1", state="x", seq=0)),
    lambda s: s.start_tool(execution(run_id="no")),
])  # fmt: skip
def test_unknown_run_is_an_error(session, act):
    with pytest.raises(StoreError, match="no run with the id 'no'"):
        act(session)


def test_usage_of_a_session_adds_up_field_by_field(session):
    session.update_usage("s1", Usage(5, None))
    session.update_usage("s1", Usage(2, 4))
    assert session.get_session("s1").usage == Usage(7, 4)


# -- X06, X07: names are data ----------------------------------------------------------------

NAMES = (
    "../x", "/etc/x", "a/b", "C:\\x", "con", ".", "..", "~", "a\x00b", "A", "a", " ", "%", "_",
    "x'); DROP TABLE turns;--", "100%_", "résumé", "tab\there", "new\nline", "🦙" * 50, "x" * 200,
    "\x1b[31mred", "nul.txt", "-rf", "$HOME", "memory", "\ud83d half",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_X06_every_name_round_trips(store, tmp_path, name):
    before = {p.name for p in tmp_path.iterdir()}
    store.create_session(session_row("s1", name))
    found = store.find_session(name)
    assert found.id == "s1"
    assert found.name == name.replace("\x00", "\ufffd").replace("\ud83d", "\ufffd")
    assert [r.name for r in store.list_sessions()] == [found.name]
    store.append_messages([entry("kept")])
    assert store.list_messages("s1")[0].message.text_content() == "kept"
    store.rename_session("s1", name + "2" if len(name) < 200 else name[1:])
    assert store.find_session(name) is None
    store.delete_session("s1")
    assert store.list_sessions() == []
    assert {p.name for p in tmp_path.iterdir()} - before <= {"sessions.db-wal", "sessions.db-shm"}


def test_X06_two_forms_of_one_name_are_one_and_case_is_two(store):
    store.create_session(session_row("s1", "r\u00e9sum\u00e9"))
    assert store.find_session("re\u0301sume\u0301").id == "s1"
    store.create_session(session_row("s2", "A"))
    store.create_session(session_row("s3", "a"))
    assert store.find_session("A").id == "s2"
    assert store.find_session("a").id == "s3"
    assert len(store.list_sessions()) == 3


@pytest.mark.parametrize("name", ["", "x" * 201, "é" * 201])
def test_X06_only_the_empty_and_the_too_long_name_are_refused(store, name):
    with pytest.raises(ConfigError, match="session name may"):
        store.create_session(session_row("s1", name))
    assert store.list_sessions() == []
    store.create_session(session_row())
    with pytest.raises(ConfigError, match="session name may"):
        store.rename_session("s1", name)


def test_X06_decomposed_name_of_201_characters_may_be_200(store):
    store.create_session(session_row("s1", "e\u0301" * 200))
    assert len(store.get_session("s1").name) == 200


@pytest.mark.parametrize("key", ["x'); DROP TABLE turns;--", "' OR '1'='1", "\x00", "?1", ":a", ""])
def test_X07_odd_ids_are_bound_values(store, key):
    store.create_session(session_row("other", "other"))
    store.create_session(session_row(key, "odd"))
    run = write_run(store, f"run {key}", session_id=key)
    assert [r.id for r in store.list_runs(key)] == [run.id.replace("\x00", "\ufffd")]
    assert store.list_runs("other") == []
    store.delete_session(key)
    assert [r.id for r in store.list_sessions()] == ["other"]


def test_X07_search_is_literal(session):
    texts = [
        "plain",
        "100%_ sure",
        "100x sure",
        "under_score",
        "a\\b",
        "it's",
        "100%",
        "HELLO there",
    ]
    session.append_messages([entry(t, id=f"m{n}") for n, t in enumerate(texts)])

    def hits(text, **over):
        return [r.message.text_content() for r in session.search(text, **over)]

    assert hits("100%_") == ["100%_ sure"]
    assert hits("%") == ["100%", "100%_ sure"]
    assert hits("_") == ["under_score", "100%_ sure"]
    assert hits("\\") == ["a\\b"]
    assert hits("it's") == ["it's"]
    assert hits("hello") == ["HELLO there"]
    assert hits("") == []
    assert hits("100", limit=1) == ["100%"]
    assert hits("x'); DROP TABLE messages;--") == []
    assert hits("plain", session_id="nobody") == []
    assert len(session.list_messages("s1")) == len(texts)


def test_search_reads_tool_output_and_not_arguments(session):
    call = Message(Role.ASSISTANT, (ToolCallPart("c", "f", {"q": "needle"}),), id="a")
    result = Message.tool_results((ToolResultPart("c", "f", "a needle here"),), id="t")
    session.append_messages(
        [entry("x"), replace(entry("x"), message=call), replace(entry("x"), message=result)]
    )
    assert [r.message.id for r in session.search("NEEDLE")] == ["t"]


# -- the log ---------------------------------------------------------------------------------


def test_the_log_is_append_only_and_numbered_per_session(session):
    session.create_session(session_row("s2", "two"))
    assert session.append_messages([entry("a", id="1"), entry("b", id="2")]) == 2
    assert session.append_messages([replace(entry("z"), session_id="s2")]) == 1
    assert session.append_messages([entry("c", id="3")]) == 3
    assert session.append_messages([]) == 0
    assert [r.seq for r in session.list_messages("s1")] == [1, 2, 3]
    assert [r.message.id for r in session.list_messages("s1", after=1)] == ["2", "3"]
    assert session.get_session("s1").message_count == 3


def test_every_part_and_marker_round_trips(session):
    message = Message(
        Role.ASSISTANT,
        (
            TextPart("t"),
            TextPart("no", refusal=True),
            ImagePart("data:image/png;base64,AA", 3, 4),
            ToolCallPart("c1", "f", {"deep": [1, 2.5, None, True, {"k": "v"}]}, '{"deep": []}'),
            ToolCallPart("c2", "f", None, "{broken"),
            ToolCallPart("c3", "f", [1, 2]),
            ToolResultPart("c1", "f", "out", True, (ImagePart("https://x/y.png"),)),
        ),
        id="all",
        provider_state={"model": "p:m", "blocks": [{"signature": "s"}]},
    )
    session.append_messages([
        MessageRecord(session_id="s1", run_id="r", kind="message", message=message, created_at=T0),
        MessageRecord(session_id="s1", run_id="r", kind="commit"),
        MessageRecord(session_id="s1", run_id="", kind="undo", meta={"run_ids": ["r"]}),
    ])  # fmt: skip
    one, two, three = session.list_messages("s1")
    assert one.message == message
    assert one.created_at == T0
    assert (two.kind, two.message, dict(two.meta)) == ("commit", None, {})
    assert three.meta == {"run_ids": ["r"]}


def test_B60_and_B32_latest_compaction_is_the_last_pair(session):
    assert session.latest_compaction("s1") is None
    summary = entry("sum", id="x", kind="summary")
    session.append_messages([
        entry("a", id="1"),
        MessageRecord(session_id="s1", run_id="r", kind="compaction", meta={"kept_ids": ["1"], "summary_id": "x"}),
        summary,
        entry("b", id="2"),
    ])  # fmt: skip
    marker, found = session.latest_compaction("s1")
    assert marker.meta["kept_ids"] == ["1"]
    assert found.message.id == "x"
    session.append_messages(
        [MessageRecord(session_id="s1", run_id="r", kind="compaction", meta={"kept_ids": ["2"]})]
    )
    marker, found = session.latest_compaction("s1")
    assert (marker.meta["kept_ids"], found) == (["2"], None)


# -- runs ------------------------------------------------------------------------------------


def test_B61_a_run_is_stored_whole(session):
    run = write_run(session)
    kept = session.get_run("r1")
    assert kept.status is RunStatus.COMPLETED
    assert (kept.output, kept.stop_reason, kept.end) == (run.output, StopReason.END_TURN, run.end)
    assert [t.turn for t in kept.turns] == [0, 1]
    assert kept.turns[0].tool_calls[0].input == {"a": 1, "b": 2}
    assert kept.turns[1].ttft_s == 0.25
    assert kept.turns[1].cached_input_tokens is None
    assert session.list_runs("s1") == [kept]
    assert session.get_snapshot("r1") is None
    row = session.get_session("s1")
    assert (row.run_count, row.message_count, row.usage) == (1, 4, Usage(14, 6))
    texts = [m.display_text() for m in conversation(session.list_messages("s1"))]
    assert texts == ["hi", "[call add {'a': 1, 'b': 2}]", "[result of add: 3]", "hello"]
    assert load_session(session, "s1").history == list(conversation(session.list_messages("s1")))
    assert load_session(session, "s1").runs == [kept]


def test_B59_what_is_stored_replays_and_folds_to_the_stored_projection(session):
    write_run(session)
    records = session.records("r1")
    report = replay(records, projection=session.state("r1"))
    assert report.ok, str(report)
    assert report.complete
    assert session.state("r1") == fold(records)
    assert session.state("r1").status is RunStatus.COMPLETED
    assert session.state("r1").total_usage == Usage(14, 6)


def test_what_comes_back_is_a_copy(session):
    write_run(session)
    run = session.get_run("r1")
    run.turns.clear()
    run.status = RunStatus.FAILED
    assert len(session.get_run("r1").turns) == 2
    assert session.get_run("r1").status is RunStatus.COMPLETED


def test_records_keep_no_messages(session):
    """B58: a context in a record is ids and a digest, never the messages."""
    session.create_run("s1", Run(id="r1", input="x"))
    outcomes = plain_turn()
    outcomes[1] = replace(
        outcomes[1], context=StreamRequest((Message.user("secret text"),)), payload=object()
    )
    for record in steps_to_records("r1", outcomes):
        session.commit(Commit(run_id="r1", session_id="s1", record=record))
    kept = session.records("r1")
    assert kept[1].outcome.context is None
    assert kept[1].outcome.payload is None
    assert kept[1].outcome.ref.ids == ("u1",)
    assert kept[2].outcome.response.message.parts == ()
    assert kept[2].outcome.response.message.id == "a1"


@pytest.mark.parametrize("wrong", [1, 5, -1])
def test_B58_a_record_out_of_sequence_is_refused_and_nothing_is_written(session, wrong):
    session.create_run("s1", Run(id="r1", input="x"))
    record = steps_to_records("r1", plain_turn())[0]
    bad = Commit(
        run_id="r1", session_id="s1", record=replace(record, sequence=wrong),
        messages=[entry("x")], turn=Turn(turn=0, input="", output=""),
        snapshot=Snapshot(run_id="r1", session_id="s1", state="s", seq=0),
    )  # fmt: skip
    with pytest.raises(StoreError, match="the next one is 0"):
        session.commit(bad)
    assert session.records("r1") == []
    assert session.list_messages("s1") == []
    assert session.get_run("r1").turns == []
    assert session.get_snapshot("r1") is None
    session.commit(replace(bad, record=record))
    with pytest.raises(StoreError, match="the next one is 1"):
        session.commit(replace(bad, record=record))
    assert len(session.list_messages("s1")) == 1


def test_a_turn_is_never_doubled(session):
    session.create_run("s1", Run(id="r1", input="x"))
    records = steps_to_records("r1", plain_turn())
    turn = Turn(turn=0, input="", output="")
    session.commit(Commit(run_id="r1", session_id="s1", record=records[0], turn=turn))
    with pytest.raises(StoreError, match=r"turn with the id 'r1/0'"):
        session.commit(
            Commit(
                run_id="r1", session_id="s1", record=records[1], turn=turn, messages=[entry("x")]
            )
        )
    assert len(session.records("r1")) == 1
    assert session.list_messages("s1") == []


def test_what_is_no_json_is_refused_and_nothing_is_written(session):
    session.create_run("s1", Run(id="r1", input="x"))
    record = steps_to_records("r1", plain_turn())[0]
    with pytest.raises(StoreError, match="A set cannot be stored"):
        session.commit(
            Commit(
                run_id="r1",
                session_id="s1",
                record=record,
                messages=[entry("ok"), entry("x", meta={"bad": {1}})],
            )
        )
    with pytest.raises(StoreError, match="A object cannot be stored"):
        session.commit(
            Commit(
                run_id="r1",
                session_id="s1",
                record=record,
                messages=[entry("ok")],
                snapshot=Snapshot(
                    run_id="r1", session_id="s1", state="x", seq=0, data={"o": object()}
                ),
            )
        )
    assert session.list_messages("s1") == []
    assert session.records("r1") == []


def test_unserved_turns_and_errors_round_trip(session):
    session.create_run("s1", Run(id="r1", input="x"))
    error = ProviderError(ErrorKind.OVERLOADED, "busy", status=529, retry_after=2.5)
    row = UnservedTurn(
        turn=Turn(
            turn=0,
            input="x",
            output="par",
            attempts=4,
            failed_input_tokens=900,
            ending=Ending.ERROR,
            ending_raw="?",
        ),
        outcome="failed",
        error=error.to_json(),
    )
    outcomes = [*plain_turn()[:2], o.ProviderError(error)]
    for record in steps_to_records("r1", outcomes):
        last = record.outcome is None
        session.commit(Commit(
            run_id="r1", session_id="s1", record=record, unserved=row if last else None,
            run=Run(id="r1", input="x", status=RunStatus.FAILED, end=T0, error=error.to_json()) if last else None,
        ))  # fmt: skip
    kept = session.get_run("r1")
    assert kept.unserved == [row]
    assert kept.turns == []
    assert kept.error["status"] == 529
    assert session.state("r1").last_error == "busy"
    assert session.records("r1")[2].outcome.error == error
    assert replay(session.records("r1")).ok


def test_every_field_of_a_turn_round_trips(session):
    """A new field of Turn that a store forgets fails here."""
    full = Turn(
        turn=3, input="i", output="o", tool_calls=(ToolCallPart("c", "f", {"a": 1}, "{}"),),
        input_tokens=0, output_tokens=2, model="p:m", stop_reason=StopReason.MAX_TOKENS,
        ending=Ending.REFUSAL, ending_raw="refusal", attempts=2, rescued=True, breaker="fallback",
        compacted=True, tools_not_run=("g", "h"), cached_input_tokens=5, reasoning_tokens=6,
        input_includes_cached=False, failed_input_tokens=7, failed_output_tokens=8,
        budget_tokens=9, budget_estimated=True, context_estimate=10,
        context_ref=o.ContextRef(("m1",), "dig", 10, "p:m", 8000, {"system": 1}, 4),
        ttft_s=0.5, duration_s=1.5, started_at=T0,
    )  # fmt: skip
    for name in Turn.__slots__:
        default = Turn.__dataclass_fields__[name].default
        assert getattr(full, name) != default, f"give {name} a value here"
    session.create_run("s1", Run(id="r1", input="x"))
    record = steps_to_records("r1", plain_turn())[0]
    session.commit(Commit(run_id="r1", session_id="s1", record=record, turn=full))
    assert session.get_run("r1").turns == [full]


def execution(**over) -> ToolExecution:
    given = dict(
        id="x1", session_id="s1", run_id="r1", turn=0, call_id="c1", tool_name="add",
        arguments="{}", status="started", created_at=T0,
    )  # fmt: skip
    return ToolExecution(**{**given, **over})


def test_B75_started_then_finished_is_one_row(session):
    session.create_run("s1", Run(id="r1", input="x"))
    session.start_tool(execution())
    session.start_tool(execution(id="x2", call_id="c2"))
    assert [x.status for x in session.tool_executions("r1")] == ["started", "started"]
    images = (ImagePart("data:image/png;base64,AAAA", 3, 4), ImagePart("https://h.example/a.png"))
    done = execution(status="ok", result="3", duration_s=0.125, images=images)
    session.finish_tool(done)
    session.finish_tool(execution(id="x3", call_id="c3", status="not_found", is_error=True))
    kept = session.tool_executions("r1")
    assert [x.id for x in kept] == ["x1", "x2", "x3"]
    assert kept[0] == done
    assert kept[2].is_error is True


def test_B75_unfinished_runs_with_or_without_a_snapshot(session):
    session.create_session(session_row("s2", "two"))
    for run_id, key in (("r1", "s1"), ("r2", "s2"), ("r3", "s1")):
        session.create_run(key, Run(id=run_id, input="x", start=T0))
    session.set_status("r1", RunStatus.RUNNING)
    assert session.unfinished_runs() == [("r1", "s1", T0), ("r2", "s2", T0), ("r3", "s1", T0)]
    assert session.unfinished_runs("s1") == [("r1", "s1", T0), ("r3", "s1", T0)]
    for status in (s for s in RunStatus if s.terminal):
        session.set_status("r1", status)
        assert session.unfinished_runs("s1") == [("r3", "s1", T0)], status
    assert session.unfinished_runs("none") == []


def test_B72_snapshots_are_one_per_run(session):
    for run_id, at in (("r1", 2.0), ("r2", 1.0)):
        session.create_run("s1", Run(id=run_id, input="x"))
        session.save_snapshot(
            Snapshot(run_id=run_id, session_id="s1", state="a", seq=0, timestamp=at)
        )
    newer = Snapshot(
        run_id="r1", session_id="s1", state="calling_model", seq=4, timestamp=3.0,
        pending=(Message.user("u", id="m"),), data={"breaker": {"state": "primary"}, "n": 3},
    )  # fmt: skip
    session.save_snapshot(newer)
    assert session.get_snapshot("r1") == newer
    assert [s.run_id for s in session.list_snapshots()] == ["r2", "r1"]
    assert [s.run_id for s in session.list_snapshots("s1")] == ["r2", "r1"]
    assert session.list_snapshots("nobody") == []
    session.delete_snapshot("r1")
    session.delete_snapshot("r1")
    assert session.get_snapshot("r1") is None
    assert session.get_snapshot("nobody") is None


def test_a_commit_without_a_snapshot_keeps_the_last_one(session):
    """B75: kept on failure and cancel, dropped on success."""
    session.create_run("s1", Run(id="r1", input="x"))
    first, second, third = steps_to_records("r1", plain_turn())[:3]
    snapshot = Snapshot(run_id="r1", session_id="s1", state="building_context", seq=0)
    session.commit(Commit(run_id="r1", session_id="s1", record=first, snapshot=snapshot))
    session.commit(Commit(run_id="r1", session_id="s1", record=second))
    assert session.get_snapshot("r1") == snapshot
    session.commit(Commit(run_id="r1", session_id="s1", record=third, drop_snapshot=True))
    assert session.get_snapshot("r1") is None


def test_events_of_records_and_others_come_in_order(session):
    session.create_run("s1", Run(id="r1", input="x"))
    records = steps_to_records("r1", plain_turn())
    for record in records:
        session.commit(Commit(run_id="r1", session_id="s1", record=record))
    session.append_events("r1", [
        ev.TurnStarted(run_id="r1", timestamp=T0, order=1, turn=0, iteration=1),
        ev.ContextBuilt(run_id="r1", timestamp=T0 + 1, message_count=1, parts={"system": 3}),
        ev.SnapshotSaved(run_id="r1", timestamp=T0 + 99, seq=1),
    ])  # fmt: skip
    names = [type(e).__name__ for e in session.events("r1")]
    assert names == [
        "RunStarted", "TurnStarted", "ContextBuilt", "ModelStarted", "UsageRecorded",
        "SnapshotSaved", "RunCompleted",
    ]  # fmt: skip
    assert session.state("r1").event_count == 4


def test_set_status_and_delete_run(session):
    write_run(session)
    session.set_status("r1", RunStatus.CANCELLED)
    assert session.get_run("r1").status is RunStatus.CANCELLED
    session.delete_run("r1")
    assert session.get_run("r1") is None
    assert session.list_runs("s1") == []
    assert session.get_session("s1").run_count == 0
    assert len(session.list_messages("s1")) == 5  # the log stays


def test_deleting_a_session_takes_all_of_it(session):
    write_run(session)
    session.create_session(session_row("s2", "two"))
    write_run(session, "r2", session_id="s2")
    session.delete_session("s1")
    assert session.get_session("s1") is None
    assert session.get_run("r1") is None
    assert session.search("hello", session_id="s1") == []
    assert [r.id for r in session.list_runs("s2")] == ["r2"]
    session.create_session(session_row())
    assert session.list_messages("s1") == []


def test_import_run_is_whole_or_nothing(session):
    write_run(session)
    run, records = session.get_run("r1"), session.records("r1")
    messages = session.list_messages("s1")
    session.create_session(session_row("s2", "two"))
    with pytest.raises(StoreError, match="already"):
        session.import_run("s2", run, records=records)
    other = replace(run, id="copy")
    moved = [replace(r, run_id="copy") for r in records]
    with pytest.raises(StoreError, match="the next one is 1"):
        session.import_run("s2", other, records=[moved[0], moved[2]], messages=messages)
    assert session.get_run("copy") is None
    assert session.list_messages("s2") == []
    session.import_run(
        "s2", other, records=moved, messages=messages, executions=[execution(run_id="copy")]
    )
    assert session.get_run("copy").turns == run.turns
    assert session.state("copy") == fold(moved)
    assert [m.seq for m in session.list_messages("s2")] == [1, 2, 3, 4, 5]
    assert session.get_session("s2").usage == Usage(14, 6)
    assert session.get_session("s2").run_count == 1


def test_the_next_commit_follows_an_import(session):
    """An imported run that had not ended can go on."""
    records = steps_to_records("r1", plain_turn())
    session.import_run("s1", Run(id="r1", input="x"), records=records[:3])
    session.commit(Commit(run_id="r1", session_id="s1", record=records[3]))
    assert len(session.records("r1")) == 4


# -- A02, K06 --------------------------------------------------------------------------------

ODD = "ok\x00\x1b[31mend\x9b\u2028\ud800|\r\n\u202e"
KEPT = "ok\ufffd\x1b[31mend\x9b\u2028\ufffd|\r\n\u202e"


def test_A02_odd_text_is_the_same_everywhere(session, tmp_path):
    session.create_run("s1", Run(id="r1", input=ODD, config={ODD: [ODD]}))
    call = ToolCallPart("c1", "f", {ODD: ODD}, ODD)
    message = Message.tool_results((ToolResultPart("c1", "f", ODD),), id="t")
    turn = Turn(turn=0, input=ODD, output=ODD, tool_calls=(call,), tools_not_run=(ODD,), model=ODD)
    record = steps_to_records("r1", plain_turn())[0]
    session.commit(Commit(
        run_id="r1", session_id="s1", record=replace(record, events=(ev.ToolExecutionFinished(run_id="r1", call_id="c1", tool_name="f", result=ODD),)),
        messages=[MessageRecord(session_id="s1", run_id="r1", kind="message", message=message, meta={"m": ODD})],
        turn=turn, snapshot=Snapshot(run_id="r1", session_id="s1", state="x", seq=0, pending=(message,), data={"d": ODD}),
    ))  # fmt: skip
    session.finish_tool(execution(result=ODD, arguments=ODD, status="ok"))

    row = session.get_run("r1").turns[0]
    assert (row.input, row.output, row.model, row.tools_not_run) == (KEPT, KEPT, KEPT, (KEPT,))
    assert row.tool_calls[0].input == {KEPT: KEPT}
    assert session.get_run("r1").input == KEPT
    assert session.get_run("r1").config == {KEPT: [KEPT]}
    assert session.list_messages("s1")[0].message.results[0].output == KEPT
    assert session.list_messages("s1")[0].meta == {"m": KEPT}
    assert session.get_snapshot("r1").pending[0].results[0].output == KEPT
    assert session.get_snapshot("r1").data == {"d": KEPT}
    assert session.records("r1")[0].events[0].result == KEPT
    assert session.tool_executions("r1")[0].result == KEPT
    assert [r.message.id for r in session.search("\x1b[31m")] == ["t"]
    # and out of here as JSON and CSV
    assert json.loads(json.dumps(row.to_json()))["output"] == KEPT
    text = io.StringIO(newline="")
    csv.writer(text).writerow([row.output])
    assert next(csv.reader(io.StringIO(text.getvalue(), newline=""))) == [KEPT]


def test_K06_a_run_that_died_leaves_no_question_in_the_conversation(session):
    session.create_run("s1", Run(id="r1", input="x"))
    session.append_messages([entry("asked, never answered")])
    assert load_session(session, "s1").history == []
    assert [r.id for r in load_session(session, "s1").runs] == ["r1"]  # the trail has it


def test_K06_blank_replies_are_in_the_log_and_not_in_the_conversation(session):
    blank = [Message(Role.ASSISTANT, (), id="a"), Message.assistant("\n ", id="b")]
    log = [entry("q1", id="1"), *[replace(entry("x"), message=m) for m in blank]]
    session.append_messages([*log, MessageRecord(session_id="s1", run_id="r1", kind="commit")])
    assert [m.id for m in load_session(session, "s1").history] == ["1"]
    assert len(session.list_messages("s1")) == 4


def test_threads_share_one_store(session):
    """Any thread may call: the kernel's reads while the engine's writes."""
    failures: list[BaseException] = []

    def work(n: int) -> None:
        try:
            session.create_run("s1", Run(id=f"r{n}", input="x"))
            for record in steps_to_records(f"r{n}", plain_turn()):
                session.commit(
                    Commit(
                        run_id=f"r{n}",
                        session_id="s1",
                        record=record,
                        messages=[entry("x", run_id=f"r{n}")],
                    )
                )
                session.list_runs("s1")
        except BaseException as problem:
            failures.append(problem)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [m.seq for m in session.list_messages("s1")] == list(range(1, 25))
    assert all(replay(session.records(f"r{n}")).ok for n in range(4))


def test_a_reply_that_goes_on_keeps_its_state_names(session):
    """Records name states and actions by stable words (B1)."""
    session.create_run("s1", Run(id="r1", input="x"))
    session.commit(
        Commit(run_id="r1", session_id="s1", record=steps_to_records("r1", plain_turn())[0])
    )
    record = session.records("r1")[0]
    assert record.state is TurnState.CHECKING_POLICY
    assert record.action == Continue(TurnState.BUILDING_CONTEXT)
