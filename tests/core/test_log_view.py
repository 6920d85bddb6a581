"""The working history from the log: commits, compactions, undo, reset, pairs (B25, B32, L95, L96, K06)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from notebook_agent.core.log_view import LOG_KINDS, conversation, paired
from notebook_agent.core.messages import Message, Role, TextPart, ToolCallPart, ToolResultPart


@dataclass(frozen=True)
class Entry:
    kind: str
    run_id: str = "r1"
    message: Message | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)


def said(text: str, run: str = "r1") -> Entry:
    return Entry("message", run, Message.user(text, id=text))


def answered(text: str, run: str = "r1") -> Entry:
    return Entry("message", run, Message.assistant(text, id=text))


def calls(*ids: str, run: str = "r1", key: str = "") -> Entry:
    parts = tuple(ToolCallPart(i, "f", {}) for i in ids)
    return Entry("message", run, Message(Role.ASSISTANT, parts, id=key or "+".join(ids)))


def results(*ids: str, run: str = "r1", key: str = "") -> Entry:
    parts = tuple(ToolResultPart(i, "f", "out") for i in ids)
    return Entry("message", run, Message.tool_results(parts, id=key or "=".join(ids)))


def commit(run: str = "r1") -> Entry:
    return Entry("commit", run)


def compacted(*kept: str, run: str = "", **meta: Any) -> Entry:
    return Entry("compaction", run, meta={"kept_ids": list(kept), **meta})


def summary(text: str, run: str = "") -> Entry:
    return Entry("summary", run, Message.user(text, id=text))


def ids(*log: Entry) -> list[str]:
    return [m.id for m in conversation(log)]


def test_L95_only_committed_runs_are_the_conversation():
    assert ids(said("q"), answered("a"), commit()) == ["q", "a"]
    assert ids(said("q"), answered("a")) == []
    assert ids(said("q"), commit("other")) == []
    assert ids(said("lost", "r0"), said("q"), commit()) == ["q"]


def test_a_commit_takes_the_runs_messages_up_to_it():
    assert ids(said("q"), commit(), said("late")) == ["q"]
    assert ids(said("q"), commit(), said("late"), commit()) == ["q", "late"]


def test_a_run_that_is_resumed_later_is_whole():
    log = [
        said("q1"),
        said("q2", "r2"),
        answered("a2", "r2"),
        commit("r2"),
        answered("a1"),
        commit(),
    ]
    assert ids(*log) == ["q2", "a2", "q1", "a1"]


def test_B25_a_compaction_is_its_summary_and_what_it_kept():
    before = [
        said("q1"),
        answered("a1"),
        commit(),
        said("q2", "r2"),
        answered("a2", "r2"),
        commit("r2"),
    ]
    log = [*before, compacted("q2", "a2", summary_id="sum"), summary("sum")]
    assert ids(*log) == ["sum", "q2", "a2"]
    assert ids(*log, said("q3", "r3"), commit("r3")) == ["sum", "q2", "a2", "q3"]


def test_B25_without_a_summary_what_was_kept_is_all():
    log = [said("q1"), answered("a1"), said("q2"), commit(), compacted("q1", "q2", summary_id=None)]
    assert ids(*log) == ["q1", "q2"]


def test_B25_the_latest_pair_counts_and_may_keep_the_older_summary():
    log = [
        said("q1"),
        commit(),
        compacted("q1", summary_id="s1"),
        summary("s1"),
        said("q2", "r2"),
        commit("r2"),
    ]
    assert ids(*log, compacted("q2", summary_id="s2"), summary("s2")) == ["s2", "q2"]
    assert ids(*log, compacted("s1", "q2")) == ["s1", "q2"]


@pytest.mark.parametrize("broken", [
    [Entry("compaction", meta={})],
    [Entry("compaction", meta={"kept_ids": None})],
    [Entry("compaction", meta={"kept_ids": "q1"})],
    [compacted("q1", summary_id="s")],
    [compacted("q1", summary_id="s"), summary("another")],
    [compacted("q1", summary_id="s"), said("x", "r9")],
    [summary("s")],
])  # fmt: skip
def test_B25_no_valid_pair_changes_nothing(broken):
    assert ids(said("q1"), answered("a1"), commit(), *broken) == ["q1", "a1"]


def test_L96_a_compaction_inside_a_run_is_a_commit_point():
    """The run fails later: what the compaction kept of it stays, the rest of it does not come."""
    log = [said("old", "r0"), commit("r0"), said("q"), calls("c"), results("c")]
    cut = [compacted("q", "c", "c", run="r1", summary_id="s"), summary("s", "r1")]
    log[3] = calls("c", key="call")
    log[4] = results("c", key="result")
    cut[0] = compacted("q", "call", "result", run="r1", summary_id="s")
    assert ids(*log, *cut) == ["s", "q", "call", "result"]
    assert ids(*log, *cut, answered("end"), commit()) == ["s", "q", "call", "result", "end"]
    assert ids(*log, *cut, answered("end")) == ["s", "q", "call", "result"]


def test_a_compaction_leaves_another_runs_messages_waiting():
    log = [said("killed", "r0"), said("q"), commit(), compacted("q")]
    assert ids(*log, answered("late", "r0"), commit("r0")) == ["q", "killed", "late"]


def test_reset_starts_anew():
    log = [said("q1"), commit(), Entry("reset", ""), said("q2", "r2"), commit("r2")]
    assert ids(*log) == ["q2"]
    assert ids(*log, Entry("reset", "")) == []


def test_undo_takes_runs_out_by_a_marker():
    log = [said("q1"), commit(), said("q2", "r2"), commit("r2"), said("q3", "r3"), commit("r3")]
    undo = Entry("undo", "", meta={"run_ids": ["r2", "r3"]})
    assert ids(*log, undo) == ["q1"]
    assert ids(*log, undo, said("q4", "r4"), commit("r4")) == ["q1", "q4"]
    assert ids(*log, Entry("undo", "", meta={"run_ids": ["r2"]})) == ["q1", "q3"]
    assert ids(*log, Entry("undo", "", meta={})) == ["q1", "q2", "q3"]


def test_undo_takes_back_the_compaction_that_the_run_made():
    log = [
        said("q1"),
        answered("a1"),
        commit(),
        said("q2", "r2"),
        compacted("q2", run="r2", summary_id="s"),
        summary("s", "r2"),
        answered("a2", "r2"),
        commit("r2"),
    ]
    assert ids(*log) == ["s", "q2", "a2"]
    assert ids(*log, Entry("undo", "", meta={"run_ids": ["r2"]})) == ["q1", "a1"]


def test_undo_takes_kept_messages_out_of_a_later_compaction():
    log = [
        said("q1"),
        commit(),
        said("q2", "r2"),
        commit("r2"),
        compacted("q1", "q2", summary_id="s"),
        summary("s"),
    ]
    assert ids(*log, Entry("undo", "", meta={"run_ids": ["r2"]})) == ["s", "q1"]


def test_K06_blank_assistant_messages_are_not_in_the_view():
    blank = Entry("message", "r1", Message(Role.ASSISTANT, (), id="thinking only"))
    white = Entry("message", "r1", Message.assistant("\n ", id="white"))
    log = [said("q"), blank, said("q2"), white, answered("a"), commit()]
    assert ids(*log) == ["q", "q2", "a"]
    mixed = Message(Role.ASSISTANT, (TextPart(" \n"), ToolCallPart("c", "f", {})), id="mixed")
    (_, kept, _) = conversation([said("q"), Entry("message", "r1", mixed), results("c"), commit()])
    assert [type(p) for p in kept.parts] == [ToolCallPart]


def test_P01_what_a_cut_parts_is_left_out():
    log = [
        said("q"),
        calls("A", "B", key="both"),
        results("A", key="ra"),
        results("B", key="rb"),
        answered("a"),
        commit(),
    ]
    view = conversation([*log, compacted("rb", "a")])
    assert [m.id for m in view] == ["a"]
    view = conversation([*log, compacted("both", "ra", "a")])
    assert [p.id for p in view[0].tool_calls] == ["A"]
    assert [m.id for m in view] == ["both", "ra", "a"]


def test_paired_with_a_reused_id_takes_the_latest_open_call():
    one, two = calls("c", key="1").message, calls("c", key="2").message
    answer = results("c", key="r").message
    assert [m.id for m in paired([one, two, answer])] == ["2", "r"]
    assert [m.id for m in paired([one, answer, two])] == ["1", "r"]
    assert [m.id for m in paired([answer, one])] == []


def test_paired_leaves_legal_messages_as_they_are():
    legal = [said("q").message, calls("A", "B").message, results("A", "B").message]
    assert all(new is old for new, old in zip(paired(legal), legal, strict=True))


def test_a_call_that_loses_its_part_loses_its_state():
    message = Message(
        Role.ASSISTANT, (TextPart("t"), ToolCallPart("c", "f", {})), id="m", provider_state={"s": 1}
    )
    (kept,) = paired([message])
    assert kept.parts == (TextPart("t"),)
    assert kept.provider_state is None


def legal(messages: tuple[Message, ...]) -> None:
    """Each result has its call before it, each call all its results, nothing is blank."""
    open_calls: list[str] = []
    for message in messages:
        assert message.parts
        for part in message.parts:
            if isinstance(part, ToolCallPart):
                open_calls.append(part.id)
            elif isinstance(part, ToolResultPart):
                assert part.call_id in open_calls
                open_calls.remove(part.call_id)
            elif message.role is Role.ASSISTANT:
                assert part.text.strip()
    assert open_calls == []


run_names = st.sampled_from(["r1", "r2", "r3"])
call_ids = st.lists(st.sampled_from("ABC"), min_size=1, max_size=3)
entries = st.one_of(
    st.builds(lambda t, r: said(t, r), st.sampled_from("uvw"), run_names),
    st.builds(lambda t, r: answered(t, r), st.sampled_from(["x", " ", ""]), run_names),
    st.builds(lambda i, r: calls(*i, run=r), call_ids, run_names),
    st.builds(lambda i, r: results(*i, run=r), call_ids, run_names),
    run_names.map(commit),
    st.builds(
        lambda kept, r, s: Entry("compaction", r, meta={"kept_ids": kept, "summary_id": s}),
        st.lists(st.sampled_from(["u", "v", "x", "A", "B", "A+B", "A=B", "S"]), max_size=5),
        st.sampled_from(["", "r1"]),
        st.sampled_from([None, "S"]),
    ),
    st.just(summary("S")),
    run_names.map(lambda r: Entry("undo", "", meta={"run_ids": [r]})),
    st.just(Entry("reset", "")),
)


@settings(max_examples=500)
@given(st.lists(entries, max_size=25))
def test_any_log_gives_a_legal_conversation(log):
    view = conversation(log)
    legal(view)
    assert conversation(log) == view  # pure
    assert {e.kind for e in log} <= set(LOG_KINDS)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=8), st.data())
def test_whole_runs_with_tools_survive_any_legal_cut(plan, data):
    """Committed runs are in the view word for word; a cut at a run's border keeps the rest whole."""
    log, expected = [], []
    for n, (keep, tools) in enumerate(plan):
        run = f"run{n}"
        messages = [said(f"q{n}", run)]
        for t in range(tools):
            messages += [
                calls(f"c{n}.{t}", run=run, key=f"a{n}.{t}"),
                results(f"c{n}.{t}", run=run, key=f"t{n}.{t}"),
            ]
        messages.append(answered(f"e{n}", run))
        log += messages + ([commit(run)] if keep else [])
        if keep:
            expected.append([e.message for e in messages])
    assert conversation(log) == tuple(m for run in expected for m in run)
    cut = data.draw(st.integers(0, len(expected)))
    tail = [m for run in expected[cut:] for m in run]
    view = conversation([*log, compacted(*[m.id for m in tail], summary_id="S"), summary("S")])
    assert view == (Message.user("S", id="S"), *tail)
