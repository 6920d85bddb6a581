"""Where a conversation may be cut: calls and results stay together, the newest question stays.

Source: LLM turn, "The turn's paper trail" (L104); Turn FSM, "BuildingContext" (B24, B30).
Case P01.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from notebook_agent.core.log_view import paired
from notebook_agent.core.messages import Message, Role, ToolCallPart, ToolResultPart
from notebook_agent.core.trim import is_summary

__all__ = [
    "Kept",
    "asks",
    "keep_tail",
    "left_open",
    "newest_ask",
    "pairs_of",
    "pull_together",
    "safe_cut",
    "truncate",
]

Count = Callable[[Message], int]


@dataclass(frozen=True, slots=True)
class Kept:
    """A split: ``kept`` are places that stay as they are, ``head`` those to be summarised.

    ``summaries`` are places of earlier summaries: they are updated, not summarised again.
    """

    kept: tuple[int, ...]
    head: tuple[int, ...]
    summaries: tuple[int, ...] = ()


def asks(message: Message) -> bool:
    """Whether a turn starts here: a user's message that is no tool result and no summary."""
    return _from_user(message) and not is_summary(message)


def _from_user(message: Message) -> bool:
    if message.role is not Role.USER or not message.parts:
        return False
    return not any(isinstance(part, ToolResultPart) for part in message.parts)


def newest_ask(messages: Sequence[Message]) -> int | None:
    """Place of the newest user message: it stays verbatim whatever happens."""
    for at in range(len(messages) - 1, -1, -1):
        if asks(messages[at]):
            return at
    return None


def pairs_of(messages: Sequence[Message]) -> list[tuple[int, int]]:
    """Places of each call and its result.

    Ids may be used again: a result belongs to the latest call of its id before it that has
    none yet (L104).
    """
    open_calls: dict[str, list[int]] = {}
    pairs: list[tuple[int, int]] = []
    for at, message in enumerate(messages):
        for part in message.parts:
            if isinstance(part, ToolCallPart):
                open_calls.setdefault(part.id, []).append(at)
            elif isinstance(part, ToolResultPart) and open_calls.get(part.call_id):
                pairs.append((open_calls[part.call_id].pop(), at))
    return pairs


def left_open(messages: Sequence[Message]) -> list[str]:
    """What is not legal in a list: results without a call, calls without a result.

    Returns:
        One line per fault, empty for a list that every provider takes.
    """
    open_calls: dict[str, int] = {}
    faults: list[str] = []
    for at, message in enumerate(messages):
        for part in message.parts:
            if isinstance(part, ToolCallPart):
                open_calls[part.id] = open_calls.get(part.id, 0) + 1
            elif isinstance(part, ToolResultPart):
                if not open_calls.get(part.call_id):
                    faults.append(f"message {at}: result {part.call_id!r} without a call")
                else:
                    open_calls[part.call_id] -= 1
    faults += [f"call {key!r} without a result" for key, n in open_calls.items() if n > 0]
    return faults


def safe_cut(
    messages: Sequence[Message], at: int, pairs: Sequence[tuple[int, int]] | None = None
) -> int:
    """The latest border at or before ``at`` where no call is open (P01).

    Args:
        at: The wanted border: messages before it go, it and those after stay.
        pairs: ``pairs_of(messages)`` when it is known already.

    Returns:
        A border from 0 to ``at``; the move is repeated until no pair is parted.
    """
    at = max(0, min(at, len(messages)))
    found = pairs_of(messages) if pairs is None else pairs
    earliest = list(range(len(messages) + 1))  # earliest call whose result is here or later
    for call, result in found:
        earliest[result] = min(earliest[result], call)
    for place in range(len(messages) - 1, -1, -1):
        earliest[place] = min(earliest[place], earliest[place + 1])
    while earliest[at] < at:
        at = earliest[at]
    return at


def keep_tail(
    messages: Sequence[Message], *, keep_turns: int, keep_tokens: int, count: Count
) -> Kept:
    """Split off what a summary will stand for (B30).

    Ruling: B30. The tail is the last ``keep_turns`` turns that fit ``keep_tokens`` together.
    When not even the newest turn fits, its question stays and as many of its last exchanges
    as fit, at least one: a long run of tool calls is one turn. System messages stay (B24).

    Args:
        count: Tokens of one message.

    Returns:
        All places, each in exactly one of the three.
    """
    n = len(messages)
    pairs = pairs_of(messages)
    earlier = {at for at, message in enumerate(messages) if is_summary(message)}
    starts = [at for at, m in enumerate(messages) if at not in earlier and _from_user(m)]
    behind = [0] * (n + 1)  # tokens from here to the end
    for at in range(n - 1, -1, -1):
        behind[at] = behind[at + 1] + count(messages[at])
    start = n
    for at in starts[: -keep_turns - 1 : -1]:
        if behind[at] > keep_tokens:
            break
        start = at
    newest = starts[-1] if starts else None
    if start == n and n:
        start = _inside(messages, newest, behind, keep_tokens, pairs)
    start = safe_cut(messages, start, pairs)
    kept = set(range(start, n))
    if newest is not None:
        kept.add(newest)
    kept |= {at for at, message in enumerate(messages) if message.role is Role.SYSTEM}
    kept -= earlier
    rest = set(range(n)) - kept - earlier
    return Kept(tuple(sorted(kept)), tuple(sorted(rest)), tuple(sorted(earlier)))


def _inside(
    messages: Sequence[Message],
    newest: int | None,
    behind: Sequence[int],
    keep_tokens: int,
    pairs: Sequence[tuple[int, int]],
) -> int:
    """A border within the newest turn: its last exchanges that fit beside its question."""
    floor = 0 if newest is None else newest + 1
    if floor >= len(messages):
        return len(messages)
    question = 0 if newest is None else behind[newest] - behind[newest + 1]
    start = max(floor, safe_cut(messages, len(messages) - 1, pairs))
    while start > floor:
        earlier = max(floor, safe_cut(messages, start - 1, pairs))
        if question + behind[earlier] > keep_tokens:
            break
        start = earlier
    return start


def truncate(
    messages: Sequence[Message], *, preserve_recent: int = 4, min_messages: int = 6
) -> tuple[int, ...]:
    """Places that the ``truncate`` strategy keeps: first and last, by position only (L104).

    Beside message 0 and the last ones stay the newest question, system messages, and a
    summary that is already there (B24).

    Returns:
        All places when there are ``min_messages`` or fewer, or when no border allows a cut.
    """
    n = len(messages)
    everything = tuple(range(n))
    if n <= min_messages:
        return everything
    pairs = pairs_of(messages)
    split = safe_cut(messages, max(n - preserve_recent, 0), pairs)
    if split == 0:
        return everything
    kept = {0, *range(split, n)}
    newest = newest_ask(messages)
    if newest is not None:
        kept.add(newest)
    for at in range(split):
        if messages[at].role is Role.SYSTEM or is_summary(messages[at]):
            kept.add(at)
    # results that answer message 0's calls come along
    kept |= {result for call, result in pairs if call == 0}
    return tuple(sorted(kept))


def pull_together(messages: Sequence[Message], kept: Collection[int]) -> tuple[Message, ...]:
    """The kept messages in order, legal: message 0's results beside it, no half of a pair.

    Empty messages go. Results without a call and calls without a result go, as they do when
    the log is read again: no provider takes them.
    """
    order = sorted(kept)
    if order and messages[order[0]].tool_calls:
        first = order[0]
        beside = [result for call, result in pairs_of(messages) if call == first]
        pulled = [at for at in dict.fromkeys(beside) if at in set(order)]
        order = [first, *pulled, *(at for at in order[1:] if at not in set(pulled))]
    return paired(m for m in (messages[at] for at in order) if m.parts)
