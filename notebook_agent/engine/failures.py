"""What a failed attempt is called: any exception becomes one error of the tree.

Source: LLM turn, "The streaming path" (L24, L56-L58, L61, L68).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, cast

from notebook_agent.core.messages import ImagePart, Message, Role, TextPart, ToolCallPart
from notebook_agent.core.request import RequestOptions, StreamRequest
from notebook_agent.core.response import ChatResponse, StopReason, Usage
from notebook_agent.core.retry import FailureClass, cause_of, classify_failure
from notebook_agent.core.settings import StreamTimeouts
from notebook_agent.core.stream_outcome import StreamEnd
from notebook_agent.engine.cancel import DeadlineReached
from notebook_agent.engine.wait_guard import Interrupt
from notebook_agent.errors import AgentError, ErrorKind, ProviderError
from notebook_agent.providers.base import ModelClient

__all__ = [
    "AttemptFailure",
    "as_agent_error",
    "completing",
    "failure_of",
    "gave_up",
    "rescue_failed",
    "reworded",
    "timed_out",
    "unreadable_event",
]


@dataclass(frozen=True, slots=True)
class AttemptFailure:
    """A failed attempt: its error, how the ladder treats it, how the stream ended."""

    error: AgentError
    failure: FailureClass
    end: StreamEnd


_END_OF_FAILURE = {
    FailureClass.RATE_LIMITED: StreamEnd.RATE_LIMITED,
    FailureClass.TOTAL_TIMEOUT: StreamEnd.TOTAL_TIMEOUT,
}


def failure_of(
    error: BaseException, *, interrupt: Interrupt | None, events: int, timeouts: StreamTimeouts
) -> AttemptFailure:
    """What ended an attempt.

    Args:
        error: As it arrived.
        interrupt: The guard's reason, when the guard ended the wait.
        events: Accepted events of the attempt.
        timeouts: For the words of a time-out.
    """
    if interrupt is Interrupt.TOTAL or isinstance(error, DeadlineReached):
        late = timed_out(timeouts.total_stream_timeout)
        return AttemptFailure(late, FailureClass.TOTAL_TIMEOUT, StreamEnd.TOTAL_TIMEOUT)
    if interrupt is Interrupt.IDLE:
        limit = timeouts.per_event_timeout if events else timeouts.initial_event_timeout
        silent = ProviderError(
            ErrorKind.TIMEOUT,
            f"the stream was silent for {limit:g} s after {_events(events)}",
        )
        return AttemptFailure(silent, FailureClass.TRANSIENT, StreamEnd.EVENT_TIMEOUT)
    if isinstance(error, StopAsyncIteration):
        known: AgentError = ProviderError(
            ErrorKind.TRANSPORT,
            f"the stream was cut after {_events(events)}: it ended without an end mark",
        )
    else:
        known = as_agent_error(error)
    failure = classify_failure(known)
    return AttemptFailure(known, failure, _END_OF_FAILURE.get(failure, StreamEnd.INIT_FAILED))


def as_agent_error(error: BaseException) -> AgentError:
    """An error of the tree: the same if it is one, else what it means.

    Network errors that an adapter let through are transient; anything else is a bug in the
    adapter, which another attempt would only repeat.
    """
    if isinstance(error, AgentError):
        return error
    words = f"{type(error).__name__}: {error}"
    if isinstance(error, TimeoutError):
        known = ProviderError(ErrorKind.TIMEOUT, words)
    elif isinstance(error, (OSError, EOFError)):
        known = ProviderError(ErrorKind.TRANSPORT, words)
    else:
        known = ProviderError(ErrorKind.PROVIDER, f"the model's client failed: {words}")
    known.__cause__ = error
    return known


def completing(
    client: ModelClient,
) -> Callable[[StreamRequest, RequestOptions], Coroutine[Any, Any, ChatResponse]]:
    """``create_message_with_options`` of a client, its reply checked: a client may be anybody's."""

    async def call(request: StreamRequest, options: RequestOptions) -> ChatResponse:
        reply: object = await client.create_message_with_options(request, options)
        fault = _reply_fault(reply)
        if fault:
            raise ProviderError(ErrorKind.PROVIDER, f"the model's client failed: {fault}")
        return cast("ChatResponse", reply)

    return call


def _reply_fault(reply: object) -> str:
    """What is wrong with a reply, "" when nothing is."""
    if not isinstance(reply, ChatResponse):
        return f"it gave a {type(reply).__name__}, not a ChatResponse"
    message, usage = reply.message, reply.usage
    if not isinstance(message, Message) or message.role is not Role.ASSISTANT:
        return "its ChatResponse.message is no message of the assistant"
    for part in message.parts:
        texts = isinstance(part, TextPart) and isinstance(part.text, str)
        if not texts and not isinstance(part, (ImagePart, ToolCallPart)):
            return f"its message has a part that is none: {type(part).__name__}"
    if not isinstance(reply.stop_reason, StopReason):
        return f"its ChatResponse.stop_reason is {reply.stop_reason!r}, not a StopReason"
    if usage is not None and not isinstance(usage, Usage):
        return f"its ChatResponse.usage is a {type(usage).__name__}, not a Usage or None"
    return "" if usage is None else usage.fault()


def unreadable_event(event: object) -> ProviderError:
    """An event that cannot be folded: a transient failure of the attempt (L56)."""
    return ProviderError(
        ErrorKind.TRANSPORT, f"the stream brought a malformed event ({type(event).__name__})"
    )


def timed_out(seconds: float) -> ProviderError:
    """The turn's deadline (L24)."""
    return ProviderError(ErrorKind.TIMEOUT, f"the request timed out after {seconds:g} s")


def gave_up(error: AgentError, attempts: int) -> AgentError:
    """The last error of an exhausted ladder, saying so."""
    if attempts < 2 or not isinstance(error, ProviderError):
        return error
    return reworded(error, f"{error.message}\nGave up after {attempts} attempts.")


def rescue_failed(stream_error: AgentError, attempts: int, rescue_error: AgentError) -> AgentError:
    """Stream and rescue failed: one error, of the stream's kind (L61, L68)."""
    tries = "1 attempt" if attempts == 1 else f"{attempts} attempts"
    text = (
        f"{stream_error.message}\nGave up after {tries}; "
        f"the unstreamed rescue failed too: {cause_of(rescue_error)}"
    )
    assert isinstance(stream_error, ProviderError)  # anything else is permanent: no rescue
    error = reworded(stream_error, text)
    # What only the rescue learnt must not be lost: too long is for the compaction (M1).
    error.overflow = getattr(rescue_error, "overflow", False)
    error.__cause__ = rescue_error
    return error


def reworded(
    error: ProviderError, text: str, as_class: type[ProviderError] = ProviderError
) -> ProviderError:
    """The same failure in other words.

    Args:
        error: Its facts are kept: status, hints, the provider's code words.
        text: The new words.
        as_class: What the new error is.
    """
    new = as_class(error.kind, text)
    new.__cause__ = error.__cause__
    facts = vars(error).items()
    vars(new).update({k: v for k, v in facts if k not in ("message", "partial_text", "result")})
    return new


def _events(count: int) -> str:
    return "1 event" if count == 1 else f"{count} events"
