"""S01-S13 in every wire format: a body of ``bodies.py``, or why the format has no such case.

The bodies are decoded whole, byte by byte and cut anywhere by test_formats.py.
"""

from __future__ import annotations

import pytest

from tests.providers.bodies import BODIES

CASES = tuple(f"S{n:02}" for n in range(1, 14))
OBJECTS = "arguments are an object in one event, never text in pieces"
ONE_NAME = "reasoning has one name"

# (format, case) -> the name of a body that does not begin with the case's id.
OTHERWISE = {
    ("openai-chat", "S13"): "usage on every chunk",
    ("anthropic-messages", "S08"): "parallel calls, one without arguments",
    ("gemini", "S08"): "calls with ids, one without args",
    ("ollama", "S08"): "calls",
    ("openai-responses", "S08"): "parallel calls, one without arguments",
    ("openai-responses", "S12"): "reasoning text",
}
NOT_APPLICABLE = {
    ("anthropic-messages", "S12"): ONE_NAME,
    ("gemini", "S05"): OBJECTS,
    ("gemini", "S09"): OBJECTS,
    ("gemini", "S12"): "reasoning is a mark on a text part, not a field",
    ("ollama", "S05"): OBJECTS,
    ("ollama", "S09"): OBJECTS,
    ("ollama", "S12"): ONE_NAME,
    ("ollama", "S13"): "usage is told once, in the last line",
    ("openai-responses", "S07"): "a reply has a status and no reason; calls are seen in its items",
    ("openai-responses", "S13"): "usage is told once, in the final object",
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("api", list(BODIES))
def test_every_case_in_every_format(api, case):
    names = [name for name, _, _ in BODIES[api]]
    rows = [name for name in names if name.startswith(f"{case} ")]
    rows += [name for name in names if name == OTHERWISE.get((api, case))]
    reason = NOT_APPLICABLE.get((api, case), "")
    assert bool(rows) != bool(reason), (rows, reason)


def test_both_bad_and_good_bytes_of_S01_in_every_format():
    for api, rows in BODIES.items():
        names = [name for name, _, _ in rows]
        assert any(n.startswith("S01 characters") for n in names), api
        assert "S01 really invalid bytes" in names, api


def test_the_tables_name_what_is_there():
    known = {(api, case) for api in BODIES for case in CASES}
    assert {*OTHERWISE, *NOT_APPLICABLE} <= known
    assert not {*OTHERWISE} & {*NOT_APPLICABLE}
    for (api, _), name in OTHERWISE.items():
        assert name in [row for row, _, _ in BODIES[api]]
