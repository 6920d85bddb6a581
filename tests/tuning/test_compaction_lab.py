"""tuning/compaction_lab.py, compaction_replay.py, facts.py, material.py, compare.py."""

from __future__ import annotations

import pytest

from notebook_agent import AgentRuntime, CompactionPolicy, Message, ScriptedModel, Session, ask
from notebook_agent.core.compaction import trigger
from notebook_agent.core.messages import Role, ToolCallPart, ToolResultPart
from notebook_agent.core.response import Usage
from notebook_agent.engine.clock import pinned
from notebook_agent.engine.store.jsonl import export_runs
from notebook_agent.engine.tokenizer import EstimatingCounter
from notebook_agent.errors import Cancelled, ConfigError
from notebook_agent.providers.scripted_reply import Reply
from notebook_agent.tuning.compaction_lab import CompactionLab, Plan
from notebook_agent.tuning.compare import compare
from notebook_agent.tuning.facts import Context, Fact, facts_of
from notebook_agent.tuning.lab_work import Price
from notebook_agent.tuning.material import material

SMALL = CompactionPolicy(window=2_000)
CUT = CompactionPolicy(window=2_000, strategy="truncate")


def talk(count=40, *, filler=12):
    out = []
    for n in range(count):
        call = ToolCallPart(f"c{n}", "look", {"box": n})
        out += [
            Message.user(f"What is in box {n + 100}? It is for Marija Novak."),
            Message(Role.ASSISTANT, (call,)),
            Message.tool_results((ToolResultPart(f"c{n}", "look", f"{n * 37} apples " * filler),)),
            Message.assistant(
                f"Box {n + 100} holds {n * 37} apples. We decided on plan {n + 100}."
            ),
        ]
    return out


def lab(policies=None, source=None, **given):
    return CompactionLab(
        talk() if source is None else source,
        policies or {"small": SMALL, "cut": CUT},
        counter=EstimatingCounter(),
        surroundings=pinned(),
        **given,
    )


# ---- replay ------------------------------------------------------------------------------------


def test_each_policy_says_where_it_fired_and_what_it_freed():
    report = lab({"small": SMALL, "cut": CUT, "never": CompactionPolicy(window=0)}).run()
    summary = report.summary().set_index("policy")
    assert summary.loc["never", "passes"] == 0
    assert summary.loc["never", ["names", "numbers", "decisions"]].tolist() == [1.0, 1.0, 1.0]
    for name in ("small", "cut"):
        assert summary.loc[name, "applied"] > 0
        assert summary.loc[name, "peak"] <= 2_000 * 0.95
    passes = report.passes()
    assert (passes["tokens_after"] < passes["tokens_before"]).all()
    assert (passes["saved"] == passes["tokens_before"] - passes["tokens_after"]).all()
    assert set(passes["reason"]) == {"threshold"}


def test_every_message_has_a_fate_and_the_fates_add_up():
    report = lab().run()
    for outcome in report.outcomes:
        fates = [f.fate for f in outcome.fates]
        assert len(fates) == len(report.material.messages) == 159
        ids = {m.id for m in outcome.view}
        kept = [m.id in ids for m in report.material.messages]
        assert [fate == "kept" for fate in fates] == kept
    assert set(report.messages("cut")["fate"]) == {"kept", "left out"}
    assert set(report.messages("small")["fate"]) == {"kept", "summarised"}
    both = report.messages()
    assert both.columns.tolist() == ["place", "role", "text", "tokens", "small", "cut"]
    row = report.messages("cut").query("fate == 'left out'").iloc[0]
    assert row["turn"] > 0
    assert row["tokens_after"] == 0


def test_a_shortened_message_is_told_from_a_kept_one():
    long = [*talk(2), Message.user("Show all."), Message.assistant("word " * 3_000), Message.user("And now?")]  # fmt: skip
    report = lab({"cut": CUT}, long).run()
    fates = report.messages("cut")
    assert "shortened" in set(fates["fate"])
    row = fates[fates["fate"] == "shortened"].iloc[0]
    assert 0 < row["tokens_after"] < row["tokens"]


def test_the_replay_is_what_the_engine_does():
    """The same conversation as a live run: the same passes at the same turns.

    Without calibration: what a provider would have reported for other contexts is not in a record.
    """
    count = 30
    replies = [f"Answer {n}: " + "apples and pears " * 12 for n in range(count)]
    model = ScriptedModel(replies, window=1_500)
    counter = EstimatingCounter()
    runtime = AgentRuntime(model, counter=counter, surroundings=pinned(), calibrate=False)
    live = []
    for n in range(count):
        runtime.run(f"Question {n}?")
        events = runtime.store.events(runtime.session.runs[-1].id)
        live += [
            (n, e.tokens_before, e.tokens_after)
            for e in events
            if type(e).__name__ == "CompactionCompleted" and e.applied
        ]
    assert live, "the live session never compacted"
    report = CompactionLab(
        runtime, {"same": CompactionPolicy()}, counter=counter, surroundings=pinned()
    ).run()
    replayed = [
        (p.turn, p.result.tokens_before, p.result.tokens_after)
        for p in report.outcome("same").applied
    ]
    # the lab looks once more, before the question that has not been asked yet
    assert replayed[: len(live)] == live


def test_a_context_that_cannot_fit_is_said_with_its_turn():
    huge = [Message.user("word " * 4_000), Message.assistant("Yes."), Message.user("Go on.")]
    report = lab({"small": SMALL}, huge).run()
    assert report.summary()["stuck"].tolist() == [0]


def test_system_and_tools_count_as_reserved():
    plain = lab().run().outcome("small")
    heavy = lab(system="rules " * 300).run().outcome("small")
    assert heavy.reserved > plain.reserved
    assert heavy.points[0].before - plain.points[0].before == heavy.reserved - plain.reserved


# ---- summaries and answers ---------------------------------------------------------------------

SUMMARY = "## Goal\nFill the boxes.\n## Decisions\nWe decided on plan 101. Marija Novak, 37 apples."


def test_the_summariser_is_asked_its_cost_told_and_its_words_are_instructions():
    asked = []

    def write(request):
        asked.append(request.messages[-1].text_content())
        return Reply(text=SUMMARY, usage=Usage(input_tokens=100, output_tokens=10))

    plan = Plan(
        policy=CompactionPolicy(window=2_000, strategy="model", summary_model="scripted:sum"),
        instructions="Keep every number.",
    )
    writer = ScriptedModel(write, name="sum")
    report = lab(
        {"model": plan},
        summarisers={"scripted:sum": writer},
        prices={"scripted:sum": Price(10.0, 100.0)},
    ).run()
    row = report.summary().iloc[0]
    assert row["summary_calls"] == len(asked) > 0
    assert row["summary_in"] == 100 * len(asked)
    assert row["cost"] == pytest.approx(len(asked) * (100 * 10 + 10 * 100) / 1e6)
    assert all("Keep every number." in text for text in asked)
    facts = report.facts("decision").set_index("fact")["model"]
    assert facts["We decided on plan 101."] == "summary"
    assert facts["We decided on plan 102."] == "lost"


def test_a_model_strategy_without_a_model_is_refused_at_once():
    with pytest.raises(ConfigError, match="summary_model"):
        lab({"model": CompactionPolicy(strategy="model")})


def test_a_summariser_that_fails_is_a_failed_pass_not_a_crash():
    policy = CompactionPolicy(window=2_000, strategy="model", summary_model="scripted:sum")
    broken = ScriptedModel("x", name="sum", script="400")
    report = lab({"model": policy}, summarisers={"scripted:sum": broken}).run()
    assert "failed" in set(report.passes()["status"])
    assert report.summary()["applied"].tolist() == [0]


def test_next_answers_stand_beside_the_recorded_one():
    model = ScriptedModel(lambda request: f"I see {len(request.messages)} messages.")
    report = lab(model=model).run()
    answers = report.answers().set_index("policy")["answer"]
    assert answers["(recorded)"].startswith("Box 139")
    assert answers["small"] != answers["cut"]
    broken = lab({"small": SMALL}, model=ScriptedModel("x", script="400")).run()
    assert broken.answers()["error"].notna().tolist() == [False, True]


def test_stopping_keeps_the_policies_that_are_done():
    seen = []

    def stop():
        if len(seen) == 1:
            raise Cancelled

    import asyncio

    one = lab()
    with pytest.raises(Cancelled) as caught:
        asyncio.run(one.arun(progress=seen.append, check=stop))
    assert [o.name for o in caught.value.result.outcomes] == ["small"]


# ---- facts -------------------------------------------------------------------------------------


def facts(*texts):
    return {(f.kind, f.text) for f in facts_of([Message.user(t) for t in texts])}


def test_names_numbers_and_decisions_are_found():
    found = facts(
        "We decided to use Postgres 15.2 in src/db.py for Marija Novak. It costs $1,200 or 35 %.",
        "Then Ask again. The file parse_url and camelCase matter; see https://example.org/a?b=1.",
    )
    for one in [
        ("number", "15.2"), ("number", "$1,200"), ("number", "35 %"), ("name", "Postgres"),
        ("name", "src/db.py"), ("name", "Marija Novak"), ("name", "parse_url"),
        ("name", "camelCase"), ("name", "https://example.org/a?b=1"),
    ]:  # fmt: skip
        assert one in found, (one, found)
    assert any(kind == "decision" and "Postgres 15.2" in text for kind, text in found)
    assert not {text for kind, text in found if kind == "name"} & {"We", "It", "Then", "The"}


def test_words_that_only_begin_sentences_are_no_names():
    assert not any(
        kind == "name" for kind, _ in facts("Please look. Boxes are there. Nothing else.")
    )
    assert ("name", "Ljubljana") in facts("I live in Ljubljana. Ljubljana is nice.")


def test_other_scripts_do_not_break_it():
    assert ("number", "42") in facts("Мария Новак купила 42 яблока. 箱は100個です。")
    assert facts_of([Message.user("")]) == ()


@pytest.mark.parametrize(
    ("fact", "text", "where"),
    [
        (Fact("number", "12", 0), "there are 12 apples", "verbatim"),
        (Fact("number", "12", 0), "there are 112 apples", "lost"),
        (Fact("number", "12", 0), "there are 12.5 apples", "lost"),
        (Fact("name", "Ann", 0), "Anna came", "lost"),
        (Fact("name", "Ann", 0), "ANN came", "verbatim"),
        (Fact("name", "src/a.py", 0), "in src/a.pyc only", "lost"),
        (Fact("name", "src/a.py", 0), "in `src/a.py` only", "verbatim"),
        (Fact("decision", "We agreed to keep the blue boxes until May 12.", 0),
         "So: keep the blue boxes until May 12, as agreed", "verbatim"),
        (Fact("decision", "We agreed to keep the blue boxes until May 12.", 0),
         "So: keep the blue boxes until May 13, as agreed", "lost"),
        (Fact("decision", "We agreed to keep the blue boxes until May 12.", 0),
         "blue\nboxes\nuntil\nMay 12", "lost"),
    ],
)  # fmt: skip
def test_survival_is_a_rule_that_can_be_checked(fact, text, where):
    assert Context([Message.user(text)]).holds(fact) == where


def test_what_is_only_in_the_summary_is_said_to_be_there():
    report = lab({"small": SMALL}).run()
    frame = report.facts()
    assert {"verbatim", "summary", "lost"} >= set(frame["small"])
    assert "summary" in set(frame["small"])
    counts = frame.groupby("kind")["small"].apply(lambda s: (s != "lost").mean())
    row = report.summary().iloc[0]
    assert row["numbers"] == pytest.approx(counts["number"])


# ---- where the conversation comes from ---------------------------------------------------------


def chatty(count=14, **given):
    replies = [f"Answer {n}: " + "apples and pears " * 20 for n in range(count)]
    runtime = AgentRuntime(ScriptedModel(replies), counter=EstimatingCounter(), **given)
    for n in range(count):
        runtime.run(f"Question {n} about 10{n}?")
    return runtime


def test_a_compacted_session_is_replayed_from_its_log_as_it_was_said(tmp_path):
    runtime = chatty(compaction=CompactionPolicy(window=1_200))
    assert len(runtime.session.history) < 28
    found = material(runtime)
    texts = [m.text_content() for m in found.messages if m.role is Role.USER]
    assert texts == [f"Question {n} about 10{n}?" for n in range(14)]
    assert found.answer.startswith("Answer 13")
    assert found.reserved is not None
    by_store = material((runtime.store, runtime.session.name))
    assert by_store.messages == found.messages
    path = export_runs(runtime.store, runtime.session.id, tmp_path / "talk.jsonl")
    assert [m.text_content() for m in material(path).messages] == [
        m.text_content() for m in found.messages
    ]


def test_a_log_with_shortened_copies_gives_each_message_once():
    def long():
        """Give much."""
        return "row of data " * 900

    calls = Reply(tool_calls=(ToolCallPart("c1", "long", {}),))
    runtime = AgentRuntime(
        ScriptedModel([calls, "Done.", *["Fine."] * 5]), tools=[long], counter=EstimatingCounter(),
        compaction=CompactionPolicy(window=2_500, strategy="truncate"),
    )  # fmt: skip
    for text in ("Go.", "Next.", "And?", "So?"):
        runtime.run(text)
    entries = runtime.store.list_messages(runtime.session.id)
    logged = [e.message for e in entries if e.kind == "message"]
    found = material(runtime).messages
    results = [m for m in found if m.results]
    assert len(results) == 1
    assert len(results[0].results[0].output) == max(
        len(m.results[0].output) for m in logged if m.results
    )


def test_an_undone_run_and_what_was_before_a_reset_are_not_replayed():
    runtime = chatty(4)
    runtime.undo(1)
    assert len([m for m in material(runtime).messages if m.role is Role.USER]) == 3
    runtime.reset()
    runtime.run("Fresh?")
    assert [m.text_content() for m in material(runtime).messages] == ["Fresh?"]


def test_a_session_object_is_its_working_view():
    session = Session(history=[m.with_id(f"m{n}") for n, m in enumerate(talk(2))])
    assert len(material(session).messages) == 7


def test_sources_that_cannot_be_replayed_are_said():
    for bad in (3, [1, 2], Session(), []):
        with pytest.raises(ConfigError):
            material(bad)
    with pytest.raises(ConfigError, match="no session 'x'"):
        material((AgentRuntime(ScriptedModel("a")).store, "x"))


# ---- compare -----------------------------------------------------------------------------------


def test_two_policies_are_compared_on_a_conversation():
    found = compare(SMALL, CUT, on=talk(), names=("small", "cut"))
    summary = found.summary.set_index("measure")
    assert summary.loc["window", "change"] == 0
    assert summary.loc["dropped", "a"] > 0
    assert found.report is not None
    with pytest.raises(ConfigError, match="on a conversation"):
        compare(SMALL, CUT)


def test_two_runs_are_compared_turn_by_turn():
    one = ask("Hi", model=ScriptedModel("Hello.\nBye."))
    two = ask("Hi", model=ScriptedModel("Hello.\nSo long."))
    found = compare(one, two, names=("first", "second"))
    assert "--- first" in found.text
    assert "+So long." in found.text
    assert found.turns["model_a"].tolist() == ["scripted:scripted"]
    assert found.summary.set_index("measure").loc["turns", "change"] == 0
    assert "measure" in str(found)
    with pytest.raises(ConfigError, match="cannot be compared"):
        compare(one, 3)


def test_the_trigger_is_the_engines_own():
    outcome = lab({"small": SMALL}).run().outcome("small")
    for point in outcome.points:
        fired = trigger(SMALL, point.before, 2_000) is not None
        assert point.compacted == fired
