"""An MCP server for tests, by the official package: ``python mcp_server.py [PORT]``.

Without a port it speaks stdio. Every way a tool can go wrong has a tool.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import anyio
from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000002000000030802000000368849d60000000d49444154789c63f8cfc0"
    "c0f01f0005000100ff89993d1d0000000049454e44ae426082"
)
server = MCPServer("mcp-server-test")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def environment() -> dict[str, str]:
    """Names of the environment."""
    return dict(os.environ)


@server.tool()
async def slow(seconds: float, note: str) -> str:
    """Wait; the file ``note`` says how it ended."""
    try:
        await anyio.sleep(seconds)
    except anyio.get_cancelled_exc_class():
        Path(note).write_text("cancelled")
        raise
    Path(note).write_text("done")
    return "awake"


@server.tool()
def big(lines: int) -> str:
    """Many lines."""
    return "\n".join(f"line {i}" for i in range(lines))


@server.tool()
def picture():
    """A picture with words."""
    return ["two by three", Image(data=PNG, format="png")]


@server.tool()
def boom() -> str:
    """Fail."""
    raise ToolError("no luck today")


@server.tool()
def die() -> str:
    """End the whole server."""
    print("the server falls over", file=sys.stderr, flush=True)
    os._exit(3)


@server.tool()
def pid() -> int:
    """The server's process."""
    time.sleep(0)
    return os.getpid()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run("stdio")
