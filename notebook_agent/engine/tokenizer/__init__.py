"""Counting tokens: exact where a public vocabulary is on this machine, else an upper estimate.

Source: LLM turn, "Counting the context" (L17-L21).
"""

from __future__ import annotations

from notebook_agent.engine.tokenizer.counters import (
    MESSAGE_OVERHEAD,
    PRESETS,
    DefaultCounter,
    EstimatingCounter,
    ExactCounter,
    RatioCounter,
    default_counter,
)
from notebook_agent.engine.tokenizer.largest import (
    LargestCounter,
    counter_for_models,
    counter_named,
)
from notebook_agent.engine.tokenizer.vocabulary import VocabularyMissing

__all__ = [
    "MESSAGE_OVERHEAD",
    "PRESETS",
    "DefaultCounter",
    "EstimatingCounter",
    "ExactCounter",
    "LargestCounter",
    "RatioCounter",
    "VocabularyMissing",
    "counter_for_models",
    "counter_named",
    "default_counter",
]
