"""The strategies that need no model: extractive summary, truncation, pruning.

Source: LLM turn, "The turn's paper trail" (L104); Turn FSM, "BuildingContext" (B28, B30, B35).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from notebook_agent.core.compaction import CompactionPolicy, keep_budget, target_tokens
from notebook_agent.core.compaction_cut import Kept, keep_tail, pull_together, truncate
from notebook_agent.core.context import TokenCounter, sum_tokens
from notebook_agent.core.extract import (
    Extractor,
    points_of_summary,
    render_summary,
    summary_count,
)
from notebook_agent.core.messages import Message, Role, TextPart
from notebook_agent.core.shorten import prune_outputs, shorten_to
from notebook_agent.core.trim import SUMMARY_PREFIX
from notebook_agent.engine.clock import Surroundings
from notebook_agent.engine.compaction_values import Draft

__all__ = [
    "Task",
    "extractive",
    "finish",
    "only_pruned",
    "only_shortened",
    "pruned",
    "summary_message",
    "summary_room",
    "summary_text",
    "truncating",
    "untouched",
]

_SLICE = 200  # messages read between two looks at the loop


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One pass as the strategies see it.

    ``reserved`` tokens are system prompt, tools and transients; ``target`` counts them too.
    """

    messages: tuple[Message, ...]
    policy: CompactionPolicy
    counter: TokenCounter
    surroundings: Surroundings
    window: int
    reserved: int
    reason: str
    passes: int = 0
    instructions: str | None = None
    extra: tuple[str, ...] = ()
    model: str = ""
    check: Callable[[], None] = lambda: None  # raises Cancelled
    origin: dict[str, Message] = field(default_factory=dict)  # id of a new version -> original

    def count(self, message: Message) -> int:
        """Tokens of one message, counted once."""
        return sum_tokens(self.counter, (message,))

    @property
    def room(self) -> int:
        """Tokens that the messages may have after the pass."""
        if self.window <= 0:
            return sum_tokens(self.counter, self.messages) + 1
        return max(target_tokens(self.policy, self.window) - self.reserved, 1)

    def split(self) -> Kept:
        """Tail, head, earlier summaries (B30)."""
        return keep_tail(
            self.messages,
            keep_turns=max(self.policy.keep_turns - self.passes, 1),
            keep_tokens=keep_budget(
                self.policy,
                window=self.window,
                reserved=self.reserved,
                reason=self.reason,
                passes=self.passes,
            ),
            count=self.count,
        )


def summary_room(task: Task, split: Kept) -> int:
    """Tokens that the summary may have: under half of what it stands for, or nothing is won."""
    places = (*split.head, *split.summaries)
    stood_for = sum(task.count(task.messages[at]) for at in places)
    tail = sum(task.count(task.messages[at]) for at in split.kept)
    room = max(task.room - tail, 256)  # a summary of fewer would say nothing
    return max(min(task.policy.summary_tokens, stood_for // 2, room), 32)


def summary_message(task: Task, text: str) -> Message:
    """The summary as a message of the user's: providers take no system text there (L8)."""
    return Message(
        Role.USER, (TextPart(SUMMARY_PREFIX + text),), id=task.surroundings.new_id("summary")
    )


def summary_text(message: Message) -> str:
    """An earlier summary's own words."""
    return message.text_content().removeprefix(SUMMARY_PREFIX)


async def extractive(task: Task) -> Draft | None:
    """Sentences that carry something, as they were said (the default).

    Returns:
        None when there is nothing to summarise and nothing oversize.
    """
    split = task.split()
    if not split.head:
        return only_shortened(task)
    room = summary_room(task, split)
    points = []
    count = len(split.head)
    for at in split.summaries:
        earlier = summary_text(task.messages[at])
        points += points_of_summary(earlier)
        count += summary_count(earlier)
    reader = Extractor()
    for start in range(0, len(split.head), _SLICE):
        reader.feed(task.messages[at] for at in split.head[start : start + _SLICE])
        await task.surroundings.sleep(0)  # the loop goes on, and a cancel is seen
        task.check()
    reader.close()
    old = len(points)
    points += [replace(p, order=p.order + old) for p in reader.points]

    def fits(text: str) -> bool:
        return task.counter.count_text(SUMMARY_PREFIX + text) <= room

    text = render_summary(points, count=count, fits=fits, extra=task.extra)
    if not text:
        return only_shortened(task)
    return finish(task, split, summary_message(task, text))


def truncating(task: Task) -> Draft | None:
    """First and last messages by position; oversize ones shortened (L104).

    Returns:
        None when no message may go and none is too large.
    """
    kept = truncate(
        task.messages,
        preserve_recent=max(task.policy.preserve_recent >> task.passes, 1),
        min_messages=task.policy.min_messages,
    )
    draft = _fitted(task, pull_together(task.messages, kept), None)
    return draft if _changed(task, draft) else None


def only_shortened(task: Task) -> Draft | None:
    """All messages, the oversize ones shortened; None when none is oversize (L104, P03)."""
    everything = pull_together(task.messages, range(len(task.messages)))
    draft = _fitted(task, everything, None)
    return draft if _changed(task, draft) else None


def finish(task: Task, split: Kept, summary: Message) -> Draft:
    """Summary, then what is kept; oversize kept messages are shortened when it must be."""
    return _fitted(task, pull_together(task.messages, split.kept), summary)


def pruned(task: Task) -> Task:
    """The task with old tool outputs blanked, when the policy says so and it is worth it."""
    if not task.policy.prune:
        return task
    blank = prune_outputs(
        task.messages,
        protect=task.policy.prune_protect,
        minimum=task.policy.prune_minimum,
        keep_tools=task.policy.keep_tools,
        count=task.count,
    )
    return replace(task, messages=_swapped(task, task.messages, blank)) if blank else task


def only_pruned(task: Task, ready: Task) -> Draft | None:
    """Pruning alone, when it was done and is enough for the target (B35)."""
    if ready is task or sum_tokens(task.counter, ready.messages) > task.room:
        return None
    return untouched(ready)


def untouched(ready: Task) -> Draft:
    """All messages of the task, as pruning left them."""
    return Draft(messages=pull_together(ready.messages, range(len(ready.messages))))


def _fitted(task: Task, kept: Sequence[Message], summary: Message | None) -> Draft:
    room = task.room - (0 if summary is None else task.count(summary))
    # only what is oversize for this window is touched, however little room there is
    smaller = shorten_to(kept, max(room, 1), task.count, least=max(100, task.window // 16))
    messages = _swapped(task, kept, smaller)
    return Draft(messages=messages if summary is None else (summary, *messages), summary=summary)


def _changed(task: Task, draft: Draft) -> bool:
    return len(draft.messages) != len(task.messages) or any(
        new is not old for new, old in zip(draft.messages, task.messages, strict=True)
    )


def _swapped(
    task: Task, messages: Sequence[Message], other: dict[int, Message]
) -> tuple[Message, ...]:
    """Some messages replaced by versions under new ids: the log keeps both."""
    fresh: dict[int, Message] = {}
    for at, message in other.items():
        old = messages[at]
        fresh[at] = new = message.with_id(task.surroundings.new_id("message"))
        task.origin[new.id] = task.origin.get(old.id, old)
    return tuple(fresh.get(at, message) for at, message in enumerate(messages))
