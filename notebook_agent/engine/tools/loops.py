"""Loop detection: the same call with the same result, again and again; answers that repeat.

Result-aware by default: a call whose result changes is progress. The result-blind doom-loop
rules are an opt-in strict mode (Ruling: B55).

Source: LLM turn, "Recording the outcome" (L124); Turn FSM, "ExecutingTools" (B55).
"""

from __future__ import annotations

import json
import re
from collections import deque
from dataclasses import dataclass
from typing import Any, Final, Literal

from notebook_agent.errors import ConfigError

__all__ = ["ConvergenceDetector", "DoomLoopDetector", "LoopDetector", "LoopPolicy", "Repeat"]

ConvergenceAction = Literal["warn", "stop", "compact"]
_MAX_CYCLE: Final = 4
_WORD: Final = re.compile(r"\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopPolicy:
    """When repeated work is noticed.

    ===================  =======  ====================================================
    field                default  meaning
    ===================  =======  ====================================================
    warn_at              3        same call, same result: observers are told; 0 = never
    stop_at              10       the run ends with LoopDetected; 0 = never
    window               50       of the last ``history`` calls that are looked at
    history              100      calls remembered
    strict               False    doom-loop rules: 3 equal calls in a row, or a cycle of
                                  2 to 4 calls seen 3 times, whatever the results
    same_tool            5        strict only: one tool that often in a row; 0 = never
    similarity           0.95     of two final answers' word sets, 0 to 1
    convergence_repeats  3        answers in a row that are that similar
    convergence_action   warn     warn, stop or compact
    ===================  =======  ====================================================
    """

    warn_at: int = 3
    stop_at: int = 10
    window: int = 50
    history: int = 100
    strict: bool = False
    same_tool: int = 5
    similarity: float = 0.95
    convergence_repeats: int = 3
    convergence_action: ConvergenceAction = "warn"

    def __post_init__(self) -> None:
        for name in ("warn_at", "stop_at", "same_tool"):
            _whole(name, getattr(self, name), 0)
        _whole("history", self.history, 1)
        _whole("window", self.window, 1)
        if self.window > self.history:
            raise ConfigError(
                field="window", value=self.window, legal=f"at most history ({self.history})"
            )
        _whole("convergence_repeats", self.convergence_repeats, 2)
        if not isinstance(self.strict, bool):
            raise ConfigError(field="strict", value=self.strict, legal="True or False")
        alike: object = self.similarity
        number = isinstance(alike, (int, float)) and not isinstance(alike, bool)
        if not number or not 0 < self.similarity <= 1:
            raise ConfigError(field="similarity", value=self.similarity, legal="above 0, at most 1")
        if self.convergence_action not in ("warn", "stop", "compact"):
            raise ConfigError(
                field="convergence_action",
                value=self.convergence_action,
                legal="warn, stop or compact",
            )


def _whole(name: str, value: object, floor: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < floor:
        raise ConfigError(field=name, value=value, legal=f"a whole number of at least {floor}")


@dataclass(frozen=True, slots=True)
class Repeat:
    """What a detector saw: ``pattern`` in words, how often, whether the run must stop, and
    whether the results were not looked at."""

    pattern: str
    repetitions: int
    stop: bool = False
    blind: bool = False

    @property
    def words(self) -> str | None:
        """The pattern as a sentence, None where the results were looked at too."""
        return None if not self.blind else f"Stopped: {self.pattern}."


def fingerprint(tool: str, given: Any, primary: str | None = None) -> str:
    """The operation: the tool and its primary parameter, or its whole input, keys sorted."""
    if primary is not None and isinstance(given, dict) and primary in given:
        given = {primary: given[primary]}
    return f"{tool} {json.dumps(given, sort_keys=True, ensure_ascii=False, default=str)}"


class LoopDetector:
    """The default detector: one per run."""

    def __init__(self, policy: LoopPolicy) -> None:
        self._policy = policy
        self._seen: deque[tuple[str, str]] = deque(maxlen=policy.history)

    def observe(
        self, tool: str, given: Any, result_hash: str, *, primary: str | None = None
    ) -> Repeat | None:
        """Note a finished call.

        Returns:
            A warning when this operation has now been seen ``warn_at`` times in the window,
            and at each further multiple; a stop at ``stop_at``; None otherwise.
        """
        operation = (fingerprint(tool, given, primary), result_hash)
        self._seen.append(operation)
        recent = list(self._seen)[-self._policy.window :]
        count = recent.count(operation)
        pattern = _short(operation[0])
        stop_at, warn_at = self._policy.stop_at, self._policy.warn_at
        if stop_at and count >= stop_at:
            return Repeat(pattern, count, stop=True)
        if warn_at and count >= warn_at and count % warn_at == 0:
            return Repeat(pattern, count)
        return None


class DoomLoopDetector:
    """The strict mode's rules, blind to results; asked before each call, one per run."""

    def __init__(self, policy: LoopPolicy) -> None:
        self._policy = policy
        self._calls: deque[tuple[str, str]] = deque(maxlen=policy.history)

    def check(self, tool: str, given: Any) -> Repeat | None:
        """Note a call that is about to run; a Repeat means that it must not."""
        self._calls.append((tool, fingerprint(tool, given)))
        prints = [one for _, one in self._calls]
        if len(prints) >= 3 and len(set(prints[-3:])) == 1:
            return Repeat(
                f"three equal calls in a row: {_short(prints[-1])}", 3, stop=True, blind=True
            )
        for length in range(2, _MAX_CYCLE + 1):
            last = prints[-length:]
            if len(prints) >= 3 * length and prints[-3 * length :] == last * 3:
                names = " -> ".join(name for name, _ in list(self._calls)[-length:])
                return Repeat(
                    f"a cycle of {length} calls seen 3 times: {names}", 3, stop=True, blind=True
                )
        often = self._policy.same_tool
        names_in_row = [name for name, _ in self._calls][-often:] if often else []
        if often and len(names_in_row) == often and len(set(names_in_row)) == 1:
            return Repeat(f"{tool} called {often} times in a row", often, stop=True, blind=True)
        return None


class ConvergenceDetector:
    """Final answers that say the same again; one per session. Final replies only."""

    def __init__(self, policy: LoopPolicy) -> None:
        self._policy = policy
        self._words: frozenset[str] | None = None
        self._row = 1

    def observe(self, answer: str) -> ConvergenceAction | None:
        """Note a final answer; the policy's action when enough in a row are alike."""
        words = frozenset(_WORD.findall(answer.lower()))
        if self._words is not None and _alike(self._words, words) >= self._policy.similarity:
            self._row += 1
        else:
            self._row = 1
        self._words = words
        if self._row >= self._policy.convergence_repeats:
            return self._policy.convergence_action
        return None

    def reset(self) -> None:
        """Forget the answers so far."""
        self._words, self._row = None, 1


def _alike(a: frozenset[str], b: frozenset[str]) -> float:
    """Shared words by all words, 0 to 1; two empty answers are alike."""
    union = a | b
    return len(a & b) / len(union) if union else 1.0


def _short(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:119]}…"
