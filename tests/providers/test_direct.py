"""The reframer: whatever it joins, the parser reads the same body."""

from __future__ import annotations

import asyncio
import doctest
import ssl
from collections import Counter
from functools import partial
from itertools import pairwise

import h11
import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from notebook_agent.providers import direct
from notebook_agent.providers.direct import DirectTransport, Reframer
from tests.faultserver import FaultServer


def test_doctests():
    assert doctest.testmod(direct).failed == 0


def parse(pieces) -> tuple[list, bytes, str]:
    """Heads, body and end (``end``, ``cut``, ``error``) as h11 reads the pieces."""
    connection = h11.Connection(our_role=h11.CLIENT)
    connection.send(h11.Request(method="POST", target="/", headers=[("host", "x")]))
    connection.send(h11.EndOfMessage())
    heads, body = [], b""
    try:
        for piece in [*pieces, b""]:
            connection.receive_data(piece)
            while True:
                event = connection.next_event()
                if isinstance(event, (h11.Response, h11.InformationalResponse)):
                    heads.append((event.status_code, list(event.headers)))
                elif isinstance(event, h11.Data):
                    body += bytes(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    return heads, body, "end"
                else:
                    break
    except h11.RemoteProtocolError:
        return heads, body, "error"
    return heads, body, "cut"


def reframed(pieces) -> list[bytes]:
    frames = Reframer()
    out = [frames.feed(piece) for piece in pieces]
    return [piece for piece in out if piece]


def cut_up(data: bytes, cuts) -> list[bytes]:
    places = [0, *sorted(cuts), len(data)]
    return [data[a:b] for a, b in pairwise(places) if b > a]


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def wire(chunks, extension=b"", trailer=b"") -> bytes:
    framed = b"".join(b"%x%s\r\n%s\r\n" % (len(c), extension, c) for c in chunks if c)
    return HEAD + framed + b"0\r\n" + trailer + b"\r\n"


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.binary(min_size=1, max_size=40), max_size=8),
    st.sampled_from([b"", b";a=b", b" "]),
    st.sampled_from([b"", b"x: y\r\n"]),
    st.data(),
)
def test_any_split_reads_the_same(chunks, extension, trailer, data):
    whole = wire(chunks, extension, trailer)
    cuts = data.draw(st.lists(st.integers(0, len(whole)), max_size=10))
    pieces = cut_up(whole, cuts)
    heads, body, end = parse(reframed(pieces))
    assert (heads, body, end) == parse([whole])
    assert body == b"".join(chunks)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=5), st.data())
def test_a_cut_body_stays_cut(chunks, data):
    whole = wire(chunks)
    length = data.draw(st.integers(0, len(whole) - 1))
    cuts = data.draw(st.lists(st.integers(0, length), max_size=6))
    heads, body, end = parse(reframed(cut_up(whole[:length], cuts)))
    plain_heads, plain_body, plain_end = parse([whole[:length]])
    assert end != "end"
    assert heads == plain_heads
    assert body == plain_body
    assert {end, plain_end} <= {"cut", "error"}


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60), st.data())
def test_garbage_in_place_of_chunks_is_judged_by_the_parser(junk, data):
    whole = HEAD + junk
    cuts = data.draw(st.lists(st.integers(0, len(whole)), max_size=6))
    assert parse(reframed(cut_up(whole, cuts)))[1:] == parse([whole])[1:] or parse(
        reframed(cut_up(whole, cuts))
    )[2] in ("error", "cut")
    if parse([whole])[2] != "end":
        assert parse(reframed(cut_up(whole, cuts)))[2] != "end"


@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_bodies_without_chunks_pass_untouched(step):
    whole = b"HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n5\r\nhello\r\n\r"
    pieces = cut_up(whole, range(step, len(whole), step))
    assert b"".join(reframed(pieces)) == whole


@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_an_informational_head_comes_first(step):
    whole = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nlink: x\r\n\r\n" + wire(
        [b"ab", b"c"]
    )
    heads, body, end = parse(reframed(cut_up(whole, range(step, len(whole), step))))
    assert [h[0] for h in heads] == [100, 103, 200]
    assert (body, end) == (b"abc", "end")


def test_chunks_of_one_read_are_joined_and_a_lone_one_is_not_held():
    frames = Reframer()
    frames.feed(HEAD)
    assert frames.feed(b"1\r\na\r\n") == b"1\r\na\r\n"
    assert frames.feed(b"1\r\na\r\n2\r\nbc\r\n") == b"3\r\nabc\r\n"
    assert frames.feed(b"a\r\nhalf") == b"4\r\nhalf\r\n"
    assert frames.feed(b"second") == b"6\r\nsecond\r\n"
    assert frames.feed(b"\r\n0\r") == b""
    assert frames.feed(b"\n\r\n") == b"0\r\n\r\n"
    frames.reset()
    assert frames.feed(b"HTTP/1.1 204 No\r\n\r\n") == b"HTTP/1.1 204 No\r\n\r\n"


@pytest.mark.allow_requests
async def test_L129_a_request_cancelled_at_any_moment_leaves_no_connection_behind():
    """Step by step through a request on a fresh and on a kept connection: cancelled there, the
    pool holds only connections that a later request can use, and the server no more than those."""
    ends = Counter()
    body = {"model": "healthy", "stream": True}
    async with FaultServer() as server:
        for kept in (False, True):
            for steps in range(50):
                transport = DirectTransport(ssl.create_default_context(), keep_alive=5, expiry_s=9)
                async with httpx.AsyncClient(transport=transport) as client:
                    send = partial(client.post, f"{server.url}/chat/completions", json=body)
                    if kept:
                        await send()
                    task = asyncio.ensure_future(send())
                    for _ in range(steps):
                        await asyncio.sleep(0)
                    task.cancel()
                    [end] = await asyncio.gather(task, return_exceptions=True)
                    ends[kept, type(end).__name__] += 1
                    left = transport._pool.connections
                    odd = [one.info() for one in left if not (one.is_idle() or one.is_closed())]
                    assert not odd, (kept, steps, end, odd)
                    usable = sum(one.is_idle() for one in left)
                    for _ in range(200):
                        if server.connections == usable:
                            break
                        await asyncio.sleep(0.005)
                    assert server.connections == usable, (kept, steps)
                    assert (await send()).status_code == 200
    assert ends[False, "CancelledError"] > 5
    assert ends[True, "CancelledError"] > 5
    assert ends[False, "Response"] + ends[True, "Response"] > 5
