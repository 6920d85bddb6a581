"""core/interpolate.py: a value as the text a prompt gets (D7, N02)."""

from __future__ import annotations

from types import SimpleNamespace

import pandas as pd
import pytest

from notebook_agent.core.interpolate import (
    InsertionError,
    insert,
    literal_brace,
    look_up,
    placeholders,
    value_text,
)


def test_N02_a_frame_is_inserted_whole() -> None:
    frame = pd.DataFrame({"x": range(100)})
    made = insert("{{frame}}", {"frame": frame}).text
    assert made == frame.to_string()
    assert "..." not in made


def test_D7_bytes_are_read_as_utf_8() -> None:
    assert value_text("Žagarė".encode()) == "Žagarė"
    assert value_text(bytearray(b"\xff")) == "\ufffd"


def test_D7_a_subclass_of_str_says_its_own_text() -> None:
    class Loud(str):
        __slots__ = ()

        def __str__(self) -> str:
            return "something else"

    assert value_text(Loud("quiet")) == "quiet"


# Hindi has vowel signs that are no \\w; the second name is typed with a combining accent.
HINDI, TYPED, KEPT = "\u0939\u093f\u0928\u094d\u0926\u0940", "e\u0301te\u0301", "\u00e9t\u00e9"


def test_D7_names_of_every_script_are_inserted() -> None:
    names = {HINDI: 1, KEPT: 2, "o": SimpleNamespace(**{HINDI: 3, KEPT: 4})}
    body = f"{{{{{HINDI}}}}} {{{{{TYPED}}}}} {{{{o.{HINDI}}}}} {{{{o.{TYPED}}}}}"
    assert insert(body, names).text == "1 2 3 4"
    assert placeholders(body) == (HINDI, TYPED, "o")
    assert look_up(f"o.{TYPED}", names) == 4
    assert literal_brace(f"{{{HINDI}}}", names) == HINDI


@pytest.mark.parametrize(
    "body", ["{{\u201cx\u201d}}", "{{x\u2013y}}", "{{x\U0001f600}}", "{{x.\u201d}}"]
)
def test_D7_what_is_no_name_stays_as_typed(body: str) -> None:
    assert insert(body, {"x": 1}).text == body
    assert placeholders(body) == ()


class Exits:
    """Leaves whoever touches it."""

    def __str__(self) -> str:
        raise SystemExit(3)

    @property
    def now(self) -> int:
        raise SystemExit(3)

    def __getitem__(self, key: object) -> int:
        raise SystemExit(3)


@pytest.mark.parametrize("body", ["{{x}}", "{{x.now}}", "{{x[0]}}"])
def test_D7_an_object_that_exits_is_refused_by_name(body: str) -> None:
    with pytest.raises(InsertionError, match="SystemExit: 3"):
        insert(body, {"x": Exits()})
