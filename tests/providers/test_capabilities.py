"""What models can do: table, endpoint, user."""

from __future__ import annotations

import re

import pytest

from notebook_agent.providers.base import Capabilities
from notebook_agent.providers.capabilities import TABLE, TABLE_DATE, capabilities_of, from_listing


@pytest.mark.parametrize(
    ("provider", "model", "window", "tools", "schema", "vision"),
    [
        ("openai", "gpt-4o-mini", 128_000, True, True, True),
        ("openai", "gpt-4.1-mini", 1_047_576, True, True, True),
        ("openai", "gpt-5-nano", 400_000, True, True, True),
        ("openai-responses", "gpt-5-mini", 400_000, True, True, True),
        ("openai-responses", "o3", 200_000, True, True, True),
        ("openai", "o3-mini", 200_000, True, True, False),
        ("openai", "gpt-3.5-turbo-0125", 16_385, True, False, False),
        ("openrouter", "anthropic/claude-sonnet-4.5", 200_000, True, True, True),
        ("anthropic", "claude-3-5-haiku-latest", 200_000, True, False, True),
        ("gemini", "gemini-2.5-flash", 1_048_576, True, True, True),
        ("deepseek", "deepseek-chat", 128_000, True, False, False),
        ("openai", "ft:unheard-of", None, None, None, None),
        ("nobody", "gpt-4o", None, None, None, None),
        ("vllm", "qwen3", None, None, None, None),
    ],
)
def test_table(provider, model, window, tools, schema, vision):
    known = capabilities_of(provider, model)
    assert (known.context_window, known.tool_calling) == (window, tools)
    assert (known.json_schema, known.vision) == (schema, vision)


def test_the_table_is_dated_and_sane():
    assert re.fullmatch(r"20[0-9]{2}-[01][0-9]", TABLE_DATE)
    for providers, pattern, fields in TABLE:
        re.compile(providers)
        re.compile(pattern)
        known = Capabilities(**fields)
        assert known.context_window
        assert known.max_output is None or known.max_output <= known.context_window
    assert TABLE_DATE in capabilities_of("openai", "gpt-4o").source


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"id": "m", "context_length": 8192, "top_provider": {"max_completion_tokens": 1000}, "supported_parameters": ["tools", "reasoning"], "architecture": {"input_modalities": ["text", "image"]}},
         {"context_window": 8192, "max_output": 1000, "tool_calling": True, "json_schema": False, "thinking": True, "vision": True}),
        ({"id": "m", "context_window": 131072, "max_completion_tokens": 32768}, {"context_window": 131072, "max_output": 32768}),
        ({"id": "m", "max_context_length": 32768, "capabilities": {"function_calling": True, "vision": False}}, {"context_window": 32768, "tool_calling": True, "vision": False}),
        ({"id": "m", "max_model_len": 4096}, {"context_window": 4096}),
        ({"id": "m", "meta": {"n_ctx": 2048, "n_ctx_train": 8192}}, {"context_window": 2048}),
        ({"name": "models/m", "inputTokenLimit": 1048576, "outputTokenLimit": 8192, "thinking": True}, {"context_window": 1048576, "max_output": 8192, "thinking": True}),
        ({"model_info": {"llama.context_length": 131072}, "capabilities": ["completion", "tools"]}, {"context_window": 131072, "tool_calling": True, "vision": False, "thinking": False}),
        ({"id": "m"}, {}),
        ({"context_length": "many", "context_window": True, "max_model_len": -1}, {}),
        (None, {}),
        ([], {}),
    ],
)  # fmt: skip
def test_what_endpoints_state(entry, expected):
    before = Capabilities()
    known = from_listing(entry, before)
    assert {name: getattr(known, name) for name in expected} == expected
    assert known.source == ("endpoint" if expected else "default")
    if not expected:
        assert known == before


def test_the_users_word_stands():
    user = Capabilities().overridden(context_window=1000)
    known = from_listing({"context_length": 8192, "supported_parameters": ["tools"]}, user)
    assert (known.context_window, known.tool_calling, known.source) == (1000, True, "user")
