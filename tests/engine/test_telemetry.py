"""engine/telemetry.py: spans over a real SDK with an in-memory exporter (extra otel)."""

from __future__ import annotations

import sys

import pytest

from notebook_agent import AgentRuntime, ScriptedModel
from notebook_agent.core import agent_events as ev
from notebook_agent.core.response import Usage
from notebook_agent.core.retry import RetryPolicy
from notebook_agent.engine.clock import pinned
from notebook_agent.engine.observers import (
    Compaction,
    ModelChange,
    Response,
    RunEnd,
    RunStart,
    ToolPost,
    ToolPre,
    TurnStart,
)
from notebook_agent.errors import AgentError, Cancelled, ConfigError
from notebook_agent.providers.scripted_reply import Reply

sdk = pytest.importorskip("opentelemetry.sdk.trace")
export = pytest.importorskip("opentelemetry.sdk.trace.export")
memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")

from notebook_agent.core.messages import ToolCallPart  # noqa: E402  # after importorskip
from notebook_agent.engine.telemetry import Telemetry  # noqa: E402  # after importorskip


def traced(model, **given):
    exporter = memory.InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    watch = Telemetry(provider.get_tracer("test"), content=given.pop("content", False))
    runtime = AgentRuntime(model, observers=[watch], surroundings=pinned(), **given)
    return runtime, exporter


def look(box: int) -> str:
    """Look into a box."""
    return f"secret apples {box}"


def test_spans_of_run_turn_attempt_and_tool_nest():
    model = ScriptedModel(
        [Reply(tool_calls=(ToolCallPart("c1", "look", {"box": 3}),)), "Apples."], script="503,ok"
    )
    runtime, exporter = traced(
        model, tools=[look], retry=RetryPolicy(base_delay=0.01, max_delay=0.02)
    )
    assert runtime.run("What is in box 3?").text == "Apples."
    spans = exporter.get_finished_spans()
    by_name = {}
    for span in spans:
        by_name.setdefault(span.name, []).append(span)
    (run,) = by_name["invoke_agent notebook_agent"]
    assert run.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert run.attributes["notebook_agent.run.status"] == "completed"
    turns = [by_name["turn 0"][0], by_name["turn 1"][0]]
    assert all(t.parent.span_id == run.context.span_id for t in turns)
    chats = by_name["chat scripted"]
    assert [c.attributes["notebook_agent.attempt"] for c in chats] == [1, 2, 1]
    assert chats[0].status.status_code.name == "ERROR"
    assert chats[0].attributes["error.type"]
    assert chats[1].attributes["gen_ai.usage.output_tokens"] > 0
    assert chats[2].attributes["gen_ai.response.finish_reasons"] == ("end_turn",)
    assert [c.parent.span_id for c in chats] == [t.context.span_id for t in (turns[0], turns[0], turns[1])]  # fmt: skip
    (tool,) = by_name["execute_tool look"]
    assert tool.attributes["gen_ai.tool.call.id"] == "c1"
    assert tool.parent.span_id == turns[0].context.span_id


def test_no_text_is_recorded_unless_asked_for():
    def said(**given):
        model = ScriptedModel(
            [Reply(tool_calls=(ToolCallPart("c1", "look", {"box": 3}),)), "A private reply."]
        )
        runtime, exporter = traced(model, tools=[look], **given)
        runtime.run("A private question")
        return "".join(str(dict(s.attributes)) + str(s.status.description) for s in exporter.get_finished_spans())  # fmt: skip

    quiet, loud = said(), said(content=True)
    assert "private" not in quiet
    assert "secret" not in quiet
    assert "A private reply." in loud
    assert "secret apples 3" in loud


def test_a_failed_run_ends_every_span_with_its_error():
    runtime, exporter = traced(ScriptedModel(["never"], script="400"))
    with pytest.raises(AgentError):
        runtime.run("Hi")
    spans = {s.name: s for s in exporter.get_finished_spans()}
    run = spans["invoke_agent notebook_agent"]
    assert run.status.status_code.name == "ERROR"
    assert run.attributes["error.type"] == "ProviderError"
    assert spans["turn 0"].status.status_code.name == "ERROR"
    assert all(s.end_time is not None for s in exporter.get_finished_spans())


def test_a_second_run_makes_a_second_trace():
    runtime, exporter = traced(ScriptedModel(["One.", "Two."]))
    runtime.run("a")
    runtime.run("b")
    traces = {s.context.trace_id for s in exporter.get_finished_spans()}
    assert len(traces) == 2


def test_without_the_extra_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigError, match="notebook-agent\\[otel\\]"):
        Telemetry()


def test_a_rescue_a_switch_and_a_compaction_are_seen():
    from notebook_agent import CompactionPolicy
    from notebook_agent.core.settings import StreamTimeouts

    model = ScriptedModel(["apples and pears " * 40], script="drop@1*4,ok")
    runtime, exporter = traced(
        model,
        retry=RetryPolicy(base_delay=0.01, max_delay=0.02),
        timeouts=StreamTimeouts(),
        compaction=CompactionPolicy(window=700),
    )
    for n in range(6):
        try:
            runtime.run(f"Question {n}?")
        except AgentError:
            continue
    spans = exporter.get_finished_spans()
    assert any(s.attributes.get("notebook_agent.rescue") for s in spans)
    events = {event.name for s in spans for event in s.events}
    assert "compaction" in events


def test_a_tool_that_fails_marks_its_span():
    def broken() -> str:
        """Break."""
        raise ValueError("private words")

    model = ScriptedModel([Reply(tool_calls=(ToolCallPart("c1", "broken", {}),)), "Sorry."])
    runtime, exporter = traced(model, tools=[broken])
    runtime.run("Go")
    (span,) = [s for s in exporter.get_finished_spans() if s.name == "execute_tool broken"]
    assert span.status.status_code.name == "ERROR"
    assert "private" not in str(span.status.description)


def test_a_rescue_a_switch_and_a_compaction_are_told():
    """As the engine's events come: the attempt before is ended, the rescue is marked."""
    exporter = memory.InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    watch = Telemetry(provider.get_tracer("test"), agent="mine")
    watch.on_model_switched(ModelChange("a", "b"))  # before a run there is no span to note it on
    watch.on_run_end(RunEnd(success=True, error=None, total_turns=0, duration_s=0.0))
    watch.on_response(Response(0, "", None))
    watch.on_tool_post(ToolPost(0, "look", "c0"))
    watch.on_run_start(RunStart("s", "r", "mystery-model"))
    watch.on_tool_pre(ToolPre(0, "look", "c1"))
    watch.on_event(ev.AttemptFailed(turn=0, attempt=1, cause="timeout", next_step="retry"))
    watch.on_turn_start(TurnStart(0, "Hi"))
    watch.on_event(ev.AttemptStarted(turn=0, attempt=1, max_attempts=4, model="openai:gpt-x"))
    watch.on_event(ev.RescueStarted(turn=0, deadline_s=5.0))
    watch.on_response(Response(0, "Fine.", Usage(input_tokens=None, output_tokens=3)))
    watch.on_model_switched(ModelChange("openai:gpt-x", "groq:llama"))
    watch.on_compaction(Compaction(100, 40, 60, "truncate"))
    watch.on_run_start(RunStart("s", "r2", ""))  # the run before it never ended
    watch.on_run_end(RunEnd(success=False, error=Cancelled("stopped"), total_turns=1, duration_s=1.0, status="cancelled"))  # fmt: skip
    spans = exporter.get_finished_spans()
    first, second = (s for s in spans if s.name == "invoke_agent mine")
    assert first.attributes["gen_ai.request.model"] == "mystery-model"
    assert "gen_ai.request.model" not in second.attributes
    assert second.attributes["error.type"] == "Cancelled"
    assert second.status.status_code.name == "UNSET"  # the user's own stop is no error
    normal, rescue = (s for s in spans if s.name.startswith("chat "))
    assert normal.attributes["gen_ai.provider.name"] == "openai"
    assert rescue.attributes["notebook_agent.rescue"] is True
    assert rescue.attributes["gen_ai.usage.output_tokens"] == 3
    assert "gen_ai.usage.input_tokens" not in rescue.attributes
    turn = next(s for s in spans if s.name == "turn 0")
    assert [e.name for e in turn.events] == ["model_switched", "compaction"]
    assert [s.name for s in spans if s.end_time is None] == []
    tool = next(s for s in spans if s.name == "execute_tool look")  # left open by the run
    assert tool.parent.span_id == first.context.span_id
