"""Finished blocks and the unfinished tail of a Markdown reply that is still arriving.

A block is handed out once and never touched again, so the work over a whole reply is linear in
its length whatever sizes the deltas have. Lists are handed out item by item.

Source: notebook side, "The panel" (D13, D14).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from notebook_agent.notebook.panel_state import Scan, TextBlock

__all__ = ["flush_tail", "in_code", "split_blocks"]

_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})([^\n]*)")
_ITEM: Final = re.compile(r"( {0,3})([-*+]|(\d{1,9})[.)])(?: +|$)")
_SETEXT: Final = re.compile(r" {0,3}-+[ \t]*")
_ALONE: Final = re.compile(
    r" {0,3}(?:#{1,6}(?:[ \t]|$)|(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$)"
)
# A line that has not ended yet, and can already be nothing but the start of a new block.
_EARLY: Final = re.compile(r" {0,3}(?:[-*+] +(?:[^\s*+_-]|\*\*\S)|\d{1,9}[.)] +\S|#{1,6} +\S)")
# A block that never ends (no blank line for ever) is cut here, at a line end; one line that never
# ends is cut at twice this. Bounds what the renderer ever sees at once.
LONG: Final = 8_192


def split_blocks(text: str, scan: Scan, turn: int = 0) -> tuple[list[TextBlock], str, Scan]:
    """Cut finished blocks off the front of the tail.

    Args:
        text: The tail: everything after the last finished block.
        scan: What the last call returned; ``Scan()`` for a fresh tail.
        turn: Put into the blocks.

    Returns:
        Finished blocks, the new tail, and the scan to go on with. Only characters behind
        ``scan.pos`` are looked at.
    """
    done: list[TextBlock] = []
    start, pos = 0, scan.pos
    while True:
        end = text.find("\n", pos)
        if end < 0:
            if len(text) - start > 2 * LONG and not scan.fence:  # one endless line
                done.append(TextBlock(text[start:], turn, scan.mode == "item"))
                start, pos, scan = len(text), len(text), Scan()
            elif (
                pos > start
                and scan.mode in ("item", "para")
                and _EARLY.match(text, pos)
                and _step(text[pos:], scan)[0]
            ):  # shown as its own block from its first word on
                done.append(TextBlock(text[start:pos], turn, scan.mode == "item"))
                start, scan = pos, Scan()
            break
        line = text[pos:end]
        next_pos = end + 1
        cut_before, cut_after, after = _step(line, scan)
        if cut_before and pos > start:
            done.append(TextBlock(text[start:pos], turn, scan.mode == "item"))
            start = pos
        if cut_after or (next_pos - start > LONG and not after.fence):
            done.append(TextBlock(text[start:next_pos], turn, after.mode == "item"))
            start, after = next_pos, Scan()
        scan, pos = after, next_pos
    rest = text[start:]
    # what has no line end yet is looked at again from its first character: a line is judged whole
    pos = max(0, pos - start)
    if pos != scan.pos:
        scan = Scan(pos, scan.mode, scan.fence, scan.indent, scan.blank)
    return done, rest, scan


def flush_tail(tail: str, turn: int = 0) -> tuple[TextBlock, ...]:
    """The tail as finished blocks, when no more text comes; blank text gives none."""
    blocks, rest, scan = split_blocks(tail, Scan(), turn)
    if rest:
        blocks.append(TextBlock(rest, turn, scan.mode == "item" or bool(_ITEM.match(rest))))
    return tuple(block for block in blocks if block.text.strip())


def in_code(scan: Scan) -> bool:
    """Whether the tail is an open fenced code block."""
    return scan.mode == "fence"


def _step(line: str, scan: Scan) -> tuple[bool, bool, Scan]:
    """(a block ends before this line, one ends after it, the scan behind the line)."""
    blank = not line.strip()
    if scan.mode == "fence":
        return False, _closes(line, scan.fence), scan
    if scan.mode == "item":
        return _item_step(line, blank, scan)
    if blank:
        return False, scan.mode != "", Scan()
    if scan.mode == "para" and _SETEXT.fullmatch(line):
        return False, True, Scan()  # the underline of a heading
    opens = _opening(line, inside=scan.mode == "para")
    if opens.mode == "alone":
        return scan.mode != "", True, Scan()
    if opens.mode in ("fence", "item"):
        return scan.mode != "", False, opens
    return False, False, scan if scan.mode else opens


def _item_step(line: str, blank: bool, scan: Scan) -> tuple[bool, bool, Scan]:
    if scan.fence:  # a code block inside the item
        return False, False, replace(scan, fence="") if _closes(line, scan.fence) else scan
    if blank:
        return False, False, replace(scan, blank=True)
    line = line.expandtabs(4)
    if len(line) - len(line.lstrip()) >= scan.indent:
        fence = _FENCE.match(line[scan.indent :])
        return False, False, replace(scan, blank=False, fence=fence.group(1) if fence else "")
    opens = _opening(line)
    if opens.mode == "alone":
        return True, True, Scan()
    if opens.mode in ("fence", "item") or scan.blank:
        return True, False, opens
    return False, False, scan  # lazy continuation


def _opening(line: str, *, inside: bool = False) -> Scan:
    """The scan after a line that begins a block; ``inside`` a paragraph fewer lines can."""
    line = line.expandtabs(4)
    fence = _FENCE.match(line)
    if fence and not (fence.group(1)[0] == "`" and "`" in fence.group(2)):
        return Scan(mode="fence", fence=fence.group(1))
    if _ALONE.match(line):
        return Scan(mode="alone")
    item = _ITEM.match(line)
    if item and not (inside and (item.group(3) not in (None, "1") or not line[item.end() :])):
        rest = line[item.end() :]
        marker = item.end(2)
        spaces = item.end() - marker
        inner = _FENCE.match(rest)
        return Scan(
            mode="item",
            indent=marker + (spaces if 1 <= spaces <= 4 else 1),
            fence=inner.group(1) if inner else "",
        )
    return Scan(mode="para")


def _closes(line: str, fence: str) -> bool:
    bare = line.strip()
    return len(bare) >= len(fence) and bare == fence[0] * len(bare)
