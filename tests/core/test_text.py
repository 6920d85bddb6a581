"""core/text.py: what enters and leaves as text (D9; cases T02, A02, X03)."""

from __future__ import annotations

import html
import re
import time

from hypothesis import given
from hypothesis import strategies as st

from notebook_agent.core.text import clean_json, clean_text, unset_maths, visible

ANY = st.text(st.characters())  # lone surrogates too


@given(ANY)
def test_T02_cleaned_text_can_always_be_encoded(text: str) -> None:
    cleaned = clean_text(text)
    cleaned.encode("utf-8")
    assert "\x00" not in cleaned
    assert clean_text(cleaned) == cleaned


@given(st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00")))
def test_T02_good_text_is_untouched(text: str) -> None:
    assert clean_text(text) is text


def test_T02_pairs_join_and_halves_are_replaced() -> None:
    assert clean_text("\ud83e\udd89") == "🦉"
    assert clean_text("a\ud83d") == "a\ufffd"
    assert clean_text("\udc00b\x00") == "\ufffdb\ufffd"
    assert clean_json({"k\x00": ["\ud83d", 1, None, {"x": "ok"}]}) == {
        "k\ufffd": ["\ufffd", 1, None, {"x": "ok"}]
    }


@given(ANY)
def test_X03_visible_text_has_no_control_character_but_tab_and_newline(text: str) -> None:
    for char in visible(text):
        assert char in "\t\n" or not (ord(char) < 0x20 or 0x7F <= ord(char) <= 0x9F)
        assert (
            char not in "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c"
        )
        assert not 0xD800 <= ord(char) <= 0xDFFF


def test_X03_escapes_are_shown() -> None:
    assert visible("\x1b]52;c;Zm9v\x07") == "␛]52;c;Zm9v␇"
    assert visible("a\rb\x08c\x7f") == "a␍b␈c␡"
    assert visible("\x9b31m") == "<U+009B>31m"
    assert visible("x\u202ey") == "x<U+202E>y"
    assert visible("line\r\nnext\tcell\n") == "line\nnext\tcell\n"
    assert visible("\ud83d") == "\ufffd"


def test_D14_nothing_in_markup_begins_maths() -> None:
    """No dollar and no backslash of a text stands beside another character of its element."""
    assert unset_maths("<p>no maths</p>") == "<p>no maths</p>"
    made = unset_maths(
        '<p>$x$ \\(y\\) \\\\server &lt;$&gt; <a href="https://a.example/$b\\">$$</a> '
        '<code>$c$</code></p><pre style="x">\\[d\\]</pre><p>\\begin{a}</p>'
    )
    dollar, slash = "<abbr>&#36;</abbr>", "<abbr>&#92;</abbr>"
    assert made == (
        f"<p>{dollar}x{dollar} {slash}(y{slash}) {slash}{slash}server &lt;{dollar}&gt; "
        f'<a href="https://a.example/$b\\">{dollar}{dollar}</a> '
        f'<code>$c$</code></p><pre style="x">\\[d\\]</pre><p>{slash}begin{{a}}</p>'
    )
    assert unset_maths(made) == made


@given(st.text(alphabet="$\\(<>&\"'=/ apre", max_size=80))
def test_D14_markup_keeps_its_text(text: str) -> None:
    made = unset_maths(f"<p>{html.escape(text)}</p>")
    assert html.unescape(re.sub(r"</?(?:abbr|p)>", "", made)) == text
    assert not re.search(r"[$\\]", made)


def test_D14_time_is_linear() -> None:
    def cost(text: str) -> float:
        start = time.process_time()
        unset_maths(text + "$")
        return time.process_time() - start

    for unit in ("<p>", "<pre>", '<p a="', "$", '"', "<", "<code>$</code>"):
        small, large = (min(cost(unit * n) for _ in range(3)) for n in (4_000, 32_000))
        assert large < 24 * small + 0.2, unit
