"""Gemini generateContent: the client and its requests.

Source: LLM turn, "Building the request" (L2, L7, L8, L10-L12, L18).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final
from urllib.parse import quote, unquote

import msgspec

from notebook_agent.core.messages import (
    ImagePart,
    Message,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from notebook_agent.core.request import RequestOptions, StreamRequest, ToolSchema
from notebook_agent.core.schema_refs import lone_refs
from notebook_agent.providers.base import Capabilities
from notebook_agent.providers.call_ids import GEMINI_IDS, fitting_ids
from notebook_agent.providers.capabilities import from_listing
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
    unsigned_calls,
)
from notebook_agent.providers.forced_tool import forced_tool
from notebook_agent.providers.gemini_stream import GeminiDecoder
from notebook_agent.providers.secret import Secret
from notebook_agent.providers.sse import StreamCaps
from notebook_agent.providers.wire import MADE_ID, mapping, usage_int

__all__ = ["Gemini"]

_MEMO: Final = "wire:gemini"
# Parameters that stand beside the request; every other one belongs into generationConfig.
_TOP: Final = frozenset(
    {"cachedContent", "generationConfig", "labels", "safetySettings", "serviceTier", "store",
     "systemInstruction", "toolConfig", "tools", "contents"}
)  # fmt: skip


# Models that refuse a call without a signature in the exchange that is still open.
_SIGNING: Final = re.compile(r"gemini-([3-9]|[1-9]\d)")
# The provider's own word for a call that another model made (a fallback within an exchange).
_FOREIGN: Final = "skip_thought_signature_validator"


def _image(part: ImagePart) -> dict[str, Any]:
    inline = data_uri(part.source)
    if inline is None:
        return {"fileData": {"fileUri": part.source}}
    return {"inlineData": {"mimeType": inline[0], "data": inline[1]}}


def _with_id(fields: dict[str, Any], call_id: str) -> dict[str, Any]:
    """The id, where the provider gave one."""
    if call_id and not call_id.startswith(MADE_ID):
        fields["id"] = call_id
    return fields


def _result(part: ToolResultPart) -> dict[str, Any]:
    word = "error" if part.is_error else "output"
    fields = {"name": part.name, "response": {word: part.output}}
    return {"functionResponse": _with_id(fields, part.call_id)}


def _encode_message(message: Message) -> Encoded:
    if message.role is Role.ASSISTANT:
        return _assistant(message, None)
    parts: list[dict[str, Any]] = [_result(r) for r in message.results]
    parts += [_image(i) for r in message.results for i in r.images]
    for part in message.parts:
        if isinstance(part, TextPart):
            if part.text:
                parts.append({"text": part.text})
        elif isinstance(part, ImagePart):
            parts.append(_image(part))
    return _wire("user", parts)


def _assistant(message: Message, state: Mapping[str, Any] | None) -> Encoded:
    signatures = {
        s["at"]: s["signature"]
        for s in (state or {}).get("signatures", ())
        if isinstance(s, Mapping) and "at" in s and "signature" in s
    }
    parts: list[dict[str, Any]] = []
    for at, part in enumerate(message.parts):
        if isinstance(part, TextPart) and part.text.strip():
            wire: dict[str, Any] = {"text": part.text}
        elif isinstance(part, ToolCallPart):
            call = {"name": part.name, "args": arguments_of(part.input)}
            wire = {"functionCall": _with_id(call, part.id)}
        else:
            continue
        if at in signatures:
            wire["thoughtSignature"] = signatures[at]
        parts.append(wire)
    return _wire("model", parts)


def _wire(role: str, parts: list[dict[str, Any]]) -> Encoded:
    if not parts:
        return Encoded("", "", b"")
    return Encoded(role, role, encode_json({"role": role, "parts": parts}))


class Gemini(HttpModelClient):
    """A model behind Gemini's generateContent.

    Args:
        model: The bare model name.
        given: Everything else as :class:`HttpModelClient`.
    """

    api: ClassVar[str] = "gemini"
    models_path: ClassVar[str] = "/models?pageSize=1000"
    whole_types: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, model: str, **given: Any) -> None:
        super().__init__(model, **hide(given))
        self._tools = ToolBytes()

    def key_headers(self, key: Secret) -> dict[str, str | Secret]:
        """``x-goog-api-key``: never in the address."""
        return {"x-goog-api-key": key}

    def encode(
        self, request: StreamRequest, options: RequestOptions, *, stream: bool
    ) -> tuple[str, bytes]:
        """The request body, from bytes kept beside the messages."""
        model = options.model or self._model
        if options.tool_constraint is not None:
            raise unsupported("tool_constraint", self.provider, "keep tools to a strict schema")
        messages = fitting_ids(request.messages, GEMINI_IDS)
        states = open_exchange(messages, f"{self.provider}:{model}")
        if _SIGNING.search(model):
            states = _signed(messages, states)
        pieces = encode_with_state(
            messages, states, _MEMO, _encode_message, _assistant, lambda _role: True
        )
        pieces = opened_by_user(pieces, _encode_message)
        body: dict[str, Any] = {"contents": msgspec.Raw(b"[" + b",".join(pieces) + b"]")}
        if request.system:
            body["systemInstruction"] = {"parts": [{"text": request.system}]}
        tools = sent_tools(request, options)
        if tools is not None:
            declared = self._tools.get(tools, None, _tool)
            body["tools"] = [{"functionDeclarations": declared}]
        config: dict[str, Any] = {}
        forced = forced_tool(options)
        if forced is not None:
            rule = {"mode": "ANY", "allowedFunctionNames": [forced.name]}
            body["toolConfig"] = {"functionCallingConfig": rule}
        elif options.response_format is not None:
            config |= self._format(options.response_format)
        for name, value in options.extra.items():
            if name == "generationConfig" and isinstance(value, Mapping):
                config |= value
            elif name in _TOP:
                body[name] = value
            else:
                config[name] = value
        if config:
            body["generationConfig"] = config
        name = quote(model if "/" in model else f"models/{model}", safe="/:")
        verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
        return f"/{name}:{verb}", encode_json(body)

    def decoder(self, caps: StreamCaps) -> GeminiDecoder:
        """A fresh decoder; it reads both server-sent events and a JSON array."""
        return GeminiDecoder(caps, full_name=self.full_name)

    async def learn(self) -> Capabilities:
        """Window and output limit as the endpoint states them.

        Raises:
            ProviderError: The endpoint does not answer.
        """
        entry = await self.get_json(f"/models/{quote(self._model.removeprefix('models/'))}")
        self._capabilities = from_listing(entry, self._capabilities)
        return self._capabilities

    async def list_models(self) -> list[str]:
        """Names that the endpoint offers.

        Raises:
            ProviderError: The endpoint does not answer.
        """
        return [name.removeprefix("models/") for name in await super().list_models()]

    async def count_tokens(self, request: StreamRequest, options: RequestOptions) -> int | None:
        """Input tokens by the provider's own count; a request is sent.

        Raises:
            ProviderError: The endpoint does not answer.
        """
        path, body = self.encode(request, options, stream=False)
        name = path.rpartition(":")[0]
        whole = {"model": unquote(name[1:]), **msgspec.json.decode(body)}
        asked = encode_json({"generateContentRequest": whole})
        reply = await self.get_json(f"{name}:countTokens", asked)
        return usage_int(mapping(reply).get("totalTokens"))

    def _format(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        kind = wanted.get("type")
        if kind == "json_object":
            return {"responseMimeType": "application/json"}
        if kind != "json_schema" or not isinstance(wanted.get("schema"), Mapping):
            raise unsupported("response_format", self.provider, f"force the format {kind!r}")
        return {
            "responseMimeType": "application/json",
            "responseJsonSchema": lone_refs(wanted["schema"]),
        }


def _signed(
    messages: Sequence[Message], states: Mapping[int, Mapping[str, Any]]
) -> dict[int, Mapping[str, Any]]:
    """The states, and one for each reply of the open exchange that another model gave (L2)."""
    out = dict(states)
    for at in unsigned_calls(messages, states):
        first = next(n for n, p in enumerate(messages[at].parts) if isinstance(p, ToolCallPart))
        out[at] = {"signatures": [{"at": first, "signature": _FOREIGN}]}
    return out


def _tool(tool: ToolSchema) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "parametersJsonSchema": lone_refs(tool.parameters),
    }
