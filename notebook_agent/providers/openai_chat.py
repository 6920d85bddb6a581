"""OpenAI-compatible chat completions: the client and its requests.

Source: LLM turn, "Building the request" (L7, L8, L10-L16, L18); cases S03-S12, T02, K06.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import msgspec

from notebook_agent.core.messages import ImagePart, Message, Role, TextPart
from notebook_agent.core.request import (
    RequestOptions,
    StreamRequest,
    ToolConstraint,
    ToolSchema,
)
from notebook_agent.providers.base import Capabilities
from notebook_agent.providers.call_ids import CHAT_IDS, MISTRAL_IDS, IdRule, fitting_ids
from notebook_agent.providers.capabilities import from_listing
from notebook_agent.providers.client import HttpModelClient, hide, unsupported
from notebook_agent.providers.encoding import (
    Encoded,
    ToolBytes,
    arguments_of,
    encode_json,
    encode_with_state,
    open_exchange,
    sent_tools,
    unsigned_calls,
)
from notebook_agent.providers.forced_tool import forced_tool
from notebook_agent.providers.openai_chat_stream import ChatDecoder
from notebook_agent.providers.schema_forms import strict_schema
from notebook_agent.providers.secret import Secret
from notebook_agent.providers.sse import StreamCaps

__all__ = ["DIALECTS", "Dialect", "OpenAIChat"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a service differs from OpenAI in its requests.

    Attributes:
        stream_usage: ``stream_options: {include_usage: true}`` is understood.
        grammar: Tool arguments are held to their schema by a grammar, always.
        strict: ``strict: true`` on a tool is understood.
        json_schema: ``response_format`` of type ``json_schema`` is understood.
        reasoning_back: Field in which reasoning goes back during a tool exchange (L2).
        key_header: Header of the key, where it is not ``Authorization: Bearer``.
        ids: What ids of calls are understood.
        user_after_results: A user may speak before the model has said what it makes of results.
    """

    stream_usage: bool = True
    grammar: bool = False
    strict: bool = True
    json_schema: bool = True
    reasoning_back: str | None = None
    key_header: str | None = None
    ids: IdRule = CHAT_IDS
    user_after_results: bool = True


DIALECTS: Final[Mapping[str, Dialect]] = {
    "openai": Dialect(),
    "azure": Dialect(key_header="api-key"),
    "deepseek": Dialect(json_schema=False, reasoning_back="reasoning_content"),
    "groq": Dialect(strict=False),
    "llamacpp": Dialect(grammar=True, strict=False),
    "lmstudio": Dialect(strict=False),
    "local": Dialect(grammar=True, strict=False),
    "mistral": Dialect(stream_usage=False, ids=MISTRAL_IDS, user_after_results=False),
    "ollama": Dialect(strict=False),
    "openrouter": Dialect(reasoning_back="reasoning_details"),
    "vllm": Dialect(strict=False),
    "xai": Dialect(),
}

_MEMO: Final = "wire:openai-chat"
_HEARD: Final = Message.assistant("I have the results.")


def _encode_message(message: Message) -> Encoded:
    if message.role is Role.ASSISTANT:
        return _assistant(message, None)
    wire: list[dict[str, Any]] = []
    images: list[ImagePart] = []
    for result in message.results:  # results follow their calls at once, whatever else is said
        wire.append({"role": "tool", "tool_call_id": result.call_id, "content": result.output})
        images += result.images
    content: list[dict[str, Any]] = [
        *({"type": "image_url", "image_url": {"url": i.source}} for i in images),
        *_contents(message),
    ]
    if content:
        wire.append({"role": "user", "content": _plain(content)})
    if not wire:
        return Encoded("", "", b"")
    return Encoded(wire[0]["role"], wire[-1]["role"], b",".join(encode_json(one) for one in wire))


def _contents(message: Message) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, TextPart):
            out.append({"type": "text", "text": part.text})
        elif isinstance(part, ImagePart):
            out.append({"type": "image_url", "image_url": {"url": part.source}})
    return out


def _plain(content: list[dict[str, Any]]) -> Any:
    """Text alone as a string, which every service understands; no empty text beside an image."""
    if all(c["type"] == "text" for c in content):
        return "".join(c["text"] for c in content)
    return [c for c in content if c["type"] != "text" or c["text"]]


def _assistant(message: Message, state: Mapping[str, Any] | None) -> Encoded:
    # Ruling: L5a keeps refusals out of text_content(); the model is still shown what it said.
    text = "".join(p.text for p in message.parts if isinstance(p, TextPart))
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {
                "name": call.name,
                "arguments": encode_json(arguments_of(call.input)).decode(),
            },
        }
        for call in message.tool_calls
    ]
    if not calls and not text.strip():
        return Encoded("", "", b"")
    wire: dict[str, Any] = {"role": "assistant", "content": text if text.strip() else None}
    if calls:
        wire["tool_calls"] = calls
    wire |= {field: value for field, value in (state or {}).items() if field != "model"}
    return Encoded("assistant", "assistant", encode_json(wire))


def _mergeable(role: str) -> bool:
    return role != "tool"


class OpenAIChat(HttpModelClient):
    """A model behind OpenAI-compatible chat completions.

    Args:
        model: The bare model name.
        dialect: How the service differs; None goes by ``provider``.
        given: Everything else as :class:`HttpModelClient`.

    Example:
        >>> OpenAIChat("gpt-x", base_url="http://127.0.0.1:8080/v1", provider="local")
        <OpenAIChat local:gpt-x at http://127.0.0.1:8080/v1>
    """

    api: ClassVar[str] = "openai-chat"
    own_paths: ClassVar[tuple[str, ...]] = ("/chat/completions",)

    def __init__(self, model: str, *, dialect: Dialect | None = None, **given: Any) -> None:
        super().__init__(model, **hide(given))
        self.dialect = dialect or DIALECTS.get(self.provider, Dialect())
        self._tools = ToolBytes()

    def key_headers(self, key: Secret) -> dict[str, str | Secret]:
        """Bearer, or the dialect's own header."""
        if self.dialect.key_header:
            return {self.dialect.key_header: key}
        return super().key_headers(key)

    def encode(
        self, request: StreamRequest, options: RequestOptions, *, stream: bool
    ) -> tuple[str, bytes]:
        """The request body, from bytes kept beside the messages."""
        model = options.model or self._model
        thinks = self._thinks(model, options)
        body: dict[str, Any] = {"model": model, "messages": self._messages(request, model, thinks)}
        if stream:
            body["stream"] = True
            if self.dialect.stream_usage:
                body["stream_options"] = {"include_usage": True}
        tools = sent_tools(request, options)
        strict = self._strict(options)
        if tools is not None:
            body["tools"] = self._tools.get(tools, strict, lambda t: _tool(t, strict))
        forced = forced_tool(options)
        if forced is not None:
            body["tool_choice"] = {"type": "function", "function": {"name": forced.name}}
        elif options.response_format is not None:
            body["response_format"] = self._format(options.response_format)
        for name, value in options.extra.items():
            if name == "stream" and bool(value) is not stream:
                raise unsupported("stream", self.provider, "be told stream twice; use --no-stream")
            body[name] = value
        return "/chat/completions", encode_json(body)

    def decoder(self, caps: StreamCaps) -> ChatDecoder:
        """A fresh decoder."""
        return ChatDecoder(
            caps,
            full_name=self.full_name,
            reasoning_back=self.dialect.reasoning_back,
        )

    async def learn(self) -> Capabilities:
        """What the endpoint's model list states of this model: window, tools, vision.

        Raises:
            ProviderError: The endpoint does not answer.
        """
        document = await self.get_json(self.models_path)
        entries = document.get("data") if isinstance(document, dict) else document
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and entry.get("id") == self._model:
                self._capabilities = from_listing(entry, self._capabilities)
        return self._capabilities

    def _messages(self, request: StreamRequest, model: str, thinks: bool) -> msgspec.Raw:
        messages = fitting_ids(request.messages, self.dialect.ids)
        if not self.dialect.user_after_results:
            messages = _heard(messages)
        back = self.dialect.reasoning_back
        states = open_exchange(messages, f"{self.provider}:{model}") if back else {}
        if back and thinks:
            states |= {at: {back: ""} for at in unsigned_calls(messages, states)}
        pieces = encode_with_state(messages, states, _MEMO, _encode_message, _assistant, _mergeable)
        if request.system:
            pieces.insert(0, encode_json({"role": "system", "content": request.system}))
        return msgspec.Raw(b"[" + b",".join(pieces) + b"]")

    @property
    def forces_tools(self) -> bool:
        """Whether a call can be demanded; DeepSeek's thinking models refuse that."""
        return not self._thinks(self._model, RequestOptions())

    def _thinks(self, model: str, options: RequestOptions) -> bool:
        """Whether DeepSeek thinks: then each call of an exchange must have its field (L2)."""
        if self.provider != "deepseek":
            return False
        given = options.extra.get("thinking")
        asked = isinstance(given, Mapping) and given.get("type") == "enabled"
        return asked or "reasoner" in model

    def _strict(self, options: RequestOptions) -> bool:
        constraint = options.tool_constraint
        if constraint is ToolConstraint.STRICT and not self.dialect.strict:
            raise unsupported("tool_constraint", self.provider, "keep tools to a strict schema")
        if constraint is ToolConstraint.GRAMMAR and not self.dialect.grammar:
            raise unsupported("tool_constraint", self.provider, "keep tools to a grammar")
        return constraint is ToolConstraint.STRICT

    def native_format(self, name: str, schema: Mapping[str, Any]) -> dict[str, Any] | None:
        """The format that forces a schema: strict where the schema has such a form."""
        if not self.dialect.json_schema:
            return None
        strict = strict_schema(schema) if self.dialect.strict else None
        wanted = {"type": "json_schema", "name": name, "schema": strict or schema}
        return wanted if strict is None else {**wanted, "strict": True}

    def _format(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        kind = wanted.get("type")
        if kind == "json_object":
            return {"type": "json_object"}
        if kind != "json_schema" or not isinstance(wanted.get("schema"), Mapping):
            raise unsupported("response_format", self.provider, f"force the format {kind!r}")
        if not self.dialect.json_schema:
            raise unsupported("json_schema", self.provider, "force a JSON schema")
        inner = {"name": wanted.get("name") or "reply", "schema": wanted["schema"]}
        if "strict" in wanted:
            inner["strict"] = wanted["strict"]
        return {"type": "json_schema", "json_schema": inner}


def _heard(messages: Sequence[Message]) -> Sequence[Message]:
    """The conversation with a word of the assistant between results and what a user says next.

    Ruling: L8. Some tokenisers of Mistral's refuse ``user`` after ``tool``, and images of a result
    travel in such a message.
    """
    if not any(m.results for m in messages):
        return messages
    out: list[Message] = []
    for message in messages:
        results = message.results
        images = tuple(i for r in results for i in r.images)
        rest = (*images, *(p for p in message.parts if isinstance(p, (TextPart, ImagePart))))
        if results and rest:
            told = tuple(replace(r, images=()) for r in results)
            out += [Message(Role.USER, told), _HEARD, Message(Role.USER, rest)]
            continue
        if out and out[-1].results and not results and message.role is not Role.ASSISTANT:
            out.append(_HEARD)
        out.append(message)
    return out


def _tool(tool: ToolSchema, strict: bool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name, "description": tool.description}
    function["parameters"] = tool.parameters
    if strict:
        function["strict"] = True
    return {"type": "function", "function": function}
