"""The saved output of a run: one bundle that needs no script, no style sheet and no widget.

``text/plain`` alone tells the whole; ``text/html`` reads with every attribute taken away: states
as words, bars as "3 of 10", tables as tables. The widget's view is not in it (D15).

Source: notebook side, "The panel" (D15, D16), "Front ends" (F5, F13); N07, X01-X03.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from notebook_agent.core.text import unset_maths, visible
from notebook_agent.notebook.calls import call_line
from notebook_agent.notebook.footer import AUDIT_COLUMNS, audit_cells, breaker_line, footer
from notebook_agent.notebook.panel_state import (
    Item,
    Note,
    PanelState,
    Rich,
    TextBlock,
    Thinking,
    ToolRow,
    Void,
)
from notebook_agent.notebook.render import join_items, render_block
from notebook_agent.notebook.tables import escape, html_table, shorten, text_table
from notebook_agent.notebook.words import PLAIN_MARKS, plain

__all__ = [
    "SCHEMA",
    "bundle",
    "call_text",
    "error_lines",
    "frozen_html",
    "frozen_text",
    "metadata",
    "standing_bundle",
    "styled_block",
    "thinking_line",
    "tool_word",
    "void_line",
]

SCHEMA: Final = 1  # of metadata and panel messages; a newer one is shown as its plain text
TEXT_LIMIT: Final = 40_000  # characters of text/plain (F13)
HTML_LIMIT: Final = 900_000  # bytes of text/html: one output stays under 1 MB
RESULTS_LIMIT: Final = 400_000  # bytes of all tools' results in it
TOOL_LIMIT: Final = 4_000  # characters of one tool's arguments or result, in the saved output
NOTICE_LIMIT: Final = 1_000  # characters of one
ROWS_LIMIT: Final = 100

_LINE: Final = "1px solid rgba(128,128,128,0.4)"
_CODE: Final = '<code style="background-color: transparent; padding: 0">'
_HEAD_CODE: Final = _CODE.replace('">', '; white-space: nowrap">')
_FAINT: Final = "opacity: 0.75"  # the machine beside the text, as the live view's second ink
_PRE: Final = (
    "margin: 0 0 9px; padding: 9px 12px; background-color: rgba(128,128,128,0.1); "
    "border-radius: 4px; font-size: 13px; line-height: 1.5; overflow-x: auto; white-space: pre; "
    "word-break: normal"
)
_CELL: Final = f"padding: 4px 12px 4px 0; line-height: 21.5px; border-bottom: {_LINE}"
# Tag of the renderer's clean HTML -> the same with a style; no text can hold a bare tag.
_STYLED: Final[Mapping[str, str]] = {
    "<p>": '<p style="margin: 0 0 9px">',
    "<ul>": '<ul style="margin: 0 0 9px; padding-left: 19px">',
    "<ol>": '<ol style="margin: 0 0 9px; padding-left: 25px">',
    "<li>": '<li style="margin: 0 0 5px">',
    "<pre><code>": (
        f'<pre tabindex="0" style="{_PRE}"><code style="background-color: transparent; padding: 0; '
        'line-height: 1.5; white-space: pre">'
    ),
    "<code>": (
        '<code style="background-color: rgba(128,128,128,0.1); padding: 1px 4px; '
        'border-radius: 3px; font-size: 13px; line-height: 1.5">'
    ),
    "<pre>": f'<pre style="{_PRE}; white-space: pre-wrap">',
    "<blockquote>": '<blockquote style="margin: 0 0 9px; padding: 0 0 0 13px; border-left: 2px solid rgba(128,128,128,0.4)">',
    "<table>": (
        '<table tabindex="0" style="display: block; max-width: 100%; overflow-x: auto; '
        'margin: 0 0 9px; font-size: 13.5px; line-height: 1.6">'
    ),
    **{f"<{cell}>": f'<{cell} style="{_CELL}; text-align: left">' for cell in ("th", "td")},
    **{f'<{cell} align="{to}">': f'<{cell} style="{_CELL}; text-align: {to}">'
       for cell in ("th", "td") for to in ("left", "center", "right")},
    **{f"<h{n}>": f'<h{n} style="margin: 9px 0; line-height: 1.5; font-size: {s}px; font-weight: 600">' for n, s in ((3, 18), (4, 16.5), (5, 15), (6, 15))},
}  # fmt: skip


def metadata(state: PanelState) -> dict[str, Any]:
    """Output metadata, the same from the first display to the freeze (D15)."""
    return {"notebook_agent": {"run": state.run_id, "schema": SCHEMA}}


def bundle(state: PanelState) -> dict[str, str]:
    """The frozen mime bundle of a run, ended or not."""
    return {"text/plain": frozen_text(state), "text/html": frozen_html(state)}


def standing_bundle(state: PanelState) -> dict[str, str]:
    """What stands beside the live view in the first display.

    It is read where the view cannot be: in a notebook that was saved while the run went on and
    whose kernel is gone, opened untrusted, exported, or shown by a host without widgets (N07).
    """
    run = f" {state.run_id}" if state.run_id else ""
    lines = (
        "The run was going on when this was saved, so its text is not here.",
        f"While its kernel lives:  %agent show{run}",
        f"In a new kernel:  %agent session load {state.session}  and  %agent resume{run}",
    )
    head = f"{_word(state)} · {state.model or 'no model'}"
    small = "margin: 0; padding: 6px 16px; font-size: 13px"
    return {
        "text/plain": visible("\n".join((head, *lines))),
        "text/html": unset_maths(
            f'<div style="border: {_LINE}; border-radius: 4px"><p style="{small}">'
            f"<strong>{escape(head)}</strong><br>{'<br>'.join(map(escape, lines))}</p></div>"
        ),
    }


# ---- text/plain -------------------------------------------------------------------------------


def frozen_text(state: PanelState) -> str:
    """The reply, then footer, breaker and the audit table, as aligned text."""
    parts = [text for text in (_plain_item(one) for one in _groups(state)) if text]
    if state.tail.strip():
        parts.append(visible(state.tail).strip())
    body = "\n\n".join(parts)
    foot: list[str] = []
    error = error_lines(state)
    if error:
        foot.append("\n".join(error))
    if state.line:
        foot.append(f"[{visible(plain(state.line))}]")
    foot.append(f"{_word(state)} · {footer(state)}")
    foot.append(breaker_line(state.breaker, state.gauge, at=state.at))
    if state.rows:
        foot.append(_audit_text(state))
    foot += [visible(notice) for notice in state.notices]
    end = visible("\n".join(foot))
    room = max(2_000, TEXT_LIMIT - len(end) - 200)
    if len(body) > room:
        body = (
            body[:room].rstrip()
            + f"\n[... {len(body) - room:,} more characters; the whole is in result.text]"
        )
    text = f"{body}\n\n{end}" if body else end
    return text[:TEXT_LIMIT]


def error_lines(state: PanelState) -> list[str]:
    """What ended the run, short: the error's own lines (D12)."""
    if state.error is None or state.run_status.value in ("cancelled", "completed"):
        return []
    message = visible(str(state.error.get("message") or state.error.get("error") or ""))
    if len(message) > 2_000:
        message = message[:2_000] + "…"
    return message.splitlines()


def _word(state: PanelState) -> str:
    return f"{PLAIN_MARKS.get(state.status, '◧')} {state.status}"


def _audit(state: PanelState) -> tuple[Sequence[str], list[list[str]], Sequence[bool]]:
    names, _, right, _ = zip(*AUDIT_COLUMNS, strict=True)
    rows = [[shorten(cell, 60) for cell in audit_cells(row)] for row in state.rows[-ROWS_LIMIT:]]
    return names, rows, right


def _audit_text(state: PanelState) -> str:
    table, hidden = text_table(*_audit(state)), len(state.rows) - ROWS_LIMIT
    return f"... {hidden} earlier turns not shown\n{table}" if hidden > 0 else table


def _groups(state: PanelState) -> list[Item]:
    """The flow with the blocks between two other items joined to one text."""
    out: list[Item] = []
    blocks: list[TextBlock] = []
    for one in (*state.items, None):
        if isinstance(one, TextBlock):
            blocks.append(one)
            continue
        if blocks:
            out.append(TextBlock("".join(b.text for b in blocks), blocks[0].turn))
            blocks = []
        if one is not None:
            out.append(one)
    return out


def _plain_item(one: Item) -> str:
    match one:
        case TextBlock(text=text):
            return visible(text).strip()
        case Thinking():
            return f"[{thinking_line(one)}]"
        case ToolRow():
            lines = [f"[{call_text(one)} · {tool_word(one)}]"]
            if one.result:
                lines.append(_indent(_cut(one.result, 1_000)))
            return "\n".join(lines)
        case Void():
            return f"[{void_line(one)}]"
        case Note(text=words):
            return f"[{visible(plain(words))}]"


def _indent(text: str) -> str:
    return "\n".join("    " + line for line in visible(text).splitlines())


def thinking_line(one: Thinking) -> str:
    """One line in place of the thinking: it is not saved."""
    words = "1 word" if one.words == 1 else f"{one.words:,} words"
    return f"thinking · {one.seconds:.1f} s · {words}, not saved"


def tool_word(one: ToolRow) -> str:
    """How a call stands, with its time."""
    return one.status if one.seconds is None else f"{one.status} {one.seconds:.1f} s"


def void_line(one: Void) -> str:
    """One line for attempts that do not count."""
    which = (
        f"attempt {one.first}" if one.first == one.last else f"attempts {one.first} to {one.last}"
    )
    return visible(f"{which} void" + (f": {shorten(one.cause, 200)}" if one.cause else ""))


def call_text(one: ToolRow) -> str:
    """``name(key="value")`` on one line, for reading."""
    return call_line(one.name, one.arguments)


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[... {len(text) - limit:,} more characters]"


# ---- text/html --------------------------------------------------------------------------------


def frozen_html(state: PanelState) -> str:
    """The same as plain HTML with inline declarations only."""
    foot = unset_maths(_results_html(state) + _foot_html(state))
    head = unset_maths(_head_html(state))
    body = _within(
        HTML_LIMIT - len((head + foot).encode()), map(unset_maths, _body_parts(state)),
        "<p>The reply goes on; the whole is in <code>result.text</code>.</p>",
    )  # fmt: skip
    flow = (
        '<div dir="auto" style="padding: 13px 16px 6px; max-width: 690px; box-sizing: content-box; '
        f'font-size: 15px; line-height: 1.6; overflow-wrap: break-word">\n{"".join(body)}</div>\n'
    )
    return (
        f'<div style="border: {_LINE}; border-radius: 4px">\n{head}\n'
        f"{flow if body else ''}{foot}\n</div>"
    )


def _within(room: int, parts: Iterable[str], note: str) -> list[str]:
    """The first parts that fit into so many bytes; the note where one does not."""
    out: list[str] = []
    for part in parts:
        room -= len(part.encode())
        if room < 0:
            return [*out, note]
        out.append(part)
    return out


def _head_html(state: PanelState) -> str:
    tag, end = ("<em>", "</em>") if state.scripted else (_HEAD_CODE, "</code>")
    return (
        f'<div style="height: 40px; line-height: 40px; padding: 0 16px; border-bottom: {_LINE}; '
        'font-size: 13px; overflow: hidden; white-space: nowrap; text-overflow: ellipsis">'
        f"<strong>{escape(_word(state))}</strong> &#160; {tag}{escape(state.model)}{end}</div>"
    )


def _body_parts(state: PanelState) -> list[str]:
    out: list[str] = []
    pending: list[TextBlock] = []

    def text() -> None:
        out.extend(_styled(render_block(source)) + "\n" for source in join_items(pending))
        pending.clear()

    tools: list[str] = []
    for one in (*state.items, None):
        if not isinstance(one, ToolRow) and tools:
            out.append(
                '<ul style="margin: 0 0 9px; padding: 0; list-style: none; font-size: 13px">'
                f"{''.join(tools)}</ul>\n"
            )
            tools = []
        if isinstance(one, TextBlock):
            pending.append(one)
            continue
        text()
        if isinstance(one, ToolRow):
            tools.append(_tool_html(one))
        elif one is not None:
            out.append(_line_html(one))
    if state.tail.strip():
        out.append(_styled(render_block(state.tail)) + "\n")
    error = error_lines(state)
    if error:
        first, *more = map(escape, error)
        lines = "<br>".join([f"<strong>{first}</strong>", *more])
        out.append(f'<p style="margin: 0 0 9px; padding-left: 12px; border-left: 2px solid #c62828">{lines}</p>\n')  # fmt: skip
    if state.line:
        out.append(f'<p style="margin: 9px 0; font-size: 13px">{_rich(state.line)}</p>\n')
    return out


def styled_block(text: str) -> str:
    """One Markdown block as it stands in saved output."""
    return _styled(render_block(text))


def _styled(markup: str) -> str:
    for tag, styled in _STYLED.items():
        markup = markup.replace(tag, styled)
    return markup


def _line_html(one: Item) -> str:
    match one:
        case Thinking():
            words = escape(thinking_line(one))
        case Void():
            words = escape(void_line(one))
        case Note(text=text):
            words = _rich(text)
        case _:
            return ""
    small = f"margin: 0 0 9px; font-size: 13px; line-height: 28px; {_FAINT}"
    return f'<p style="{small}">{words}</p>\n'


def _tool_html(one: ToolRow) -> str:
    """One line a call, as high as the live row: what stands below does not move at the freeze.
    Results stand after the reply."""
    return (
        f'<li style="margin: 0 0 5px; padding: 0 9px; border: {_LINE}; border-radius: 4px; '
        f'line-height: 28px; overflow-wrap: break-word">{_CODE}{escape(call_text(one))}</code> · '
        f"{escape(tool_word(one))}</li>"
    )


def _results_html(state: PanelState) -> str:
    """What the tools printed and gave back, after the reply."""
    small = (
        "margin: 0 0 9px; font-size: 12px; line-height: 1.5; white-space: pre-wrap; "
        "word-break: normal; overflow-wrap: break-word"
    )
    parts = []
    for one in state.items:
        texts = (one.printed, one.result) if isinstance(one, ToolRow) else ()
        shown = "\n\n".join(part.strip("\n") for part in texts if part.strip("\n"))
        if shown and isinstance(one, ToolRow):
            parts.append(
                f'<p style="margin: 0; overflow-wrap: break-word">result of {_CODE}{escape(call_text(one))}</code></p>'
                f'<pre style="{small}; background-color: transparent">'
                f"{escape(_cut(shown, TOOL_LIMIT))}</pre>"
            )
    more = "<p>More results are not saved here; the run's record has them all.</p>"
    shown = "".join(_within(RESULTS_LIMIT, parts, more))
    return shown and f'<div style="padding: 6px 16px 0; font-size: 12px">{shown}</div>'


def _foot_html(state: PanelState) -> str:
    head = (
        f'<div style="padding: 6px 8px 6px 16px; border-top: {_LINE}; font-size: 12px">'
        f'<p style="margin: 0; overflow-wrap: break-word">{escape(footer(state))}</p>'
        f'<p style="margin: 0 0 6px; overflow-wrap: break-word; {_FAINT}">'
        f"{escape(breaker_line(state.breaker, state.gauge, at=state.at))}</p>"
    )
    parts = [head]
    if state.rows:
        parts.append(html_table(*_audit(state), spread=True))
    notices = (escape(_cut(notice, NOTICE_LIMIT)) for notice in state.notices)
    parts += [f'<p style="margin: 6px 0 0">{notice}</p>' for notice in notices]
    return "".join([*parts, "</div>"])


def _rich(words: Rich) -> str:
    tags = {"code": (_CODE, "</code>"), "b": ("<strong>", "</strong>")}
    return "".join(
        f"{tags.get(kind, ('', ''))[0]}{escape(text)}{tags.get(kind, ('', ''))[1]}"
        for kind, text in words
    )
