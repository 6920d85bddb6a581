"""The error tree: every error a user meets is an ``AgentError`` and says what to do.

::

    AgentError
    ├── Cancelled               the user stopped the run; not a model failure
    ├── ProviderError           the seed's ``Api``: kind, status, message, retry_after
    ├── RateLimitEscalation     rate limited until the ladder gave up
    ├── FallbackExhausted       every model of the chain is resting
    ├── ContextExceeded         the request cannot be made to fit the window
    ├── LimitReached            max_iterations
    ├── TokenBudgetExhausted    max_total_tokens
    ├── LoopDetected            the same tool call again and again
    ├── InvalidTransition       (state, outcome) is not a cell of the table, or a feed out of turn
    ├── SessionBusy             a run of this session is in progress
    ├── InputRejected           the prompt was refused before anything was sent
    ├── ToolFailed              a tool failed and the policy says to stop
    ├── StructuredOutputError   the reply is not of the schema that was asked for
    ├── StoreError              a record could not be written or read
    └── ConfigError             a setting: its field, value and legal range

Source: LLM turn, "Recording the outcome"; Turn FSM, "CallingModel" (L66, B38).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from notebook_agent.core.text import visible

__all__ = [
    "AgentError",
    "Cancelled",
    "ConfigError",
    "ContextExceeded",
    "ErrorKind",
    "FallbackExhausted",
    "InputRejected",
    "InvalidTransition",
    "LimitReached",
    "LoopDetected",
    "ProviderError",
    "RateLimitEscalation",
    "RestingModel",
    "SessionBusy",
    "StoreError",
    "StructuredOutputError",
    "TokenBudgetExhausted",
    "ToolFailed",
    "error_from_json",
]


class ErrorKind(Enum):
    """What went wrong with a provider, in the words of B38."""

    AUTHENTICATION = "authentication"
    BAD_REQUEST = "bad_request"
    RATE_LIMITED = "rate_limited"
    TIMEOUT = "timeout"
    OVERLOADED = "overloaded"
    UNSUPPORTED = "unsupported"
    TRANSPORT = "transport"
    DECODE = "decode"
    PROVIDER = "provider"


RETRYABLE_KINDS = frozenset(
    {ErrorKind.RATE_LIMITED, ErrorKind.TIMEOUT, ErrorKind.OVERLOADED, ErrorKind.TRANSPORT}
)


# Ruling: L66, one tree for both documents; the wider names of L67 are not built.
class AgentError(Exception):
    """Root of the tree. ``str(error)`` is one to three short lines for a person.

    Attributes:
        partial_text: Text of the reply that had arrived when the turn failed, "" if none.
        result: The RunResult of the run that this error ended, None otherwise; not part of the
            error's value.
    """

    partial_text: str = ""
    result: Any = None
    hint: str = ""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:  # printed in tracebacks and logs: the value keeps the original (X03)
        return visible(f"{self.message}\n{self.hint}" if self.hint else self.message)

    def to_json(self) -> dict[str, Any]:
        """JSON form for records: ``{"error": class name, "message": ..., fields ...}``."""
        fields = {
            k: _plain(v) for k, v in vars(self).items() if not k.startswith("_") and k != "result"
        }
        return {"error": type(self).__name__, **fields}

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.message))


class Cancelled(AgentError):
    """The user stopped the run. Touches neither breaker nor failure events (L117)."""

    def __init__(self, message: str = "cancelled") -> None:
        super().__init__(message)


class ProviderError(AgentError):
    """The model's service refused, failed or could not be reached.

    Args:
        kind: B38's kind.
        message: The provider's own words where it gave any.
        status: HTTP status, None when there was no answer.
        retry_after: Seconds after which the provider says to return, None if it did not say.
        feature: The missing capability when kind is UNSUPPORTED.
        overflow: The provider said that the request is too long for the model (M1).
        quota: The account has nothing left: permanent, whatever the status (R02).
        error_type: The provider's own type or code word.
        should_retry: The provider's explicit word on retrying (``x-should-retry``), None if it
            gave none.
        hint: What to do or type, shown under the message.
    """

    should_retry: bool | None = None

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        feature: str | None = None,
        overflow: bool = False,
        quota: bool = False,
        error_type: str | None = None,
        should_retry: bool | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status
        self.retry_after = retry_after
        self.feature = feature
        self.overflow = overflow
        self.quota = quota
        self.error_type = error_type
        self.should_retry = should_retry
        self.hint = hint

    @property
    def is_retryable(self) -> bool:
        """Whether another attempt may help (L69, B38)."""
        if self.quota or self.overflow:
            return False
        if self.should_retry is not None:
            return self.should_retry
        if self.kind is ErrorKind.PROVIDER:
            return self.status is not None and (self.status >= 500 or self.status == 408)
        return self.kind in RETRYABLE_KINDS

    @property
    def is_rate_limited(self) -> bool:
        """Whether the rate-limit ladder applies (L58.1)."""
        return (
            self.kind is ErrorKind.RATE_LIMITED
            and not self.quota
            and not self.overflow
            and self.should_retry is not False
        )


class RateLimitEscalation(AgentError):
    """Rate limited until the ladder gave up; counts as a RATE_LIMIT failure (L59).

    Args:
        attempts: Rate-limited answers seen in this turn.
        retry_after: Seconds after which the provider says to return, None if it did not say.
    """

    def __init__(
        self, attempts: int, retry_after: float | None = None, message: str | None = None
    ) -> None:
        super().__init__(message or _rate_limit_text(attempts, retry_after))
        self.attempts = attempts
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class RestingModel:
    """One line of a FallbackExhausted: who is out, why, and for how long (seconds)."""

    name: str
    reason: str
    retry_in: float | None = None


class FallbackExhausted(AgentError):
    """Every model of the chain is resting; nothing was sent (L80, F05)."""

    def __init__(self, models: Sequence[RestingModel] = (), message: str | None = None) -> None:
        self.models = tuple(models)
        super().__init__(message or _resting_text(self.models))


class ContextExceeded(AgentError):
    """The request does not fit: ``used`` tokens (estimate) against ``limit``."""

    def __init__(self, used: int, limit: int, message: str | None = None) -> None:
        super().__init__(
            message
            or f"The request needs about {used:,} tokens and the window holds {limit:,}.\n"
            "Shorten the prompt, or start over with:  %agent reset"
        )
        self.used = used
        self.limit = limit


class LimitReached(AgentError):
    """``max_iterations`` turns were taken (B16)."""

    def __init__(self, limit: int, used: int) -> None:
        super().__init__(
            f"Limit reached: {limit} turns are allowed and turn {used} was asked for.\n"
            f"Allow more with:  %%agent --max-turns {limit * 2}"
        )
        self.limit = limit
        self.used = used


class TokenBudgetExhausted(AgentError):
    """More than ``max_total_tokens`` tokens were used in this run (B17)."""

    def __init__(self, limit: int, used: int) -> None:
        super().__init__(
            f"Token budget exhausted: {used:,} tokens used, {limit:,} allowed.\n"
            f"Allow more with:  %%agent --max-tokens {limit * 2}"
        )
        self.limit = limit
        self.used = used


class LoopDetected(AgentError):
    """The same call gave the same result too often (L124); strict mode has its own words (B55)."""

    def __init__(self, pattern: str, repetitions: int, message: str | None = None) -> None:
        super().__init__(message or f"Stopped: {pattern} gave the same result {repetitions} times.")
        self.pattern = pattern
        self.repetitions = repetitions


class InvalidTransition(AgentError):
    """An outcome that is not legal in its state (B9), or a feed out of turn (L90)."""

    def __init__(self, state: str, outcome: str, legal: Sequence[str] = ()) -> None:
        super().__init__(
            f"{outcome} is not legal in {state}; expected {', '.join(legal) or 'nothing'}"
        )
        self.state = state
        self.outcome = outcome
        self.legal = tuple(legal)


class SessionBusy(AgentError):
    """One run per session at a time (B78); ``said`` where more is known than the session."""

    def __init__(self, session: str, said: str = "") -> None:
        usual = f"Session {session!r} is busy with another run.\n"
        usual += "Stop it with:  %agent stop     or use another:  %%agent -s other"
        super().__init__(said or usual)
        self.session = session


class InputRejected(AgentError):
    """The prompt was refused before any request (B79)."""


class ToolFailed(AgentError):
    """A tool failed and the policy says not to go on (B52)."""

    def __init__(self, tool: str, message: str) -> None:
        super().__init__(f"Tool {tool!r} failed: {message}")
        self.tool = tool


class StructuredOutputError(AgentError):
    """The reply is not of the schema that was asked for; ``partial_text`` is the raw reply.

    Args:
        faults: What is wrong, one line each, ``path: what``.
        path: Place of the first fault in the JSON, like ``$.items[0].price``.
        raw: The reply's text.
        reason: Why no repair helped or was tried.
    """

    def __init__(
        self,
        schema: str,
        faults: Sequence[str],
        *,
        path: str = "$",
        raw: str = "",
        reason: str = "",
    ) -> None:
        more = f" (and {len(faults) - 3} more)" if len(faults) > 3 else ""
        super().__init__(
            f"The reply is not a valid {schema}: {'; '.join(faults[:3])}{more}.\n"
            f"{f'{reason} ' if reason else ''}The raw text is kept; see:  %agent show"
        )
        self.schema, self.faults, self.path, self.reason = schema, tuple(faults), path, reason
        self.partial_text = raw


class StoreError(AgentError):
    """A record could not be written or read (B62, B74)."""


class ConfigError(AgentError):
    """A setting is not legal.

    Args:
        message: What is wrong and what to type.
        field: Name of the setting.
        value: The value given.
        legal: The legal range in words.
    """

    def __init__(
        self, message: str | None = None, *, field: str = "", value: object = None, legal: str = ""
    ) -> None:
        super().__init__(message or f"{field} = {value!r} is not legal; give {legal}")
        self.field = field
        self.value = _plain(value) if not isinstance(value, (tuple, list)) else repr(value)
        self.legal = legal


def _plain(value: object) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, RestingModel):
        return {"name": value.name, "reason": value.reason, "retry_in": value.retry_in}
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return repr(value)


def _rate_limit_text(attempts: int, retry_after: float | None) -> str:
    when = "" if retry_after is None else f"; the provider says to return in {retry_after:g} s"
    return f"Rate limited {attempts} times in a row{when}."


def _resting_text(models: Sequence[RestingModel]) -> str:
    lines = ["Every model is resting:"]
    for m in models:
        when = "" if m.retry_in is None else f", may be tried in {m.retry_in:.0f} s"
        lines.append(f"  {m.name}: {m.reason}{when}")
    lines.append("Try again later, or clear the breaker with:  %agent breaker reset")
    return "\n".join(lines)


def _tree(root: type[AgentError]) -> dict[str, type[AgentError]]:
    below = [_tree(kind) for kind in root.__subclasses__()]
    return {root.__name__: root} | {name: kind for part in below for name, kind in part.items()}


_TREE: Mapping[str, type[AgentError]] = _tree(AgentError)


def error_from_json(data: Mapping[str, Any]) -> AgentError:
    """The error that ``to_json`` wrote; an unknown class comes back as AgentError."""
    kind = _TREE.get(str(data.get("error")), AgentError)
    error = kind.__new__(kind)
    message = str(data.get("message", ""))
    Exception.__init__(error, message)
    for name, value in data.items():
        if name == "error":
            continue
        if name == "kind":
            value = ErrorKind(value)
        elif name == "models":
            value = tuple(RestingModel(**m) for m in value)
        elif isinstance(value, list):
            value = tuple(value)
        setattr(error, name, value)
    error.message = message
    return error
