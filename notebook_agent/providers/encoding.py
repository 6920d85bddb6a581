"""From messages to a request body: each message is encoded once and its bytes are kept beside it.

A turn over a history of a thousand messages joins a thousand byte strings; it encodes only what
is new. Neighbours of one role are merged (L8), an assistant message with nothing in it is left
out (K06), arguments are always a JSON object (L41).

Source: LLM turn, "Building the request" (L2, L8, L10-L12).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from notebook_agent.core.messages import Message, MessagePart, Role, TextPart
from notebook_agent.core.request import RequestOptions, StreamRequest, ToolSchema
from notebook_agent.core.text import clean_text
from notebook_agent.providers.forced_tool import forced_tool

__all__ = [
    "Encoded",
    "ToolBytes",
    "arguments_of",
    "data_uri",
    "encode_json",
    "encode_messages",
    "encode_with_state",
    "open_exchange",
    "opened_by_user",
    "sent_tools",
    "system_note",
    "unsigned_calls",
]

_encode: Final = msgspec.json.Encoder().encode

# Ruling: L8 names a fixed prefix for system text inside the conversation; this is it.
SYSTEM_NOTE: Final = "[system note] "
# Ruling: L8, a service that wants the user to speak first is told who did. Such a conversation was
# given by hand, or trimmed to what fits (B24).
_OPENING: Final = Message.user(f"{SYSTEM_NOTE}The conversation goes on from here.")


class Encoded(NamedTuple):
    """One message on the wire.

    ``first`` and ``last`` are the roles at its ends ("" = nothing is sent), ``data`` the JSON of
    one or more wire messages, comma between them.
    """

    first: str
    last: str
    data: bytes


def encode_json(value: Any) -> bytes:
    """JSON bytes; a lone surrogate, which no encoder takes, becomes U+FFFD (T02)."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(_cleaned(value))


def _cleaned(value: Any) -> Any:
    """``clean_json`` around bytes that are encoded already."""
    if isinstance(value, Mapping):
        return {clean_text(str(k)): _cleaned(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_cleaned(v) for v in value]
    return clean_text(value) if isinstance(value, str) else value


def arguments_of(value: Any) -> dict[str, Any]:
    """Arguments of a call as they are sent again: an object, ``{}`` for anything else (L41)."""
    return dict(value) if isinstance(value, Mapping) else {}


def system_note(message: Message) -> Message:
    """System text inside the conversation, as a user message with a fixed prefix (L8)."""
    return Message(Role.USER, (TextPart(SYSTEM_NOTE + message.text_content()),))


def encode_messages(
    messages: Sequence[Message],
    key: object,
    encode: Callable[[Message], Encoded],
    mergeable: Callable[[str], bool],
) -> list[bytes]:
    """The wire form of a conversation, one byte string for each message that is sent.

    Args:
        messages: The conversation.
        key: Where a message keeps its bytes for this wire format (``Message.memo``).
        encode: Encodes one message.
        mergeable: Whether two neighbours of a role must become one.
    """
    out: list[bytes] = []
    last = ""
    merge = False
    for message in messages:
        encoded = message.memo.get(key)
        if encoded is None:
            encoded = message.memo[key] = encode(_told(message))
        first, end, data = encoded
        if first:
            if first == last and mergeable(first):
                merge = True
                break
            out.append(data)
            last = end
    if not merge:
        return out
    return [encode(m).data for m in _merged(messages, key, encode, mergeable)]


def encode_with_state(
    messages: Sequence[Message],
    states: Mapping[int, Mapping[str, Any]],
    key: object,
    encode: Callable[[Message], Encoded],
    encode_state: Callable[[Message, Mapping[str, Any]], Encoded],
    mergeable: Callable[[str], bool],
) -> list[bytes]:
    """As :func:`encode_messages`, with provider state in the open tool exchange (L2).

    The exchange follows a user message and alternates, so nothing merges across its border.

    Args:
        messages: The conversation.
        states: Position -> state, from :func:`open_exchange`.
        key: Where a message keeps its bytes.
        encode: Encodes one message without state.
        encode_state: Encodes an assistant message with its state.
        mergeable: Whether two neighbours of a role must become one.
    """
    if not states:
        return encode_messages(messages, key, encode, mergeable)
    pieces = encode_messages(messages[: min(states)], key, encode, mergeable)
    for at in range(min(states), len(messages)):
        if at in states:
            pieces.append(encode_state(messages[at], states[at]).data)
        else:
            pieces += encode_messages((messages[at],), key, encode, mergeable)
    return pieces


def opened_by_user(pieces: list[bytes], encode: Callable[[Message], Encoded]) -> list[bytes]:
    """The wire messages with a user in front, for a service that refuses an assistant there.

    Args:
        pieces: What :func:`encode_messages` gave, each an object whose first field is the role.
        encode: Encodes one message.
    """
    if pieces and not pieces[0].startswith(b'{"role":"user"'):
        return [encode(_OPENING).data, *pieces]
    return pieces


def _told(message: Message) -> Message:
    return system_note(message) if message.role is Role.SYSTEM else message


def _merged(
    messages: Sequence[Message],
    key: object,
    encode: Callable[[Message], Encoded],
    mergeable: Callable[[str], bool],
) -> list[Message]:
    """The conversation with neighbours of one role put together: rare, so it is done plainly."""
    out: list[Message] = []
    ends: list[str] = []
    for message in messages:
        told = _told(message)
        encoded = message.memo.get(key) or encode(told)
        if not encoded.first:
            continue
        if out and encoded.first == ends[-1] and mergeable(encoded.first):
            before = out[-1]
            out[-1] = Message(
                before.role,
                _joined(before.parts, told.parts),
                provider_state=told.provider_state or before.provider_state,
            )
        else:
            out.append(told)
            ends.append("")
        ends[-1] = encoded.last
    return out


def _joined(a: tuple[MessagePart, ...], b: tuple[MessagePart, ...]) -> tuple[MessagePart, ...]:
    """Parts of two messages; an empty line keeps two texts apart."""
    if a and b and isinstance(a[-1], TextPart) and isinstance(b[0], TextPart):
        return (*a, TextPart("\n\n"), *b)
    return (*a, *b)


def open_exchange(messages: Sequence[Message], full_name: str) -> dict[int, Mapping[str, Any]]:
    """Provider state that travels back: position in ``messages`` -> state (L2).

    Only messages of the tool exchange that is still open, only to the model that made them: from
    the end back to the last user message that holds more than tool results.
    """
    found: dict[int, Mapping[str, Any]] = {}
    for at in range(len(messages) - 1, -1, -1):
        message = messages[at]
        if message.role is Role.ASSISTANT:
            state = message.provider_state
            if state is not None and state.get("model") == full_name and message.tool_calls:
                found[at] = state
        elif not message.results:
            break
    return found


def unsigned_calls(
    messages: Sequence[Message], states: Mapping[int, Mapping[str, Any]]
) -> list[int]:
    """Places of the open exchange's calls that have no state: another model made them.

    Some services refuse a call of the exchange without what its maker thought.
    """
    found: list[int] = []
    for at in range(len(messages) - 1, -1, -1):
        message = messages[at]
        if message.role is Role.ASSISTANT:
            if message.tool_calls and at not in states:
                found.append(at)
        elif not message.results:
            break
    return found


def sent_tools(request: StreamRequest, options: RequestOptions) -> tuple[ToolSchema, ...] | None:
    """Tools that go on the wire: none under a forced JSON format (L18), never an empty list.

    A forced tool is the format: it goes alone.
    """
    forced = forced_tool(options)
    if forced is not None:
        return (forced,)
    if options.response_format is not None or not request.tools:
        return None
    return request.tools


class ToolBytes:
    """Encoded tools, kept while the same tools are sent."""

    __slots__ = ("_bytes", "_strict", "_tools")

    def __init__(self) -> None:
        self._tools: tuple[ToolSchema, ...] = ()
        self._strict: object = None
        self._bytes = b""

    def get(
        self,
        tools: tuple[ToolSchema, ...],
        strict: object,
        encode: Callable[[ToolSchema], Any],
    ) -> msgspec.Raw:
        """The JSON array of the tools."""
        same = (
            len(tools) == len(self._tools)
            and strict == self._strict
            and all(a is b for a, b in zip(tools, self._tools, strict=True))
        )
        if not same:
            self._bytes = encode_json([encode(tool) for tool in tools])
            self._tools, self._strict = tools, strict
        return msgspec.Raw(self._bytes)


# Names of media types that no service knows -> the registered one.
_KINDS: Final = {"image/jpg": "image/jpeg", "image/pjpeg": "image/jpeg", "image/x-png": "image/png"}


def data_uri(source: str) -> tuple[str, str] | None:
    """(media type, base64) of a ``data:`` URI, None for any other address."""
    if source[:5].lower() != "data:":
        return None
    head, _, data = source[5:].partition(",")
    kind = head.partition(";")[0].strip().lower() or "image/png"
    return _KINDS.get(kind, kind), clean_text(data)
