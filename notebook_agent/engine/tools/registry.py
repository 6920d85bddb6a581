"""ToolRegistry: the tools a model is offered.

Source: LLM turn, "Building the request" (L12, L21).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from notebook_agent.core.request import ToolConstraint, ToolSchema
from notebook_agent.engine.tools.tool import Tool, as_tool

__all__ = ["ToolRegistry"]


class ToolRegistry:
    """Tools by name. A later tool of the same name replaces the earlier one: a cell that
    edits its tool may be run again (L21).

    Safe to read on the engine's thread while a cell registers: every change makes a new map.
    """

    def __init__(self, tools: Iterable[Tool | Callable[..., Any]] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._schemas: dict[ToolConstraint | None, tuple[tuple[ToolSchema, ...], str]] = {}
        for one in tools:
            self.register(one)

    def register(self, thing: Tool | Callable[..., Any]) -> Tool:
        """Add or replace a tool; a plain function goes through ``@tool``.

        Raises:
            ConfigError: It cannot be a tool.
        """
        made = as_tool(thing)
        self._tools = {**self._tools, made.name: made}
        self._schemas = {}
        return made

    def remove(self, name: str) -> bool:
        """Take a tool away; False when there is none of that name."""
        if name not in self._tools:
            return False
        self._tools = {key: one for key, one in self._tools.items() if key != name}
        self._schemas = {}
        return True

    def get(self, name: str) -> Tool | None:
        """The tool of that name, None when there is none."""
        return self._tools.get(name)

    def names(self) -> tuple[str, ...]:
        """All names, sorted."""
        return tuple(sorted(self._tools))

    def schemas(self, constraint: ToolConstraint | None = None) -> tuple[ToolSchema, ...]:
        """All schemas sorted by name, so that a request does not depend on cell order.

        Args:
            constraint: The request's tool constraint (L7).

        Returns:
            The same tuple until a tool changes; empty when there are none.
        """
        return self._made(constraint)[0]

    def key(self, constraint: ToolConstraint | None = None) -> str:
        """Digest of the sorted schemas: what the overhead is cached under (L21)."""
        return self._made(constraint)[1]

    def _made(self, constraint: ToolConstraint | None) -> tuple[tuple[ToolSchema, ...], str]:
        tools, cache = self._tools, self._schemas
        made = cache.get(constraint)
        if made is None:
            schemas = tuple(tools[name].schema(constraint) for name in sorted(tools))
            made = cache[constraint] = (schemas, _digest(schemas))
        return made

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __len__(self) -> int:
        return len(self._tools)

    def __iter__(self) -> Iterator[Tool]:
        return iter([self._tools[name] for name in sorted(self._tools)])


def _digest(schemas: tuple[ToolSchema, ...]) -> str:
    text = json.dumps(
        [[one.name, one.description, one.parameters] for one in schemas],
        sort_keys=True,
        ensure_ascii=True,
        default=str,
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]
