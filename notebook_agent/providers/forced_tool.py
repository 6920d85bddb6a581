"""A forced tool as a format: the model must call one tool, and its arguments are the reply.

``response_format = {"type": "tool", "name": ..., "schema": {...}}`` is for models that have no
JSON schema format but call tools. The adapter sends that one tool and demands it; here the call
that comes back is turned into plain text again, so that nothing behind the adapter sees a call
that nobody may run.

Source: LLM turn, "Building the request" (L7, L18); provider formats, structured output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from notebook_agent.core import events as e
from notebook_agent.core.accumulator import parse_arguments
from notebook_agent.core.messages import TextPart, ToolCallPart
from notebook_agent.core.request import RequestOptions, ToolSchema
from notebook_agent.core.response import Ending
from notebook_agent.core.verdict import OVERRULED_BY_CUT

__all__ = ["TOOL_FORMAT", "ToolAsText", "forced_tool", "turner"]

TOOL_FORMAT = "tool"
# the index of the reply's one text lane; lanes of calls keep their own
_LANE = 0
_CALL_WORDS = frozenset({"tool_use", "tool_calls", "tool_call", "function_call"})


def forced_tool(options: RequestOptions) -> ToolSchema | None:
    """The tool that the options force, None when they force none."""
    wanted = options.response_format
    if wanted is None or wanted.get("type") != TOOL_FORMAT:
        return None
    return ToolSchema(
        str(wanted["name"]),
        str(wanted.get("description") or "Give the answer in this form."),
        wanted["schema"],
    )


def turner(options: RequestOptions) -> ToolAsText | None:
    """What turns the call of a forced tool into text, None when none is forced."""
    forced = forced_tool(options)
    return None if forced is None else ToolAsText(forced.name)


class ToolAsText:
    """Turns the events of a reply that calls the forced tool into those of a text reply.

    Text beside the call is no part of the answer and is left out; a reply without the call
    keeps its text, so that what the model said instead is not lost. A second call of the tool
    is left out: there is one answer. Arguments that were cut end it as MAX_TOKENS (L41).
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._call: int | None = None
        self._open: int | None = None
        self._said: list[e.StreamEvent] = []
        self._raw: list[str] = []  # the arguments so far
        self._ending: Ending | None = None

    def wrap(
        self, feed: Callable[[bytes], Iterable[e.StreamEvent]]
    ) -> Callable[[bytes], list[e.StreamEvent]]:
        """A decoder's ``feed``, with its events turned."""
        return lambda chunk: self.turned(feed(chunk))

    def turned(self, events: Iterable[e.StreamEvent]) -> list[e.StreamEvent]:
        """The events of the text reply."""
        out: list[e.StreamEvent] = []
        for event in events:
            self._one(event, out)
        return out

    def _one(self, event: e.StreamEvent, out: list[e.StreamEvent]) -> None:
        if isinstance(event, e.PartStart):
            self._start(event, out)
        elif isinstance(event, e.IndexedDelta):
            self._delta(event, out)
        elif isinstance(event, e.PartStop):
            self._stop(event, out)
        elif isinstance(event, e.MessageDelta):
            self._flush(out)
            event = self._ended(event)
            self._ending = event.ending or self._ending
            out.append(event)
        elif isinstance(event, e.MessageStop):
            self._flush(out)
            if self._cut():
                word = Ending.MAX_TOKENS.value
                out.append(e.MessageDelta(word, None, Ending.MAX_TOKENS))
            out.append(event)
        else:
            out.append(event)

    def _start(self, event: e.PartStart, out: list[e.StreamEvent]) -> None:
        part = event.part
        if isinstance(part, ToolCallPart) and part.name == self._name:
            if self._call is None:
                self._call = self._open = event.index
                self._said.clear()
                out.append(e.PartStart(_LANE, TextPart("")))
        elif isinstance(part, TextPart):
            self._said.append(event)
        else:
            out.append(event)

    def _delta(self, event: e.IndexedDelta, out: list[e.StreamEvent]) -> None:
        delta = event.delta
        if isinstance(delta, (e.InputJson, e.ToolCall)):
            if event.index == self._open:
                self._raw.append(delta.partial_json)
                out.append(e.IndexedDelta(_LANE, e.Text(delta.partial_json)))
            elif self._call is None:
                out.append(event)
        elif isinstance(delta, e.Text):
            if self._call is None:
                self._said.append(event)
        else:
            out.append(event)

    def _stop(self, event: e.PartStop, out: list[e.StreamEvent]) -> None:
        if self._open is not None and event.index in (None, self._open):
            self._open = None
            if not "".join(self._raw).strip():  # no arguments are {} (S08)
                out.append(e.IndexedDelta(_LANE, e.Text("{}")))
            out.append(e.PartStop(_LANE))
        elif self._said and self._call is None:
            self._said.append(event)
        elif self._call is None:
            out.append(event)

    def _flush(self, out: list[e.StreamEvent]) -> None:
        """The text of a reply that never called the tool."""
        if self._call is None:
            out += self._said
        self._said.clear()

    def _cut(self) -> bool:
        """Whether the output limit cut the arguments, whatever word the provider has (S09)."""
        if self._call is None or self._ending not in OVERRULED_BY_CUT:
            return False
        return not parse_arguments("".join(self._raw))[0]

    def _ended(self, event: e.MessageDelta) -> e.MessageDelta:
        if self._call is None:
            return event
        word = "end_turn" if event.stop_reason in _CALL_WORDS else event.stop_reason
        ending = Ending.END_TURN if event.ending is Ending.TOOL_CALL else event.ending
        return replace(event, stop_reason=word, ending=ending)
