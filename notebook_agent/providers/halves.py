"""Characters whose two halves came in two fragments.

Source: LLM turn, "Event routing, exactly" (L36-L41); notebook D9.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from notebook_agent.core import events as e
from notebook_agent.core.messages import ToolCallPart
from notebook_agent.core.text import clean_json, clean_text

__all__ = ["Halves"]


class Halves:
    """Puts together characters whose two halves came in two fragments, and cleans the rest (D9).

    Some services cut their text between the escapes of a surrogate pair. A half that stays alone,
    and NUL, become U+FFFD. Asked only once a document needed lenient decoding.
    """

    __slots__ = ("_high",)

    def __init__(self) -> None:
        # lane -> what makes its deltas, the first half that waits
        self._high: dict[int, tuple[Callable[[str], e.Delta], str]] = {}

    def cleaned(self, events: list[e.StreamEvent]) -> list[e.StreamEvent]:
        """The events with whole characters only."""
        out: list[e.StreamEvent] = []
        for event in events:
            if isinstance(event, e.IndexedDelta):
                self._delta(event, out)
                continue
            if isinstance(event, e.PartStop) and event.index in self._high:
                kind, _ = self._high.pop(event.index)
                out.append(e.IndexedDelta(event.index, kind("\ufffd")))
            elif isinstance(event, e.MessageStart):
                event = replace(event, id=clean_text(event.id), model=clean_text(event.model))
            elif isinstance(event, e.MessageDelta) and event.ending_raw is not None:
                event = replace(event, ending_raw=clean_text(event.ending_raw))
            elif isinstance(event, e.PartStart) and isinstance(event.part, ToolCallPart):
                part = event.part
                name, call_id = clean_text(part.name), clean_text(part.id)
                given = clean_json(part.input)
                part = replace(part, name=name, id=call_id, input=given)
                event = e.PartStart(event.index, part)
            out.append(event)
        return out

    def _delta(self, event: e.IndexedDelta, out: list[e.StreamEvent]) -> None:
        delta, index = event.delta, event.index
        if isinstance(delta, (e.Text, e.Thinking)):
            text = delta.text
        elif isinstance(delta, e.InputJson):
            text = delta.partial_json
        else:
            if isinstance(delta, e.ProviderState):
                event = e.IndexedDelta(index, e.ProviderState(clean_json(dict(delta.data))))
            out.append(event)
            return
        _, half = self._high.pop(index, (None, ""))
        text = half + text
        if "\ud800" <= text[-1:] <= "\udbff":
            refusal = isinstance(delta, e.Text) and delta.refusal
            kind = _refusal if refusal else type(delta)
            self._high[index] = (kind, text[-1])
            text = text[:-1]
            if not text:
                return
        text = clean_text(text)
        made = (
            replace(delta, partial_json=text)
            if isinstance(delta, e.InputJson)
            else replace(delta, text=text)
        )
        out.append(e.IndexedDelta(index, made))


def _refusal(text: str) -> e.Text:
    return e.Text(text, True)
