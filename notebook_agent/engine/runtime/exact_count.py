"""The provider's own count of the next request, asked for by hand (L20).

Source: LLM turn, "Counting the context" (L17, L20); notebook, section 3 (``count``).
"""

from __future__ import annotations

from typing import Any

from notebook_agent.core.compaction import CompactionPolicy
from notebook_agent.core.context import Contributor, TokenCounter
from notebook_agent.core.messages import Message
from notebook_agent.core.request import RequestOptions, build_turn_request
from notebook_agent.engine.calibrating import Calibration
from notebook_agent.engine.cancel import CancelSignal
from notebook_agent.engine.context_pipeline import ContextPipeline, Wanted
from notebook_agent.engine.conversation import Overhead
from notebook_agent.engine.llm_turn import LlmTurn
from notebook_agent.engine.memory import LoopMemory
from notebook_agent.engine.runtime.clients import Clients
from notebook_agent.engine.runtime.run_options import RunOptions
from notebook_agent.engine.runtime.sync import run_sync
from notebook_agent.errors import ConfigError

__all__ = ["ExactCount"]


class ExactCount:
    """The part of AgentRuntime that builds contexts between runs and has them counted."""

    primary: str
    options: RequestOptions
    compaction: CompactionPolicy
    contributors: list[Contributor]
    memory: LoopMemory | None
    counter: TokenCounter
    cancel_signal: CancelSignal
    clients: Clients
    llm: LlmTurn
    overhead: Overhead
    calibration: Calibration

    def _wanted(self, text: str, given: RunOptions) -> Wanted:
        raise NotImplementedError

    def pipeline(self, counter: TokenCounter | None = None) -> ContextPipeline:
        """A pipeline over the session's parts."""
        pipeline = ContextPipeline(
            counter=self.counter if counter is None else counter,
            compaction=self.compaction,
            route=self.llm.route,
            contributors=self.contributors,
            recall=None if self.memory is None else self.memory.recall,
        )
        pipeline.overhead, pipeline.calibration = self.overhead, self.calibration
        return pipeline

    def exact_count(self, text: str = "", **given: Any) -> int:
        """As :meth:`aexact_count`, from a script or under a running loop."""
        return run_sync(lambda: self.aexact_count(text, **given), self.cancel_signal)

    async def aexact_count(self, text: str = "", **given: Any) -> int:
        """Tokens of the next request by the provider's own count; a request is sent, no reply
        is made (``%agent count --exact``).

        Args:
            text: A prompt that would be asked.
            given: As for ``arun``.

        Returns:
            Input tokens, with system prompt, tools, transients and the conversation.

        Raises:
            ConfigError: The provider has no endpoint that counts, or there is nothing to count.
            ProviderError: The endpoint refused or does not answer.
        """
        options = RunOptions(**given)
        name = self.primary if options.model is None else self.clients.add(options.model)
        client = self.clients(name)
        ask = getattr(client, "count_tokens", None)
        if ask is None:
            raise ConfigError(
                f"{name} has no endpoint that counts tokens; nothing was sent.\n"
                "Type:  %agent count     for our own count",
                field="exact",
            )
        wanted = self._wanted(text, options)
        transients = await self.pipeline(self.counter).gather(wanted)
        messages = [*wanted.base.messages, *([Message.user(text)] if text else [])]
        if not messages:
            raise ConfigError(
                "The conversation is empty: there is no request to count; nothing was sent.\n"
                "Type:  %agent count --exact TEXT",
                field="exact",
            )
        request = build_turn_request(
            transients, messages, system=wanted.system, tools=wanted.tools
        )  # fmt: skip
        asked = self.options if options.options is None else self.options.merged(options.options)
        found: int | None = await ask(request, asked)
        if found is None:
            raise ConfigError(
                f"{name} answered without a count.\nType:  %agent count     for our own count",
                field="exact",
            )
        return found
