"""core/interpolate.py: a value as the text a prompt gets (D7, N02)."""

from __future__ import annotations

import pandas as pd

from notebook_agent.core.interpolate import insert, value_text


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
