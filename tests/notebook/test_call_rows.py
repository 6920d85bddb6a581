"""Every tool call has a row of its own, whatever ids the server gives (D13, D20)."""

from __future__ import annotations

from typing import Any

import pytest

from notebook_agent.core import agent_events as ev
from notebook_agent.core.messages import ToolCallPart
from notebook_agent.notebook.agent_session import AgentSession
from notebook_agent.notebook.output import frozen_html, frozen_text
from notebook_agent.notebook.panel_state import PanelState, Printed, TextBlock, ToolRow
from notebook_agent.notebook.reducer import reduce, reduce_all
from notebook_agent.notebook.settings import Settings
from notebook_agent.notebook.sinks import StreamSink
from notebook_agent.notebook.wire import PanelWire
from notebook_agent.providers.scripted import Reply, ScriptedModel
from tests.notebook.recorded import happened, opened, to_model, words


def slow(n: int) -> str:
    """Give n back."""
    return f"r{n}"


def call(n: int, call_id: str = "call_0") -> ToolCallPart:
    return ToolCallPart(call_id, "slow", {"n": n})


def shown(replies: list[Any]) -> PanelState:
    """The last state of a run with these replies."""
    agent = AgentSession({"slow": slow}, settings=Settings(store="memory", model=""))
    try:
        agent.model(ScriptedModel(replies, name="m"))
        agent.tools("add", ["slow"], no_confirm=True)
        agent.ask("go", show="static")
        return agent.show().state
    finally:
        agent.close()


def rows_of(state: PanelState) -> list[tuple[str, str, str]]:
    return [
        (one.arguments, one.status, one.result) for one in state.items if isinstance(one, ToolRow)
    ]


def in_turns(n: int) -> list[Any]:
    """Events of turns that each have a text and one call, all of the same id."""
    out: list[Any] = [opened()]
    for turn in range(n):
        named = {"call_id": "call_0", "tool_name": "slow"}
        at = float(turn)
        out += [
            *to_model(at, turn=turn),
            *words(at + 0.1, f"text {turn}", turn=turn),
            happened(at + 0.2, ev.ToolCallStarted(**named)),
            happened(at + 0.3, ev.ToolCallCompleted(**named, arguments=f'{{"n": {turn}}}')),
            happened(at + 0.4, ev.ToolExecutionStarted(**named)),
            happened(at + 0.5, ev.ToolExecutionFinished(**named, result=f"r{turn}")),
            Printed(at=at + 0.5, call_id="call_0", text=f"p{turn}"),
        ]
    return out


def test_D13_an_id_that_comes_in_each_turn_is_a_call_in_each() -> None:
    state = reduce_all(in_turns(3))
    flow = [one.text if isinstance(one, TextBlock) else one.result for one in state.items]
    assert flow == ["text 0", "r0", "text 1", "r1", "text 2", "r2"]
    assert [o.printed for o in state.items if isinstance(o, ToolRow)] == ["p0", "p1", "p2"]
    for text in (frozen_text(state), frozen_html(state)):
        assert [text.count(f"slow(n={n})") > 0 for n in range(3)] == [True] * 3


def test_D13_the_panel_and_the_terminal_get_each_of_them() -> None:
    wire, state, said = PanelWire(), PanelState(), []
    sink = StreamSink(write=said.append)
    for i, event in enumerate(in_turns(3)):
        state = reduce(state, event)
        assert not any(op["t"] == "reset" for op in wire.diff(state))
        (sink.update if i else sink.open)(state)
    items = [one for one in wire.full(state)["items"] if one["k"] == "tool"]
    assert [one["result"] for one in items] == ["p0\nr0", "p1\nr1", "p2\nr2"]
    text = "".join(said)
    assert [text.count(f"slow(n={n}) · finished") for n in range(3)] == [1, 1, 1]


@pytest.mark.parametrize("ids", [("call_0", "call_0"), ("call_0", "call_1"), ("", "")])
def test_D13_calls_of_one_reply_stay_apart(ids: tuple[str, str]) -> None:
    calls = tuple(call(n, call_id) for n, call_id in enumerate(ids))
    state = shown([Reply("both", tool_calls=calls), "done"])
    assert rows_of(state) == [('{"n": 0}', "finished", "r0"), ('{"n": 1}', "finished", "r1")]


def test_D13_a_run_whose_server_counts_anew_in_each_turn() -> None:
    state = shown([*[Reply(f"t{n}.", tool_calls=(call(n),)) for n in range(3)], "done"])
    assert rows_of(state) == [(f'{{"n": {n}}}', "finished", f"r{n}") for n in range(3)]
    flow = [one.text if isinstance(one, TextBlock) else one.result for one in state.items]
    assert flow == ["t0.", "r0", "t1.", "r1", "t2.", "r2", "done"]


def test_B75_calls_of_a_run_that_goes_on_in_the_middle_of_a_turn() -> None:
    """No TurnStarted comes then: the attempt says which turn it is."""
    named = {"call_id": "call_0", "tool_name": "slow"}
    late = [
        opened(),
        happened(0.0, ev.AttemptStarted(turn=2, attempt=1, max_attempts=4, model="m")),
        happened(0.1, ev.ToolCallStarted(**named)),
        happened(0.2, ev.ToolCallCompleted(**named, arguments='{"n": 2}')),
        happened(0.4, ev.ToolExecutionStarted(**named)),
    ]
    state = reduce_all(late)
    assert (state.turn, rows_of(state)) == (2, [('{"n": 2}', "running", "")])
