"""Driving again is exact (B59): what a run saw of contributors, breaker, router, summariser and of
what was done between two runs is given again. Random sessions, then each kind by itself."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest

from notebook_agent.core import outcomes as o
from notebook_agent.core.breaker import BreakerConfig
from notebook_agent.core.compaction import CompactionPolicy
from notebook_agent.core.messages import Message, ToolCallPart
from notebook_agent.core.policy import RuntimePolicy
from notebook_agent.core.request import TurnMode
from notebook_agent.core.response import Usage
from notebook_agent.core.retry import RetryPolicy
from notebook_agent.engine.replay_drive import redrive
from notebook_agent.engine.runtime import AgentRuntime
from notebook_agent.engine.store.jsonl import check_file, export_runs, import_runs
from notebook_agent.engine.store.memory import MemoryStore
from notebook_agent.engine.store.open import load_session
from notebook_agent.engine.store.run_file import read_run_file
from notebook_agent.engine.tokenizer import default_counter
from notebook_agent.errors import AgentError, ErrorKind, ProviderError
from notebook_agent.providers.scripted import Reply, ScriptedModel
from notebook_agent.tuning.material import material
from tests.conftest import fixed_surroundings, run_virtual
from tests.engine.runtime_kit import CharCounter


async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


async def words(a: int) -> str:
    """Many words."""
    return "word " * a


class Facts:
    """A contributor of any length."""

    def __init__(self, rng):
        self.rng = rng

    def contribute(self, _turn, _conversation):
        if self.rng.random() < 0.5:
            return None
        return Message.user("fact " * self.rng.randint(0, 150))


def replies(rng):
    """A model that does anything."""

    def reply(_request):
        one = rng.random()
        told = Usage(input_tokens=rng.randint(50, 900), output_tokens=rng.randint(1, 200))
        usage = rng.choice([None, told])
        if one < 0.3:
            given = ({"a": rng.randint(1, 60), "b": 2}, {"a": "x"}, {"a": rng.randint(1, 80)})
            calls = [
                ToolCallPart(f"c{n}", rng.choice(["add", "words", "none"]), rng.choice(given))
                for n in range(rng.randint(1, 3))
            ]
            return Reply(text="let me " * rng.randint(0, 4), tool_calls=calls, usage=usage)
        if one < 0.4:
            return Reply(text="cut", stop_reason="length", usage=usage)
        if one < 0.44:
            raise ProviderError(ErrorKind.BAD_REQUEST, "too long", status=400, overflow=True)
        return Reply(text=f"{one} " + "word " * rng.randint(0, 80), usage=usage)

    return reply


def script(rng):
    steps = ["ok"] * 6 + ["503", "503,503", "drop@2", "429", "trunc@2", "503,503,503,503", "401"]
    return ",".join(rng.choice(steps) for _ in range(rng.randint(0, 6)))


def random_runtime(rng, store):
    model = replies(rng)
    backups = [ScriptedModel(model, name=f"b{n}", script=script(rng)) for n in range(2)]
    return AgentRuntime(
        ScriptedModel(model, script=script(rng), delay_s=rng.choice([0, 0.05])),
        store=store,
        surroundings=fixed_surroundings(),
        counter=rng.choice([CharCounter(), default_counter(kind="estimate")]),
        contributors=rng.choice([[], [Facts(rng)]]),
        fallback=rng.choice([[], backups]),
        breaker=BreakerConfig(
            trip_threshold=rng.choice([1, 2, 3]),
            recovery_timeout=rng.choice([1.0, 30.0]),
            recovery_successes_needed=rng.choice([1, 2]),
        ),
        compaction=CompactionPolicy(
            window=rng.choice([0, 700, 900, 1500, 200_000]),
            strategy=rng.choice(["extractive", "truncate", "model"]),
            auto=rng.random() < 0.9,
        ),
        policy=RuntimePolicy(
            max_iterations=rng.choice([1, 4, 8]),
            max_output_recovery_attempts=rng.choice([0, 2]),
            max_total_tokens=rng.choice([3_000, 256_000]),
            router_retries=rng.choice([0, 0, 2]),
        ),
        mode=rng.choice([TurnMode.STREAMING] * 3 + [TurnMode.NON_STREAMING]),
        retry=RetryPolicy(max_retries=rng.choice([0, 1, 3])),
        tools=[add, words],
    )


async def random_session(rng, store):
    runtime = random_runtime(rng, store)
    for n in range(rng.randint(1, 4)):
        task = asyncio.ensure_future(runtime.arun(f"q{n} " + "why " * rng.randint(0, 60)))
        if rng.random() < 0.1:
            await asyncio.sleep(rng.random() * 0.5)
            if not task.done():
                runtime.cancel()
        with contextlib.suppress(AgentError):
            await task
        await asyncio.sleep(rng.choice([0, 2, 40]))
        between = rng.random()
        if between < 0.15:
            runtime.state.undo()
        elif between < 0.2:
            runtime.state.reset()
    return runtime


def driven(store, session_id, path, **given):
    file = export_runs(store, session_id, path, exported_at=0.0)
    found = check_file(file)
    assert found.ok, str(found)
    return run_virtual(redrive(file, surroundings=fixed_surroundings(), **given)), file


@pytest.mark.parametrize("seed", range(80))
def test_B59_random_sessions_are_driven_again_exactly(tmp_path, seed):
    store = MemoryStore()
    runtime = run_virtual(random_session(random.Random(seed), store))
    if store.get_session(runtime.session.id) is None:
        return  # stopped before anything was written
    counter = runtime.counter if isinstance(runtime.counter, CharCounter) else None
    report, _ = driven(store, runtime.session.id, tmp_path / "run.jsonl", counter=counter)
    assert report.ok, str(report)
    assert len(report.results) == len(runtime.session.runs)


def recorded(tmp_path, model, prompts, *, then=None, **over):
    """Runs one after the other; ``then(runtime, number)`` after each."""
    store = MemoryStore()

    async def work():
        runtime = AgentRuntime(
            model, store=store, surroundings=fixed_surroundings(), counter=CharCounter(), **over
        )
        for n, prompt in enumerate(prompts):
            with contextlib.suppress(AgentError):
                await runtime.arun(prompt)
            if then is not None:
                await then(runtime, n)
        return runtime

    runtime = run_virtual(work())
    report, file = driven(store, runtime.session.id, tmp_path / "run.jsonl", counter=CharCounter())
    assert report.ok, str(report)
    return store, runtime, file


def served(runtime):
    return [turn.model for run in runtime.session.runs for turn in run.turns]


async def nap(runtime, n):
    """The cooldown is over before the last runs."""
    if n >= 2:
        await asyncio.sleep(61)


def test_B59_the_breaker_that_earlier_runs_left_is_there_again(tmp_path):
    """Two runs fail and trip it, the third is the backup's, the fourth probes the primary."""
    model = ScriptedModel(["one", "two", "three"], script="401,503,503,503,503,503,503,503,503,ok")
    _, runtime, file = recorded(
        tmp_path, model, ["a", "b", "c", "d", "e"], then=nap,
        fallback=[ScriptedModel(["from the backup"] * 4, name="backup")],
        breaker=BreakerConfig(trip_threshold=1, recovery_successes_needed=1),
    )  # fmt: skip
    assert {"scripted:backup", "scripted:scripted"} <= set(served(runtime))
    configs = [bundle.run.config for bundle in read_run_file(file).runs]
    assert "breaker" not in configs[0]
    assert any("breaker" in config for config in configs)
    hidden = export_runs(runtime.store, runtime.session.id, tmp_path / "hidden.jsonl", redact=True)
    kept = next(c for c in (b.run.config for b in read_run_file(hidden).runs) if "breaker" in c)
    assert kept["breaker"]["original_model"] == "scripted:scripted"
    assert "503" not in kept["breaker"]["last_cause"]
    assert run_virtual(redrive(hidden, surroundings=fixed_surroundings())).results


def test_B59_what_contributors_gave_to_a_turn_that_could_not_be_sent(tmp_path):
    """No context was ready, so none is recorded with its parts: the estimates tell."""

    class Much:
        def contribute(self, _turn, _conversation):
            return Message.user("fact " * 300)

    _, runtime, file = recorded(
        tmp_path, ScriptedModel(["x"]), ["hi"],
        contributors=[Much()], compaction=CompactionPolicy(window=900),
    )  # fmt: skip
    kinds = [type(r.outcome) for r in read_run_file(file).runs[0].records]
    assert o.ContextOverBudget in kinds
    assert o.ContextReady not in kinds
    assert runtime.session.runs[0].status.value != "completed"


@pytest.mark.parametrize("mode", [TurnMode.STREAMING, TurnMode.NON_STREAMING])
def test_B59_what_the_router_tried_again(tmp_path, mode):
    """Each of its tries is one attempt, and may go to another model (3.3 #1)."""
    _, runtime, _ = recorded(
        tmp_path, ScriptedModel(["never"], script="503,429,503,503,503,503"), ["hi"],
        mode=mode, policy=RuntimePolicy(router_retries=2),
        fallback=[ScriptedModel(["from the backup"], name="backup")],
        breaker=BreakerConfig(trip_threshold=2),
    )  # fmt: skip
    assert served(runtime) == ["scripted:backup"]


def test_B59_a_refused_summary_before_a_good_one_and_its_tokens(tmp_path):
    """The first pass stores nothing, the second one does; both are paid for."""
    said = iter(["", "Goal: count. Done: much. Next: more."])

    def reply(request):
        text = request.messages[-1].text_content()
        told = Usage(input_tokens=700, output_tokens=50)
        if text.startswith("q"):
            return Reply(text="word " * 60)
        return Reply(text=next(said, "Goal: count."), usage=told)

    _, _, file = recorded(
        tmp_path, ScriptedModel(reply), [f"q{n}" for n in range(6)],
        compaction=CompactionPolicy(window=1500, strategy="model"),
    )  # fmt: skip
    done = [
        record.outcome.result["applied"]
        for bundle in read_run_file(file).runs
        for record in bundle.records
        if isinstance(record.outcome, o.CompactionTriggered)
    ]
    assert done[:2] == [False, True]


@pytest.mark.parametrize("what", ["undo", "reset", "compact"])
def test_D21_what_was_done_between_two_runs_is_in_the_file(tmp_path, what):
    async def then(runtime, n):
        if n in (2, 4):
            if what == "undo":
                runtime.state.undo(2)
            elif what == "reset":
                runtime.state.reset()
            else:
                assert (await runtime.acompact_now()).applied

    store, runtime, file = recorded(
        tmp_path, ScriptedModel([f"{n} " + "word " * 60 for n in range(5)]),
        [f"q{n}" for n in range(5)], then=then, compaction=CompactionPolicy(window=2_000),
    )  # fmt: skip
    between = [e.kind for bundle in read_run_file(file).runs for e in bundle.before]
    assert {"undo": "undo", "reset": "reset", "compact": "compaction"}[what] in between
    assert read_run_file(file).after
    new = MemoryStore()
    import_runs(new, file)
    session_id = runtime.session.id
    assert [m.text_content() for m in load_session(new, session_id).history] == [
        m.text_content() for m in load_session(store, session_id).history
    ]
    if what == "compact":  # as the conversation was when the last run began
        said, kept = (material(one).messages for one in (file, (store, "default")))
        assert [m.text_content() for m in said] == [m.text_content() for m in kept]
    hidden = export_runs(store, session_id, tmp_path / "hidden.jsonl", redact=True)
    assert "word word" not in hidden.read_text()
    # into a session that is there already, no marker of another one comes
    other = MemoryStore()
    import_runs(other, file)
    for bundle in read_run_file(file).runs:
        other.delete_run(bundle.run.id)
    before = len(other.list_messages(session_id))
    import_runs(other, file)
    added = other.list_messages(session_id)[before:]
    assert not {e.kind for e in added} & {"undo", "reset"}


def test_B59_runs_that_are_left_out_are_what_the_next_one_stands_on(tmp_path):
    store, runtime, _ = recorded(
        tmp_path, ScriptedModel([f"{n} " + "word " * 40 for n in range(6)]),
        [f"q{n}" for n in range(6)], compaction=CompactionPolicy(window=900),
    )  # fmt: skip
    ids = [run.id for run in runtime.session.runs]
    file = export_runs(
        store, runtime.session.id, tmp_path / "some.jsonl", run_ids=[ids[0], ids[3], ids[5]]
    )
    report = run_virtual(redrive(file, surroundings=fixed_surroundings(), counter=CharCounter()))
    assert report.ok, str(report)
