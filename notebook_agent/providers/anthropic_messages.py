"""Anthropic messages: the client and its requests.

Source: LLM turn, "Building the request" (L2, L7, L8, L10-L12, L18); case K06.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

import msgspec

from notebook_agent.core.messages import (
    ImagePart,
    Message,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from notebook_agent.core.request import (
    RequestOptions,
    StreamRequest,
    ToolConstraint,
    ToolSchema,
)
from notebook_agent.providers.anthropic_stream import MessagesDecoder
from notebook_agent.providers.call_ids import ANTHROPIC_IDS, fitting_ids
from notebook_agent.providers.client import HttpModelClient, hide, unsupported
from notebook_agent.providers.encoding import (
    Encoded,
    ToolBytes,
    arguments_of,
    data_uri,
    encode_json,
    encode_with_state,
    open_exchange,
    opened_by_user,
    sent_tools,
)
from notebook_agent.providers.forced_tool import forced_tool
from notebook_agent.providers.schema_forms import closed_schema
from notebook_agent.providers.secret import Secret
from notebook_agent.providers.sse import StreamCaps
from notebook_agent.providers.wire import mapping, usage_int

__all__ = ["AnthropicMessages"]

_VERSION: Final = "2023-06-01"
_MEMO: Final = "wire:anthropic-messages"
# Ruling: the format demands max_tokens and the seeds set none; the model's own limit where it is
# known, else this many.
_MAX_TOKENS: Final = 8192
_MARKER: Final = {"type": "ephemeral"}
# Fields of a request that ``/v1/messages/count_tokens`` takes; it refuses every other one.
COUNTED: Final = frozenset(
    {"cache_control", "context_management", "mcp_servers", "messages", "model", "output_config",
     "system", "thinking", "tool_choice", "tools"}
)  # fmt: skip


def _image(part: ImagePart) -> dict[str, Any]:
    inline = data_uri(part.source)
    if inline is None:
        return {"type": "image", "source": {"type": "url", "url": part.source}}
    source = {"type": "base64", "media_type": inline[0], "data": inline[1]}
    return {"type": "image", "source": source}


def _result(part: ToolResultPart) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": part.call_id}
    if part.images:
        block["content"] = [_image(i) for i in part.images]
        if part.output.strip():
            block["content"].insert(0, {"type": "text", "text": part.output})
    elif part.output.strip():  # white space alone is refused, a result without content is not
        block["content"] = part.output
    if part.is_error:
        block["is_error"] = True
    return block


def _encode_message(message: Message) -> Encoded:
    if message.role is Role.ASSISTANT:
        return _assistant(message, None)
    blocks: list[dict[str, Any]] = [_result(r) for r in message.results]  # results go first
    for part in message.parts:
        if isinstance(part, TextPart):
            if part.text.strip():  # a block of white space alone is refused, a joint's too
                blocks.append({"type": "text", "text": part.text})
        elif isinstance(part, ImagePart):
            blocks.append(_image(part))
    return _wire("user", blocks)


def _assistant(message: Message, state: Mapping[str, Any] | None) -> Encoded:
    blocks: list[dict[str, Any]] = []
    thinking = [dict(t) for t in (state or {}).get("thinking", ()) if isinstance(t, Mapping)]
    for at, part in enumerate(message.parts):
        while thinking and thinking[0].get("at", 0) <= at:
            blocks.append(_thinking(thinking.pop(0)))
        if isinstance(part, TextPart):
            if part.text.strip():
                blocks.append({"type": "text", "text": part.text})
        elif isinstance(part, ToolCallPart):
            given = arguments_of(part.input)
            blocks.append({"type": "tool_use", "id": part.id, "name": part.name, "input": given})
    return _wire("assistant", blocks)


def _thinking(block: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in block.items() if k != "at"}


def _wire(role: str, blocks: list[dict[str, Any]]) -> Encoded:
    if not blocks:
        return Encoded("", "", b"")
    content: Any = blocks
    if len(blocks) == 1 and blocks[0]["type"] == "text":
        content = blocks[0]["text"]
    return Encoded(role, role, encode_json({"role": role, "content": content}))


class AnthropicMessages(HttpModelClient):
    """A model behind Anthropic's messages format.

    Args:
        model: The bare model name.
        prompt_cache: Unless a request says otherwise, put cache markers behind tools, system prompt and the last message: the next
            turn, which begins with the same, reads them from the provider's cache.
        given: Everything else as :class:`HttpModelClient`.
    """

    api: ClassVar[str] = "anthropic-messages"
    own_paths: ClassVar[tuple[str, ...]] = ("/v1/messages", "/v1")
    models_path: ClassVar[str] = "/v1/models?limit=1000"

    def __init__(self, model: str, *, prompt_cache: bool = False, **given: Any) -> None:
        super().__init__(model, **hide(given))
        self._cache = prompt_cache
        self._tools = ToolBytes()

    def key_headers(self, key: Secret) -> dict[str, str | Secret]:
        """``x-api-key``."""
        return {"x-api-key": key}

    def more_headers(self) -> dict[str, str | Secret]:
        """The format's version."""
        return {"anthropic-version": _VERSION}

    def encode(
        self, request: StreamRequest, options: RequestOptions, *, stream: bool
    ) -> tuple[str, bytes]:
        """The request body, from bytes kept beside the messages."""
        model = options.model or self._model
        messages = fitting_ids(request.messages, ANTHROPIC_IDS)
        states = open_exchange(messages, f"{self.provider}:{model}")
        pieces = encode_with_state(
            messages, states, _MEMO, _encode_message, _assistant, lambda _role: True
        )
        pieces = opened_by_user(pieces, _encode_message)
        cache = self._cache if options.prompt_cache is None else options.prompt_cache
        if cache and pieces:
            pieces[-1] = _marked(pieces[-1])
        body: dict[str, Any] = {
            "model": model,
            "max_tokens": self._capabilities.max_output or _MAX_TOKENS,
            "messages": msgspec.Raw(b"[" + b",".join(pieces) + b"]"),
        }
        if request.system:
            body["system"] = request.system
            if cache:
                block = {"type": "text", "text": request.system, "cache_control": _MARKER}
                body["system"] = [block]
        if stream:
            body["stream"] = True
        if options.tool_constraint is ToolConstraint.GRAMMAR:
            raise unsupported("tool_constraint", self.provider, "keep tools to a grammar")
        body |= self._tools_and_format(
            replace(request, messages=tuple(messages)), options, marked=cache
        )
        body |= options.extra
        return "/v1/messages", encode_json(body)

    def decoder(self, caps: StreamCaps) -> MessagesDecoder:
        """A fresh decoder."""
        return MessagesDecoder(caps, full_name=self.full_name)

    async def count_tokens(self, request: StreamRequest, options: RequestOptions) -> int | None:
        """Input tokens by the provider's own count; a request is sent.

        Raises:
            ProviderError: The endpoint does not answer.
        """
        _, body = self.encode(request, options, stream=False)
        document = {k: v for k, v in msgspec.json.decode(body).items() if k in COUNTED}
        reply = await self.get_json("/v1/messages/count_tokens", encode_json(document))
        return usage_int(mapping(reply).get("input_tokens"))

    def native_format(self, name: str, schema: Mapping[str, Any]) -> dict[str, Any] | None:
        """The format that forces a schema; None where the service has no form for it."""
        closed = closed_schema(schema)
        return None if closed is None else {"type": "json_schema", "name": name, "schema": closed}

    def _tools_and_format(
        self, request: StreamRequest, options: RequestOptions, *, marked: bool
    ) -> dict[str, Any]:
        out: dict[str, Any] = {}
        tools, forced = sent_tools(request, options), forced_tool(options)
        if tools is not None:
            strict = options.tool_constraint is ToolConstraint.STRICT and forced is None
            key = (strict, marked)
            out["tools"] = self._tools.get(
                tools, key, lambda t: _tool(t, strict, marked=marked and t is tools[-1])
            )
        elif called := _called(request.messages):
            # The service refuses calls and results in a conversation when no tool is defined.
            # Their names are enough, and none may be called (L18: the schemas stay at home).
            out["tools"] = [{"name": n, "input_schema": {"type": "object"}} for n in called]
            out["tool_choice"] = {"type": "none"}
        if forced is not None:
            out["tool_choice"] = {"type": "tool", "name": forced.name}
            if _thinks(options.extra.get("thinking")):  # then the service takes no forced call
                out["tool_choice"] = {"type": "auto"}
            out["tool_choice"]["disable_parallel_tool_use"] = True
        elif options.response_format is not None:
            out["output_config"] = {"format": self._format(options.response_format)}
        return out

    def _format(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        if wanted.get("type") != "json_schema" or not isinstance(wanted.get("schema"), Mapping):
            raise unsupported(
                "response_format", self.provider, f"force the format {wanted.get('type')!r}"
            )
        return {"type": "json_schema", "schema": wanted["schema"]}


def _thinks(given: Any) -> bool:
    """Whether the parameter ``thinking`` switches it on."""
    return isinstance(given, Mapping) and given.get("type") not in (None, "disabled")


def _called(messages: Sequence[Message]) -> list[str]:
    """Names of the tools that a conversation speaks of."""
    found = {c.name for m in messages for c in m.tool_calls}
    return sorted(found | {r.name for m in messages for r in m.results})


def _marked(message: bytes) -> bytes:
    """A wire message with a cache marker on its last block."""
    data = msgspec.json.decode(message)
    if isinstance(data["content"], str):
        data["content"] = [{"type": "text", "text": data["content"]}]
    for block in reversed(data["content"]):
        if block["type"] not in ("thinking", "redacted_thinking"):
            block["cache_control"] = _MARKER
            break
    return encode_json(data)


def _tool(tool: ToolSchema, strict: bool, *, marked: bool = False) -> dict[str, Any]:
    out: dict[str, Any] = {
        "name": tool.name,
        "description": tool.description,
        "input_schema": tool.parameters,
    }
    if strict:
        out["strict"] = True
    if marked:
        out["cache_control"] = _MARKER
    return out
