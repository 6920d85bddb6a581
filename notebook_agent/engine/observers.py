"""Observers: told what happens, unable to change it. One frozen context per callback.

Fired only from record.py, llm_turn.py, stream_handler.py and runtime.py, through the hub, in
registration order; an exception in one observer is logged with its name and the walk goes on
(L114).

Source: LLM turn, "Event routing, exactly", "Recording the outcome, exactly" (L47, L113-L115).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from notebook_agent.core.agent_events import AgentEvent
from notebook_agent.core.response import Ending, Usage
from notebook_agent.core.turn_fsm import TurnAction, TurnState
from notebook_agent.errors import AgentError

__all__ = ["CALLBACKS", "Observer", "ObserverHub"]

log = logging.getLogger("notebook_agent.observers")


@dataclass(frozen=True, slots=True)
class RunStart:
    session_id: str
    run_id: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True)
class TurnStart:
    turn: int
    query: str
    model: str = ""


@dataclass(slots=True)  # not frozen: one per delta
class TextDelta:
    turn: int
    delta: str
    refusal: bool = False


@dataclass(slots=True)  # not frozen: one per delta
class ThinkingDelta:
    turn: int
    delta: str


@dataclass(frozen=True, slots=True)
class AttemptResetInfo:
    turn: int
    attempt: int
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Response:
    turn: int
    text: str
    usage: Usage | None
    ending: Ending | None = None


@dataclass(frozen=True, slots=True)
class StreamSuccess:
    turn: int
    model: str
    usage: Usage | None


@dataclass(frozen=True, slots=True)
class StreamFailure:
    turn: int
    model: str
    error: AgentError


@dataclass(frozen=True, slots=True)
class ModelChange:
    from_model: str
    to_model: str


@dataclass(frozen=True, slots=True)
class TurnEnd:
    turn: int
    success: bool
    error: AgentError | None = None
    duration_s: float = 0.0
    input_tokens: int | None = None
    output_tokens: int | None = None
    context_estimate: int | None = None  # tokens of the turn's request, never too low
    context_window: int | None = None  # tokens that its model can read


@dataclass(frozen=True, slots=True)
class ToolCallReceived:
    turn: int
    tool: str
    call_id: str
    input: Any = None


@dataclass(frozen=True, slots=True)
class ToolPre:
    turn: int
    tool: str
    tool_call_id: str
    input: Any = None


@dataclass(frozen=True, slots=True)
class ToolPost:
    turn: int
    tool: str
    tool_call_id: str
    result: str = ""
    result_hash: str = ""
    is_error: bool = False
    duration_s: float = 0.0
    hint: str = ""
    stdout: str = ""


@dataclass(frozen=True, slots=True)
class Compaction:
    tokens_before: int
    tokens_after: int
    tokens_saved: int
    strategy: str = ""


@dataclass(frozen=True, slots=True)
class LoopSeen:
    pattern: str
    repetitions: int


@dataclass(frozen=True, slots=True)
class Convergence:
    action: str


@dataclass(frozen=True, slots=True)
class RunEnd:
    success: bool
    error: AgentError | None
    total_turns: int
    duration_s: float
    run_id: str = ""
    status: str = ""


@dataclass(frozen=True, slots=True)
class StateChange:
    """One transition: where the turn was, what it reported, what comes next."""

    turn: int
    state: TurnState
    outcome: str
    action: TurnAction
    detail: Mapping[str, Any] = field(default_factory=dict)


class Observer:
    """Subclass and override what you need; every method takes one context object.

    ``on_attempt_reset`` (Ruling: L47), ``on_state`` and ``on_event`` (every AgentEvent but the
    text deltas, as it happens) are ours beside the seed's.
    """

    def on_run_start(self, ctx: RunStart) -> None: ...
    def on_turn_start(self, ctx: TurnStart) -> None: ...
    def on_text_delta(self, ctx: TextDelta) -> None: ...
    def on_thinking_delta(self, ctx: ThinkingDelta) -> None: ...
    def on_attempt_reset(self, ctx: AttemptResetInfo) -> None: ...
    def on_response(self, ctx: Response) -> None: ...
    def on_stream_success(self, ctx: StreamSuccess) -> None: ...
    def on_stream_failure(self, ctx: StreamFailure) -> None: ...
    def on_fallback(self, ctx: ModelChange) -> None: ...
    def on_model_switched(self, ctx: ModelChange) -> None: ...
    def on_turn_end(self, ctx: TurnEnd) -> None: ...
    def on_tool_call_received(self, ctx: ToolCallReceived) -> None: ...
    def on_tool_pre(self, ctx: ToolPre) -> None: ...
    def on_tool_post(self, ctx: ToolPost) -> None: ...
    def on_compaction(self, ctx: Compaction) -> None: ...
    def on_loop_detected(self, ctx: LoopSeen) -> None: ...
    def on_convergence_detected(self, ctx: Convergence) -> None: ...
    def on_run_end(self, ctx: RunEnd) -> None: ...
    def on_state(self, ctx: StateChange) -> None: ...
    def on_event(self, event: AgentEvent) -> None: ...
    def reset(self, ctx: None = None) -> None: ...


CALLBACKS: Final[tuple[str, ...]] = tuple(
    name for name in vars(Observer) if name.startswith("on_") or name == "reset"
)


class ObserverHub:
    """Walks the observers. Knows which callbacks anybody overrides, so that a delta that
    nobody watches costs a truth test."""

    def __init__(self, observers: Iterable[Any] = ()) -> None:
        self._observers: list[Any] = []
        self._heard: dict[str, list[Any]] = {name: [] for name in CALLBACKS}
        for observer in observers:
            self.add(observer)

    def add(self, observer: Any) -> None:
        """Register; registering twice means being called twice (L114)."""
        self._observers.append(observer)
        _listen(observer, self._heard)

    def remove(self, observer: Any) -> None:
        """Unregister one registration; unknown observers are ignored."""
        if observer in self._observers:
            self._observers.remove(observer)
            heard: dict[str, list[Any]] = {name: [] for name in CALLBACKS}
            for one in self._observers:
                _listen(one, heard)
            self._heard = heard  # at once: a run on another thread never sees half of it

    def hears(self, callback: str) -> bool:
        """Whether anybody overrides this callback."""
        return bool(self._heard[callback])

    def fire(self, callback: str, ctx: Any = None) -> None:
        """Call everybody who overrides ``callback``; never raises."""
        for method in self._heard[callback]:
            try:
                method(ctx)
            except (Exception, SystemExit):  # exit() would end the engine's loop
                owner = type(getattr(method, "__self__", method)).__name__
                log.exception("observer %s raised in %s; the run goes on", owner, callback)


def _listen(observer: Any, heard: dict[str, list[Any]]) -> None:
    """Note the callbacks that an observer overrides."""
    for name in CALLBACKS:
        method = getattr(observer, name, None)
        if method is None or getattr(method, "__func__", None) is getattr(Observer, name):
            continue
        heard[name].append(method)
