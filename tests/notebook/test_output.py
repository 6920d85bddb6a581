"""Frozen output: readable without styles, tags or widgets; bounded; the same for every sink."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from notebook_agent.notebook.footer import breaker_line, footer
from notebook_agent.notebook.output import (
    bundle,
    frozen_html,
    frozen_text,
    metadata,
    standing_bundle,
)
from notebook_agent.notebook.panel_state import BreakerView, Gauge, Note, TextBlock, ToolRow
from notebook_agent.notebook.reducer import reduce_all
from notebook_agent.notebook.sinks.update import running_bundle
from tests.notebook.recorded import recorded, row

STATES = {name: reduce_all(events) for name, events in recorded().items()}


class Text(HTMLParser):
    """What is left when every attribute is taken away; counts the tags."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        for name, value in attrs:
            if name == "style":
                assert "var(" not in value
                assert "url(" not in value

    def handle_data(self, data):
        self.words.append(data)


def read(markup: str) -> Text:
    parser = Text()
    parser.feed(markup)
    return parser


@pytest.mark.parametrize("name", STATES)
def test_html_needs_no_style_script_or_class(name: str) -> None:
    parser = read(frozen_html(STATES[name]))
    assert parser.tags <= {
        "div", "strong", "em", "code", "p", "pre", "ul", "ol", "li", "table", "thead", "tbody",
        "tr", "th", "td", "br", "s", "a", "h3", "h4", "h5", "h6", "blockquote", "hr", "abbr",
    }  # fmt: skip
    assert parser.attributes <= {
        "style",
        "scope",
        "dir",
        "href",
        "rel",
        "start",
        "align",
        "tabindex",
    }


@pytest.mark.parametrize("name", STATES)
def test_both_forms_tell_the_whole(name: str) -> None:
    """Reply, how it ended, footer, breaker and audit stand in text/plain alone and in bare html."""
    state = STATES[name]
    for text in (frozen_text(state), " ".join(read(frozen_html(state)).words)):
        assert state.status in text
        assert footer(state) in text
        assert f"breaker: {state.breaker.state}" in text
        for one in state.items:
            if isinstance(one, TextBlock) and not one.text.startswith("```"):
                first = re.sub(r"[*`#-]", "", one.text.split("\n")[0]).split(".")[0].strip()
                assert first in text.replace("**", "")
        if state.rows:
            assert "stop reason" in text
            assert "context est." in text
    assert "attempt 1 void" not in frozen_text(STATES["completed"])


def test_text_of_a_completed_run() -> None:
    text = frozen_text(STATES["completed"])
    assert text.startswith("I will look at the record before judging it.\n\n[describe(")
    assert "[thinking · " in text
    assert "not saved" in text
    assert "Flat runs first" not in text  # thinking itself is not
    assert "✓ completed · openai:gpt-mini · 2 turns · 3,862 in / 272 out · 6.4 s · END_TURN" in text
    lines = text.splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("turn  model"))
    widths = [m.start() for m in re.finditer(r"-+", lines[head + 1])]
    assert all(lines[head + 2][w - 1 : w] in ("", " ") for w in widths[1:])  # aligned


def test_unknown_is_not_zero() -> None:
    state = STATES["cancelled"]
    assert "1 turn + 1 cancelled · 1,376 + ? in / 58 + ? out" in footer(state)
    assert "? in / ? out" in footer(STATES["scripted"])


def test_numbers_of_attempts_and_breaker() -> None:
    line = breaker_line(STATES["fallback"].breaker, Gauge(), at=22.0)
    assert line == (
        "breaker: fallback, failures 3 of 3, mistral:small serves, mistral:small: strikes 1 of 2, "
        "next probe in 38 s"
    )
    assert "probes 1 of 2" in breaker_line(BreakerView("recovering", probes=1), Gauge())


def test_limits() -> None:
    """F13: text/plain at most 40,000 characters with a note, one output below 1 MB."""
    big = tuple(TextBlock(f"word {'x' * 4000}\n\n", 0) for _ in range(600))
    state = replace(STATES["completed"], items=big, rows=tuple(row(i) for i in range(3000)))
    made = bundle(state)
    assert len(made["text/plain"]) <= 40_000
    assert "the whole is in result.text" in made["text/plain"]
    assert "3,376" not in made["text/plain"]
    assert len(made["text/html"].encode()) < 1_000_000
    assert "the whole is in" in made["text/html"]
    one = replace(STATES["completed"], items=(TextBlock("y" * 2_000_000),))
    assert len(bundle(one)["text/html"]) < 1_000_000


@pytest.mark.parametrize("char", ["x", '"', "$", "\u202e", "潮"])
def test_F13_many_results_and_calls_stay_under_a_megabyte(char: str) -> None:
    """Whatever a character becomes in HTML; where results are missing, a line says so."""
    state, text = STATES["completed"], char * 5_000
    tool = next(one for one in state.items if isinstance(one, ToolRow))
    tool = replace(tool, name=text, arguments=text, result=text, printed=text)
    blocks = tuple(TextBlock(f"{char * 4000}\n\n", 0) for _ in range(60))
    state = replace(
        state, items=(*blocks, *[tool] * 300), rows=tuple(row(i, text) for i in range(100))
    )
    made = bundle(state)
    assert len(made["text/html"].encode()) < 1_000_000
    assert "More results are not saved here" in made["text/html"]
    assert "result of" in made["text/html"]


def test_hostile_names_are_text_everywhere() -> None:
    """X02, X03: model name, tool name, arguments, result, error, notices, audit cells."""
    evil = "<img src=x onerror=alert(1)>\x1b[2J\u202e</div>"
    state = STATES["completed"]
    tools = tuple(
        replace(one, name=evil, arguments=evil, result=evil, printed=evil)
        if type(one).__name__ == "ToolRow"
        else one
        for one in state.items
    )
    state = replace(
        state, items=tools, model=evil, notices=(evil,), error={"message": evil},
        run_status=STATES["failed"].run_status, rows=(row(0, evil), row(1, evil, outcome=evil)),
    )  # fmt: skip
    made = bundle(state)
    assert "<img" not in made["text/html"]
    for text in made.values():
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert read(made["text/html"]).tags.isdisjoint({"img", "h1", "script"})


def test_D14_no_front_end_finds_maths_in_an_output() -> None:
    """Two prices in one line became a formula in JupyterLab; now no delimiter stands in a text."""
    evil = r"$5 and $6 \(x\) \[y\] \begin{a}b\end{a} \\server"
    state = STATES["completed"]
    tool = next(one for one in state.items if isinstance(one, ToolRow))
    tool = replace(tool, name=evil, arguments=evil, result=evil, printed=evil)
    block = TextBlock(
        f"{evil}\n\n| {evil} |\n|---|\n\n[{evil}](https://a.example/$a$b)\n\n`{evil}`"
    )
    state = replace(
        state, items=(tool, block, Note("·", "", (("", evil), ("b", evil)))), tail=evil, line=(("", evil),),
        model=evil, session=evil, run_id=evil, notices=(evil,), error={"message": evil},
        run_status=STATES["failed"].run_status, rows=(row(0, evil),),
    )  # fmt: skip
    made = (frozen_html(state), standing_bundle(state), running_bundle(state))
    for one in made:
        markup = one if isinstance(one, str) else one["text/html"]
        seen = re.sub(r"(?s)<(pre|code)\b.*?</\1>|<[^>]*>", "", markup)
        assert not re.search(r"[$\\]", seen)
        assert "<abbr>&#36;</abbr>5 and <abbr>&#36;</abbr>6" in markup
        assert evil in "".join(read(markup).words)


def test_metadata_is_the_run_only() -> None:
    assert metadata(STATES["completed"]) == {"notebook_agent": {"run": "run_0", "schema": 1}}
