"""An MCP server over stdio without any library: its tools are odd, and legal."""

from __future__ import annotations

import json
import sys

OBJECT = {"type": "object"}
TOOLS = [
    {"name": "a.b", "inputSchema": OBJECT},
    {"name": "a b", "inputSchema": OBJECT},
    {"name": "найти", "inputSchema": OBJECT},
    {"name": "搜索", "inputSchema": OBJECT},
    {"name": "x" * 90 + "1", "inputSchema": OBJECT},
    {"name": "x" * 90 + "2", "inputSchema": OBJECT},
    {"name": "a b", "description": "the same again", "inputSchema": OBJECT},
]


def answer(method: str, params: dict) -> dict | None:
    """The result of a request, None for one that is not known."""
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "odd", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": f"called {params['name']}"}]}
    return None


for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        result = answer(asked["method"], asked.get("params") or {})
        reply = {"result": result} if result else {"error": {"code": -32601, "message": "no"}}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **reply}), flush=True)
