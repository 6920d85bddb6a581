"""LabReport: what the policies of a compaction lab did, as frames.

Source: tune by experiment, compaction lab (where it fired, what was dropped, what survives).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from notebook_agent.core.context import TokenCounter, sum_tokens
from notebook_agent.core.messages import Message
from notebook_agent.core.response import Usage
from notebook_agent.errors import ConfigError
from notebook_agent.tuning.compaction_replay import Outcome
from notebook_agent.tuning.facts import KINDS, Context, Fact
from notebook_agent.tuning.frames import frame_of
from notebook_agent.tuning.lab_work import Price
from notebook_agent.tuning.material import Material

__all__ = ["LabReport", "NextAnswer"]

# Columns beside which each policy has one of its own.
COLUMNS: Final = frozenset({"place", "role", "text", "tokens", "kind", "fact"})
_SHOWN: Final = 80  # characters of a message in a row


@dataclass(frozen=True, slots=True, kw_only=True)
class NextAnswer:
    """The next reply under a policy; ``error`` in words when the model failed."""

    policy: str
    text: str
    usage: Usage | None = None
    seconds: float | None = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class LabReport:
    """What the policies did. Every frame's absences are <NA>, tokens are by ``counter``."""

    material: Material
    facts_list: tuple[Fact, ...] = field(repr=False)
    outcomes: tuple[Outcome, ...] = field(repr=False)
    next_answers: tuple[NextAnswer, ...] = field(repr=False)
    counter: TokenCounter = field(repr=False)
    prices: Mapping[str, Price] = field(repr=False)
    summariser: str | None = None

    def __repr__(self) -> str:
        names = ", ".join(outcome.name for outcome in self.outcomes)
        return f"<LabReport: {self.material.name} under {names or 'no policy yet'}>"

    def outcome(self, policy: str) -> Outcome:
        """One policy's outcome.

        Raises:
            ConfigError: There is no such policy.
        """
        for one in self.outcomes:
            if one.name == policy:
                return one
        raise ConfigError(
            field="policy", value=policy, legal=", ".join(o.name for o in self.outcomes)
        )

    def summary(self) -> Any:
        """One row for each policy.

        Returns:
            A pandas.DataFrame: ``policy``, ``strategy``, ``window`` (tokens), ``passes`` tried
            and ``applied``, ``first_turn`` (the first applied pass), ``peak`` and ``next``
            (tokens of the largest and of the next request), ``kept``, ``shortened`` and
            ``dropped`` messages, the share of ``names``, ``numbers`` and ``decisions`` that
            survive (0 to 1), ``summary_calls``, ``summary_in`` and ``summary_out`` tokens,
            ``cost``, ``stuck`` (the turn a run would have ended at).
        """
        return frame_of([self._summary(one) for one in self.outcomes], _SUMMARY)

    def _summary(self, one: Outcome) -> dict[str, Any]:
        fates = [fate.fate for fate in one.fates]
        kept = self._survival[one.name]
        row: dict[str, Any] = {
            "policy": one.name, "strategy": one.plan.policy.strategy, "window": one.window,
            "passes": len(one.passes), "applied": len(one.applied),
            "first_turn": one.applied[0].turn if one.applied else None,
            "peak": max((p.sent for p in one.points), default=None), "next": one.tokens,
            "kept": fates.count("kept"), "shortened": fates.count("shortened"),
            "dropped": fates.count("summarised") + fates.count("left out"),
            "summary_calls": one.calls, "stuck": one.stuck,
        }  # fmt: skip
        for kind in KINDS:
            marks = [
                where
                for fact, where in zip(self.facts_list, kept, strict=True)
                if fact.kind == kind
            ]
            survive = sum(where != "lost" for where in marks)
            row[f"{kind}s"] = survive / len(marks) if marks else None
        usage = one.usage
        if usage is not None:
            row |= {"summary_in": usage.context_tokens, "summary_out": usage.output_tokens}
            price = self.prices.get(one.plan.policy.summary_model or self.summariser or "")
            given = {"input_tokens": usage.context_tokens, "output_tokens": usage.output_tokens}
            row["cost"] = None if price is None else price.of(given)
        return row

    def passes(self) -> Any:
        """One row for each pass of each policy: where it fired, why, tokens before and after."""
        rows = [
            {
                "policy": one.name, "turn": p.turn, "reason": p.reason, "status": p.result.status,
                "tokens_before": p.result.tokens_before, "tokens_after": p.result.tokens_after,
                "saved": p.result.tokens_saved, "removed": p.result.removed,
                "summary_calls": p.result.calls, "detail": p.result.detail,
            }
            for one in self.outcomes
            for p in one.passes
        ]  # fmt: skip
        return frame_of(rows, _PASSES)

    def messages(self, policy: str | None = None) -> Any:
        """Message by message: kept, shortened, summarised or left out, and in which turn's pass.

        Args:
            policy: One policy: its fates, tokens before and after. None: one column for each.
        """
        base: list[dict[str, Any]] = [
            {
                "place": at, "role": message.role.value, "text": _short(message),
                "tokens": sum_tokens(self.counter, (message,)),
            }
            for at, message in enumerate(self.material.messages)
        ]  # fmt: skip
        columns = {"place": "Int64", "role": "str", "text": "str", "tokens": "Int64"}
        if policy is None:
            for one in self.outcomes:
                for row, fate in zip(base, one.fates, strict=True):
                    row[one.name] = fate.fate
            return frame_of(base, columns | {one.name: "str" for one in self.outcomes})
        for row, fate in zip(base, self.outcome(policy).fates, strict=True):
            row |= {"fate": fate.fate, "turn": fate.turn, "tokens_after": fate.tokens_after}
        return frame_of(base, {**columns, "fate": "str", "turn": "Int64", "tokens_after": "Int64"})

    def facts(self, kind: str | None = None) -> Any:
        """The fact list: each name, number and decision of the original, and where it stands
        under each policy: ``verbatim``, ``summary`` or ``lost``.

        Args:
            kind: Only ``name``, ``number`` or ``decision``.
        """
        if kind is not None and kind not in KINDS:
            raise ConfigError(field="kind", value=kind, legal=", ".join(KINDS))
        rows = [
            {"kind": fact.kind, "fact": fact.text, "place": fact.place}
            | {one.name: self._survival[one.name][at] for one in self.outcomes}
            for at, fact in enumerate(self.facts_list)
            if kind in (None, fact.kind)
        ]
        columns = {"kind": "str", "fact": "str", "place": "Int64"}
        return frame_of(rows, columns | {one.name: "str" for one in self.outcomes})

    def turns(self) -> Any:
        """The context of every request under each policy, in tokens."""
        rows = [
            {
                "policy": one.name, "turn": p.turn, "before": p.before, "sent": p.sent,
                "compacted": p.compacted,
            }
            for one in self.outcomes
            for p in one.points
        ]  # fmt: skip
        whole = dict.fromkeys(("turn", "before", "sent"), "Int64")
        return frame_of(rows, {"policy": "str", **whole, "compacted": "boolean"})

    def answers(self) -> Any:
        """The next answer under each policy beside the recorded one."""
        rows = [
            {
                "policy": a.policy, "answer": a.text, "error": a.error, "seconds": a.seconds,
                "input_tokens": None if a.usage is None else a.usage.context_tokens,
                "output_tokens": None if a.usage is None else a.usage.output_tokens,
            }
            for a in self.next_answers
        ]  # fmt: skip
        whole = dict.fromkeys(("input_tokens", "output_tokens"), "Int64")
        return frame_of(
            rows, {"policy": "str", "answer": "str", **whole, "seconds": "Float64", "error": "str"}
        )

    @functools.cached_property
    def _survival(self) -> dict[str, Sequence[str]]:
        """Policy -> where each fact stands."""
        found: dict[str, Sequence[str]] = {}
        for one in self.outcomes:
            context = Context(one.view)
            found[one.name] = [context.holds(fact) for fact in self.facts_list]
        return found


_SUMMARY: Final[Mapping[str, str]] = {
    "policy": "str", "strategy": "str", "window": "Int64", "passes": "Int64", "applied": "Int64",
    "first_turn": "Int64", "peak": "Int64", "next": "Int64", "kept": "Int64",
    "shortened": "Int64", "dropped": "Int64", "names": "Float64", "numbers": "Float64",
    "decisions": "Float64", "summary_calls": "Int64", "summary_in": "Int64",
    "summary_out": "Int64", "cost": "Float64", "stuck": "Int64",
}  # fmt: skip
_PASSES: Final[Mapping[str, str]] = {
    "policy": "str", "turn": "Int64", "reason": "str", "status": "str", "tokens_before": "Int64",
    "tokens_after": "Int64", "saved": "Int64", "removed": "Int64", "summary_calls": "Int64",
    "detail": "str",
}  # fmt: skip


def _short(message: Message) -> str:
    text = " ".join(message.display_text()[: 4 * _SHOWN].split())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
