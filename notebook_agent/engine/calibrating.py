"""The anchor of a session: kept, dropped, and looked for in the conversation.

Source: LLM turn, "Counting the context" (L17, L18, L20); Turn FSM (B65).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from notebook_agent.core.calibration import Anchor, anchored_estimate, believable
from notebook_agent.core.context import ContextEstimate, TokenCounter, sum_tokens
from notebook_agent.core.messages import Message
from notebook_agent.engine.conversation import Conversation

__all__ = ["Calibration", "setup_of"]


def setup_of(counter: TokenCounter, system: str | None, tools: Sequence[Any]) -> object:
    """What an anchor holds for: the same counter, system prompt and tools."""
    return (counter.name, system or None, tuple(tools))


class Calibration:
    """What a session knows of the provider's own counts.

    Args:
        on: False = estimates are left as they are.
    """

    def __init__(self, on: bool = True) -> None:
        self.on = on
        self.anchor: Anchor | None = None
        # A model whose counts shrank while the conversation grew leaves its cache out: what it
        # reports is not believed again in this session.
        self.distrusted: set[str] = set()

    def note(
        self,
        reported: object,
        estimate: ContextEstimate,
        sent: Sequence[Message],
        *,
        model: str,
        setup: object,
        base: Conversation,
        window: int | None = None,
    ) -> None:
        """A request was served and its size told.

        Args:
            reported: Tokens as told, None when nothing was.
            estimate: Ours of the same request.
            sent: Its conversation, without transients.
            model: Who served it.
            setup: As :func:`setup_of`.
            base: The conversation it was built from.
            window: Tokens the model can read.
        """
        if not self.on or estimate.exact or reported is None:
            return
        found = self.anchor
        same = found is not None and found.model == model and found.view is base.view
        before = found if same and found is not None and found.setup in (None, setup) else None
        safe = estimate.total - estimate.calibration
        self.anchor = None
        if before is not None and not believable(reported, safe, window, before):
            self.distrusted.add(model)
        last = sent[-1].id if sent else ""
        if not last or model in self.distrusted or not believable(reported, safe, window):
            return
        assert isinstance(reported, int)
        self.anchor = Anchor(
            reported=reported,
            estimate=safe,
            transients=estimate.transients,
            model=model,
            last=last,
            setup=setup,
            view=base.view,
        )

    def applied(
        self,
        estimate: ContextEstimate,
        counter: TokenCounter,
        base: Conversation,
        pending: Sequence[Message],
        *,
        model: str,
        setup: object,
    ) -> ContextEstimate:
        """The estimate as the anchor corrects it; the same one when no anchor holds.

        The correction stands in ``history``, and as ``calibration``.
        """
        found = self._holds(base, model, setup)
        if found is None or estimate.exact:
            return estimate
        if found.view is None:  # of a record: the conversation of the first build is its own
            self.anchor = replace(found, view=base.view)
        added = _since(found.last, counter, base, pending)
        if added is None:
            return estimate
        total = anchored_estimate(found, estimate.total, added + estimate.transients)
        # System prompt and tools may be over-estimated by more than the whole is.
        rest = max(total - estimate.overhead - estimate.transients, 0)
        return replace(estimate, history=rest, calibration=rest - estimate.history)

    def _holds(self, base: Conversation, model: str, setup: object) -> Anchor | None:
        found = self.anchor
        if not self.on or found is None or found.model != model:
            return None
        if found.view not in (None, base.view):
            return None
        return found if found.setup is None or found.setup == setup else None

    def to_json(self, base: Conversation, setup: object) -> dict[str, Any] | None:
        """The anchor for the record, so that a run driven again sees what it saw.

        ``after`` = messages of the conversation that came after the anchor's last.
        """
        found = self.anchor
        if found is None or self._holds(base, found.model, setup) is None:
            return None
        for after, message in enumerate(reversed(base.messages)):
            if message.id == found.last:
                return {
                    "reported": found.reported,
                    "estimate": found.estimate,
                    "transients": found.transients,
                    "model": found.model,
                    "after": after,
                }
        return None

    def restore(self, kept: Mapping[str, Any], base: Conversation) -> None:
        """Take over the anchor of a record; it holds for whatever setup the run has."""
        after = int(kept["after"])
        if after < len(base.messages):
            self.anchor = Anchor(
                reported=int(kept["reported"]),
                estimate=int(kept["estimate"]),
                transients=int(kept["transients"]),
                model=str(kept["model"]),
                last=base.messages[-1 - after].id,
            )


def _since(
    last: str, counter: TokenCounter, base: Conversation, pending: Sequence[Message]
) -> int | None:
    """Tokens of the messages after ``last``; None when it is not there. Costs what is new."""
    total = 0
    for message in chain(reversed(pending), reversed(base.messages)):
        if message.id == last:
            return total
        total += sum_tokens(counter, (message,))
    return None
