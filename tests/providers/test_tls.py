"""TLS: certificates by the usual variable, streams, connections used again, cancel."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from notebook_agent.errors import ErrorKind
from tests.providers.server import CERTIFICATE, Reply, serve
from tests.providers.test_http import HELLO, chat, failure, text_of

pytestmark = pytest.mark.allow_requests
CLIENTS = pytest.mark.parametrize("http_client", [None, httpx.AsyncClient], ids=["own", "httpx"])


@CLIENTS
async def test_a_certificate_named_by_the_environment_is_trusted(http_client, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    async with serve(Reply(HELLO), tls=True) as server:
        client = chat(server.url, http_client=http_client)
        for _ in range(3):
            assert await text_of(client) == "Hello"
        assert server.connections == 1
        await client.aclose()
        by_name = chat(server.url.replace("127.0.0.1", "localhost"), http_client=http_client)
        assert await text_of(by_name) == "Hello"
        await by_name.aclose()


@CLIENTS
async def test_any_other_certificate_is_refused_and_not_tried_again(http_client, monkeypatch):
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    async with serve(Reply(HELLO), tls=True) as server:
        client = chat(server.url, http_client=http_client)
        error = await failure(client)
        assert error.kind is ErrorKind.TRANSPORT
        assert not error.is_retryable
        assert "is not trusted" in str(error)
        assert "SSL_CERT_FILE" in str(error)
        assert server.requests == []
        await client.aclose()


async def test_a_plain_server_behind_an_https_address():
    """It answers in the clear where a handshake is due."""

    async def answers(reader, writer):
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read(100)
        writer.transport.abort()

    listener = await asyncio.start_server(answers, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    client = chat(f"https://127.0.0.1:{port}")
    error = await failure(client)
    assert error.kind is ErrorKind.TRANSPORT
    assert f"Cannot connect to 127.0.0.1:{port}" in str(error)
    await client.aclose()
    listener.close()
    await listener.wait_closed()


async def test_a_cancel_closes_at_once(monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    async with serve(Reply(HELLO[:1], hang=True), Reply(HELLO), tls=True) as server:
        client = chat(server.url)
        task = asyncio.create_task(text_of(client))
        while not server.requests:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.02)
        task.cancel()
        start = asyncio.get_running_loop().time()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.gone.wait(), 2)
        assert asyncio.get_running_loop().time() - start < 0.5
        assert await text_of(client) == "Hello"
        await client.aclose()


async def test_a_cut_is_a_failure(monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    async with serve(Reply(HELLO, cut=50), Reply(HELLO[:1]), tls=True) as server:
        client = chat(server.url)
        for _ in range(2):
            error = await failure(client)
            assert error.kind is ErrorKind.TRANSPORT
            assert error.is_retryable
        await client.aclose()
