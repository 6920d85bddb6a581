"""core/text.py: what enters and leaves as text (D9; cases T02, A02, X03)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from notebook_agent.core.text import clean_json, clean_text, visible

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
