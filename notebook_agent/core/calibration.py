"""Calibration: what a provider reported of the last request corrects the next estimate.

The reported tokens of the request that was served last are known; only what was added since has
to be estimated. That tail takes back what the estimate of the old part reserved too much, and
raises it where the provider counts more. It stays an estimate, and never falls below what the
safe bound promises: whatever is reported and cannot be so is not believed.

Source: LLM turn, "Counting the context" (L17, L18, L20).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

__all__ = ["Anchor", "anchored_estimate", "believable"]

# Safe estimates are below three times the truth on any text that was measured. A count further
# down leaves something out, as services do that do not report what their cache held.
LEAST_SHARE: Final = 4
# A hidden prompt of the service may be larger than a short request.
HIDDEN_TOKENS: Final = 32_768


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """One request whose size a provider reported.

    Attributes:
        reported: Tokens the model read, cached ones too.
        estimate: Our safe estimate of the same request, uncalibrated, in tokens.
        transients: Estimated tokens of the messages in it that were for that turn only.
        model: Full name of the model that read it.
        last: Id of its last message.
        setup: What stood around the messages: counter, system prompt, tools. None = whatever
            stands around the next request.
        view: The conversation it was made from; a rewritten conversation is another one.
    """

    reported: int
    estimate: int
    transients: int = 0
    model: str = ""
    last: str = ""
    setup: Any = None
    view: Any = None


def believable(
    reported: object, estimate: int, window: int | None = None, before: Anchor | None = None
) -> bool:
    """Whether a reported size may be one of the request that was estimated.

    Args:
        reported: As the provider told it.
        estimate: Safe estimate of the request, tokens.
        window: Tokens the model can read, where known: it cannot have read more.
        before: Anchor of an earlier request that this one only added to; it cannot have shrunk
            by more than its transients.
    """
    if not isinstance(reported, int) or isinstance(reported, bool) or reported <= 0:
        return False
    if reported * LEAST_SHARE < estimate:
        return False
    if reported > (window or LEAST_SHARE * estimate + HIDDEN_TOKENS):
        return False
    return before is None or reported >= before.reported - before.transients


def anchored_estimate(anchor: Anchor, safe: int, added: int) -> int:
    """Tokens of the next request: reported then, plus the safe estimate of what came since.

    Args:
        anchor: The request before.
        safe: Safe estimate of the whole next request, tokens.
        added: Safe estimate of messages that the anchor's request did not hold, and of this
            turn's transients: the old ones may be gone, the new ones are counted whole.

    Returns:
        Tokens. Never above ``safe`` when the provider counted no more than we did, never below
        it when the provider counted more; never below ``reported + added`` unless ``safe`` is.
    """
    tail = anchor.reported + max(added, 0)
    return max(tail, safe) if anchor.reported > anchor.estimate else min(tail, safe)
