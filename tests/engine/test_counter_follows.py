"""The counter is the serving model's: chosen once per run, never below any model that may serve
it, and one for trigger and compaction alike (L18, L20, B36)."""

from __future__ import annotations

import pytest

from notebook_agent.core.agent_events import ContextBuilt
from notebook_agent.core.breaker import BreakerConfig
from notebook_agent.core.context import sum_tokens
from notebook_agent.core.messages import Message
from notebook_agent.core.request import RequestOptions
from notebook_agent.engine.runtime import AgentRuntime
from notebook_agent.engine.tokenizer import (
    LargestCounter,
    counter_for_models,
    counter_named,
    default_counter,
)
from notebook_agent.errors import AgentError
from notebook_agent.providers.scripted import Reply, ScriptedModel, call
from tests.conftest import fixed_surroundings, run_virtual
from tests.engine.runtime_kit import CharCounter

TEXTS = (
    "The tide turns twice a day along this coast. " * 8,
    "潮は満ちては引く。" * 20,
    "0123456789 " * 30,
    "aGVsbG8gd29ybGQhIHRoaXMgaXMgYmFzZTY0" * 8,
    "🦉🌊🧭" * 20,
    '{"key": [1, 2.5, null, true], "k2": {"a": "b"}}' * 10,
    "def f(x):\n    return x ** 2 if x else None\n" * 8,
)
LARGEST = "largest(o200k_base,estimate)"


class Local(ScriptedModel):
    """In this process, under the name of a model whose vocabulary is its own."""

    provider = "local"


class OpenAI(ScriptedModel):
    """The same with a public vocabulary that is not the scripted one's."""

    provider = "openai"


@pytest.fixture(autouse=True)
def loaded():
    """The vocabularies, before a loop of virtual time runs."""
    for kind in ("o200k_base", "cl100k_base"):
        default_counter(kind=kind).count_text("x")


def make(client=None, **given) -> AgentRuntime:
    given.setdefault("surroundings", fixed_surroundings())
    return AgentRuntime(client or ScriptedModel(["Yes."]), **given)


def local(replies=("From the backup.",), **given) -> Local:
    return Local(list(replies), name="smollm2", **given)


class Watch:
    """A contributor: notes which counters work in the run."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        self.runtime: AgentRuntime | None = None

    def contribute(self, _turn, _conversation):
        run = self.runtime.active
        assert run.pipeline.counter is run.counter is self.runtime.compactor.counter
        self.seen.append((run.counter.name, run.run.config["counter"]))


def watched(client=None, **given):
    watch = Watch()
    runtime = watch.runtime = make(client, contributors=[watch], **given)
    return runtime, watch


def switch(runtime, model) -> None:
    async def on_a_loop():
        runtime.switch_model(model)

    run_virtual(on_a_loop())


def test_models_that_count_alike_have_one_plain_counter() -> None:
    for models in (["scripted:a"], ["scripted:a", "scripted:b"], ["scripted:a", "openai:gpt-5"]):
        assert counter_for_models(models).name == "o200k_base"
    assert counter_for_models(["openai:gpt-4"]).name == "cl100k_base"
    assert counter_for_models(["local:smollm2"]).name == "estimate"
    assert counter_for_models([]).name == default_counter().name


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(
    "models", [["scripted:a", "local:smollm2"], ["openai:gpt-4", "openai:gpt-5", "mystery:x"]]
)
def test_L20_the_largest_is_never_below_any(models, text) -> None:
    together = counter_for_models(models)
    assert isinstance(together, LargestCounter)
    assert not together.exact
    assert "(est.)" in together.reason
    message = Message.user(text)
    for model in models:
        alone = default_counter(model)
        assert together.count_text(text) >= alone.count_text(text)
        assert together.count_message(message) >= alone.count_message(message)
        for system in (text, None):
            assert together.count_overhead(system, None) >= alone.count_overhead(system, None)


def test_two_exact_vocabularies_are_no_exact_count() -> None:
    together = counter_for_models(["openai:gpt-4", "openai:gpt-5"])
    assert (together.name, together.exact) == ("largest(cl100k_base,o200k_base)", False)
    assert "upper estimates (est.)" in together.reason
    assert counter_named(together.name).name == together.name


def test_the_same_vocabulary_under_two_rules_keeps_its_name() -> None:
    together = counter_for_models(["local:smollm2", "mystery:x"])
    assert (together.name, together.exact) == ("estimate", False)
    assert together.count_overhead(None, None) > 0  # the system prompt of smollm2's template


@pytest.mark.parametrize("name", ["largest(o200k_base,bad)", "bad", "", "largest()", "chars"])
def test_a_name_that_says_nothing_names_no_counter(name) -> None:
    assert counter_named(name) is None


def test_L20_after_a_switch_the_next_run_counts_for_the_new_model() -> None:
    runtime, watch = watched()
    run_virtual(runtime.arun("one"))
    switch(runtime, local())
    assert runtime.counter.name == runtime.compactor.counter.name == "estimate"
    run_virtual(runtime.arun("two"))
    switch(runtime, OpenAI(["Yes."], name="gpt-4"))
    run_virtual(runtime.arun("three"))
    assert [name for name, _ in watch.seen] == ["o200k_base", "estimate", "cl100k_base"]
    assert [name for _, name in watch.seen] == ["o200k_base", "estimate", "cl100k_base"]
    history = runtime.session.history
    assert runtime.state.conversation.tokens(runtime.counter) == sum_tokens(
        default_counter("openai:gpt-4"), history
    )


def test_L20_a_chain_of_another_vocabulary_counts_with_the_larger() -> None:
    runtime, watch = watched(fallback=(local(),))
    assert runtime.counter.name == LARGEST
    run_virtual(runtime.arun("one"))
    runtime.set_fallback([ScriptedModel(["Yes."], name="second")])
    assert runtime.counter.name == "o200k_base"
    run_virtual(runtime.arun("two"))
    run_virtual(runtime.arun("three", fallback=[local()]))  # this run's own chain
    assert runtime.compactor.counter.name == "o200k_base"  # and the session's again
    run_virtual(runtime.arun("four", model=local(), fallback=[]))
    run_virtual(runtime.arun("five", options=RequestOptions(model="gpt-9")))
    runtime.set_request_options(RequestOptions(model="gpt-9"))
    assert runtime.counter.name == "o200k_base"
    assert [name for name, _ in watch.seen] == [
        LARGEST, "o200k_base", LARGEST, "estimate", "o200k_base",
    ]  # fmt: skip


def test_L20_a_run_keeps_its_counter_when_options_change_beside_it() -> None:
    runtime, watch = watched(ScriptedModel([Reply(tool_calls=[call("turn")]), "Done."]))

    async def turn() -> str:
        """Change what the next run is asked with."""
        runtime.set_request_options(RequestOptions(model="mystery"))
        runtime._counters.clear()
        return "turned"

    result = run_virtual(runtime.arun("one", tools=[turn]))
    assert result.text == "Done."
    assert [name for name, _ in watch.seen] == ["o200k_base", "o200k_base"]
    assert runtime.compactor.counter is runtime.counter  # the next run's again


def test_L20_the_users_own_counter_stays() -> None:
    runtime = make(fallback=(local(),), counter=CharCounter())
    run_virtual(runtime.arun("one"))
    switch(runtime, local())
    assert runtime.counter.name == "chars"


def test_L20_the_trigger_sees_the_serving_models_tokens() -> None:
    """The question fits by the primary's own count and crosses the line by the backup's."""
    text = TEXTS[1] * 3
    exact = default_counter("scripted:scripted").count_message(Message.user(text))
    dear = default_counter("local:smollm2").count_message(Message.user(text))
    assert dear > exact * 1.2
    window = int((exact + dear) / 2 / 0.95)  # the emergency line lies between the two
    trips = ScriptedModel(["Yes."], script="401")
    backup = local(window=window)
    runtime = make(trips, fallback=(backup,), breaker=BreakerConfig(trip_threshold=1))
    with pytest.raises(AgentError):
        run_virtual(runtime.arun("short"))
    with pytest.raises(AgentError) as caught:
        run_virtual(runtime.arun(text))
    assert type(caught.value).__name__ == "ContextExceeded"
    assert backup.calls == []  # it was not sent what it cannot hold
    # by the primary's count it would have gone through
    careless = make(
        ScriptedModel(["Yes."], script="401"),
        fallback=(other := local(window=window),),
        breaker=BreakerConfig(trip_threshold=1),
        counter=default_counter("scripted:scripted"),
    )
    with pytest.raises(AgentError):
        run_virtual(careless.arun("short"))
    run_virtual(careless.arun(text))
    assert len(other.calls) == 1


def test_L17_what_is_shown_is_what_the_run_will_count() -> None:
    runtime = make(fallback=(local(),))
    text = TEXTS[2]

    async def main():
        shown = await runtime.acontext_anatomy(text)
        other = await runtime.acontext_anatomy(text, model=local(), fallback=[])
        result = await runtime.arun(text)
        return shown, other, result

    shown, other, result = run_virtual(main())
    built = [e for e in runtime.store.events(result.run.id) if type(e) is ContextBuilt]
    assert shown.total == built[0].estimate == result.turns[0].context_estimate
    assert (shown.counter, other.counter) == (LARGEST, "estimate")
    assert other.prompt == default_counter("local:smollm2").count_message(Message.user(text))
