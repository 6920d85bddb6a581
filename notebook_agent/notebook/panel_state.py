"""PanelState: everything a view of one run needs, as plain values; and the UiEvents it is made of.

Times are seconds on the engine's monotonic clock (``Surroundings.now``); a view turns them into
"how long ago" with ``state.at``, the time of the newest event.

Source: notebook side, "The panel" (D13, D18, D19); Turn FSM, "Relationship to other components".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from notebook_agent.core.agent_events import AgentEvent
from notebook_agent.core.session import RunStatus
from notebook_agent.core.turn_fsm import TurnState

__all__ = [
    "STATES",
    "Appended",
    "Ask",
    "Asked",
    "BreakerView",
    "Chained",
    "Ended",
    "Gauge",
    "Happened",
    "Item",
    "Moved",
    "Note",
    "Opened",
    "PanelState",
    "Printed",
    "Replied",
    "Rich",
    "RowAdded",
    "Scan",
    "TextBlock",
    "Thinking",
    "Ticked",
    "ToolRow",
    "UiEvent",
    "Void",
    "Voided",
]

STATES: Final[tuple[TurnState, ...]] = tuple(TurnState)

# A sentence in pieces: (kind, text), kind "" plain, "code" a name, "b" strong, "wait" a countdown. Pieces and not
# markup, because names come from outside and a view must never parse them.
Rich = tuple[tuple[str, str], ...]


# ---- what stands in the reply area, in order --------------------------------------------------


@dataclass(frozen=True, slots=True)
class TextBlock:
    """A finished block of the reply, Markdown as the model wrote it.

    ``item`` marks one item of a list: a list is finished item by item.
    """

    text: str
    turn: int = 0
    item: bool = False


@dataclass(frozen=True, slots=True)
class Thinking:
    """Thinking of one stretch; shown collapsed, never saved."""

    turn: int
    text: str
    words: int
    began: float
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ToolRow:
    """One tool call. ``status``: writing, queued, running, finished, failed, not run.

    ``call_id`` names it within ``turn`` only: servers count their calls anew in each reply.
    """

    call_id: str
    name: str
    arguments: str = ""
    status: str = "writing"
    began: float | None = None
    seconds: float | None = None
    result: str = ""
    printed: str = ""
    turn: int = 0


@dataclass(frozen=True, slots=True)
class Void:
    """Text of attempts that do not count any more, folded into one row."""

    first: int
    last: int
    cause: str
    text: str
    turn: int = 0


@dataclass(frozen=True, slots=True)
class Note:
    """One line about the machine in the flow: ``mark`` names its shape."""

    mark: str
    tone: str
    text: Rich


Item = TextBlock | Thinking | ToolRow | Void | Note


# ---- the machine beside it --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Chained:
    """One backup: strikes so far of how many, and whether it may serve."""

    name: str
    strikes: int = 0
    of: int = 2
    available: bool = True


@dataclass(frozen=True, slots=True)
class BreakerView:
    """The breaker as people see it. ``cooldown_until`` is a time, None = no cooldown runs."""

    state: str = "primary"
    primary: str = ""
    serves: str = ""
    failures: int = 0
    trip_at: int = 3
    chain: tuple[Chained, ...] = ()
    probes: int = 0
    probes_needed: int = 2
    cooldown_s: float = 60.0
    cooldown_until: float | None = None
    by_hand: bool = False


@dataclass(frozen=True, slots=True)
class Gauge:
    """Context estimate in tokens against the window; lines in percent of the window."""

    system: int = 0
    tools: int = 0
    transients: int = 0
    history: int = 0
    window: int | None = None
    trigger: int = 80
    emergency: int = 95
    exact: bool = False

    @property
    def total(self) -> int:
        """The estimate, tokens."""
        return self.system + self.tools + self.transients + self.history

    @property
    def percent(self) -> int | None:
        """Share of the window, rounded; None when the window is unknown."""
        return None if not self.window else round(100 * self.total / self.window)


@dataclass(frozen=True, slots=True)
class Ask:
    """A question that waits for a click: may this call run? ``number`` counts from 1."""

    number: int
    call: str


@dataclass(frozen=True, slots=True)
class Scan:
    """Where the block splitter stands in the tail (see ``render.split_blocks``)."""

    pos: int = 0
    mode: str = ""
    fence: str = ""
    indent: int = 0
    blank: bool = False


@dataclass(frozen=True)  # no slots: ``but`` copies in one step
class PanelState:
    """One run as shown. Made by ``reduce`` only; views read it.

    Attributes:
        status: The status word: connecting, streaming, running tools, waiting, attempt reset,
            compacting, or how the run ended.
        done: The run is over; nothing changes any more.
        items, tail: Finished pieces of the reply area, and the unfinished text after them.
        tail_turn: The turn the tail belongs to.
        void_from: First item of the attempt in progress: what a reset takes back.
        at_state: Index in ``STATES`` of the live state, -1 when none is.
        seen, bad, marks: States visited in this turn, the one that failed, short marks.
        line: The sentence at the growing end; ``line_mark`` its shape, "" for none.
        wait_until: When the wait that ``line`` tells of ends; its countdown.
        ask: The question to the person, None when there is none (D20).
        rows: Audit rows of this run (``audit.turn_row``), oldest first.
        text: Reply of the newest turn that has any (what ``result.text`` will be).
    """

    run_id: str = ""
    session: str = "default"
    prompt: str = ""
    model: str = ""
    scripted: bool = False
    status: str = "connecting"
    done: bool = False
    run_status: RunStatus = RunStatus.PENDING
    started: float = 0.0
    at: float = 0.0
    turn: int = 0
    items: tuple[Item, ...] = ()
    tail: str = ""
    tail_turn: int = 0
    scan: Scan = Scan()
    void_from: int = 0
    reset_at: float | None = None
    first_text_at: float | None = None
    attempt_at: float | None = None
    text_chars: int = 0
    at_state: int = -1
    seen: frozenset[int] = frozenset()
    bad: int = -1
    marks: Mapping[int, str] = field(default_factory=dict)
    line: Rich = ()
    line_mark: str = ""
    wait_until: float | None = None
    attempt: int = 1
    max_attempts: int = 1
    breaker: BreakerView = BreakerView()
    gauge: Gauge = Gauge()
    ask: Ask | None = None
    rows: tuple[Mapping[str, Any], ...] = ()
    error: Mapping[str, Any] | None = None
    notices: tuple[str, ...] = ()

    def but(self, **changes: Any) -> PanelState:
        """``dataclasses.replace`` for the way of every delta: a tenth of its time, no check."""
        made = object.__new__(PanelState)
        made.__dict__.update(self.__dict__, **changes)
        return made

    @property
    def seconds(self) -> float:
        """Seconds since the run began."""
        return max(0.0, self.at - self.started)

    def reply(self) -> str:
        """The text shown so far, all turns, Markdown as written."""
        parts = [one.text for one in self.items if isinstance(one, TextBlock)]
        if self.tail:
            parts.append(self.tail)
        return "".join(parts)


# ---- what happens -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class UiEvent:
    """Base: ``at`` in seconds on the engine's clock."""

    at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened(UiEvent):
    """A run begins in a view."""

    run_id: str = ""
    session: str = "default"
    prompt: str = ""
    model: str = ""
    breaker: BreakerView | None = None
    gauge: Gauge | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended(UiEvent):
    """Merged deltas of one lane: ``text`` or ``thinking``."""

    lane: str
    text: str
    turn: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Replied(UiEvent):
    """The whole text of a turn's reply, as adopted."""

    text: str
    turn: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Voided(UiEvent):
    """Attempt reset: the text of this turn so far is void; ``attempt`` starts now."""

    turn: int = 0
    attempt: int = 2
    cause: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved(UiEvent):
    """A transition: ``state`` reported ``outcome``; ``to`` comes next, or None with ``action``
    saying why (BreakLoop, Fail, CompactAndRetry)."""

    state: TurnState
    outcome: str
    action: str
    to: TurnState | None = None
    turn: int = 0
    window: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed(UiEvent):
    """A tool printed; shown with its row."""

    call_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(UiEvent):
    """A question waits for a click; None takes it back, answered or not."""

    ask: Ask | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowAdded(UiEvent):
    """A turn is in the audit trail."""

    row: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened(UiEvent):
    """An AgentEvent of the engine."""

    event: AgentEvent
    breaker: BreakerView | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended(UiEvent):
    """The run is over; ``error`` is ``AgentError.to_json`` of what ended it."""

    status: RunStatus
    error: Mapping[str, Any] | None = None
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked(UiEvent):
    """Time passed."""
