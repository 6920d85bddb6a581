"""Words and values of MCP: commands, names, results, errors.

Source: Turn FSM, "ExecutingTools" (B50, B54); notebook, verb ``tools``.
"""

from __future__ import annotations

import base64
import json
import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from notebook_agent.core.messages import ImagePart
from notebook_agent.engine.tools.output import image_part
from notebook_agent.errors import AgentError, ConfigError

__all__ = [
    "ADDRESS", "McpError", "clean_name", "is_closed", "need_package", "prefix_of", "told_by",
    "value_of", "words_of",
]  # fmt: skip

_CLOSED: Final = -32000  # the package's code for a connection that closed
ADDRESS: Final = re.compile(r"https?://\S+")


class McpError(AgentError):
    """An MCP server cannot be started, reached or used."""


def words_of(target: str | Sequence[str]) -> tuple[str, ...]:
    if isinstance(target, str):
        text = target.strip().removeprefix("mcp:").strip()
        try:
            words = [text] if ADDRESS.fullmatch(text) else shlex.split(text)
        except ValueError as error:
            raise ConfigError(
                f"The command of the MCP server cannot be read: {error}.", field="mcp", value=target
            ) from None
    else:
        words = [str(word) for word in target]
    if not words or not words[0]:
        raise ConfigError(
            "An MCP server is a command or an address.\n"
            "Type:  %agent tools add mcp:python -m mcp_server_time     or  mcp:http://127.0.0.1:8000/mcp",
            field="mcp",
            value="",
        )
    return tuple(words)


def need_package() -> None:
    try:
        from mcp import Client  # noqa: F401, PLC0415  # optional, slow to import; since version 2
    except ImportError:
        raise ConfigError(
            "MCP servers need the package mcp, version 2 or newer, which is not installed.\n"
            'Type:  %pip install "notebook-agent[mcp]"',
            field="mcp",
        ) from None


def clean_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_-")


def prefix_of(told: str, words: Sequence[str]) -> str:
    """A short name: what the server calls itself, else its command's last word."""
    word = told or next((w for w in reversed(words) if not w.startswith("-")), "") or "mcp"
    word = re.split(r"[/\\]", word.rstrip("/"))[-1].removesuffix(".py")
    bare = re.sub(
        r"^mcp[-_. ]+(server[-_. ]+)?|[-_. ]+(mcp|server)$", "", word, flags=re.IGNORECASE
    )
    return clean_name(bare or word).lower()[:24] or "mcp"


def told_by(error: BaseException) -> str:
    """One line of an error; the first inner one of a group."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    if isinstance(error, FileNotFoundError):
        return f"there is no command {error.filename or ''}".rstrip()
    text = " ".join(str(error).split())[:300]
    return text.rstrip(".") or type(error).__name__


def is_closed(error: BaseException) -> bool:
    """Whether an error says that the connection is gone, not that a call failed."""
    code = getattr(getattr(error, "error", error), "code", None)
    name = type(error).__name__
    return code == _CLOSED or name in ("ClosedResourceError", "BrokenResourceError", "EndOfStream")


def value_of(result: Any) -> Any:
    """What a tool returns to ToolRuntime: text, and images where there are any."""
    parts = [_part(one) for one in result.content or ()]
    if not parts and result.structured_content is not None:
        parts = [json.dumps(result.structured_content, ensure_ascii=False)]
    text = "\n".join(p for p in parts if isinstance(p, str))
    if result.is_error:
        raise McpError(text or "the server reports an error without words")
    images = [p for p in parts if isinstance(p, ImagePart)]
    return [text, *images] if images and text else (images or text or None)


def _part(one: Any) -> str | ImagePart:
    kind = getattr(one, "type", "")
    if kind == "text":
        return str(one.text)
    if kind == "image":
        with suppress(ValueError):
            found = image_part(base64.b64decode(one.data))
            if found is not None:
                return found
        return f"[image of a kind that cannot be shown: {one.mime_type}]"
    if kind == "resource":
        text = getattr(one.resource, "text", None)
        return str(text) if text is not None else f"[resource {one.resource.uri}]"
    if kind == "resource_link":
        return f"[resource {one.uri}]"
    return f"[{kind or 'something'} that cannot be shown]"
