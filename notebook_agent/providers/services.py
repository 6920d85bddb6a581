"""The services that have a name: format, address, key variables. One table.

Source: notebook side, commands (D11).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["FORMATS", "GUESSES", "SERVICES", "Service"]


@dataclass(frozen=True, slots=True)
class Service:
    """Where a provider's models are and how they are asked.

    Attributes:
        api: Wire format, a key of ``FORMATS``.
        base_url: Where, unless the environment says otherwise; "" = it must say.
        base_env: Environment variables that hold another base URL, in order.
        key_env: Environment variables that hold the key, in order.
        needs_key: False where a key is optional.
        key_of: Provider whose key it uses, its own by default.
        example: A model's name for messages.
    """

    api: str
    base_url: str
    base_env: tuple[str, ...] = ()
    key_env: tuple[str, ...] = ()
    needs_key: bool = True
    key_of: str = ""
    example: str = "NAME"


# Wire format -> (module, class). Nothing is imported before a model of the format is made.
FORMATS: Final[Mapping[str, tuple[str, str]]] = {
    "anthropic-messages": ("notebook_agent.providers.anthropic_messages", "AnthropicMessages"),
    "gemini": ("notebook_agent.providers.gemini", "Gemini"),
    "ollama": ("notebook_agent.providers.ollama", "Ollama"),
    "openai-chat": ("notebook_agent.providers.openai_chat", "OpenAIChat"),
    "openai-responses": ("notebook_agent.providers.openai_responses", "OpenAIResponses"),
}

SERVICES: Final[Mapping[str, Service]] = {
    "anthropic": Service(
        "anthropic-messages", "https://api.anthropic.com", ("ANTHROPIC_BASE_URL",),
        ("ANTHROPIC_API_KEY",), example="claude-sonnet-4-5",
    ),
    "azure": Service(
        "openai-chat", "", ("AZURE_OPENAI_ENDPOINT",), ("AZURE_OPENAI_API_KEY",),
        example="DEPLOYMENT",
    ),
    "deepseek": Service(
        "openai-chat", "https://api.deepseek.com", ("DEEPSEEK_BASE_URL",), ("DEEPSEEK_API_KEY",),
        example="deepseek-chat",
    ),
    "gemini": Service(
        "gemini", "https://generativelanguage.googleapis.com/v1beta", ("GEMINI_BASE_URL",),
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"), example="gemini-2.5-flash",
    ),
    "groq": Service(
        "openai-chat", "https://api.groq.com/openai/v1", ("GROQ_BASE_URL",), ("GROQ_API_KEY",),
        example="llama-3.3-70b-versatile",
    ),
    "llamacpp": Service(
        "openai-chat", "http://127.0.0.1:8080/v1", ("LLAMACPP_BASE_URL",), ("LLAMACPP_API_KEY",),
        needs_key=False,
    ),
    "lmstudio": Service(
        "openai-chat", "http://127.0.0.1:1234/v1", ("LMSTUDIO_BASE_URL",), ("LMSTUDIO_API_KEY",),
        needs_key=False,
    ),
    "mistral": Service(
        "openai-chat", "https://api.mistral.ai/v1", ("MISTRAL_BASE_URL",), ("MISTRAL_API_KEY",),
        example="mistral-small-latest",
    ),
    "ollama": Service(
        "ollama", "http://127.0.0.1:11434", ("OLLAMA_HOST",), ("OLLAMA_API_KEY",),
        needs_key=False, example="llama3.2",
    ),
    "openai": Service(
        "openai-chat", "https://api.openai.com/v1", ("OPENAI_BASE_URL",), ("OPENAI_API_KEY",),
        example="gpt-4.1-mini",
    ),
    "openai-responses": Service(
        "openai-responses", "https://api.openai.com/v1", ("OPENAI_BASE_URL",),
        ("OPENAI_API_KEY",), key_of="openai", example="gpt-5-mini",
    ),
    "openrouter": Service(
        "openai-chat", "https://openrouter.ai/api/v1", ("OPENROUTER_BASE_URL",),
        ("OPENROUTER_API_KEY",), example="openai/gpt-4.1-mini",
    ),
    "vllm": Service(
        "openai-chat", "http://127.0.0.1:8000/v1", ("VLLM_BASE_URL",), ("VLLM_API_KEY",),
        needs_key=False,
    ),
    "xai": Service(
        "openai-chat", "https://api.x.ai/v1", ("XAI_BASE_URL",), ("XAI_API_KEY",),
        example="grok-4",
    ),
}  # fmt: skip

# A bare model name -> the provider it is most likely of, for the line to type.
GUESSES: Final[tuple[tuple[str, str], ...]] = (
    ("claude", "anthropic"),
    ("gemini", "gemini"),
    ("grok", "xai"),
    ("deepseek", "deepseek"),
    ("mistral", "mistral"),
    ("magistral", "mistral"),
    ("codestral", "mistral"),
    ("llama", "ollama"),
    ("qwen", "ollama"),
    ("smollm2", "local"),
)
