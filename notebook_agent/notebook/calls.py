"""A tool call on one line, for reading.

Source: notebook side, "The panel" (tool calls).
"""

from __future__ import annotations

import json
from typing import Final

from notebook_agent.core.text import visible
from notebook_agent.notebook.tables import shorten

__all__ = ["call_line"]

LINE_LIMIT: Final = 200


def call_line(name: str, arguments: str) -> str:
    """``name(key="value", n=3)``; arguments that are no JSON object stay as written.

    Example:
        >>> call_line("find", '{"q": "ice", "n": 3}')
        'find(q="ice", n=3)'
    """
    inner = arguments.strip()
    if len(inner) <= 20_000:
        try:
            data = json.loads(inner) if inner else {}
        except (ValueError, RecursionError):
            data = None
        if isinstance(data, dict):
            inner = ", ".join(f"{k}={json.dumps(v, ensure_ascii=False)}" for k, v in data.items())
    return visible(shorten(f"{shorten(name, 80)}({shorten(inner, LINE_LIMIT)})", LINE_LIMIT))
