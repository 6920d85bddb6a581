"""Labs, scores, statistics and charts under odd use, checked by an independent calculation."""

from __future__ import annotations

import random
import re

import numpy as np
import pandas as pd
import pytest

from notebook_agent import CompactionPolicy, Message, RuntimePolicy, ScriptedModel
from notebook_agent.core.context import sum_tokens
from notebook_agent.core.messages import ToolCallPart
from notebook_agent.core.response import Usage
from notebook_agent.errors import ConfigError
from notebook_agent.providers.scripted import Reply
from notebook_agent.tuning import charts
from notebook_agent.tuning.compaction_lab import CompactionLab
from notebook_agent.tuning.compare import compare
from notebook_agent.tuning.lab_work import Price
from notebook_agent.tuning.pairs import paired
from notebook_agent.tuning.prompts import PromptLab, Variant
from notebook_agent.tuning.scorers import Judge, Scorer, exact, score


def lab(variants=None, inputs=None, reply="x", **given):
    model = given.pop("models", None) or ScriptedModel(lambda _: reply)
    return PromptLab(variants or {"a": "Q {{q}}"}, inputs or [{"q": "1"}], models=model, **given)


def judge(read, prompt="{{reply}}", **given):
    return Judge(model=ScriptedModel(read, name="judge"), prompt=prompt, **given)


# ---- judges ----------------------------------------------------------------------------------


def test_a_judge_that_is_shown_the_inputs_grades_each_by_its_own():
    """Same prompt, same reply, another expectation: two questions, two grades."""
    grading = judge(
        lambda r: "SCORE: 5" if "want A" in str(r) else "SCORE: 1", "{{reply}} want {{expected}}"
    )
    inputs = [{"q": "1", "expected": "A"}, {"q": "1", "expected": "B"}]
    assert lab(inputs=inputs, scorers=[grading]).run().frame()["judge"].tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("said", "scale", "wanted"),
    [
        ("SCORE: -3", (-5, 5), 0.2),
        ("-3", (-5, 5), 0.2),
        ("SCORE: -1", (1, 5), None),
        ("**SCORE: 3**", (1, 5), 0.5),
        ("SCORE: 4,5", (1, 5), 0.875),
        ("SCORE： 3", (1, 5), 0.5),
        ("SCORE: 4/5", (1, 5), 0.75),
        ("SCORE: 1e3", (1, 5), None),
        ("SCORE: 2\nSCORE: 5", (1, 5), 1.0),
        ("SCORE: 9", (1, 5), None),
        ("", (1, 5), None),
    ],
)
def test_the_grade_is_read_with_its_sign(said, scale, wanted):
    got = judge(lambda _: said, scale=scale).read(said)
    assert got.value == (None if wanted is None else pytest.approx(wanted))
    assert (got.error is None) == (wanted is not None)


def test_every_placeholder_is_looked_up_before_anything_is_sent():
    asked = []
    model = ScriptedModel(lambda r: asked.append(r) or "x")
    with pytest.raises(ConfigError, match=r"Judge 'judge' inserts \{\{expectd\}\}"):
        lab(models=model, scorers=[judge(lambda _: "SCORE: 3", "{{reply}} {{expectd}}")])
    with pytest.raises(ConfigError, match=r"Variant 'a' inserts \{\{lang\}\}"):
        lab(models=model, system="Speak {{lang}}.")
    with pytest.raises(ConfigError, match="input 0"):
        lab(models=model, variants={"a": Variant("Q", system="{{q.nothing}}")})
    assert asked == []


# ---- what is asked ---------------------------------------------------------------------------


def test_an_empty_system_prompt_of_a_variant_is_its_own():
    seen = []
    model = ScriptedModel(lambda r: seen.append(r.system) or "x")
    lab({"with": "Q", "without": Variant("Q", system="")}, models=model, system="S").run()
    assert sorted(seen, key=str) == [None, "S"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"inputs": [{"q": "1"}, {"q": "2"}, {"q": "1"}]}, "inputs 0 and 2 are equal"),
        ({"seeds": [1, 1]}, "seeds 0 and 1 are equal"),
        ({"variants": {"a": Variant("Q", options={"x": 1, "y": 2}), "b": Variant("Q", options={"y": 2, "x": 1})}}, "ask the same"),
        ({"scorers": [Scorer("reply", len)]}, "column of the frame is called 'reply'"),
        ({"scorers": [Scorer("a", len), Scorer("a_error", len)]}, "called 'a_error'"),
    ],
)  # fmt: skip
def test_what_would_be_mixed_up_is_refused(given, words):
    with pytest.raises(ConfigError, match=words):
        lab(**given)


class Quiet:
    def contribute(self, _turn, _conversation):
        return None


def test_objects_among_the_settings_do_not_ask_everything_again(tmp_path):
    count = [0]

    def answer(_request):
        count[0] += 1
        return "x"

    for _ in range(2):
        with lab(
            models=ScriptedModel(answer), journal=tmp_path / "j.db", contributors=[Quiet()],
            fallback=[ScriptedModel("f", name="backup")],
        ) as one:  # fmt: skip
            one.run()
    assert count == [1]


def test_a_cell_that_met_a_limit_says_so():
    def look(a: int) -> int:
        """Look."""
        return a

    model = ScriptedModel(lambda _: Reply(tool_calls=[ToolCallPart("c1", "look", {"a": 1})]))
    one = lab(models=model, tools=[look], policy=RuntimePolicy(max_iterations=2))
    assert one.run().frame()["run_status"].tolist() == ["limit_reached"]


def test_a_scorer_whose_error_cannot_be_read_costs_its_column():
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError("no words")

    def broken(_reply):
        raise Mute

    got = score(Scorer("s", broken), "r", {}, {})
    assert got.value is None
    assert got.error.startswith("Mute: ")


# ---- figures ---------------------------------------------------------------------------------


def test_the_paired_difference_agrees_with_numpy():
    rng = np.random.default_rng(2)
    shift = rng.normal(0.3, 1, 40)
    a = {(k, r): float(rng.normal()) for k in range(40) for r in range(3)}
    b = {(k, r): a[k, r] + float(shift[k]) + 0.1 * r for k in range(40) for r in range(3)}
    del b[3, 1], a[7, 0], a[7, 1], a[7, 2]
    found = paired(a, b)
    each = {}
    for k, r in set(a) & set(b):
        each.setdefault(k, []).append(b[k, r] - a[k, r])
    means = np.array([np.mean(each[k]) for k in sorted(each)])
    draw = np.random.default_rng(9)
    drawn = [means[draw.integers(0, len(means), len(means))].mean() for _ in range(20_000)]
    assert (found.inputs, found.pairs, found.dropped) == (39, 116, 4)
    assert found.difference == pytest.approx(means.mean())
    assert (found.low, found.high) == pytest.approx(np.percentile(drawn, [2.5, 97.5]), abs=0.02)


@pytest.mark.parametrize(
    ("steps", "note"),
    [
        ([0.0] * 5, "every input differs by the same"),
        ([1e-13 * n for n in range(5)], "few inputs: a rough interval"),
        ([1e9 + 1e-5 * (n % 2) for n in range(5)], "every input differs by the same"),
    ],
    ids=["equal", "tiny numbers", "rounding of large ones"],
)
def test_equal_differences_are_told_from_small_ones(steps, note):
    small = max(steps) < 1
    base = 1e-13 if small else 0.1
    a = {(n, 0): base * n for n in range(5)}
    found = paired(a, {(n, 0): a[n, 0] + step for n, step in enumerate(steps)})
    assert found.note == note
    assert found.low <= found.difference <= found.high


def test_means_medians_and_costs_agree_with_pandas():
    rng = random.Random(0)

    def answer(request):
        if "boom" in str(request):
            raise RuntimeError("down")
        usage = Usage(
            input_tokens=100 + rng.randint(0, 50),
            output_tokens=rng.randint(1, 40),
            cached_input_tokens=rng.choice([None, 20, 80]),
        )
        return Reply(text=str(rng.randint(0, 3)), usage=usage)

    models = [ScriptedModel(answer, name=name) for name in ("m1", "m2")]
    one = lab(
        {"a": "A {{n}}", "b": "B {{n}}"},
        [*({"n": str(n)} for n in range(6)), {"n": "boom"}],
        models=models, seeds=[1, None], repeats=2,
        scorers=[exact("n"), Scorer("some", lambda r: None if r == "1" else int(r))],
        prices={"scripted:m1": Price(3, 15, 0.3)},
    )  # fmt: skip
    result = one.run()
    frame, summary = result.frame(), result.summary()
    for (variant, model), rows in frame.groupby(["variant", "model"]):
        row = summary[(summary["variant"] == variant) & (summary["model"] == model)].iloc[0]
        good = rows[rows["status"] == "done"]
        assert (row["cells"], row["done"]) == (len(rows), len(good)) == (28, 24)
        for name in ("exact", "some", "input_tokens", "output_tokens"):
            assert row[name] == pytest.approx(good[name].dropna().astype(float).mean())
        assert row["seconds"] == pytest.approx(float(good["seconds"].median()))
        if model == "scripted:m2":
            assert pd.isna(row["cost"])
            continue
        cost = 0.0
        for kept in (r.value for r in result.rows if r.place in good.index):
            hit = kept["cached_input_tokens"] or 0
            cost += (kept["input_tokens"] - hit) * 3 + hit * 0.3 + kept["output_tokens"] * 15
        assert row["cost"] == pytest.approx(cost / 1e6)
    good = frame[frame["status"] == "done"].assign(seed=frame["seed"].fillna(-1).astype(int))
    sides = good.set_index(["input", "model", "seed", "repeat", "variant"])["some"].astype("Float64").unstack("variant").dropna()  # fmt: skip
    found = result.compare("a", "b", metrics=["some"]).iloc[0]
    steps = (sides["b"] - sides["a"]).groupby("input").mean()
    assert found["pairs"] == len(sides)
    assert found["difference"] == pytest.approx(float(steps.mean()))


def test_variants_can_be_compared_before_any_answer_came():
    result = lab({"a": "A", "b": "B"}, scorers=[exact("q")]).result()
    assert result.compare("a", "b")["note"].unique().tolist() == ["no cell has both"]
    with pytest.raises(ConfigError, match="one of a, b"):
        result.compare("a", "c")


# ---- compaction ------------------------------------------------------------------------------


def talk(count=40):
    out = []
    for n in range(count):
        out.append(Message.user(f"Box {n}: what is in it for Marija Novak, {n * 37 + 10} EUR?"))
        out.append(Message.assistant(f"Apples{n}. " * 20 + "We decided to keep the blue ones."))
    return out


def test_fates_tokens_and_facts_agree_with_what_is_sent():
    report = CompactionLab(
        talk(),
        {
            f"{s} {w}": CompactionPolicy(window=w, strategy=s)
            for s in ("extractive", "truncate")
            for w in (1_000, 3_000)
        },
    ).run()
    said = [m.text_content() for m in report.material.messages]
    facts, summary = report.facts(), report.summary().set_index("policy")
    for name in summary.index:
        view = [m.text_content() for m in report.outcome(name).view]
        row = summary.loc[name]
        assert row["next"] == sum_tokens(report.counter, report.outcome(name).view)
        assert row["kept"] + row["shortened"] + row["dropped"] == len(said)
        for text, fate in zip(said, report.messages(name)["fate"], strict=True):
            assert (text in view) == (fate == "kept")
        numbers = facts[facts["kind"] == "number"]
        whole = " ".join(view)
        for fact, where in zip(numbers["fact"], numbers[name], strict=True):
            there = re.search(rf"(?<![\w.]){re.escape(fact)}(?!\w)", whole)
            assert (there is not None) == (where != "lost"), fact
        turns = report.turns()
        assert row["peak"] == turns[turns["policy"] == name]["sent"].max()


def test_a_client_that_raises_what_it_likes_is_an_answer_too():
    def down(_request):
        raise RuntimeError("no power")

    report = CompactionLab(
        talk(), {"m": CompactionPolicy(window=1_000, strategy="model")}, model=ScriptedModel(down)
    ).run()
    assert "no power" in report.answers()["error"][1]
    assert report.summary()["applied"][0] == 0


def test_a_policy_called_like_a_column_is_refused():
    with pytest.raises(ConfigError, match="called 'place'"):
        CompactionLab(talk(2), {"place": CompactionPolicy()})


def test_two_policies_of_one_name_and_the_conversation_of_a_lab():
    one, two = CompactionPolicy(window=1_000), CompactionPolicy(window=2_000)
    with pytest.raises(ConfigError, match="two different names"):
        compare(one, two, on=talk(), names=("x", "x"))
    other = CompactionLab(talk(), {"third": CompactionPolicy(window=500)})
    found = compare(one, two, on=other, names=("one", "two"))
    assert [o.name for o in found.report.outcomes] == ["one", "two"]
    assert [o.window for o in found.report.outcomes] == [1_000, 2_000]


# ---- charts ----------------------------------------------------------------------------------


def test_rows_of_a_frame_with_holes_can_be_drawn():
    frame = pd.DataFrame({"system": [1, None], "history": pd.array([5, None], dtype="Int64")})
    rows = frame.to_dict("records")
    for draw in (charts.anatomy, charts.tokens):
        assert "vega" in str(draw(rows)._repr_mimebundle_())
    with pytest.raises(ConfigError, match="row 0, history"):
        charts.anatomy([{"history": "many"}])


@pytest.mark.parametrize("odd", [None, [], "text", Message.user("hi")])
def test_what_is_no_report_is_said(odd):
    with pytest.raises(ConfigError, match="no report of a compaction lab"):
        charts.compaction(odd)
