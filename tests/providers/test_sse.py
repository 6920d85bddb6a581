"""Splitters: the same items however a body is cut into chunks."""

from __future__ import annotations

import doctest
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from notebook_agent.errors import ErrorKind, ProviderError
from notebook_agent.providers import sse
from notebook_agent.providers.sse import JsonArray, Named, NdJson, SseEvents, StreamCaps


def run(make, body: bytes, cuts=()):
    splitter = make()
    out, at = [], 0
    for cut in [*sorted(cuts), len(body)]:
        out += splitter.feed(body[at:cut])
        at = cut
    return out + splitter.finish()


def every_delivery(make, body: bytes, expected) -> None:
    assert run(make, body) == expected
    assert run(make, body, range(1, len(body))) == expected
    for cut in range(len(body) + 1):
        assert run(make, body, [cut]) == expected, f"cut at {cut}"


def test_doctests():
    assert doctest.testmod(sse).failed == 0


def test_S01_a_chunk_border_inside_a_character():
    text = "Žagarė 🦉"
    document = {"choices": [{"delta": {"content": text}}]}
    payload = json.dumps(document, ensure_ascii=False).encode()
    every_delivery(SseEvents, b"data: " + payload + b"\n\n", [payload])


def test_S02_only_lf_crlf_and_cr_end_a_line():
    payload = '{"t":"one\u2028two\u0085three\u000bfour\u001efive\u001csix\u000cseven"}'.encode()
    every_delivery(SseEvents, b"data: " + payload + b"\n\n", [payload])
    every_delivery(NdJson, payload + b"\n" + payload + b"\n", [payload, payload])


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_S02_each_line_end(end):
    body = end.join([b"data: a", b"", b"event: x", b"data:b", b"data: c", b"", b": ping", b"", b""])
    every_delivery(SseEvents, body, [b"a", b"b\nc", None])


def test_S02_mixed_line_ends():
    every_delivery(SseEvents, b"data: a\r\n\ndata: b\n\r\ndata: c\r\r\n", [b"a", b"b", b"c"])


def test_S03_comments_and_pings_are_signs_of_life():
    body = b":\n\n" * 4 + b": keepalive\n\n" + b"event: ping\ndata: {}\n\n" + b"data: x\n\n"
    every_delivery(SseEvents, body, [None] * 6 + [b"x"])


def test_S03_a_comment_is_told_at_its_line_end_not_at_the_event():
    splitter = SseEvents()
    assert splitter.feed(b": keep") == []
    assert splitter.feed(b"alive\n") == [None]
    assert splitter.feed(b": again\n: and\n") == [None, None]
    assert splitter.feed(b"data: x\n\n") == [b"x"]


def test_S03_a_comment_inside_an_event_does_not_break_it():
    every_delivery(SseEvents, b"data: a\n: hm\ndata: b\n\n", [None, b"a\nb"])


def test_S10_named_error_events():
    body = b'event: error\ndata: {"a":1}\n\nevent:error\ndata: busy\n\nevent: other\ndata: x\n\n'
    every_delivery(SseEvents, body, [Named("error", b'{"a":1}'), Named("error", b"busy"), b"x"])


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"data: last", [b"last"]),
        (b"data: last\n", [b"last"]),
        (b"\xef\xbb\xbfdata: bom\n\n", [b"bom"]),
        (b"id: 7\nretry: 10\ndata: x\n\n", [b"x"]),
        (b"data\n\n", [None]),
        (b"data:\n\n", [None]),
        (b"data:  two\n\n", [b" two"]),
        (b"\n\n\n\ndata: x\n\n\n\n\n", [b"x"]),
        (b'{"error": "no field"}\n\n', [b'{"error": "no field"}']),
        (b'error: {"code": 500}\n\n', [Named("error", b'{"code": 500}')]),
        (b"event: message\ndata: {}\n\n", [b"{}"]),
        (b"", []),
    ],
)
def test_sloppy_servers(body, expected):
    every_delivery(SseEvents, body, expected)


LINES = st.sampled_from(
    [b"data: a", b"data:b", b"data: {}", b"", b"", b":", b": c", b"event: error", b"event: ping",
     b"event: x", b"id: 1", b"{}", b"error: z", "data: ė🦉\u2028".encode(), b"data", b"junk"]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(LINES, st.sampled_from([b"\n", b"\r\n", b"\r"]))), st.data())
def test_any_split_of_any_lines(lines, data):
    body = b"".join(line + end for line, end in lines)
    cuts = data.draw(st.lists(st.integers(0, len(body)), max_size=12))
    for make in (SseEvents, NdJson):
        assert run(make, body, cuts) == run(make, body)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=120), st.data())
def test_any_split_of_any_bytes(body, data):
    cuts = data.draw(st.lists(st.integers(0, len(body)), max_size=12))
    for make in (SseEvents, NdJson, JsonArray):
        assert run(make, body, cuts) == run(make, body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.dictionaries(st.text(max_size=4), JSON, max_size=3), max_size=5),
    st.sampled_from([None, 2]),
    st.booleans(),
    st.data(),
)
def test_json_array_elements(elements, indent, ascii_only, data):
    body = json.dumps(elements, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "replace")
    cuts = data.draw(st.lists(st.integers(0, len(body)), max_size=8))
    found = [json.loads(item) for item in run(JsonArray, body, cuts)]
    assert found == json.loads(body)


def test_json_array_that_is_cut_gives_its_whole_elements():
    assert run(JsonArray, b'[{"a":"}"},\n{"b":[1,') == [b'{"a":"}"}', b'{"b":[1,']
    assert run(JsonArray, b'{"one": {}}') == [b'{"one": {}}']


@pytest.mark.parametrize("make", [SseEvents, NdJson, JsonArray])
@pytest.mark.parametrize("step", [7, 1000])
def test_an_endless_line_meets_its_cap(make, step):
    splitter = make(StreamCaps(line=100))
    body = b'data: {"' + b"x" * 4000
    with pytest.raises(ProviderError, match="cap of 100 bytes") as caught:
        for at in range(0, len(body), step):
            splitter.feed(body[at : at + step])
    assert caught.value.kind is ErrorKind.DECODE
    assert not caught.value.is_retryable


def test_an_endless_event_meets_its_cap():
    splitter = SseEvents(StreamCaps(line=100))
    with pytest.raises(ProviderError, match="cap of 100 bytes"):
        for _ in range(100):
            splitter.feed(b"data: x\n")


@pytest.mark.parametrize("make", [SseEvents, NdJson])
def test_an_endless_stream_meets_its_cap(make):
    splitter = make(StreamCaps(stream=1000))
    with pytest.raises(ProviderError, match="cap of 1,000 bytes"):
        for _ in range(200):
            splitter.feed(b"data: x\n\n")


def test_a_line_of_exactly_the_cap_passes():
    payload = b"x" * 94
    for cuts in ((), (50,), (101,)):
        assert run(
            lambda: SseEvents(StreamCaps(line=100)), b"data: " + payload + b"\n\n", cuts
        ) == [payload]
    with pytest.raises(ProviderError):
        run(lambda: SseEvents(StreamCaps(line=100)), b"data: " + payload + b"x\n\n")


def test_a_long_line_in_small_pieces_is_not_quadratic():
    """Pieces are joined once, when the line ends."""
    splitter = SseEvents()
    splitter.feed(b"data: ")
    for _ in range(20_000):
        splitter.feed(b"x" * 100)
    assert splitter.feed(b"\n\n") == [b"x" * 2_000_000]
