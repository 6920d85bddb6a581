"""How a cell of the prompt lab is worked: one run of the engine, in a session of its own.

Source: tune by experiment, prompt lab (cost and latency beside quality).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from notebook_agent.core.interpolate import insert
from notebook_agent.core.request import RequestOptions
from notebook_agent.core.result import RunResult
from notebook_agent.engine.clock import SYSTEM, Surroundings, pinned
from notebook_agent.engine.runtime import AgentRuntime
from notebook_agent.providers.base import ModelClient
from notebook_agent.providers.registry import model
from notebook_agent.tuning.cells import Cell
from notebook_agent.tuning.given import amount

__all__ = ["LabWork", "Price", "filled", "judge_inputs"]


@dataclass(frozen=True, slots=True)
class Price:
    """What a model's tokens cost, per million, in the user's currency.

    ``cached`` is for input read from the provider's cache; None = as other input.
    """

    input: float
    output: float
    cached: float | None = None

    def __post_init__(self) -> None:
        amount("input", self.input)
        amount("output", self.output)
        amount("cached", self.cached, none=True)

    def of(self, answer: Mapping[str, Any]) -> float | None:
        """The price of an answer; None when its tokens were not reported."""
        given, made = answer.get("input_tokens"), answer.get("output_tokens")
        if given is None or made is None:
            return None
        hit = min(answer.get("cached_input_tokens") or 0, given)
        cached = self.input if self.cached is None else self.cached
        total: float = (given - hit) * self.input + hit * cached + made * self.output
        return total / 1e6


def filled(text: str, inputs: Mapping[str, Any]) -> str:
    """A prompt with its placeholders filled, by the rule of ``%%agent`` cells.

    Raises:
        InsertionError: A placeholder has no value.
    """
    hint = "Give every input that field, or write \\{{ for literal braces."
    return insert(text, inputs, where="in this input", hint=hint).text


def judge_inputs(spec: Mapping[str, Any], reply: str) -> dict[str, Any]:
    """What a judge's prompt may insert for a row."""
    inputs = dict(spec["inputs"])
    return {**inputs, "prompt": filled(spec["prompt"]["text"], inputs), "reply": reply}


@dataclass
class LabWork:
    """``await work(cell)``: ask once, and tell what came back.

    ``cell.prompt`` is ``{"text", "system"}``; ``cell.config`` ``{"model", "options", ...}``.

    Attributes:
        clients: Full name -> client, for models given as objects; others are made by name, in
            the process that works the cell.
        settings: Further arguments of the runtime: tools, retry, timeouts, policy ...
    """

    # Version of what a cell sends: raised when an answer kept under the old one is not the same.
    code_version: ClassVar[str] = "prompt lab 1"
    clients: Mapping[str, ModelClient] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    made: dict[str, ModelClient] = field(default_factory=dict, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        """To another process goes no client that was made by name: it would hold a key (X05)."""
        return {"clients": self.clients, "settings": self.settings, "made": {}}

    def client(self, name: str) -> ModelClient:
        """The client of a model; made once in each process.

        Raises:
            ConfigError: There is no such model, or its key is missing.
        """
        found = self.clients.get(name) or self.made.get(name)
        if found is None:
            found = self.made[name] = model(name)
        return found

    async def __call__(self, cell: Cell) -> dict[str, Any]:
        """Work one cell.

        Raises:
            AgentError: The run failed; the cell's row says so.
        """
        prompt, config = cell.prompt, cell.config
        extra = dict(config.get("options") or {})
        if cell.seed is not None:
            extra["seed"] = cell.seed
        system = prompt.get("system")
        runtime = AgentRuntime(
            self.client(config["model"]),
            system=None if system is None else filled(system, cell.inputs),
            options=RequestOptions(
                extra=extra, response_format=config.get("response_format") or None
            ),
            **{"surroundings": surroundings(), **self.settings},
        )
        return facts(await runtime.arun(filled(prompt["text"], cell.inputs)))


def facts(result: RunResult) -> dict[str, Any]:
    """What the lab keeps of a run: reply, tokens, times."""
    run, usage = result.run, result.usage
    turns = run.turns
    return {
        "reply": result.text,
        "status_of_run": run.status.value,
        "stop_reason": None if run.stop_reason is None else run.stop_reason.value,
        "served_by": turns[-1].model if turns else None,
        "turns": len(turns),
        "run_attempts": sum(t.attempts for t in turns),
        "input_tokens": None if usage is None else usage.context_tokens,
        "output_tokens": None if usage is None else usage.output_tokens,
        "cached_input_tokens": None if usage is None else usage.cached_input_tokens,
        "seconds": None if run.end is None else max(run.end - run.start, 0.0),
        "first_text_s": turns[0].ttft_s if turns else None,
    }


def surroundings() -> Surroundings:
    """The real clock; a pinned one in notebooks whose stored outputs are compared (D16)."""
    return pinned() if os.environ.get("NOTEBOOK_AGENT_PINNED", "") not in ("", "0") else SYSTEM
