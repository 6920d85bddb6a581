"""L45: the routing table against the spec's, cell by cell."""

from __future__ import annotations

import typing

import pytest

from notebook_agent.core import events as e
from notebook_agent.core.accumulator import StreamAccumulator
from notebook_agent.core.event_routes import EVENT_ROUTES, route_of
from notebook_agent.engine.observers import CALLBACKS

# event -> (streamer, observer callback, accumulator, engine)
L45 = {
    e.Text: (True, "on_text_delta", True, None),
    e.Thinking: (False, "on_thinking_delta", False, None),
    e.InputJson: (False, None, True, None),
    e.ToolCall: (False, None, True, None),
    e.ProviderState: (False, None, True, None),  # Ruling: L37
    e.MessageDelta: (False, None, True, "stop reason"),
    e.MessageStart: (False, None, True, None),
    e.PartStart: (False, None, True, None),
    e.PartStop: (False, None, True, None),
    e.MessageStop: (False, None, False, "end of reply"),
    e.Ping: (False, None, False, None),
}


@pytest.mark.parametrize("kind", L45, ids=lambda k: k.__name__)
def test_L45_cell_by_cell(kind):
    row = EVENT_ROUTES[kind]
    assert (row.streamer, row.observer, row.accumulator, row.engine) == L45[kind]


def test_every_event_and_delta_has_a_row():
    kinds = {*typing.get_args(e.StreamEvent), *typing.get_args(e.Delta)} - {e.IndexedDelta}
    assert set(EVENT_ROUTES) == kinds
    assert {row.observer for row in EVENT_ROUTES.values()} - {None} <= set(CALLBACKS)


def test_route_of_looks_into_the_delta():
    assert route_of(e.IndexedDelta(0, e.Text("a"))) is EVENT_ROUTES[e.Text]
    assert route_of(e.Ping()) is EVENT_ROUTES[e.Ping]


@pytest.mark.parametrize(
    "kind", [k for k, row in L45.items() if not row[2]], ids=lambda k: k.__name__
)
def test_what_the_table_keeps_from_the_accumulator_leaves_no_trace_in_the_message(kind):
    acc = StreamAccumulator()
    event = kind("x") if kind is e.Thinking else kind()
    acc.apply(e.PartStart(0, None))
    acc.apply(e.IndexedDelta(0, event) if kind is e.Thinking else event)
    acc.apply(e.PartStop(0))
    assert acc.build().parts == ()
    assert acc.text() == ""
