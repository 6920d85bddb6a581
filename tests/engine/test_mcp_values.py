"""engine/mcp_values.py, and the paging of engine/mcp.py: what a server sends (B50, B54)."""

from __future__ import annotations

import asyncio
import base64
from types import SimpleNamespace

import pytest

from notebook_agent.core.messages import ImagePart
from notebook_agent.engine import mcp
from notebook_agent.engine.mcp_values import McpError, prefix_of, told_by, value_of, words_of
from notebook_agent.errors import ConfigError

types = pytest.importorskip("mcp.types")

from tests.engine.mcp_server import PNG  # noqa: E402  # after importorskip


def text(words):
    return types.TextContent(type="text", text=words)


def image(data):
    return types.ImageContent(type="image", data=data, mime_type="image/x-odd")


def result(*content, structured=None, error=False):
    return types.CallToolResult(
        content=list(content), structured_content=structured, is_error=error
    )


def resource(**given):
    kind = types.TextResourceContents if "text" in given else types.BlobResourceContents
    return types.EmbeddedResource(type="resource", resource=kind(uri="file:///a.txt", **given))


LINK = types.ResourceLink(type="resource_link", uri="file:///b.txt", name="b")


@pytest.mark.parametrize(
    ("given", "value"),
    [
        (result(), None),
        (result(text("one"), text("two")), "one\ntwo"),
        (result(structured={"é": 1}), '{"é": 1}'),
        (result(text("said"), structured={"n": 1}), "said"),
        (result(resource(text="inside")), "inside"),
        (result(resource(blob="AAAA")), "[resource file:///a.txt]"),
        (result(LINK), "[resource file:///b.txt]"),
        (result(image("not base64!")), "[image of a kind that cannot be shown: image/x-odd]"),
        (result(image("AAAA")), "[image of a kind that cannot be shown: image/x-odd]"),
    ],
)
def test_B50_what_a_server_sends_is_what_the_tool_returns(given, value):
    assert value_of(given) == value


def test_B54_a_part_that_is_unknown_is_named():
    odd = SimpleNamespace(content=[SimpleNamespace(type="hologram"), SimpleNamespace()], structured_content=None, is_error=False)  # fmt: skip
    assert value_of(odd) == "[hologram that cannot be shown]\n[something that cannot be shown]"


def test_a_picture_alone_and_one_with_words():
    picture = image(base64.b64encode(PNG).decode())
    (alone,) = value_of(result(picture))
    assert isinstance(alone, ImagePart)
    words, beside = value_of(result(text("two by three"), picture))
    assert (words, beside) == ("two by three", alone)


def test_an_error_of_a_server_has_words_even_when_it_sends_none():
    with pytest.raises(McpError, match="no luck"):
        value_of(result(text("no luck"), error=True))
    with pytest.raises(McpError, match="without words"):
        value_of(result(error=True))


def test_errors_are_told_in_one_line_by_the_first_inner_one():
    inner = ValueError("first\n  second.")
    assert told_by(ExceptionGroup("g", [ExceptionGroup("h", [inner]), OSError()])) == "first second"
    assert told_by(FileNotFoundError(2, "no", "thing")) == "there is no command thing"
    assert told_by(KeyError()) == "KeyError"


def test_commands_that_cannot_be_read_are_refused():
    with pytest.raises(ConfigError, match="cannot be read"):
        words_of("python 'open")
    for nothing in ("mcp:", [], [""]):
        with pytest.raises(ConfigError, match="a command or an address"):
            words_of(nothing)
    assert prefix_of("", ["--flag"]) == "mcp"


# ---- a server of many tools --------------------------------------------------------------------


class Client:
    """Lists its tools in pages of three."""

    def __init__(self, count, *, endless=False):
        self.count, self.endless, self.pages = count, endless, 0
        self.server_info = SimpleNamespace(name="many")

    async def list_tools(self, cursor="0"):
        self.pages += 1
        at = int(cursor)
        tools = [
            types.Tool(name=f"t{n}", input_schema={"type": "object"})
            for n in range(at, min(at + 3, self.count))
        ]
        more = self.endless or at + 3 < self.count
        return types.ListToolsResult(tools=tools, next_cursor=str(at + 3) if more else None)


def listed(client):
    server = mcp.McpServer("a command")
    server._client = client
    return asyncio.run(server._list())


def test_all_pages_of_a_list_are_read_and_a_list_without_end_is_cut():
    tools = listed(Client(7))
    assert [tool.name for tool in tools] == [f"many_t{n}" for n in range(7)]
    endless = Client(10**9, endless=True)
    assert len(listed(endless)) == 150
    assert endless.pages == 50
    empty = Client(0, endless=True)
    assert listed(empty) == ()
    assert empty.pages == 50


def test_a_thread_of_connections_that_hangs_is_told():
    with pytest.raises(McpError, match=r"did not answer within 0\.05 s"):
        mcp._on_loop(asyncio.sleep(5), 0.05)
