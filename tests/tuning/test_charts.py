"""tuning/chart.py, charts.py, chart_events.py: specifications, tables, sizes."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest

from notebook_agent import AgentRuntime, CompactionPolicy, ScriptedModel
from notebook_agent.core import agent_events as ev
from notebook_agent.core.messages import ToolCallPart
from notebook_agent.core.route import BreakerConfig
from notebook_agent.core.settings import RetryPolicy, StreamTimeouts
from notebook_agent.engine.clock import PinnedClock, pinned
from notebook_agent.errors import ConfigError
from notebook_agent.providers.scripted_reply import Reply
from notebook_agent.tuning import charts
from notebook_agent.tuning.chart import GLYPHS, VEGA_MIME, bar, thinned
from notebook_agent.tuning.chart_events import breaker_rows, latency_rows
from notebook_agent.tuning.compaction_lab import CompactionLab
from tests.tuning.test_compaction_lab import CUT, SMALL, talk


def turns(count=60):
    return [
        {"turn": n, "system": 400, "tools": 900, "transients": 50, "history": n % 20 * 5_000,
         "compacted": n > 0 and n % 20 == 0, "window": 128_000}
        for n in range(count)
    ]  # fmt: skip


def look(box: int) -> str:
    """Look."""
    return f"{box} apples"


@pytest.fixture(scope="module")
def runtime():
    clock = PinnedClock()
    model = ScriptedModel(
        [Reply(tool_calls=(ToolCallPart("c1", "look", {"box": 3}),)), "Apples <b>&</b>."],
        script="503,ok", sleep=clock.sleep, delay_s=0.1,
    )  # fmt: skip
    made = AgentRuntime(
        model, tools=[look], surroundings=pinned(clock),
        retry=RetryPolicy(base_delay=0.5, max_delay=1.0),
    )  # fmt: skip
    made.run("What is in box 3?")
    return made


@pytest.fixture(scope="module")
def report():
    return CompactionLab(talk(), {"small": SMALL, "cut": CUT}).run()


@pytest.fixture
def every(runtime, report):
    return {
        "anatomy": charts.anatomy(turns()),
        "anatomy of a runtime": charts.anatomy(runtime),
        "tokens": charts.tokens(runtime),
        "waterfall": charts.waterfall(runtime),
        "breaker": charts.breaker(runtime),
        "compaction": charts.compaction(report),
    }


class Seen(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.attributes = set(), set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


def test_the_table_needs_no_script_style_sheet_image_or_network(every):
    for name, chart in every.items():
        page = Seen()
        page.feed(chart.html())
        assert page.tags <= {"div", "table", "thead", "tbody", "tr", "th", "td", "code", "br", "strong"}, name  # fmt: skip
        assert page.attributes <= {"style"}, name
        assert "http" not in chart.html(), name


def test_the_plain_text_tells_the_same_rows(every):
    for name, chart in every.items():
        text = str(chart)
        assert chart.title in text, name
        assert all(row[0].strip() in text for row in chart.rows), name
        bare = re.sub(r"<[^>]+>", " ", chart.html())
        assert all(row[-2] in bare for row in chart.rows if "<" not in row[-2] and "&" not in row[-2]), name  # fmt: skip


def test_the_specification_holds_its_data_and_no_address(every):
    for name, chart in every.items():
        spec = json.dumps(chart.spec)
        assert "http" not in spec, name
        assert '"url"' not in spec, name
        assert chart.altair is not None
    points = json.dumps(every["anatomy"].spec)
    assert '"history": 95000' in points


def test_static_display_leaves_the_drawing_out(every, monkeypatch):
    drawn = every["tokens"]._repr_mimebundle_()
    # text/html would be taken before the chart
    assert set(drawn) == {"text/plain", "text/markdown", VEGA_MIME}
    assert "\n\n" not in drawn["text/markdown"], "one block of HTML"
    monkeypatch.setenv("NOTEBOOK_AGENT_DISPLAY", "static")
    assert set(every["tokens"]._repr_mimebundle_()) == {"text/plain", "text/html"}


def test_anatomy_shows_lines_parts_and_compactions():
    chart = charts.anatomy(turns(), policy=CompactionPolicy(threshold=50, emergency=90))
    text = str(chart)
    assert "trigger: 64,000" in text
    assert "emergency: 115,200" in text
    assert "compacted" in text
    marks = [layer for layer in chart.spec["layer"] if layer["mark"].get("strokeDash") == [2, 4]]
    assert marks


@pytest.mark.parametrize("name", ["tokens", "compaction"])
def test_colour_and_dash_have_one_legend(every, name):
    """Vega joins the two legends only where every layer says the same scale."""
    layers = [layer["encoding"] for layer in every[name].spec["layer"]]
    domains = [
        layer[channel]["scale"]["domain"]
        for layer in layers
        for channel in ("color", "strokeDash")
        if "field" in layer.get(channel, {})
    ]
    assert len(domains) >= 2
    assert all(domain == domains[0] for domain in domains)


def test_ten_thousand_turns_stay_small_and_keep_their_peak():
    rows = turns(10_000)
    rows[7_777]["history"] = 120_000
    chart = charts.anatomy(rows)
    assert len(json.dumps(chart._repr_mimebundle_())) <= 1_000_000
    assert "120,000" in str(chart)
    assert '"history": 120000' in json.dumps(chart.spec)
    assert len(chart.rows) <= 40


def test_the_waterfall_has_attempts_the_wait_and_the_tool(runtime):
    rows = latency_rows(runtime)
    kinds = [row["kind"] for row in rows]
    assert kinds == ["attempt", "wait", "attempt", "tool", "attempt"]
    wait = rows[1]
    assert wait["end"] - wait["start"] == pytest.approx(0.5, abs=0.3)
    assert all(row["end"] >= row["start"] for row in rows)
    assert [row["outcome"] for row in rows if row["kind"] != "wait"][1:] == [
        "served",
        "ok",
        "served",
    ]


def test_the_breaker_timeline_tells_trip_and_recovery():
    clock = PinnedClock()
    primary = ScriptedModel("a", script="400*3,ok", name="primary", sleep=clock.sleep)
    backup = ScriptedModel("b", name="backup", sleep=clock.sleep)
    made = AgentRuntime(
        primary, fallback=(backup,), breaker=BreakerConfig(recovery_timeout=10.0),
        timeouts=StreamTimeouts(fallback_to_non_streaming=False), surroundings=pinned(clock),
    )  # fmt: skip
    for n in range(7):
        clock.advance(1.0 if n != 5 else 20.0)
        try:
            made.run("hi")
        except Exception:
            clock.advance(0.5)
    states = [row["state"] for row in breaker_rows(made)]
    order = [s for at, s in enumerate(states) if at == 0 or states[at - 1] != s]
    assert order == ["primary", "fallback", "recovering", "primary"]
    assert "fallback" in str(charts.breaker(made))


def test_a_breaker_that_never_changed_names_its_model_in_full():
    begun = ev.RunStarted(session_id="s", provider="scripted", model="one", timestamp=1.0)
    (row,) = breaker_rows([begun, ev.RunCancelled(timestamp=5.0)])
    assert (row["model"], row["start"], row["end"]) == ("scripted:one", 0.0, 4.0)


def test_a_cancelled_run_leaves_no_open_bar():
    events = [
        ev.RunStarted(session_id="s", timestamp=1.0),
        ev.AttemptStarted(turn=0, attempt=1, max_attempts=3, timestamp=2.0),
        ev.RunCancelled(timestamp=5.0),
    ]
    (row,) = latency_rows(events)
    assert (row["start"], row["end"], row["outcome"]) == (1.0, 4.0, "cancelled")


def test_text_of_the_run_cannot_become_markup():
    rows = [{"turn": 0, "input": 3, "output": 1, "cached": None, "compacted": False}]
    chart = charts.tokens(rows)
    evil = [{**r, "turn": "<script>alert(1)</script>"} for r in rows]
    assert "<script" not in charts.tokens(evil).html()
    assert "?" in str(chart)


@pytest.mark.parametrize("parts", [[0, 0, 0, 0], [1, 1, 1, 1], [500, 0, 1, 0], [10, 20, 30, 4_000]])
def test_bars_have_their_width_and_show_what_is_there(parts):
    made = bar(parts, 1_000, 30)
    assert len(made) == 30
    for glyph, part in zip(GLYPHS, parts, strict=False):
        if part and sum(parts) <= 1_000:
            assert glyph in made


def test_thinning_keeps_the_largest_of_each_group():
    rows = [{"n": n, "compacted": n == 3} for n in range(100)]
    found, step = thinned(rows, 10, lambda r: r["n"])
    assert (len(found), step) == (10, 10)
    assert [r["n"] for r in found] == list(range(9, 100, 10))
    assert found[0]["compacted"]


def test_sources_without_turns_or_events_are_said():
    with pytest.raises(ConfigError, match="no turns"):
        charts.anatomy(3)
    with pytest.raises(ConfigError, match="no events"):
        charts.waterfall(3)
    with pytest.raises(ConfigError, match="no runs"):
        charts.waterfall(AgentRuntime(ScriptedModel("a")))
    assert charts.anatomy([]).rows == ()
    assert charts.waterfall([]).rows == ()
    assert charts.breaker([]).rows == ()
