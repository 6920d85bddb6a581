"""Every sentence the views say, in one table. Numbers and causes come from the event.

Source: notebook side, "What every user of a kit expects" (UI text in one table).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from notebook_agent.notebook.panel_state import Rich

__all__ = ["ENDING_WORDS", "END_LINES", "PLAIN_MARKS", "STATUS_WORDS", "plain", "say"]

# ``{name}`` is put in as plain text, `{name}` in backticks as a name, **...** strong,
# ~...~ a wait that a live view counts down.
SENTENCES: Final[Mapping[str, str]] = {
    "connecting": "connecting to `{model}`, attempt 1",
    "sent": "request sent, nothing back yet",
    "sent, later turn": "turn {turn}: request sent, nothing back yet",
    "sent, retry": "**attempt {attempt} of {of}**: request sent, nothing back yet",
    "retry": "**attempt {attempt} of {of}**~ in {delay:.1f} s~**: {cause}**",
    "attempt failed": "attempt {attempt} failed: {cause}; next: {next}",
    "rescue": "**rescue**: one request outside the stream, {seconds:.0f} s at most",
    "void": "text so far is void; attempt {attempt} of {of} starts over",
    "tools": "running {running} of {of} {tools}",
    "asking": "a tool waits for your answer",
    "compacting": "turn {turn} deferred: context est. {used:,} is past the {line} at {limit:,}; compacting history",
    "compacted": "history compacted ({strategy}): {before:,} to {after:,} tokens est.",
    "not compacted": "history not compacted: {detail}",
    "compaction paused": "automatic compaction paused after {n} failures in a row",
    "fallback": "`{primary}` failed {n} {turns} in a row; `{backup}` serves",
    "tripped": "`{primary}` failed {n} {turns} in a row; no backup, it keeps serving",
    "probe failed": "the probe of `{primary}` failed; `{backup}` serves",
    "by hand": "breaker tripped by hand; `{backup}` serves",
    "recovering": "cooldown over; this call is a probe of `{primary}`, {n} of {needed} succeeded",
    "closed": "`{primary}` is back: breaker primary again",
    "loop": "`{pattern}` gave the same result {n} times",
    "stopped": "**stopped** by you; nothing had arrived",
    "stopped, partial": "**stopped** by you; the text above is partial",
    "incomplete": "the text above is **incomplete**",
    "rescued": "complete reply adopted from the rescue call, in place of the stream",
    "scripted": "scripted reply: no model was called. Pick one with `%agent model NAME`",
    "max_tokens": "**cut at the output limit**: the reply is not whole",
    "content_filter": "**cut by the provider's content filter**: the reply is not whole",
    "refusal": "**the model declined** to answer",
    "pause": "**the provider paused** the reply: it is not whole",
    "error": "**the provider reported an error** at the end: the reply may not be whole",
    "unknown": "the provider gave **no known reason** for the end: the reply may not be whole",
    "limit reached": "**turn limit reached**; allow more with `%%agent --max-turns N`",
    "token budget exhausted": "**token budget exhausted**; allow more with `%%agent --max-tokens N`",
}  # fmt: skip

# How a run ended, as the status word (glossary words).
STATUS_WORDS: Final[Mapping[str, str]] = {
    "completed": "completed",
    "failed": "failed",
    "cancelled": "cancelled",
    "rejected": "rejected",
    "limit_reached": "limit reached",
    "token_budget_exhausted": "token budget exhausted",
}
# Endings that are not a whole answer show as themselves, never with the tick.
ENDING_WORDS: Final[Mapping[str, str]] = {
    "max_tokens": "max tokens",
    "content_filter": "content filter",
    "refusal": "refusal",
    "pause": "pause",
    "error": "ended with error",
    "unknown": "unknown ending",
}
# The status word's shape where only characters can be (frozen html, plain text, terminal).
PLAIN_MARKS: Final[Mapping[str, str]] = {
    "completed": "✓",
    "rescued": "◎",
    "cancelled": "■",
    "failed": "✗",
    "rejected": "✗",
    "limit reached": "✗",
    "token budget exhausted": "✗",
    "connecting": "○",
    "streaming": "●",
    "running tools": "◆",
    "waiting": "◷",
    "attempt reset": "↻",
    "compacting": "⇊",
}

_PIECE: Final = re.compile(r"`([^`]*)`|\*\*(.+?)\*\*|~(.+?)~")
_KINDS: Final = ("code", "b", "wait")


def say(key: str, **values: Any) -> Rich:
    """A sentence of the table with values put in.

    The template is cut into pieces before values go in, so no value can be markup.
    """
    if key == "sent":
        key = (
            "sent, retry"
            if values["attempt"] > 1
            else "sent, later turn"
            if values["turn"]
            else key
        )
    if key == "compacting":
        values["line"] = "emergency line" if values.pop("reason") == "emergency" else "trigger"
    if key in ("fallback", "tripped"):
        values["turns"] = "turn" if values["n"] == 1 else "turns"
    if key == "tools":
        values["tools"] = "tool" if values["of"] == 1 else "tools"
    pieces: list[tuple[str, str]] = []
    template, last = SENTENCES[key], 0
    for match in _PIECE.finditer(template):
        if match.start() > last:
            pieces.append(("", template[last : match.start()]))
        which = match.lastindex or 1
        pieces.append((_KINDS[which - 1], match[which]))
        last = match.end()
    if last < len(template):
        pieces.append(("", template[last:]))
    return tuple((kind, text.format(**values)) for kind, text in pieces)


def plain(words: Rich) -> str:
    """A sentence as plain text."""
    return "".join(text for _, text in words)


END_LINES: Final[Mapping[str, Rich]] = {
    key: say(key)
    for key in (
        "stopped", "stopped, partial", "incomplete", "rescued", "scripted", "max_tokens",
        "content_filter", "refusal", "pause", "error", "unknown", "limit reached",
        "token budget exhausted",
    )
}  # fmt: skip
