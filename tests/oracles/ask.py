"""Ask through a provider's own client library; runs in the oracles' environment.

Reads lines ``{"api": ..., "url": ...}`` from stdin, one request each, and answers each with one
line: text, thinking and stop reason where the library has them (else null), tool calls (name,
arguments as text), usage, or the exception's name.
"""

from __future__ import annotations

import json
import sys
from typing import Any

ASK = [{"role": "user", "content": "x"}]


def openai_chat(url: str) -> dict[str, Any]:
    from openai import OpenAI

    text, refusal, usage, stop = "", "", None, None
    calls: dict[int, dict[str, str]] = {}
    client = OpenAI(api_key="k", base_url=url, max_retries=0)
    for chunk in client.chat.completions.create(model="m", messages=ASK, stream=True):
        usage = chunk.usage or usage
        for choice in chunk.choices or ():
            delta = choice.delta
            if choice.index or delta is None:
                continue
            stop = choice.finish_reason or stop
            text += delta.content or ""
            refusal += getattr(delta, "refusal", None) or ""
            for call in delta.tool_calls or ():
                made = calls.setdefault(call.index, {"name": "", "arguments": ""})
                if call.function is not None:
                    made["name"] = call.function.name or made["name"]
                    made["arguments"] += call.function.arguments or ""
    used = None
    if usage is not None:
        used = {"input": usage.prompt_tokens, "output": usage.completion_tokens}
    return {"text": text, "refusal": refusal, "calls": list(calls.values()), "usage": used,
            "stop": stop}  # fmt: skip


def openai_responses(url: str) -> dict[str, Any]:
    from openai import OpenAI

    text, refusal, used, thinking, stop = "", "", None, "", None
    calls: dict[int, dict[str, str]] = {}
    client = OpenAI(api_key="k", base_url=url, max_retries=0)
    for event in client.responses.create(model="m", input="x", stream=True):
        kind = event.type
        if kind == "response.output_text.delta":
            text += event.delta
        elif kind == "response.refusal.delta":
            refusal += event.delta
        elif kind in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
            thinking += event.delta
        elif kind in ("response.output_item.added", "response.output_item.done"):
            if event.item.type == "function_call":
                made = calls.setdefault(event.output_index, {"name": "", "arguments": ""})
                made["name"] = event.item.name
                if kind.endswith("done"):
                    made["arguments"] = event.item.arguments
        elif kind in ("response.completed", "response.incomplete"):
            usage = event.response.usage
            details = event.response.incomplete_details
            stop = details.reason if details else event.response.status
            used = {"input": usage.input_tokens, "output": usage.output_tokens} if usage else None
        elif kind in ("response.failed", "error"):
            raise RuntimeError(kind)
    return {"text": text, "refusal": refusal, "calls": list(calls.values()), "usage": used,
            "thinking": thinking, "stop": stop}  # fmt: skip


def anthropic_messages(url: str) -> dict[str, Any]:
    from anthropic import Anthropic

    client = Anthropic(api_key="k", base_url=url, max_retries=0)
    with client.messages.stream(model="m", max_tokens=9, messages=ASK) as stream:
        message = stream.get_final_message()
    text = "".join(b.text for b in message.content if b.type == "text")
    calls = [
        {"name": b.name, "arguments": json.dumps(b.input)}
        for b in message.content
        if b.type == "tool_use"
    ]
    usage = {"input": message.usage.input_tokens, "output": message.usage.output_tokens}
    thinking = "".join(b.thinking for b in message.content if b.type == "thinking")
    return {"text": text, "refusal": "", "calls": calls, "usage": usage, "thinking": thinking,
            "stop": message.stop_reason}  # fmt: skip


def gemini(url: str) -> dict[str, Any]:
    from google import genai
    from google.genai import types

    client = genai.Client(api_key="k", http_options=types.HttpOptions(base_url=url))
    text, usage, thinking, stop = "", None, "", None
    calls: list[dict[str, str]] = []
    for chunk in client.models.generate_content_stream(model="m", contents="x"):
        usage = chunk.usage_metadata or usage
        for candidate in (chunk.candidates or ())[:1]:
            stop = candidate.finish_reason.value if candidate.finish_reason else stop
            for part in (candidate.content.parts if candidate.content else None) or ():
                if part.text and part.thought:
                    thinking += part.text
                elif part.text:
                    text += part.text
                if part.function_call:
                    arguments = json.dumps(part.function_call.args or {})
                    calls.append({"name": part.function_call.name, "arguments": arguments})
    used = None
    if usage is not None:
        used = {"input": usage.prompt_token_count, "output": usage.candidates_token_count}
    return {"text": text, "refusal": "", "calls": calls, "usage": used, "thinking": thinking,
            "stop": stop}  # fmt: skip


def ollama(url: str) -> dict[str, Any]:
    from ollama import Client

    text, used, thinking, stop = "", None, "", None
    calls: list[dict[str, str]] = []
    for chunk in Client(host=url).chat(model="m", messages=ASK, stream=True):
        text += chunk.message.content or ""
        thinking += chunk.message.thinking or ""
        stop = chunk.done_reason or stop
        for call in chunk.message.tool_calls or ():
            arguments = json.dumps(dict(call.function.arguments))
            calls.append({"name": call.function.name, "arguments": arguments})
        if chunk.done:
            used = {"input": chunk.prompt_eval_count, "output": chunk.eval_count}
    return {"text": text, "refusal": "", "calls": calls, "usage": used, "thinking": thinking,
            "stop": stop}  # fmt: skip


HOW = {
    "openai-chat": openai_chat,
    "openai-responses": openai_responses,
    "anthropic-messages": anthropic_messages,
    "gemini": gemini,
    "ollama": ollama,
}

for line in sys.stdin:
    job = json.loads(line)
    try:
        answer = HOW[job["api"]](job["url"])
    except Exception as error:
        answer = {"raised": f"{type(error).__name__}: {error}"[:200]}
    print(json.dumps(answer), flush=True)
