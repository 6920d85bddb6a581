"""The audit frame (A01, A03, A04) and its view."""

from __future__ import annotations

import io
import json
import re

import pandas as pd
import pytest

from notebook_agent.core.messages import ToolCallPart
from notebook_agent.core.response import Ending, StopReason
from notebook_agent.core.session import Run, RunStatus, Session, Turn, UnservedTurn
from notebook_agent.notebook.audit import COLUMNS, audit_frame, audit_view, run_frame, turn_row

# Section 5 of the notebook's requirements, word for word.
NAMES = [
    "run",
    "run_id",
    "turn",
    "provider",
    "model",
    "outcome",
    "ending",
    "stop_reason",
    "input_tokens",
    "output_tokens",
    "cached_input_tokens",
    "reasoning_tokens",
    "context_estimate",
    "failed_input_tokens",
    "failed_output_tokens",
    "budget_tokens",
    "budget_estimated",
    "input_includes_cached",
    "attempts",
    "rescued",
    "breaker",
    "compacted",
    "tool_calls",
    "tools_not_run",
    "ttft_s",
    "duration_s",
    "started_at",
    "input",
    "output",
]


def turn(n=0, **over) -> Turn:
    given = dict(turn=n, input="q", output="a", model="openai:x", started_at=1_767_225_600.25)
    return Turn(**{**given, **over})


def session(*turns: Turn, unserved=()) -> Session:
    run = Run(id="r0", input="q", turns=list(turns), unserved=list(unserved))
    return Session(runs=[run])


def test_columns_and_order() -> None:
    assert list(COLUMNS) == NAMES
    assert list(audit_frame(Session()).columns) == NAMES


def test_A01_missing_usage_stays_missing() -> None:
    frame = audit_frame(
        session(
            turn(0, input_tokens=12), turn(1), turn(2, input_tokens=7), turn(3, output_tokens=5)
        )
    )
    assert str(frame["input_tokens"].dtype) == "Int64"
    assert frame["input_tokens"].sum() == 19
    assert frame["input_tokens"].isna().tolist() == [False, True, False, True]
    assert "12.0" not in frame.to_string()
    assert frame.loc[3, "output_tokens"] == 5


def test_A01_empty_frame_has_the_same_dtypes() -> None:
    full = audit_frame(session(turn(0, input_tokens=1, ttft_s=0.5)))
    empty = audit_frame(Session())
    assert empty.shape == (0, 29)
    assert full.dtypes.astype(str).to_dict() == empty.dtypes.astype(str).to_dict()
    assert full.dtypes.astype(str).to_dict() == dict(COLUMNS)
    run = run_frame(Run(id="x", input=""))
    assert run.dtypes.astype(str).to_dict() == dict(COLUMNS)
    pd.concat([empty, full])  # dtypes agree, so nothing warns


def test_A01_timestamps_are_utc() -> None:
    frame = audit_frame(session(turn(0), turn(1, started_at=0.000001)))
    assert str(frame["started_at"].dt.tz) == "UTC"
    assert frame.loc[0, "started_at"] == pd.Timestamp("2026-01-01T00:00:00.25Z")
    assert frame.loc[1, "started_at"].value == 1000


def test_A03_failed_attempts_have_their_own_columns() -> None:
    one = turn(0, input_tokens=900, output_tokens=40, failed_input_tokens=900, attempts=2,
               budget_tokens=1840)  # fmt: skip
    frame = audit_frame(session(one))
    assert frame.loc[0, ["input_tokens", "output_tokens", "failed_input_tokens", "attempts", "budget_tokens"]].tolist() == [900, 40, 900, 2, 1840]  # fmt: skip
    assert frame["failed_output_tokens"].isna().all()


def test_failed_and_cancelled_turns_are_rows() -> None:
    frame = audit_frame(
        session(
            turn(0),
            unserved=[
                UnservedTurn(
                    turn=turn(1, output="part", started_at=1_767_225_700.0), outcome="failed"
                ),
                UnservedTurn(
                    turn=turn(1, output="", started_at=1_767_225_800.0), outcome="cancelled"
                ),
            ],
        )
    )
    assert frame["outcome"].tolist() == ["served", "failed", "cancelled"]
    assert frame["output"].tolist() == ["a", "part", ""]
    assert frame["stop_reason"].isna().tolist() == [False, True, True]


def test_values() -> None:
    one = turn(
        0, ending=Ending.REFUSAL, stop_reason=StopReason.TOOL_CALL, rescued=True, compacted=True,
        tool_calls=(ToolCallPart("a", "f", {}), ToolCallPart("b", "g", {})), breaker="fallback",
        tools_not_run=("g", "h"), ttft_s=0.5, duration_s=2.0, input_includes_cached=False,
    )  # fmt: skip
    row = audit_frame(session(one)).iloc[0]
    assert (row["provider"], row["model"], row["ending"], row["stop_reason"]) == (
        "openai", "openai:x", "refusal", "tool_call",
    )  # fmt: skip
    assert (row["tool_calls"], row["tools_not_run"], row["breaker"]) == (2, "g, h", "fallback")
    assert (bool(row["rescued"]), bool(row["compacted"]), bool(row["input_includes_cached"])) == (
        True, True, False,
    )  # fmt: skip
    assert turn_row(one, Run(id="r0", input=""))["run_id"] == "r0"


def test_csv_and_json_round_trip_odd_text() -> None:
    """A02: one bad string never drops a row."""
    frame = audit_frame(session(turn(0, output='ok\ufffd\x1b[31mend\u2028\r\n,"')))
    assert frame.loc[0, "output"] == 'ok\ufffd\x1b[31mend\u2028\r\n,"'
    back = pd.read_csv(io.StringIO(frame.to_csv(lineterminator="\n")), lineterminator="\n")
    assert back.loc[0, "output"] == frame.loc[0, "output"]
    assert json.loads(frame.to_json(date_format="iso"))["output"]["0"] == frame.loc[0, "output"]


def test_A04_five_thousand_turns_of_20_kb() -> None:
    texts = [f"{i} " + "wide " * 4000 for i in range(8)]
    big = session(*[turn(i, input=texts[i % 8], output=texts[(i + 1) % 8]) for i in range(5000)])
    frame = audit_frame(big)
    view = audit_view(frame)
    assert len(view.html().encode()) < 1_000_000
    assert len(view.text().encode()) < 1_000_000
    assert "4,800 rows not shown" in view.html()
    assert frame.loc[4999, "output"] == texts[5000 % 8]
    assert max(len(cell) for cell in re.findall(r"<td[^>]*>([^<]*)</td>", view.html())) <= 90
    assert len(frame._repr_html_()) < 1_000_000  # what `%agent audit` shows by itself


def test_view_filters() -> None:
    view = audit_view(session(turn(0), turn(1, model="b:y"), turn(2)))
    assert len(view.where(model="b:y").frame) == 1
    assert len(view.where(model=["b:y", "openai:x"]).frame) == 3
    assert len(view.tail(2).frame) == 2
    assert "3 turns" in view.text()
    with pytest.raises(KeyError, match="no column 'modle'"):
        view.where(modle="x")


def test_X02_view_escapes_cells() -> None:
    view = audit_view(session(turn(0, output="<img src=x>\x1b[2J", model="<b>:x")))
    assert "<img" not in view.html()
    assert "<b>" not in view.html()
    assert "\x1b" not in view.html() + view.text()


def test_session_is_not_changed() -> None:
    one = session(turn(0))
    audit_frame(one)
    assert one == session(turn(0))
    assert one.runs[0].status is RunStatus.PENDING


# ---- filters and the interactive table ----------------------------------------------------------


def some_session(n: int = 3) -> Session:
    """Turns with text that would be markup, hidden characters and unknown counts."""
    evil = "<img src=http://127.0.0.1:9/leak onerror='window.PWNED=1'>\u202e\x1b[2J"
    turns = [
        Turn(
            turn=i, input=evil, output=f"reply {i} {evil}", model=f"openai:{'slow' if i % 2 else 'fast'}",
            stop_reason=StopReason.END_TURN, ending=Ending.END_TURN, duration_s=float(i), input_tokens=None if i else 7,
        )
        for i in range(n)
    ]  # fmt: skip
    return Session(runs=[Run(id="run_0", input="hi", status=RunStatus.COMPLETED, turns=turns)])


def test_filters_by_value_list_and_function() -> None:
    view = audit_view(some_session(6))
    assert list(view.where(model="openai:slow").frame["turn"]) == [1, 3, 5]
    assert list(view.where(turn=[0, 5]).frame["turn"]) == [0, 5]
    assert list(view.where(duration_s=lambda s: s > 3).frame["turn"]) == [4, 5]
    assert list(view.where(input_tokens=lambda s: s >= 0).frame["turn"]) == [0]  # <NA> never passes
    assert list(view.where(model="openai:fast", duration_s=lambda s: s > 1).frame["turn"]) == [2, 4]
    with pytest.raises(KeyError, match="no column 'modle'"):
        view.where(modle="x")


def test_the_view_shows_a_cost_where_there_is_one() -> None:
    frame = audit_frame(some_session(2))
    assert "cost" not in audit_view(frame).text()
    frame["cost"] = pd.Series([0.25, None], dtype="Float64")
    lines = audit_view(frame).text().splitlines()
    assert "  cost" in lines[0]
    assert "0.25" in lines[2]
    assert audit_view(frame)._interactive_frame(10)["cost"].dtype == "Float64"


@pytest.fixture
def displayed(monkeypatch):
    """What a cell would show."""
    import IPython.display
    from IPython.core.interactiveshell import InteractiveShell

    seen: list[object] = []
    monkeypatch.setattr(IPython.display, "display", lambda *made, **_: seen.extend(made))
    monkeypatch.setattr(InteractiveShell, "initialized", classmethod(lambda cls: True))
    return seen


def test_interactive_without_itables_is_the_plain_table(monkeypatch, displayed, capsys) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    view = audit_view(some_session())
    view.interactive()
    assert displayed == [view]
    assert "%pip install itables" in capsys.readouterr().out


def test_interactive_with_itables_fetches_nothing(monkeypatch, displayed) -> None:
    """The library is in the output, texts are short and visible, the user's own mode stays."""
    itables = pytest.importorskip("itables")
    javascript = pytest.importorskip("itables.javascript")
    monkeypatch.setattr(javascript, "_html_display_is_supported", lambda: True)
    before = pd.DataFrame._repr_html_
    audit_view(some_session(1_500)).interactive()
    assert pd.DataFrame._repr_html_ is before
    made = [str(one.data) for one in displayed]
    assert all(len(html) < 1_000_000 for html in made)
    table = made[-1]
    for html in made:
        assert not re.search(r"<script[^>]*\ssrc=|<link[^>]*href=.http|import [^;]*https?:", html)
    assert "unpkg" not in table
    assert "<img" not in table
    assert "\u202e" not in table
    assert "reply 1499" in table
    assert "reply 499 " not in table  # the newest thousand
    itables.init_notebook_mode(all_interactive=True, connected=False)
    try:
        own = pd.DataFrame._repr_html_
        audit_view(some_session()).interactive()
        assert pd.DataFrame._repr_html_ is own
    finally:
        itables.init_notebook_mode(all_interactive=False, connected=False)


def test_X03_the_frame_shows_control_characters_and_holds_them() -> None:
    """Also what pandas makes of it; the stored text is the original (A02)."""
    evil = "\x1b]52;c;eA==\x07 \x9b31m \u202e " + "y" * 90
    frame = audit_frame(session(turn(0, output=evil, model="m\x1b[2J"), turn(1)))
    shown = (
        frame, frame["output"], frame["model"], frame[frame.turn == 0], frame.set_index("model"),
        frame.loc[0], frame.T, frame.groupby("model").size(), pd.concat([frame, frame]),
        frame.groupby(["model", "turn"])[["attempts"]].sum(), frame.tail(1), frame.iloc[:0],
    )  # fmt: skip
    for one in shown:
        for text in (
            repr(one),
            str(one),
            one._repr_html_() if isinstance(one, pd.DataFrame) else "",
        ):
            assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text), type(one)
    assert "␛]52;c;eA==␇ <U+009B>31m <U+202E> yyy" in repr(frame["output"])
    assert "m␛[2J" in repr(frame.set_index("model"))
    assert frame.loc[0, "output"] == evil
    assert frame.loc[0, "output"] in frame.to_csv().replace('""', '"')
    plain = pd.DataFrame(audit_frame(session(turn(0), turn(1, output="z" * 200))))
    assert repr(audit_frame(session(turn(0), turn(1, output="z" * 200)))) == repr(plain)
    with pd.option_context("display.max_colwidth", None):
        assert "z" * 200 in repr(audit_frame(session(turn(0, output="z" * 200)))["output"])


def test_D14_no_maths_is_set_in_the_frame() -> None:
    frame = audit_frame(session(turn(0, output="$5 and $6")))
    assert "tex2jax_ignore mathjax_ignore" in frame._repr_html_()
    assert "$<" not in audit_view(frame).html().replace("<abbr>&#36;</abbr>", "")
    assert "<abbr>&#36;</abbr>5 and <abbr>&#36;</abbr>6" in audit_view(frame).html()
