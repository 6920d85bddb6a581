"""Labs, comparisons, facts and charts at their edges: what is refused, said and shown."""

from __future__ import annotations

import builtins
import dataclasses

import pytest

from notebook_agent import AgentRuntime, Message, RetryPolicy, ScriptedModel, ask
from notebook_agent.core import agent_events as ev
from notebook_agent.core.messages import ImagePart, Role, TextPart, ToolCallPart
from notebook_agent.engine.clock import pinned
from notebook_agent.engine.store.jsonl import export_runs
from notebook_agent.engine.store.run_file import read_run_file
from notebook_agent.errors import ConfigError
from notebook_agent.providers.scripted_reply import Reply
from notebook_agent.tuning import charts
from notebook_agent.tuning.chart import bar
from notebook_agent.tuning.chart_events import events_of, latency_rows
from notebook_agent.tuning.compaction_lab import CompactionLab
from notebook_agent.tuning.compare import compare
from notebook_agent.tuning.facts import Context, Fact, facts_of
from notebook_agent.tuning.material import material
from notebook_agent.tuning.pairs import paired
from notebook_agent.tuning.prompts import PromptLab
from notebook_agent.tuning.scorers import Judge, exact, pydantic_model, score, scorer
from tests.tuning.test_compaction_lab import CUT, SMALL, talk


class Printer:
    """What IPython hands to ``_repr_pretty_``."""

    def __init__(self):
        self.said = ""

    def text(self, words):
        self.said += words


def pretty(thing):
    printer = Printer()
    thing._repr_pretty_(printer, False)
    return printer.said


# ---- labs --------------------------------------------------------------------------------------


def prompts(**over):
    given = dict(models=ScriptedModel("Paris"), scorers=[exact()], surroundings=pinned())
    return PromptLab(
        over.pop("variants", {"a": "Capital of {{c}}?", "b": "{{c}}?"}),
        over.pop("inputs", [{"c": "France", "expected": "Paris"}]),
        **{**given, **over},
    )


def look(box: int) -> str:
    """Look."""
    return "apples"


def test_other_tools_and_other_retries_are_other_cells_but_another_observer_is_not(tmp_path):
    def asked(**settings):
        model = ScriptedModel("Paris")
        with prompts(models=model, journal=tmp_path / "j.db", **settings) as one:
            one.run()
        return len(model.calls)

    assert asked() == 2
    assert asked(tools=[look]) == 2
    assert asked(retry=RetryPolicy(max_retries=1)) == 2
    assert asked(observers=[]) == asked(tools=[look]) == asked() == 0


def test_a_bad_cell_of_a_lab_lets_the_journal_go(tmp_path):
    with pytest.raises(ConfigError, match="JSON values"):
        prompts(inputs=[{"c": "x", "o": object()}], journal=tmp_path / "j.db")
    with prompts(journal=tmp_path / "j.db") as one:  # not "in use by another sweep"
        assert one.run().frame()["status"].tolist() == ["done"] * 2


def test_a_judge_grades_no_reply_that_is_not_there_and_equal_replies_once():
    judge = ScriptedModel("SCORE: 5", name="judge")
    model = ScriptedModel("Paris", script="400,ok")
    one = prompts(models=model, scorers=[Judge(model=judge)], repeats=3)
    frame = one.run().frame()
    assert (frame["status"] == "failed").sum() == 1
    assert frame["judge"].notna().sum() == 5
    assert len(judge.calls) == 2  # one for each variant's question and its one reply


def test_bad_words_of_results_and_scorers_are_refused_with_what_is_legal():
    result = prompts().run()
    with pytest.raises(ConfigError, match="variant or model"):
        result.compare("a", "b", by="colour")
    with pytest.raises(ConfigError, match="between 0 and 1"):
        result.compare("a", "b", confidence=95)
    with pytest.raises(ConfigError, match="one of a, b"):
        result.diff("a", "c")
    with pytest.raises(ConfigError, match=r"\(lowest, highest\)"):
        Judge(model="scripted:x", scale=(5, 1))
    assert score(scorer(lambda reply: float("nan")), "a", {}, {}).error == "no number: 'nan'"
    assert score(pydantic_model(list[int]), "no json", {}, {}).value == 0.0
    assert score(scorer(int), "3", {}, {}).value == 3.0


def test_a_function_without_a_signature_gets_the_reply():
    class Hidden:
        __signature__ = "none"
        __name__ = "hidden"

        def __call__(self, reply):
            return len(reply)

    assert score(scorer(Hidden()), "four", {}, {}).value == 4


def test_reports_tell_turns_and_refuse_what_is_not_there():
    report = CompactionLab(talk(), {"small": SMALL, "cut": CUT}).run()
    turns = report.turns()
    assert set(turns["policy"]) == {"small", "cut"}
    assert turns[turns["compacted"]]["sent"].lt(turns[turns["compacted"]]["before"]).all()
    with pytest.raises(ConfigError, match="small, cut"):
        report.outcome("none")
    with pytest.raises(ConfigError, match="name, number, decision"):
        report.facts("colour")
    assert set(report.facts("number")["kind"]) == {"number"}
    assert report.outcome("cut").name == "cut"


def test_a_policy_may_name_its_summary_model():
    with pytest.raises(ConfigError, match="one or more"):
        CompactionLab(talk(3), {})
    written = dataclasses.replace(SMALL, strategy="model", summary_model="scripted:teacher")
    report = CompactionLab(talk(), {"written": written}).run()
    assert report.summary()["passes"].tolist()[0] > 0


def test_the_next_answer_may_be_a_tool_call():
    model = ScriptedModel(Reply(tool_calls=(ToolCallPart("c", "look", {"box": 1}),)))
    report = CompactionLab(talk(3), {"small": SMALL}, model=model).run()
    assert "[calls look]" in report.answers()["answer"].tolist()


# ---- compare and material ----------------------------------------------------------------------


@pytest.fixture
def runtime():
    made = AgentRuntime(ScriptedModel(["One $x$.", "Two."]), surroundings=pinned())
    made.run("Hi")
    made.run("Again")
    return made


def test_sessions_runtimes_files_and_paths_are_compared_alike(runtime, tmp_path):
    path = tmp_path / "run.jsonl"
    export_runs(runtime.store, runtime.session.id, path)
    other = ask("Hi", model=ScriptedModel("One $x$."))
    for same in (runtime.session, runtime, path, str(path), read_run_file(path)):
        found = compare(same, other)
        rows = found.summary.set_index("measure")
        assert (rows.loc["turns", "a"], rows.loc["turns", "change"]) == (2, -1)
        assert found.text.endswith("-Two.")
    assert str(compare(runtime.session.runs[0], other).text) == ""
    with pytest.raises(ConfigError, match="int cannot be compared"):
        compare(3, other)


def test_a_comparison_shows_itself_in_a_cell(runtime):
    found = compare(*runtime.session.runs)
    assert "<table" in found._repr_html_()
    assert pretty(found) == str(found)
    assert "input_tokens" in str(found)
    assert pretty(found.text) == str(found.text)
    assert "-One $x$." in pretty(found.text)


def test_a_conversation_that_is_material_already_is_taken_as_it_is():
    made = material(talk(3))
    assert material(made) is made


# ---- facts -------------------------------------------------------------------------------------


def test_a_name_is_found_between_words_only_and_behind_a_word_that_hides_it():
    fact = Fact("name", "src/a.py", 0)
    assert Context([Message.user("see src/a.py here")]).holds(fact) == "verbatim"
    glued = Context([Message.user("xsrc/a.pyz and src, a, py")])
    assert glued.holds(fact) == "lost"
    both = Context([Message.user("my_src/a.pyx src a py, then src/a.py")])
    assert both.holds(fact) == "verbatim"


def test_a_decision_without_words_of_its_own_is_looked_up_as_it_stands():
    assert (
        Context([Message.user("something else")]).holds(Fact("decision", "we do it", 0)) == "lost"
    )
    assert (
        Context([Message.user("So we do it.")]).holds(Fact("decision", "we do it", 0)) == "verbatim"
    )


def test_common_words_before_a_name_are_not_part_of_it():
    found = {f.text for f in facts_of([Message.user("ask her, The Marija knows; see I here")])}
    assert "Marija" in found
    assert not found & {"The Marija", "The", "I"}


def test_a_picture_says_nothing_that_could_be_looked_up():
    message = Message(Role.USER, (ImagePart("image/png", "UGFyaXM="), TextPart("It is in Split.")))
    assert {f.text for f in facts_of([message])} == {"Split"}


# ---- charts ------------------------------------------------------------------------------------


def test_a_chart_without_altair_says_what_draws_it(runtime, monkeypatch):
    monkeypatch.delenv("NOTEBOOK_AGENT_DISPLAY", raising=False)
    chart = charts.anatomy(runtime)
    real = builtins.__import__

    def no_altair(name, *rest, **more):
        if name.startswith("altair"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", no_altair)
    shown = chart._repr_mimebundle_()
    assert "pip install notebook-agent[tuning]" in shown["text/plain"]
    assert "<table" in shown["text/html"]
    assert set(shown) == {"text/plain", "text/html"}
    assert pretty(chart) == str(chart)


def test_a_comparison_without_scipy_keeps_its_difference(monkeypatch):
    real = builtins.__import__

    def no_scipy(name, *rest, **more):
        if name.startswith("scipy"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", no_scipy)
    found = paired({(n, 0): 0.0 for n in range(3)}, {(n, 0): float(n) for n in range(3)})
    assert (found.difference, found.low, found.high) == (1.0, None, None)
    assert found.note == "no interval without scipy: pip install notebook-agent[tuning]"


def test_runs_results_and_sessions_are_drawn_alike(runtime):
    run = runtime.session.runs[0]
    result = ask("Hi", model=ScriptedModel("One $x$."), surroundings=pinned())
    assert charts.turns_of(run) == list(run.turns)
    assert len(charts.turns_of(runtime.session)) == 2
    assert len(charts.turns_of(result)) == 1
    bare = dataclasses.replace(run.turns[0], context_ref=None, context_estimate=77)
    drawn = charts.anatomy(dataclasses.replace(run, turns=(bare,)))
    assert "77" in str(drawn)


def test_events_of_a_store_are_those_of_its_runtime(runtime):
    run = runtime.session.runs[-1].id
    assert events_of((runtime.store, run)) == events_of(runtime)
    assert len(events_of(runtime, all_runs=True)) > len(events_of(runtime))
    with pytest.raises(ConfigError, match="no events to draw"):
        events_of(["words"])


def test_nothing_has_no_width_and_an_instant_is_one_block():
    assert bar([1, 2], 0) == ""
    assert charts._span({"start": 0.0, "end": 0.0, "kind": "attempt"}, 0.0) == "█"


def test_a_rescue_has_a_bar_of_its_own(runtime):
    events = events_of(runtime)
    started = next(e for e in events if isinstance(e, ev.AttemptStarted))
    rescue = ev.RescueStarted(
        run_id=started.run_id, order=99, timestamp=started.timestamp, turn=0, deadline_s=5.0
    )
    rows = latency_rows([*events, rescue])
    assert rows[-1]["kind"] == "rescue"
    assert rows[-1]["outcome"] == "not ended"
