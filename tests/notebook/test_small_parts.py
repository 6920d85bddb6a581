"""Formats, shown values, reports, short errors."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from notebook_agent.core.messages import TextPart
from notebook_agent.core.result import RunResult
from notebook_agent.core.session import Run, RunStatus
from notebook_agent.errors import AgentError, Cancelled, ConfigError, InputRejected
from notebook_agent.notebook import short_errors
from notebook_agent.notebook.formats import FormatError, code_of, json_of, with_format
from notebook_agent.notebook.report import Report, report
from notebook_agent.notebook.with_values import cells_message, describe, values_message


def count(text: str) -> int:
    return max(1, len(text) // 4)


# ---- formats ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        (" [1, 2]\n", [1, 2]),
        ('```json\n{"a": "```"}\n```', {"a": "```"}),
        ("```\n3\n```\n", 3),
        ("null", None),
    ],
)
def test_json_of(text, value):
    assert json_of(text) == value


@pytest.mark.parametrize(
    "text", ["", "  ", "{", "{'a': 1}", 'Here: {"a": 1}', "```json\n{}\n``` done", "NaN,"]
)
def test_json_that_is_none_keeps_the_raw_text(text):
    done = RunResult(text=text, run=Run(id="r", input="", status=RunStatus.COMPLETED))
    with pytest.raises(FormatError) as caught:
        with_format(done, "json")
    assert caught.value.partial_text == text
    assert caught.value.result is done
    assert len(str(caught.value).splitlines()) <= 3


def test_with_format_leaves_the_rest_alone():
    cut = RunResult(text="{", run=Run(id="r", input="", status=RunStatus.CANCELLED))
    assert with_format(cut, "json") is cut
    good = RunResult(text="{}", run=Run(id="r", input="", status=RunStatus.COMPLETED))
    assert with_format(good, "md") is good
    assert with_format(good, "json").parsed == {}


def test_code_of():
    assert code_of("no code") is None
    assert code_of("Do:\n```python\nx = 1\n```\nand\n~~~\ny = 2\n~~~\n") == "x = 1\n\ny = 2"
    assert code_of("```bash\nls\n```\n```py\nx\n```") == "x"
    assert code_of("```bash\nls\n```") == "ls"
    assert code_of("````python\n```\ninner\n```\n````") == "```\ninner\n```"


# ---- values -----------------------------------------------------------------------------------


def text_of(message) -> str:
    [part] = message.parts
    assert isinstance(part, TextPart)
    return part.text


def test_with_a_frame_as_schema_counts_and_head():
    frame = pd.DataFrame({"n": [1, 2, None] * 1000, "s": ["x", "y", "y"] * 1000, "o": [[1]] * 3000})
    text = text_of(values_message(["frame"], {"frame": frame}, cap=500, count=count))
    assert "3,000 rows x 3 columns" in text
    assert "n | float64 | 2,000 | 2" in text
    assert "o | object | 3,000 | ?" in text
    assert "first 5 rows" in text
    assert count(text) < 600


def test_with_a_frame_of_doubled_columns_and_none():
    twice = pd.DataFrame([[1, 2]], columns=["a", "a"])
    assert "a | int64 | 1 | 1" in describe(twice)
    assert "0 rows x 0 columns" in describe(pd.DataFrame())
    wide = pd.DataFrame(np.zeros((2, 500)))
    assert "440 more columns" in describe(wide)


def test_with_caps_each_value():
    ns = {"big": "word " * 1_000_000, "small": [1, 2]}
    text = text_of(values_message(["big", "small"], ns, cap=200, count=count))
    assert "characters left out" in text
    assert count(text) < 300
    assert "list of 2\n[1, 2]" in text


def test_with_other_kinds():
    assert "ndarray of shape (2, 3), dtype float64" in describe(np.zeros((2, 3)))
    assert "Series 's', 2 values" in describe(pd.Series([1, 1], name="s"))
    assert describe(count).startswith("def count(text")
    assert "len(obj" in describe(len)


def test_with_an_unknown_name_is_refused():
    with pytest.raises(InputRejected) as caught:
        values_message(["fram"], {"frame": 1}, cap=9, count=count)
    assert "'fram'" in str(caught.value)
    assert str(caught.value).endswith("%%agent --with frame")


def test_cells():
    assert cells_message([], cap=9, count=count) is None
    text = text_of(cells_message(["x = 1", "y = 2\n"], cap=100, count=count))
    assert text.index("x = 1") < text.index("y = 2")


# ---- reports and errors -----------------------------------------------------------------------


def test_report_is_plain_aligned_text():
    made = Report(
        "title", (("a", "1"), ("long name", "2\n3")), ("x", "yy"), (("1", "2"),), ("end",)
    )
    assert str(made) == "title\na          1\nlong name  2\n           3\n\nx  yy\n1  2\nend"
    assert str(report("t", "line", max_turns=3)) == "t\nmax turns  3\nline"
    assert "\x1b" not in str(report("a\x1b[31m"))


def test_N11_errors_are_short_lines_without_a_traceback():
    from IPython.core.interactiveshell import InteractiveShell

    error = ConfigError("first\nsecond")
    assert not hasattr(error, "_render_traceback_")
    short_errors.install()
    try:
        assert error._render_traceback_() == ["ConfigError: first", "second"]
        assert Cancelled("stopped")._render_traceback_() == ["Cancelled: stopped"]
        assert "\x1b" not in "".join(AgentError("a\x1b]52;c")._render_traceback_())
        assert len(AgentError("x\n" * 50)._render_traceback_()) == 8
        assert InteractiveShell is not None
    finally:
        short_errors.uninstall()
    short_errors.uninstall()
    assert not hasattr(error, "_render_traceback_")
