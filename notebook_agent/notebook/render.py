"""Model text to HTML that cannot do anything: the one renderer of live and frozen output.

markdown-it-py with raw HTML off, images as their address, links to http, https and mailto only;
then nh3 with a short allow-list. Without nh3 the text is escaped in ``<pre>``, never unsanitised
HTML. Maths is off. Work is linear in the text: a block is rendered once, and a block longer than
``LONG_BLOCK`` is not parsed but shown as it stands.

Source: notebook side, "The panel" (D14), "Front ends" (F8); X01, X02, X03.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

from notebook_agent.core.text import visible
from notebook_agent.notebook.panel_state import TextBlock

try:
    import nh3
except ImportError:  # F8: an optional native; the text is shown escaped then
    nh3 = None  # type: ignore[assignment]  # the module, or None without it

__all__ = ["image_text", "join_items", "render_block", "render_text"]

LONG_BLOCK: Final = 12_000
_LINK: Final = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)
_DATA: Final = re.compile(r"data:([\w.+-]*/?[\w.+-]*)[^,]*,", re.IGNORECASE)
_REL: Final = "noopener noreferrer nofollow"

# One line of words in which no character means anything to Markdown or HTML: most paragraphs of
# most replies. What is made of it is what the long way makes of it, a test compares them.
_WORDS: Final = re.compile(r"[^\W\d_][^\\`*_\[\]<>&!#~|\t\r\n\x00\u00a0]*")

TAGS: Final = frozenset(
    [
        "p",
        "br",
        "strong",
        "em",
        "s",
        "code",
        "pre",
        "ul",
        "ol",
        "li",
        "blockquote",
        "h3",
        "h4",
        "h5",
        "h6",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "hr",
        "a",
    ]
)
ATTRIBUTES: Final[Mapping[str, set[str]]] = {
    "a": {"href"},
    "ol": {"start"},
    "th": {"align"},
    "td": {"align"},
}
# A reply's headings stand below the page's own.
_HEADINGS: Final = {"h1": "h3", "h2": "h4", "h3": "h5", "h4": "h6", "h5": "h6", "h6": "h6"}


def render_block(text: str) -> str:
    """Clean HTML of one Markdown block.

    Args:
        text: As the model wrote it; control characters are made visible here.
    """
    text = visible(text)
    if nh3 is None:
        return f"<pre>{html.escape(text.strip())}</pre>"
    words = text.strip("\n").rstrip()
    if len(words) <= LONG_BLOCK and _WORDS.fullmatch(words):
        return f"<p>{words}</p>"
    if len(text) > LONG_BLOCK and not _fenced(text):
        made = "".join(f"<p>{html.escape(part)}</p>" for part in text.split("\n\n") if part.strip())
    else:
        made = _markdown().render(text)
    return str(
        nh3.clean(
            made,
            tags=set(TAGS),
            attributes={tag: set(names) for tag, names in ATTRIBUTES.items()},
            url_schemes={"http", "https", "mailto"},
            link_rel=_REL,
            strip_comments=True,
        )
    ).strip()


def render_text(text: str) -> str:
    """Clean HTML of a whole text that is no reply of ours (a note, an export)."""
    from notebook_agent.notebook.blocks import flush_tail  # noqa: PLC0415  # blocks imports nothing heavy

    return "\n".join(render_block(part) for part in join_items(flush_tail(text)))


def join_items(blocks: Iterable[TextBlock]) -> list[str]:
    """Sources to render for saving: the items of one list joined again to one text."""
    out: list[list[str]] = []
    before = False
    for block in blocks:
        if block.item and before:
            out[-1].append(block.text)
        else:
            out.append([block.text])
        before = block.item
    return ["".join(parts) for parts in out]


def image_text(source: str, alt: str = "") -> str:
    """What stands for an image: its address, or ``[image, type, size]`` of a ``data:`` one."""
    data = _DATA.match(source)
    if data or source[:5].lower() == "data:":
        kind = (data.group(1) if data else "") or "unknown type"
        body = len(source) - (data.end() if data else 5)
        size = body * 3 // 4 if ";base64" in source[:80].lower() else body
        return f"[image, {kind}, {_size(size)}]"
    return f"[image: {alt}, {source}]" if alt else f"[image: {source}]"


def _size(n: int) -> str:
    return f"{n} bytes" if n < 1000 else f"{n / 1000:.1f} kB" if n < 1e6 else f"{n / 1e6:.1f} MB"


def _fenced(text: str) -> bool:
    """Code needs no inline parsing, whatever its length."""
    return text.lstrip()[:3] in ("```", "~~~")


@lru_cache(maxsize=1)
def _markdown() -> MarkdownIt:
    md = MarkdownIt(
        "commonmark", {"html": False, "linkify": False, "typographer": False, "maxNesting": 20}
    ).enable(["table", "strikethrough"])
    md.validateLink = _valid_link  # type: ignore[method-assign]  # the documented way to replace it
    md.normalizeLinkText = lambda link: link  # type: ignore[method-assign]  # an address is shown as written
    md.add_render_rule("image", _image)
    md.add_render_rule("fence", _code)
    md.add_render_rule("code_block", _code)
    md.core.ruler.push("notebook_agent", _soften)
    return md


def _valid_link(url: str) -> bool:
    """Anything else stays the literal text it was. ``data:`` only gets as far as ``_image``."""
    return bool(_LINK.match(url)) or url[:5].lower() == "data:"


def _image(
    self: Any,  # noqa: ARG001  # the renderer's shape
    tokens: Sequence[Token],
    idx: int,
    options: Any,  # noqa: ARG001  # the renderer's shape
    env: Any,  # noqa: ARG001  # the renderer's shape
) -> str:
    token = tokens[idx]
    return html.escape(image_text(str(token.attrs.get("src", "")), token.content))


def _code(
    self: Any,  # noqa: ARG001  # the renderer's shape
    tokens: Sequence[Token],
    idx: int,
    options: Any,  # noqa: ARG001  # the renderer's shape
    env: Any,  # noqa: ARG001  # the renderer's shape
) -> str:
    return f"<pre><code>{html.escape(tokens[idx].content)}</code></pre>\n"


def _soften(state: Any) -> None:
    """Headings one level range down; alignment as an attribute, because style is not allowed."""
    for token in state.tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = _HEADINGS[token.tag]
        elif token.type in ("th_open", "td_open"):
            style = str(token.attrs.pop("style", ""))
            if ":" in style:
                token.attrs["align"] = style.partition(":")[2]
        for child in token.children or ():
            if child.type == "link_open":
                href = str(child.attrs.get("href", ""))
                child.attrs = {"href": href} if _LINK.match(href) else {}
