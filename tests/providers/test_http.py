"""The wire over real sockets: redirects, keys, caps, loops, proxies, cancel."""

from __future__ import annotations

import asyncio
import gc
import gzip
import io
import logging
import pickle
import subprocess
import sys
import traceback
import warnings
from pathlib import Path

import httpx
import httpx2
import pytest

from notebook_agent.core import events as e
from notebook_agent.core.messages import Message
from notebook_agent.core.request import RequestOptions, StreamRequest
from notebook_agent.errors import ConfigError, ErrorKind, ProviderError
from notebook_agent.providers.http import Endpoint
from notebook_agent.providers.openai_chat import OpenAIChat
from notebook_agent.providers.transport import HttpSettings, is_loopback
from tests.providers.server import Reply, collect, json_reply, serve, sse

pytestmark = pytest.mark.allow_requests

KEY = "sk-live-ZqXw0123456789vutsr"
ASK = StreamRequest((Message.user("hi"),))
OPTIONS = RequestOptions()
HELLO = sse(
    {"id": "c1", "choices": [{"index": 0, "delta": {"content": "Hello"}}]},
    {"id": "c1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    "[DONE]",
)
CLIENTS = pytest.mark.parametrize(
    "http_client", [None, httpx.AsyncClient, httpx2.AsyncClient], ids=["own", "httpx", "httpx2"]
)


def chat(url: str, **given) -> OpenAIChat:
    return OpenAIChat("m", **{"base_url": url + "/v1", "key": KEY, "provider": "test", **given})


async def text_of(client) -> str:
    events = await collect(client.stream_messages_with_options(ASK, OPTIONS))
    assert type(events[-1]) is e.MessageStop
    return "".join(
        v.delta.text
        for v in events
        if isinstance(v, e.IndexedDelta) and isinstance(v.delta, e.Text)
    )


async def failure(client, *, stream: bool = True) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        if stream:
            await collect(client.stream_messages_with_options(ASK, OPTIONS))
        else:
            await client.create_message_with_options(ASK, OPTIONS)
    return caught.value


@CLIENTS
async def test_streamed_and_not(http_client):
    whole = json_reply({"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}]})
    async with serve(Reply(HELLO), whole) as server:
        client = chat(server.url, http_client=http_client)
        assert await text_of(client) == "Hello"
        response = await client.create_message_with_options(ASK, OPTIONS)
        assert response.message.text_content() == "Hello"
        await client.aclose()
        first = server.requests[0]
        assert (first.method, first.target) == ("POST", "/v1/chat/completions")
        assert first.headers["authorization"] == f"Bearer {KEY}"
        assert first.json["stream"] is True
        assert "stream" not in server.requests[1].json


async def test_requests_are_off_in_tests_unless_asked_for():
    from notebook_agent.providers import base

    base.ALLOW_MODEL_REQUESTS.allowed = False
    async with serve(Reply(HELLO)) as server:
        with pytest.raises(ConfigError, match="requests are off"):
            await text_of(chat(server.url))
        assert server.requests == []


@CLIENTS
async def test_a_connection_is_used_again(http_client):
    async with serve(Reply(HELLO)) as server:
        client = chat(server.url, http_client=http_client)
        for _ in range(4):
            assert await text_of(client) == "Hello"
        await client.aclose()
        assert server.connections == 1


async def test_keep_alive_can_be_off():
    async with serve(Reply(HELLO)) as server:
        client = chat(server.url, settings=HttpSettings(keep_alive=False))
        for _ in range(3):
            assert await text_of(client) == "Hello"
        assert server.connections == 3
        assert server.requests[0].headers["connection"] == "close"
        await client.aclose()


async def test_an_idle_connection_that_the_server_closed_is_not_used():
    async with serve(Reply(HELLO, close=True)) as server:
        client = chat(server.url)
        for _ in range(3):
            assert await text_of(client) == "Hello"
            await asyncio.sleep(0.05)
        assert server.connections == 3
        await client.aclose()


async def test_the_turn_ends_at_the_marker_not_at_the_end_of_the_body():
    async with serve(Reply(HELLO, hang=True)) as server:
        client = chat(server.url)
        assert await asyncio.wait_for(text_of(client), 5) == "Hello"
        await asyncio.wait_for(server.gone.wait(), 5)  # its connection was closed
        await client.aclose()


async def test_an_error_of_the_connection_after_the_marker_changes_nothing():
    size = sum(len(b"%x\r\n\r\n" % len(p)) + len(p) for p in HELLO)
    async with serve(Reply(HELLO, cut=size)) as server:
        client = chat(server.url)
        assert await text_of(client) == "Hello"
        await client.aclose()


@CLIENTS
async def test_gzip(http_client):
    packed = gzip.compress(b"".join(HELLO))
    headers = {"content-type": "text/event-stream", "content-encoding": "gzip"}
    async with serve(Reply([packed[:20], packed[20:]], headers=headers)) as server:
        client = chat(server.url, http_client=http_client)
        assert await text_of(client) == "Hello"
        await client.aclose()


async def test_bad_gzip_is_a_transport_failure():
    headers = {"content-type": "text/event-stream", "content-encoding": "gzip"}
    async with serve(Reply([b"no gzip at all"], headers=headers)) as server:
        client = chat(server.url)
        error = await failure(client)
        assert error.kind is ErrorKind.TRANSPORT
        await client.aclose()


# X04: redirects


@CLIENTS
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_X04_a_redirect_to_another_host_is_refused(status, http_client):
    async with serve(Reply(HELLO)) as other:
        elsewhere = f"http://localhost:{other.port}/v1/chat/completions"
        moved = Reply([], status, {"location": elsewhere}, length=True)
        async with serve(moved) as server:
            for headers in ({}, {"x-api-key": KEY}, {"api-key": KEY}):
                client = chat(server.url, http_client=http_client, headers=headers)
                error = await failure(client)
                assert "localhost" in str(error)
                assert f"127.0.0.1:{server.port}" in str(error)
                assert not error.is_retryable
                await client.aclose()
        assert other.requests == []


@CLIENTS
@pytest.mark.parametrize(
    "location", ["/v2/chat?x=1", "{url}/v2/chat?x=1", "//127.0.0.1:{port}/v2/chat?x=1"]
)
async def test_X04_a_redirect_within_the_origin_is_followed(location, http_client):
    def answer(request):
        if request.target.startswith("/v2"):
            return Reply(HELLO)
        where = location.format(url=server.url, port=server.port)
        return Reply([], 307, {"location": where}, length=True)

    async with serve(answer) as server:
        client = chat(server.url, http_client=http_client)
        assert await text_of(client) == "Hello"
        assert server.requests[1].target == "/v2/chat?x=1"
        assert server.requests[1].body == server.requests[0].body
        assert server.requests[1].headers["authorization"] == f"Bearer {KEY}"
        await client.aclose()


@pytest.mark.parametrize(
    "where", ["https://127.0.0.1:{port}/v1", "http://127.0.0.1:9/v1", "ftp://127.0.0.1/v1"]
)
async def test_X04_another_port_or_scheme_is_another_origin(where):
    def moved(_request):
        return Reply([], 307, {"location": where.format(port=server.port)}, length=True)

    async with serve(moved) as server:
        client = chat(server.url)
        error = await failure(client)
        assert "was not followed" in str(error)
        assert len(server.requests) == 1
        await client.aclose()


async def test_X04_endless_redirects_end():
    async with serve(Reply([], 307, {"location": "/v1/again"}, length=True)) as server:
        client = chat(server.url)
        assert "redirected more than 5 times" in str(await failure(client))
        assert len(server.requests) == 6
        await client.aclose()


# X05: keys


def traces(error: BaseException) -> str:
    """The error as the most talkative reports show it: every frame with every local."""
    out = io.StringIO()
    seen: set[int] = set()

    def walk(one: BaseException | None) -> None:
        if one is None or id(one) in seen:
            return
        seen.add(id(one))
        captured = traceback.TracebackException.from_exception(one, capture_locals=True)
        out.writelines(captured.format())
        for frame, _line in traceback.walk_tb(one.__traceback__):
            for name, value in frame.f_locals.items():
                if name not in ("self", "KEY") and frame.f_code.co_filename != __file__:
                    out.write(f"{name}={value!r}\n")
                    if hasattr(value, "__dict__") and not isinstance(value, type):
                        out.write(f"{name}.vars={vars(value)!r}\n")
        walk(one.__cause__)
        walk(one.__context__)

    walk(error)
    return out.getvalue()


def assert_clean(text: str, *keys: str) -> None:
    for key in keys or (KEY,):
        for length in range(8, len(key) + 1):
            assert key[:length] not in text, f"{key[:length]!r} shows"


FAULTS = {
    "401 that repeats the key": lambda: json_reply({"error": {"message": f"Incorrect API key provided: {KEY}"}}, 401),
    "401 that masks the key": lambda: json_reply({"error": {"message": f"Incorrect API key: {KEY[:10]}****{KEY[-4:]}"}}, 401),
    "cut": lambda: Reply(HELLO, cut=60),
    "cut before anything": lambda: Reply(HELLO, cut=0),
    "no end": lambda: Reply(HELLO[:1], no_end=True),
    "truncated": lambda: Reply(HELLO[:1]),
    "malformed": lambda: Reply([b"data: {oops " + KEY.encode() + b"\n\n"]),
    "html": lambda: Reply([b"<html>"], headers={"content-type": "text/html"}),
    "redirect": lambda: Reply([], 307, {"location": f"http://{KEY}.example/{KEY}?k={KEY}"}, length=True),
    "error event": lambda: Reply(sse({"error": {"message": f"bad key {KEY}", "type": "server_error"}})),
    "no reply": lambda: json_reply({"you sent": KEY}),
}  # fmt: skip


@CLIENTS
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("stream", [True, False])
async def test_X05_no_key_in_errors_traces_and_logs(fault, stream, http_client, caplog):
    caplog.set_level(logging.DEBUG)
    key2, key3 = "qk-0123456789abcdef", "pw-fedcba9876543210"
    async with serve(FAULTS[fault]()) as server:
        base = server.url.replace("://", f"://me:{key3}@") + f"/v1?api_key={key2}"
        client = chat("", base_url=base, http_client=http_client, headers={"x-api-key": KEY})
        # A header given as plain text is the caller's own choice; our keys are Secrets.
        client._headers.clear()
        error = await failure(client, stream=stream)
        sent = server.requests[0]
        assert sent.target.endswith(f"?api_key={key2}")
        assert sent.headers["authorization"] == f"Bearer {KEY}"
        shown = "\n".join(
            [
                traces(error),
                str(error),
                repr(error),
                str(error.to_json()),
                repr(client),
                caplog.text,
            ]
        )
        assert_clean(shown, KEY, key2, key3)
        assert error.__cause__ is None
        assert error.__context__ is None
        await client.aclose()


@CLIENTS
async def test_X05_no_key_when_nothing_answers(http_client, caplog):
    caplog.set_level(logging.DEBUG)
    client = chat("http://127.0.0.1:9", http_client=http_client)
    error = await failure(client)
    assert error.kind is ErrorKind.TRANSPORT
    assert error.is_retryable
    assert "127.0.0.1:9" in str(error)
    assert "http://127.0.0.1:9/v1" in str(error)
    assert_clean(traces(error) + caplog.text)
    await client.aclose()


@CLIENTS
async def test_X05_no_key_in_a_cancel(http_client):
    async with serve(Reply(HELLO[:1], hang=True)) as server:
        client = chat(server.url, http_client=http_client)
        task = asyncio.create_task(text_of(client))
        while not server.requests:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert_clean(traces(caught.value))
        await client.aclose()


async def test_X05_the_client_itself_shows_and_pickles_no_key():
    client = chat("https://u:pw-fedcba9876543210@host.example", headers={"x": KEY[:3]})
    shown = (
        repr(client) + repr(vars(client)) + repr(vars(client._wire)) + repr(client._wire.endpoint)
    )
    assert_clean(shown, KEY, "pw-fedcba9876543210")
    with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
        pickle.dumps(client)
    assert client.base_url() == "https://host.example/v1"


@pytest.mark.parametrize(
    "bad", ["ftp://u:{k}@h/x", "{k}", "http://", "http://u:{k}@h:notaport/", ""]
)
def test_X05_a_bad_base_url_is_not_repeated(bad):
    with pytest.raises(ConfigError) as caught:
        OpenAIChat("m", base_url=bad.format(k=KEY))
    assert "Give one like" in str(caught.value)
    assert_clean(traces(caught.value))


async def test_basic_authorization_from_the_user_part():
    async with serve(Reply(HELLO)) as server:
        base = server.url.replace("://", "://user:p%40ss@")
        client = OpenAIChat("m", base_url=base)
        await text_of(client)
        assert server.requests[0].headers["authorization"] == "Basic dXNlcjpwQHNz"
        await client.aclose()


# caps, media types


async def test_caps_of_whole_replies():
    big = json_reply({"choices": [{"message": {"content": "x" * 5000}}]})
    chunked = Reply([b"x" * 900] * 9, headers={"content-type": "application/json"})
    for reply in (big, chunked):
        async with serve(reply) as server:
            client = chat(server.url, settings=HttpSettings(body_cap=4000))
            error = await failure(client, stream=False)
            assert "cap of 4,000 bytes" in str(error)
            assert error.kind is ErrorKind.DECODE
            await client.aclose()


async def test_caps_of_streams():
    endless = Reply([b"data: {" + b"x" * 500] + [b"x" * 500] * 50)
    async with serve(endless) as server:
        client = chat(server.url, settings=HttpSettings(line_cap=2000))
        assert "line is longer than the cap of 2,000" in str(await failure(client))
        await client.aclose()
    many = Reply(HELLO[:1] * 100)
    async with serve(many) as server:
        client = chat(server.url, settings=HttpSettings(stream_cap=2000))
        assert "stream is longer than the cap of 2,000" in str(await failure(client))
        await client.aclose()


async def test_only_the_first_kilobytes_of_an_error_are_read():
    def pieces(_request):
        return Reply([b"z" * 4096] * 1000, 500, {"content-type": "text/plain"}, hang=True)

    async with serve(pieces) as server:
        client = chat(server.url)
        error = await asyncio.wait_for(failure(client), 5)
        assert error.status == 500
        assert len(error.message) < 500
        await client.aclose()


async def test_an_error_whose_body_breaks_off_keeps_its_status():
    async with serve(Reply([b'{"error": {"mess'], 503, no_end=True)) as server:
        client = chat(server.url)
        error = await failure(client)
        assert (error.kind, error.status) == (ErrorKind.OVERLOADED, 503)
        await client.aclose()


async def test_a_server_that_ignores_stream_is_understood():
    whole = json_reply(
        {"choices": [{"message": {"content": "Hello"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 3}}
    )  # fmt: skip
    async with serve(whole) as server:
        client = chat(server.url)
        assert await text_of(client) == "Hello"
        await client.aclose()


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (
            Reply([b"<html>hi</html>"], headers={"content-type": "text/html; charset=utf-8"}),
            "HTML page",
        ),
        (json_reply({"hello": 1}), "no reply"),
        (Reply([b'{"choices": [{"mess'], headers={"content-type": "application/json"}), "no reply"),
        (Reply([b"not json"], headers={"content-type": "application/json"}), "no reply"),
        (Reply([], headers={"content-type": "application/json"}), "no reply"),
    ],
)
async def test_what_is_no_reply_is_said_in_plain_words(reply, words):
    async with serve(reply) as server:
        client = chat(server.url)
        for stream in (True, False):
            error = await failure(client, stream=stream)
            assert words in str(error)
            assert f"127.0.0.1:{server.port}" in str(error)
            assert error.kind is ErrorKind.DECODE
            assert not error.is_retryable
            assert len(str(error).splitlines()) <= 3
        await client.aclose()


# loops, cancel, closing


def test_K02_three_turns_each_on_a_loop_of_its_own():
    """No closed-loop error, no warning about anything left open."""

    async def turn(client, port) -> str:
        return await text_of(client)

    async def session() -> None:
        async with serve(Reply(HELLO)) as server:
            client = chat(server.url)
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                loop = asyncio.get_running_loop()
                for _ in range(3):
                    found = await loop.run_in_executor(
                        None, lambda: asyncio.run(turn(client, server.port))
                    )
                    assert found == "Hello"
                gc.collect()
            assert [str(w.message) for w in seen] == []
            assert server.connections == 3  # never a connection of another loop
            await asyncio.sleep(0.05)
            assert server.open == 0  # each was closed with its loop

    asyncio.run(session())


@pytest.mark.parametrize("http_client", [httpx.AsyncClient, httpx2.AsyncClient])
def test_K02_an_injected_client_is_made_once_for_each_loop(http_client):
    made = []

    def factory():
        asyncio.get_running_loop()  # it is called on the loop that uses it
        made.append(http_client())
        return made[-1]

    async def session() -> None:
        async with serve(Reply(HELLO)) as server:
            client = chat(server.url, http_client=factory)
            loop = asyncio.get_running_loop()

            async def twice() -> None:
                await text_of(client)
                await text_of(client)

            for _ in range(2):
                await loop.run_in_executor(None, lambda: asyncio.run(twice()))

    asyncio.run(session())
    assert len(made) == 2
    assert all(client.is_closed for client in made)


@CLIENTS
@pytest.mark.parametrize("taken", [1, 2])
async def test_K05_closing_the_stream_closes_the_response_and_yields_nothing(taken, http_client):
    pieces = [*HELLO[:1], *sse({"choices": [{"index": 0, "delta": {"reasoning": "hm"}}]})]
    async with serve(Reply(pieces, hang=True)) as server:
        client = chat(server.url, http_client=http_client)
        events = client.stream_messages_with_options(ASK, OPTIONS)
        for _ in range(taken):
            await anext(events)
        await events.aclose()
        await asyncio.wait_for(server.gone.wait(), 2)
        with pytest.raises(StopAsyncIteration):
            await anext(events)
        await client.aclose()


@CLIENTS
async def test_a_cancel_closes_the_connection_at_once_and_the_next_request_works(http_client):
    async with serve(Reply(HELLO[:1], hang=True), Reply(HELLO)) as server:
        client = chat(server.url, http_client=http_client)
        task = asyncio.create_task(text_of(client))
        while not server.requests:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.02)
        task.cancel()
        started = asyncio.get_running_loop().time()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.gone.wait(), 2)
        assert asyncio.get_running_loop().time() - started < 0.5
        assert await text_of(client) == "Hello"
        await client.aclose()


async def test_nothing_outlives_a_turn():
    async with serve(Reply(HELLO), Reply(HELLO[:1], cut=30), Reply(HELLO[:1], hang=True)) as server:
        client = chat(server.url)
        before = asyncio.all_tasks() | server._tasks
        await text_of(client)
        await failure(client)
        events = client.stream_messages_with_options(ASK, OPTIONS)
        await anext(events)
        await events.aclose()
        await client.aclose()
        left = asyncio.all_tasks() - before - server._tasks
        assert left == set()


# proxies


async def test_loopback_never_goes_through_a_proxy(monkeypatch):
    async with serve(Reply(HELLO)) as proxy, serve(Reply(HELLO)) as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        for url in (server.url, server.url.replace("127.0.0.1", "localhost")):
            client = chat(url)
            assert await text_of(client) == "Hello"
            await client.aclose()
        assert proxy.requests == []


async def test_other_hosts_go_through_the_proxy_of_the_environment(monkeypatch):
    async with serve(Reply(HELLO)) as proxy:
        for name in ("HTTP_PROXY", "http_proxy"):
            monkeypatch.setenv(name, proxy.url)
        client = chat("http://model.example")
        assert await text_of(client) == "Hello"
        assert proxy.requests[0].target == "http://model.example/v1/chat/completions"
        await client.aclose()


@pytest.mark.parametrize(
    ("host", "expected"),
    [("localhost", True), ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("a.localhost", True),
     ("example.com", False), ("10.0.0.1", False), ("localhost.example.com", False)],
)  # fmt: skip
def test_is_loopback(host, expected):
    assert is_loopback(host) is expected


def test_endpoint():
    endpoint = Endpoint.parse("https://h.example:8443/v1/?a=b")
    assert (endpoint.url, endpoint.host) == ("https://h.example:8443/v1", "h.example:8443")
    assert Endpoint.parse("http://[::1]:80/x").host == "[::1]:80"


# a transport of one's own


async def test_a_whole_transport_can_be_given():
    class Stream:
        status = 200
        headers = (("content-type", "text/event-stream"),)
        closed = False

        async def chunks(self):
            for piece in HELLO:
                yield piece

        async def aclose(self):
            self.closed = True

    class Own:
        def __init__(self):
            self.asked = []
            self.stream = Stream()

        async def send(self, method, url, *, headers, body=None, query=""):
            self.asked.append((method, url, query))
            return self.stream

        async def aclose(self):
            pass

    own = Own()
    client = chat("", base_url="http://h.example/v1?a=b", transport=lambda: own)
    assert await text_of(client) == "Hello"
    assert own.asked == [("POST", "http://h.example/v1/chat/completions", "a=b")]
    assert own.stream.closed


async def test_a_read_gap_ends_a_silent_stream():
    async with serve(Reply(HELLO[:1], hang=True)) as server:
        client = chat(server.url, settings=HttpSettings(read_gap_s=0.05))
        error = await failure(client)
        assert error.kind is ErrorKind.TIMEOUT
        assert "sent nothing for 0.05 s" in str(error)
        await client.aclose()


@CLIENTS
async def test_passthrough_sets_a_read_gap_for_its_context(http_client):
    from notebook_agent.providers.base import READ_GAP_S

    async with serve(Reply(HELLO[:1], hang=True)) as server:
        client = chat(server.url, http_client=http_client)
        token = READ_GAP_S.set(0.05)
        error = await failure(client)
        assert error.kind is ErrorKind.TIMEOUT
        assert "sent nothing for 0.05 s" in str(error)
        READ_GAP_S.reset(token)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(text_of(client), 0.2)
        await client.aclose()


async def test_a_connection_that_does_not_come_up_times_out():
    """A TLS handshake that is never answered stands for a host that drops packets."""

    async def silent(reader, writer):
        await reader.read()
        writer.transport.abort()

    listener = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    settings = HttpSettings(connect_timeout_s=0.1)
    client = chat("", base_url=f"https://127.0.0.1:{port}", settings=settings)
    error = await failure(client)
    assert error.kind is ErrorKind.TIMEOUT
    assert "within 0.1 s" in str(error)
    await client.aclose()
    listener.close()
    await listener.wait_closed()
    await asyncio.sleep(0.05)


WITHOUT_HTTPX = """
import asyncio, sys
sys.modules["httpx"] = sys.modules["httpcore"] = None
import httpx2
from notebook_agent.core.messages import Message
from notebook_agent.core.request import RequestOptions, StreamRequest
from notebook_agent.providers.openai_chat import OpenAIChat
from tests.providers.server import Reply, serve, sse

async def main():
    hello = sse({"id": "c", "choices": [{"delta": {"content": "Hello"}}]}, "[DONE]")
    async with serve(Reply(hello)) as server:
        client = OpenAIChat("m", base_url=server.url, http_client=httpx2.AsyncClient)
        ask = StreamRequest((Message.user("x"),))
        seen = client.stream_messages_with_options(ask, RequestOptions())
        print([type(event).__name__ async for event in seen][-1])
        await client.aclose()

asyncio.run(main())
"""


def test_F7_another_client_works_where_httpx_is_not_there():
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_HTTPX], capture_output=True, text=True, timeout=60, cwd=root
    )
    assert done.stdout.strip() == "MessageStop", done.stderr
