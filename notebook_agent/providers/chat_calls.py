"""Tool calls of OpenAI-compatible chat: the fragments of all dialects put together.

=========================================  ====================================================
no index, no id, both, or all index 0      a new id, or a name after whole arguments, starts a new
                                           call; a fragment goes to the open one
no arguments at all                        a name that differs, or comes twice in one chunk, starts
                                           a new call too
an id that comes late                      the open call keeps the id it was given
the whole call again, same id or index     once is enough
another id with each fragment              without a name, inside open arguments: the same call
arguments absent, null, an object          no fragment; the object as JSON
=========================================  ====================================================

Source: LLM turn, "Event routing, exactly" (L40, L41); cases S05-S08.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from notebook_agent.core import events as e
from notebook_agent.core.messages import ToolCallPart
from notebook_agent.providers.wire import MADE_ID, Lanes

__all__ = ["CallFragments", "SentCall", "SentFunction"]


class SentFunction(msgspec.Struct):
    """Name and arguments as they came."""

    name: str | None = None
    arguments: Any = None


class SentCall(msgspec.Struct):
    """One entry of ``tool_calls``."""

    index: int | None = None
    id: str | int | None = None
    function: SentFunction | None = None


class _OpenCall:
    """A tool call whose arguments still come."""

    __slots__ = ("id", "lane", "name", "raw", "sent_id")

    def __init__(self, sent_id: str) -> None:
        self.id = self.sent_id = sent_id  # ``id`` may be one that we made
        self.name = ""
        self.lane: int | None = None  # none until the name is known
        self.raw = ""

    def complete(self) -> bool:
        """Whether the arguments so far are a whole JSON document."""
        if not self.raw[-64:].rstrip().endswith(("}", "]")):
            return False  # asked for each fragment: most need no look at all of them
        try:
            json.loads(self.raw)
        except ValueError:
            return False
        return True


class CallFragments:
    """The calls of one reply.

    Args:
        lanes: The reply's lanes; each call opens one.
    """

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._calls: dict[object, _OpenCall] = {}
        self._of_index: dict[int, object] = {}  # the call that an index means now (S06)
        self._last: object = None
        self._made = 0
        self._named: set[object] = set()  # calls that the chunk at hand has named

    def __bool__(self) -> bool:
        return bool(self._calls)

    def take(
        self, sent: Sequence[SentCall | None], reply_id: str, out: list[e.StreamEvent]
    ) -> None:
        """The entries of one chunk.

        Args:
            sent: The entries, in order.
            reply_id: Of the reply, for ids that have to be made.
            out: Takes the events.
        """
        self._named.clear()
        for call in sent:
            if call is not None:
                self._one(call, reply_id, out)

    def _one(self, sent: SentCall, reply_id: str, out: list[e.StreamEvent]) -> None:
        function = sent.function or SentFunction()
        raw = function.arguments
        if raw is None:
            raw = ""
        elif not isinstance(raw, str):
            raw = msgspec.json.encode(raw).decode()
        sent_id = "" if sent.id is None else str(sent.id)
        key = self._key(sent.index, sent_id, function.name or "", raw)
        call = self._calls.get(key)
        if call is None:
            call = self._calls[key] = _OpenCall(sent_id)
        self._last = key
        if raw and function.name and raw == call.raw and call.complete():
            return  # the whole call once more
        call.sent_id = call.sent_id or sent_id
        call.id = call.id or sent_id
        if function.name:
            self._named.add(key)
        if call.lane is None and function.name:
            call.name = function.name
            if not call.id:
                # Ruling: S05-S08 do not say what an absent id becomes; results must pair with it.
                call.id = f"{MADE_ID}{reply_id}_{len(self._calls) - 1}"
            call.lane = self._lanes.open(call, ToolCallPart(call.id, call.name), out)
            raw = call.raw + raw
            call.raw = ""
        call.raw += raw
        if raw and call.lane is not None:
            out.append(e.IndexedDelta(call.lane, e.InputJson(raw)))

    def _key(self, index: int | None, sent_id: str, name: str, raw: str) -> object:
        """Which open call a fragment belongs to; a fresh key starts a new one."""
        if index is None:
            if sent_id:
                return ("id", sent_id)
            base = self._last
        else:
            base = self._of_index.get(index)
        call = self._calls.get(base)
        if call is not None:
            if sent_id and sent_id == call.sent_id:
                return base
            other_id = bool(sent_id) and bool(call.sent_id) and sent_id != call.sent_id
            if other_id and (back := [k for k, c in self._calls.items() if c.sent_id == sent_id]):
                return back[0]  # fragments of two calls in turn, all under one index
            if not (self._inside(call, name, raw) if other_id else self._another(base, call, name)):
                return base
        self._made += 1
        fresh = ("index", index, self._made)
        if index is not None:
            self._of_index[index] = fresh
        return fresh

    def _another(self, key: object, call: _OpenCall, name: str) -> bool:
        """Whether a name, with no id that tells, starts another call."""
        if not name or call.lane is None:
            return False
        if call.raw.strip():
            return call.complete()
        return name != call.name or key in self._named

    @staticmethod
    def _inside(call: _OpenCall, name: str, raw: str) -> bool:
        """Whether another id starts another call: not as a bare piece of open arguments."""
        return bool(name) or not raw or call.lane is None or call.complete()
