"""What a run tells and leaves behind: observers, events, statuses, rows, limits, budget."""

from __future__ import annotations

import pytest

from notebook_agent.core.agent_events import AttemptFailed
from notebook_agent.core.messages import Message, TextPart, ToolCallPart
from notebook_agent.core.policy import RuntimePolicy
from notebook_agent.core.request import RequestOptions, TurnMode
from notebook_agent.core.response import Usage
from notebook_agent.core.session import RunStatus, Session
from notebook_agent.engine.clock import pinned
from notebook_agent.engine.runtime import AdmissionPolicy
from notebook_agent.engine.store.memory import MemoryStore
from notebook_agent.errors import (
    AgentError,
    Cancelled,
    ConfigError,
    InputRejected,
    ProviderError,
    SessionBusy,
    StoreError,
)
from notebook_agent.providers.scripted import Reply, ScriptedModel, call
from tests.conftest import run_virtual
from tests.engine.runtime_kit import QUIET, Log, check_run, failing, make, run, trace

CALL = Reply(text="Looking.", tool_calls=[ToolCallPart("c1", "look", {"at": "sky"})])


def look(at: str) -> str:
    """Look at something."""
    return f"{at} is blue"


# --- observers (L113-L115)


def test_L115_order_inside_a_served_turn() -> None:
    log = Log()
    runtime = make([CALL, "Blue."], tools=[look], observers=[log])
    run(runtime)
    assert log.names(*QUIET) == [
        "on_run_start",
        "on_turn_start",
        "on_stream_success",
        "on_response",
        "on_tool_call_received",
        "on_tool_pre",
        "on_tool_post",
        "on_turn_end",
        "on_turn_start",
        "on_stream_success",
        "on_response",
        "on_turn_end",
        "on_run_end",
    ]
    assert [(e.turn, e.success) for e in log.of("on_turn_end")] == [(0, True), (1, True)]
    assert log.of("on_run_end")[0].total_turns == 2


def test_L115_order_inside_a_failed_turn() -> None:
    log = Log()
    runtime = make(["Hello."], script="401", observers=[log])
    failing(runtime)
    assert log.names(*QUIET) == [
        "on_run_start",
        "on_turn_start",
        "on_stream_failure",
        "on_turn_end",
        "on_run_end",
    ]
    end = log.of("on_turn_end")[0]
    assert (end.success, end.input_tokens, end.output_tokens) == (False, None, None)
    assert isinstance(end.error, ProviderError)
    assert log.of("on_run_end")[0].status == "failed"


def test_L115_order_inside_a_cancelled_turn() -> None:
    log = Log()
    runtime = make(["one two three"], observers=[log])

    class Stop:
        def on_text_delta(self, ctx):
            runtime.cancel()

    runtime.hub.add(Stop())
    failing(runtime)
    assert log.names(*QUIET) == ["on_run_start", "on_turn_start", "on_turn_end", "on_run_end"]
    assert isinstance(log.of("on_turn_end")[0].error, Cancelled)


def test_reset_is_told_once_per_session() -> None:
    log = Log()
    runtime = make(observers=[log])
    run(runtime)
    run(runtime)
    assert log.names().count("reset") == 1


def test_on_state_tells_every_transition() -> None:
    log = Log()
    runtime = make([CALL, "Blue."], tools=[look], observers=[log])
    result = run(runtime)
    told = [(s.state.name, s.outcome) for s in log.of("on_state")]
    assert told == [tuple(line.split(" => ")[0].split(": ")) for line in trace(runtime, result)]


def test_an_observer_that_raises_changes_nothing() -> None:
    class Bad:
        def on_response(self, ctx):
            raise RuntimeError("boom")

    runtime = make(observers=[Bad()])
    assert run(runtime).status is RunStatus.COMPLETED


# --- events (B67-B70)


def test_B70_every_exit_has_one_terminal_event_and_a_status() -> None:
    cases = {
        "completed": make(["Hello."]),
        "failed": make(["Hello."], script="401"),
        "limit_reached": make([CALL], tools=[look], policy=RuntimePolicy(max_iterations=1)),
    }
    for status, runtime in cases.items():
        log = Log()
        runtime.hub.add(log)
        result = run(runtime)
        assert result.status.value == status
        assert [e.terminal for e in log.of("on_event")].count(True) == 1
        assert log.of("on_event")[-1].terminal
        check_run(runtime, result)


def test_B67_the_projection_is_rebuilt_from_the_store_alone() -> None:
    from notebook_agent.core.run_state import fold

    runtime = make([CALL, "Blue."], tools=[look])
    result = run(runtime)
    records = runtime.store.records(result.run.id)
    assert fold(records) == runtime.store.state(result.run.id)
    state = runtime.store.state(result.run.id)
    assert (state.model, state.provider, state.iteration) == ("scripted", "scripted", 2)
    assert state.total_usage.total == result.usage.total


def test_B68_deltas_are_never_logged() -> None:
    runtime = make(["one two three"])
    result = run(runtime)
    names = [type(e).__name__ for e in runtime.store.events(result.run.id)]
    assert "TextDelta" not in names
    assert names[0] == "RunStarted"
    assert names[-1] == "RunCompleted"
    assert "TurnStarted" in names
    assert "TurnCompleted" in names


def test_B58_a_context_is_recorded_by_ids_and_digest() -> None:
    runtime = make(["Hello."])
    run(runtime, "first")
    result = run(runtime, "second")
    ref = result.turns[0].context_ref
    assert ref.upto == 3  # user, assistant, commit of the first run
    assert len(ref.ids) == 1
    assert ref.estimate == len("first") + len("Hello.") + len("second")
    again = run(runtime, "third").turns[0].context_ref
    assert again.digest != ref.digest
    assert again.upto == 6


# --- limits and budget (B15-B19)


@pytest.mark.parametrize(("allowed", "calls"), [(1, 1), (2, 2), (3, 3)])
def test_B16_exactly_max_iterations_turns(allowed, calls) -> None:
    runtime = make([CALL], tools=[look], policy=RuntimePolicy(max_iterations=allowed))
    result = run(runtime)
    assert result.status is RunStatus.LIMIT_REACHED
    assert len(runtime.client.requests) == calls
    assert result.run.error["used"] == allowed + 1
    assert result.unserved == ()


def test_B16_a_run_that_ends_on_its_last_allowed_turn_completes() -> None:
    runtime = make([CALL, "Blue."], tools=[look], policy=RuntimePolicy(max_iterations=2))
    assert run(runtime).status is RunStatus.COMPLETED


def test_B18_a_reply_without_usage_counts_by_estimate() -> None:
    first = Reply(text="abcd", tool_calls=CALL.tool_calls, usage=None)
    runtime = make([first, "Done."], tools=[look], system="sys")
    result = run(runtime, "Hi")
    row = result.turns[0]
    assert (row.input_tokens, row.output_tokens) == (None, None)
    assert row.budget_estimated
    assert row.budget_tokens == row.context_estimate + len("abcd") + len("look") + len(
        str({"at": "sky"})
    )
    limit = row.budget_tokens
    for allowed, status in ((limit, "completed"), (limit - 1, "token_budget_exhausted")):
        policy = RuntimePolicy(max_total_tokens=allowed)
        other = make([first, "Done."], tools=[look], system="sys", policy=policy)
        assert run(other, "Hi").status.value == status


def test_B18_usage_of_output_only_is_completed_by_the_estimate() -> None:
    runtime = make([Reply(text="x", usage=Usage(None, 7))])
    row = run(runtime).turns[0]
    assert (row.input_tokens, row.output_tokens) == (None, 7)
    assert row.budget_estimated
    assert row.budget_tokens >= 7


def test_A03_failed_attempts_have_columns_of_their_own_and_count() -> None:
    runtime = make([Reply(text="one two three", usage=Usage(900, 40))], script="drop@2,ok")
    result = run(runtime)
    row = result.turns[0]
    assert (row.input_tokens, row.output_tokens, row.attempts) == (900, 40, 2)
    assert row.output == "one two three"
    # the first attempt broke before any usage: estimated, with what it had sent
    assert row.budget_tokens == 940 + row.context_estimate + len("one two ")
    assert row.budget_estimated


@pytest.mark.parametrize(
    "first",
    [
        Reply(thinking="one two three four", usage=Usage(900, 40), text="x"),
        Reply(tool_calls=[call("look", at="the sky at night, please")], usage=Usage(900, 40)),
    ],
    ids=["thinking", "arguments"],
)
@pytest.mark.parametrize("fault", ["drop@2", "trunc@2", "malformed@2", "hang@2", "error@1"])
def test_B18_an_attempt_that_brought_no_text_counts_by_estimate_too(first, fault) -> None:
    runtime = make([first, "Done."], tools=[look], script=f"{fault},ok")
    result = run(runtime)
    row = result.turns[0]
    assert row.attempts == 2
    assert row.budget_tokens == 940 + row.context_estimate
    assert row.budget_estimated
    failed = [e for e in runtime.store.events(result.run.id) if type(e) is AttemptFailed]
    assert [(e.began, e.partial_text, e.usage) for e in failed] == [(True, "", None)]


def test_B19_refused_attempts_cost_nothing() -> None:
    runtime = make([Reply(text="Hello.", usage=Usage(10, 5))], script="503,503,ok")
    row = run(runtime).turns[0]
    assert (row.attempts, row.budget_tokens, row.budget_estimated) == (3, 15, False)


# --- rows (L112, L120)


def test_L112_input_of_each_turn() -> None:
    runtime = make([CALL, "Blue."], tools=[look])
    result = run(runtime, "What colour?")
    assert [t.input for t in result.turns] == ["What colour?", "sky is blue"]


def test_L120_a_row_for_every_outcome() -> None:
    runtime = make(["Hello."], script="ok,401,ok")
    run(runtime, "one")
    failing(runtime, "two")
    run(runtime, "three")
    runs = runtime.session.runs
    assert [(len(r.turns), len(r.unserved)) for r in runs] == [(1, 0), (0, 1), (1, 0)]
    stored = runtime.store.list_runs(runtime.session.id)
    assert stored == runs
    assert runs[1].unserved[0].outcome == "failed"
    assert runs[1].unserved[0].turn.input == "two"
    assert runs[1].unserved[0].error["error"] == "ProviderError"


def test_A01_unknown_usage_stays_unknown() -> None:
    replies = [Reply(text="a", usage=Usage(12, 1)), Reply(text="b", usage=None),
               Reply(text="c", usage=Usage(7, 1))]  # fmt: skip
    runtime = make(replies)
    for _ in replies:
        run(runtime)
    tokens = [r.turns[0].input_tokens for r in runtime.session.runs]
    assert tokens == [12, None, 7]
    assert runtime.session.runs[1].usage is None


def test_T06_cached_tokens_are_counted_once() -> None:
    usage = Usage(184_704, 49, cached_input_tokens=183_936)
    runtime = make([Reply(text="ok", usage=usage)])
    row = run(runtime).turns[0]
    assert (row.cached_input_tokens, row.input_includes_cached) == (183_936, True)
    assert row.budget_tokens == 184_704 + 49


def test_L121_a_failed_run_keeps_its_messages_in_the_log_and_out_of_the_conversation() -> None:
    runtime = make(["Hello."], script="ok,401,ok")
    run(runtime, "one")
    failing(runtime, "two")
    result = run(runtime, "three")
    logged = [m.message.text_content() for m in runtime.store.list_messages(runtime.session.id)
              if m.message]  # fmt: skip
    assert "two" in logged
    assert [m.text_content() for m in runtime.client.requests[-1].messages] == [
        "one", "Hello.", "three",
    ]  # fmt: skip
    check_run(runtime, result)


# --- errors


def test_an_error_carries_its_result() -> None:
    error = failing(make(["Hello."], script="401"))
    assert error.result.status is RunStatus.FAILED
    assert "result" not in error.to_json()


def test_L57_the_text_that_had_arrived_is_in_result_and_row() -> None:
    runtime = make(["one two three four"], script="drop@2")
    error = failing(runtime)
    assert error.partial_text == "one two "
    assert error.result.text == "one two "
    assert error.result.unserved[0].turn.output == "one two "
    assert error.result.turns == ()


def test_a_bug_in_a_step_ends_the_run_with_a_record() -> None:
    class Bad(ScriptedModel):
        asked = 0

        def capabilities(self):
            self.asked += 1
            if self.asked > 1:  # it is asked first when it is chosen
                raise RuntimeError("boom")
            return super().capabilities()

    runtime = make(model=Bad(["x"]))
    error = failing(runtime)
    assert "boom" in str(error)
    check_run(runtime, error.result)


def test_a_broken_contributor_costs_nothing_but_its_words() -> None:
    class Bad:
        def contribute(self, turn, conversation):
            raise RuntimeError("boom")

    class Good:
        def contribute(self, turn, conversation):
            return Message.user(f"note {turn} {len(conversation)}")

    runtime = make(contributors=[Bad(), Good()])
    run(runtime)
    assert [m.text_content() for m in runtime.client.requests[0].messages] == ["note 0 1", "Hi"]
    assert [m.text_content() for m in runtime.session.history] == ["Hi", "Hello."]


# --- gate and admission (B78-B80)


def test_B78_a_second_run_is_refused_at_once() -> None:
    runtime = make([Reply(text="slow", delay_s=5.0)])

    async def both():
        import asyncio

        first = asyncio.ensure_future(runtime.arun("one"))
        await asyncio.sleep(1)
        with pytest.raises(SessionBusy):
            await runtime.arun("two")
        waited = await runtime.arun("three", wait_s=60)
        return await first, waited

    first, third = run_virtual(both())
    assert first.status is third.status is RunStatus.COMPLETED
    assert [r.input for r in runtime.session.runs] == ["one", "three"]


def test_B78_two_runtimes_on_one_stored_session_meet() -> None:
    store = MemoryStore()
    session = Session(id="s1", name="shared")
    one = make([Reply(text="slow", delay_s=5.0)], store=store, session=session)
    two = make(["x"], store=store, session=Session(id="s1", name="shared"))

    async def both():
        import asyncio

        first = asyncio.ensure_future(one.arun("one"))
        await asyncio.sleep(1)
        with pytest.raises(SessionBusy):
            await two.arun("two")
        await first

    run_virtual(both())


@pytest.mark.parametrize("prompt", ["", "  \n", Message.user("\t")])
def test_B79_empty_input_is_refused_before_anything(prompt) -> None:
    log = Log()
    runtime = make(observers=[log])
    error = failing(runtime, prompt)
    assert isinstance(error, InputRejected)
    assert error.result.status is RunStatus.REJECTED
    assert runtime.session.runs == []
    assert runtime.client.requests == []
    assert [type(e).__name__ for e in log.of("on_event")] == ["InputRejected"]


def test_B79_length_limit() -> None:
    runtime = make(admission=AdmissionPolicy(max_chars=5))
    assert run(runtime, "12345").status is RunStatus.COMPLETED
    assert isinstance(failing(runtime, "123456"), InputRejected)


def test_B80_duplicates_are_allowed_unless_asked_for() -> None:
    runtime = make()
    run(runtime, "same")
    assert run(runtime, "same").status is RunStatus.COMPLETED
    strict = make(admission=AdmissionPolicy(duplicate_window_s=60.0))

    async def twice():
        import asyncio

        await strict.arun("same")
        with pytest.raises(InputRejected):
            await strict.arun(" same ")
        await asyncio.sleep(61)
        return await strict.arun("same")

    assert run_virtual(twice()).status is RunStatus.COMPLETED


# --- one run's own settings


def test_options_of_a_run_are_laid_over_the_sessions() -> None:
    runtime = make(options=RequestOptions(extra={"a": 1, "b": 1}))
    run(runtime, options=RequestOptions(extra={"b": 2}))
    run(runtime)
    sent = [call.options.extra for call in runtime.client.calls]
    assert sent == [{"a": 1, "b": 2}, {"a": 1, "b": 1}]


def test_tools_by_name() -> None:
    def other() -> str:
        """Another."""
        return ""

    runtime = make(tools=[look, other])
    run(runtime, tools=["look"])
    run(runtime, tools=[])
    run(runtime)
    offered = [r.tools and [t.name for t in r.tools] for r in runtime.client.requests]
    assert offered == [["look"], None, ["look", "other"]]
    with pytest.raises(ConfigError, match="nosuch"):
        run_virtual(runtime.arun("x", tools=["nosuch"]))
    assert run(runtime).status is RunStatus.COMPLETED


def test_mode_and_system_of_one_run() -> None:
    runtime = make(system="always")
    run(runtime, mode=TurnMode.NON_STREAMING, system="once")
    run(runtime)
    calls = runtime.client.calls
    assert [(c.streamed, c.request.system) for c in calls] == [(False, "once"), (True, "always")]


def test_model_of_one_run() -> None:
    other = ScriptedModel(["Other."], name="other")
    runtime = make()
    assert run(runtime, model=other).text == "Other."
    assert run(runtime).text == "Hello."
    assert [r.turns[0].model for r in runtime.session.runs] == [
        "scripted:other", "scripted:scripted",
    ]  # fmt: skip


def test_fresh_sends_no_history_and_erases_none() -> None:
    runtime = make()
    run(runtime, "one")
    run(runtime, "two", fresh=True)
    run(runtime, "three")
    sent = [[m.text_content() for m in r.messages] for r in runtime.client.requests]
    assert sent[1] == ["two"]
    assert sent[2] == ["one", "Hello.", "two", "Hello.", "three"]


def test_transients_come_first_and_are_never_stored() -> None:
    runtime = make([CALL, "Blue."], tools=[look])
    run(runtime, "Hi", transients=[Message.user("frame df: 3 rows")])
    for request in runtime.client.requests:
        assert request.messages[0].text_content() == "frame df: 3 rows"
    assert all("frame df" not in m.text_content() for m in runtime.session.history)
    stored = runtime.store.list_messages(runtime.session.id)
    assert all("frame df" not in m.message.text_content() for m in stored if m.message)


def test_T02_text_is_cleaned_where_it_enters() -> None:
    runtime = make(["ok \ud83d"])
    result = run(runtime, "half \ud83d and \x00")
    assert runtime.client.requests[0].messages[0].text_content() == "half \ufffd and \ufffd"
    assert result.text == "ok \ufffd"


# --- storage


class Failing(MemoryStore):
    """Fails the n-th commit, and every one after it."""

    def __init__(self, at):
        super().__init__()
        self.at = at
        self.commits = 0

    def commit(self, commit):
        self.commits += 1
        if self.commits >= self.at:
            raise StoreError("disk full")
        super().commit(commit)


@pytest.mark.parametrize("at", [1, 2, 3, 4, 5, 6])
def test_B62_a_storage_failure_ends_the_run(at) -> None:
    log = Log()
    store = Failing(at)
    runtime = make(["Hello."], store=store, observers=[log])
    error = failing(runtime)
    assert isinstance(error, StoreError)
    assert "disk full" in str(error)
    assert error.result.status.value in ("failed", "completed")
    assert [e.terminal for e in log.of("on_event")].count(True) == 1
    assert log.names().count("on_run_end") == 1
    store.at = 10_000
    again = run(runtime, "again")
    assert again.status is RunStatus.COMPLETED
    check_run(runtime, again)


def test_a_store_that_cannot_be_opened_is_told_like_any_failure() -> None:
    class Broken(MemoryStore):
        def create_session(self, row):
            raise StoreError("read-only")

    runtime = make(store=Broken())
    error = failing(runtime)
    assert isinstance(error, StoreError)
    assert error.result.status is RunStatus.FAILED


def test_a_busy_store_is_waited_for() -> None:
    from notebook_agent.engine.store.base import StoreBusy

    class Busy(MemoryStore):
        left = 3

        def commit(self, commit):
            if self.left:
                self.left -= 1
                raise StoreBusy("busy")
            super().commit(commit)

    runtime = make(store=Busy())
    result = run(runtime)
    assert result.status is RunStatus.COMPLETED
    check_run(runtime, result)


def test_a_store_that_stays_busy_is_an_error_after_five_seconds() -> None:
    from notebook_agent.engine.store.base import StoreBusy

    class Busy(MemoryStore):
        def commit(self, commit):
            raise StoreBusy("busy")

    error = failing(make(store=Busy()))
    assert isinstance(error, StoreError)
    assert "busy" in str(error)


# --- undo and reset (D21)


def test_undo_takes_the_last_runs_out_and_keeps_log_and_trail() -> None:
    runtime = make(["a"])
    ids = [run(runtime, text).run.id for text in ("one", "two", "three")]
    assert runtime.undo(2) == (ids[2], ids[1])
    assert [m.text_content() for m in runtime.session.history] == ["one", "a"]
    assert len(runtime.session.runs) == 3
    run(runtime, "four")
    assert runtime.undo() == (runtime.session.runs[-1].id,)
    assert runtime.undo() == (ids[0],)
    assert runtime.undo() == ()
    assert runtime.session.history == []
    with pytest.raises(ConfigError):
        runtime.undo(0)


def test_reset_and_hard_reset() -> None:
    runtime = make(["a"])
    run(runtime, "one")
    runtime.reset()
    assert runtime.session.history == []
    assert len(runtime.session.runs) == 1
    run(runtime, "two")
    assert [m.text_content() for m in runtime.client.requests[-1].messages] == ["two"]
    runtime.reset(hard=True)
    assert runtime.session.runs == []
    result = run(runtime, "three")
    check_run(runtime, result)
    assert [r.input for r in runtime.store.list_runs(runtime.session.id)] == ["three"]


def test_a_named_session_goes_on_in_another_runtime() -> None:
    store = MemoryStore()
    run(make(["a"], store=store, session="work"), "one")
    second = make(["b"], store=store, session="work")
    run(second, "two")
    assert [m.text_content() for m in second.session.history] == ["one", "a", "two", "b"]
    assert [r.input for r in second.session.runs] == ["one", "two"]
    third = make(store=store)
    assert third.session.history == []
    third.load_session("work")
    assert len(third.session.runs) == 2
    with pytest.raises(ConfigError):
        third.load_session("nosuch")


def test_a_session_that_comes_with_a_history() -> None:
    session = Session(id="s", history=[Message.user("old"), Message.assistant("answer")])
    runtime = make(session=session)
    run(runtime, "new")
    sent = [m.text_content() for m in runtime.client.requests[0].messages]
    assert sent == ["old", "answer", "new"]
    loaded = make(store=runtime.store)
    loaded.load_session("s")
    assert [m.text_content() for m in loaded.session.history] == [*sent, "Hello."]


def test_anatomy_and_status_make_no_request() -> None:
    runtime = make(system="system", tools=[look], surroundings=pinned())
    run(runtime, "one")
    asked = len(runtime.client.requests)
    anatomy = runtime.context_anatomy("two two")
    assert (anatomy.system, anatomy.history, anatomy.prompt) == (6, 9, 7)
    assert anatomy.tools > 0
    assert anatomy.total == 22 + anatomy.tools
    assert (anatomy.window, anatomy.threshold, anatomy.emergency) == (128_000, 102_400, 121_600)
    status = runtime.status()
    assert (status.model, status.runs, status.messages) == ("scripted:scripted", 1, 2)
    assert len(runtime.client.requests) == asked


def test_parts_of_a_message_prompt() -> None:
    runtime = make()
    run(runtime, Message.user("with \x00"))
    assert runtime.client.requests[0].messages[0].parts == (TextPart("with \ufffd"),)


def test_every_end_re_arms_the_signal() -> None:
    runtime = make(["Hello."], script="401,ok")
    runtime.cancel()
    with pytest.raises(AgentError):
        run_virtual(runtime.arun("x"))
    assert not runtime.cancel_signal.is_cancelled()
