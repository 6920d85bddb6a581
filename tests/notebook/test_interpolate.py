"""What a prompt inserts and what it leaves: D7, D9, N01, N02."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_agent.errors import ContextExceeded, InputRejected
from notebook_agent.notebook.agent_session import AgentSession
from notebook_agent.notebook.interpolate import InsertionError, insert, literal_brace
from notebook_agent.notebook.settings import Settings
from notebook_agent.notebook.with_values import values_message
from notebook_agent.providers.scripted import ScriptedModel

NS = {
    "x": 5,
    "name": "Ada",
    "xs": ["zero", "one"],
    "d": {"key": "value", "a b": 2, 3: "three"},
    "In": ["", "a = 1", "b = 2", "c = 3"],
    "Out": {2: "two"},
}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("{{name}}", "Ada"),
        ("{{ name }}", "Ada"),
        ("{{xs[1]}} {{xs[-1]}}", "one one"),
        ("{{d[\"key\"]}} {{d['a b']}} {{d[3]}}", "value 2 three"),
        ("{{x.real}}", "5"),
        ("{{In[3]}}", "c = 3"),
        ("{{Out[2]}}", "two"),
        ("a{{x}}b{{x}}c", "a5b5c"),
        (r"\{{x}}", "{{x}}"),
        (r"\{{x}} {{x}}", "{{x}} 5"),
    ],
)
def test_D7_inserts(body, text):
    assert insert(body, NS).text == text


LITERAL = [
    "{v: k for k, v in d.items()}", "print({'a': 'b'})", "for (const {a, b} of xs) {}", "{}",
    "{0}", "{x!r:>10}", '"$HOME ${PATH}"', "100% of {", "{x}", "{{}}", "{{ }}", "{{x + 1}}",
    "{{x|upper}}", "{{ user.name | upper }}", "{% for x in xs %}{% endfor %}", "${{ x }}",
    "${{ secrets.TOKEN }}", "{{{x}}}", "{{x}", "{x}}", "style={{ color: 'red' }}",
    "{{x[0:2]}}", "{{x()}}", "{{ x[y] }}", "{{1}}", "}}{{", "{{x\n}}", "{ {x} }",
]  # fmt: skip


@pytest.mark.parametrize("body", LITERAL)
def test_N01_everything_else_is_literal(body):
    assert insert(body, NS).text == body


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ("{{nothing}}", "nothing"),
        ("<div style={{a}}>", "a"),
        ("Hello {{ user.name }}", "user"),
        ("f'{{y}}'", "y"),
        ("{{x.nope}}", "x.nope"),
        ("{{xs[9]}}", "xs[9]"),
        ('{{d["no"]}}', '["no"]'),
    ],
)
def test_N01_unknown_names_are_refused_and_named(body, named):
    with pytest.raises(InsertionError) as caught:
        insert(body, NS)
    lines = str(caught.value).splitlines()
    assert named in lines[0]
    assert lines[-1] == "%%agent --raw"
    assert insert(body, NS, raw=True).text == body


def test_N02_inserted_once_and_never_again():
    ns = {"snippet": "d = {'k': {x}} {{x}} \\{{x}}", "x": "BOOM"}
    assert insert("see {{snippet}}", ns).text == "see d = {'k': {x}} {{x}} \\{{x}}"


def test_N02_a_frame_is_inserted_whole():
    frame = pd.DataFrame({"n": range(200), "s": ["x" * 90] * 200})
    text = insert("{{frame}}", {"frame": frame}).text
    assert "..." not in text
    assert text.count("\n") == 200


def test_N02_too_big_is_asked_for_every_value():
    asked = []
    insert("{{name}} {{x}}", NS, fits=lambda e, t: asked.append((e, t)))
    assert asked == [("name", "Ada"), ("x", "5")]

    def no(expression, text):
        raise InsertionError(f"{expression} has {len(text)}")

    with pytest.raises(InsertionError, match="big has 5000000"):
        insert("{{big}}", {"big": "x" * 5_000_000}, fits=no)


def test_D9_surrogates_and_nul_where_text_enters():
    assert insert("a\ud83d\x00b{{v}}", {"v": "c\udc00"}).text == "a\ufffd\ufffdbc\ufffd"
    assert insert("a\x00", {}, raw=True).text == "a\ufffd"


def test_D7_note_for_single_braces():
    assert literal_brace("price of {x}", NS) == "x"
    assert literal_brace("price of {y}", NS) is None
    assert literal_brace("{{name}} and {x}", NS) is None
    assert literal_brace("{x!r} {{x", NS) is None


@given(st.text())
def test_N01_text_without_double_braces_is_never_changed(text):
    from notebook_agent.core.text import clean_text

    if "{{" not in text:
        assert insert(text, NS).text == clean_text(text)


@given(st.text(alphabet="{}x $\\[]0.\"'"))
def test_N01_raw_never_changes(text):
    assert insert(text, {}, raw=True).text == text


# ---- values that fight back (N02) ------------------------------------------------------------


class NoText:
    def __repr__(self):
        raise RuntimeError("no repr")


class NoAttributes:
    def __getattr__(self, name):
        raise ValueError(name)


class Liar(str):
    __slots__ = ()

    def __str__(self):
        raise KeyError("s")


def nested() -> list:
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    return deep


@pytest.mark.parametrize("make", [NoText, nested])
def test_N02_a_value_without_a_text_is_refused_by_name(make):
    with pytest.raises(
        InsertionError, match=r"\{\{x\}\} cannot be inserted: its \w+ cannot be written"
    ) as caught:
        insert("hi {{x}}", {"x": make()})
    assert len(str(caught.value).splitlines()) == 3
    with pytest.raises(InputRejected, match="--with: x: its"):
        values_message(["x"], {"x": make()}, cap=100, count=len)


def test_N02_a_text_is_its_characters_whatever_its_class_says():
    assert insert("hi {{x}}", {"x": Liar("e")}).text == "hi e"


def test_N02_nothing_about_a_value_is_asked_that_may_raise():
    with pytest.raises(InputRejected, match="--with: x: its NoAttributes"):
        values_message(["x"], {"x": NoAttributes()}, cap=100, count=len)


def test_N02_a_giant_is_neither_written_nor_counted_whole():
    counted: list[int] = []

    def count(text: str) -> int:
        counted.append(len(text))
        return len(text) // 4

    shown = values_message(["x"], {"x": "y" * 5_000_000}, cap=100, count=count)
    assert shown.text_content().count("y") > 200  # as much as the cap holds
    assert max(counted) <= 100 * 16 + 100
    frame = pd.DataFrame({"a": range(300_000)})
    agent = AgentSession(settings=Settings(store="memory"), namespace={"frame": frame})
    agent.model(ScriptedModel(["ok"], name="quick", window=200_000))
    with pytest.raises(ContextExceeded, match="at least 300,000 tokens"):
        agent.ask("hi {{frame}}")
    agent.close()
