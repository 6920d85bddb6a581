"""What a recorded body says, as one JSON-ready dict: the function behind ``decode``.

Source: LLM turn, "Event routing, exactly" (L5a, L57).
"""

from __future__ import annotations

import contextlib
import importlib
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from notebook_agent.core import events as e
from notebook_agent.core.accumulator import parse_arguments
from notebook_agent.core.messages import ToolCallPart
from notebook_agent.errors import ConfigError, ProviderError
from notebook_agent.providers.errors import error_object
from notebook_agent.providers.wire import (
    MADE_ID,
    UNHEARD_OF,
    Decoder,
    load_lenient,
    mapping,
    usage_int,
)

__all__ = ["APIS", "decode_body", "usage_figures"]

# api -> (module, decoder of a streamed body)
APIS: Final[Mapping[str, tuple[str, str]]] = {
    "openai-chat": ("notebook_agent.providers.openai_chat_stream", "ChatDecoder"),
    "openai-responses": ("notebook_agent.providers.openai_responses_stream", "ResponsesDecoder"),
    "anthropic-messages": ("notebook_agent.providers.anthropic_stream", "MessagesDecoder"),
    "gemini": ("notebook_agent.providers.gemini_stream", "GeminiDecoder"),
    "ollama": ("notebook_agent.providers.ollama_stream", "OllamaDecoder"),
}


def decode_body(data: bytes, api: str, chunk: int | None = None) -> dict[str, Any]:
    """Decode one recorded response body.

    Args:
        data: The body.
        api: Its wire format, one of ``APIS``.
        chunk: Feed it in pieces of this many bytes; None = whole. The result is the same.

    Returns:
        text, thinking, refusal; tool_calls (id, name, arguments_raw, arguments); stop_reason
        (the provider's word), stop (ours, None when it gave none); usage (only numbers that the
        provider sent); error (the error object); complete (whether an end was seen).

    Raises:
        ConfigError: An unknown api, or a chunk below 1.
    """
    if api not in APIS:
        raise ConfigError(field="api", value=api, legal=f"one of {', '.join(sorted(APIS))}")
    if chunk is not None and chunk < 1:
        raise ConfigError(field="chunk", value=chunk, legal="a number of bytes, 1 or more")
    whole = _whole_document(data, api)
    refusal = error_object(whole) if _is_error(whole) else None
    if refusal is not None:
        return {**_empty(), "error": refusal.object}
    module, name = APIS[api]
    decoder = getattr(importlib.import_module(module), name)()
    events: list[e.StreamEvent] = []
    with contextlib.suppress(ProviderError, *UNHEARD_OF):  # then it is no whole reply
        if whole is not None and hasattr(decoder, "whole") and decoder.whole(whole, events):
            return _result(events, decoder, api)
    if whole is not None and events:
        events, decoder = [], getattr(importlib.import_module(module), name)()
    step = chunk or max(len(data), 1)
    for start in range(0, len(data), step):
        events += decoder.feed(data[start : start + step])
    events += decoder.finish()
    return _result(events, decoder, api)


def _whole_document(data: bytes, api: str) -> Any:
    """The body as one JSON object, when it is one and no stream of documents."""
    if data.lstrip()[:1] != b"{" or api == "ollama":
        return None
    try:
        document = load_lenient(data)
    except ValueError:
        return None
    return document


def _is_error(document: Any) -> bool:
    """A refusal's body, not a reply that has a field named error."""
    replies = ("choices", "candidates", "output", "content")
    return isinstance(document, dict) and not any(document.get(k) for k in replies)


def _empty() -> dict[str, Any]:
    return {
        "text": "",
        "thinking": "",
        "refusal": "",
        "tool_calls": [],
        "stop_reason": None,
        "stop": None,
        "usage": None,
        "error": None,
        "complete": False,
    }


def _result(events: list[e.StreamEvent], decoder: Decoder, api: str) -> dict[str, Any]:
    out = _empty()
    calls: dict[int, dict[str, Any]] = {}
    objects: set[int] = set()
    for event in events:
        match event:
            case e.PartStart(index=index, part=ToolCallPart(id=call_id, name=name, input=given)):
                shown = None if call_id.startswith(MADE_ID) else call_id
                calls[index] = {"id": shown, "name": name, "arguments_raw": ""}
                if given is not None:
                    objects.add(index)
            case e.IndexedDelta(delta=e.Text(text=text, refusal=refusal)):
                out["refusal" if refusal else "text"] += text
            case e.IndexedDelta(delta=e.Thinking(text=text)):
                out["thinking"] += text
            case e.IndexedDelta(index=index, delta=e.InputJson(partial_json=raw)):
                calls[index]["arguments_raw"] += raw
            case e.MessageDelta(ending=ending, ending_raw=raw_word) if raw_word is not None:
                out["stop_reason"] = raw_word
                out["stop"] = None if ending is None else ending.value
    for index, call in calls.items():
        call["arguments"] = parse_arguments(call["arguments_raw"])[1]
        if index in objects:
            call["arguments_raw"] = None
    out["tool_calls"] = list(calls.values())
    out["usage"] = usage_figures(decoder.usage_sent, api)
    out["error"] = decoder.error
    out["complete"] = decoder.ended
    return out


def _chat(sent: Mapping[str, Any]) -> dict[str, Any]:
    prompt = mapping(sent.get("prompt_tokens_details"))
    return {
        "input_tokens": sent.get("prompt_tokens"),
        "output_tokens": sent.get("completion_tokens"),
        "total_tokens": sent.get("total_tokens"),
        # A plain zero says no more than that the field exists; only DeepSeek's own pair of
        # fields (hit and miss) makes it a statement.
        "cache_read_tokens": prompt.get("cached_tokens") or sent.get("prompt_cache_hit_tokens"),
        "reasoning_tokens": mapping(sent.get("completion_tokens_details")).get("reasoning_tokens"),
    }


def _responses(sent: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "input_tokens": sent.get("input_tokens"),
        "output_tokens": sent.get("output_tokens"),
        "total_tokens": sent.get("total_tokens"),
        "cache_read_tokens": mapping(sent.get("input_tokens_details")).get("cached_tokens"),
        "reasoning_tokens": mapping(sent.get("output_tokens_details")).get("reasoning_tokens"),
    }


def _anthropic(sent: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "input_tokens": sent.get("input_tokens"),
        "output_tokens": sent.get("output_tokens"),
        "cache_read_tokens": sent.get("cache_read_input_tokens"),
        "cache_write_tokens": sent.get("cache_creation_input_tokens"),
    }


def _gemini(sent: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "input_tokens": sent.get("promptTokenCount"),
        "output_tokens": sent.get("candidatesTokenCount"),
        "total_tokens": sent.get("totalTokenCount"),
        "cache_read_tokens": sent.get("cachedContentTokenCount"),
        "reasoning_tokens": sent.get("thoughtsTokenCount"),
    }


def _ollama(sent: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "input_tokens": sent.get("prompt_eval_count"),
        "output_tokens": sent.get("eval_count"),
    }


_FIGURES: Final[Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]]] = {
    "openai-chat": _chat,
    "openai-responses": _responses,
    "anthropic-messages": _anthropic,
    "gemini": _gemini,
    "ollama": _ollama,
}


def usage_figures(sent: Mapping[str, Any], api: str) -> dict[str, int] | None:
    """The provider's usage under one set of names, numbers that it did not send left out."""
    if not sent:
        return None
    named = {k: usage_int(v) for k, v in _FIGURES[api](sent).items()}
    return {k: v for k, v in named.items() if v is not None} or None


def dumps(result: Mapping[str, Any]) -> str:
    """One line of JSON for a result."""
    return json.dumps(result, ensure_ascii=False)
