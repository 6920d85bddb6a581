"""Token counters: exact where the vocabulary is public and present, else an estimate.

Source: LLM turn, "Counting the context" (L17, L18, L20, L21); cases T01-T05.
"""

from __future__ import annotations

import json
import logging
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from notebook_agent.core.messages import (
    ImagePart,
    Message,
    MessagePart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from notebook_agent.core.request import ToolSchema
from notebook_agent.engine.tokenizer import vocabulary
from notebook_agent.engine.tokenizer.estimate import estimate_tokens
from notebook_agent.engine.tokenizer.images import image_tokens
from notebook_agent.engine.tokenizer.worker import in_worker
from notebook_agent.errors import ConfigError

__all__ = [
    "MESSAGE_OVERHEAD",
    "PRESETS",
    "DefaultCounter",
    "EstimatingCounter",
    "ExactCounter",
    "RatioCounter",
    "counting_rule",
    "default_counter",
]

logger = logging.getLogger(__name__)

# Role, separators and the opening of the reply. The dearest known format takes 5 a message and
# 3 for the reply, so 8 holds for a conversation of one message too (never under, L18).
MESSAGE_OVERHEAD: Final = 8
PART_OVERHEAD: Final = 8  # of a tool call, a tool result or a tool's schema
_OVERHEADS_KEPT: Final = 32


class _Counter:
    """What every counter shares: how messages and overhead are made of texts."""

    name: str
    exact: bool
    reason: str | None
    message_overhead: int = MESSAGE_OVERHEAD

    def __init__(self) -> None:
        self._overheads: dict[tuple[str | None, str], int] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}{'' if self.exact else ' (est.)'}>"

    async def prepare(self) -> None:
        """Load what counting needs, off the event loop."""

    def count_text(self, text: str) -> int:
        """Tokens of a text, control tokens read as ordinary text (T01)."""
        raise NotImplementedError

    def count_message(self, message: Message) -> int:
        """Tokens of one message: its parts, its hidden state and its overhead."""
        total = self.message_overhead + sum(map(self._count_part, message.parts))
        if message.provider_state is not None:
            total += self.count_text(_json(message.provider_state))
        return total

    def count_overhead(self, system: str | None, tools: Sequence[ToolSchema] | None) -> int:
        """Tokens of system prompt and tool schemas as they are sent, every field (T04)."""
        schemas = "\n".join(_json(_as_sent(tool)) for tool in tools or ())
        key = (system, schemas)
        count = self._overheads.get(key)
        if count is None:
            count = self.count_text(schemas) + PART_OVERHEAD * len(tools or ())
            if system:
                count += self.count_text(system) + self.message_overhead
            if len(self._overheads) >= _OVERHEADS_KEPT:
                self._overheads.clear()
            self._overheads[key] = count
        return count

    def _count_part(self, part: MessagePart) -> int:
        match part:
            case TextPart(text=text):
                return self.count_text(text)
            case ImagePart():
                return image_tokens(part)
            case ToolCallPart(id=call_id, name=name, input=given, raw=raw):
                sent = raw if given is None else _json(given)
                texts = (call_id, name, sent)
            case ToolResultPart(call_id=call_id, name=name, output=output, images=images):
                texts = (call_id, name, output)
                return (
                    PART_OVERHEAD
                    + sum(map(self.count_text, texts))
                    + sum(map(image_tokens, images))
                )
        return PART_OVERHEAD + sum(map(self.count_text, texts))


class EstimatingCounter(_Counter):
    """Upper estimates that need no vocabulary, see :mod:`.estimate`.

    Args:
        reason: Why counts are estimates, for the user.
        unasked_system: What the model's chat template adds when a request has no system prompt.
    """

    name = "estimate"
    exact = False

    def __init__(self, reason: str | None = None, *, unasked_system: str = "") -> None:
        super().__init__()
        self.reason = reason
        self._unasked_system = unasked_system

    def count_overhead(self, system: str | None, tools: Sequence[ToolSchema] | None) -> int:
        """As every counter; with no system prompt, the one that the model's template adds."""
        return super().count_overhead(system or self._unasked_system, tools)

    def count_text(self, text: str) -> int:
        """Tokens of a text, never below the true count of a fitted vocabulary."""
        return estimate_tokens(text)


class ExactCounter(_Counter):
    """Counts with a public vocabulary that lies on this machine.

    Args:
        encoding: ``o200k_base`` or ``cl100k_base``. Loaded at the first count, or by
            ``await prepare()`` off the event loop.

    Raises:
        ConfigError: An unknown encoding.
        VocabularyMissing: At the first count: not on this machine, or damaged.
    """

    exact = True
    reason = None

    def __init__(self, encoding: str = "o200k_base") -> None:
        super().__init__()
        if encoding not in vocabulary.VOCABULARIES:
            legal = ", ".join(vocabulary.VOCABULARIES)
            raise ConfigError(field="encoding", value=encoding, legal=f"one of {legal}")
        self.name = encoding
        self._encoding: Any = None

    async def prepare(self) -> None:
        """Load the vocabulary in a thread of its own that ends with it."""
        if self._encoding is None:
            self._encoding = await _loaded_off_loop(self.name)

    def count_text(self, text: str) -> int:
        """Tokens of a text in this vocabulary."""
        if self._encoding is None:
            self._encoding = vocabulary.load_encoding(self.name)
        return len(self._encoding.encode_ordinary(text))


class DefaultCounter(_Counter):
    """The exact vocabulary if it loads, else the estimate: decided once, at the first use.

    One counter serves trigger and compaction (L20), so the choice is never taken back.
    """

    def __init__(self, encoding: str = "o200k_base") -> None:
        super().__init__()
        self._encoding_name = encoding
        self._chosen: ExactCounter | EstimatingCounter | None = None

    def __getattr__(self, attribute: str) -> Any:
        """``name``, ``exact`` and ``reason`` are known once the choice is made."""
        if attribute not in ("name", "exact", "reason"):
            raise AttributeError(attribute)
        return getattr(self._choose(), attribute)

    async def prepare(self) -> None:
        """Decide, loading off the event loop."""
        if self._chosen is not None:
            return
        try:
            await _loaded_off_loop(self._encoding_name)
        except vocabulary.VocabularyMissing:
            logger.debug("vocabulary %s is missing", self._encoding_name)
        self._choose()

    def count_text(self, text: str) -> int:
        """Tokens of a text."""
        return (self._chosen or self._choose()).count_text(text)

    def _choose(self) -> ExactCounter | EstimatingCounter:
        if self._chosen is None:
            try:
                vocabulary.load_encoding(self._encoding_name)
            except vocabulary.VocabularyMissing as missing:
                reason = f"Our own token counts are estimates (est.): {missing}."
                logger.warning("%s", reason)  # once per counter, so once per session (T03)
                self._chosen = EstimatingCounter(reason)
            else:
                self._chosen = ExactCounter(self._encoding_name)
            self.name, self.exact = self._chosen.name, self._chosen.exact
            self.reason = self._chosen.reason
        return self._chosen


class RatioCounter(_Counter):
    """A fixed ratio, for those who know their text; may count far too low (L20).

    Args:
        characters_per_token: Finite and positive.
        per_message: Tokens added to each message.

    Raises:
        ConfigError: A ratio that is not finite and positive, or a negative addition.
    """

    exact = False

    def __init__(self, characters_per_token: float, per_message: int = MESSAGE_OVERHEAD) -> None:
        super().__init__()
        ratio = characters_per_token
        good = isinstance(ratio, (int, float)) and not isinstance(ratio, bool)
        if not good or not math.isfinite(ratio) or ratio <= 0:
            raise ConfigError(
                field="characters_per_token", value=ratio, legal="a finite number above 0"
            )
        if per_message < 0:
            raise ConfigError(field="per_message", value=per_message, legal="0 tokens or more")
        self.ratio = ratio
        self.message_overhead = per_message
        self.name = f"ratio-{ratio:g}+{per_message}"
        self.reason = f"Our own token counts are estimates (est.): {ratio:g} characters per token."

    def count_text(self, text: str) -> int:
        """Characters divided by the ratio, rounded up."""
        return math.ceil(len(text) / self.ratio)


# Characters per token and tokens per message. Never the default.
PRESETS: Final[Mapping[str, tuple[float, int]]] = {
    "ratio-4.0": (4.0, 5),
    "ratio-4.30": (4.30, 4),
    "ratio-3.60": (3.60, 5),
    "ratio-4.05": (4.05, 4),
    "ratio-3.80": (3.80, 4),
}

# Beginning of ``provider:name`` -> its vocabulary; the longest match counts. None = not public:
# the estimate, which is made to hold for vocabularies that nobody can look into.
_VOCABULARY_OF: Final[Mapping[str, str | None]] = {
    "": None,
    "scripted:": "o200k_base",
    "openai:gpt-": "o200k_base",
    "openai:chatgpt-": "o200k_base",
    "openai:o1": "o200k_base",
    "openai:o3": "o200k_base",
    "openai:o4": "o200k_base",
    "openai:gpt-3.5": "cl100k_base",
    "openai:gpt-4": "cl100k_base",
    "openai:gpt-4o": "o200k_base",
    "openai:gpt-4.": "o200k_base",
}

# Model -> the system prompt that its chat template adds to a request without one.
_UNASKED_SYSTEM: Final[Mapping[str, str]] = {
    "local:smollm2": "You are a helpful AI assistant named SmolLM, trained by Hugging Face",
}


def default_counter(
    model: str | None = None, *, kind: str | None = None
) -> DefaultCounter | EstimatingCounter | ExactCounter | RatioCounter:
    """The counter for a model.

    Args:
        model: ``provider:name``. Exact for models whose vocabulary is public, an estimate for
            the others. None = no model in mind: exact if the vocabulary is on this machine.
        kind: A user's own choice instead: ``estimate``, ``o200k_base``, ``cl100k_base`` or a
            key of ``PRESETS``.

    Returns:
        A counter with caches of its own. Nothing is loaded yet.

    Raises:
        ConfigError: An unknown kind.
    """
    if kind is not None:
        return _of_kind(kind)
    if model is None:
        return DefaultCounter()
    encoding, unasked = counting_rule(model)
    if encoding is None:
        return EstimatingCounter(
            f"Our own token counts are estimates (est.): there is no exact vocabulary for {model}.",
            unasked_system=unasked,
        )
    return DefaultCounter(encoding)


def counting_rule(model: str) -> tuple[str | None, str]:
    """What decides a model's counts: models of one rule count alike.

    Args:
        model: ``provider:name``.

    Returns:
        Its vocabulary, None when that is not public, and the system prompt that its template
        adds where a request has none.
    """
    asked = model.replace(
        "openai-responses:", "openai:", 1
    )  # the same models, asked in another way
    start = max((s for s in _VOCABULARY_OF if asked.startswith(s)), key=len)
    return _VOCABULARY_OF[start], _UNASKED_SYSTEM.get(model, "")


def _of_kind(kind: str) -> EstimatingCounter | ExactCounter | RatioCounter:
    if kind == "estimate":
        return EstimatingCounter("Our own token counts are estimates (est.), as chosen.")
    if kind in PRESETS:
        ratio, per_message = PRESETS[kind]
        return RatioCounter(ratio, per_message)
    if kind in vocabulary.VOCABULARIES:
        return ExactCounter(kind)
    legal = ", ".join(("estimate", *vocabulary.VOCABULARIES, *PRESETS))
    raise ConfigError(field="counter", value=kind, legal=f"one of {legal}")


async def _loaded_off_loop(name: str) -> Any:
    if vocabulary.loaded(name) or sys.platform == "emscripten":  # no threads there
        return vocabulary.load_encoding(name)
    return await in_worker(lambda: vocabulary.load_encoding(name))


def _as_sent(tool: ToolSchema) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
        },
    }


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else repr(value)
