"""The facts of a conversation as a list that can be checked: names, numbers, decisions.

No model is asked. A name or number survives when it stands in the context, letter by letter; a
decision when its sentence does, or a line with all its numbers and three quarters of its words.

Source: tune by experiment, compaction lab (a checkable fact list, not a model's opinion).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from notebook_agent.core.extract import Extractor
from notebook_agent.core.messages import Message, TextPart, ToolCallPart, ToolResultPart
from notebook_agent.core.trim import is_summary

__all__ = ["KINDS", "Context", "Fact", "facts_of"]

KINDS: Final = ("name", "number", "decision")
_SHARE: Final = 0.75  # of a decision's words that a line must have
_LONGEST: Final = 20_000  # characters of one text that are read

_NUMBER: Final = re.compile(r"(?<![\w.])[$€£]?\d[\d,.:/-]*(?<=[\d])(?:\s?%)?")
_THING: Final = re.compile(
    r"https?://\S+|[\w.+-]+@[\w-]+\.[\w.]+"  # addresses
    r"|\b[\w/-]+\.(?!\d)[A-Za-z]\w{0,5}\b"  # files, modules
    r"|\b[a-z]+(?:[A-Z]\w*)+\b|\b[A-Za-z]+_\w+\b"  # camelCase, snake_case
)
_NAME: Final = re.compile(r"\b[^\W\d_a-z]\w*(?:['-]\w+)*(?:[ ]+[^\W\d_a-z]\w*(?:['-]\w+)*)*")
_WORD: Final = re.compile(r"\w+")
_STARTS: Final = re.compile(r"(?:^|[.!?:;\n•*>-])[\s\"'(*#>-]*$")
_COMMON: Final = frozenset(
    [
        "I",
        "I'm",
        "I'll",
        "I've",
        "I'd",
        "The",
        "A",
        "An",
        "And",
        "But",
        "Or",
        "If",
        "In",
        "On",
        "At",
        "It",
        "Its",
        "This",
        "That",
        "These",
        "Those",
        "We",
        "You",
        "He",
        "She",
        "They",
        "What",
        "When",
        "Where",
        "Which",
        "Who",
        "Why",
        "How",
        "Is",
        "Are",
        "Was",
        "Were",
        "Do",
        "Does",
        "Did",
        "Can",
        "Could",
        "Should",
        "Would",
        "Will",
        "Please",
        "Yes",
        "No",
        "Ok",
        "OK",
        "Note",
        "Then",
        "So",
        "As",
        "For",
        "From",
        "To",
        "Of",
        "With",
        "Not",
        "My",
        "Your",
        "Our",
    ]
)


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing that a conversation says: ``place`` is the first message that says it, from 0."""

    kind: str
    text: str
    place: int


def facts_of(messages: Sequence[Message]) -> tuple[Fact, ...]:
    """The facts of a conversation, each once, in the order in which they are first said."""
    texts = [_said(message) for message in messages]
    everywhere = {word for text in texts for word in _inner_names(text)}
    found: dict[tuple[str, str], Fact] = {}
    reader = Extractor()
    reader.feed([Message.user("This talk is the goal.")])  # the first sentence is no decision
    for place, (message, text) in enumerate(zip(messages, texts, strict=True)):
        for kind, given in _of_text(text, everywhere):
            found.setdefault((kind, given.casefold()), Fact(kind, given, place))
        if not message.results:
            read = len(reader.points)
            reader.feed([message])
            for point in reader.points[read:]:
                if point.section == "decision":
                    key = ("decision", _flat(point.text))
                    found.setdefault(key, Fact("decision", point.text, place))
    return tuple(found.values())


def _of_text(text: str, everywhere: set[str]) -> Iterable[tuple[str, str]]:
    for match in _NUMBER.finditer(text):
        number = match[0].strip()
        if len(re.sub(r"\D", "", number)) > 1 or not number.isdigit():
            yield "number", number
    things = [match[0].rstrip(".,;:)") for match in _THING.finditer(text)]
    yield from (("name", thing) for thing in things)
    for match in _NAME.finditer(text):
        words = match[0].split()
        # the first word of a sentence is a name only when it is one elsewhere, or goes on
        if _STARTS.search(text[max(0, match.start() - 8) : match.start()]):
            while words and (words[0] in _COMMON or words[0] not in everywhere):
                words.pop(0)
        while words and words[0] in _COMMON:
            words.pop(0)
        name = " ".join(words)
        if len(name) > 1 and name not in _COMMON:
            yield "name", name


def _inner_names(text: str) -> Iterable[str]:
    """Words with a capital letter that no sentence begins with."""
    for match in _NAME.finditer(text):
        if not _STARTS.search(text[max(0, match.start() - 8) : match.start()]):
            yield from (word for word in match[0].split() if word not in _COMMON)


def _said(message: Message) -> str:
    """All text of a message, arguments and results of tools too."""
    parts = []
    for part in message.parts:
        match part:
            case TextPart(text=text) | ToolResultPart(output=text):
                parts.append(text[:_LONGEST])
            case ToolCallPart(name=name, input=given):
                parts.append(f"{name} {given}")
            case _:
                continue
    return "\n".join(parts)


def _flat(text: str) -> str:
    return " ".join(text.casefold().split())


class Context:
    """A context that facts are looked up in: what is sent to the model.

    Args:
        messages: The view after compaction.
    """

    def __init__(self, messages: Sequence[Message]) -> None:
        kept = "\n".join(_said(m) for m in messages if not is_summary(m))
        summary = "\n".join(_said(m) for m in messages if is_summary(m))
        self._layers = (("verbatim", _Layer(kept)), ("summary", _Layer(summary)))

    def holds(self, fact: Fact) -> str:
        """Where it stands: ``verbatim`` (a message that is still sent), ``summary``, or ``lost``."""
        return next((name for name, layer in self._layers if layer.holds(fact)), "lost")


class _Layer:
    """One text, made ready for many look-ups."""

    def __init__(self, text: str) -> None:
        self._flat = _flat(text)
        self._words = set(_WORD.findall(self._flat))
        self._numbers = {match[0].strip() for match in _NUMBER.finditer(text)}
        self._lines = [set(_WORD.findall(line)) for line in _lines(text)]
        self._where: dict[str, list[int]] = {}
        for at, words in enumerate(self._lines):
            for word in words:
                self._where.setdefault(word, []).append(at)

    def holds(self, fact: Fact) -> bool:
        """Whether the text has it."""
        if fact.kind == "number":
            return fact.text in self._numbers
        flat = _flat(fact.text)
        if fact.kind == "name":
            if flat.isalnum():
                return flat in self._words
            return self._stands(flat)
        return flat in self._flat or self._nearly(flat)

    def _stands(self, flat: str) -> bool:
        """Whether a phrase stands there, between other words."""
        if not all(word in self._words for word in _WORD.findall(flat)):
            return False
        at = self._flat.find(flat)
        while at >= 0:
            end = at + len(flat)
            before, after = self._flat[at - 1 : at], self._flat[end : end + 1]
            if not _WORD.match(before) and not _WORD.match(after):
                return True
            at = self._flat.find(flat, at + 1)
        return False

    def _nearly(self, flat: str) -> bool:
        wanted = {word for word in _WORD.findall(flat) if len(word) > 3 or word.isdigit()}
        if not wanted:
            return False
        counts: dict[int, int] = {}
        for word in wanted:
            for at in self._where.get(word, ()):
                counts[at] = counts.get(at, 0) + 1
        numbers = {word for word in wanted if any(c.isdigit() for c in word)}
        return any(
            count >= _SHARE * len(wanted) and numbers <= self._lines[at]
            for at, count in counts.items()
        )


def _lines(text: str) -> Iterable[str]:
    return (line.casefold() for line in re.split(r"\n|(?<=[.!?])\s", text) if line.strip())
