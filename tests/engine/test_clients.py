"""engine/runtime/clients.py: clients by name, resolved at need and closed once (B36, K02)."""

from __future__ import annotations

import asyncio

import pytest

import notebook_agent
from notebook_agent import ScriptedModel
from notebook_agent.engine.runtime.clients import Clients
from notebook_agent.errors import ConfigError


def test_a_name_is_resolved_once_and_kept_under_its_full_name():
    asked = []

    def resolve(name):
        asked.append(name)
        return ScriptedModel(["x"], name=name.partition(":")[2] or "alias-target")

    clients = Clients(resolve)
    assert clients.add("fast") == "scripted:alias-target"
    assert clients.add("scripted:alias-target") == "scripted:alias-target"
    assert asked == ["fast"]
    found = clients("scripted:later")
    assert clients("scripted:later") is found
    assert asked == ["fast", "scripted:later"]
    own = ScriptedModel(["x"], name="own")
    assert clients.names([own, "scripted:unasked"]) == ("scripted:own", "scripted:unasked")
    assert clients("scripted:own") is own
    assert asked == ["fast", "scripted:later"]


def test_what_is_no_client_is_refused_with_what_is_legal():
    with pytest.raises(ConfigError, match="stream_messages_with_options"):
        Clients().add(3)


def test_without_a_resolver_the_front_door_is_asked(monkeypatch):
    made = ScriptedModel(["x"], name="front")
    monkeypatch.setattr(notebook_agent, "model", lambda name: made, raising=False)
    assert Clients()("any:name") is made


def test_closing_closes_what_can_be_closed():
    class Closing(ScriptedModel):
        closed = 0

        async def aclose(self):
            self.closed += 1

    one = Closing(["x"], name="one")
    clients = Clients()
    clients.add(one)
    clients.add(ScriptedModel(["x"], name="two"))
    asyncio.run(clients.aclose())
    assert one.closed == 1
