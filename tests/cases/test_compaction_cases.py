"""P01 to P07 through the whole runtime: scripted model, store, reload."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from notebook_agent.core.compaction import CompactionPolicy
from notebook_agent.core.compaction_cut import left_open
from notebook_agent.core.messages import Message, Role, ToolCallPart
from notebook_agent.core.session import RunStatus
from notebook_agent.core.trim import is_summary
from notebook_agent.engine.cancel import CancelSignal
from notebook_agent.engine.observers import Observer
from notebook_agent.engine.runtime import AgentRuntime
from notebook_agent.engine.store.memory import MemoryStore
from notebook_agent.engine.tools import tool
from notebook_agent.errors import Cancelled, ContextExceeded, StructuredOutputError
from notebook_agent.providers.scripted import Reply, ScriptedModel
from tests.conftest import fixed_surroundings, run_virtual
from tests.engine.compaction_kit import NOTES, Words

WINDOW = 2_000
LONG = "pad " * 120


class Watch(Observer):
    def __init__(self):
        self.compactions = []
        self.events = []

    def on_compaction(self, ctx):
        self.compactions.append(ctx)

    def on_event(self, event):
        self.events.append(event)

    def of(self, name):
        return [e for e in self.events if type(e).__name__ == name]


def is_summariser(request):
    return request.system is not None and "working notes" in request.system


class Chat:
    """A model that answers chats at length and gives notes when it is asked to summarise."""

    def __init__(self, notes=NOTES, **given):
        self.notes = notes
        self.summaries = 0
        self.client = ScriptedModel(self.reply, **given)

    def reply(self, request):
        if is_summariser(request):
            self.summaries += 1
            return self.notes() if callable(self.notes) else self.notes
        return f"Answer to box {len(self.client.requests)}. " + "fill " * 120


def runtime(client, strategy="extractive", **given):
    policy = {"window": WINDOW, "keep_tokens": 400, "strategy": strategy}
    made = AgentRuntime(
        client,
        counter=Words(),
        compaction=CompactionPolicy(**policy | given.pop("policy", {})),
        surroundings=given.pop("surroundings", None) or fixed_surroundings(),
        **given,
    )
    made.watch = Watch()
    made.hub.add(made.watch)
    return made


def talk(made, count, start=0):
    for n in range(start, start + count):
        run_virtual(made.arun(f"Question {n}: {LONG}"))


def texts(messages):
    return [m.display_text() for m in messages]


# --- P01 -------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["extractive", "truncate"])
def test_P01_every_request_of_a_long_tool_run_is_legal(strategy):
    @tool(concurrent=True)
    async def look(n: int) -> str:
        return f"row {n} " + "cell " * 60

    def reply(request):
        done = sum(len(m.results) for m in request.messages)
        if len(client.requests) > 14:
            return "Done."
        pair = [ToolCallPart("a", "look", {"n": done}), ToolCallPart("b", "look", {"n": done + 1})]
        return Reply(tool_calls=pair)  # the same two ids in every turn

    client = ScriptedModel(reply)
    made = runtime(client, strategy, tools=[look], policy={"window": 1_000, "keep_tokens": 300})
    result = run_virtual(made.arun("The question about tables"))
    assert result.status is RunStatus.COMPLETED
    assert len(made.watch.compactions) >= 2
    for request in client.requests:
        assert left_open(request.messages) == []
        assert any(m.text_content() == "The question about tables" for m in request.messages)
    assert [len(t.tool_calls) for t in result.turns] == [2] * 14 + [0]


# --- P02 -------------------------------------------------------------------------------------


def test_P02_one_try_then_the_turn_runs_and_nothing_is_asked_again():
    chat = Chat()
    made = runtime(chat.client, "model", system="word " * 1_750, policy={"threshold": 85})
    for n in range(3):
        result = run_virtual(made.arun(f"hello {n}", fresh=True))
        assert result.status is RunStatus.COMPLETED
        assert any(
            "1,75" in line and "2,000" in line and "1,900" in line for line in result.notices
        )
    assert chat.summaries == 0
    assert made.watch.compactions == []
    assert len(made.watch.of("CompactionTriggered")) == 3
    made = runtime(chat.client, "model", system="word " * 1_950, policy={"threshold": 85})
    with pytest.raises(ContextExceeded) as caught:
        run_virtual(made.arun("hello"))
    assert caught.value.limit == WINDOW


# --- P03 -------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["extractive", "truncate", "model"])
def test_P03_a_giant_tool_result_never_reaches_summariser_or_model_whole(strategy):
    @tool
    async def dump() -> str:
        return "head 111 " + "cell " * 9_000 + " tail 999"

    chat = Chat()

    def reply(request):
        if is_summariser(request):
            return chat.reply(request)
        asked = request.messages[-1].text_content()
        if asked.startswith("dump"):
            return Reply(tool_calls=[ToolCallPart("d", "dump", {})])
        return "Short."

    client = chat.client = ScriptedModel(reply)
    made = runtime(client, strategy, tools=[dump])
    talk(made, 1)
    result = run_virtual(made.arun("dump it"))
    assert result.status is RunStatus.COMPLETED
    run_virtual(made.arun("and now?"))
    counter = Words()
    for request in client.requests:
        size = sum(map(counter.count_message, request.messages))
        assert size + counter.count_overhead(request.system, request.tools) <= WINDOW
        assert left_open(request.messages) == []
    # the original stays where it was
    whole = [r.message for r in made.store.list_messages(made.session.id) if r.message]
    assert any(r.output.count("cell ") == 9_000 for m in whole for r in m.results)


def test_P03_a_giant_question_is_told_not_cut():
    chat = Chat()
    made = runtime(chat.client)
    with pytest.raises(ContextExceeded) as caught:
        run_virtual(made.arun("word " * 3_000))
    assert caught.value.used > 3_000
    assert chat.client.requests == []


# --- P04 -------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["extractive", "truncate", "model"])
def test_P04_the_system_prompt_is_sent_whole_and_never_summarised(strategy):
    system = "Always answer in Latvian"
    chat = Chat()
    made = runtime(chat.client, strategy, system=system)
    talk(made, 24)
    assert len(made.watch.compactions) >= 4
    assert all(r.system == system for r in chat.client.requests if not is_summariser(r))
    for request in chat.client.requests:
        assert not any("Latvian" in m.display_text() for m in request.messages)
        if not is_summariser(request):
            assert request.messages[-1].text_content().startswith("Question ")


# --- P05 -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "notes",
    [
        "",
        "  \n",
        Reply(thinking="let me see"),
        Reply(text="I will not do that.", refusal=True),
        "I'm sorry, but I can't help with that.",
        Reply(text=NOTES, stop_reason="length"),
        Reply(tool_calls=[ToolCallPart("t", "f", {})]),
        "## Goal\n\n## Decisions\n- none",
    ],
    ids=["empty", "blank", "thinking", "refusal", "sorry", "cut", "tool", "skeleton"],
)
def test_P05_no_summary_is_shown_as_failed_and_pauses_after_three(notes):
    chat = Chat(notes)
    made = runtime(chat.client, "model")
    n = 0
    while len(made.watch.of("CompactionCompleted")) < 4:
        try:
            run_virtual(made.arun(f"Question {n}: {LONG}"))
        except ContextExceeded:
            break  # the emergency line ends what no pass could help
        n += 1
    done = made.watch.of("CompactionCompleted")
    assert not any(e.applied for e in done)
    assert done[0].detail.startswith("failed: no summary")
    assert chat.summaries <= 3
    assert not any(is_summary(m) for m in made.session.history)
    assert len(made.session.history) == 2 * n
    assert made.watch.compactions == []


def test_P05_the_third_failure_pauses_and_says_so_and_by_hand_it_still_works():
    chat = Chat("")
    made = runtime(chat.client, "model", policy={"emergency": 100, "threshold": 30})
    talk(made, 6)
    assert chat.summaries == 3
    (opened,) = made.watch.of("CompactionCircuitOpened")
    assert opened.consecutive_failures == 3
    details = [e.detail for e in made.watch.of("CompactionCompleted")]
    assert "paused" in details[-1]
    chat.notes = NOTES
    result = made.compact_now()
    assert result.applied
    assert chat.summaries > 3
    assert is_summary(made.session.history[0])


# --- P06 -------------------------------------------------------------------------------------


def test_P06_an_interrupt_while_the_summary_is_written_loses_nothing():
    signal = CancelSignal()
    store = MemoryStore()
    hang = {"on": True}

    def reply(request):
        if is_summariser(request) and hang["on"]:
            return Reply(text=NOTES, delay_s=50)
        return NOTES if is_summariser(request) else "Answer. " + "fill " * 120

    client = ScriptedModel(reply)
    made = runtime(client, "model", cancel=signal, store=store, session="work")
    talk(made, 6)
    before = texts(made.session.history)
    breaker = made.breaker.data.consecutive_failures

    async def interrupted():
        asyncio.get_running_loop().call_later(20, signal.cancel)
        await made.arun(f"The one that is stopped: {LONG}")

    with pytest.raises(Cancelled) as caught:
        run_virtual(interrupted())
    assert caught.value.result.status is RunStatus.CANCELLED
    assert texts(made.session.history) == before
    assert made.breaker.data.consecutive_failures == breaker
    assert made.compactor.state.failures == made.compaction_facts.failures == 0
    # the kernel starts anew and the session is loaded
    again = runtime(client, "model", store=store, session="work", surroundings=counting(500))
    assert texts(again.session.history) == before
    hang["on"] = False
    assert run_virtual(again.arun(f"And on: {LONG}")).status is RunStatus.COMPLETED
    assert again.watch.compactions
    assert is_summary(again.session.history[0])


def counting(start):
    """Surroundings whose ids do not repeat an earlier kernel's."""
    numbers = iter(range(start, 10**6))
    return fixed_surroundings(new_id=lambda kind: f"{kind}_{next(numbers)}")


def test_P06_what_was_compacted_reads_the_same_after_a_reload():
    store = MemoryStore()
    chat = Chat()
    made = runtime(chat.client, "truncate", store=store, session="work")
    talk(made, 9)
    assert made.watch.compactions
    again = runtime(chat.client, "truncate", store=store, session="work")
    assert texts(again.session.history) == texts(made.session.history)
    # and the trail and the log hold everything (L105)
    assert [r.turns[0].input[:11] for r in again.session.runs] == [
        f"Question {n}:" for n in range(9)
    ]
    logged = [r.message for r in store.list_messages(made.session.id) if r.kind == "message"]
    assert len(logged) == 18


# --- P07 -------------------------------------------------------------------------------------


def test_P07_a_summary_that_is_longer_is_rejected_and_not_tried_again_at_once():
    chat = Chat("## Goal\n" + "many words " * 450)
    client = ScriptedModel(
        lambda request: chat.reply(request) if is_summariser(request) else "Yes. " + "ok " * 20
    )
    chat.client = client
    made = runtime(client, "model", policy={"summary_tokens": 1_000, "threshold": 25})
    for n in range(12):
        run_virtual(made.arun(f"Short {n} " + "w " * 20))
    completed = made.watch.of("CompactionCompleted")
    assert completed
    assert not any(e.applied for e in completed)
    first = completed[0]
    assert "no gain" in first.detail
    # measured the same way, both: the full request
    assert first.tokens_after > first.tokens_before > 500
    assert len(made.session.history) == 24
    assert all(run.status is RunStatus.COMPLETED for run in made.session.runs)


def test_P07_both_figures_are_of_the_full_request():
    system = "rule " * 100
    made = runtime(Chat().client, system=system)
    talk(made, 8)
    compaction = made.watch.compactions[0]
    assert compaction.tokens_saved == compaction.tokens_before - compaction.tokens_after > 0
    assert compaction.tokens_before > 1_600  # the line it crossed counts the system prompt too
    trigger = made.watch.of("CompactionTriggered")[0]
    assert compaction.tokens_before == trigger.used


def test_P07_a_runs_schema_is_in_both_figures_as_it_is_in_the_trigger():
    field = {"type": "string", "description": "pad " * 60}
    schema = {"type": "object", "properties": {"answer": field}}

    def figures(**given):
        made = runtime(Chat().client)
        talk(made, 5)
        with contextlib.suppress(StructuredOutputError):  # the chat has no such answer
            run_virtual(made.arun(LONG * 4, **given))
        over = made.watch.of("CompactionTriggered")[0]
        return over.used, made.watch.compactions[0].tokens_before

    plain, asked = figures(), figures(schema=schema)
    assert asked[0] > plain[0] + 50
    assert asked[1] - plain[1] == asked[0] - plain[0]


# --- preview ----------------------------------------------------------------------------------


def test_preview_changes_nothing_and_tells_what_now_does():
    chat = Chat()
    made = runtime(chat.client, policy={"window": 100_000})
    talk(made, 8)
    history = texts(made.session.history)
    asked = len(chat.client.requests)
    shown = made.compact_preview()
    assert (texts(made.session.history), len(chat.client.requests)) == (history, asked)
    result = made.compact_now()
    assert (shown.tokens_before, shown.tokens_after) == (result.tokens_before, result.tokens_after)
    assert [r.id for r in shown.rows if r.fate == "kept"] == list(result.kept_ids)
    assert made.session.history[0].role is Role.USER
    assert isinstance(made.session.history[0], Message)
