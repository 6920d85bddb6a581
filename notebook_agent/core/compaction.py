"""When to compact, how far, and whether it helped. Pure: every rule is a number or a table.

Source: LLM turn, "Counting the context", "The turn's paper trail" (L87, L97, L99, L100, L102);
Turn FSM, "BuildingContext" (B29, B30, B34, B35).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from notebook_agent.errors import ConfigError

__all__ = [
    "STRATEGIES",
    "CompactionPolicy",
    "Crossed",
    "classify",
    "emergency_line",
    "keep_budget",
    "target_tokens",
    "threshold_line",
    "trigger",
]

Crossed = Literal["threshold", "emergency"]
STRATEGIES: Final = ("extractive", "truncate", "model")
_BASES: Final = ("threshold", "window")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPolicy:
    """How a conversation that outgrows its window is made smaller.

    =================  ==========  ======================================================
    field              default     meaning
    =================  ==========  ======================================================
    window             200,000     tokens of the window when the model's own is not known;
                                   set lower it caps the model's; 0 = never compact
    threshold          80          percent of the window; above it a pass runs; 0 = off
    emergency          95          percent; at or above it a pass runs even with auto off
    auto               True        False: only the emergency line and ``compact now``
    strategy           extractive  extractive (no model), truncate, or model
    target             70          percent of the base that a pass aims for
    target_base        threshold   threshold (line) or window
    keep_turns         2           last turns kept whole (extractive, model)
    keep_tokens        8,000       tokens that these may have
    summary_tokens     4,000       tokens that a summary may have
    preserve_recent    4           truncate: last messages kept
    min_messages       6           truncate: with so few nothing is left out
    summary_model      None        model: full name of the summariser; None = the model
                                   that serves
    message_chars      2,000       model: characters of each text that it is shown
    argument_chars     500         model: characters of a call's arguments that it is shown
    piece_tokens       50,000      model: tokens of one piece of the fold
    max_pieces         8           model: calls of one pass at most
    max_failures       3           failures in a row that pause automatic passes
    prune              False       blank old tool outputs before anything is summarised
    prune_protect      40,000      tokens of the newest tool outputs that are left alone
    prune_minimum      20,000      tokens that pruning must free, else it does nothing
    keep_tools         ()          tools whose outputs are never blanked
    =================  ==========  ======================================================

    Raises:
        ConfigError: A value outside its legal range.
    """

    window: int = 200_000
    threshold: int = 80
    emergency: int = 95
    auto: bool = True
    strategy: str = "extractive"
    target: int = 70
    target_base: str = "threshold"
    keep_turns: int = 2
    keep_tokens: int = 8_000
    summary_tokens: int = 4_000
    preserve_recent: int = 4
    min_messages: int = 6
    summary_model: str | None = None
    message_chars: int = 2_000
    argument_chars: int = 500
    piece_tokens: int = 50_000
    max_pieces: int = 8
    max_failures: int = 3
    prune: bool = False
    prune_protect: int = 40_000
    prune_minimum: int = 20_000
    keep_tools: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, (least, most) in _LEGAL.items():
            value = getattr(self, name)
            ok = isinstance(value, int) and not isinstance(value, bool) and value >= least
            if not ok or (most is not None and value > most):
                upto = "" if most is None else f" and at most {most:,}"
                legal = f"a whole number of at least {least:,}{upto}"
                raise ConfigError(field=name, value=value, legal=legal)
        for name in ("auto", "prune"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(field=name, value=getattr(self, name), legal="True or False")
        if self.strategy not in STRATEGIES:
            raise ConfigError(
                field="strategy", value=self.strategy, legal=f"one of {', '.join(STRATEGIES)}"
            )
        if self.target_base not in _BASES:
            raise ConfigError(
                field="target_base", value=self.target_base, legal=f"one of {', '.join(_BASES)}"
            )
        if self.threshold > self.emergency:
            raise ConfigError(
                field="threshold",
                value=self.threshold,
                legal=f"at most emergency ({self.emergency})",
            )
        model = self.summary_model
        if model is not None and (not isinstance(model, str) or not model.strip()):
            raise ConfigError(field="summary_model", value=model, legal="provider:name, or None")
        names: object = self.keep_tools
        if not isinstance(names, (tuple, list)) or not all(isinstance(t, str) for t in names):
            raise ConfigError(field="keep_tools", value=names, legal="a tuple of names")
        object.__setattr__(self, "keep_tools", tuple(self.keep_tools))


# field -> (least, most); most None = no upper end
_LEGAL: Final[Mapping[str, tuple[int, int | None]]] = {
    "window": (0, None),
    "threshold": (0, 100),
    "emergency": (1, 100),
    "target": (1, 100),
    "keep_turns": (1, None),
    "keep_tokens": (0, None),
    "summary_tokens": (64, None),
    "preserve_recent": (1, None),
    "min_messages": (2, None),
    "message_chars": (80, None),
    "argument_chars": (20, None),
    "piece_tokens": (500, None),
    "max_pieces": (1, None),
    "max_failures": (1, None),
    "prune_protect": (0, None),
    "prune_minimum": (1, None),
}


def threshold_line(policy: CompactionPolicy, window: int | None = None) -> int:
    """Tokens above which a pass runs; 0 = this line is off."""
    return _window(policy, window) * policy.threshold // 100


def emergency_line(policy: CompactionPolicy, window: int | None = None) -> int:
    """Tokens from which a pass runs whatever else is set; 0 = this line is off."""
    return _window(policy, window) * policy.emergency // 100


def trigger(policy: CompactionPolicy, estimate: int, window: int | None = None) -> Crossed | None:
    """Which line a context crosses (L97).

    Args:
        policy: Threshold, emergency, auto.
        estimate: Tokens the next request would have, all of it (L17).
        window: Tokens of the model that will serve; None takes the policy's.

    Returns:
        "emergency" at or above its line, even with auto off; "threshold" strictly above its
        line; None below, and for a window of 0.

    Example:
        >>> [trigger(CompactionPolicy(), n, 8_000) for n in (6_400, 6_401, 7_599, 7_600)]
        [None, 'threshold', 'threshold', 'emergency']
    """
    size = _window(policy, window)
    if size <= 0:
        return None
    if estimate >= emergency_line(policy, size):
        return "emergency"
    if policy.auto and policy.threshold > 0 and estimate > threshold_line(policy, size):
        return "threshold"
    return None


def target_tokens(policy: CompactionPolicy, window: int | None = None) -> int:
    """Tokens a pass aims for, the whole request counted (L100).

    Example:
        >>> target_tokens(CompactionPolicy())
        112000
    """
    size = _window(policy, window)
    base = size
    if policy.target_base == "threshold" and policy.threshold > 0:
        base = threshold_line(policy, size)
    return base * policy.target // 100


def keep_budget(
    policy: CompactionPolicy, *, window: int | None, reserved: int, reason: str, passes: int = 0
) -> int:
    """Tokens that the kept tail may have (B30).

    Args:
        reserved: Tokens of system prompt, tools and transients: no pass can make them fewer.
        reason: "provider" = the provider said too long; its window may be smaller than we
            think.
        passes: Passes this turn has already seen; a second one keeps half as much.
    """
    size = _window(policy, window)
    keep = policy.keep_tokens
    if reason == "provider":
        keep = min(keep, max(1_024, size // 2))
    if size > 0:
        # half of what the target leaves: the other half is the summary's and the next turns'
        keep = min(keep, max(target_tokens(policy, size) - reserved, 0) // 2)
    return keep >> min(passes, 8)


def classify(before: int, after: int) -> Literal["applied", "no_gain"]:
    """Whether a pass helped: by the one counter, not by the strategy's claim (L99).

    Args:
        before, after: Tokens of the full request, measured the same way (P07).
    """
    return "applied" if after < before else "no_gain"


def _window(policy: CompactionPolicy, window: int | None) -> int:
    return policy.window if window is None else window
