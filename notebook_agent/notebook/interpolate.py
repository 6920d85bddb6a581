"""``{{name}}`` in a cell: the rule itself is :mod:`notebook_agent.core.interpolate`.

Source: notebook side, the prompt (D7, D9, N01, N02).
"""

from __future__ import annotations

from notebook_agent.core.interpolate import (
    Inserted,
    Insertion,
    InsertionError,
    insert,
    literal_brace,
    value_text,
)

__all__ = ["Inserted", "Insertion", "InsertionError", "insert", "literal_brace", "value_text"]
