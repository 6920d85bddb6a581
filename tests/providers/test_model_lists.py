"""``list_models`` of every service that has a name: where it asks, with which key, what it reads."""

from __future__ import annotations

import pytest

from notebook_agent.providers import registry
from notebook_agent.providers.services import SERVICES
from tests.providers.server import json_reply, serve

KEY = "test-key-0123456789"
# A base URL is set as its variable would hold it; the path is what the service must be asked for.
BASE = {"anthropic": "", "azure": "", "gemini": "/v1beta", "ollama": "", "deepseek": ""}
PATH = {
    "anthropic": "/v1/models?limit=1000",
    "azure": "/openai/v1/models",
    "deepseek": "/models",
    "gemini": "/v1beta/models?pageSize=1000",
    "ollama": "/api/tags",
}
HEADER = {
    "anthropic": ("x-api-key", KEY),
    "azure": ("api-key", KEY),
    "gemini": ("x-goog-api-key", KEY),
}
DATA = {"object": "list", "data": [{"id": "b"}, {"id": "a/x", "context_length": 4096}]}
LISTING = {
    "gemini": {"models": [{"name": "models/b"}, {"name": "models/a/x"}]},
    "ollama": {"models": [{"name": "b", "model": "b"}, {"name": "a/x", "model": "a/x"}]},
}


@pytest.mark.allow_requests
@pytest.mark.parametrize("provider", list(SERVICES))
async def test_every_service_lists_its_models(provider, monkeypatch):
    service = SERVICES[provider]
    async with serve(lambda _request: json_reply(LISTING.get(provider, DATA))) as server:
        monkeypatch.setenv(service.base_env[0], server.url + BASE.get(provider, "/v1"))
        monkeypatch.setenv(service.key_env[0], KEY)
        assert await registry.list_models(provider) == ["a/x", "b"]
        request = server.requests[-1]
        assert (request.method, request.target) == ("GET", PATH.get(provider, "/v1/models"))
        header, value = HEADER.get(provider, ("authorization", f"Bearer {KEY}"))
        sent = {name.lower(): told for name, told in dict(request.headers).items()}
        assert sent[header] == value
