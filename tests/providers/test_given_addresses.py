"""Base URLs, keys, header fields and environments as people write them, and what comes of them."""

from __future__ import annotations

import asyncio
import json
import traceback

import pytest

from notebook_agent.core.messages import Message
from notebook_agent.core.request import RequestOptions, StreamRequest
from notebook_agent.errors import ConfigError, ErrorKind, ProviderError
from notebook_agent.providers import registry
from notebook_agent.providers.base import Capabilities
from notebook_agent.providers.openai_chat import OpenAIChat
from notebook_agent.providers.secret import Secret
from tests.providers.server import json_reply, serve
from tests.providers.test_requests import CLIENTS, client_of

REQUEST = StreamRequest((Message.user("q"),))
NONE = RequestOptions()
DONE = {"choices": [{"message": {"content": "ok"}, "finish_reason": "stop"}]}
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setattr(registry, "_addresses", {})
    monkeypatch.setattr(registry, "_address_of", {})


async def asked(**given):
    """What arrived at a server, or the error."""
    async with serve(json_reply(DONE)) as server:
        client = OpenAIChat("m", **{"base_url": server.url, "provider": "openai", **given})
        try:
            await client.create_message_with_options(REQUEST, NONE)
        except ProviderError as error:
            return error
        finally:
            await client.aclose()
        return server.requests[0]


@pytest.mark.parametrize(
    ("api", "given", "path"),
    [
        ("openai-chat", "/v1/chat/completions", "/v1/chat/completions"),
        ("openai-responses", "/v1/responses/", "/v1/responses"),
        ("anthropic-messages", "/v1", "/v1/messages"),
        ("anthropic-messages", "/v1/messages", "/v1/messages"),
        ("anthropic-messages", "/anthropic", "/anthropic/v1/messages"),
        ("ollama", "/v1", "/api/chat"),
        ("ollama", "/api/chat", "/api/chat"),
    ],
)
@pytest.mark.allow_requests
async def test_what_requests_bring_themselves_is_not_sent_twice(api, given, path):
    async with serve(json_reply({}, 400)) as server:
        client = client_of(api, base_url=server.url.removesuffix("/v1") + given)
        with pytest.raises(ProviderError):
            await client.create_message_with_options(REQUEST, NONE)
        await client.aclose()
    assert server.requests[0].target == path


@pytest.mark.allow_requests
async def test_X05_white_space_around_a_key_is_no_part_of_it():
    for key in (
        "sk-abcdefgh\n",
        "  sk-abcdefgh ",
        Secret("sk-abcdefgh\r\n"),
        lambda: Secret(" sk-abcdefgh"),
    ):
        got = await asked(key=key)
        assert got.headers["authorization"] == "Bearer sk-abcdefgh"


@pytest.mark.parametrize("key", ["sk-ключключ", "sk-abcd\nefgh", "sk-“abcdefgh”", "sk-\x00abcdef"])
@pytest.mark.allow_requests
async def test_X05_a_key_that_no_header_carries_is_said_so_and_not_shown(key):
    """Not a broken connection that is tried again and again, and none of its characters."""
    for given in (key, lambda: Secret(key)):
        error = await asked(key=given)
        assert isinstance(error, ProviderError)
        assert (error.kind, error.is_retryable) == (ErrorKind.AUTHENTICATION, False)
        assert "at place" in str(error)
        shown = "".join(traceback.format_exception(error)) + str(error.to_json())
        assert key[3:7] not in shown


def test_arguments_that_would_fail_at_the_first_request_fail_at_once():
    for given in (
        {"key": 5},
        {"key": b"sk-abcdefgh"},
        {"headers": "x"},
        {"capabilities": {"vision": True}},
    ):
        with pytest.raises(ConfigError) as caught:
            OpenAIChat("m", **{"base_url": "http://h.example", **given})
        assert "abcdefgh" not in str(caught.value)
    for address in (5, "http://h v1", "h/v1", "http://[::1"):
        with pytest.raises(ConfigError):
            OpenAIChat("m", base_url=address)


@pytest.mark.allow_requests
async def test_a_header_of_ones_own_beats_ours_whatever_its_case():
    got = await asked(key="sk-abcdefgh", headers={"Authorization": "Bearer own", "X-A": "b"})
    assert got.headers["authorization"] == "Bearer own"
    assert (got.headers["x-a"], got.headers["content-type"]) == ("b", "application/json")


@pytest.mark.parametrize(
    "headers", [{"x": 5}, {"x": "ü"}, {"x-ü": "a"}, {"x": "a\r\nb: c"}, {"": "a"}]
)
@pytest.mark.allow_requests
async def test_a_header_that_cannot_be_sent_is_no_broken_connection(headers):
    error = await asked(headers=headers)
    assert (error.kind, error.is_retryable) == (ErrorKind.BAD_REQUEST, False)


@pytest.mark.allow_requests
async def test_a_query_in_any_script():
    async with serve(json_reply(DONE)) as server:
        client = OpenAIChat("m", base_url=f"{server.url}?a=ü&b=c%20d&e=1,2")
        await client.create_message_with_options(REQUEST, NONE)
        await client.aclose()
    assert server.requests[0].target.endswith("?a=%C3%BC&b=c%20d&e=1,2")


@pytest.mark.parametrize("host", ["xn--", "a" * 70, "h..x"])
@pytest.mark.allow_requests
async def test_a_host_that_is_no_name(host):
    error = await asked(base_url=f"http://{host}/v1")
    assert (error.kind, error.is_retryable) == (ErrorKind.BAD_REQUEST, False)


@pytest.mark.parametrize("proxy", ["unix:///tmp/x", "nonsense://user:sEcretPw9@h"])
@pytest.mark.allow_requests
async def test_proxies_that_cannot_be_used(monkeypatch, proxy):
    monkeypatch.setenv("HTTP_PROXY", proxy)
    error = await asked(base_url="http://h.example/v1")
    assert (error.kind, error.is_retryable) == (ErrorKind.BAD_REQUEST, False)
    assert "HTTP_PROXY" in str(error)
    assert "sEcretPw9" not in str(error)
    assert (await asked()).target == "/chat/completions"  # this machine is asked without


@pytest.mark.allow_requests
async def test_what_cannot_be_reached_may_be_the_proxy(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://user:sEcretPw9@127.0.0.1:1")
    error = await asked(base_url="http://h.example/v1")
    assert error.kind is ErrorKind.TRANSPORT
    assert "A proxy is in between" in str(error)
    assert "sEcretPw9" not in str(error)
    error = await asked(base_url="http://127.0.0.1:1/v1")  # never through one
    assert "proxy" not in str(error)
    monkeypatch.setenv("NO_PROXY", "nowhere.invalid")
    error = await asked(base_url="http://nowhere.invalid/v1")
    assert "proxy" not in str(error)


@pytest.mark.allow_requests
async def test_a_list_of_hosts_without_proxy_matters_only_with_one(monkeypatch):
    """httpx cannot read ``[::1]`` in it; where no proxy is set nobody needs to."""
    monkeypatch.setenv("NO_PROXY", "[::1],::1,10.0.0.0/8,*.x")
    error = await asked(base_url="http://nowhere.invalid/v1")
    assert error.kind is ErrorKind.TRANSPORT
    assert "Cannot connect to nowhere.invalid" in str(error)


@pytest.mark.parametrize("file", ["/nowhere/ca.pem", "/", __file__])
@pytest.mark.allow_requests
async def test_certificates_that_cannot_be_read(monkeypatch, file):
    monkeypatch.setenv("SSL_CERT_FILE", file)
    error = await asked(base_url="https://127.0.0.1:1/v1")
    assert (error.kind, error.is_retryable) == (ErrorKind.BAD_REQUEST, False)
    assert file in str(error)
    assert "SSL_CERT_FILE" in str(error)


@pytest.mark.allow_requests
async def test_tls_to_a_server_without(monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", "")  # empty is not set

    async def answer(reader, writer):
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        error = await asked(base_url=f"https://127.0.0.1:{port}/v1")
    assert (error.kind, error.is_retryable) == (ErrorKind.TRANSPORT, False)
    assert "http://" in str(error)


def test_one_address_has_one_name_and_a_wrong_one_has_none():
    names = [
        registry.model(given).provider
        for given in ("http://h/v1#m", "http://h/v1/#m", "HTTP://h/v1#m", "http://h/v1# m ", "http://h/v1\n#m")
    ]  # fmt: skip
    assert names[0] == names[1] == names[3] == names[4] == "at-h"
    assert registry.model("http://h/v1# m ").model() == "m"
    before = registry.providers()
    for given in ("http://h:99999#m", "http://h v1#m", "foo+http://i#m"):
        with pytest.raises(ConfigError):
            registry.model(given)
    assert registry.providers() == before


def test_a_name_in_capitals_is_understood_as_far_as_the_line_to_type():
    with pytest.raises(ConfigError, match=r"Did you mean openai\?"):
        registry.model("OpenAI:gpt-x")


def test_options_nobody_knows_are_named_with_the_way_to_give_parameters():
    with pytest.raises(ConfigError, match="temperature") as caught:
        registry.model("ollama:m", temperature=0)
    assert "-p temperature" in str(caught.value)
    for api in CLIENTS:  # every option of every format is one
        made = registry.model("ollama:m", api=api, headers={}, key=None, http_client=None)
        assert type(made) is CLIENTS[api]
    assert registry.model("ollama:m", api="anthropic-messages", prompt_cache=True)


def test_B39_the_users_word_on_what_a_model_can_do():
    can = registry.model("openai:gpt-4o", key="k", capabilities={"vision": False}).capabilities()
    assert (can.vision, can.context_window, can.source) == (False, 128_000, "user")
    own = Capabilities(vision=True, source="user")
    assert registry.model("ollama:m", capabilities=own).capabilities() is own
    for wrong in ({"sight": True}, 5, {"source": "me"}):
        with pytest.raises(ConfigError, match="vision"):
            registry.model("ollama:m", capabilities=wrong)


def test_an_alias_means_a_text():
    for target in ("", "  ", 5):
        with pytest.raises(ConfigError):
            registry.alias("quick", target)


@pytest.mark.parametrize(
    ("endpoint", "version", "url"),
    [
        ("https://x.example/", "", "https://x.example/openai/v1"),
        ("https://x.example/openai", "", "https://x.example/openai/v1"),
        ("https://x.example/openai/", "2024-10-21", "https://x.example/openai/deployments/d"),
        ("https://x.example/openai/v1/", "2024-10-21", "https://x.example/openai/v1"),
    ],
)
def test_azure_has_three_ways_to_write_its_address(monkeypatch, endpoint, version, url):
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", endpoint)
    monkeypatch.setenv("AZURE_OPENAI_API_VERSION", version)
    assert registry.model("azure:d", key="k").base_url() == url


def test_what_may_be_forced():
    """Models that refuse a demanded call, or a schema, are not asked for it."""
    chat = OpenAIChat("deepseek-reasoner", base_url="http://h", provider="deepseek")
    assert not chat.forces_tools
    assert OpenAIChat("deepseek-chat", base_url="http://h", provider="deepseek").forces_tools
    wanted = {"type": "tool", "name": "City", "schema": {"type": "object"}}
    client = client_of("anthropic-messages")
    for thinking, kind in (
        ({"type": "enabled", "budget_tokens": 2000}, "auto"),
        ({"type": "disabled"}, "tool"),
    ):
        options = RequestOptions(response_format=wanted, extra={"thinking": thinking})
        _, body = client.encode(REQUEST, options, stream=True)
        assert json.loads(body)["tool_choice"]["type"] == kind


@pytest.mark.parametrize(
    ("model", "schema"),
    [
        ("claude-3-7-sonnet-20250219", False),
        ("claude-sonnet-4-20250514", False),
        ("claude-opus-4-0", False),
        ("claude-opus-4-1-20250805", True),
        ("claude-sonnet-4-5", True),
        ("claude-haiku-4-5", True),
    ],
)
def test_B39_claude_models_from_before_schemas(model, schema):
    assert registry.model(f"anthropic:{model}", key="k").capabilities().json_schema is schema
