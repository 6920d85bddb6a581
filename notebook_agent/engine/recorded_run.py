"""A recorded run as a model: it says again what the run file holds.

Nothing leaves the process: replies come from the file's messages.

Source: Turn FSM, "Determinism" (B59); LLM turn, "Two paths, one entry point" (L8).
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from notebook_agent.core import agent_events as ev
from notebook_agent.core import events as e
from notebook_agent.core import outcomes as o
from notebook_agent.core.messages import Message, TextPart, ToolCallPart
from notebook_agent.core.request import RequestOptions, StreamRequest
from notebook_agent.core.response import ChatResponse, Usage
from notebook_agent.core.session import RunEventRecord
from notebook_agent.core.trim import SUMMARY_PREFIX
from notebook_agent.core.turn_fsm import TurnState
from notebook_agent.engine.cancel import CancelSignal
from notebook_agent.engine.failures import reworded
from notebook_agent.engine.store.run_file import RunBundle
from notebook_agent.errors import AgentError, ErrorKind, ProviderError
from notebook_agent.providers.base import Capabilities

_SOON_S: Final = 1e-4  # seconds before a rate limit is tried again

__all__ = [
    "Player",
    "RecordedCall",
    "Recording",
    "as_final",
    "calls_of",
    "pass_of",
]


@dataclass(slots=True, kw_only=True)
class RecordedCall:
    """One visit of CALLING_MODEL: what came of it, and the attempts that failed before.

    ``response`` None and ``error`` None = it was cancelled. ``failed`` are the attempts that
    another one followed; ``rescue`` is the last of them when the rescue saved the turn.
    ``wait_s`` until the first fragment, ``talk_s`` for the rest, in seconds as recorded.
    """

    turn: int
    response: ChatResponse | None = None
    error: AgentError | None = None
    failed: deque[ev.AttemptFailed] = field(default_factory=deque)
    rescue: ev.AttemptFailed | None = None
    partial_text: str = ""
    wait_s: float = 0.0
    talk_s: float = 0.0

    @property
    def retries(self) -> int:
        """Attempts after the first."""
        return len(self.failed)


def calls_of(bundle: RunBundle) -> list[RecordedCall]:
    """The model calls of a run in the order they were made."""
    messages = {m.message.id: m.message for m in bundle.messages if m.message is not None}
    served = {turn.turn: turn for turn in bundle.run.turns}
    partial = {one.turn.turn: one.turn.output for one in bundle.run.unserved}
    failures = [event for event in bundle.events if isinstance(event, ev.AttemptFailed)]
    calls: list[RecordedCall] = []
    for record in reversed(bundle.records):
        if record.state is not TurnState.CALLING_MODEL or record.outcome is None:
            continue
        call = RecordedCall(turn=record.turn)
        match record.outcome:
            case o.ModelResponse(response=response):
                row = served.get(record.turn)
                said = messages.get(response.message.id)
                if said is None:  # a file that was cut: the trail has the text
                    said = Message.assistant("" if row is None else row.output)
                call.response = replace(response, message=said)
                if row is not None:
                    call.wait_s = row.ttft_s or 0.0
                    call.talk_s = max((row.duration_s or 0.0) - call.wait_s, 0.0)
            case o.ContextOverBudget():
                words = "the prompt is too long (recorded)"
                call.error = ProviderError(ErrorKind.BAD_REQUEST, words, status=400, overflow=True)
            case o.ProviderError(error=error):
                call.error = error
                call.partial_text = partial.get(record.turn, "")
            case _:
                call.partial_text = partial.get(record.turn, "")
        began = min((event.order for event in record.events), default=0)
        own = [f for f in failures if f.turn == record.turn and f.order >= began]
        failures = [f for f in failures if f not in own]
        _take_attempts(call, own)
        calls.append(call)
    calls.reverse()  # a turn's last call takes what came after it began, an earlier one the rest
    return calls


def _take_attempts(call: RecordedCall, failures: Sequence[ev.AttemptFailed]) -> None:
    """The failed attempts of this call: those that another one followed, of the ladder or of the
    router, and the one that the rescue followed."""
    own = list(failures)
    if own and call.response is not None and call.response.rescued:
        call.rescue = own.pop()
    elif own and call.response is None and own[-1].next_step != "retry":
        own.pop()  # the call's own end
    call.failed.extend(own)


@dataclass(slots=True, kw_only=True)
class RecordedPass:
    """A compaction pass: the summary that was stored, None when none was, and what each request
    to the summariser used."""

    text: str | None = None
    spent: deque[Usage] = field(default_factory=deque)

    def reply(self) -> ChatResponse:
        """The summariser's next reply. A history too long for one request is summarised in
        pieces: only the last reply is in the log, and it is what the last piece must give again.

        Raises:
            AgentError: It gave none.
        """
        usage = self.spent.popleft() if self.spent else None
        if self.text is None and usage is None:
            raise AgentError("The recording has no summary here.")
        refused = "notes" if self.spent else ""  # the last one was not stored (P05)
        said = refused if self.text is None else self.text
        return ChatResponse(Message.assistant(said), usage=usage)


def pass_of(bundle: RunBundle, record: RunEventRecord | None) -> RecordedPass:
    """The pass that a record tells of."""
    found = RecordedPass()
    if record is None:
        return found
    used = (
        Usage.from_json(event.usage)
        for event in record.events
        if isinstance(event, ev.UsageRecorded) and event.purpose == "summary"
    )
    found.spent.extend(usage for usage in used if usage is not None)
    if isinstance(record.outcome, o.CompactionTriggered):
        wanted = record.outcome.result.get("summary_id")
        said = {m.message.id: m.message for m in bundle.messages if m.message is not None}
        if wanted in said:
            found.text = said[wanted].text_content().removeprefix(SUMMARY_PREFIX)
    return found


@dataclass(slots=True, kw_only=True)
class Recording:
    """What the players of one run share.

    Attributes:
        calls: Still to be served.
        summary: The compaction pass that is under way, None while there is none.
        cancel: Fired where the recorded run was stopped.
        sleep: ``await sleep(seconds)``.
        speed: 1.0 = the recorded pace, 2.0 = twice as fast, None = without waiting.
        router: The router owns the transport's retries: each of its tries is one attempt, and
            only a rate limit is tried again inside it (3.3 #1).
    """

    calls: deque[RecordedCall]
    cancel: CancelSignal
    sleep: Callable[[float], Awaitable[Any]]
    summary: RecordedPass | None = None
    speed: float | None = None
    router: bool = False

    def failure(self, failed: ev.AttemptFailed) -> ProviderError:
        """An attempt's failure, of a kind that has the same step after it again."""
        if self.router and failed.next_step == "retry":
            return ProviderError(
                ErrorKind.RATE_LIMITED, failed.cause, status=429, retry_after=_SOON_S
            )
        return ProviderError(ErrorKind.TRANSPORT, failed.cause)

    def current(self) -> RecordedCall:
        """The call that is being served.

        Raises:
            AgentError: There is none left.
        """
        if not self.calls:
            raise AgentError("The recording has no further reply: the run went another way.")
        return self.calls[0]

    async def wait(self, seconds: float) -> None:
        """A recorded pause at the speed asked for."""
        if self.speed is not None and seconds > 0:
            await self.sleep(seconds / self.speed)

    async def end(self, call: RecordedCall) -> None:
        """End a call that was not served: its error, or the user's stop.

        Raises:
            AgentError: As recorded.
        """
        self.calls.popleft()
        if call.error is not None:
            raise as_final(call.error)
        self.cancel.cancel()
        await self.sleep(3600.0)  # the cancel ends this wait


class Player:
    """A model client that serves the calls of a recording, one after the other.

    Args:
        name: ``provider:name`` it stands for.
        recording: What to serve; several players may share it.
        window: Tokens of the recorded model's window, None when unknown.
    """

    requires_network = False

    def __init__(self, name: str, recording: Recording, *, window: int | None = None) -> None:
        provider, colon, bare = name.partition(":")
        self.provider, self._name = (provider, bare) if colon else ("recorded", name)
        self._recording = recording
        self._window = window

    def model(self) -> str:
        """The bare model name."""
        return self._name

    def capabilities(self) -> Capabilities:
        """Whatever was asked was possible then; the window is the recorded one."""
        return Capabilities(
            tool_calling=True,
            parallel_tool_calls=True,
            json_schema=True,
            json_object=True,
            vision=True,
            thinking=True,
            streaming_usage=True,
            context_window=self._window,
            source="recording",
        )

    async def stream_messages_with_options(
        self, request: StreamRequest, options: RequestOptions
    ) -> AsyncGenerator[e.StreamEvent, None]:
        """The next attempt of the recorded call, its failure included.

        Raises:
            AgentError: The attempt failed then, or the recording has no further reply.
        """
        del request, options  # what was asked is compared by the records, not here
        recording = self._recording
        call = recording.current()
        failed = call.failed.popleft() if call.failed else call.rescue
        if failed is not None or call.response is None:
            partial = call.partial_text if failed is None else failed.partial_text
            began = bool(partial) or (failed is not None and failed.began)
            for event in _text_lane(0, TextPart(partial)) if began else ():
                if isinstance(event, e.IndexedDelta):
                    await recording.wait(call.talk_s / 8)
                if not isinstance(event, e.PartStop):
                    yield event
            if failed is not None:
                raise recording.failure(failed)
            await recording.end(call)
        assert call.response is not None
        recording.calls.popleft()
        await recording.wait(call.wait_s)
        events = list(_reply_events(call.response))
        for event in events:
            if isinstance(event, e.IndexedDelta):
                await recording.wait(call.talk_s / len(events))
            yield event

    async def create_message_with_options(
        self, request: StreamRequest, options: RequestOptions
    ) -> ChatResponse:
        """The recorded reply in one piece: an unstreamed turn, a rescue, or a summary.

        Raises:
            AgentError: The call failed then, or the recording has no further reply.
        """
        del request, options
        recording = self._recording
        if recording.summary is not None:
            return recording.summary.reply()
        call = recording.current()
        if call.failed:  # unstreamed, and the router tried again
            raise recording.failure(call.failed.popleft())
        if call.response is None:
            await recording.end(call)
        assert call.response is not None
        recording.calls.popleft()
        await recording.wait(call.wait_s + call.talk_s)
        # the calls that were not run are asked for again, and again not run
        unrun = tuple(ToolCallPart(f"not_run_{n}", name, {}) for n, name in _unrun(call.response))
        message = replace(call.response.message, parts=(*call.response.message.parts, *unrun))
        return replace(call.response, message=message, rescued=False, model="", tools_not_run=())


def as_final(error: AgentError) -> AgentError:
    """The recorded error, such that no ladder tries again: it had been tried then."""
    if not isinstance(error, ProviderError):
        return error
    text = error.message.partition("\nGave up after")[0]  # the ladder says it again itself
    final = reworded(error, text, _FINAL)
    final.partial_text = error.partial_text
    return final


# It writes itself down under the recorded name.
_FINAL: Final = type("ProviderError", (ProviderError,), {"is_retryable": property(lambda _: False)})

_PIECES: Final = re.compile(r"\S+\s*|\s+")


def _unrun(response: ChatResponse) -> list[tuple[int, str]]:
    return list(enumerate(response.tools_not_run))


def _reply_events(response: ChatResponse) -> Iterator[e.StreamEvent]:
    """The stream that brings this reply."""
    yield e.MessageStart(response.message.id, "assistant", "")
    index = 0
    for part in response.message.parts:
        if isinstance(part, TextPart):
            yield from _text_lane(index, part)
        elif isinstance(part, ToolCallPart):
            raw = part.raw or json.dumps(part.input, ensure_ascii=False)
            yield from _call_lane(index, part.id, part.name, raw)
        index += 1
    for n, name in _unrun(response):
        yield from _call_lane(index + n, f"not_run_{n}", name, "{}")
    if response.message.provider_state is not None:
        state = {k: v for k, v in response.message.provider_state.items() if k != "model"}
        yield e.IndexedDelta(0, e.ProviderState(state))
    yield e.MessageDelta(
        response.stop_reason.value, response.usage, response.ending, response.ending_raw
    )
    yield e.MessageStop()


def _text_lane(index: int, part: TextPart) -> Iterator[e.StreamEvent]:
    yield e.PartStart(index, TextPart("", part.refusal))
    for piece in _PIECES.findall(part.text):
        yield e.IndexedDelta(index, e.Text(piece, part.refusal))
    yield e.PartStop(index)


def _call_lane(index: int, key: str, name: str, raw: str) -> Iterator[e.StreamEvent]:
    yield e.PartStart(index, ToolCallPart(key, name))
    for at in range(0, len(raw), 16):
        yield e.IndexedDelta(index, e.InputJson(raw[at : at + 16]))
    yield e.PartStop(index)
