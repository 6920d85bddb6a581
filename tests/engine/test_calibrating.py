"""Estimates follow what the provider reported, and never fall below the promise (L17, L18, L20)."""

from __future__ import annotations

import pytest

from notebook_agent.core.compaction import CompactionPolicy
from notebook_agent.core.messages import Message
from notebook_agent.core.response import Usage
from notebook_agent.engine.replay_drive import redrive
from notebook_agent.engine.runtime import AgentRuntime
from notebook_agent.engine.store.jsonl import export_runs
from notebook_agent.engine.store.memory import MemoryStore
from notebook_agent.errors import ConfigError
from notebook_agent.providers.scripted import Reply, ScriptedModel
from tests.conftest import fixed_surroundings, run_virtual
from tests.engine.runtime_kit import CharCounter


class Estimate(CharCounter):
    """One token a character; an estimate."""

    name = "estimating"
    exact = False


def told(tokens: int | None, text: str = "Yes.", **rest) -> Reply:
    usage = None if tokens is None else Usage(input_tokens=tokens, output_tokens=1, **rest)
    return Reply(text=text, usage=usage)


def make(*replies: Reply, **given) -> AgentRuntime:
    given.setdefault("counter", Estimate())
    given.setdefault("surroundings", fixed_surroundings())
    return AgentRuntime(ScriptedModel(list(replies)), **given)


def ask(runtime: AgentRuntime, prompt: str = "x" * 400, **given):
    return run_virtual(runtime.arun(prompt, **given))


def total(runtime: AgentRuntime, **given) -> int:
    return run_virtual(runtime.acontext_anatomy(**given)).total


def plain(runtime: AgentRuntime) -> int:
    """The same without calibration."""
    runtime.calibration.on = False
    try:
        return total(runtime)
    finally:
        runtime.calibration.on = True


def test_the_tail_is_estimated_and_the_rest_is_as_reported():
    runtime = make(told(150), told(290))
    ask(runtime)
    reply = Estimate().count_message(runtime.session.history[-1])
    assert total(runtime) == 150 + reply < plain(runtime)
    assert run_virtual(runtime.acontext_anatomy()).exact is False  # still labelled est.
    ask(runtime, "y" * 100)
    row = runtime.session.runs[-1].turns[-1]
    asked = Estimate().count_message(Message.user("y" * 100))
    assert row.context_estimate == 150 + reply + asked  # the trigger saw it
    assert total(runtime) == 290 + reply


def test_cached_tokens_count():
    runtime = make(told(50, cached_input_tokens=150, input_includes_cached=False))
    ask(runtime)
    assert total(runtime) == 200 + Estimate().count_message(runtime.session.history[-1])


def test_a_provider_that_counts_more_raises_the_estimate():
    runtime = make(told(1_000))
    ask(runtime)
    assert total(runtime) > plain(runtime)
    assert total(runtime) >= 1_000


@pytest.mark.parametrize("wrong", [None, 0, -5, 1, 90, 10**12])
def test_usage_that_cannot_be_so_changes_nothing(wrong):
    runtime = make(told(wrong))
    ask(runtime)
    assert total(runtime) == plain(runtime)


def test_a_service_that_leaves_its_cache_out_is_not_believed_again():
    runtime = make(told(300), told(200), told(390), told(500))
    ask(runtime)
    assert total(runtime) < plain(runtime)
    for _ in range(3):
        ask(runtime, "y" * 100)
        assert total(runtime) == plain(runtime)


def test_exact_counters_stay_as_they_are():
    runtime = make(told(150), counter=CharCounter())
    ask(runtime)
    assert runtime.calibration.anchor is None
    assert "calibration" not in runtime.session.runs[-1].config


def test_it_can_be_switched_off():
    runtime = make(told(150), calibrate=False)
    ask(runtime)
    assert runtime.calibration.anchor is None
    assert "calibration" not in runtime.session.runs[-1].config


def get_time() -> str:
    """The time."""
    return "12:00"


def _another_system(runtime):
    runtime.system = "Be brief."


def _another_tool(runtime):
    runtime.registry.register(get_time)


def _another_model(runtime):
    other = ScriptedModel(["No."])
    other.provider = "other"
    runtime.switch_model(other)


def _undone(runtime):
    runtime.undo()


def _reset(runtime):
    runtime.reset()


def _rewritten(runtime):
    runtime.state.conversation.replace(list(runtime.session.history))


@pytest.mark.parametrize(
    "change", [_another_system, _another_tool, _another_model, _undone, _reset, _rewritten]
)
def test_what_the_anchor_stood_on_changed(change):
    runtime = make(told(150), told(190))
    ask(runtime)
    ask(runtime, "y" * 50)
    assert total(runtime) != plain(runtime)

    async def changed():
        change(runtime)

    run_virtual(changed())
    assert total(runtime) == plain(runtime)


def test_a_compaction_resets_it():
    policy = CompactionPolicy(window=4_000)
    runtime = make(*(told(110 + 60 * n) for n in range(8)), told(None, "Short."), compaction=policy)
    for _ in range(8):
        ask(runtime, "z" * 100)
    assert runtime.calibration.anchor is not None
    result = run_virtual(runtime.acompact_now())
    assert result.applied, result
    assert total(runtime) == plain(runtime)


def test_less_reserved_means_a_later_compaction():
    """The trigger compares the calibrated number: what fits is not compacted."""
    policy = CompactionPolicy(window=1_000)

    def compacted(**given) -> int:
        runtime = make(*(told(300 + 30 * n) for n in range(6)), compaction=policy, **given)
        sizes = [ask(runtime, "q" * 150 if n else "x" * 500) for n in range(4)]
        return sum(bool(t.compacted) for r in sizes for t in r.run.turns)

    assert compacted(calibrate=True) < compacted(calibrate=False)


def test_the_providers_own_count():
    class Counting(ScriptedModel):
        asked = ()

        async def count_tokens(self, request, options):
            self.asked = (*self.asked, request)
            return 17

    model = Counting(["Yes."])
    runtime = AgentRuntime(model, system="Be brief.", tools=[get_time])
    assert runtime.exact_count("how long?") == 17
    request = model.asked[-1]
    assert request.system == "Be brief."
    assert request.tools[0].name == "get_time"
    assert request.messages[-1].text_content() == "how long?"
    with pytest.raises(ConfigError, match="empty"):
        runtime.exact_count()


def test_no_endpoint_counts():
    with pytest.raises(ConfigError, match=r"no endpoint that counts tokens(.|\n)*%agent count"):
        AgentRuntime(ScriptedModel(["x"])).exact_count("x")


def test_a_count_that_is_none():
    class Silent(ScriptedModel):
        async def count_tokens(self, request, options):
            return None

    with pytest.raises(ConfigError, match="without a count"):
        AgentRuntime(Silent(["x"])).exact_count("x")


@pytest.mark.parametrize("runs", [None, "last"])
def test_a_calibrated_run_is_driven_again_as_it_was(tmp_path, runs):
    """What plain estimates would have compacted was not compacted, and is not the second time."""
    store = MemoryStore()
    policy = CompactionPolicy(window=1_000)
    runtime = make(*(told(300 + 60 * n) for n in range(6)), compaction=policy, store=store)
    for n in range(4):
        ask(runtime, "q" * 150 if n else "x" * 500)
    session = runtime.session
    assert not any(t.compacted for r in session.runs for t in r.turns)
    assert session.runs[-1].config["calibration"]["after"] == 1
    given = {} if runs is None else {"run_ids": [session.runs[-1].id]}
    file = export_runs(store, session.id, tmp_path / "c.jsonl", exported_at=0.0, **given)

    async def again():
        return await redrive(file, counter=Estimate(), surroundings=fixed_surroundings())

    report = run_virtual(again())
    assert report.ok, str(report)
    estimates = [t.context_estimate for result in report.results for t in result.run.turns]
    assert (
        estimates == [t.context_estimate for r in session.runs for t in r.turns][-len(estimates) :]
    )
