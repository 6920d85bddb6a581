"""The Turn FSM as an SVG, drawn from the table of transitions.

Six boxes in a column in the order of the states; what goes on stands at their left, what ends the
run at their right. The text is real text, the colours are the page's own.
"""

from __future__ import annotations

from html import escape

from notebook_agent.core.turn_fsm import (
    TRANSITIONS,
    BreakLoop,
    CompactAndRetry,
    Continue,
    TurnState,
)

WIDTH, ROW, LEFT, BOX, HIGH = 900, 96, 360, 230, 40
ORDER = list(TurnState)


def middle(state: TurnState) -> int:
    """Height of the middle of a state's box."""
    return 30 + ORDER.index(state) * ROW + HIGH // 2


def picture() -> str:
    """The whole drawing."""
    parts: list[str] = []
    arcs = 0
    for state, row in TRANSITIONS.items():
        y = middle(state)
        parts.append(
            f'<rect x="{LEFT}" y="{y - HIGH // 2}" width="{BOX}" height="{HIGH}" rx="6" class="box"/>'
            f'<text x="{LEFT + BOX // 2}" y="{y + 5}" text-anchor="middle" class="name">{state.name}</text>'
        )
        onward: dict[TurnState, list[str]] = {}
        ends: dict[str, list[str]] = {}
        for outcome, action in row.items():
            name = outcome.__name__
            if isinstance(action, Continue):
                onward.setdefault(action.state, []).append(name)
            elif isinstance(action, CompactAndRetry):
                onward.setdefault(TurnState.BUILDING_CONTEXT, []).append(f"{name} / compact")
            else:
                ends.setdefault("completed" if isinstance(action, BreakLoop) else "failed", []).append(name)  # fmt: skip
        ends["cancelled"] = ["Cancelled"]
        for to, names in onward.items():
            down = ORDER.index(to) - ORDER.index(state)
            if down == 1:
                parts.append(straight(y, names))
            else:
                parts.append(arc(y, middle(to), names, arcs))
                arcs += 1
        parts += [ending(y, at, how, names) for at, (how, names) in enumerate(ends.items())]
    height = 30 + len(ORDER) * ROW
    return (
        f'<svg class="fsm" viewBox="0 0 {WIDTH} {height}" role="img" '
        'aria-label="Diagram of the six states; the table below says the same">'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto-start-reverse"><path d="M0 0 8 4 0 8Z" fill="currentColor"/>'
        f"</marker></defs>{''.join(parts)}</svg>"
    )


def straight(y: int, names: list[str]) -> str:
    """Down to the next state."""
    x, top, end = LEFT + BOX // 2, y + HIGH // 2, y + ROW - HIGH // 2
    return (
        f'<path d="M{x} {top}V{end}" class="line" marker-end="url(#tip)"/>'
        f'<text x="{x + 8}" y="{(top + end) // 2 + 4}">{escape(", ".join(names))}</text>'
    )


def arc(y: int, to: int, names: list[str], number: int) -> str:
    """At the left, to a state that is not the next one; a state to itself is a small loop."""
    start, end = (y - 10, y + 10) if y == to else (y + 4, to - 4 if to > y else to + 10)
    out = 46 if y == to else 70 + 24 * number
    label = (start + end) // 2 + (4 if y == to else 0)
    return (
        f'<path d="M{LEFT} {start}C{LEFT - out} {start} {LEFT - out} {end} {LEFT} {end}" class="line" '
        f'marker-end="url(#tip)"/><text x="{LEFT - out * 3 // 4 - 8}" y="{label}" '
        f'text-anchor="end">{escape(", ".join(names))}</text>'
    )


def ending(y: int, at: int, how: str, names: list[str]) -> str:
    """One line at the right: which outcomes end the run, and how."""
    return (
        f'<text x="{LEFT + BOX + 14}" y="{y - 12 + 16 * at}" class="{how}">'
        f"{escape(', '.join(names))} → {how}</text>"
    )
