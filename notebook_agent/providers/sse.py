"""Bytes to lines to events: server-sent events, newline-delimited JSON, JSON arrays.

Three splitters with one interface: ``feed(chunk)`` gives the items that are complete,
``finish()`` what is left at the end of the body. However the bytes are cut into chunks, the
items are the same. Only LF, CRLF and CR end a line (S02); a character cut in two by a chunk
border is never looked at before it is whole (S01).

The work on the happy path is one ``bytes.split`` for each chunk, nothing for each line.

Source: LLM turn, "StreamHandler" (L55, L70).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from notebook_agent.errors import ErrorKind, ProviderError

__all__ = [
    "MAX_LINE_BYTES",
    "MAX_STREAM_BYTES",
    "JsonArray",
    "Named",
    "NdJson",
    "Splitter",
    "SseEvents",
    "StreamCaps",
]

MAX_LINE_BYTES: Final = 32 * 1024 * 1024
MAX_STREAM_BYTES: Final = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class StreamCaps:
    """Caps of a streamed body in bytes: one line (or one event), and all of it (L70)."""

    line: int = MAX_LINE_BYTES
    stream: int = MAX_STREAM_BYTES


class Named(NamedTuple):
    """An event whose name matters: ``event: error``."""

    event: str
    data: bytes


# The payload of an event; None is a sign of life (a comment line, ``event: ping``).
Item = bytes | Named | None


class Splitter(Protocol):
    """Cuts a body into items, however it is chunked."""

    def feed(self, chunk: bytes) -> list[Item]:
        """Items completed by this chunk."""
        ...

    def finish(self) -> list[Item]:
        """Items still open at a clean end of the body."""
        ...


def _too_long(what: str, cap: int) -> ProviderError:
    return ProviderError(
        ErrorKind.DECODE,
        f"The provider's {what} is longer than the cap of {cap:,} bytes; reading was stopped.",
    )


class _Buffer:
    """Counts bytes against the caps and turns CRLF and CR into LF, at any chunk border."""

    __slots__ = ("_after_cr", "_caps", "_total")

    def __init__(self, caps: StreamCaps | None) -> None:
        self._caps = caps or StreamCaps()
        self._total = 0
        self._after_cr = False

    def _count(self, chunk: bytes) -> None:
        self._total += len(chunk)
        if self._total > self._caps.stream:
            raise _too_long("stream", self._caps.stream)

    def _to_lf(self, chunk: bytes) -> bytes:
        if not chunk:
            return chunk
        if self._after_cr and chunk[:1] == b"\n":  # second half of a CRLF
            chunk = chunk[1:]
            if not chunk:
                self._after_cr = False
                return chunk
        self._after_cr = chunk[-1:] == b"\r"
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


_SPECIAL: Final = (b"error", b"ping")


class SseEvents(_Buffer):
    """Server-sent events.

    Fields with or without the space after the colon, several ``data`` lines joined by LF,
    comments and ``event: ping`` as None, a body that ends without the last blank line. Lenient
    where servers are sloppy: a bare line of JSON counts as data, ``error: {...}`` as an error
    event.

    Args:
        caps: Longest event and whole stream, in bytes.

    Example:
        >>> SseEvents().feed(b": hi\\n\\ndata: one\\n\\ndata:two\\n\\n")
        [None, b'one', b'two']
    """

    __slots__ = ("_first", "_pieces", "_size")

    def __init__(self, caps: StreamCaps | None = None) -> None:
        super().__init__(caps)
        self._pieces: list[bytes] = []
        self._size = 0
        self._first = True

    def feed(self, chunk: bytes) -> list[Item]:
        """Payloads of the events that this chunk completes.

        Raises:
            ProviderError: A cap was reached.
        """
        payload = self.single(chunk)
        if payload is not None:
            return [payload]
        self._count(chunk)
        if b"\r" in chunk or self._after_cr:
            chunk = self._to_lf(chunk)
        pieces = self._pieces
        if pieces:
            if b"\n\n" not in chunk and not (chunk[:1] == b"\n" and pieces[-1][-1:] == b"\n"):
                return self._keep(chunk)
            pieces.append(chunk)
            chunk = b"".join(pieces)
            pieces.clear()
            self._size = 0
        blocks = chunk.split(b"\n\n")
        tail = blocks.pop()
        out: list[Item] = []
        cap = self._caps.line
        for block in blocks:
            if len(block) > cap:
                raise _too_long("line", cap)
            if block[:6] == b"data: " and b"\n" not in block:
                out.append(block[6:])
            elif block:
                end = block.find(b"\n")  # the other common shape: one event and one data line
                if (
                    block[:7] == b"event: "
                    and block[end + 1 : end + 7] == b"data: "
                    and block.find(b"\n", end + 1) < 0
                    and block[7:end] not in _SPECIAL
                ):
                    out.append(block[end + 7 :])
                else:
                    self._block(block, out)
        if tail:
            out += self._keep(tail)
        return out

    def single(self, chunk: bytes) -> bytes | None:
        """The payload of a chunk that is exactly one ``data: ...`` event, the common case by far.

        Returns:
            None when it is anything else; then nothing was taken from it.
        """
        size = len(chunk)
        if (
            chunk[:6] != b"data: "
            or chunk.find(b"\n") != size - 2
            or chunk[-1] != 10
            or self._pieces
            or self._after_cr
            or b"\r" in chunk
            or size > self._caps.line
        ):
            return None
        self._total += size
        if self._total > self._caps.stream:
            raise _too_long("stream", self._caps.stream)
        return chunk[6:-2]

    def finish(self) -> list[Item]:
        """The event that the body ended in, if any."""
        out: list[Item] = []
        rest = b"".join(self._pieces)
        self._pieces.clear()
        if rest:
            self._block(rest, out)
        return out

    def _keep(self, chunk: bytes) -> list[Item]:
        """Hold back an unfinished event; comment lines at its front are given at once."""
        if not chunk:
            return []
        self._pieces.append(chunk)
        self._size += len(chunk)
        if self._size > self._caps.line + 1:  # + 1: the LF that may be half of the border
            raise _too_long("line", self._caps.line)
        if self._pieces[0][:1] != b":" or b"\n" not in chunk:
            return []
        out: list[Item] = []
        rest = b"".join(self._pieces)
        while rest[:1] == b":" and b"\n" in rest:
            out.append(None)
            rest = rest[rest.index(b"\n") + 1 :]
        self._pieces[:] = [rest] if rest else []
        self._size = len(rest)
        return out

    def _block(self, block: bytes, out: list[Item]) -> None:
        """One event of any shape; LF is the only line end left."""
        if self._first:
            self._first = False
            block = block.removeprefix(b"\xef\xbb\xbf")
        if block[:1] in (b"{", b"[") and (bare := _bare_documents(block)):
            out += bare
            return
        data: list[bytes] = []
        name = b""
        for line in block.split(b"\n"):
            first = line[:1]
            if first == b":":
                out.append(None)
                continue
            if first in (b"{", b"["):  # no field at all: a server that forgot "data:"
                data.append(line)
                continue
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if field == b"data":
                data.append(value)
            elif field == b"event":
                name = value
            elif field == b"error":
                name = b"error"
                data.append(value)
        payload = b"\n".join(data)
        if name == b"error":
            out.append(Named("error", payload))
        elif name == b"ping" or (data and not payload):
            out.append(None)
        elif data:
            out.append(payload)


def _bare_documents(block: bytes) -> list[bytes]:
    """Documents without ``data:``: one on several lines, or one a line; none where fields follow."""
    lines = [line for line in block.split(b"\n") if line.strip()]
    if all(line[:1] == b"{" for line in lines):
        return lines
    # a field begins with its name, a further line of JSON never does
    fields = (b"data", b"event", b"id:", b"retry", b"error", b":")
    return [] if any(line.startswith(fields) for line in lines) else [block]


class NdJson(_Buffer):
    """Newline-delimited JSON: one document a line; an empty line is a sign of life.

    Example:
        >>> NdJson().feed(b'{"a":1}\\r\\n{"a":2}\\n{"a"')
        [b'{"a":1}', b'{"a":2}']
    """

    __slots__ = ("_pieces", "_size")

    def __init__(self, caps: StreamCaps | None = None) -> None:
        super().__init__(caps)
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[Item]:
        """Documents that this chunk completes.

        Raises:
            ProviderError: A cap was reached.
        """
        self._count(chunk)
        if b"\r" in chunk or self._after_cr:
            chunk = self._to_lf(chunk)
        lines = chunk.split(b"\n")
        tail = lines.pop()
        if lines and self._pieces:
            self._pieces.append(lines[0])
            lines[0] = b"".join(self._pieces)
            self._pieces.clear()
            self._size = 0
        if tail:
            self._pieces.append(tail)
            self._size += len(tail)
        cap = self._caps.line
        if self._size > cap or any(len(line) > cap for line in lines):
            raise _too_long("line", cap)
        return [line or None for line in lines]

    def finish(self) -> list[Item]:
        """A last line without its end."""
        rest = b"".join(self._pieces)
        self._pieces.clear()
        return [rest] if rest else []


_OUTSIDE: Final = re.compile(rb'["{}\[\]]')
_INSIDE: Final = re.compile(rb'["\\]')
_OPEN: Final = frozenset(b"{[")


class JsonArray(_Buffer):
    """The elements of one JSON array (or one bare object), each as soon as it is whole.

    Example:
        >>> JsonArray().feed(b'[{"a":"]"},\\n{"b":1}')
        [b'{"a":"]"}', b'{"b":1}']
    """

    __slots__ = ("_depth", "_escaped", "_pieces", "_quoted", "_size")

    def __init__(self, caps: StreamCaps | None = None) -> None:
        super().__init__(caps)
        self._depth = 0  # of braces and brackets inside the element
        self._quoted = False
        self._escaped = False
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[Item]:
        """Elements that this chunk completes.

        Raises:
            ProviderError: A cap was reached.
        """
        self._count(chunk)
        out: list[Item] = []
        at = start = 0
        size = len(chunk)
        while at < size:
            if self._escaped:
                self._escaped = False
                at += 1
                continue
            found = (_INSIDE if self._quoted else _OUTSIDE).search(chunk, at)
            if found is None:
                break
            byte = chunk[found.start()]
            at = found.end()
            if byte == 0x22:  # a quote, inside or out
                self._quoted = not self._quoted
            elif byte == 0x5C:
                self._escaped = True
            elif byte in _OPEN:
                if self._depth == 0 and byte == 0x5B:
                    continue  # the array itself
                if self._depth == 0:
                    start = at - 1
                self._depth += 1
            elif self._depth:
                self._depth -= 1
                if self._depth == 0:
                    out.append(b"".join((*self._pieces, chunk[start:at])))
                    self._pieces.clear()
                    self._size = 0
        if self._depth:
            self._pieces.append(chunk[start:])
            self._size += size - start
            if self._size > self._caps.line:
                raise _too_long("line", self._caps.line)
        return out

    def finish(self) -> list[Item]:
        """An element that the body ended in."""
        rest = b"".join(self._pieces)
        self._pieces.clear()
        return [rest] if rest else []
