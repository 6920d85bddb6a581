"""A summary without a model: sentences of the conversation that carry something, as they were said.

Kept are requests, constraints, decisions, names, numbers, files, errors, open questions and
tool calls; filler goes. Deterministic and bounded: equal messages give an equal summary.

Source: Turn FSM, "BuildingContext" (B21, B30, B31, 3.2).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from notebook_agent.core.messages import Message, Role, TextPart, ToolCallPart, ToolResultPart

__all__ = [
    "SECTIONS",
    "Extractor",
    "Point",
    "extract_points",
    "points_of_summary",
    "render_summary",
    "summary_count",
]

# Section of the summary -> its heading, in the order in which they are written.
SECTIONS: Final[dict[str, str]] = {
    "goal": "Goal",
    "constraint": "Constraints",
    "decision": "Decisions",
    "fact": "Facts, names, numbers, files",
    "error": "Errors",
    "open": "Open questions and next steps",
    "tool": "Tools used",
    "other": "Also said",
}
_WORTH: Final[dict[str, int]] = {
    "goal": 9, "constraint": 6, "decision": 6, "open": 5, "error": 4, "fact": 3, "tool": 2,
    "other": 0,
}  # fmt: skip


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# section or mark -> (words, phrases) that give it, in lower case
_MARKS: Final[dict[str, tuple[frozenset[str], tuple[str, ...]]]] = {
    "decision": (
        _words(
            "decide decides decided deciding decision decisions agree agreed chose chosen choose "
            "settled final finally finalised finalized approved confirmed rejected let's"
        ),
        ("we'll ", "we will ", "we use ", "we should use", "go with", "going with", "switch to",
         "switched to", "the plan is"),
    ),
    "constraint": (
        _words(
            "must mustn't never always only don't shouldn't require required requires forbidden "
            "without cannot can't limit deadline prefer need needs needed"
        ),
        ("do not ", "should not ", "at most ", "at least ", "no more than", "no less than",
         "no fewer than", "instead of"),
    ),
    "error": (
        _words("fail failed fails failure failures traceback crash crashed crashes refused"),
        ("error", "exception", "timed out"),
    ),
    "open": (
        _words("todo unclear later blocked remaining"),
        ("to do ", "next step", "still need", "still have", "still open", "still missing",
         "not yet", "follow up", "follow-up", "waiting for", "open question"),
    ),
    "identity": (
        _words("named remember important i'm"),
        ("my name", "is called", "i am ", "we are ", "live in", "lives in", "work at", "works at",
         "work for", "works for", "work as", "works as", "note that"),
    ),
}  # fmt: skip
_TOKEN: Final = re.compile(r"[a-z']+")
_NUMBER: Final = re.compile(r"\d")
_DOTTED: Final = re.compile(r"\b[\w-]+\.[A-Za-z][A-Za-z0-9]{0,5}\b")  # main.py, example.org
_CAMEL: Final = re.compile(r"\b[a-z]+[A-Z]")
_SENTENCE: Final = re.compile(
    r"[^\n.!?。！？]+(?:[.!?](?!\s|$)[^\n.!?。！？]*)*[.!?。！？]*[\"')\]]*"
)
_ABBREVIATION: Final = re.compile(
    r"\b(?:e\.g|i\.e|approx|etc|vs|dr|mr|mrs|ms|no|nr|st|ca|fig|eq|sec|vol|cf|al|inc|ltd)\.$",
    re.IGNORECASE,
)
_SPACE: Final = re.compile(r"\s+")
_BULLET: Final = re.compile(r"^[-*•]\s+")
_LONGEST: Final = 300  # characters of one quoted sentence
_SCAN_HEAD: Final = 12_000  # characters of one text that are read, from its start
_SCAN_TAIL: Final = 4_000  # and from its end
_CROWD: Final = 8  # points of one section before the next ones count for less
_MOST_PLAIN: Final = 12  # sentences without any mark that may stay, the newest
_PER_RESULT: Final = 4  # sentences that one tool result may give
_NOTHING: Final = frozenset({"none", "n/a", "-", "nothing", "none yet", "no"})


@dataclass(frozen=True, slots=True)
class Point:
    """One line of a summary: its section, the words, who said them, how much they are worth."""

    section: str
    text: str
    who: str = ""
    worth: int = 0
    order: int = 0


class Extractor:
    """Reads messages, oldest first, in as many portions as the caller likes."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self._calls: dict[str, ToolCallPart] = {}
        self._asked = False

    def feed(self, messages: Iterable[Message]) -> None:
        """Read on. A huge text is read at its head and tail only."""
        for message in messages:
            who = message.role.value
            for part in message.parts:
                order = len(self.points)
                match part:
                    case TextPart(text=text):
                        self._text(text, who, order)
                    case ToolCallPart():
                        self._calls[part.id] = part
                    case ToolResultPart():
                        call = self._calls.pop(part.call_id, None)
                        self.points += _result_points(part, call, order)
                    case _:
                        self.points.append(Point("other", "[an image]", who, 1, order))

    def close(self) -> None:
        """No more messages: calls that nobody answered are told too."""
        for call in self._calls.values():
            self.points.append(_call_point(call, "no result", len(self.points)))
        self._calls.clear()

    def _text(self, text: str, who: str, order: int) -> None:
        found = [_judge(s, who, order + n) for n, s in enumerate(_sentences(text))]
        if who == Role.USER.value and found and not self._asked:
            self._asked = True
            first = found[0]
            found[0] = Point("goal", first.text, first.who, 12, first.order)
        self.points += found


def extract_points(messages: Iterable[Message]) -> list[Point]:
    """Every sentence of the messages that may be worth keeping, in order."""
    reader = Extractor()
    reader.feed(messages)
    reader.close()
    return reader.points


def points_of_summary(text: str) -> list[Point]:
    """The lines of an earlier summary, so that it is updated and not summarised again (B30).

    Reads what :func:`render_summary` wrote, and a model's summary by its headings.
    """
    headings = {title.lower(): key for key, title in SECTIONS.items()}
    section = "fact"
    points: list[Point] = []
    for line in text.splitlines():
        bare = line.strip().strip("#*").strip()
        name = bare.rstrip(":").strip("*").lower()
        if not bare or line in _FRAME or _INTRO_LINE.match(line):
            continue
        if name in headings or (bare.endswith(":") and len(bare) < 60) or line.startswith("#"):
            section = headings.get(name) or _section_of(name)
            continue
        words = _BULLET.sub("", line.strip())
        if words.lower().rstrip(".") in _NOTHING:
            continue
        who, _, rest = words.partition(": ")
        if rest and who in ("user", "assistant", "system", "tool"):
            words = rest
        else:
            who = ""
        # what has been kept once is worth more than what is new: it has proved itself
        points.append(Point(section, words, who, _WORTH[section] + 2, len(points)))
    return points


def summary_count(text: str) -> int:
    """How many messages an extractive summary stands for; 0 when it does not say."""
    found = _INTRO_LINE.match(text)
    return int(found.group(1).replace(",", "")) if found else 0


_HEADING_WORDS: Final[tuple[tuple[str, str], ...]] = (
    ("goal", "goal"), ("constraint", "constraint"), ("decision", "decision"), ("open", "open"),
    ("next", "open"), ("blocked", "open"), ("progress", "open"), ("question", "open"),
    ("error", "error"), ("tool", "tool"), ("file", "fact"), ("context", "fact"), ("fact", "fact"),
)  # fmt: skip


def _section_of(heading: str) -> str:
    return next((key for word, key in _HEADING_WORDS if word in heading), "fact")


_INTRO: Final = "Earlier conversation, shortened: {count} messages are left out."
_INTRO_LINE: Final = re.compile(
    r"Earlier conversation, shortened: ([\d,]+) messages are left out\."
)
_QUOTED: Final = "Lines are quoted as they were said."
_FRAME: Final = frozenset({_QUOTED})


def render_summary(
    points: Iterable[Point],
    *,
    count: int,
    fits: Callable[[str], bool],
    extra: Sequence[str] = (),
) -> str:
    """The summary's text: the most telling points that fit, by section, in order.

    Args:
        points: Candidates; repeated ones count once, the newest stays.
        count: How many messages it stands for.
        fits: Whether a text is short enough.
        extra: Lines to keep whatever else goes.

    Returns:
        Text that fits, as long as its frame does; "" when there is nothing to say. Plain filler
        is never written, whatever room there is.
    """
    unique = _unique(points)
    plain = [p for p in unique if p.section == "other"]
    idle = {p.order for p in plain if p.worth <= 0 and p.text.isascii()}
    idle |= {p.order for p in sorted(plain, key=lambda p: p.order)[:-_MOST_PLAIN]}
    unique = [p for p in unique if p.section != "other" or p.order not in idle]
    if not unique and not extra:
        return ""
    ranked = _ranked(unique)
    best = _write((), count, extra)
    low, step, n = 0, 16, len(ranked)
    while low < n:  # gallop up while it fits: what is measured is never far too long
        text = _write(ranked[: min(low + step, n)], count, extra)
        if fits(text):
            low, best, step = min(low + step, n), text, step * 2
        elif step == 1:
            break
        else:
            n, step = min(low + step, n) - 1, max(step // 2, 1)
    return best if low or extra else ""


def _ranked(points: Sequence[Point]) -> list[Point]:
    """Best first. Of equal ones two new for one old: beginnings hold names and rules.

    A section that has many loses worth as it goes on, so that it does not crowd out the others.
    """
    groups: dict[tuple[str, int], list[Point]] = {}
    for point in sorted(points, key=lambda p: p.order):
        groups.setdefault((point.section, point.worth), []).append(point)
    taken: dict[str, int] = {}
    scored: list[tuple[int, int, Point]] = []
    for (section, worth), group in sorted(groups.items(), key=lambda item: -item[0][1]):
        old, new = 0, len(group)
        while old < new:
            if (old + len(group) - new) % 3 == 2:
                point, old = group[old], old + 1
            else:
                new -= 1
                point = group[new]
            place = taken[section] = taken.get(section, -1) + 1
            scored.append((worth - place // _CROWD, -len(scored), point))
    scored.sort(key=lambda item: (-item[0], -item[1]))
    return [point for _, _, point in scored]


def _write(points: Sequence[Point], count: int, extra: Sequence[str]) -> str:
    lines = [_INTRO.format(count=f"{count:,}"), _QUOTED]
    lines += [f"- {line}" for line in extra]
    by_section: dict[str, list[Point]] = {}
    for point in sorted(points, key=lambda p: p.order):
        by_section.setdefault(point.section, []).append(point)
    for key, title in SECTIONS.items():
        if key in by_section:
            lines += ["", f"{title}:"]
            lines += [f"- {p.who}: {p.text}" if p.who else f"- {p.text}" for p in by_section[key]]
    return "\n".join(lines)


def _unique(points: Iterable[Point]) -> list[Point]:
    seen: dict[str, Point] = {}
    for point in points:
        key = _SPACE.sub(" ", point.text).casefold().strip(" .!?")
        old = seen.pop(key, None)
        if old is not None and old.worth > point.worth:
            point = Point(old.section, point.text, point.who, old.worth, point.order)
        if key:
            seen[key] = point
    return list(seen.values())


def _sentences(text: str) -> Iterator[str]:
    if len(text) > _SCAN_HEAD + _SCAN_TAIL:
        yield from _sentences(text[:_SCAN_HEAD])
        yield from _sentences(text[-_SCAN_TAIL:])
        return
    held = ""
    for match in _SENTENCE.finditer(text):
        words = _SPACE.sub(" ", match.group()).strip()
        if held:
            words, held = f"{held} {words}", ""
        if words.endswith(".") and _ABBREVIATION.search(words[-9:]):
            held = words
        elif len(words) > 1 and any(c.isalnum() for c in words):
            yield from _quotable(words)
    if held:
        yield from _quotable(held)


def _quotable(words: str) -> Iterator[str]:
    """A sentence as it is; a run-on one in pieces, so that no part of it is lost unread."""
    while len(words) > _LONGEST:
        at = words.rfind(" ", _LONGEST // 2, _LONGEST)
        at = _LONGEST if at < 0 else at
        yield words[:at]
        words = words[at:].lstrip()
    yield words


def _judge(words: str, who: str, order: int) -> Point:
    """A sentence's section and worth."""
    low = words.lower().replace("’", "'")
    tokens = set(_TOKEN.findall(low))
    marks = {
        key: not tokens.isdisjoint(single) or any(phrase in low for phrase in phrases)
        for key, (single, phrases) in _MARKS.items()
    }
    marks["open"] = marks["open"] or words.endswith(("?", "？"))
    carries = (
        2 * (_NUMBER.search(words) is not None)
        + 2 * _names_a_thing(words)
        + 2 * _names_somebody(words)
        + 2 * marks["identity"]
    )
    section = next(
        (key for key in ("decision", "constraint", "error", "open") if marks[key]),
        "fact" if carries else "other",
    )
    worth = _WORTH[section] + carries + (1 if who == "user" else 0)
    return Point(section, words, who, worth, order)


def _names_a_thing(words: str) -> bool:
    """A path, an address, a file, an identifier."""
    if "/" in words or "_" in words or "`" in words or "\\" in words:
        return True
    return _DOTTED.search(words) is not None or _CAMEL.search(words) is not None


def _names_somebody(words: str) -> bool:
    """A capital letter that does not merely begin the sentence."""
    return any(
        word[0].isupper() and len(word) > 1 and not word.startswith(("I'", "I’"))
        for word in words.split()[1:]
    )


def _result_points(part: ToolResultPart, call: ToolCallPart | None, order: int) -> list[Point]:
    first = _SPACE.sub(" ", part.output.strip()[:160]).strip() or "no output"
    ending = f"error: {first}" if part.is_error else first
    shown = call or ToolCallPart("", part.name)
    points = [_call_point(shown, ending, order)]
    inner = sorted(
        (_judge(words, "tool", order + 1) for words in _sentences(part.output)),
        key=lambda point: -point.worth,
    )
    # a tool's own words weigh less than what people said
    points += [
        Point(p.section, p.text, p.who, p.worth - 3, order + 1 + n)
        for n, p in enumerate(inner[:_PER_RESULT])
        if p.worth > 3 and p.text not in first
    ]
    return points


def _call_point(call: ToolCallPart, ending: str, order: int) -> Point:
    given = "" if not call.input else json.dumps(call.input, ensure_ascii=False, default=str)
    if len(given) > 120:
        given = f"{given[:119]}…"
    worth = _WORTH["tool"] + (2 if ending.startswith("error") else 0)
    return Point("tool", f"{call.name}({given}) -> {ending}", "", worth, order)
