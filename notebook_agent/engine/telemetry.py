"""OpenTelemetry: spans of run, turn, attempt and tool, with the GenAI names. Off by default.

    AgentRuntime(model, observers=[Telemetry()])

Extra ``otel`` brings the API; which exporter spans go to is the application's choice. No text of
prompts, replies, arguments or results is recorded unless ``content=True``.

Source: tune by experiment, OpenTelemetry; LLM turn, "Recording the outcome" (L113-L115).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from notebook_agent.core import agent_events as ev
from notebook_agent.engine.observers import (
    Compaction,
    ModelChange,
    Observer,
    Response,
    RunEnd,
    RunStart,
    StreamSuccess,
    ToolPost,
    ToolPre,
    TurnEnd,
    TurnStart,
)
from notebook_agent.errors import AgentError, Cancelled, ConfigError

__all__ = ["Telemetry"]

SCOPE: Final = "notebook_agent"
# Provider of a full name -> the well-known value of gen_ai.provider.name; others as they are.
PROVIDERS: Final[Mapping[str, str]] = {
    "openai": "openai", "openai-responses": "openai", "azure": "azure.ai.openai",
    "anthropic": "anthropic", "gemini": "gcp.gemini", "mistral": "mistral_ai", "groq": "groq",
    "deepseek": "deepseek", "xai": "x_ai",
}  # fmt: skip


class Telemetry(Observer):
    """Makes spans of what happens; one for each session.

    Args:
        tracer: An OpenTelemetry tracer; None = the global provider's.
        content: Record texts too: prompts' first line, replies, arguments, results.
        agent: ``gen_ai.agent.name``.

    Raises:
        ConfigError: OpenTelemetry is not installed.
    """

    def __init__(
        self, tracer: Any = None, *, content: bool = False, agent: str = "notebook_agent"
    ) -> None:
        try:
            from opentelemetry import trace  # noqa: PLC0415  # extra: otel
        except ImportError:
            raise ConfigError(
                "Telemetry needs OpenTelemetry.\nInstall it with:  pip install notebook-agent[otel]",
                field="observers",
            ) from None
        self._trace = trace
        self._tracer = tracer if tracer is not None else trace.get_tracer(SCOPE)
        self._content, self._agent = content, agent
        self._run: Any = None
        self._turn: Any = None
        self._attempt: Any = None
        self._tools: dict[str, Any] = {}
        self._served = ""

    # ---- run -------------------------------------------------------------------------------

    def on_run_start(self, ctx: RunStart) -> None:
        """A run begins: the span that all others hang on."""
        self._close_all()
        self._served = ctx.model
        self._run = self._begin(
            f"invoke_agent {self._agent}",
            None,
            {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": self._agent,
                "gen_ai.conversation.id": ctx.session_id,
                "notebook_agent.run.id": ctx.run_id,
                **_model(ctx.model),
            },
        )

    def on_run_end(self, ctx: RunEnd) -> None:
        """It ended, one way or another."""
        if self._run is None:
            return
        self._run.set_attribute("notebook_agent.run.status", ctx.status)
        self._run.set_attribute("notebook_agent.run.turns", ctx.total_turns)
        self._fail(self._run, ctx.error)
        self._close_all()

    # ---- turn and attempt ------------------------------------------------------------------

    def on_turn_start(self, ctx: TurnStart) -> None:
        """A turn begins."""
        self._end("_attempt")
        self._end("_turn")
        attributes: dict[str, Any] = {"notebook_agent.turn": ctx.turn}
        if self._content:
            attributes["notebook_agent.query"] = ctx.query
        self._turn = self._begin(f"turn {ctx.turn}", self._run, attributes)

    def on_turn_end(self, ctx: TurnEnd) -> None:
        """A turn ended."""
        self._end("_attempt", ctx.error)
        if self._turn is not None:
            self._fail(self._turn, ctx.error)
        self._end("_turn")

    def on_event(self, event: ev.AgentEvent) -> None:
        """Attempts begin and fail."""
        match event:
            case ev.AttemptStarted():
                self._end("_attempt")
                self._attempt = self._chat(event.model or self._served, event.attempt)
            case ev.AttemptFailed():
                if self._attempt is not None:
                    self._attempt.set_attribute("error.type", event.cause)
                    self._attempt.set_attribute("notebook_agent.next_step", event.next_step)
                    self._attempt.set_status(
                        self._trace.Status(self._trace.StatusCode.ERROR, event.cause)
                    )
                self._end("_attempt")
            case ev.RescueStarted():
                self._end("_attempt")
                self._attempt = self._chat(self._served, 0, rescue=True)
            case _:
                return

    def _chat(self, model: str, attempt: int, *, rescue: bool = False) -> Any:
        bare = model.partition(":")[2] or model
        attributes: dict[str, Any] = {"gen_ai.operation.name": "chat", **_model(model)}
        attributes["notebook_agent.attempt"] = attempt
        if rescue:
            attributes["notebook_agent.rescue"] = True
        return self._begin(f"chat {bare}", self._turn or self._run, attributes, client=True)

    def on_stream_success(self, ctx: StreamSuccess) -> None:
        """The model that served."""
        self._served = ctx.model

    def on_response(self, ctx: Response) -> None:
        """The reply is complete: tokens, ending."""
        span = self._attempt
        if span is None:
            return
        usage = ctx.usage
        if usage is not None:
            for name, value in (
                ("gen_ai.usage.input_tokens", usage.context_tokens),
                ("gen_ai.usage.output_tokens", usage.output_tokens),
            ):
                if value is not None:
                    span.set_attribute(name, value)
        if ctx.ending is not None:
            span.set_attribute("gen_ai.response.finish_reasons", (ctx.ending.value,))
        if self._content:
            span.set_attribute("notebook_agent.reply", ctx.text)
        self._end("_attempt")

    def on_model_switched(self, ctx: ModelChange) -> None:
        """Another model serves: an event of the run's span."""
        self._note("model_switched", {"from": ctx.from_model, "to": ctx.to_model})

    def on_compaction(self, ctx: Compaction) -> None:
        """The context was made smaller: an event of the run's span."""
        self._note(
            "compaction",
            {"tokens_before": ctx.tokens_before, "tokens_after": ctx.tokens_after, "strategy": ctx.strategy},
        )  # fmt: skip

    # ---- tools -----------------------------------------------------------------------------

    def on_tool_pre(self, ctx: ToolPre) -> None:
        """A tool is about to run."""
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": ctx.tool,
            "gen_ai.tool.call.id": ctx.tool_call_id,
        }
        if self._content:
            attributes["gen_ai.tool.call.arguments"] = str(ctx.input)
        parent = self._turn or self._run
        self._tools[ctx.tool_call_id] = self._begin(f"execute_tool {ctx.tool}", parent, attributes)

    def on_tool_post(self, ctx: ToolPost) -> None:
        """A tool ended."""
        span = self._tools.pop(ctx.tool_call_id, None)
        if span is None:
            return
        if self._content:
            span.set_attribute("gen_ai.tool.call.result", ctx.result)
        if ctx.is_error:
            span.set_attribute("error.type", "tool_error")
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR))
        span.end()

    # ---- spans -----------------------------------------------------------------------------

    def _begin(
        self, name: str, parent: Any, attributes: Mapping[str, Any], *, client: bool = False
    ) -> Any:
        kind = self._trace.SpanKind.CLIENT if client else self._trace.SpanKind.INTERNAL
        context = None if parent is None else self._trace.set_span_in_context(parent)
        return self._tracer.start_span(name, context=context, kind=kind, attributes=attributes)

    def _note(self, name: str, attributes: Mapping[str, Any]) -> None:
        span = self._turn or self._run
        if span is not None:
            span.add_event(name, attributes)

    def _fail(self, span: Any, error: AgentError | None) -> None:
        if error is None:
            return
        span.set_attribute("error.type", type(error).__name__)
        if not isinstance(error, Cancelled):  # the user's own stop is no error of ours
            words = str(error) if self._content else type(error).__name__
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, words))

    def _end(self, which: str, error: AgentError | None = None) -> None:
        span = getattr(self, which)
        if span is not None:
            self._fail(span, error)
            span.end()
            setattr(self, which, None)

    def _close_all(self) -> None:
        """Children first."""
        for span in self._tools.values():
            span.end()
        self._tools.clear()
        for which in ("_attempt", "_turn", "_run"):
            self._end(which)


def _model(full_name: str) -> dict[str, str]:
    """The model's attributes; nothing where it is not known."""
    provider, colon, bare = full_name.partition(":")
    if not colon:
        return {"gen_ai.request.model": full_name} if full_name else {}
    name = PROVIDERS.get(provider, provider)
    return {"gen_ai.provider.name": name, "gen_ai.request.model": bare}
