"""ab: two compaction policies on the conversation at hand, side by side.

Source: notebook side, commands (``ab``); tune by experiment, compaction lab.
"""

from __future__ import annotations

import json
from typing import Any

from notebook_agent.core.compaction import STRATEGIES, CompactionPolicy
from notebook_agent.errors import ConfigError
from notebook_agent.notebook.arguments import UsageError
from notebook_agent.notebook.looking import there
from notebook_agent.notebook.report import Report
from notebook_agent.notebook.runs import RunVerbs

__all__ = ["AbVerbs"]

_SHARES = ("names", "numbers", "decisions")


class AbVerbs(RunVerbs):
    """The verb that compares."""

    async def aab(
        self,
        a: str | None = None,
        b: str | None = None,
        answer: bool = False,  # an option's name
        session: str | None = None,
    ) -> Report:
        """Replay this session's conversation under two policies; nothing of it is changed.

        Args:
            a, b: Changes to the session's policy, ``threshold=60,keep_turns=1``; ``current`` is
                the policy as it is. With one, it is compared with the current policy; with none,
                the current one is compared with the same under another strategy.
            answer: Ask the model for the next answer under both: two requests.
            session: Which session.

        Raises:
            UsageError: A change that cannot be read.
            ConfigError: The session has no messages, or a value is not legal.
        """
        from notebook_agent.tuning.compaction_lab import CompactionLab  # noqa: PLC0415  # only when asked
        from notebook_agent.tuning.compare import of_report  # noqa: PLC0415  # as above

        runtime = there(self, session)
        policy: CompactionPolicy = runtime.compaction
        if a is None:
            other = next(s for s in STRATEGIES if s != policy.strategy)
            a, b = "current", f"strategy={other}"
        elif b is None:
            a, b = "current", a
        if a == b:
            raise UsageError("ab needs two policies that differ.\nType:  %agent ab threshold=60")
        plans = {text: changed(policy, text) for text in (a, b)}
        summarised = any(plan.strategy == "model" for plan in plans.values())
        client = runtime.clients(runtime.primary) if answer or summarised else None
        if not answer and summarised:
            plans = {
                text: plan
                if plan.strategy != "model" or plan.summary_model
                else changed(plan, f"summary_model={runtime.primary}")
                for text, plan in plans.items()
            }
        lab = CompactionLab(
            runtime,
            plans,
            model=client if answer else None,
            summarisers={} if client is None else {runtime.primary: client},
            system=runtime.system,
            tools=runtime.registry.schemas(),
            counter=runtime.counter,
            surroundings=runtime.surroundings,
        )
        return _report(of_report(await lab.arun(), (a, b)))

    def ab(
        self,
        a: str | None = None,
        b: str | None = None,
        answer: bool = False,  # an option's name
        session: str | None = None,
    ) -> Report:
        """As :meth:`aab`, waiting for it."""
        return self.block(self.aab(a, b, answer, session))


def changed(policy: CompactionPolicy, text: str) -> CompactionPolicy:
    """A policy with the changes of one word: ``threshold=60,keep_turns=1``, or ``current``.

    Raises:
        UsageError: It is no list of changes, or a name is no field.
        ConfigError: A value is not legal.
    """
    if text == "current":
        return policy
    values: dict[str, Any] = {name: getattr(policy, name) for name in CompactionPolicy.__slots__}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals or name not in values:
            known = ", ".join(values)
            raise UsageError(
                f"ab: {part!r} changes nothing; the fields are {known}.\n"
                "Type:  %agent ab threshold=60,target=50 strategy=truncate"
            )
        values[name] = _value(value)
    try:
        return CompactionPolicy(**values)
    except TypeError as problem:
        raise ConfigError(f"ab: {text}: {problem}", field="policy") from None


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        words = {"True": True, "False": False, "None": None}
        return words.get(text, text)


def _report(found: Any) -> Report:
    """Measure by measure; shares in percent."""
    rows = []
    for line in found.summary.to_dict("records"):
        name = line["measure"]
        share = name in _SHARES
        label = f"{name} that survive" if share else name.replace("_", " ")
        cells = [_cell(line[side], share=share) for side in ("a", "b")]
        change = _cell(line["change"], share=share, signed=True)
        if any(cells):
            rows.append((label, *cells, change))
    answers = [one for one in found.report.next_answers if one.policy != "(recorded)"]
    lines = tuple(f"\n{one.policy} answers:\n{one.text or one.error}" for one in answers)
    if not any(one.passes for one in found.report.outcomes):
        peak = max(one.tokens for one in found.report.outcomes)
        half = max(peak // 2, 100)
        lines = (
            f"Neither policy fired: the context is {peak:,} tokens at most.",
            f"Try a smaller window:  %agent ab window={half} window={half},strategy=truncate",
            *lines,
        )
    title = f"{found.report.material.name}: two policies, replayed; nothing was changed"
    return Report(
        title, header=("", *found.names, "change"), rows=tuple(rows), lines=lines, data=found
    )


def _cell(value: Any, *, share: bool, signed: bool = False) -> str:
    if value is None or type(value).__name__ == "NAType" or value != value:  # noqa: PLR0124, RUF100  # NaN
        return ""
    sign = "+" if signed and value > 0 else ""
    if share:
        return f"{sign}{100 * value:.0f} %"
    return f"{sign}{value:,.0f}" if float(value).is_integer() else f"{sign}{value:,.4g}"
