"""One tool call, from its approval to its recorded result.

The order is fixed: look up, validate, ask, write the ``started`` row, dispatch, write the
result's row. Nothing starts without its row (B75).

Source: Turn FSM, "ExecutingTools" (B50-B54, B75, D20); L114, L118, L123.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import inspect
import io
import json
import logging
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from notebook_agent.core import agent_events as events
from notebook_agent.core.messages import ImagePart, ToolCallPart, ToolResultPart
from notebook_agent.core.text import clean_text
from notebook_agent.engine.cancel import CancelSignal, DeadlineReached, race
from notebook_agent.engine.clock import Surroundings
from notebook_agent.engine.observers import ObserverHub, ToolPost, ToolPre
from notebook_agent.engine.store.base import RunStore, StoreBusy, ToolExecution
from notebook_agent.engine.tools.output import to_output, truncate_output
from notebook_agent.engine.tools.tool import Tool
from notebook_agent.engine.tools.workers import (
    Done,
    ToolCancel,
    TooManyAbandoned,
    as_call,
    capture,
    current_sink,
    run_async_tool,
    run_sync_tool,
)
from notebook_agent.errors import Cancelled, StoreError

__all__ = ["INTERRUPTED", "Approve", "Batch", "CallRunner", "ErrorAsIs", "Finished", "RunOnMain"]

log = logging.getLogger("notebook_agent.tools")

RunOnMain = Callable[[Callable[[], Any]], Awaitable[Any]]
Approve = Callable[[ToolCallPart], Awaitable[bool | None]]
Emit = Callable[[events.AgentEvent], None]

INTERRUPTED: Final = "interrupted; may have run"
BUSY_WAIT_S: Final = 0.02  # between two tries on a busy store
CANCEL_LIMIT_S: Final = 0.3  # the same after a cancel: the user waits for the cell to end
BUSY_LIMIT_S: Final = 30.0  # after this a busy store is a broken one


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Which turn's calls these are, and the policy's default time-out in seconds."""

    run_id: str
    session_id: str
    turn: int
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Finished:
    """A call's end: the part for the model, its status (B53), and the result's hash."""

    result: ToolResultPart
    status: str
    result_hash: str
    stdout: str = ""


class ErrorAsIs(Exception):
    """Raised by a tool whose words are the error result as it stands: a recorded one, again."""


@dataclass(frozen=True, slots=True)
class _Raw:
    """What the dispatch came to, before it is made a result."""

    status: str
    text: str
    images: tuple[ImagePart, ...] = ()


class CallRunner:
    """Runs single calls for the ToolRuntime; holds what all of them share."""

    def __init__(
        self,
        *,
        hub: ObserverHub,
        emit: Emit,
        cancel: CancelSignal,
        store: RunStore | None,
        surroundings: Surroundings,
        run_on_main: RunOnMain | None,
        approve: Approve | None,
    ) -> None:
        self.hub = hub
        self.emit = emit
        self.cancel = cancel
        self.store = store
        self.surroundings = surroundings
        self.run_on_main = run_on_main
        self.approve = approve

    async def answer(self, call: ToolCallPart, batch: Batch, status: str, text: str) -> Finished:
        """A call that is not dispatched: its row and event, and an error result."""
        row = self._row(call, batch, status, text)
        return await self._finish(row, _Raw(status, text), "", dispatched=False)

    async def interrupted(self, old: ToolExecution) -> Finished:
        """Close the row of a call whose end a kill or a cancel left unknown (B75)."""
        return await self._finish(old, _Raw("interrupted", INTERRUPTED), "", dispatched=False)

    async def run(
        self,
        tool: Tool,
        call: ToolCallPart,
        batch: Batch,
        args: list[Any],
        kwargs: dict[str, Any],
        hint: Callable[[str], str],
    ) -> Finished:
        """Dispatch a valid, allowed call.

        Args:
            hint: Called with the result's hash before observers are told; gives the loop
                detector's words, "" for none.

        Raises:
            Cancelled: The run was cancelled; the call's row says so.
            StoreError: A row could not be written: fail-stop.
        """
        self.cancel.raise_if_cancelled()
        row = self._row(call, batch, "started", "")
        await self._write(row, start=True)
        self.emit(
            events.ToolExecutionStarted(
                run_id=batch.run_id,
                timestamp=self.surroundings.wall(),
                call_id=call.id,
                tool_name=call.name,
            )
        )
        self.hub.fire(
            "on_tool_pre", ToolPre(batch.turn, call.name, call.id, copy.deepcopy(call.input))
        )
        began = self.surroundings.now()
        with capture() as printed:
            try:
                raw = await self._dispatch(tool, batch, args, kwargs)
            except (Cancelled, asyncio.CancelledError):
                row = replace(row, duration_s=self.surroundings.now() - began)
                given_up = _Raw("cancelled", INTERRUPTED)
                await self._finish(row, given_up, printed.getvalue())
                raise
        row = replace(row, duration_s=self.surroundings.now() - began)
        return await self._finish(row, raw, printed.getvalue(), hint=hint)

    async def allowed(self, call: ToolCallPart) -> str | None:
        """Ask the user (D20).

        Returns:
            None when allowed, else why not. Nobody to ask, no answer, or a broken question is
            no: the default is to deny.
        """
        if self.approve is None:
            return "needs the user's approval and nobody can be asked here"
        ask = self.approve

        async def question() -> bool | None:
            return await ask(call)

        try:
            answer = await race(self.cancel, None, question)
        except Cancelled:
            if self.cancel.is_cancelled():
                raise
            answer = None
        except Exception:
            log.exception("asking for the approval of %s failed; it is denied", call.name)
            answer = None
        if answer is True:
            return None
        return "the user did not answer" if answer is None else "the user did not allow it"

    # --- dispatch -----------------------------------------------------------------------

    async def _dispatch(
        self, tool: Tool, batch: Batch, args: list[Any], kwargs: dict[str, Any]
    ) -> _Raw:
        timeout_s = batch.timeout_s if tool.timeout_s is None else tool.timeout_s
        token = ToolCancel()

        async def work() -> Done:
            if tool.main:
                return await self._on_main(tool, token, args, kwargs)
            if tool.is_async:
                return await run_async_tool(tool.name, lambda: _made(tool, args, kwargs), token)
            done = await run_sync_tool(
                tool.name, lambda: _converted(tool.fn(*args, **kwargs)), token
            )
            if done.error is None and _is_awaitable(done.value):
                # a plain function that made a coroutine: it runs on the loop
                return await run_async_tool(tool.name, lambda: _awaited(done.value), token)
            return done

        try:
            done = await race(self.cancel, timeout_s, work)
        except DeadlineReached:
            return _Raw("timeout", f"Tool {tool.name!r} timed out after {timeout_s:g} s.")
        except TooManyAbandoned as error:
            return _Raw("error", f"Tool {tool.name!r} was not run: {error}")
        if done.error is not None:
            if isinstance(done.error, Cancelled) and self.cancel.is_cancelled():
                raise Cancelled
            if isinstance(done.error, ErrorAsIs):
                return _Raw("error", str(done.error))
            return _Raw("error", f"Tool {tool.name!r} failed: {_error_text(done.error)}")
        text, images = done.value
        return _Raw("ok", text, images)

    async def _on_main(
        self, tool: Tool, token: ToolCancel, args: list[Any], kwargs: dict[str, Any]
    ) -> Done:
        """In the notebook's thread, between ticks; without a notebook in the main thread."""

        sink = current_sink()

        def body() -> Any:
            token.raise_if_cancelled()  # given up before the notebook came round to it
            with as_call(token, sink):
                value = tool.fn(*args, **kwargs)
            return _awaited_as(token, sink, value) if _is_awaitable(value) else value

        if self.run_on_main is not None:
            run_on_main = self.run_on_main
            return await run_async_tool(tool.name, lambda: _via(run_on_main, body), token)
        if tool.is_async:
            return await run_async_tool(tool.name, lambda: _made(tool, args, kwargs), token)
        if threading.current_thread() is threading.main_thread():
            # A script: the loop's thread is the main one. It cannot be timed out.
            try:
                return Done(_converted(body()))
            except Exception as error:  # noqa: BLE001  # any failure of a tool is its result
                return Done(error=error)
        return await run_sync_tool(tool.name, lambda: _converted(body()), token)

    # --- rows, events, observers ----------------------------------------------------------

    def _row(self, call: ToolCallPart, batch: Batch, status: str, result: str) -> ToolExecution:
        given = call.raw if call.input is None else json.dumps(call.input, ensure_ascii=False)
        return ToolExecution(
            id=self.surroundings.new_id("execution"),
            session_id=batch.session_id,
            run_id=batch.run_id,
            turn=batch.turn,
            call_id=call.id,
            tool_name=call.name,
            arguments=clean_text(given),
            status=status,
            result=result,
            created_at=self.surroundings.wall(),
        )

    async def _finish(
        self,
        row: ToolExecution,
        raw: _Raw,
        printed: str,
        *,
        dispatched: bool = True,
        hint: Callable[[str], str] | None = None,
    ) -> Finished:
        text = truncate_output(clean_text(raw.text))
        bad = raw.status != "ok"
        row = replace(
            row,
            status=raw.status,
            result=text,
            is_error=bad,
            duration_s=row.duration_s or 0.0,
            images=raw.images,
        )
        await self._write(row, start=False)
        result = ToolResultPart(row.call_id, row.tool_name, text, bad, raw.images)
        mark = result_hash(result)
        shown = truncate_output(clean_text(printed))
        self.emit(
            events.ToolExecutionFinished(
                run_id=row.run_id,
                timestamp=self.surroundings.wall(),
                call_id=row.call_id,
                tool_name=row.tool_name,
                result=text,
                is_error=bad,
                duration_s=row.duration_s or 0.0,
                status=raw.status,
            )
        )
        words = hint(mark) if hint is not None else ""
        if dispatched:
            self.hub.fire(
                "on_tool_post",
                ToolPost(
                    row.turn, row.tool_name, row.call_id, text, mark, bad,
                    row.duration_s or 0.0, words, shown,
                ),
            )  # fmt: skip
        return Finished(result, raw.status, mark, shown)

    async def _write(self, row: ToolExecution, *, start: bool) -> None:
        """Write a row; wait while another process writes.

        A ``started`` row gives way to a cancel at once. A result's row is tried a little longer;
        when it cannot be written the call's end is unknown, which is what its row then says (B75).
        """
        if self.store is None:
            return
        write = self.store.start_tool if start else self.store.finish_tool
        waited = 0.0
        while True:
            try:
                write(row)
            except StoreBusy as error:
                if not start and self.cancel.is_cancelled() and waited >= CANCEL_LIMIT_S:
                    log.warning("the store is busy; the row of %s stays started", row.tool_name)
                    return
                if waited >= BUSY_LIMIT_S:
                    raise StoreError(
                        f"The store was busy for {waited:.0f} s; {row.tool_name}'s row is not "
                        f"written.\n{error}"
                    ) from error
                if start:
                    self.cancel.raise_if_cancelled()
                await self.surroundings.sleep(BUSY_WAIT_S)
                waited += BUSY_WAIT_S
            else:
                return


def result_hash(result: ToolResultPart) -> str:
    """16 hexadecimal digits over text, error flag and images."""
    digest = hashlib.sha256(f"{result.is_error} {result.output}".encode("utf-8", "replace"))
    for image in result.images:
        digest.update(image.source.encode("utf-8", "replace"))
    return digest.hexdigest()[:16]


def _is_awaitable(value: Any) -> bool:
    return inspect.isawaitable(value)  # asyncio.iscoroutine() takes a plain generator for one


def _converted(value: Any) -> Any:
    """The result as text and images, made where the tool ran: a big frame takes its time."""
    return value if _is_awaitable(value) else to_output(value)


async def _awaited_as(token: ToolCancel, sink: io.StringIO | None, value: Awaitable[Any]) -> Any:
    with as_call(token, sink):
        return await value


async def _awaited(value: Awaitable[Any]) -> Any:
    return to_output(await value)


async def _made(tool: Tool, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return to_output(await tool.fn(*args, **kwargs))


async def _via(run_on_main: RunOnMain, body: Callable[[], Any]) -> Any:
    value = await run_on_main(body)
    return to_output(await value if _is_awaitable(value) else value)


def _error_text(error: BaseException) -> str:
    try:
        words = str(error)
    except Exception:  # noqa: BLE001  # a foreign __str__
        words = ""
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
