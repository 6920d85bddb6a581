"""Settings: their ranges, what open sessions take over, the breaker's numbers, pause (section 3, L76)."""

from __future__ import annotations

import asyncio
import time

import pytest

from notebook_agent.core.breaker import BreakerState
from notebook_agent.errors import AgentError, ConfigError
from notebook_agent.notebook.agent_session import AgentSession
from notebook_agent.notebook.settings import Settings
from notebook_agent.providers.scripted import ScriptedModel


@pytest.fixture
def agent(monkeypatch):
    monkeypatch.setenv("NOTEBOOK_AGENT_PINNED", "1")
    made = AgentSession(settings=Settings(store="memory"))
    yield made
    made.close()


def failing(agent, *, times: int) -> None:
    for _ in range(times):
        with pytest.raises(AgentError):
            agent.ask("hi")


def day(agent, script: str) -> None:
    agent.model(ScriptedModel(["primary"], script=script, name="primary"))
    agent.models_book.add(ScriptedModel(["backup"], name="backup"))
    agent.fallback("scripted:backup")


def test_trip_after_holds_for_open_sessions_and_new_ones(agent):
    day(agent, "400*9,ok")
    failing(agent, times=1)
    agent.configure(trip_after=2)
    failing(agent, times=1)
    assert agent.runtime().breaker.state is BreakerState.FALLBACK
    assert agent.runtime("other").breaker.config.trip_threshold == 2
    agent.configure(trip_after=0)
    assert agent.runtime().breaker.config.trip_threshold == 3


def test_cooldown_holds_for_one_that_runs_already(agent):
    day(agent, "400*3,ok")
    failing(agent, times=3)
    assert agent.ask("hi").text == "backup"
    asyncio.run(agent.pause(2))
    assert agent.ask("hi").text == "backup"  # 60 s by default
    agent.configure(cooldown=2)
    assert agent.ask("hi").text == "primary"
    assert agent.runtime("other").breaker.config.recovery_timeout == 2.0
    agent.configure(cooldown=0)
    assert agent.runtime().breaker.config.recovery_timeout == 60.0


def test_the_demonstrations_keep_their_own_numbers(agent):
    agent.demo("fallback")
    agent.configure(cooldown=7)
    assert agent.runtime("demo").breaker.config.recovery_timeout == 1.0


def test_pause_moves_a_pinned_clock_at_once(agent):
    began = time.monotonic()
    before = agent.surroundings.now()
    asyncio.run(agent.pause(3600))
    assert agent.surroundings.now() - before == 3600
    assert time.monotonic() - began < 5


def test_pause_waits_on_a_real_clock(monkeypatch):
    monkeypatch.delenv("NOTEBOOK_AGENT_PINNED", raising=False)
    made = AgentSession(settings=Settings(store="memory"))
    began = time.monotonic()
    asyncio.run(made.pause(0.1))
    assert 0.1 <= time.monotonic() - began < 5


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "2", None])
def test_pause_refuses_what_is_no_time(agent, seconds):
    with pytest.raises(ConfigError, match="seconds must be"):
        asyncio.run(agent.pause(seconds))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cooldown", -1), ("cooldown", "2"), ("cooldown", float("inf")), ("trip_after", 1.5),
        ("trip_after", True), ("show", "loud"), ("with_tokens", 0), ("model", 3), ("stream", 1),
        ("model", "nosuch:x"), ("fallback", "scripted:a,nosuch:x"),
    ],
)  # fmt: skip
def test_N11_a_wrong_value_changes_nothing(agent, name, value):
    day(agent, "ok")
    agent.ask("hi")
    before, primary = agent.settings.pairs(), agent.runtime().primary
    with pytest.raises(ConfigError) as caught:
        agent.configure(**{name: value})
    assert agent.settings.pairs() == before
    assert agent.runtime().primary == primary
    assert len(str(caught.value).splitlines()) <= 3


def test_no_open_session_is_changed_by_a_wrong_breaker_number(agent):
    runtime = agent.runtime()
    with pytest.raises(ConfigError):
        runtime.set_breaker(recovery_timeout=-1)
    with pytest.raises(ConfigError, match="cool"):
        runtime.set_breaker(cool=1)
    assert runtime.breaker.config.recovery_timeout == 60.0


def test_D21_another_store_takes_the_conversation_along(agent, tmp_path):
    day(agent, "ok")
    agent.ask("one")
    path = tmp_path / "elsewhere.db"
    agent.configure(store=str(path))
    agent.ask("two")
    assert path.exists()
    assert len(agent.runtime().session.history) == 4
    assert len(agent.audit()) == 2
    asked = agent.models_book.client("scripted:primary").calls[-1].request.messages
    assert [m.text_content() for m in asked] == ["one", "primary", "two"]
    agent.configure(store="memory")
    agent.ask("three")
    assert len(agent.runtime().session.history) == 6
    later = AgentSession(settings=Settings(store=str(path)))
    later.model(ScriptedModel(["again"], name="later"))
    later.session("load", "default")
    assert [m.text_content() for m in later.runtime().session.history] == [
        "one", "primary", "two", "primary",
    ]  # fmt: skip
    later.close()


def test_D21_a_store_that_cannot_be_used_leaves_the_open_one(agent, tmp_path):
    day(agent, "ok")
    agent.ask("one")
    bad = tmp_path / "no.db"
    bad.write_text("not a database" * 100)
    with pytest.raises(ConfigError):
        agent.configure(store=str(bad))
    assert agent.settings.store == "memory"
    assert agent.ask("two").text == "primary"
    assert len(agent.runtime().session.history) == 4
