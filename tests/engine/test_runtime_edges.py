"""Edges of the runtime: windows of backups, plug-ins that raise, stores with bugs, events in time."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from notebook_agent.core.breaker import BreakerConfig
from notebook_agent.core.compaction import CompactionPolicy
from notebook_agent.core.compaction_cut import asks
from notebook_agent.core.messages import Message, Role, TextPart, ToolCallPart, ToolResultPart
from notebook_agent.core.policy import RuntimePolicy
from notebook_agent.core.request import RequestOptions
from notebook_agent.core.sendable import cleaned, sendable, with_call_ids
from notebook_agent.core.session import RunStatus, Session
from notebook_agent.core.trim import SUMMARY_PREFIX, is_summary, trim
from notebook_agent.engine.clock import pinned
from notebook_agent.engine.conversation import Conversation
from notebook_agent.engine.memory import InMemoryLoopMemory
from notebook_agent.engine.observers import Convergence
from notebook_agent.engine.store.base import StoreBusy
from notebook_agent.engine.store.memory import MemoryStore
from notebook_agent.engine.tools import LoopPolicy
from notebook_agent.errors import ContextExceeded, LoopDetected, ProviderError, StoreError
from notebook_agent.providers.base import Capabilities
from notebook_agent.providers.scripted import Reply, ScriptedModel
from tests.conftest import run_virtual
from tests.engine.runtime_kit import CharCounter, Log, check_run, failing, make, run, trace

CALL = Reply(tool_calls=[ToolCallPart("c1", "look", {"at": "sky"})])


def look(at: str) -> str:
    """Look at something."""
    return f"{at} is blue"


# --- windows (F02, 3.3 #20)


def _tripped(*backups, history=15_000):
    primary = ScriptedModel(["Primary."], script="ok,401", window=200_000)
    runtime = make(
        model=primary,
        fallback=backups,
        breaker=BreakerConfig(trip_threshold=1, recovery_timeout=1_000_000),
    )
    run(runtime, "h" * (history - 8))
    failing(runtime, "x")
    return runtime


def test_F02_a_backup_that_cannot_hold_the_request_is_skipped() -> None:
    small = ScriptedModel(["small"], name="small", window=4_000)
    big = ScriptedModel(["big"], name="big", window=128_000)
    runtime = _tripped(small, big)
    result = run(runtime, "y")
    assert result.text == "big"
    assert small.requests == []
    ref = result.turns[0].context_ref
    assert (ref.route, ref.window) == ("scripted:big", 128_000)
    assert [e.attempt_count for e in runtime.breaker.chain] == [0, 0]
    check_run(runtime, result)


def test_F02_nothing_in_the_chain_fits() -> None:
    tiny = ScriptedModel(["tiny"], name="tiny", window=2_000)
    small = ScriptedModel(["small"], name="small", window=4_000)
    runtime = _tripped(tiny, small)
    error = failing(runtime, "y" * 5_000)
    assert isinstance(error, ContextExceeded)
    assert "scripted:tiny: window 2,000" in str(error)
    assert "scripted:small: window 4,000" in str(error)
    assert tiny.requests == small.requests == []
    check_run(runtime, error.result)


def test_B36_the_trigger_uses_the_window_of_the_backup() -> None:
    small = ScriptedModel(["small"], name="small", window=16_000)
    runtime = _tripped(small, history=14_000)
    for n in range(4):
        runtime.session.history += [
            Message.user(f"q{n}", id=f"u{n}"),
            Message.assistant("a", id=f"a{n}"),
        ]
    result = run(runtime, "y")
    assert any("ContextOverBudget" in line for line in trace(runtime, result))


def test_max_input_tokens_caps_the_window() -> None:
    runtime = make(policy=RuntimePolicy(max_input_tokens=1_000))
    assert isinstance(failing(runtime, "x" * 950), ContextExceeded)
    assert run(runtime, "x" * 800).status is RunStatus.COMPLETED


def test_window_zero_switches_compaction_off() -> None:
    runtime = make(compaction=CompactionPolicy(window=0))
    assert run(runtime, "x" * 500_000).status is RunStatus.COMPLETED


def test_B39_unsupported_is_one_row_without_an_attempt() -> None:
    deaf = ScriptedModel(["x"], capabilities=Capabilities(tool_calling=False))
    runtime = make(model=deaf, tools=[look])
    run(runtime, "plain", tools=[])
    error = failing(runtime)
    assert isinstance(error, ProviderError)
    assert error.feature == "tool_calling"
    assert error.result.unserved[0].turn.attempts == 0
    assert len(deaf.requests) == 1


# --- plug-ins that raise


def test_memory_that_raises_anywhere_costs_nothing(caplog) -> None:
    class Broken(InMemoryLoopMemory):
        async def note(self, turn, calls, results):
            raise RuntimeError("note")

        async def consolidate(self, input, output):
            raise RuntimeError("consolidate")

    runtime = make([CALL, "Blue."], tools=[look], memory=Broken())
    with caplog.at_level(logging.CRITICAL):
        result = run(runtime)
    assert result.status is RunStatus.COMPLETED
    check_run(runtime, result)


def test_a_counter_that_cannot_prepare_is_used_all_the_same() -> None:
    class Broken(CharCounter):
        async def prepare(self):
            raise RuntimeError("no network")

    assert run(make(counter=Broken())).status is RunStatus.COMPLETED


def test_an_estimate_is_told_once_per_session() -> None:
    class Estimate(CharCounter):
        exact = False
        reason = "Token counts are estimates (est.)."

    runtime = make(counter=Estimate())
    assert Estimate.reason in run(runtime).notices
    assert run(runtime).notices == ()


class Buggy(MemoryStore):
    """A store whose commit has a bug of its own at one record."""

    at = 3

    def commit(self, commit):
        if commit.record.sequence == self.at:
            self.at = -1
            raise TypeError("bug in the store")
        super().commit(commit)


@pytest.mark.parametrize("at", [0, 3, 5])
def test_a_bug_in_a_store_is_a_storage_error(at) -> None:
    store = Buggy()
    store.at = at
    runtime = make(store=store)
    error = failing(runtime)
    assert isinstance(error, StoreError)
    assert "bug in the store" in str(error)
    assert run(runtime, "again").status is RunStatus.COMPLETED


def test_a_session_name_that_cannot_be_stored_is_told() -> None:
    runtime = make(session=Session(id="s", name=""))
    log = Log()
    runtime.hub.add(log)
    error = failing(runtime)
    assert error.result.status is RunStatus.FAILED
    assert [e.terminal for e in log.of("on_event")].count(True) == 1


def test_B57_every_event_is_written_when_the_run_returns() -> None:
    class Slow(MemoryStore):
        left = 20

        def append_events(self, run_id, events):
            if self.left:
                self.left -= 1
                raise StoreBusy("busy")
            super().append_events(run_id, events)

    runtime = make([CALL, "Blue."], tools=[look], store=Slow())
    result = run(runtime)
    names = [type(e).__name__ for e in runtime.store.events(result.run.id)]
    assert names.count("TurnStarted") == 2
    assert names.count("ToolExecutionFinished") == 1
    orders = [e.order for e in runtime.store.events(result.run.id)]
    assert orders == sorted(orders)


def test_events_that_cannot_be_written_cost_no_state(caplog) -> None:
    class Deaf(MemoryStore):
        def append_events(self, run_id, events):
            raise StoreError("no")

    runtime = make(store=Deaf())
    with caplog.at_level(logging.CRITICAL):
        result = run(runtime)
    check_run(runtime, result)


# --- repeats (L124)


def test_L124_the_loop_detector_stops_a_run() -> None:
    runtime = make([CALL], tools=[look], loops=LoopPolicy(warn_at=2, stop_at=3))
    log = Log()
    runtime.hub.add(log)
    error = failing(runtime)
    assert isinstance(error, LoopDetected)
    assert trace(runtime, error.result)[-1] == "EXECUTING_TOOLS: ToolFailure => Fail(LoopDetected)"
    assert len(log.of("on_loop_detected")) >= 1
    check_run(runtime, error.result)
    runtime.client._choose = lambda request, options, n: "Plain."
    assert run(runtime, "again").status is RunStatus.COMPLETED


@pytest.mark.parametrize(
    ("given", "tools"),
    [
        (ToolCallPart("", "look", {"at": "sky"}), ()),  # the tools are switched off
        (ToolCallPart("", "lock", {"at": "sky"}), None),  # there is no such tool
        (ToolCallPart("", "look", {"where": "sky"}), None),  # never the right arguments
        (ToolCallPart("", "look", ["sky"], '["sky"]'), None),  # no object
    ],
    ids=["off", "unknown", "invalid", "no_object"],
)
def test_L124_calls_that_are_refused_again_and_again_are_a_loop(given, tools) -> None:
    runtime = make(Reply(tool_calls=[given]), tools=[look])
    error = failing(runtime, tools=tools)
    assert isinstance(error, LoopDetected)
    assert (error.repetitions, len(error.result.turns)) == (10, 10)
    warned = [
        e for e in runtime.store.events(error.result.run.id) if type(e).__name__ == "LoopWarning"
    ]
    assert [e.repetitions for e in warned] == [3, 6, 9]


def test_L124_refused_calls_that_differ_are_no_loop() -> None:
    replies = [Reply(tool_calls=[ToolCallPart("", "nothing", {"n": n})]) for n in range(12)]
    assert run(make([*replies, "Done."])).text == "Done."


@pytest.mark.parametrize("action", ["warn", "stop", "compact"])
def test_L124_final_answers_that_repeat(action) -> None:
    log = Log()
    loops = LoopPolicy(convergence_action=action)
    runtime = make(["same words here"], loops=loops, observers=[log], surroundings=pinned())
    results = [run(runtime) for _ in range(3)]
    assert log.of("on_convergence_detected") == [Convergence(action)]
    assert all(r.status is RunStatus.COMPLETED for r in results)
    assert bool(results[-1].notices) is (action == "stop")


# --- pure parts


def test_trim_keeps_summary_system_newest_question_and_pairs() -> None:
    call = Message(Role.ASSISTANT, (ToolCallPart("c", "f", {}),))
    result = Message.tool_results((ToolResultPart("c", "f", "r"),))
    old = Message.user(SUMMARY_PREFIX + "x", id="m1")
    messages = [
        Message(Role.SYSTEM, (TextPart("s"),)),
        old,
        Message.user("one"),
        call,
        result,
        Message.assistant("two"),
        Message.user("newest"),
    ]

    def kept(budget):
        return trim(messages, budget, lambda m: 1)

    assert kept(100) == tuple(messages)
    assert kept(4) == (messages[0], old, messages[5], messages[6])
    assert kept(5) == kept(4)  # half a pair is never kept
    assert kept(6) == (messages[0], old, *messages[3:])
    assert kept(0) == (messages[0], old, messages[6])


def test_P01_a_question_that_begins_like_a_summary_is_a_question() -> None:
    first = SUMMARY_PREFIX.partition("\n")[0]
    for text in ("[Summary of the earlier conversation] please", first, f" {first}\n\nx"):
        question = Message.user(text, id="message_1")
        assert not is_summary(question)
        assert asks(question)
        assert (
            trim([question, Message.user("newest")], 1, lambda m: 1)[0].text_content() == "newest"
        )
    assert is_summary(Message.user(SUMMARY_PREFIX + "x"))
    assert is_summary(Message.user("anything", id="summary_7"))
    assert not asks(Message.user(SUMMARY_PREFIX + "x"))


def test_call_ids_are_made_unique() -> None:
    calls = tuple(ToolCallPart(i, "f", {}) for i in ("", "", "a", "a"))
    ids = [c.id for c in with_call_ids(Message(Role.ASSISTANT, calls)).tool_calls]
    assert ids == ["call", "call_2", "a", "a_2"]


def test_duplicate_call_ids_of_a_server_are_answered_one_by_one() -> None:
    calls = [ToolCallPart("x", "look", {"at": "sky"}), ToolCallPart("x", "look", {"at": "sea"})]
    runtime = make([Reply(tool_calls=calls), "Done."], tools=[look])
    result = run(runtime)
    results = runtime.session.history[2].results
    assert [(r.call_id, r.output) for r in results] == [
        ("x", "sky is blue"),
        ("x_2", "sea is blue"),
    ]
    check_run(runtime, result)


def test_sendable_and_cleaned() -> None:
    assert sendable(Message(Role.ASSISTANT, ())) is None
    refusal = Message(Role.ASSISTANT, (TextPart("I will not.", refusal=True),))
    assert sendable(refusal) is refusal
    same = Message.user("fine")
    assert cleaned(same) is same


def test_a_history_changed_by_hand_is_read_anew() -> None:
    counter = CharCounter()
    talk = Conversation([Message.user("abc", id="1")])
    assert talk.tokens(counter) == 3
    digest = talk.digest()
    talk.messages[:] = [Message.user("longer", id="2")]
    assert talk.tokens(counter) == 6
    assert talk.digest() != digest
    other = CharCounter(name="other", per_message=10)
    assert talk.tokens(other) == 16
    assert talk.tokens(counter) == 6


def test_totals_read_from_another_thread_stay_right() -> None:
    counter = CharCounter()
    talk = Conversation()
    stop = threading.Event()

    def look_at():
        while not stop.is_set():
            talk.tokens(counter)

    thread = threading.Thread(target=look_at)
    thread.start()
    for n in range(500):
        talk.append([Message.user("ab", id=str(n))])
        if n % 50 == 49:
            talk.replace(talk.messages[-10:])
    stop.set()
    thread.join()
    assert talk.tokens(counter) == 2 * len(talk.messages)


def test_transients_and_system_are_cleaned() -> None:
    runtime = make(system="s\ud83d")
    run(runtime, transients=[Message.user("t\x00")])
    request = runtime.client.requests[0]
    assert request.system == "s\ufffd"
    assert request.messages[0].text_content() == "t\ufffd"


def test_switching_the_model_resets_its_breaker() -> None:
    other = ScriptedModel(["Other."], name="other")
    log = Log()
    runtime = make(observers=[log], surroundings=pinned())
    run(runtime)
    assert runtime.switch_model(other) == "scripted:other"
    assert run(runtime).text == "Other."
    assert [(c.from_model, c.to_model) for c in log.of("on_model_switched")] == [
        ("scripted:scripted", "scripted:other")
    ]
    runtime.set_request_options(RequestOptions(extra={"k": 1}))
    run(runtime)
    assert other.calls[-1].options.extra == {"k": 1}


def test_a_run_waits_on_nothing_after_its_end() -> None:
    """No task of ours outlives a run, however it ends (run_virtual checks)."""

    async def story():
        runtime = make([Reply(text="slow", delay_s=9)])
        before = len(asyncio.all_tasks())
        task = asyncio.ensure_future(runtime.arun("x"))
        await asyncio.sleep(1)
        runtime.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return len(asyncio.all_tasks()) - before

    assert run_virtual(story()) == 0


def test_B58_what_a_run_writes_does_not_grow_with_its_past() -> None:
    sizes = []

    class Weighing(MemoryStore):
        def commit(self, commit):
            snapshot = commit.snapshot
            size = len(str(commit.record.to_json()))
            if snapshot is not None:
                size += len(str(snapshot.data)) + sum(len(str(m)) for m in snapshot.pending)
            sizes[-1] += size
            super().commit(commit)

    runtime = make(["ok"], store=Weighing(), counter=CharCounter(per_message=4))
    for _ in range(150):
        sizes.append(0)
        run(runtime, "same")
    early, late = sizes[5], sizes[-1]
    assert abs(late - early) < 150  # a few digits of ids, counts and watermark
    assert runtime.counter.messages_counted == 300


def test_B75_snapshot_is_kept_on_failure_and_deleted_on_success() -> None:
    runtime = make(["x"], script="ok,401")
    done = run(runtime)
    failed = failing(runtime).result
    assert runtime.store.get_snapshot(done.run.id) is None
    assert runtime.store.get_snapshot(failed.run.id) is not None
