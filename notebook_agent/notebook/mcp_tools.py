"""``%agent tools add mcp:...``: tools of MCP servers in a session.

Source: notebook side, commands (``tools``), D20.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from notebook_agent.engine.mcp import McpServer
from notebook_agent.engine.tools import ToolRegistry

__all__ = ["MCP", "add_server", "remove_server"]

MCP = "mcp:"


def add_server(
    servers: MutableMapping[str, McpServer],
    registry: ToolRegistry,
    target: str,
    *,
    confirm: bool = True,
) -> McpServer:
    """Start a server, or take the one that runs, and register its tools.

    Args:
        servers: Those of this kernel, by command or address.
        registry: The session's tools.
        target: ``mcp:COMMAND ...`` or ``mcp:http://...``.
        confirm: Each call asks for approval.

    Raises:
        ConfigError: No command, or the package is not installed.
        McpError: The server cannot be used.
    """
    fresh = McpServer(target.removeprefix(MCP), confirm=confirm)
    server = servers.get(fresh.title)
    if server is None or server.confirm is not confirm:
        if server is not None:
            _forget(servers, registry, server)
        server = fresh
    for tool in server.start():
        registry.register(tool)
    servers[server.title] = server
    return server


def remove_server(
    servers: MutableMapping[str, McpServer], registry: ToolRegistry, name: str
) -> bool:
    """End a server by its command, address or name, and take its tools away.

    Returns:
        False when there is none of that name.
    """
    wanted = McpServer(name.removeprefix(MCP)).title if name.startswith(MCP) else name
    for server in list(servers.values()):
        if wanted in (server.title, server.name):
            _forget(servers, registry, server)
            return True
    return False


def _forget(servers: MutableMapping[str, Any], registry: ToolRegistry, server: McpServer) -> None:
    for tool in server.tools:
        registry.remove(tool.name)
    server.close()
    servers.pop(server.title, None)
