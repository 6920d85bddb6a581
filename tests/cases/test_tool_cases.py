"""S08, T04, T05, K01, K04, A02, X02 as far as tools are concerned, through the whole runtime."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Literal

import pytest
from pydantic import BaseModel, Field

from notebook_agent.core.compaction import CompactionPolicy
from notebook_agent.core.compaction_cut import left_open
from notebook_agent.core.messages import ToolCallPart
from notebook_agent.core.request import RequestOptions, ToolConstraint
from notebook_agent.core.session import RunStatus
from notebook_agent.engine.cancel import CancelSignal
from notebook_agent.engine.runtime import AgentRuntime
from notebook_agent.engine.store.memory import MemoryStore
from notebook_agent.engine.tokenizer import default_counter
from notebook_agent.engine.tools import ToolRegistry, abandoned_tools, current_cancel, tool
from notebook_agent.errors import Cancelled
from notebook_agent.providers.scripted import Reply, ScriptedModel
from tests.engine.compaction_kit import Words
from tests.engine.test_tools_output import png


def asks(*calls):
    return Reply(tool_calls=list(calls))


def made(replies, *tools, **given):
    client = ScriptedModel(replies)
    runtime = AgentRuntime(client, tools=tools, counter=given.pop("counter", Words()), **given)
    runtime.client = client
    return runtime


def results_sent(runtime):
    return [r for m in runtime.client.requests[-1].messages for r in m.results]


# --- S08 -------------------------------------------------------------------------------------


@pytest.mark.parametrize("raw", ["", "null", "{}", "  "])
def test_S08_a_tool_without_parameters_runs_once_with_nothing(raw):
    ran = []

    @tool
    def now() -> str:
        """The time."""
        ran.append(1)
        return "noon"

    runtime = made([asks(ToolCallPart("c", "now", None, raw=raw)), "It is noon."], now)
    result = runtime.run("What time is it?")
    assert result.status is RunStatus.COMPLETED
    assert ran == [1]
    (sent,) = results_sent(runtime)
    assert (sent.output, sent.is_error) == ("noon", False)
    stored = [c for m in runtime.session.history for c in m.tool_calls]
    assert [c.input for c in stored] == [{}]
    (row,) = runtime.store.tool_executions(result.run.id)
    assert (row.arguments, row.status) == ("{}", "ok")


@pytest.mark.parametrize("value", [[1, 2], "text", 7, True])
def test_S08_valid_json_that_is_no_object_never_runs(value):
    ran = []

    @tool
    def now() -> str:
        ran.append(1)

    runtime = made([asks(ToolCallPart("c", "now", value, raw=json.dumps(value))), "Sorry."], now)
    result = runtime.run("go")
    assert result.status is RunStatus.COMPLETED
    assert ran == []
    (sent,) = results_sent(runtime)
    assert sent.is_error
    assert "Invalid arguments" in sent.output


# --- T04 -------------------------------------------------------------------------------------


class Filter(BaseModel):
    column: str = Field(title="One of the names", description="Which column.")
    op: Literal["=", "<", ">"] = "="
    value: int | str | None = None


def fourteen():
    def make(n):
        @tool(name=f"search_{n}")
        def search(
            query: str, filters: list[Filter], limit: int = 10, order: Literal["up", "down"] = "up"
        ) -> str:
            """Search the table.

            Args:
                query: What to look for.
                filters: All of them must hold.
                limit: How many rows.
                order: Which way.
            """
            return ""

        return search

    return [make(n) for n in range(14)]


def test_T04_every_field_of_every_schema_is_counted_as_it_is_sent():
    counter = default_counter()
    runtime = made(["ok"], *fourteen(), counter=counter, system="Be brief.")
    runtime.run("hello")
    sent = runtime.client.requests[0].tools
    assert [t.name for t in sent] == sorted(t.name for t in sent)
    assert len(sent) == 14
    text = json.dumps([t.parameters for t in sent])
    for word in ("anyOf", "default", "title", "enum", "Which column.", "All of them must hold."):
        assert word in text, word
    # no less than the bare text of all schemas, names and descriptions
    bare = sum(counter.count_text(t.name + t.description + json.dumps(t.parameters)) for t in sent)
    before = runtime.context_anatomy()
    assert before.tools >= bare

    def fifteenth(anything: str) -> str:
        """One more."""

    runtime.registry.register(fifteenth)
    assert runtime.context_anatomy().tools > before.tools
    runtime.registry.remove("fifteenth")
    assert runtime.context_anatomy().tools == before.tools


def test_T04_counted_also_when_a_forced_format_suppresses_them():
    runtime = made(['{"a": 1}', '{"a": 1}'], *fourteen())
    plain = runtime.run("hello")
    forced = runtime.run(
        "hello", fresh=True, options=RequestOptions(response_format={"type": "json_object"})
    )
    assert forced.turns[0].context_estimate == plain.turns[0].context_estimate


def test_L21_editing_a_tool_moves_the_overhead_and_order_does_not():
    one, two = ToolRegistry(fourteen()), ToolRegistry(reversed(fourteen()))
    assert one.key() == two.key()

    def search_0(query: str) -> str:
        """Another text."""

    two.register(search_0)
    assert one.key() != two.key()


def test_L7_strict_schemas_reach_the_request():
    runtime = made(["ok"], *fourteen())
    runtime.run("hello", options=RequestOptions(tool_constraint=ToolConstraint.STRICT))
    for schema in runtime.client.requests[0].tools:
        assert schema.parameters["additionalProperties"] is False
        assert schema.parameters["required"] == list(schema.parameters["properties"])


# --- T05 -------------------------------------------------------------------------------------


def test_T05_an_image_in_a_tool_result_reaches_the_model_and_costs_little():
    raw = png(600, 400) + b"\x00" * 2_500_000  # a picture of 2.5 MB

    @tool
    def draw():
        """Draw."""
        return raw

    runtime = made(
        [asks(ToolCallPart("d", "draw", {})), "A picture."], draw, counter=default_counter(),
        compaction=CompactionPolicy(window=128_000),
    )  # fmt: skip
    result = runtime.run("Draw and tell")
    assert result.status is RunStatus.COMPLETED
    assert len(result.turns) == 2
    assert not any(t.compacted for t in result.turns)
    (sent,) = results_sent(runtime)
    assert sent.output == "[image 600x400]"
    (image,) = sent.images
    assert (image.width, image.height) == (600, 400)
    assert len(image.source) > 2_500_000
    assert result.turns[1].context_estimate < 5_000


# --- K01, K04 ----------------------------------------------------------------------------------


def stop_once(started, runtime, stopped_at):
    """Fire the cancel from another thread, shortly after the tool has begun."""

    def wait():
        started.wait(20)
        time.sleep(0.1)
        stopped_at.append(time.monotonic())
        runtime.cancel()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@pytest.mark.parametrize("kind", ["async", "polling", "deaf"])
def test_K01_an_interrupt_reaches_the_tool_and_the_next_question_is_legal(kind):
    started, reached, let_go = (threading.Event() for _ in range(3))

    @tool(name="slow_tool")
    async def slow_async():
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            reached.set()
            raise

    @tool(name="slow_tool")
    def slow_polling():
        started.set()
        try:
            while True:
                current_cancel().sleep(0.01)
        finally:
            reached.set()

    @tool(name="slow_tool")
    def slow_deaf():
        reached.set()
        started.set()
        let_go.wait(30)
        return "too late"

    chosen = {"async": slow_async, "polling": slow_polling, "deaf": slow_deaf}[kind]
    store = MemoryStore()
    runtime = made(
        [asks(ToolCallPart("s", "slow_tool", {})), "Fine."], chosen, cancel=CancelSignal(),
        store=store,
    )  # fmt: skip
    before = abandoned_tools()
    stopped_at = []
    stopper = stop_once(started, runtime, stopped_at)
    with pytest.raises(Cancelled) as caught:
        runtime.run("use the tool")
    assert time.monotonic() - stopped_at[0] < 1.5
    stopper.join()
    assert reached.wait(2)
    result = caught.value.result
    assert result.status is RunStatus.CANCELLED
    assert runtime.session.history == []
    assert runtime.breaker.data.consecutive_failures == 0
    (row,) = store.tool_executions(result.run.id)
    assert row.status == "cancelled"
    if kind == "deaf":
        assert abandoned_tools() == before + 1
    after = runtime.run("a plain question")
    assert after.status is RunStatus.COMPLETED
    last = runtime.client.requests[-1]
    assert [m.display_text() for m in last.messages] == ["a plain question"]
    assert left_open(last.messages) == []
    let_go.set()
    for _ in range(300):
        if abandoned_tools() == before:
            break
        time.sleep(0.01)
    assert abandoned_tools() == before
    # the late result went nowhere
    assert [r.status for r in store.tool_executions(result.run.id)] == ["cancelled"]


# --- A02, X02 ----------------------------------------------------------------------------------


def test_A02_a_nul_in_a_result_is_the_same_everywhere():
    @tool
    def bad():
        return "ok\x00\x1b[31mend\ud83d"

    runtime = made([asks(ToolCallPart("b", "bad", {})), "Done."], bad)
    result = runtime.run("go")
    clean = "ok\ufffd\x1b[31mend\ufffd"
    (sent,) = results_sent(runtime)
    (row,) = runtime.store.tool_executions(result.run.id)
    stored = [r.output for m in runtime.session.history for r in m.results]
    logged = [
        r.output
        for entry in runtime.store.list_messages(runtime.session.id)
        if entry.message
        for r in entry.message.results
    ]
    assert {sent.output, row.result, *stored, *logged} == {clean}
    json.dumps(row.result).encode()


def test_X02_a_tool_name_from_the_model_is_only_text():
    name = "<img src=x onerror=alert(1)>"
    runtime = made([asks(ToolCallPart("x", name, {})), "No."], lambda_free)
    result = runtime.run("go")
    assert result.status is RunStatus.COMPLETED
    (sent,) = results_sent(runtime)
    assert sent.is_error
    assert "not available" in sent.output


def lambda_free():
    """Nothing."""


def test_D20_a_script_in_the_main_thread_runs_main_tools_there():
    seen = []

    @tool(main=True)
    def f():
        seen.append(threading.current_thread() is threading.main_thread())

    runtime = made([asks(ToolCallPart("x", "f", {})), "No."], f)
    assert runtime.run("go").status is RunStatus.COMPLETED
    assert seen == [True]
