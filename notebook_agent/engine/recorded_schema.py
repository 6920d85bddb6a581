"""The schema of a recorded run: the class is gone, what was asked because of it is in the log.

Source: Turn FSM, "Persisting" (B59); notebook, option ``--schema``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from notebook_agent.core.messages import Message, Role
from notebook_agent.core.shorten import is_cut
from notebook_agent.engine.runtime.steps import CONTINUE_TEXT
from notebook_agent.engine.store.base import MessageRecord
from notebook_agent.engine.structured import OutputSchema
from notebook_agent.errors import StructuredOutputError

__all__ = ["recorded_schema"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _RecordedSchema(OutputSchema):
    """Judges replies as they were judged then; ``asks`` are the messages that sent them back."""

    asks: deque[str] = field(default_factory=deque, compare=False)

    def read(self, text: str, *, reason: str = "") -> Any:
        """The JSON value; an error for each reply that was sent back."""
        if self.asks:
            raise StructuredOutputError(self.name, ["$: as recorded"], raw=text, reason=reason)
        try:
            return OutputSchema.read(self, text, reason=reason)
        except StructuredOutputError:
            return None  # the class took it, or it was taken as it was

    def final_request(self) -> Message:
        """As recorded."""
        return Message.user(self.asks.popleft())

    def repair_request(self, error: StructuredOutputError) -> Message:  # noqa: ARG002  # the interface
        """As recorded."""
        return Message.user(self.asks.popleft())


def recorded_schema(
    data: Mapping[str, Any] | None, messages: Iterable[MessageRecord]
) -> OutputSchema | None:
    """The schema that a run was asked with, None when there was none.

    Args:
        data: ``schema`` of the run's record.
        messages: The run's log entries.
    """
    known = OutputSchema.from_json(data)
    if known is None or data is None:
        return None
    said = [m.message.text_content() for m in messages if m.message is not None and _asks(m)]
    return _RecordedSchema(**data, asks=deque(said[1:]))


def _asks(entry: MessageRecord) -> bool:
    """Whether it is the question, or asks again because of the schema: not a summary, not a
    copy that compaction shortened, and not what asks for the rest of a reply (B46)."""
    message = entry.message
    if entry.kind != "message" or message is None or message.role is not Role.USER:
        return False
    text = message.text_content()
    return not message.results and text != CONTINUE_TEXT and not is_cut(text)
