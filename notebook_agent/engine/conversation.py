"""The conversation in memory, with running totals: what a turn costs does not grow with its age.

Tokens and digest are kept as sums over the messages, so that the next request's estimate adds
only what is new (L17, B58).

Source: LLM turn, "Counting the context" (L17-L21); Turn FSM, "Persisting" (B25, B58).
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace

from notebook_agent.core.context import TokenCounter, sum_tokens
from notebook_agent.core.messages import Message
from notebook_agent.core.request import ToolSchema
from notebook_agent.core.sendable import sendable

__all__ = ["Conversation", "Overhead", "message_digest", "without_state"]


def message_digest(message: Message) -> bytes:
    """32 bytes that stand for the message: id, role, parts, provider state. Kept beside it."""
    found = message.memo.get("digest")
    if found is None:
        text = json.dumps(message.to_json(), ensure_ascii=True, sort_keys=True, default=repr)
        found = message.memo["digest"] = hashlib.sha256(text.encode()).digest()
    return bytes(found)


def without_state(message: Message) -> Message:
    """The message without its adapter's opaque state, which only an open exchange needs (L2)."""
    return message if message.provider_state is None else replace(message, provider_state=None)


class Conversation:
    """Committed messages: the working view that the next request is built from (L95, B25).

    Args:
        messages: The list to hold; the caller's list itself, which may be a Session's history.
        upto: Watermark: entries of the append-only log the view rests on.
    """

    def __init__(self, messages: list[Message] | None = None, *, upto: int = 0) -> None:
        self.messages: list[Message] = [] if messages is None else messages
        self.upto = upto
        self.view = object()  # another one after every rewrite: what was known of the old is void
        self._lock = threading.Lock()  # a status line reads on another thread than the run's
        self._seen = 0
        self._last: Message | None = None
        self._tokens = ("", 0, 0)  # by which counter, of how many messages, how many
        self._hash = hashlib.sha256()
        self._hashed = 0

    def append(self, messages: Iterable[Message]) -> None:
        """Take over a completed run's messages: those a request may carry, without state."""
        kept = [without_state(m) for m in map(sendable, messages) if m is not None]
        with self._lock:
            self._check()
            self.messages.extend(kept)

    def replace(self, messages: Sequence[Message]) -> None:
        """Another view of the same log: after a compaction, an undo, a reset, a load."""
        with self._lock:
            self.messages[:] = messages
            self._restart()

    def close_exchange(self) -> None:
        """The run is over: no message needs its adapter's state any more (L2)."""
        if any(m.provider_state is not None for m in self.messages):
            view = self.view
            self.replace([without_state(m) for m in self.messages])
            self.view = view  # the same messages, and less to send

    def tokens(self, counter: TokenCounter) -> int:
        """Tokens of all messages by this counter; only new messages are counted."""
        with self._lock:
            self._check()
            name, counted, total = self._tokens
            if name != counter.name:  # another counter than before: once over everything
                counted = total = 0
            if counted < len(self.messages):
                total += sum_tokens(counter, self.messages[counted:])
            self._tokens = (counter.name, len(self.messages), total)
            self._mark()
            return total

    def digest(self, more: Iterable[Message] = ()) -> str:
        """Hex digest of the messages followed by ``more``."""
        with self._lock:
            self._check()
            for message in self.messages[self._hashed :]:
                self._hash.update(message_digest(message))
            self._hashed = len(self.messages)
            self._mark()
            whole = self._hash.copy()
        for message in more:
            whole.update(message_digest(message))
        return whole.hexdigest()

    def _mark(self) -> None:
        self._seen = len(self.messages)
        self._last = self.messages[-1] if self.messages else None

    def _check(self) -> None:
        """A list that its owner changed below our mark is read anew."""
        n = self._seen
        if n and (len(self.messages) < n or self.messages[n - 1] is not self._last):
            self._restart()

    def _restart(self) -> None:
        self.view = object()
        self._seen = 0
        self._last = None
        self._tokens = ("", 0, 0)
        self._hash = hashlib.sha256()
        self._hashed = 0


class Overhead:
    """System prompt + tool schemas, measured once per pair of them (Ruling: L21)."""

    def __init__(self) -> None:
        self._known: tuple[object, tuple[int, int]] | None = None

    def parts(
        self, counter: TokenCounter, system: str | None, tools: Sequence[ToolSchema]
    ) -> tuple[int, int]:
        """Tokens of the system prompt and of the schemas.

        Tools are counted whether or not this request sends them (L18).
        """
        key = (counter, system or None, tuple(tools))  # two of one name may differ in overhead
        known = self._known
        if known is None or known[0] != key:
            whole = counter.count_overhead(system or None, key[2] or None)
            alone = counter.count_overhead(system or None, None)
            known = self._known = (key, (alone, max(whole - alone, 0)))
        return known[1]
