"""The last check of a draft, and a pass's outcome in words.

Source: LLM turn, "The turn's paper trail" (L102, L104); Turn FSM, "BuildingContext" (B34).
"""

from __future__ import annotations

from collections.abc import Sequence

from notebook_agent.core.compaction_cut import left_open, newest_ask
from notebook_agent.core.messages import Message
from notebook_agent.core.trim import is_summary
from notebook_agent.engine.compaction.strategies import Task
from notebook_agent.engine.compaction_values import CompactionState, SummaryFailed

__all__ = ["check_draft", "done_words", "nothing_words", "paused_words"]


def check_draft(before: Sequence[Message], after: Sequence[Message]) -> None:
    """Whatever the strategy: pairs are whole, the newest question is verbatim."""
    faults = left_open(after)
    at = newest_ask(before)
    if at is not None and not any(message is before[at] for message in after):
        faults.append("the newest user message is gone")
    if faults:
        raise SummaryFailed(f"the new history is not legal: {'; '.join(faults[:3])}")


def nothing_words(task: Task) -> str:
    """Why there was nothing to do."""
    at = newest_ask(task.messages)
    words = "nothing can be left out"
    if at is not None and task.window > 0:
        size = task.count(task.messages[at])
        if size * 2 > task.window:
            words += f"; the newest message alone has {size:,} tokens and is never cut"
    return words


def done_words(task: Task, removed: int, shortened: int) -> str:
    """What an applied pass did."""
    parts = [f"{removed:,} messages left out"] if removed else []
    if shortened:
        parts.append(f"{shortened:,} shortened")
    earlier = sum(1 for message in task.messages if is_summary(message))
    if earlier:
        parts.append("the earlier summary updated")
    if not parts:
        parts.append("tool outputs or empty messages tidied")
    return ", ".join(parts)


def paused_words(state: CompactionState) -> str:
    """That automatic passes are paused, and what to type."""
    return (
        f"Automatic compaction is paused after {state.failures} failures in a row; "
        "try by hand with:  %agent compact now"
    )
