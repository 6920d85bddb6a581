"""tuning/prompts.py, scorers.py, pairs.py, lab_result.py: the prompt lab."""

from __future__ import annotations

import re
import threading
from collections import Counter

import pytest
from pydantic import BaseModel

from notebook_agent import ScriptedModel
from notebook_agent.core.interpolate import placeholders
from notebook_agent.engine.clock import pinned
from notebook_agent.errors import Cancelled, ConfigError
from notebook_agent.providers.scripted_reply import Reply
from notebook_agent.tuning.compare import compare
from notebook_agent.tuning.lab_work import Price
from notebook_agent.tuning.pairs import paired
from notebook_agent.tuning.prompts import PromptLab, Variant
from notebook_agent.tuning.scorers import (
    Judge,
    exact,
    json_schema,
    matches,
    pydantic_model,
    score,
    scorer,
)

CAPITALS = {"France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Malta": "Valletta"}
INPUTS = [{"country": c, "expected": city} for c, city in CAPITALS.items()]
VARIANTS = {
    "plain": "What is the capital of {{country}}?",
    "short": "Capital of {{country}}? Answer with one word.",
}


def answer(request):
    asked = request.messages[-1].text_content()
    city = next(v for k, v in CAPITALS.items() if k in asked)
    return city if "one word" in asked else f"The capital is {city}."


def lab(**over):
    given = dict(models=ScriptedModel(answer), scorers=[exact()], surroundings=pinned())
    variants, inputs = over.pop("variants", VARIANTS), over.pop("inputs", INPUTS)
    return PromptLab(variants, inputs, **{**given, **over})


def test_variants_times_inputs_scored_and_summed_up():
    result = lab(prices={"scripted:scripted": Price(1.0, 2.0)}).run()
    frame = result.frame()
    assert len(frame) == 8
    assert frame[frame["variant"] == "short"]["exact"].tolist() == [1.0] * 4
    assert frame["reply"][0] == "The capital is Paris."
    row = frame.iloc[0]
    assert row["cost"] == pytest.approx((row["input_tokens"] + 2 * row["output_tokens"]) / 1e6)
    summary = result.summary().set_index("variant")
    assert summary["exact"].tolist() == [0.0, 1.0]
    assert summary["cells"].tolist() == [4, 4]
    assert summary["cost"]["plain"] == pytest.approx(
        frame[frame["variant"] == "plain"]["cost"].sum()
    )


def test_models_seeds_and_repeats_are_cells_of_their_own():
    seen = []

    def reply(request):
        return "x"

    one, two = ScriptedModel(reply, name="one"), ScriptedModel(reply, name="two")
    found = lab(models=[one, two], seeds=(1, 2), repeats=3, scorers=[]).run().frame()
    assert len(found) == 2 * 4 * 2 * 2 * 3
    seen = Counter(call.options.extra["seed"] for call in one.calls)
    assert seen == {1: 24, 2: 24}
    assert set(found["model"]) == {"scripted:one", "scripted:two"}


def test_a_missing_placeholder_is_said_before_anything_is_sent():
    model = ScriptedModel(answer)
    with pytest.raises(
        ConfigError, match=r"Variant 'bad' inserts \{\{town\}\}, and input 0 has no"
    ):
        lab(models=model, variants={"bad": "In {{town}}?"})
    with pytest.raises(ConfigError, match="input 0"):
        lab(models=model, variants={"bad": "In {{country.name}}?"})
    assert model.calls == []


def test_placeholders_follow_the_rule_of_the_cells():
    text = r"{{a}} {b} ${{c}} {{{d}}} \{{e}} {{f.g[0]}} {{ h }}"
    assert placeholders(text) == ("a", "f", "h")
    asked = []
    model = ScriptedModel(lambda r: asked.append(r.messages[-1].text_content()) or "ok")
    lab(
        models=model, variants={"v": r"{{country}} {b} \{{e}}"}, inputs=INPUTS[:1], scorers=[]
    ).run()
    assert asked == ["France {b} {{e}}"]


def test_a_model_that_fails_half_the_cells_gives_rows_with_errors():
    script = ",".join(["ok", "400"] * 4)
    result = lab(models=ScriptedModel(answer, script=script)).run()
    frame = result.frame()
    assert Counter(frame["status"]) == {"done": 4, "failed": 4}
    failed = frame[frame["status"] == "failed"]
    assert failed["error"].str.startswith("ProviderError").all()
    assert failed["exact"].isna().all()
    assert result.summary()["failed"].sum() == 4


def test_a_scorer_that_raises_or_gives_nonsense_is_a_column_not_a_crash():
    def picky(reply):
        if "Rome" in reply:
            raise ValueError("not Rome")
        return len(reply)

    def words(reply):
        return "many"

    def silent(reply):
        return None

    frame = lab(scorers=[picky, words, silent]).run().frame()
    raised = frame[frame["picky_error"].notna()]
    assert set(raised["input"]) == {1}
    assert raised["picky_error"].str.contains("not Rome").all()
    assert frame["words_error"].str.contains("no number").all()
    assert frame["silent"].isna().all()
    assert "silent_error" not in frame


def test_functions_get_what_they_ask_for():
    assert score(scorer(lambda reply: 1), "a", {}, {}).value == 1
    assert score(scorer(lambda reply, inputs: inputs["n"]), "a", {"n": 4}, {}).value == 4
    assert score(scorer(lambda reply, inputs, row: row["cost"]), "a", {}, {"cost": 2}).value == 2
    assert score(scorer(lambda *all_: len(all_)), "a", {}, {}).value == 3
    assert score(scorer(float), "2.5", {}, {}).value == 2.5
    with pytest.raises(ConfigError):
        scorer(lambda a, b, c, d: 1)
    with pytest.raises(ConfigError):
        scorer(3)


class City(BaseModel):
    name: str
    people: int


@pytest.mark.parametrize(
    ("given", "reply", "value"),
    [
        (exact(), " paris ", 1.0),
        (exact(case=True), "paris", 0.0),
        (exact("missing"), "x", None),
        (matches(r"^\w+$"), "Paris", 1.0),
        (matches("{{expected}}!"), "It is Paris!", 1.0),
        (matches("{{expected}}!"), "It is Rome!", 0.0),
        (matches("paris", flags=re.IGNORECASE), "PARIS", 1.0),
        (json_schema({"type": "object", "required": ["name"]}), '{"name": 1}', 1.0),
        (json_schema({"type": "object", "required": ["name"]}), "{}", 0.0),
        (json_schema({"type": "array"}), "```json\n[1]\n```", 1.0),
        (json_schema({"type": "array"}), "no json", 0.0),
        (pydantic_model(City), '{"name": "Paris", "people": 2}', 1.0),
        (pydantic_model(City), '{"name": "Paris"}', 0.0),
        (pydantic_model(list[int]), "[1, 2]", 1.0),
    ],
)
def test_ready_made_scorers(given, reply, value):
    got = score(given, reply, {"expected": "Paris"}, {})
    assert got.value == value
    assert (got.error is not None) == (value is None)


def test_a_pattern_that_is_none_is_refused():
    with pytest.raises(ConfigError, match="no regular expression"):
        matches("(")


def grader(request):
    asked = request.messages[-1].text_content()
    return f"Short is good.\nSCORE: {5 if 'The capital' not in asked else 2}"


def test_a_judge_grades_and_shows_what_it_was_asked():
    judge = Judge(model=ScriptedModel(grader, name="judge"))
    assert "{{reply}}" in repr(judge)
    result = lab(scorers=[exact(), judge]).run()
    assert result.summary()["judge"].tolist() == [0.25, 1.0]
    seen = result.judgements()
    assert len(seen) == 8
    assert seen["asked"].str.contains("What is the capital of France").any()
    assert set(seen["score"]) == {0.25, 1.0}


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ("SCORE: 3", 0.5),
        ("**Score**: 5", 1.0),
        ("4", 0.75),
        ("SCORE: 1\nno, better\nSCORE: 2", 0.25),
        ("SCORE: 9", None),
        ("It is good.", None),
    ],
)
def test_a_judges_reply_is_read_or_said_to_be_unreadable(said, value):
    got = Judge(model="scripted:j").read(said)
    assert got.value == value
    assert (got.error is None) == (value is not None)


def test_a_judge_that_fails_leaves_scores_empty_and_says_why():
    judge = Judge(model=ScriptedModel("x", name="judge", script="400"))
    frame = lab(scorers=[judge], inputs=INPUTS[:1]).run().frame()
    assert frame["judge"].isna().all()
    assert frame["judge_error"].str.contains("ProviderError").all()


def test_a_judge_must_see_the_reply():
    with pytest.raises(ConfigError, match="reply"):
        Judge(model="scripted:x", prompt="Is it good?")


def test_a_journal_answers_again_without_a_request_and_scorers_may_change(tmp_path):
    path = tmp_path / "lab.db"
    first, second = ScriptedModel(answer), ScriptedModel(answer)
    judge_one, judge_two = (ScriptedModel(grader, name="judge") for _ in range(2))
    with lab(models=first, journal=path, scorers=[Judge(model=judge_one)]) as one:
        one.run()
    scorers = [exact(), Judge(model=judge_two)]
    with lab(models=second, journal=path, scorers=scorers) as two:
        result = two.run()
    assert (len(first.calls), len(second.calls)) == (8, 0)
    assert (len(judge_one.calls), len(judge_two.calls)) == (8, 0)
    assert result.summary()["exact"].tolist() == [0.0, 1.0]
    renamed = {"a": VARIANTS["plain"], "b": VARIANTS["short"]}
    with lab(models=second, journal=path, variants=renamed) as three:
        assert set(three.run().frame()["variant"]) == {"a", "b"}
    assert second.calls == []


def test_another_setting_is_another_cell(tmp_path):
    path = tmp_path / "lab.db"
    model = ScriptedModel(answer)
    for options in ({}, {"temperature": 0.5}):
        with lab(models=model, journal=path, options=options, inputs=INPUTS[:1]) as one:
            one.run()
    with lab(models=model, journal=path, system="Be nice.", inputs=INPUTS[:1]) as one:
        one.run()
    assert len(model.calls) == 6


def test_an_interrupt_keeps_what_is_done_and_a_second_run_asks_the_rest():
    model = ScriptedModel(answer)
    one = lab(models=model, repeats=10)

    def stop(state):
        if state.done >= 8 and not state.finished:
            raise KeyboardInterrupt

    with pytest.raises(Cancelled, match="kept"):
        one.run(progress=stop)
    partial = one.result()
    done = (partial.frame()["status"] == "done").sum()
    assert 8 <= done < 80
    assert one.run().frame()["status"].eq("done").all()


def test_partial_results_are_usable_while_it_runs():
    gate = threading.Event()

    def slow(request):
        if "Malta" in request.messages[-1].text_content():
            assert gate.wait(10)
        return answer(request)

    one = lab(models=ScriptedModel(slow)).start()
    result = one.result()
    assert result.summary()["cells"].sum() <= 8
    assert "of 8 cells" in repr(result)
    gate.set()
    assert one.wait(20).frame()["status"].eq("done").all()


def test_compare_gives_paired_differences_with_intervals():
    result = lab().run()
    table = result.compare("plain", "short").set_index("metric")
    row = table.loc["exact"]
    assert (row["inputs"], row["difference"], row["low"], row["high"]) == (4, 1.0, 1.0, 1.0)
    assert table.loc["output_tokens"]["difference"] < 0
    with pytest.raises(ConfigError, match="plain, short"):
        result.compare("plain", "none")
    with pytest.raises(ConfigError):
        result.compare("plain", "short", metrics=["nonsense"])


def test_models_are_compared_too():
    good, bad = ScriptedModel(answer, name="good"), ScriptedModel("?", name="bad")
    result = lab(models=[bad, good], variants={"short": VARIANTS["short"]}).run()
    table = result.compare("scripted:bad", "scripted:good", by="model", metrics=["exact"])
    assert table["difference"].tolist() == [1.0]


def test_pairs_are_clustered_by_input_and_missing_partners_counted():
    a = {(n, (n, r)): float(n) for n in range(12) for r in range(3)}
    b = {key: value + 1 + (key[0] % 3) for key, value in a.items()}
    del b[0, (0, 0)]
    found = paired(a, b)
    assert (found.inputs, found.pairs, found.dropped) == (12, 35, 1)
    assert found.difference == pytest.approx(2.0)
    assert found.low < 2.0 < found.high
    assert paired(a, b) == found  # the same data, the same interval
    assert paired({(0, 0): 1.0}, {(1, 0): 1.0}).note == "no cell has both"
    assert paired({(0, 0): 1.0}, {(0, 0): 2.0}).low is None


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    import random

    rng = random.Random(3)
    hits = 0
    for seed in range(60):
        a = {(n, 0): rng.gauss(0, 1) for n in range(40)}
        b = {key: value + rng.gauss(0.5, 1) for key, value in a.items()}
        found = paired(a, b, resamples=999, seed=seed)
        hits += found.low <= 0.5 <= found.high
    assert 50 <= hits <= 60


def test_two_prompts_and_two_results_are_diffed():
    variants = {"a": Variant("One\nTwo", system="S"), "b": Variant("One\nThree", system="S")}
    one = lab(variants=variants, models=ScriptedModel("x"), scorers=[]).run()
    assert "-Two" in one.diff("a", "b")
    assert "+Three" in one.diff("a", "b")
    other = lab(variants=variants, models=ScriptedModel(["x", "y"]), scorers=[]).run()
    found = compare(one, other)
    assert "-x" in found.text
    assert found.turns["same_reply"].sum() == 1


def test_bad_labs_are_refused():
    with pytest.raises(ConfigError):
        lab(variants={})
    with pytest.raises(ConfigError):
        lab(models=[])
    with pytest.raises(ConfigError):
        lab(repeats=0)
    with pytest.raises(ConfigError, match="Two scorers"):
        lab(scorers=[exact(), exact()])
    with pytest.raises(ConfigError, match="ask the same"):
        lab(variants={"a": "x", "b": "x"})
    with pytest.raises(ConfigError, match="Two models"):
        lab(models=[ScriptedModel("a"), ScriptedModel("b")])
    with pytest.raises(ConfigError):
        lab(models="nosuchprovider:x")


def test_usage_that_is_not_reported_is_not_nought():
    model = ScriptedModel([Reply(text="Paris", usage=None)])
    frame = lab(models=model, prices={"scripted:scripted": Price(1, 1)}, inputs=INPUTS[:1]).run().frame()  # fmt: skip
    assert frame["input_tokens"].isna().all()
    assert frame["cost"].isna().all()


def test_the_system_prompt_may_differ_by_variant():
    model = ScriptedModel("x")
    variants = {"a": Variant("Hi", system="You know {{country}}."), "b": "Hi"}
    lab(models=model, variants=variants, inputs=INPUTS[:1], system="Base.", scorers=[]).run()
    assert sorted(str(r.system) for r in model.requests) == ["Base.", "You know France."]
