"""One run per session at a time, and what may enter.

Source: Turn FSM, "Relationship to other components" (B78-B80).
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Final

from notebook_agent.core.messages import Message
from notebook_agent.engine.cancel import CancelSignal
from notebook_agent.engine.clock import Surroundings
from notebook_agent.errors import ConfigError, InputRejected, SessionBusy

__all__ = ["GATE", "Admission", "AdmissionPolicy", "AdmissionState", "SessionGate"]

WAIT_STEP_S: Final = 0.02


class SessionGate:
    """Who is running. One for the process, so that two runtimes on one session meet here."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[tuple[str, str], str] = {}

    def try_enter(self, key: tuple[str, str], run: str) -> bool:
        """Take the session; False when a run has it."""
        with self._lock:
            if key in self._held:
                return False
            self._held[key] = run
            return True

    def leave(self, key: tuple[str, str]) -> None:
        """Give the session back."""
        with self._lock:
            self._held.pop(key, None)

    def holder(self, key: tuple[str, str]) -> str | None:
        """Who has the session, None when nobody."""
        with self._lock:
            return self._held.get(key)

    @contextmanager
    def held(self, key: tuple[str, str], name: str, what: str) -> Iterator[None]:
        """Hold the session for something short that is no run.

        Raises:
            SessionBusy: A run has it.
        """
        if not self.try_enter(key, what):
            raise SessionBusy(name)
        try:
            yield
        finally:
            self.leave(key)

    async def enter(
        self,
        key: tuple[str, str],
        name: str,
        run: str,
        *,
        wait_s: float = 0.0,
        surroundings: Surroundings,
        cancel: CancelSignal,
    ) -> None:
        """Take the session for a run.

        Ruling: B78, at once or not at all, unless the caller asks to wait.

        Args:
            wait_s: Seconds to wait for another run to end.

        Raises:
            SessionBusy: It is still held.
            Cancelled: The signal fired while waiting.
        """
        deadline = surroundings.now() + wait_s
        while not self.try_enter(key, run):
            left = deadline - surroundings.now()
            if left <= 0:
                raise SessionBusy(name)
            cancel.raise_if_cancelled()
            await surroundings.sleep(min(WAIT_STEP_S, left))


GATE: Final = SessionGate()


class AdmissionState(Enum):
    """Where an input stands (B79)."""

    SUBMITTED = "submitted"
    ADMITTED = "admitted"
    PROCESSING = "processing"
    COMPLETED = "completed"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionPolicy:
    """What may enter.

    ===================  =======  ====================================================
    field                default  meaning
    ===================  =======  ====================================================
    max_chars            0        characters of one input, 0 = no limit: the window decides
    duplicate_window_s   None     seconds in which the same input is refused; None = off
    ===================  =======  ====================================================
    """

    max_chars: int = 0  # Ruling: B79, no limit: the window check refuses with the token count
    duplicate_window_s: float | None = None

    def __post_init__(self) -> None:
        most: object = self.max_chars
        if not isinstance(most, int) or isinstance(most, bool) or most < 0:
            raise ConfigError(field="max_chars", value=most, legal="a whole number, 0 or more")
        window: object = self.duplicate_window_s
        if window is None:
            return
        number = isinstance(window, (int, float)) and not isinstance(window, bool)
        if not number or not 0 < float(window) < float("inf"):  # type: ignore[arg-type]  # a number
            raise ConfigError(field="duplicate_window_s", value=window, legal="seconds above 0")


class Admission:
    """Judges inputs before any run resource is taken (B79).

    Attributes:
        state: Of the input that was judged last.
    """

    def __init__(self, policy: AdmissionPolicy | None = None) -> None:
        self.policy = policy or AdmissionPolicy()
        self.state = AdmissionState.COMPLETED
        self._seen: dict[str, float] = {}

    def admit(self, message: Message, now: float) -> None:
        """Let an input in.

        Args:
            message: The user's message.
            now: Monotonic seconds.

        Raises:
            InputRejected: Empty, too long, or asked a moment ago.
        """
        self.state = AdmissionState.SUBMITTED
        try:
            self._judge(message, now)
        except InputRejected:
            self.state = AdmissionState.REJECTED
            raise
        self.state = AdmissionState.ADMITTED

    def forget(self, message: Message | None = None) -> None:
        """An admitted input did not become a run, or all of them when another session begins."""
        if message is None:
            self._seen.clear()
        else:
            self._seen.pop(_mark(message), None)

    def _judge(self, message: Message, now: float) -> None:
        text = message.text_content().strip()
        only_text = all(part.type == "text" for part in message.parts)
        if not text and only_text:
            raise InputRejected(
                "The prompt is empty: nothing was sent.\n"
                "Write the question below the line:  %%agent"
            )
        limit = self.policy.max_chars
        if limit and len(text) > limit:
            raise InputRejected(
                f"The prompt has {len(text):,} characters and {limit:,} are allowed: "
                "nothing was sent.\nShorten it, or raise max_chars."
            )
        window = self.policy.duplicate_window_s
        if window is None or not only_text:
            return  # Ruling: B80, off by default: a cell may be run again
        self._seen = {key: at for key, at in self._seen.items() if now - at < window}
        mark = _mark(message)
        if mark in self._seen:
            ago = now - self._seen[mark]
            raise InputRejected(
                f"The same prompt was asked {ago:.0f} s ago: nothing was sent.\n"
                f"It may be asked again {window:.0f} s after the first time."
            )
        self._seen[mark] = now


def _mark(message: Message) -> str:
    """Fingerprint of the trimmed text (B79)."""
    text = message.text_content().strip()
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
