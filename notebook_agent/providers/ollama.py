"""Ollama's own format: the client and its requests.

Source: LLM turn, "Building the request" (L7, L8, L10-L12, L18).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

import msgspec

from notebook_agent.core.messages import ImagePart, Message, Role, TextPart
from notebook_agent.core.request import RequestOptions, StreamRequest, ToolSchema
from notebook_agent.providers.base import Capabilities
from notebook_agent.providers.capabilities import from_listing
from notebook_agent.providers.client import HttpModelClient, hide, unsupported
from notebook_agent.providers.encoding import (
    Encoded,
    ToolBytes,
    arguments_of,
    data_uri,
    encode_json,
    encode_messages,
    sent_tools,
)
from notebook_agent.providers.ollama_stream import OllamaDecoder
from notebook_agent.providers.sse import StreamCaps

__all__ = ["Ollama"]

_MEMO: Final = "wire:ollama"
# Parameters that stand beside the request; every other one is a model option.
_TOP: Final = frozenset(
    {"format", "keep_alive", "logprobs", "messages", "options", "stream", "think", "tools",
     "top_logprobs", "truncate", "shift"}
)  # fmt: skip


def _encode_message(message: Message) -> Encoded:
    if message.role is Role.ASSISTANT:
        return _assistant(message)
    wire: list[dict[str, Any]] = []
    images: list[ImagePart] = []
    for result in message.results:
        wire.append({"role": "tool", "tool_name": result.name, "content": result.output})
        images += result.images
    text = "".join(p.text for p in message.parts if isinstance(p, TextPart))
    images += [p for p in message.parts if isinstance(p, ImagePart)]
    if text or images:
        user: dict[str, Any] = {"role": "user", "content": text}
        if images:
            user["images"] = [_image(i) for i in images]
        wire.append(user)
    if not wire:
        return Encoded("", "", b"")
    return Encoded(wire[0]["role"], wire[-1]["role"], b",".join(encode_json(w) for w in wire))


def _image(part: ImagePart) -> str:
    inline = data_uri(part.source)
    if inline is None:
        raise unsupported("vision", "ollama", "fetch an image from an address; give its data")
    return inline[1]


def _assistant(message: Message) -> Encoded:
    text = "".join(p.text for p in message.parts if isinstance(p, TextPart))
    calls = [
        {"function": {"name": c.name, "arguments": arguments_of(c.input)}}
        for c in message.tool_calls
    ]
    if not calls and not text.strip():
        return Encoded("", "", b"")
    wire: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        wire["tool_calls"] = calls
    return Encoded("assistant", "assistant", encode_json(wire))


class Ollama(HttpModelClient):
    """A model behind Ollama's own chat format.

    Args:
        model: The bare model name.
        given: Everything else as :class:`HttpModelClient`.
    """

    api: ClassVar[str] = "ollama"
    own_paths: ClassVar[tuple[str, ...]] = ("/api/chat", "/api", "/v1")
    models_path: ClassVar[str] = "/api/tags"
    whole_types: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, model: str, **given: Any) -> None:
        super().__init__(model, **hide(given))
        self._tools = ToolBytes()

    def encode(
        self, request: StreamRequest, options: RequestOptions, *, stream: bool
    ) -> tuple[str, bytes]:
        """The request body, from bytes kept beside the messages."""
        if options.tool_constraint is not None:
            raise unsupported("tool_constraint", self.provider, "keep tools to a strict schema")
        pieces = encode_messages(
            request.messages, _MEMO, _encode_message, lambda role: role != "tool"
        )
        if request.system:
            pieces.insert(0, encode_json({"role": "system", "content": request.system}))
        body: dict[str, Any] = {
            "model": options.model or self._model,
            "messages": msgspec.Raw(b"[" + b",".join(pieces) + b"]"),
            "stream": stream,
        }
        tools = sent_tools(request, options)
        if tools is not None:
            body["tools"] = self._tools.get(tools, None, _tool)
        if options.response_format is not None:
            body["format"] = self._format(options.response_format)
        inner: dict[str, Any] = {}
        for name, value in options.extra.items():
            if name == "options" and isinstance(value, Mapping):
                inner |= value
            elif name in _TOP:
                body[name] = value
            else:
                inner[name] = value
        if inner:
            body["options"] = inner
        return "/api/chat", encode_json(body)

    def decoder(self, caps: StreamCaps) -> OllamaDecoder:
        """A fresh decoder of lines; one whole document is one line."""
        return OllamaDecoder(caps)

    async def learn(self) -> Capabilities:
        """Window, tools, vision and thinking as the endpoint states them.

        Raises:
            ProviderError: The endpoint does not answer.
        """
        entry = await self.get_json("/api/show", encode_json({"model": self._model}))
        self._capabilities = from_listing(entry, self._capabilities)
        return self._capabilities

    def _format(self, wanted: Mapping[str, Any]) -> Any:
        kind = wanted.get("type")
        if kind == "json_object":
            return "json"
        if kind != "json_schema" or not isinstance(wanted.get("schema"), Mapping):
            raise unsupported("response_format", self.provider, f"force the format {kind!r}")
        return wanted["schema"]


def _tool(tool: ToolSchema) -> dict[str, Any]:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }
    return {"type": "function", "function": function}
