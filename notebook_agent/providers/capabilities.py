"""What models can do: a small dated table, what an endpoint states, what the user says.

In rising order of trust: the format's default, the table, the endpoint, the user. A field that
nobody knows is None: the request is tried and the provider's word stands. The router checks them
before any network use (B39).

Source: Turn FSM, "CallingModel" (B39); LLM turn, "Building the request" (L7).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from notebook_agent.providers.base import Capabilities

__all__ = ["TABLE", "TABLE_DATE", "capabilities_of", "from_listing"]

TABLE_DATE: Final = "2026-11"

_ALL: Final = dict(
    tool_calling=True, parallel_tool_calls=True, json_schema=True, json_object=True,
    vision=True, streaming_usage=True,
)  # fmt: skip
_CLAUDE: Final = {**_ALL, "json_object": False}
_TEXT: Final = {**_ALL, "vision": False}

# (provider pattern, model pattern, fields). The first row that matches counts. Windows and output
# limits in tokens, as the providers' pages gave them at TABLE_DATE; a model that is not here is
# not judged.
TABLE: Final[tuple[tuple[str, str, Mapping[str, Any]], ...]] = (
    ("openai(-responses)?|azure|openrouter", r"(openai/)?gpt-5", {**_ALL, "thinking": True, "context_window": 400_000, "max_output": 128_000}),
    ("openai(-responses)?|azure|openrouter", r"(openai/)?gpt-4\.1", {**_ALL, "thinking": False, "context_window": 1_047_576, "max_output": 32_768}),
    ("openai(-responses)?|azure|openrouter", r"(openai/)?gpt-4o", {**_ALL, "thinking": False, "context_window": 128_000, "max_output": 16_384}),
    ("openai(-responses)?|azure|openrouter", r"(openai/)?gpt-3\.5-turbo", {**_TEXT, "thinking": False, "json_schema": False, "context_window": 16_385, "max_output": 4_096}),
    ("openai(-responses)?|azure|openrouter", r"(openai/)?o[13]-mini", {**_TEXT, "thinking": True, "context_window": 200_000, "max_output": 100_000}),
    ("openai(-responses)?|azure|openrouter", r"(openai/)?o[134](-|$)", {**_ALL, "thinking": True, "context_window": 200_000, "max_output": 100_000}),
    ("anthropic|openrouter", r"(anthropic/)?claude-(3-5|3\.5|3-haiku|3-opus)", {**_CLAUDE, "thinking": False, "json_schema": False, "context_window": 200_000, "max_output": 8_192}),
    ("anthropic|openrouter", r"(anthropic/)?claude-(3[-.]7|(sonnet|opus)-4(-0|-2025|:|$))", {**_CLAUDE, "thinking": True, "json_schema": False, "context_window": 200_000, "max_output": 32_000}),
    ("anthropic|openrouter", r"(anthropic/)?claude-", {**_CLAUDE, "thinking": True, "context_window": 200_000, "max_output": 32_000}),
    ("gemini|openrouter", r"(models/|google/)?gemini-(2\.5|3)", {**_ALL, "thinking": True, "context_window": 1_048_576, "max_output": 65_536}),
    ("gemini|openrouter", r"(models/|google/)?gemini-(1\.5|2\.0)", {**_ALL, "thinking": False, "context_window": 1_048_576, "max_output": 8_192}),
    ("deepseek|openrouter", r"(deepseek/)?deepseek-", {**_TEXT, "json_schema": False, "context_window": 128_000}),
    ("mistral", r"(mistral|magistral|ministral|codestral)-", {**_ALL, "vision": None, "context_window": 128_000}),
    ("groq", r"(openai/gpt-oss-|llama-3\.)", {**_TEXT, "json_schema": None, "context_window": 131_072}),
    ("xai", r"grok-", {**_ALL, "vision": None, "context_window": 131_072}),
)  # fmt: skip

# Formats and services whose every model has or lacks something.
_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "anthropic": {"json_object": False, "streaming_usage": True},
    "deepseek": {"json_schema": False},
    "ollama": {"json_schema": True, "json_object": True, "streaming_usage": True},
}


def capabilities_of(provider: str, model: str) -> Capabilities:
    """What the table knows of a model.

    Args:
        provider: The part before the colon.
        model: The bare name.
    """
    for providers, pattern, fields in TABLE:
        if re.fullmatch(providers, provider) and re.match(pattern, model):
            return Capabilities(**fields, source=f"table {TABLE_DATE}")
    return Capabilities(**_DEFAULTS.get(provider, {}))


def from_listing(entry: Any, known: Capabilities) -> Capabilities:
    """What an endpoint states of a model, over what is known; never over the user's word.

    Reads the listings of OpenRouter, Groq, Mistral, vLLM, llama.cpp, Gemini and Ollama.

    Args:
        entry: One model of a listing, or a model's own page.
        known: Before.
    """
    if not isinstance(entry, Mapping):
        return known
    found: dict[str, Any] = {}
    window, output = _number(entry, _WINDOWS), _number(entry, _OUTPUTS)
    info = entry.get("model_info")
    if window is None and isinstance(info, Mapping):  # Ollama: "llama.context_length"
        told = [v for k, v in info.items() if str(k).endswith(".context_length")]
        sizes = [_number({"context_length": v}, _WINDOWS) for v in told]
        window = next((size for size in sizes if size is not None), None)
    if window is not None:
        found["context_window"] = window
    if output is not None:
        found["max_output"] = output
    found |= _features(entry)
    if known.source == "user":
        found = {k: v for k, v in found.items() if getattr(known, k) is None}
        return replace(known, **found)
    return replace(known, **found, source="endpoint") if found else known


_WINDOWS: Final = (
    "context_length", "context_window", "max_context_length", "max_model_len", "inputTokenLimit",
    "max_input_tokens",
)  # fmt: skip
_OUTPUTS: Final = ("max_completion_tokens", "outputTokenLimit", "max_output_tokens")


def _number(entry: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    places = [entry, entry.get("meta"), entry.get("top_provider")]
    for place in places:
        if isinstance(place, Mapping):
            for name in (*names, *(("n_ctx",) if names is _WINDOWS else ())):
                value = place.get(name)
                if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                    return value
    return None


def _features(entry: Mapping[str, Any]) -> dict[str, bool]:
    out: dict[str, bool] = {}
    stated = entry.get("capabilities")
    if isinstance(stated, Mapping):  # Mistral
        for theirs, ours in (("function_calling", "tool_calling"), ("vision", "vision")):
            if isinstance(stated.get(theirs), bool):
                out[ours] = stated[theirs]
    elif isinstance(stated, list):  # Ollama
        out["tool_calling"] = "tools" in stated
        out["vision"] = "vision" in stated
        out["thinking"] = "thinking" in stated
    parameters = entry.get("supported_parameters")
    if isinstance(parameters, list):  # OpenRouter
        out["tool_calling"] = "tools" in parameters
        out["json_schema"] = "structured_outputs" in parameters
        out["thinking"] = "reasoning" in parameters
    architecture = entry.get("architecture")
    modalities = architecture.get("input_modalities") if isinstance(architecture, Mapping) else None
    if isinstance(modalities, list):
        out["vision"] = "image" in modalities
    if isinstance(entry.get("thinking"), bool):  # Gemini
        out["thinking"] = entry["thinking"]
    return out
