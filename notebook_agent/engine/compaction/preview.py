"""What a compaction pass would do, message by message, without doing it.

Source: Turn FSM, "BuildingContext" (B28); the ``compact preview`` verb.
"""

from __future__ import annotations

from collections.abc import Sequence

from notebook_agent.core.compaction import classify, target_tokens
from notebook_agent.core.compaction_cut import Kept
from notebook_agent.core.context import sum_tokens
from notebook_agent.core.messages import Message
from notebook_agent.core.trim import is_summary
from notebook_agent.engine.compaction.strategies import (
    Task,
    extractive,
    finish,
    only_pruned,
    only_shortened,
    pruned,
    summary_message,
    summary_room,
    summary_text,
    truncating,
    untouched,
)
from notebook_agent.engine.compaction_values import CompactionPreview, Draft, PreviewRow

__all__ = ["preview_of"]

_SHOWN = 80  # characters of a message in a row


async def preview_of(task: Task, before: int) -> CompactionPreview:
    """The rows and figures.

    Args:
        task: The pass.
        before: Tokens of the full request now.
    """
    ready = pruned(task)
    estimated = False
    summary_tokens = 0
    draft = only_pruned(task, ready)
    if draft is None:
        match task.policy.strategy:
            case "truncate":
                draft = truncating(ready)
            case "model":
                # A preview asks no model: the summary's allowed size stands in for it.
                draft = _stand_in(ready)
                estimated = draft is not None and draft.summary is not None
                if estimated:
                    summary_tokens = summary_room(ready, ready.split())
            case _:
                draft = await extractive(ready)
    if draft is None and ready is not task:
        draft = untouched(ready)
    after = before
    if draft is not None:
        messages = draft.messages[1:] if estimated else draft.messages
        after = sum_tokens(task.counter, messages) + summary_tokens + task.reserved
    status = "nothing" if draft is None else classify(before, after)
    summary = "" if draft is None or draft.summary is None or estimated else draft.summary
    return CompactionPreview(
        rows=tuple(_rows(task, ready, draft)),
        strategy=task.policy.strategy,
        tokens_before=before,
        tokens_after=after,
        target=target_tokens(task.policy, task.window),
        window=task.window,
        status=status,
        detail="" if status == "applied" else "nothing would change",
        estimated=estimated,
        summary=summary_text(summary) if isinstance(summary, Message) else "",
        parts={"reserved": task.reserved, "messages": before - task.reserved},
    )


def _stand_in(task: Task) -> Draft | None:
    split: Kept = task.split()
    if not split.head:
        return only_shortened(task)
    return finish(task, split, summary_message(task, ""))


def _rows(task: Task, ready: Task, draft: Draft | None) -> list[PreviewRow]:
    then: Sequence[Message] = task.messages
    if draft is not None:
        then = [message for message in draft.messages if message is not draft.summary]
    stays: dict[int, Message] = {}
    for message in then:
        original = ready.origin.get(message.id, message)
        stays[id(original)] = message
    by_id = {message.id: message for message in then if message.id}
    gone = "left out" if task.policy.strategy == "truncate" else "summarised"
    rows = []
    for place, message in enumerate(task.messages):
        found = stays.get(id(message)) or by_id.get(message.id)
        if found is None:
            fate = "updated" if is_summary(message) else gone
        else:
            fate = "kept" if found is message else "shortened"
        rows.append(
            PreviewRow(
                place=place,
                id=message.id,
                role=message.role.value,
                text=" ".join(message.display_text()[: 4 * _SHOWN].split())[:_SHOWN],
                tokens=task.count(message),
                fate=fate,
                tokens_after=0 if found is None else task.count(found),
            )
        )
    return rows
