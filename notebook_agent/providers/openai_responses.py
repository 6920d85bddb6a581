"""OpenAI Responses: the client and its requests.

Nothing is stored at the provider: reasoning travels back encrypted, as items (L2).

Source: LLM turn, "Building the request" (L2, L7, L8, L10-L12, L18).
"""

from __future__ import annotations

from collections.abc import Mapping
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
from notebook_agent.providers.call_ids import RESPONSES_IDS, fitting_ids
from notebook_agent.providers.client import HttpModelClient, hide, unsupported
from notebook_agent.providers.encoding import (
    Encoded,
    ToolBytes,
    arguments_of,
    encode_json,
    encode_with_state,
    open_exchange,
    sent_tools,
)
from notebook_agent.providers.forced_tool import forced_tool
from notebook_agent.providers.openai_responses_stream import ResponsesDecoder
from notebook_agent.providers.schema_forms import strict_schema
from notebook_agent.providers.secret import Secret
from notebook_agent.providers.sse import StreamCaps
from notebook_agent.providers.wire import mapping, usage_int

__all__ = ["OpenAIResponses"]

_MEMO: Final = "wire:openai-responses"
# Fields of a request that ``/responses/input_tokens`` takes.
COUNTED: Final = frozenset(
    {
        "input",
        "instructions",
        "model",
        "parallel_tool_calls",
        "reasoning",
        "text",
        "tool_choice",
        "tools",
        "truncation",
    }
)


def _image(part: ImagePart) -> dict[str, Any]:
    return {"type": "input_image", "image_url": part.source}


def _result(part: ToolResultPart) -> dict[str, Any]:
    output: Any = part.output
    if part.images:
        output = [{"type": "input_text", "text": part.output}] if part.output else []
        output += [_image(i) for i in part.images]
    return {"type": "function_call_output", "call_id": part.call_id, "output": output}


def _encode_message(message: Message) -> Encoded:
    if message.role is Role.ASSISTANT:
        return _assistant(message, None)
    items: list[dict[str, Any]] = [_result(r) for r in message.results]
    content: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, TextPart):
            content.append({"type": "input_text", "text": part.text})
        elif isinstance(part, ImagePart):
            content.append(_image(part))
    if content:
        plain = all(c["type"] == "input_text" for c in content)
        text: Any = [c for c in content if c["type"] != "input_text" or c["text"]]
        text = "".join(c["text"] for c in content) if plain else text
        items.append({"role": "user", "content": text})
    return _wire(items, "tool" if message.results else "user", "user" if content else "tool")


def _assistant(message: Message, state: Mapping[str, Any] | None) -> Encoded:
    kept = [dict(i) for i in (state or {}).get("items", ()) if _returnable(i)]
    items: list[dict[str, Any]] = []
    for at, part in enumerate(message.parts):
        while kept and kept[0].get("at", 0) <= at:
            items.append({k: v for k, v in kept.pop(0).items() if k != "at"})
        if isinstance(part, TextPart):
            if part.text.strip():
                items.append({"role": "assistant", "content": part.text})
        elif isinstance(part, ToolCallPart):
            arguments = encode_json(arguments_of(part.input)).decode()
            items.append(
                {
                    "type": "function_call",
                    "call_id": part.id,
                    "name": part.name,
                    "arguments": arguments,
                }
            )
    return _wire(items, "assistant", "assistant")


def _returnable(item: object) -> bool:
    """Whether an item may go back: nothing is stored there, so only what it holds itself counts."""
    return isinstance(item, Mapping) and bool(
        item.get("type") != "reasoning" or item.get("encrypted_content")
    )


def _wire(items: list[dict[str, Any]], first: str, last: str) -> Encoded:
    if not items:
        return Encoded("", "", b"")
    return Encoded(first, last, b",".join(encode_json(item) for item in items))


class OpenAIResponses(HttpModelClient):
    """A model behind OpenAI's Responses.

    Args:
        model: The bare model name.
        given: Everything else as :class:`HttpModelClient`.
    """

    api: ClassVar[str] = "openai-responses"
    own_paths: ClassVar[tuple[str, ...]] = ("/responses",)

    def __init__(self, model: str, **given: Any) -> None:
        super().__init__(model, **hide(given))
        self._tools = ToolBytes()

    def key_headers(self, key: Secret) -> dict[str, str | Secret]:
        """Bearer; Azure's own header there."""
        return {"api-key": key} if self.provider == "azure" else super().key_headers(key)

    def encode(
        self, request: StreamRequest, options: RequestOptions, *, stream: bool
    ) -> tuple[str, bytes]:
        """The request body, from bytes kept beside the messages."""
        model = options.model or self._model
        messages = fitting_ids(request.messages, RESPONSES_IDS)
        states = open_exchange(messages, f"{self.provider}:{model}")
        pieces = encode_with_state(
            messages, states, _MEMO, _encode_message, _assistant, lambda r: r == "user"
        )
        body: dict[str, Any] = {
            "model": model,
            "input": msgspec.Raw(b"[" + b",".join(pieces) + b"]"),
            "store": False,
        }
        if request.system:
            body["instructions"] = request.system
        if stream:
            body["stream"] = True
        if self._capabilities.thinking:  # refused by models that do not reason
            body["include"] = ["reasoning.encrypted_content"]
        if options.tool_constraint is ToolConstraint.GRAMMAR:
            raise unsupported("tool_constraint", self.provider, "keep tools to a grammar")
        tools = sent_tools(request, options)
        if tools is not None:
            strict = options.tool_constraint is ToolConstraint.STRICT
            body["tools"] = self._tools.get(tools, strict, lambda t: _tool(t, strict))
        forced = forced_tool(options)
        if forced is not None:
            body["tool_choice"] = {"type": "function", "name": forced.name}
        elif options.response_format is not None:
            body["text"] = {"format": self._format(options.response_format)}
        body |= options.extra
        return "/responses", encode_json(body)

    def decoder(self, caps: StreamCaps) -> ResponsesDecoder:
        """A fresh decoder."""
        return ResponsesDecoder(caps, full_name=self.full_name)

    async def count_tokens(self, request: StreamRequest, options: RequestOptions) -> int | None:
        """Input tokens by the provider's own count; a request is sent.

        Raises:
            ProviderError: The endpoint does not answer.
        """
        path, body = self.encode(request, options, stream=False)
        document = {k: v for k, v in msgspec.json.decode(body).items() if k in COUNTED}
        reply = await self.get_json(f"{path}/input_tokens", encode_json(document))
        return usage_int(mapping(reply).get("input_tokens"))

    def native_format(self, name: str, schema: Mapping[str, Any]) -> dict[str, Any] | None:
        """The format that forces a schema: strict where the schema has such a form."""
        strict = strict_schema(schema)
        wanted = {"type": "json_schema", "name": name, "schema": strict or schema}
        return wanted if strict is None else {**wanted, "strict": True}

    def _format(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        kind = wanted.get("type")
        if kind == "json_object":
            return {"type": "json_object"}
        if kind != "json_schema" or not isinstance(wanted.get("schema"), Mapping):
            raise unsupported("response_format", self.provider, f"force the format {kind!r}")
        out = {"type": kind, "name": wanted.get("name") or "reply", "schema": wanted["schema"]}
        if "strict" in wanted:
            out["strict"] = wanted["strict"]
        return out


def _tool(tool: ToolSchema, strict: bool) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": strict,
    }
