"""Keys: held so that no repr, traceback, pickle or log can show them.

Source: case X05; Turn FSM, "CallingModel" (B38).
"""

from __future__ import annotations

import logging
import re
import weakref
from collections.abc import Callable, Iterable
from typing import Final, NoReturn, Protocol
from urllib.parse import quote

__all__ = ["REPLACEMENT", "Secret", "guard_logs", "scrub"]

REPLACEMENT: Final = "[key]"


class Secret:
    """A text that is only ever read by :meth:`reveal`, at the moment it is sent.

    ``repr`` and ``str`` are ``Secret(***)``, it cannot be formatted, compared by value in a
    message, pickled or copied into JSON.

    Example:
        >>> print(Secret("sk-123"))
        Secret(***)
    """

    __slots__ = ("_reveal",)

    def __init__(self, value: str) -> None:
        # A closure, not an attribute: debuggers and test reports print attributes.
        self._reveal: Callable[[], str] = lambda: value

    def reveal(self) -> str:
        """The text. Call it in the expression that sends it, never keep it in a variable."""
        return self._reveal()

    def __bool__(self) -> bool:
        return bool(self._reveal())

    def __repr__(self) -> str:
        return "Secret(***)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key is never pickled; give it again where the object is loaded")


_MASKED: Final = re.compile(
    r"[^\s'\"`(){}\[\],;]*(?:\*{2,}|\.{3,}|…|x{4,}|X{4,})[^\s'\"`(){}\[\],;]*"
)


def scrub(text: str, secrets: Iterable[Secret]) -> str:
    """``text`` without the keys: whole, as a prefix of 8 characters or more, or masked.

    Servers repeat keys in their errors (``Incorrect API key provided: sk-ab****wxyz``).

    Args:
        text: A message.
        secrets: The keys that may be in it.
    """
    for secret in secrets:
        text = _scrub_one(text, secret)
    return text


def _scrub_one(text: str, secret: Secret) -> str:
    for form in {secret.reveal(), quote(secret.reveal(), safe="")}:
        if not form:
            continue
        text = text.replace(form, REPLACEMENT)
        for length in range(len(form) - 1, 7, -1):
            if form[:length] in text:
                text = re.sub(re.escape(form[:length]) + r"[^\s'\"]*", REPLACEMENT, text)
                break

    def mask(match: re.Match[str]) -> str:
        head = re.split(r"\*|\.{3}|…|xxxx|XXXX", match.group())
        first, last = head[0], head[-1]
        value = secret.reveal()
        known = (len(first) >= 2 and value.startswith(first)) or (
            len(last) >= 2 and value.endswith(last)
        )
        return REPLACEMENT if known else match.group()

    return _MASKED.sub(mask, text)


class _HasSecrets(Protocol):
    def secrets(self) -> tuple[Secret, ...]: ...


# Loggers of the HTTP libraries that write addresses and header fields.
_LOGGERS: Final = tuple(
    f"{name}{version}{part}"
    for version in ("", "2")
    for name, parts in (
        ("httpx", ("",)),
        ("httpcore", (".connection", ".http11", ".http2", ".proxy", ".socks")),
    )
    for part in parts
)


class _KeyFilter(logging.Filter):
    """Takes keys in use out of a record; it drops none."""

    def __init__(self) -> None:
        super().__init__()
        self.holders: weakref.WeakSet[_HasSecrets] = weakref.WeakSet()

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        for holder in list(self.holders):
            for secret in holder.secrets():
                value = secret.reveal()
                if value and value in text:
                    text = text.replace(value, REPLACEMENT)
                    record.msg, record.args = text, ()
        return True


_filter: Final = _KeyFilter()


def guard_logs(holder: _HasSecrets) -> None:
    """Keep a holder's keys out of the HTTP libraries' logs, for as long as it lives (X05).

    Those write response headers at DEBUG, and a redirect repeats the address with its key.

    Args:
        holder: Kept by a weak reference; asked at each record.
    """
    _filter.holders.add(holder)
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        if _filter not in logger.filters:
            logger.addFilter(_filter)
