"""Prompt lab: variants x inputs x models x seeds x repeats, scored and compared in pairs.

Example:
    >>> from notebook_agent import ScriptedModel
    >>> from notebook_agent.tuning.prompts import PromptLab
    >>> from notebook_agent.tuning.scorers import exact
    >>> lab = PromptLab(
    ...     {"plain": "Capital of {{country}}?", "short": "Capital of {{country}}? One word."},
    ...     [{"country": "France", "expected": "Paris"}],
    ...     models=ScriptedModel(lambda r: "Paris" if "One word" in str(r) else "It is Paris."),
    ...     scorers=[exact()],
    ... )
    >>> lab.run().summary()[["variant", "exact"]].values.tolist()
    [['plain', 0.0], ['short', 1.0]]

Source: tune by experiment, prompt lab.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from notebook_agent.core.interpolate import InsertionError, known_as, placeholders
from notebook_agent.errors import ConfigError
from notebook_agent.providers.base import ModelClient, full_name
from notebook_agent.tuning.cells import Cell, digest
from notebook_agent.tuning.executors import Limit
from notebook_agent.tuning.given import (
    mappings,
    named,
    numbers,
    one_or_more,
    runtime_settings,
    whole,
)
from notebook_agent.tuning.journal import Journal
from notebook_agent.tuning.lab_result import COLUMNS, Judged, LabResult
from notebook_agent.tuning.lab_work import LabWork, Price, filled, judge_inputs
from notebook_agent.tuning.scorers import Judge, Scorer, scorer
from notebook_agent.tuning.sweep import Progress, Sweep
from notebook_agent.tuning.versions import settings_version

__all__ = ["PromptLab", "Variant"]

JOURNAL_NAME: Final = "prompt lab"


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to ask: a prompt and, when it differs too, a system prompt and request options.

    Both texts may insert ``{{placeholders}}``; the rule is that of ``%%agent`` cells.
    """

    text: str
    system: str | None = None
    options: Mapping[str, Any] | None = None

    def names(self) -> tuple[str, ...]:
        """Placeholders of both texts."""
        both = (*placeholders(self.text), *placeholders(self.system or ""))
        return tuple(dict.fromkeys(both))


class PromptLab:
    """An experiment on prompts.

    Args:
        variants: Name -> text or Variant.
        inputs: One mapping an input: the placeholders' values, and whatever scorers read.
        models: A client or name, or several.
        seeds: Sent as the provider's ``seed``; None sends none.
        repeats: How often each cell is asked.
        scorers: Functions, scorers, judges; one or several.
        journal: A path keeps every answer: a cell that has one is never sent again.
        prices: Full model name -> Price.
        system, options: For every variant that has none of its own; ``""`` and ``{}`` are its own.
        limit, providers: Concurrency and rate; see :class:`~notebook_agent.tuning.executors.Limit`.
        settings: Of the runtime of each cell: tools, retry, timeouts, policy ...

    Raises:
        ConfigError: Something is of another kind; nothing to ask, equal variants, inputs, models or seeds, a scorer's name that
            is taken, or a variant or judge with a placeholder that an input has no value for;
            nothing was sent.
    """

    def __init__(
        self,
        variants: Mapping[str, str | Variant],
        inputs: Iterable[Mapping[str, Any]] | None,
        *,
        models: ModelClient | str | Sequence[ModelClient | str],
        seeds: Iterable[int | None] = (None,),
        repeats: int = 1,
        scorers: Any = (),
        journal: str | os.PathLike[str] | None = None,
        prices: Mapping[str, Price] | None = None,
        system: str | None = None,
        options: Mapping[str, Any] | None = None,
        limit: Limit | None = None,
        providers: Mapping[str, Limit] | None = None,
        **settings: Any,
    ) -> None:
        told = named("variants", variants, (str, Variant), "name -> text or Variant")
        self.variants = {n: v if isinstance(v, Variant) else Variant(v) for n, v in told.items()}
        self.inputs = mappings("inputs", inputs)
        seeds, repeats = numbers("seeds", seeds), whole("repeats", repeats, 1) or 1
        each = one_or_more("scorers", scorers, _is_scorer, "functions, or scorers")
        self.scorers = [scorer(one) for one in each]
        self.prices = named("prices", prices or {}, (Price,), "full model name -> Price")
        runtime_settings(settings)
        self._asked = {n: _whole(v, system, options) for n, v in self.variants.items()}
        judges = [one for one in self.scorers if isinstance(one, Judge)]
        clients: dict[str, ModelClient] = {}
        every = one_or_more("models", models, _is_model, "clients or names of models")
        self.models = [_named(one, clients) for one in every]
        self._judge_models = {j.name: _named(j.model, clients) for j in judges}
        self.work = LabWork(clients, settings)
        self._check(seeds)
        self._limits: dict[str, Any] = {"limit": limit, "providers": providers}
        self._code = f"{LabWork.code_version} {settings_version(settings)}".strip()
        self.journal = Journal(journal, JOURNAL_NAME)
        self._labels: list[tuple[str, int]] = []
        try:
            self.sweep = self._sweep(self._cells(seeds, repeats))
        except BaseException:
            self.journal.close()
            raise
        self._judging: dict[str, Sweep] = {}

    def __repr__(self) -> str:
        return (
            f"<PromptLab: {len(self.variants)} variants x {len(self.inputs)} inputs x "
            f"{len(self.models)} models, {len(self.sweep.cells):,} cells>"
        )

    def __enter__(self) -> PromptLab:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop what runs and let the journal go."""
        self.stop()
        self.journal.close()

    # ---- running ---------------------------------------------------------------------------

    def run(
        self,
        executor: Any = None,
        *,
        progress: Callable[[Progress], None] | None = None,
        retry_failed: bool = False,
    ) -> LabResult:
        """Ask what has no answer yet, let the judges grade, and score.

        Args:
            executor, progress, retry_failed: See
                :meth:`~notebook_agent.tuning.sweep.Sweep.run`.

        Raises:
            Cancelled: Interrupted; :meth:`result` has what is done.
            StoreError: The journal cannot be written.
        """
        self.sweep.run(executor, progress=progress, retry_failed=retry_failed)
        for judge in self.scorers:
            if isinstance(judge, Judge):
                sweep = self._judging[judge.name] = self._sweep(self._judge_cells(judge))
                sweep.run(executor, progress=progress, retry_failed=retry_failed)
        return self.result()

    def start(self, executor: Any = None, **given: Any) -> PromptLab:
        """Ask in a thread; :meth:`result` shows what there is meanwhile. Judges wait for
        :meth:`run`, which asks nothing twice."""
        self.sweep.start(executor, **given)
        return self

    def wait(self, timeout_s: float | None = None) -> LabResult:
        """Wait for :meth:`start`."""
        self.sweep.wait(timeout_s)
        return self.result()

    def stop(self) -> None:
        """Send nothing more; answers that came are kept."""
        self.sweep.stop()

    def result(self) -> LabResult:
        """What is there now: rows, scores, comparisons."""
        return LabResult(
            rows=tuple(sorted(self.sweep.rows(), key=lambda row: row.place)),
            cells=tuple(self.sweep.cells),
            variants=dict(self.variants),
            labels=tuple(self._labels),
            scorers=tuple(one for one in self.scorers if isinstance(one, Scorer)),
            judged=tuple(self._judged()),
            prices=dict(self.prices),
        )

    # ---- cells -----------------------------------------------------------------------------

    def _cells(self, seeds: Sequence[int | None], repeats: int) -> Iterator[Cell]:
        """All cells; repeats vary last, so that a broken-off lab has seen everything once."""
        prompts = {n: {"text": v.text, "system": v.system} for n, v in self._asked.items()}
        configs = {
            (model, name): {"model": model, "options": dict(v.options or {})}
            for model in self.models
            for name, v in self._asked.items()
        }
        inputs = list(enumerate(self.inputs or [{}]))
        every = itertools.product(range(repeats), seeds, inputs, self.models, self.variants)
        for repeat, seed, (number, values), model, name in every:
            self._labels.append((name, number))
            provider = model.partition(":")[0]
            yield Cell(prompts[name], configs[model, name], values, seed, repeat, provider)

    def _judge_cells(self, judge: Judge) -> Iterator[Cell]:
        """One cell for every reply; equal questions of one grading are asked once."""
        name = self._judge_models[judge.name]
        config = {"model": name, "options": dict(judge.options), "judge": judge.name}
        prompt = {"text": judge.prompt, "system": judge.system}
        seen: set[str] = set()
        for row in self.sweep.rows():
            if row.status == "done":
                inputs = judge_inputs(row.spec, row.value["reply"])
                mark = repr(inputs)
                if mark not in seen:
                    seen.add(mark)
                    yield Cell(prompt, config, inputs, None, 0, name.partition(":")[0])

    def _judged(self) -> Iterator[Judged]:
        for name, sweep in self._judging.items():
            judge = next(s for s in self.scorers if s.name == name)
            assert isinstance(judge, Judge)
            yield Judged(judge, tuple(sweep.rows()))

    def _sweep(self, cells: Iterator[Cell]) -> Sweep:
        return Sweep(self.work, cells, journal=self.journal, code=self._code, **self._limits)

    def _check(self, seeds: Sequence[int | None]) -> None:
        for field, value in (
            ("variants", self.variants), ("models", self.models), ("seeds", seeds),
        ):  # fmt: skip
            if not value:
                raise ConfigError(field=field, value=list(value), legal="one or more")
        for field, each in (("models", self.models), ("seeds", seeds), ("inputs", self.inputs)):
            _refuse_twice(field, each)
        self._check_scorers()
        same: dict[bytes, str] = {}
        for name, variant in self._asked.items():
            mark = digest([variant.text, variant.system, dict(variant.options or {})])
            other = same.setdefault(mark, name)
            if other != name:
                raise ConfigError(
                    f"The variants {other!r} and {name!r} ask the same.", field="variants"
                )
            self._check_texts(f"Variant {name!r}", (variant.text, variant.system), variant.names())
        for model in {*self.models, *self._judge_models.values()}:
            self.work.client(model)  # an unknown name or a missing key is said before any request

    def _check_scorers(self) -> None:
        names = [one.name for one in self.scorers]
        columns = {*COLUMNS, *(f"{name}_error" for name in names)}
        for name in names:
            if names.count(name) > 1 or name in columns:
                whose = "Two scorers are" if names.count(name) > 1 else "A column of the frame is"
                raise ConfigError(
                    f"{whose} called {name!r}: give the scorer another name.", field="scorers"
                )
        for judge in self.scorers:
            if isinstance(judge, Judge):
                texts = (judge.prompt, judge.system)
                asked = Variant(judge.prompt, judge.system).names()
                self._check_texts(f"Judge {judge.name!r}", texts, asked, prompt="", reply="")

    def _check_texts(
        self, whose: str, texts: Sequence[str | None], names: Sequence[str], **more: str
    ) -> None:
        """Every placeholder has a value in every input, before anything is sent."""
        for at, own in enumerate(self.inputs or [{}]):
            values = {**own, **more}
            missing = [n for n in names if known_as(n, values) not in values]
            if missing:
                has = ", ".join(values) or "nothing"
                raise ConfigError(
                    f"{whose} inserts {{{{{missing[0]}}}}}, and input {at} has no "
                    f"{missing[0]!r} (it has {has}). Nothing was sent.\n"
                    "Give the input that field, or write \\{{ for literal braces.",
                    field="inputs",
                )
            try:
                for text in texts:
                    filled(text or "", values)
            except InsertionError as problem:
                raise ConfigError(
                    f"{whose}, input {at}: {problem.message}", field="inputs"
                ) from None


def _whole(variant: Variant, system: str | None, options: Mapping[str, Any] | None) -> Variant:
    """A variant with the lab's system prompt and options where it says nothing of its own."""
    return replace(
        variant,
        system=(system if variant.system is None else variant.system) or None,
        options=options if variant.options is None else variant.options,
    )


def _refuse_twice(field: str, values: Sequence[Any]) -> None:
    """Equal ones would be asked the same again, under the same key."""
    seen: dict[bytes, int] = {}
    for at, value in enumerate(values):
        first = seen.setdefault(digest(value), at)
        if first != at:
            raise ConfigError(
                f"{field} {first} and {at} are equal ({str(value)[:60]}).\n"
                "Leave one out; to ask the same several times give repeats=N.",
                field=field,
            )


def _is_model(given: Any) -> bool:
    return isinstance(given, str) or callable(getattr(given, "model", None))


def _is_scorer(given: Any) -> bool:
    return callable(given) or isinstance(given, Judge)


def _named(given: ModelClient | str, clients: dict[str, ModelClient]) -> str:
    """A model's full name; a client is kept under it."""
    if isinstance(given, str):
        return given
    name = full_name(given)
    if clients.setdefault(name, given) is not given:
        raise ConfigError(
            f"Two models are called {name}: give one another name.", field="models", value=name
        )
    return name
