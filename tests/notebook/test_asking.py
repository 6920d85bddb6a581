"""Approval (D20): the panel where its clicks arrive, else stdin, else no; one question at a time."""

from __future__ import annotations

import asyncio
import sys
import types

import pytest

from notebook_agent.core.messages import ToolCallPart
from notebook_agent.notebook.asking import PanelFirst, approver
from notebook_agent.notebook.channel import channel_name, open_channel
from notebook_agent.notebook.output import frozen_text
from notebook_agent.notebook.panel import AgentPanel
from notebook_agent.notebook.panel_state import Ask, Asked
from notebook_agent.notebook.reducer import reduce, reduce_all
from notebook_agent.notebook.road import KernelRoad
from notebook_agent.notebook.sinks.panel_sink import HELLO_S
from notebook_agent.notebook.wire import PanelWire
from tests.notebook.recorded import recorded
from tests.notebook.test_panel_sink import Ground

CALL = ToolCallPart("c1", "delete", {"path": "a.txt"})


class Shown:
    """A view whose clicks are scripted."""

    def __init__(self, clicks: list[bool | None], answers: list[bool | None]) -> None:
        self._clicks, self._answers = clicks, answers
        self.log: list[str] = []

    def clicks(self) -> bool | None:
        return self._clicks.pop(0) if len(self._clicks) > 1 else self._clicks[0]

    def ask(self, call: str) -> int:
        self.log.append(call)
        return 7

    def answered(self, number: int) -> bool | None:
        assert number == 7
        return self._answers.pop(0) if self._answers else None

    def unask(self) -> None:
        self.log.append("unask")


class Stdin:
    """The kernel's stdin, scripted."""

    def __init__(self, answers: list[str | None], *, there: bool = True) -> None:
        self.answers, self.there = answers, there
        self.log: list[str] = []

    def open(self, prompt: str) -> bool:
        self.log.append(prompt)
        return self.there

    def poll(self) -> str | None:
        return self.answers.pop(0) if self.answers else None

    def close(self) -> None:
        self.log.append("close")


async def ask(view: Shown | None, stdin: Stdin, *, ticks: int = 12) -> bool | None:
    road = KernelRoad(asker=lambda: stdin)
    with road.served():
        task = asyncio.ensure_future(approver(road, lambda: view)(CALL))
        for _ in range(ticks):
            await asyncio.sleep(0)
            road.serve()
            await asyncio.sleep(0)
            if task.done():
                return task.result()
    return await task


@pytest.mark.parametrize("allow", [True, False])
async def test_the_panel_asks_where_clicks_arrive(allow: bool) -> None:
    view, stdin = Shown([None, None, True], [None, None, allow]), Stdin([])
    assert await ask(view, stdin) is allow
    assert view.log == ['delete(path="a.txt")', "unask"]
    assert stdin.log == []


@pytest.mark.parametrize(("said", "want"), [("y", True), ("YES ", True), ("n", False), ("", False)])
async def test_stdin_where_no_click_arrives(said: str, want: bool) -> None:
    view, stdin = Shown([None, False], []), Stdin([None, said])
    assert await ask(view, stdin) is want
    assert view.log == []
    assert stdin.log == ['The model wants to run delete(path="a.txt"). Allow? [y/N] ']


async def test_nobody_there_is_no_answer() -> None:
    assert await ask(Shown([False], []), Stdin([], there=False)) is None
    assert await ask(None, Stdin([], there=False)) is None


async def test_an_unanswered_question_is_taken_back_at_the_end() -> None:
    view, stdin = Shown([True], []), Stdin([])
    assert await ask(view, stdin) is None
    assert view.log == ['delete(path="a.txt")', "unask"]


async def test_two_questions_wait_for_each_other() -> None:
    """Two tools of one turn may ask at the same time: a person sees one question after the other."""
    stdin = Stdin([None, "y", None, "n"])
    road = KernelRoad(asker=lambda: stdin)
    with road.served():
        both = [asyncio.ensure_future(road.ask(f"{n}?")) for n in (1, 2)]
        for _ in range(12):
            await asyncio.sleep(0)
            road.serve()
            await asyncio.sleep(0)
        assert [await one for one in both] == [True, False]
    assert stdin.log == ["1?", "2?"]


async def test_a_cancelled_question_lets_the_next_one_through() -> None:
    stdin = Stdin([None, None, "y"])
    road = KernelRoad(asker=lambda: stdin)
    with road.served():
        first, second = (asyncio.ensure_future(road.ask(f"{n}?")) for n in (1, 2))
        await asyncio.sleep(0)
        road.serve()
        first.cancel()
        for _ in range(8):
            await asyncio.sleep(0)
            road.serve()
            await asyncio.sleep(0)
        assert await second is True
    assert stdin.log == ["1?", "close", "2?"]


# ---- the panel's side ---------------------------------------------------------------------------


def test_clicks_are_known_within_the_second_of_hello() -> None:
    ground = Ground()
    assert ground.sink.clicks() is False  # not open: nothing to click on
    ground.play("streaming", close=False)
    assert ground.sink.clicks() is None
    ground.t = HELLO_S + 0.01
    assert ground.sink.clicks() is False
    ground.hear(t="hello", nonce="n")
    ground.sink.update(ground.state)
    assert ground.sink.clicks() is True


def test_the_first_click_of_this_run_counts() -> None:
    ground = Ground()
    ground.play("streaming", close=False)
    run = ground.panel._wire.run
    for said in (
        {"t": "answer", "run": run - 1, "n": 1, "allow": True},
        {"t": "answer", "run": run, "n": "1", "allow": True},
        {"t": "answer", "run": run, "n": [1], "allow": True},
        {"t": "answer", "n": 1, "allow": True},
    ):
        ground.panel._heard(ground.panel, said, None)
    assert ground.sink.answered(1) is None
    ground.hear(t="answer", run=run, n=1, allow="yes")  # only true is yes
    assert ground.sink.answered(1) is False
    ground.hear(t="answer", run=run, n=1, allow=True)
    assert ground.sink.answered(1) is False
    ground.panel.begin(ground.state, None)  # numbers begin anew in each run
    assert ground.sink.answered(1) is None


def test_the_question_is_in_the_state_and_leaves_with_the_answer() -> None:
    wire = PanelWire()
    state = reduce_all(recorded()["streaming"])
    wire.full(state)
    asked = reduce(state, Asked(at=state.at + 0.1, ask=Ask(1, 'delete(path="\u202eexe.txt")')))
    (op,) = wire.diff(asked)
    assert op["state"]["ask"] == {"n": 1, "call": 'delete(path="<U+202E>exe.txt")'}
    assert asked.status == "waiting"
    assert "a tool waits for your answer" in str(asked.line)
    after = reduce(asked, Asked(at=asked.at + 0.1))
    assert after.ask is None
    assert after.status == "running tools"
    assert reduce(after, Asked(at=after.at)) is after
    ended = reduce_all(recorded()["cancelled"][-2:], asked)
    assert ended.ask is None
    assert "answer" not in frozen_text(ended)


def test_panel_first_before_it_is_open() -> None:
    one = PanelFirst(Shown([None], []), "f()", lambda: Stdin([]))
    assert one.poll() is None
    one.close()


# ---- F6: the channel ----------------------------------------------------------------------------


def test_F6_no_channel_where_none_is_needed() -> None:
    assert channel_name("linux") == ""
    assert open_channel("", lambda said: None) is None
    panel = AgentPanel()
    assert panel.channel == ""
    panel.close()


def test_F6_what_the_channel_brings_is_heard_like_a_comm_message(monkeypatch) -> None:
    """A stand-in for Pyodide's two modules; in JupyterLite itself this was not tried."""
    made: list[Channel] = []

    class Channel:
        def __init__(self, name: str) -> None:
            self.name, self.onmessage, self.closed = name, None, False
            made.append(self)

        def close(self) -> None:
            self.closed = True

    class Proxy:
        def __init__(self, call) -> None:
            self.call, self.gone = call, False

        def destroy(self) -> None:
            self.gone = True

    js = types.SimpleNamespace(BroadcastChannel=types.SimpleNamespace(new=Channel))
    monkeypatch.setitem(sys.modules, "js", js)
    monkeypatch.setitem(sys.modules, "pyodide", types.ModuleType("pyodide"))
    monkeypatch.setitem(sys.modules, "pyodide.ffi", types.SimpleNamespace(create_proxy=Proxy))
    names = {channel_name("emscripten") for _ in range(3)}
    assert len(names) == 3
    panel = AgentPanel(channel=names.pop())
    (channel,) = made
    assert channel.name == panel.channel

    def say(value) -> None:
        channel.onmessage.call(
            types.SimpleNamespace(data=types.SimpleNamespace(to_py=lambda: value))
        )

    stopped: list[bool] = []
    panel.begin(reduce_all(recorded()["streaming"]), lambda: stopped.append(True))
    say({"t": "hello", "nonce": "n"})
    assert panel.answer() is True
    say({"t": "stop", "run": panel._wire.run})
    say("stop")
    say(None)
    assert stopped == [True]
    panel.close()
    assert channel.closed


def test_F6_a_host_without_channels_keeps_the_comm(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "js", None)
    assert open_channel("x", lambda said: None) is None
