"""Driving the real engine again with recorded replies (B59): what was, happens again and is seen."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

import pytest

from notebook_agent.core import outcomes as o
from notebook_agent.core.compaction import CompactionPolicy
from notebook_agent.core.messages import Message, ToolCallPart
from notebook_agent.core.policy import RuntimePolicy
from notebook_agent.core.request import TurnMode
from notebook_agent.core.retry import RetryPolicy
from notebook_agent.core.session import RunStatus
from notebook_agent.engine.cancel import CancelSignal
from notebook_agent.engine.observers import Observer
from notebook_agent.engine.replay_drive import redrive
from notebook_agent.engine.runtime import AgentRuntime
from notebook_agent.engine.store.jsonl import check_file, export_runs
from notebook_agent.engine.store.memory import MemoryStore
from notebook_agent.engine.store.redact import redact_line
from notebook_agent.engine.store.run_file import read_run_file
from notebook_agent.engine.tokenizer import default_counter
from notebook_agent.errors import (
    AgentError,
    Cancelled,
    ConfigError,
    ErrorKind,
    ProviderError,
    StoreError,
)
from notebook_agent.providers.scripted import Reply, ScriptedModel
from tests.conftest import fixed_surroundings, run_virtual
from tests.engine.runtime_kit import CharCounter

CALLED: list[tuple[int, int]] = []


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    CALLED.append((a, b))
    return a + b


async def divide(a: int, b: int) -> float:
    """Divide."""
    return a / b


@dataclass
class Numbered:
    n: int


def call(name: str, key: str = "c1", **given) -> ToolCallPart:
    return ToolCallPart(key, name, given)


class Seen(Observer):
    def __init__(self) -> None:
        self.text = ""
        self.names: list[str] = []
        self.resets = 0

    def on_text_delta(self, ctx) -> None:
        self.text += ctx.delta

    def on_attempt_reset(self, ctx) -> None:
        self.text = ""
        self.resets += 1

    def on_tool_post(self, ctx) -> None:
        self.names.append(f"{ctx.tool}={ctx.result}")

    def on_run_end(self, ctx) -> None:
        self.names.append(ctx.status)


def record(tmp_path, prompts, model, *, given=None, **over):
    """Run prompts for real, write their run file, check it; the file and the recorded texts."""
    store = over.pop("store", None) or MemoryStore()

    async def work():
        runtime = AgentRuntime(
            model, store=store, surroundings=fixed_surroundings(), counter=CharCounter(), **over
        )
        texts = []
        for prompt in prompts:
            try:
                texts.append((await runtime.arun(prompt, **given or {})).text)
            except AgentError as error:
                texts.append(type(error).__name__)
        return runtime.session.id, texts

    session_id, texts = run_virtual(work())
    file = export_runs(store, session_id, tmp_path / "run.jsonl", exported_at=0.0)
    report = check_file(file)
    assert report.ok, str(report)
    return file, texts


def again(file, **over):
    over.setdefault("counter", CharCounter())

    async def work():
        return await redrive(file, surroundings=fixed_surroundings(), **over)

    return run_virtual(work())


def test_B59_plain_replies_are_driven_again(tmp_path):
    file, texts = record(
        tmp_path, ["hi", "and you?"], ScriptedModel(["Hello there.", "Fine, thank you."])
    )
    seen = Seen()
    report = again(file, observers=[seen])
    assert report.ok, str(report)
    assert [r.text for r in report.results] == texts
    assert seen.text == "".join(texts)
    assert seen.names == ["completed", "completed"]
    assert len(report.session.history) == 4
    assert "2 runs, the same as recorded" in str(report)


def test_B59_tools_give_their_recorded_results_and_are_not_run(tmp_path):
    replies = [
        Reply(
            text="let me see",
            tool_calls=[
                call("add", "c1", a=1, b=2),
                call("add", "c2", a=3, b=4),
                call("divide", "c3", a=1, b=0),
            ],
        ),
        Reply(tool_calls=[call("add", "c4", a="x", b=1), call("nothing", "c5")]),
        "done",
    ]
    file, _ = record(tmp_path, ["go"], ScriptedModel(replies), tools=[add, divide])
    ran = len(CALLED)
    seen = Seen()
    report = again(file, observers=[seen])
    assert report.ok, str(report)
    assert len(CALLED) == ran
    assert seen.names[:2] == ["add=3", "add=7"]
    assert "ZeroDivisionError: division by zero" in seen.names[2]
    assert report.results[0].text == "done"


@pytest.mark.parametrize("script", ["503,ok", "drop@2,503,ok", "trunc@2,ok", "503,503,503,503,ok"])
def test_B59_failed_attempts_are_seen_again(tmp_path, script):
    """Retries with their reset, and the rescue after the fourth."""
    file, texts = record(tmp_path, ["hi"], ScriptedModel(["one two three four"], script=script))
    recorded = read_run_file(file).runs[0].run.turns[0]
    seen = Seen()
    report = again(file, observers=[seen])
    assert report.ok, str(report)
    turn = report.results[0].run.turns[0]
    assert (turn.attempts, turn.rescued) == (recorded.attempts, recorded.rescued)
    assert seen.resets >= recorded.attempts - 1
    assert seen.text == texts[0]


@pytest.mark.parametrize("script", ["401", "503,503,503,503,503", "429,429,429,429,429", "quota"])
def test_B59_failing_runs_fail_again(tmp_path, script):
    replies = (
        [ProviderError(ErrorKind.PROVIDER, "no money", status=429, quota=True)]
        if script == "quota"
        else ["x"]
    )
    model = ScriptedModel(replies, script="" if script == "quota" else script)
    file, texts = record(tmp_path, ["hi", "again"], model)
    report = again(file)
    assert report.ok, str(report)
    assert report.results[0].status is RunStatus.FAILED
    assert texts[0] in ("ProviderError", "RateLimitEscalation")


def test_B59_without_streaming(tmp_path):
    replies = [Reply(tool_calls=[call("add", a=1, b=2)]), "three"]
    file, _ = record(
        tmp_path, ["hi"], ScriptedModel(replies), tools=[add], mode=TurnMode.NON_STREAMING
    )
    assert again(file).ok


@pytest.mark.parametrize("script", ["401", "503"])
def test_B59_a_failure_without_streaming(tmp_path, script):
    file, _ = record(
        tmp_path, ["hi"], ScriptedModel(["x"], script=script), mode=TurnMode.NON_STREAMING
    )
    report = again(file)
    assert report.ok, str(report)
    assert report.results[0].status is RunStatus.FAILED


@pytest.mark.parametrize("summary", ["Goal: count. Done: much.", ""])
def test_B59_the_summary_of_a_model_is_given_again(tmp_path, summary):
    """And one that was empty, and so refused, is refused again (P05)."""
    policy = CompactionPolicy(window=1500, strategy="model")

    def reply(request):
        asks = request.messages[-1].text_content()
        return "word " * 60 if asks.startswith("q") else summary

    file, _ = record(tmp_path, [f"q{n}" for n in range(6)], ScriptedModel(reply), compaction=policy)
    done = [
        e
        for b in read_run_file(file).runs
        for e in b.events
        if type(e).__name__ == "CompactionCompleted"
    ]
    assert done
    assert done[0].applied is bool(summary)
    report = again(file)
    assert report.ok, str(report)


def test_B59_a_file_without_its_messages_has_the_trails_text(tmp_path):
    file, _ = record(tmp_path, ["hi"], ScriptedModel(["hello"]))
    read = read_run_file(file)
    read.runs[0].messages.clear()
    seen = Seen()
    again(read, observers=[seen])
    assert seen.text == "hello"


def test_B59_the_adapters_state_comes_back(tmp_path):
    file, _ = record(tmp_path, ["hi"], ScriptedModel(["hello"]))
    read = read_run_file(file)
    log = read.runs[0].messages
    for n, entry in enumerate(log):
        if entry.message is not None and entry.message.text_content() == "hello":
            log[n] = replace(
                entry,
                message=replace(
                    entry.message, provider_state={"model": "scripted:scripted", "sig": "s"}
                ),
            )
    states = []

    class Look(Observer):
        def on_stream_success(self, ctx) -> None:
            states.append(ctx)

    assert again(read, observers=[Look()]).ok
    assert len(states) == 1


def test_a_drive_that_the_user_stops_ends_there(tmp_path):
    file, _ = record(tmp_path, ["hi", "again"], ScriptedModel(["x y z"]))
    stop = CancelSignal()
    report = again(file, cancel=stop, step=lambda ctx: stop.cancel())
    assert len(report.results) == 1
    assert report.results[0].status is RunStatus.CANCELLED


def test_B59_cut_replies_and_calls_that_were_not_run(tmp_path):
    replies = [Reply(text="a long", tool_calls=[call("add", a=1, b=2)], stop_reason="length")]
    file, _ = record(tmp_path, ["hi"], ScriptedModel(replies), tools=[add])
    report = again(file)
    assert report.ok, str(report)
    assert report.results[0].run.turns[0].tools_not_run == ("add",)


def test_B59_what_a_schema_asks_is_told_from_what_the_engine_asks(tmp_path):
    """The rest of a cut reply, and copies that compaction shortened, are nobody's repair."""
    replies = ["no JSON", Reply(text="cut", stop_reason="length"), "no JSON either", '{"n": 3}']
    file, texts = record(
        tmp_path,
        ["hi"],
        ScriptedModel(replies),
        policy=RuntimePolicy(max_output_recovery_attempts=2),
        given={"schema": Numbered},
    )
    assert texts == ['{"n": 3}']
    report = again(file)
    assert report.ok, str(report)
    small, _ = record(
        tmp_path,
        ["question " * 60],
        ScriptedModel(["no JSON " * 40, "no JSON " * 40, '{"n": 3}']),
        compaction=CompactionPolicy(window=900),
        tools=[add],
        given={"schema": Numbered},
    )
    kinds = {type(r.outcome) for b in read_run_file(small).runs for r in b.records}
    assert o.CompactionTriggered in kinds
    report = again(small)
    assert report.ok, str(report)


def test_B59_error_results_come_back_word_by_word(tmp_path):
    """They weigh what they weighed: compaction cuts the same again."""
    replies = [
        Reply(tool_calls=[call("add", "c1", a="x", b=1), call("divide", "c2", a=1, b=0)]),
        "word " * 60,
        "word " * 60,
    ]
    file, _ = record(
        tmp_path,
        ["hi", "more", "more"],
        ScriptedModel(replies),
        tools=[add, divide],
        compaction=CompactionPolicy(window=900),
    )
    report = again(file)
    assert report.ok, str(report)
    said = [r.output for m in report.session.history for r in m.results]
    kept = [
        r.output
        for e in read_run_file(file).runs[0].messages
        if e.message
        for r in e.message.results
    ]
    assert kept[0].startswith("Invalid arguments for 'add'")
    assert kept[1].startswith("Tool 'divide' failed: ZeroDivisionError")
    assert not said or said == kept


def test_B59_limits(tmp_path):
    replies = [Reply(tool_calls=[call("add", f"c{n}", a=n, b=2)]) for n in range(5)]
    file, _ = record(
        tmp_path,
        ["hi"],
        ScriptedModel(replies),
        tools=[add],
        policy=RuntimePolicy(max_iterations=2),
    )
    report = again(file)
    assert report.ok, str(report)
    assert report.results[0].status is RunStatus.LIMIT_REACHED


def test_B59_compaction_happens_again(tmp_path):
    policy = CompactionPolicy(window=900)
    replies = [f"{n} " + "word " * 40 for n in range(6)]
    file, _ = record(
        tmp_path, [f"q{n}" for n in range(6)], ScriptedModel(replies), compaction=policy
    )
    kinds = {type(r.outcome) for b in read_run_file(file).runs for r in b.records}
    assert o.CompactionTriggered in kinds
    report = again(file)
    assert report.ok, str(report)
    other = again(file, compaction=CompactionPolicy(window=900, auto=False, emergency=100))
    assert not other.ok  # the policy matters: it was the recorded one that was used
    assert read_run_file(file).runs[0].run.config["compaction"]["window"] == 900


class Facts:
    """A contributor: long on even turns."""

    def contribute(self, turn, _conversation):
        return Message.user("fact " * 120) if turn % 2 == 0 else None


@pytest.mark.parametrize("redact", [False, True])
def test_B59_what_contributors_gave_counts_again(tmp_path, redact):
    """Their messages are not in the file; the trigger must see their tokens (L107)."""
    replies = [f"{n} " + "word " * 40 for n in range(6)]
    file, _ = record(
        tmp_path,
        [f"q{n}" for n in range(6)],
        ScriptedModel(replies),
        compaction=CompactionPolicy(window=1500, keep_tools=("add",)),
        contributors=[Facts()],
    )
    read = read_run_file(file)
    over = [
        r.outcome
        for b in read.runs
        for r in b.records
        if isinstance(r.outcome, o.ContextOverBudget)
    ]
    assert over
    assert "fact fact" not in file.read_text()
    config = read.runs[0].run.config
    assert (config["counter"], config["compaction"]["keep_tools"]) == ("chars", ["add"])
    if redact:
        hidden = redact_line({"type": "run", **read.runs[0].run.to_json()})["config"]
        assert (hidden["counter"], hidden["compaction"]) == (
            config["counter"],
            config["compaction"],
        )
        return
    report = again(file)
    assert report.ok, str(report)


@pytest.mark.parametrize("kind", ["estimate", "ratio-4.05", "o200k_base", "cl100k_base"])
def test_L20_the_recorded_counter_counts_again(tmp_path, kind):
    """Lines that the default counter would not cross at the same places."""
    replies = [f"{n} " + "字" * 60 for n in range(8)]
    store, policy = MemoryStore(), CompactionPolicy(window=700)
    default_counter(kind=kind).count_text("loaded before the loop of virtual time runs")

    async def work():
        runtime = AgentRuntime(
            ScriptedModel(replies), store=store, surroundings=fixed_surroundings(),
            counter=default_counter(kind=kind), compaction=policy,
        )  # fmt: skip
        for n in range(8):
            await runtime.arun(f"q{n} " + "字" * 40)
        return runtime.session.id

    session_id = run_virtual(work())
    file = export_runs(store, session_id, tmp_path / "run.jsonl", exported_at=0.0)
    assert read_run_file(file).runs[0].run.config["counter"] == default_counter(kind=kind).name
    report = again(file, counter=None)
    assert report.ok, str(report)
    assert not again(file, counter=CharCounter(per_message=90)).ok  # the counter matters


def test_B59_a_stopped_run_stops_again(tmp_path):
    class Stop(Observer):
        def on_text_delta(self, ctx) -> None:
            if ctx.delta.startswith("three"):
                stopper["cancel"]()

    stopper = {}
    store = MemoryStore()

    async def work():
        runtime = AgentRuntime(
            ScriptedModel(["one two three four five six"], delay_s=0.1), store=store,
            surroundings=fixed_surroundings(), observers=[Stop()], counter=CharCounter(),
        )  # fmt: skip
        stopper["cancel"] = runtime.cancel
        with pytest.raises(Cancelled):
            await runtime.arun("hi")
        return runtime.session.id

    file = export_runs(store, run_virtual(work()), tmp_path / "c.jsonl")
    seen = Seen()
    report = again(file, observers=[seen])
    assert report.ok, str(report)
    assert report.results[0].status is RunStatus.CANCELLED
    assert seen.text.startswith("one two")


@pytest.mark.parametrize("length", [1, 2, 3, 4, 7, 9])
def test_B59_a_run_that_a_kill_broke_off_is_driven_as_far_as_it_went(tmp_path, length):
    replies = [Reply(tool_calls=[call("add", a=1, b=2)]), "three"]
    file, _ = record(tmp_path, ["hi"], ScriptedModel(replies), tools=[add])
    read = read_run_file(file)
    del read.runs[0].records[length:]
    assert again(read).ok


def test_B59_a_store_that_failed_fails_again(tmp_path):
    class Failing(MemoryStore):
        def commit(self, commit):
            if commit.record.sequence == 3 and not isinstance(
                commit.record.outcome, o.StorageError
            ):
                raise StoreError("disk full")
            super().commit(commit)

    file, _ = record(tmp_path, ["hi"], ScriptedModel(["x"]), store=Failing())
    report = again(file)
    assert report.ok, str(report)
    assert report.results[0].status is RunStatus.FAILED


# -- differences -----------------------------------------------------------------------------


def test_B59_an_engine_that_does_something_else_is_reported(tmp_path):
    file, _ = record(tmp_path, ["hi"], ScriptedModel(["x"]))
    read = read_run_file(file)
    records = read.runs[0].records
    records[2] = replace(
        records[2], outcome=o.ModelResponse(replace(records[2].outcome.response, rescued=True))
    )
    report = again(read)
    (found,) = report.mismatches
    assert (found.sequence, found.what) == (2, "record")
    assert "'rescued': True" in found.expected
    assert "'rescued': False" in found.actual
    assert "not as recorded" in str(report)


def test_B59_other_words_are_reported(tmp_path):
    file, _ = record(tmp_path, ["hi"], ScriptedModel(["x"]))
    read = read_run_file(file)
    log = read.runs[0].messages
    at = next(n for n, e in enumerate(log) if e.message and e.message.role.value == "assistant")
    log.append(replace(log[at], message=Message.assistant("more")))
    (found,) = again(read).mismatches
    assert (found.what, found.actual) == ("message", "nothing")
    assert "more" in found.expected
    log.pop()
    del log[at]
    (found,) = again(read).mismatches
    assert (found.what, found.expected) == ("message", "no message")
    assert "x" in found.actual


def test_B59_a_turn_in_the_wrong_place_is_reported(tmp_path):
    file, _ = record(tmp_path, ["hi"], ScriptedModel(["x"]))
    read = read_run_file(file)
    records = read.runs[0].records
    records[0] = replace(records[0], turn=5)
    assert again(read).mismatches[0].sequence == 0


def test_an_edited_file_is_not_driven(tmp_path):
    file, _ = record(tmp_path, ["hi"], ScriptedModel(["x"]))
    text = file.read_text().replace(
        '"scripted:scripted","stop_reason"', '"scripted:other","stop_reason"'
    )
    file.write_text(text)
    with pytest.raises(StoreError, match="was changed"):
        again(file)


@pytest.mark.parametrize("speed", [0, -1, float("inf"), float("nan")])
def test_speed_must_be_a_number_above_zero(tmp_path, speed):
    file, _ = record(tmp_path, ["hi"], ScriptedModel(["x"]))
    with pytest.raises(ConfigError, match="speed"):
        again(file, speed=speed)


def test_speed_is_the_recorded_pace(tmp_path):
    file, _ = record(tmp_path, ["hi"], ScriptedModel(["one two three four"], delay_s=1.0))
    took = {}

    async def timed(speed):
        began = asyncio.get_running_loop().time()
        report = await redrive(
            file, speed=speed, surroundings=fixed_surroundings(), counter=CharCounter()
        )
        took[speed] = asyncio.get_running_loop().time() - began
        return report.ok

    recorded = read_run_file(file).runs[0].run.turns[0].duration_s
    for speed in (None, 1.0, 4.0):
        assert run_virtual(timed(speed))
    assert took[None] == 0
    assert took[1.0] == pytest.approx(recorded, rel=0.5)
    assert took[4.0] == pytest.approx(took[1.0] / 4, rel=0.01)


def test_step_is_called_after_every_transition(tmp_path):
    file, _ = record(tmp_path, ["hi"], ScriptedModel(["x"]))
    steps = []
    again(file, step=lambda ctx: steps.append((ctx.state.name, ctx.outcome)))
    assert steps == [
        ("CHECKING_POLICY", "Ok"),
        ("BUILDING_CONTEXT", "ContextReady"),
        ("CALLING_MODEL", "ModelResponse"),
        ("PROCESSING_RESPONSE", "NoMoreTurns"),
        ("PERSISTING", "NoMoreTurns"),
    ]


def test_a_redacted_file_is_driven_too(tmp_path):
    store = MemoryStore()
    replies = [Reply(tool_calls=[call("add", a=1, b=2)]), "secret three"]
    record(tmp_path, ["my secret"], ScriptedModel(replies), tools=[add], store=store)
    session_id = store.list_sessions()[0].id
    red = export_runs(store, session_id, tmp_path / "red.jsonl", redact=True)
    assert "secret" not in red.read_text()
    seen = Seen()
    report = again(red, observers=[seen])
    assert report.ok, str(report)
    assert seen.text == "[redacted, 12 characters]"


def test_the_ladder_of_a_rate_limit_wait(tmp_path):
    file, _ = record(
        tmp_path, ["hi"], ScriptedModel(["fine"], script="429,ok"), retry=RetryPolicy()
    )
    assert again(file).ok
