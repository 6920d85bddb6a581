"""The fault script of a scripted model: one word per request, ``"429:2,429,drop@12,ok"``.

==============  =====================================================================
word            what the request meets
==============  =====================================================================
``ok``          the reply
``503``         any HTTP status 400..599 instead of a reply; ``429:2`` = Retry-After: 2
``drop@12``     connection lost after 12 deltas (``drop``: before the first event)
``hang@3``      no further event after 3 deltas (``hang``: none at all), until cancelled
``trunc@5``     body ends after 5 deltas without an end (``trunc``: after all of them)
``malformed@1`` an event that does not decode after 1 delta (``malformed``: the first)
``error@2``     an error event in the stream after 2 deltas (``error``: the first)
``slow@1.5``    1.5 seconds before the first event, then the reply
``quota``       429 with an exhausted account: permanent
``overflow``    400: the request is too long for the model
==============  =====================================================================

``503*3`` is the same word three times. Deltas of text, thinking and tool arguments all count.
A position past the reply's last delta means: after all deltas, before the end.

Source: LLM turn, "StreamHandler" (L54-L60); the faults that the ladder is made for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from notebook_agent.errors import ConfigError, ErrorKind, ProviderError

__all__ = ["LEGAL_WORDS", "ScriptStep", "parse_script", "step_error"]

LEGAL_WORDS: Final = (
    "ok, a status 400..599 (503, 429:2 with seconds of Retry-After), drop[@n], hang[@n], "
    "trunc[@n], malformed[@n], error[@n], slow@seconds, quota, overflow; any of them with *times"
)
_AFTER_ALL: Final = 1 << 60
# word -> position when none is written: None = the word takes no position
_DEFAULT_AT: Final[Mapping[str, int | None]] = {
    "ok": None, "quota": None, "overflow": None,
    "drop": -1, "hang": -1, "malformed": -1, "error": -1, "trunc": _AFTER_ALL,
}  # fmt: skip
_MAX_TIMES: Final = 100_000
_STATUS: Final = re.compile(r"([45]\d\d)(?::(\d+(?:\.\d+)?))?")
_PLACED: Final = re.compile(r"([a-z]+)(?:@(\d+))?")
_SLOW: Final = re.compile(r"slow@(\d+(?:\.\d+)?)")
_TIMES: Final = re.compile(r"(.*)\*(\d+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ScriptStep:
    """What one request meets.

    Attributes:
        word: The word as written, without its ``*times``.
        kind: ok, status, drop, hang, trunc, malformed, error, slow, quota, overflow.
        at: Deltas after which the fault strikes; -1 = before the first event.
        status: HTTP status of a ``status`` step.
        seconds: Retry-After of a status, delay of ``slow``.
        streamed: Whether it meets a streamed request.
    """

    word: str = "ok"
    kind: str = "ok"
    at: int = _AFTER_ALL
    status: int = 0
    seconds: float | None = None
    streamed: bool = False

    @property
    def serves(self) -> bool:
        """Whether the request gets its whole reply."""
        return self.kind in ("ok", "slow")

    @property
    def before_reply(self) -> bool:
        """Whether the fault strikes before the first event."""
        return self.kind in ("status", "quota", "overflow") or (not self.serves and self.at < 0)


OK: Final = ScriptStep()


def parse_script(script: str) -> tuple[ScriptStep, ...]:
    """The steps of a script, empty for an empty one.

    Args:
        script: Words separated by commas; white space around them is ignored.

    Raises:
        ConfigError: A word is not legal; names the word and the legal ones.
    """
    if not script.strip():
        return ()
    return tuple(step for word in script.split(",") for step in _steps_of(word.strip(), script))


def _steps_of(word: str, script: str) -> list[ScriptStep]:
    bare, times = word, 1
    if match := _TIMES.fullmatch(word):
        bare, times = match[1].strip(), int(match[2])
    step = _step_of(bare)
    if step is None or not 1 <= times <= _MAX_TIMES:
        raise ConfigError(
            f"script = {script!r}: {word!r} is no word of a fault script.\nLegal: {LEGAL_WORDS}",
            field="script",
            value=word,
            legal=LEGAL_WORDS,
        )
    return [step] * times


def _step_of(word: str) -> ScriptStep | None:
    if match := _STATUS.fullmatch(word):
        wait = None if match[2] is None else float(match[2])
        return ScriptStep(word, "status", -1, int(match[1]), wait)
    if match := _SLOW.fullmatch(word):
        return ScriptStep(word, "slow", seconds=float(match[1]))
    match = _PLACED.fullmatch(word)
    if match is None or match[1] not in _DEFAULT_AT:
        return None
    kind, default = match[1], _DEFAULT_AT[match[1]]
    if match[2] is None:
        return ScriptStep(word, kind, _AFTER_ALL if default is None else default)
    return None if default is None else ScriptStep(word, kind, int(match[2]))


_KIND_OF_STATUS: Final[Mapping[int, ErrorKind]] = {
    401: ErrorKind.AUTHENTICATION, 403: ErrorKind.AUTHENTICATION, 408: ErrorKind.TIMEOUT,
    429: ErrorKind.RATE_LIMITED, 503: ErrorKind.OVERLOADED, 529: ErrorKind.OVERLOADED,
}  # fmt: skip


def _status_error(step: ScriptStep) -> ProviderError:
    default = ErrorKind.BAD_REQUEST if step.status < 500 else ErrorKind.PROVIDER
    kind = _KIND_OF_STATUS.get(step.status, default)
    return ProviderError(
        kind, f"HTTP {step.status} (scripted)", status=step.status, retry_after=step.seconds
    )


_ERROR_OF: Final[Mapping[str, Callable[[ScriptStep], ProviderError]]] = {
    "status": _status_error,
    "quota": lambda _: ProviderError(
        ErrorKind.RATE_LIMITED,
        "You exceeded your current quota (scripted)",
        status=429,
        quota=True,
        error_type="insufficient_quota",
    ),
    "overflow": lambda _: ProviderError(
        ErrorKind.BAD_REQUEST,
        "The request exceeds the model's context window (scripted)",
        status=400,
        overflow=True,
        error_type="context_length_exceeded",
    ),
    "drop": lambda _: ProviderError(ErrorKind.TRANSPORT, "connection lost (scripted)"),
    # A malformed event is a transient failure of a stream (L56), a malformed body is not (B38).
    "malformed": lambda step: (
        ProviderError(ErrorKind.TRANSPORT, "an event of the stream is not JSON (scripted)")
        if step.streamed
        else ProviderError(ErrorKind.DECODE, "the reply is not JSON (scripted)")
    ),
    "error": lambda _: ProviderError(
        ErrorKind.OVERLOADED, "Overloaded (scripted)", error_type="overloaded_error"
    ),
    # Streamed, a truncated body is no error but a stream without an end (L9, L57). Unstreamed
    # it is a body shorter than announced, which HTTP reports as a broken connection.
    "trunc": lambda _: ProviderError(
        ErrorKind.TRANSPORT, "the reply ended before its end (scripted)"
    ),
}


def step_error(step: ScriptStep) -> ProviderError:
    """A fresh error for a step that fails; ``hang``, ``ok`` and ``slow`` have none."""
    return _ERROR_OF[step.kind](step)
