"""Tools of an MCP server, by the official ``mcp`` package (an extra).

A server runs over stdio or answers at an HTTP address. All connections live on one daemon thread
with its own loop: a session may be used from several loops, a connection may not. A tool of a
server is a Tool like any other: its arguments are validated, its time is limited, its result is
cut, a cancel reaches the server; and each call asks for approval, unless that is switched off.

Source: Turn FSM, "ExecutingTools" (B48-B54); notebook, verb ``tools``, D20.
"""

from __future__ import annotations

import asyncio
import atexit
import re
import shlex
import tempfile
import threading
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import AsyncExitStack, suppress
from typing import Any, Final, TypeVar

from notebook_agent.core.text import clean_text
from notebook_agent.engine.mcp_values import (
    ADDRESS,
    McpError,
    clean_name,
    is_closed,
    need_package,
    prefix_of,
    told_by,
    value_of,
    words_of,
)
from notebook_agent.engine.tools import Tool

__all__ = ["McpError", "McpServer", "close_all"]

CONNECT_S: Final = 30.0  # for the handshake and the list of tools
CLOSE_S: Final = 3.0  # for a server to end by itself
_MOST_TOOLS: Final = 500
_MOST_PAGES: Final = 50
_LAST_LINES: Final = 4
_NAME: Final = 64  # characters of a tool's name that every provider takes
_SECRET: Final = re.compile(
    r"(?<=://)[^/@]*@|(?<=[?&])[^=&]*(?:key|token|secret)[^=&]*=[^&]*", re.IGNORECASE
)

T = TypeVar("T")


class McpServer:
    """A connection to one MCP server.

    Args:
        target: A command with its arguments, as one text or as a list; or the http(s) address of
            a server that speaks streamable HTTP.
        name: Prefix of its tools; default what the server calls itself.
        env: Environment variables for a command. Only these and a few harmless ones (PATH, HOME,
            ...) reach it: no keys of this process.
        confirm: Ask the user before each call.
        connect_s: Seconds for the handshake.

    Example:
        >>> McpServer("python -m mcp_server_time")
        <McpServer python -m mcp_server_time: not started>
    """

    def __init__(
        self,
        target: str | Sequence[str],
        *,
        name: str | None = None,
        env: Mapping[str, str] | None = None,
        confirm: bool = True,
        connect_s: float = CONNECT_S,
    ) -> None:
        words = words_of(target)
        self._words = words
        self._address = words[0] if len(words) == 1 and ADDRESS.fullmatch(words[0]) else ""
        self._env = dict(env or {})
        self.confirm = confirm
        self._connect_s = connect_s
        self._given_name = name
        self._client: Any = None
        self._task: asyncio.Task[None] | None = None
        self._stop: asyncio.Event | None = None
        self._log: Any = None
        self._why_ended = self._last_words = ""
        self.name = clean_name(name or "")
        self.tools: tuple[Tool, ...] = ()

    def __repr__(self) -> str:
        state = f"{len(self.tools)} tools" if self.running else "not started"
        return f"<McpServer {self.title}: {state}>"

    @property
    def title(self) -> str:
        """Command or address, without what may be a secret."""
        return _SECRET.sub("", self._address) or shlex.join(self._words)

    @property
    def running(self) -> bool:
        """Whether the connection stands."""
        ending = self._stop is None or self._stop.is_set()
        return (
            not ending
            and self._task is not None
            and not self._task.done()
            and self._client is not None
        )

    def start(self) -> tuple[Tool, ...]:
        """Connect and list the tools; blocks, may be called from any thread.

        Returns:
            The tools, named ``server_tool``.

        Raises:
            ConfigError: The ``mcp`` package is not installed.
            McpError: The server does not start, answer or list its tools.
        """
        if self.running:
            return self.tools
        need_package()
        with _lock:
            if self not in _servers:
                _servers.append(self)
        try:
            self.tools = _on_loop(self._begin(), self._connect_s + CLOSE_S)
        except BaseException:
            with suppress(ValueError):
                _servers.remove(self)
            raise
        return self.tools

    def close(self) -> None:
        """End the connection; a server that was started here ends."""
        if self._task is not None and not self._task.done():
            with suppress(FutureTimeout, McpError):
                _on_loop(self._finish(), CLOSE_S * 2)
        self.tools = ()
        with suppress(ValueError):
            _servers.remove(self)

    # --- on the thread of the connections

    async def _begin(self) -> tuple[Tool, ...]:
        if self._task is not None and not self._task.done():  # the old connection still ends
            await self._finish()
        ready: asyncio.Future[tuple[Tool, ...]] = asyncio.get_running_loop().create_future()
        self._stop = asyncio.Event()
        self._why_ended = self._last_words = ""
        self._task = asyncio.create_task(self._live(ready), name=f"mcp {self.title}")
        try:
            return await asyncio.wait_for(asyncio.shield(ready), self._connect_s)
        except TimeoutError:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=CLOSE_S)
            raise McpError(self._told(f"did not answer within {self._connect_s:g} s")) from None

    async def _live(self, ready: asyncio.Future[tuple[Tool, ...]]) -> None:
        """Own the connection: it is opened and closed in this one task."""
        assert self._stop is not None
        try:
            async with AsyncExitStack() as stack:
                self._client = await self._open(stack)
                tools = await self._list()
                if not ready.done():
                    ready.set_result(tools)
                await self._stop.wait()
        except Exception as error:  # noqa: BLE001  # any library's error, told in our words
            self._why_ended = told_by(error)
            if not ready.done():
                ready.set_exception(McpError(self._told(self._why_ended)))
        finally:
            self._client = None
            if self._log is not None:
                self._last_words = self._last()
                self._log.close()

    async def _finish(self) -> None:
        assert self._stop is not None
        assert self._task is not None
        self._stop.set()
        _, waiting = await asyncio.wait({self._task}, timeout=CLOSE_S)
        if waiting:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=CLOSE_S)

    async def _open(self, stack: AsyncExitStack) -> Any:
        import mcp  # noqa: PLC0415  # optional, slow to import

        return await stack.enter_async_context(mcp.Client(self._transport(), cache=None))

    def _transport(self) -> Any:
        from mcp.client.stdio import (  # noqa: PLC0415  # optional, slow to import
            StdioServerParameters,
            stdio_client,
        )
        from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415  # as above

        if self._address:
            return streamable_http_client(self._address)
        # A kernel's stderr is no file. The server's last words are shown when it fails.
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115  # lives as long as the server
        given = StdioServerParameters(
            command=self._words[0], args=list(self._words[1:]), env=self._env or None
        )
        return stdio_client(given, errlog=self._log)

    async def _list(self) -> tuple[Tool, ...]:
        found: list[Any] = []
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            page = await self._client.list_tools(**({} if cursor is None else {"cursor": cursor}))
            found += page.tools
            cursor = page.next_cursor
            if not cursor or len(found) > _MOST_TOOLS:
                break
        if not self.name:
            told = self._client.server_info
            self.name = self._unused(prefix_of(getattr(told, "name", "") or "", self._words))
        taken: set[str] = set()
        by_name: dict[str, Any] = {}
        for tool in found[:_MOST_TOOLS]:
            by_name.setdefault(str(tool.name), tool)
        return tuple(
            self._made(tool, self._tool_name(told, taken)) for told, tool in by_name.items()
        )

    def _tool_name(self, told: str, taken: set[str]) -> str:
        """A name that every provider takes and no other tool of the server has."""
        whole = clean_name(f"{self.name}_{clean_name(told) or 'tool'}")
        name, n = whole[:_NAME], 2
        while name in taken:
            end = f"_{n}"
            name, n = whole[: _NAME - len(end)] + end, n + 1
        taken.add(name)
        return name

    def _unused(self, name: str) -> str:
        """The name, with a number when another server has it."""
        taken = {server.name for server in _servers if server is not self}
        names = (name, *(f"{name}{n}" for n in range(2, len(taken) + 3)))
        return next(one for one in names if one not in taken)

    def _made(self, told: Any, called: str) -> Tool:
        name = str(told.name)

        async def call(**arguments: Any) -> Any:
            return await self._call(name, arguments)

        schema = told.input_schema
        return Tool(
            called,
            call,
            clean_text(str(told.description or getattr(told, "title", None) or name)),
            schema if isinstance(schema, Mapping) else None,
            confirm=self.confirm,
        )

    async def _call(self, name: str, arguments: dict[str, Any]) -> Any:
        """A call from the engine's loop; its cancellation cancels the call on the server."""
        if not self.running:
            again = f"%agent tools add mcp:{self.title}"
            raise McpError(
                f"The MCP server {self.name} has ended. {self._last()}\nStart it with:  {again}"
            )
        asked = asyncio.run_coroutine_threadsafe(self._ask(name, arguments), _the_loop())
        return value_of(await asyncio.wrap_future(asked))

    async def _ask(self, name: str, arguments: dict[str, Any]) -> Any:
        """The call, given up when the connection ends under it."""
        assert self._task is not None
        assert self._stop is not None
        call = asyncio.ensure_future(self._client.call_tool(name, arguments))
        try:
            await asyncio.wait({call, self._task}, return_when=asyncio.FIRST_COMPLETED)
            if call.done():
                return call.result()
            raise McpError(f"The MCP server {self.name} ended during the call. {self._last()}")
        except McpError:
            raise
        except Exception as error:  # any library's error, told in our words
            why = told_by(error)
            if is_closed(error):
                self._why_ended = why
                self._stop.set()  # nothing more comes: the connection's task cleans up
                why = f"it ended during the call. {self._last()}"
            raise McpError(f"The MCP server {self.name}: {why}".rstrip()) from error
        finally:
            if not call.done():
                call.cancel()
                await asyncio.wait({call}, timeout=CLOSE_S)

    def _told(self, problem: str) -> str:
        what = "reached" if self._address else "used"
        return f"The MCP server cannot be {what}: {self.title}\n{problem}. {self._last()}".rstrip()

    def _last(self) -> str:
        """The server's last words on stderr."""
        if self._log is None or self._log.closed:
            return self._last_words
        with suppress(OSError, ValueError):
            self._log.seek(0)
            lines = [line.strip() for line in self._log.read()[-4000:].splitlines() if line.strip()]
            if lines:
                return clean_text("It said:  " + " / ".join(lines[-_LAST_LINES:])[:600])
        return ""


# --- one thread, one loop, for all connections

_lock: Final = threading.Lock()
_servers: Final[list[McpServer]] = []
_loop: asyncio.AbstractEventLoop | None = None


def _the_loop() -> asyncio.AbstractEventLoop:
    global _loop  # one per process, made at the first server
    with _lock:
        if _loop is None or _loop.is_closed():
            _loop = asyncio.new_event_loop()
            threading.Thread(
                target=_loop.run_forever, name="notebook-agent-mcp", daemon=True
            ).start()
            atexit.register(close_all)
        return _loop


def _on_loop(work: Coroutine[Any, Any, T], timeout_s: float) -> T:
    asked: Future[T] = asyncio.run_coroutine_threadsafe(work, _the_loop())
    try:
        return asked.result(timeout_s)
    except FutureTimeout:
        asked.cancel()
        raise McpError(f"An MCP server did not answer within {timeout_s:g} s.") from None


def close_all() -> None:
    """End every server that was started; also when the process ends."""
    for server in tuple(_servers):
        server.close()
