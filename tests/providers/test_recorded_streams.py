"""Recorded answers of real providers, decoded and compared with what they say.

The bodies are not part of this repository. Their folder is named by the environment variable
RECORDED_STREAMS (a ``manifest.jsonl`` and the bodies it names). Without it these tests are
skipped with one loud line; with CI=true that is a failure.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from notebook_agent.errors import ErrorKind
from notebook_agent.providers.decode import decode_body
from notebook_agent.providers.errors import from_response

FOLDER = os.environ.get("RECORDED_STREAMS", "")
LINES = (
    [json.loads(line) for line in (Path(FOLDER) / "manifest.jsonl").read_text("utf-8").splitlines()]
    if FOLDER
    else []
)
STREAMS = [line for line in LINES if "http_error" not in line["scenario"]]
ERRORS = [line for line in LINES if "http_error" in line["scenario"]]
COMPLETE = [line for line in STREAMS if line["expected"]["complete"]]
FIELDS = (
    "text", "thinking", "refusal", "tool_calls", "stop_reason", "stop", "usage", "error",
    "complete",
)  # fmt: skip

# The manifest's word -> B38's kind. context_length is a bad request marked as overflow.
KIND_OF_ERROR = {
    "auth": (ErrorKind.AUTHENTICATION, False),
    "rate_limit": (ErrorKind.RATE_LIMITED, False),
    "context_length": (ErrorKind.BAD_REQUEST, True),
    "not_found": (ErrorKind.BAD_REQUEST, False),
    "bad_request": (ErrorKind.BAD_REQUEST, False),
}

EVERY_BYTE = 3_000  # bodies up to this many bytes are cut at every byte, longer ones at 20 places

needs_bodies = pytest.mark.skipif(not FOLDER, reason="RECORDED_STREAMS is not set")


def body(line: dict) -> bytes:
    return (Path(FOLDER) / line["file"]).read_bytes()


def compare(got: dict, expected: dict) -> None:
    assert {k: got[k] for k in FIELDS} == {k: expected.get(k) for k in FIELDS}


def ids(line: dict) -> str:
    return line["id"]


def test_the_bodies_are_there(capsys):
    """Loud when they are not; a failure in CI."""
    if not FOLDER:
        with capsys.disabled():
            print("\n!!! RECORDED_STREAMS is not set: no recorded body was decoded !!!")
        assert os.environ.get("CI") != "true", "CI runs must set RECORDED_STREAMS"
        pytest.skip("RECORDED_STREAMS is not set")
    counts = Counter(line["api"] for line in LINES)
    with capsys.disabled():
        shown = ", ".join(f"{api} {n}" for api, n in sorted(counts.items()))
        print(f"\nrecorded bodies: {len(LINES)} ({shown})")
    assert len(LINES) > 0


@needs_bodies
@pytest.mark.parametrize("chunk", [None, 1, 7], ids=["whole", "bytes", "sevens"])
@pytest.mark.parametrize("line", STREAMS, ids=ids)
def test_body(line, chunk):
    compare(decode_body(body(line), line["api"], chunk), line["expected"])


@needs_bodies
@pytest.mark.parametrize("line", ERRORS, ids=ids)
def test_http_error(line):
    error = from_response(
        line["http_status"],
        list(line["headers"].items()),
        body(line),
        host="host",
        wall=lambda: 0.0,
    )
    expected = line["expected"]
    kind, overflow = KIND_OF_ERROR[expected["error_kind"]]
    assert (error.kind, error.overflow) == (kind, overflow)
    assert error.is_retryable == expected["retryable"]
    assert error.message == expected["message"]
    assert error.status == line["http_status"]


def completing_event(data: bytes, api: str) -> tuple[int, int]:
    """First and last byte of the earliest event after which the reply counts as complete.

    Found by asking the decoder for every border of an event (an empty line, a line, an element),
    so it knows nothing of the format but where its documents end.
    """
    borders = [0]
    if b"\n\n" in data or b"\r\n\r\n" in data:
        at = 0
        for piece in data.replace(b"\r\n\r\n", b"\n\n\x00\x00").split(b"\n\n"):
            at += len(piece) + 2
            borders.append(min(at, len(data)))
        borders = [b + 2 if data[b : b + 2] == b"\r\n" and b < len(data) else b for b in borders]
    if api == "ollama" or len(borders) <= 2:
        borders = [0] + [i + 1 for i, byte in enumerate(data) if byte in b"\n}"]
    borders = sorted({*borders, len(data)})
    low, high = 0, len(borders) - 1
    while low < high:  # complete at every border after the first complete one
        middle = (low + high) // 2
        if decode_body(data[: borders[middle]], api)["complete"]:
            high = middle
        else:
            low = middle + 1
    return borders[low - 1], borders[low]


@needs_bodies
@pytest.mark.parametrize("line", COMPLETE, ids=ids)
def test_cut(line):
    data, api = body(line), line["api"]
    start, end = completing_event(data, api)
    small = len(data) <= EVERY_BYTE
    places = range(start + 1) if small else sorted({start * k // 19 for k in range(20)})
    for place in places:
        got = decode_body(data[:place], api)
        assert not got["complete"], f"complete after {place} of {len(data)} bytes"
        assert got["error"] is None
        assert line["expected"]["text"].startswith(got["text"])
    got = decode_body(data[:end], api)
    assert got["complete"]
    assert got["error"] is None
    for field in ("text", "thinking", "tool_calls"):
        assert got[field] == line["expected"][field]
    assert got["usage"] in (None, line["expected"]["usage"]) or api != "openai-chat"
