"""Kills between any two writes of runs of every kind, and kills of the resume too (B72-B77): what
is left resumes to its end, starts no tool twice that must not be, and is driven again as it was."""

from __future__ import annotations

import contextlib
import itertools
import logging
import random
from collections import Counter

import pytest
from pydantic import BaseModel

from notebook_agent.core.compaction import CompactionPolicy
from notebook_agent.core.messages import Role, ToolCallPart
from notebook_agent.core.policy import RuntimePolicy
from notebook_agent.core.request import TurnMode
from notebook_agent.engine.replay_drive import redrive
from notebook_agent.engine.runtime import AgentRuntime, broken_runs
from notebook_agent.engine.store.jsonl import check_file, export_runs
from notebook_agent.engine.store.memory import MemoryStore
from notebook_agent.engine.tools import tool
from notebook_agent.errors import AgentError
from notebook_agent.providers.scripted import Reply, ScriptedModel
from tests.conftest import fixed_surroundings, run_virtual
from tests.engine.runtime_kit import CharCounter, check_legal

WRITES = (
    "append_events", "append_messages", "claim_session", "commit", "create_run", "create_session",
    "delete_snapshot", "finish_tool", "save_snapshot", "set_status", "start_tool",
)  # fmt: skip
TOOLS = ("tools", "approved", "refused", "unstreamed", "fresh")
KINDS = (*TOOLS, "schema", "extractive", "model", "cut")


class Number(BaseModel):
    n: int


class Killed(BaseException):
    """The process is gone."""


class Mortal(MemoryStore):
    """Dies at its n-th write, before it or right after it; a dead process writes nothing more."""

    def __init__(self):
        super().__init__()
        self.revive()

    def revive(self, at=0, *, after=False):
        self.at, self.after, self.count, self.dead = at, after, 0, False

    def write(self, name, *given):
        if self.dead:
            raise Killed
        self.count += 1
        self.dead = self.count == self.at
        if self.dead and not self.after:
            raise Killed
        found = getattr(MemoryStore, name)(self, *given)
        if self.dead:
            raise Killed
        return found


for _name in WRITES:
    setattr(Mortal, _name, lambda self, *given, _name=_name: self.write(_name, *given))


class World:
    """One store, and as many lives of a process on it as are wanted."""

    def __init__(self, kind):
        self.kind, self.store = kind, Mortal()
        self.started = Counter()  # calls of the tool that is not idempotent, by argument
        self.lives = itertools.count()

    def model(self, request):
        """By what is in the conversation, not by how often it was asked: it has many lives."""
        asked = [m for m in request.messages if m.role is Role.USER and not m.results]
        if self.kind == "schema":
            return '{"n": 3}' if len(asked) > 2 else "no JSON"
        if self.kind == "cut":
            return "rest" if len(asked) > 2 else Reply(text="part", stop_reason="length")
        if self.kind in ("extractive", "model"):
            text = asked[-1].text_content()
            return "word " * 60 if text.startswith("q") else "Goal: count. Done: much."
        begin = max(n for n, m in enumerate(request.messages) if m is asked[-1])
        turn = sum(m.role is Role.ASSISTANT for m in request.messages[begin + 1 :])
        if turn > 1:
            return "done"
        calls = [
            ToolCallPart(f"c{turn}{name}", name, {"a": 10 * turn}) for name in ("once", "often")
        ]
        return Reply(text=f"step {turn}", tool_calls=calls)

    def runtime(self):
        async def once(a: int) -> int:
            """Not idempotent."""
            self.started[a] += 1
            return a

        async def often(a: int) -> int:
            """Idempotent."""
            return a + 1

        asks = self.kind in ("approved", "refused")
        tools = [tool(once, confirm=asks), tool(often, idempotent=True)]
        life, count = next(self.lives), itertools.count()
        window = {"extractive": 900, "model": 1500}.get(self.kind, 200_000)
        strategy = "model" if self.kind == "model" else "extractive"
        return AgentRuntime(
            ScriptedModel(self.model),
            store=self.store, session="watch", counter=CharCounter(),
            surroundings=fixed_surroundings(new_id=lambda what: f"{what}_{life}_{next(count)}"),
            tools=tools if self.kind in TOOLS else [],
            approve=(lambda *_, **__: True) if self.kind == "approved" else None,
            mode=TurnMode.NON_STREAMING if self.kind == "unstreamed" else TurnMode.STREAMING,
            compaction=CompactionPolicy(window=window, strategy=strategy),
            policy=RuntimePolicy(max_output_recovery_attempts=3),
        )  # fmt: skip

    async def asks(self):
        runtime = self.runtime()
        given = {"fresh": self.kind == "fresh"}
        if self.kind == "schema":
            given["schema"] = Number
        compacts = self.kind in ("extractive", "model")
        for number in range(5 if compacts else 1):
            await runtime.arun(f"q{number} " + "why " * 10, **given)

    async def resumes(self):
        runtime, ends = self.runtime(), []
        for left in broken_runs(self.store):
            try:
                ends.append((await runtime.aresume(left.run_id, force=True)).status.value)
            except AgentError as error:
                ends.append(repr(error))
        return runtime, ends

    def dies(self, work, at, *, after):
        """Work until the kill; False when it came to its end first."""
        self.store.revive(at, after=after)
        with contextlib.suppress(Killed, AssertionError):  # tasks of the dead are left behind
            run_virtual(work())
        return self.store.dead

    def check(self, path):
        """Resume what is left, and look at everything."""
        self.store.revive()
        runtime, ends = run_virtual(self.resumes())
        assert set(ends) <= {"completed"}
        assert broken_runs(self.store) == []
        assert set(self.started.values()) <= {1}
        check_legal(runtime.session.history)
        if self.store.get_session(runtime.session.id) is None:
            return
        log = [e.message.id for e in self.store.list_messages(runtime.session.id) if e.message]
        assert len(set(log)) == len(log)
        for run in self.store.list_runs(runtime.session.id):
            turns = [row.turn for row in run.turns]
            assert turns == sorted(set(turns))
        file = export_runs(self.store, runtime.session.id, path, exported_at=0.0)
        found = check_file(file)
        assert found.ok, str(found)
        driven = run_virtual(
            redrive(file, surroundings=fixed_surroundings(), counter=CharCounter())
        )
        assert driven.ok, str(driven)


@pytest.fixture(autouse=True)
def _quiet():
    logging.disable(logging.CRITICAL)  # the dead leave a traceback for each event unwritten
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("kind", KINDS)
def test_B75_a_kill_between_any_two_writes(tmp_path, kind):
    killed = 0
    for at in itertools.count(1):
        ended = []
        for after in (False, True):
            world = World(kind)
            ended.append(not world.dies(world.asks, at, after=after))
            world.check(tmp_path / "run.jsonl")
        if all(ended):
            break
        killed += 1
    assert killed > 15


@pytest.mark.parametrize("kind", KINDS)
def test_B75_a_resume_that_is_killed_is_resumed(tmp_path, kind):
    rng, twice = random.Random(7), 0
    for _ in range(40):
        world = World(kind)
        if not world.dies(world.asks, rng.randint(2, 20), after=rng.random() < 0.5):
            continue
        twice += world.dies(world.resumes, rng.randint(1, 12), after=rng.random() < 0.5)
        world.check(tmp_path / "run.jsonl")
    assert twice > 10
