"""Names, keys, and the line to type (N11)."""

from __future__ import annotations

import subprocess
import sys

import pytest

from notebook_agent.core.messages import Message
from notebook_agent.core.request import RequestOptions, StreamRequest
from notebook_agent.errors import ConfigError, ProviderError
from notebook_agent.providers import keys, registry
from notebook_agent.providers.base import Capabilities, ModelClient, full_name
from notebook_agent.providers.services import SERVICES
from tests.providers.server import Reply, collect, json_reply, serve
from tests.providers.test_http import HELLO, assert_clean, traces

KEY = "sk-test-0123456789abcdef"


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """No key, no alias and no keyring from outside."""
    for service in SERVICES.values():
        for name in (*service.key_env, *service.base_env):
            monkeypatch.delenv(name, raising=False)
    ring: dict[str, str] = {}
    monkeypatch.setattr(
        keys, "_read_keyring", lambda p: keys.Secret(ring[p]) if p in ring else None
    )
    monkeypatch.setattr(keys, "_write_keyring", lambda p, s: ring.__setitem__(p, s.reveal()))
    monkeypatch.setattr(registry, "_keys", keys.KeyStore())
    monkeypatch.setattr(registry, "_aliases", {})
    monkeypatch.setattr(registry, "_addresses", {})
    monkeypatch.setattr(registry, "_address_of", {})
    return ring


@pytest.mark.parametrize(
    ("name", "says", "type_this"),
    [
        ("opnai:gpt-4.1", "There is no provider 'opnai'", "%agent model openai:gpt-4.1"),
        ("anthropc:claude-x", "Did you mean anthropic?", "%agent model anthropic:claude-x"),
        ("zzz:x", "There are: anthropic, azure", "%agent model openai:x"),
        ("gpt-4.1-mini", "names no provider", "%agent model openai:gpt-4.1-mini"),
        ("claude-sonnet-4-5", "names no provider", "%agent model anthropic:claude-sonnet-4-5"),
        ("gemini-2.5-flash", "names no provider", "%agent model gemini:gemini-2.5-flash"),
        ("openai", "its model is not named", "%agent model openai:gpt-4.1-mini"),
        ("openai:", "its model is not named", "%agent model openai:gpt-4.1-mini"),
        ("", "names no provider", "%agent model openai:NAME"),
        ("openai:gpt-4.1-mini", "There is no key for openai: OPENAI_API_KEY is not set", "%agent key openai"),
        ("openai-responses:gpt-5", "There is no key for openai", "%agent key openai"),
        ("gemini:gemini-2.5-flash", "GEMINI_API_KEY is not set", "%agent key gemini"),
        ("azure:dep", "AZURE_OPENAI_ENDPOINT is empty", "%env AZURE_OPENAI_ENDPOINT=https://"),
        ("http://127.0.0.1:8000/v1", "not named", "#NAME"),
    ],
)  # fmt: skip
def test_N11_what_is_missing_and_the_line_to_type(name, says, type_this):
    with pytest.raises(ConfigError) as caught:
        registry.model(name)
    text = str(caught.value)
    assert says in text
    assert type_this in text
    assert 2 <= len(text.splitlines()) <= 3


@pytest.mark.parametrize("provider", sorted(SERVICES))
def test_every_service(provider, monkeypatch):
    service = SERVICES[provider]
    if service.key_env:
        monkeypatch.setenv(service.key_env[-1], KEY)
    if not service.base_url:
        monkeypatch.setenv(service.base_env[0], "https://res.example")
    client = registry.model(f"{provider}:some-model")
    assert isinstance(client, ModelClient)
    assert full_name(client) == f"{provider}:some-model"
    assert client.api == service.api
    assert client.base_url().startswith(("https://", "http://127.0.0.1"))
    assert isinstance(client.capabilities(), Capabilities)
    assert provider in registry.providers()


def test_base_urls_from_the_environment(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/x")
    assert registry.model("openai:m").base_url() == "http://127.0.0.1:1/x"
    assert (
        registry.model("openai:m", base_url="http://127.0.0.1:2").base_url() == "http://127.0.0.1:2"
    )
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", KEY)
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://r.example/")
    assert registry.model("azure:dep").base_url() == "https://r.example/openai/v1"
    monkeypatch.setenv("AZURE_OPENAI_API_VERSION", "2024-10-21")
    assert registry.model("azure:dep").base_url() == "https://r.example/openai/deployments/dep"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("127.0.0.1:99", "http://127.0.0.1:99"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("0.0.0.0:99", "http://127.0.0.1:99"),
        ("box.example", "http://box.example:11434"),
        ("https://box.example", "https://box.example:443"),
        ("http://box.example/p/", "http://box.example:80/p"),
        (":99", "http://127.0.0.1:99"),
    ],
)
def test_ollama_host_as_ollama_reads_it(value, expected, monkeypatch):
    monkeypatch.setenv("OLLAMA_HOST", value)
    assert registry.model("ollama:m").base_url() == expected


def test_where_keys_come_from_and_their_order(fresh, monkeypatch):
    assert registry.key_for("openai") is None
    assert registry.key_status("openai") == "not set"
    assert registry.key_status("ollama") == "not needed"
    registry.set_key("groq", f" {KEY}\n", save=True)
    assert fresh == {"groq": KEY}
    registry._keys.forget("groq")
    assert registry.key_status("groq") == "keyring"
    monkeypatch.setenv("GROQ_API_KEY", "from-the-environment")
    assert registry.key_for("groq").reveal() == "from-the-environment"
    assert registry.key_status("groq") == "GROQ_API_KEY"
    registry.set_key("groq", KEY)
    assert registry.key_for("groq").reveal() == KEY
    assert registry.key_status("groq") == "this kernel"
    registry.set_key("openai-responses", KEY)
    assert registry.key_status("openai") == "this kernel"
    assert_clean(repr(registry._keys) + repr(vars(registry._keys)), KEY)


def test_a_key_that_is_set_later_is_used_at_once():
    registry.set_key("openai", "first-key-000000")
    client = registry.model("openai:m")
    registry.set_key("openai", "other-key-000000")
    assert client._all_headers()["authorization"].reveal() == "Bearer other-key-000000"


def test_bad_keys_are_said():
    with pytest.raises(ConfigError, match="is empty"):
        registry.set_key("openai", "  ")
    with pytest.raises(ConfigError, match="no provider"):
        registry.set_key("nobody", KEY)
    with pytest.raises(ConfigError, match="no provider"):
        registry.key_for("nobody")


def test_a_machine_without_a_keyring(monkeypatch):
    monkeypatch.undo()

    class Broken:
        @staticmethod
        def get_password(*_):
            raise RuntimeError(KEY)

        set_password = get_password

    monkeypatch.setitem(sys.modules, "keyring", Broken)
    assert keys._read_keyring("openai") is None
    with pytest.raises(ConfigError, match="no usable keyring") as caught:
        keys._write_keyring("openai", keys.Secret(KEY))
    assert_clean(traces(caught.value), KEY)
    assert caught.value.__context__ is None


def test_aliases():
    registry.alias("fast", "ollama:llama3.2")
    assert full_name(registry.model("fast")) == "ollama:llama3.2"
    assert registry.aliases() == {"fast": "ollama:llama3.2"}
    registry.alias("fast", None)
    assert registry.aliases() == {}
    for bad in ("", "a:b", "a b"):
        with pytest.raises(ConfigError, match="%agent alias"):
            registry.alias(bad, "x:y")
    registry.alias("a", "b")
    registry.alias("b", "a")
    with pytest.raises(ConfigError):
        registry.model("a")


def test_addresses():
    client = registry.model("http://127.0.0.1:8000/v1#qwen3")
    assert full_name(client) == "at-127.0.0.1-8000:qwen3"
    again = registry.model("at-127.0.0.1-8000:other")
    assert again.base_url() == "http://127.0.0.1:8000/v1"
    assert registry.model("http://127.0.0.1:8000/v2#q").provider == "at-127.0.0.1-8000-2"
    other = registry.model("anthropic-messages+https://u:" + KEY + "@h.example/x?k=" + KEY + "#m")
    assert other.api == "anthropic-messages"
    assert_clean(repr(other) + repr(vars(registry)) + str(registry.providers()), KEY)
    with pytest.raises(ConfigError, match="one of anthropic-messages"):
        registry.model("soap+https://h.example#m")


def test_any_base_url_with_an_api():
    client = registry.model("mine:m", base_url="http://127.0.0.1:5/v1", api="openai-responses")
    assert (client.api, full_name(client)) == ("openai-responses", "mine:m")


def test_scripted_and_local(monkeypatch):
    assert full_name(registry.model("scripted")) == "scripted:scripted"
    assert full_name(registry.model("scripted:teacher")) == "scripted:teacher"
    made = []
    monkeypatch.setattr(
        registry, "_load", lambda module, name: lambda n, **o: made.append((module, n))
    )
    registry.model("local")
    registry.model("local:./x.gguf")
    assert made == [
        ("notebook_agent.providers.local", "smollm2"),
        ("notebook_agent.providers.local", "./x.gguf"),
    ]


def test_third_parties_by_entry_point(monkeypatch):
    class Entry:
        value = "their.module:make"

        def __init__(self, made):
            self.made = made

        def load(self):
            if isinstance(self.made, Exception):
                raise self.made
            return self.made

    class Theirs:
        provider = "theirs"

        def __init__(self, name, **options):
            self.name = name

        def model(self):
            return self.name

        async def stream_messages_with_options(self, request, options):
            yield

        async def create_message_with_options(self, request, options): ...

    entries = {"theirs": Entry(Theirs), "broken": Entry(ImportError("no such thing"))}
    monkeypatch.setattr(registry, "_entry_points", lambda: entries)
    assert full_name(registry.model("theirs:x")) == "theirs:x"
    assert "theirs" in registry.providers()
    assert registry.key_status("theirs") == "not needed"
    with pytest.raises(ConfigError, match=r"broken.*does not load: ImportError: no such thing"):
        registry.model("broken:x")


@pytest.mark.allow_requests
async def test_list_models(monkeypatch):
    listing = json_reply(
        {"object": "list", "data": [{"id": "b"}, {"id": "a", "context_length": 4096}]}
    )
    async with serve(listing) as server:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", server.url + "/v1")
        assert await registry.list_models("openai") == ["a", "b"]
        assert (server.requests[0].method, server.requests[0].target) == ("GET", "/v1/models")
        client = registry.model("openai:a")
        learnt = await client.learn()
        assert (learnt.context_window, learnt.source) == (4096, "endpoint")
        await client.aclose()
    assert await registry.list_models("local") == ["smollm2"]
    for reply, words in (
        (json_reply({"error": {"message": "bad key"}}, 401), "%agent key openai"),
        (Reply([b"<html>"], length=True), "HTML"),
    ):
        async with serve(reply) as server:
            monkeypatch.setenv("OPENAI_BASE_URL", server.url)
            with pytest.raises(ProviderError, match=words):
                await registry.list_models("openai")


@pytest.mark.allow_requests
@pytest.mark.parametrize(
    ("reply", "line"),
    [
        (json_reply({"error": {"message": "Incorrect API key"}}, 401), "%agent key groq"),
        (json_reply({"error": {"message": "no such model", "code": "model_not_found"}}, 404), "%agent models"),
        (json_reply({"error": {"message": "no such model", "code": "model_not_found"}}, 400), "%agent models"),
        (json_reply({"message": "Invalid model: m", "code": "1500"}, 400), "%agent models"),
        (json_reply({"error": {"message": "empty", "code": "insufficient_quota"}}, 429), "no quota left"),
        (json_reply({"error": {"message": "Unknown parameter: 'temprature'", "type": "invalid_request_error"}}, 400), "temprature"),
    ],
)  # fmt: skip
async def test_N11_refusals_end_with_the_line_to_type(reply, line):
    registry.set_key("groq", KEY)
    async with serve(reply) as server:
        client = registry.model("groq:m", base_url=server.url)
        with pytest.raises(ProviderError) as caught:
            await collect(
                client.stream_messages_with_options(
                    StreamRequest((Message.user("x"),)), RequestOptions()
                )
            )
        assert line in str(caught.value)
        assert len(str(caught.value).splitlines()) <= 3
        assert len(server.requests) == 1
        await client.aclose()


@pytest.mark.allow_requests
async def test_a_secret_address_is_asked_with_its_key():
    async with serve(Reply(HELLO)) as server:
        client = registry.model(f"{server.url.replace('://', '://u:pw@')}/v1?k={KEY}#m")
        await collect(
            client.stream_messages_with_options(
                StreamRequest((Message.user("x"),)), RequestOptions()
            )
        )
        assert server.requests[0].target == f"/v1/chat/completions?k={KEY}"
        await client.aclose()


def test_no_format_is_imported_before_its_model_is_made():
    """Each format's module, and nothing of another's."""
    code = """
import sys
import asyncio
before = set(sys.modules)
from notebook_agent.providers import registry
names = ("openai_chat", "anthropic_messages", "gemini", "openai_responses", "ollama")
def there(): return {n for n in names if any(m.startswith("notebook_agent.providers." + n.replace("_messages", "")) for m in sys.modules)}
assert there() == set(), there()
registry.providers()
assert there() == set(), there()
assert "keyring" not in sys.modules and "httpx" not in sys.modules
registry.model(sys.argv[1] + ":m", key="k")
assert "httpx" not in sys.modules and "ssl" not in set(sys.modules) - before
print(sorted(there()))
"""
    for provider, module in (
        ("openai", "openai_chat"),
        ("anthropic", "anthropic_messages"),
        ("gemini", "gemini"),
        ("ollama", "ollama"),
        ("openai-responses", "openai_responses"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", code, provider], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == str([module])
